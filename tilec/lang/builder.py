"""The same programs without syntax, for generators, fuzzers and importers.

    b = Builder("dot")
    N = b.size("N")
    x, y, out = b.param("x", "f32", [N]), b.param("y", "f32", [N]), b.param("out", "f32", [1])
    acc = b.temp("acc", "f32", initial=0)
    with b.loop("i", 0, N) as i:
        b.store(acc, [], "+=", x[i] * y[i])
    b.store(out, [0], "=", acc[()])
    program = b.program()

Loop variables and sizes are affine expressions (ir/affine.py); `x[i]` is a value, and values have Python's operators plus the
functions of `lang/values.py` (select, maximum, minimum, absolute, call, cast, compare, logical).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, Union

from tilec.ir.affine import Aff, AffLike, Constraint
from tilec.ir.dtypes import check_rule
from tilec.ir.program import Program, Statement
from tilec.lang import values
from tilec.lang.assembler import Assembler
from tilec.lang.kernel import Definition
from tilec.lang.types import Size, affine_of, parse_where
from tilec.lang.values import Value, ValueLike, absolute, call, compare, logical, maximum, minimum, select

Index: TypeAlias = Union[Size, AffLike]


@dataclass(frozen=True, eq=False)
class Array:
    """A declared buffer; `a[i, j]` reads one element, `a[()]` a scalar."""

    name: str
    assembler: Assembler

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Value:
        return self.assembler.read(self.name, _affs(index if isinstance(index, tuple) else (index,)))


class Builder:
    """Collects one kernel. Methods raise LanguageError (without a place) for what the language has not."""

    def __init__(self, name: str):
        self.assembler = Assembler(name)

    def size(self, name: str, where: str | Iterable[str] = ()) -> Aff:
        """A symbolic size, at least 1; `where` as in `sizes`, over the sizes declared so far."""
        out = self.assembler.size(name)
        for text in [where] if isinstance(where, str) else where:
            self.assembler.size(name, parse_where(text, self.assembler.sizes))
        return out

    def param(self, name: str, dtype: str, shape: Sequence[Index]) -> Array:
        self.assembler.parameter(name, dtype, _affs(shape))
        return Array(name, self.assembler)

    def scalar(self, name: str, dtype: str) -> Value:
        """A scalar parameter, as a value."""
        return self.assembler.scalar(name, dtype)

    def temp(self, name: str, dtype: str, shape: Sequence[Index] = (), initial: ValueLike | None = None) -> Array:
        """A temporary, private to each iteration of the loops open now; `initial` (scalars) is a statement of its own."""
        self.assembler.temporary(name, dtype, _affs(shape))
        if initial is not None:
            self.assembler.store(name, [], "=", initial)
        return Array(name, self.assembler)

    @contextmanager
    def loop(self, var: str, lower: Index | Sequence[Index], upper: Index | Sequence[Index]) -> Iterator[Aff]:
        """max(lower) <= var < min(upper); yields the variable."""
        with self.assembler.loop(var, _affs(_many(lower)), _affs(_many(upper))) as v:
            yield v

    @contextmanager
    def when(self, *conditions: Constraint) -> Iterator[None]:
        """Statements inside run where all conditions hold (Constraint.lt, .ge, .eq of ir/affine.py)."""
        with self.assembler.guard(conditions):
            yield

    def store(self, target: Array, index: Sequence[Index], op: str, value: ValueLike) -> Statement:
        """target[index] op value; op is one of = += -= *= max= min=."""
        return self.assembler.store(target.name, _affs(index), op, value)

    def program(self) -> Program:
        return self.assembler.program()

    def definition(self) -> Definition:
        return Definition(self.assembler.name, self.program(), tuple(self.assembler.parameters))


def cast(dtype: str, x: ValueLike, rule: str | None = None) -> Value:
    """`x` rounded to `dtype` by its own rule or the named one."""
    check_rule(dtype, rule)
    return values.cast(dtype, x, rule)


def _many(x: Index | Sequence[Index]) -> Sequence[Index]:
    return (x,) if isinstance(x, int | str | Aff | Size) else x


def _affs(xs: Sequence[Index]) -> list[Aff]:
    return [affine_of(x) for x in xs]


__all__ = ["Array", "Builder", "Value", "absolute", "call", "cast", "compare", "logical", "maximum", "minimum", "select"]
