"""Affine expressions, addresses and values as Python source."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import copysign

from tilec.errors import InternalError
from tilec.ir.affine import Aff, Div
from tilec.ir.dtypes import DTYPES, promote
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Index, Load, Scalar, Select, Unary
from tilec.ir.printer import Scope
from tilec.ir.program import Address, Loop, Read
from tilec.lower.cells import Cells
from tilec.lower.nests import is_plain

_LEVEL = {"+": 5, "-": 5, "*": 6, "/": 6, "//": 6, "%": 6}
_FUNCTION = {"max": "maximum", "min": "minimum", "and": "logical_and", "or": "logical_or"}


def identifiers(names: Iterable[str], reserved: Iterable[str]) -> dict[str, str]:
    """A Python identifier for each name, distinct, none of them reserved, a keyword or a builtin."""
    taken = {*reserved, *keyword.kwlist, *dir(builtins)}
    out: dict[str, str] = {}
    for name in dict.fromkeys(names):
        base = re.sub(r"\W", "_", name)
        while base in taken:
            base += "_"
        taken.add(base)
        out[name] = base
    return out


def quoted(text: str) -> str:
    return f'"{text}"'


@dataclass(frozen=True)
class Span:
    """The range of an array axis: slices run from `start` to `end`, which is at least `start`."""

    start: Aff
    end: Aff


@dataclass(frozen=True)
class PythonScope(Scope):
    """Python text at one place of the tree.

    axes: the loops that run as dimensions of an array operation, in the order of its dimensions. spans: their ranges.
    variables: buffers held in a Python variable. lanes: buffers with leading dimensions for those loops.
    used, arrays: filled by the text made: support functions called, axes that must exist as index arrays.
    """

    names: Mapping[str, str]
    cells: Cells
    loops: tuple[Loop, ...]
    variables: frozenset[str]
    used: set[str]
    axes: tuple[str, ...] = ()
    spans: Mapping[str, Span] = field(default_factory=dict)
    lanes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    arrays: set[str] = field(default_factory=set, compare=False)

    def name(self, name: str) -> str:
        return self.names[name]

    def call(self, function: str, *args: str) -> str:
        self.used.add(function)
        return f"{function}({', '.join(args)})"

    def _division(self, atom: Div) -> str:
        return f"({self._closed(atom.num)} // {atom.den})"

    def aff(self, aff: Aff) -> str:
        body = super().aff(aff)
        lone = aff.const == 0 and len(aff.terms) == 1 and isinstance(aff.terms[0][0], Div) and aff.terms[0][1] == 1
        return body[1:-1] if lone else body

    def range_of(self, loop: Loop) -> str:
        """`range(0, min(64, M - 64*io))`."""
        return f"range({self.lower(loop)}, {self.upper(loop)})"

    def address(self, a: Address) -> str:
        """Slices where every axis stands alone with coefficient 1 and in order, index arrays otherwise."""
        lanes = self.lanes.get(a.buffer, ())
        if a.buffer in self.variables and not lanes:
            return self.name(a.buffer)
        index = (*(Aff.of(v) - self.spans[v].start for v in lanes), *self.cells.index(a, self.loops))
        parts = self._slices(index)
        if parts is None:
            self.arrays.update(v for e in index for v in e.names if v in self.axes)
            parts = [self.aff(e) for e in index]
        return f"{self.name(a.buffer)}[{', '.join(parts) or '()'}]"

    def _slices(self, index: tuple[Aff, ...]) -> list[str] | None:
        axes = set(self.axes)
        if not is_plain(index, axes):
            return None
        present = [v for e in index for v in self.axes if v in e.names]
        if present != [v for v in self.axes if v in present]:
            return None
        parts: list[str] = []
        last = None  # the axis before; axes missing in front of the first need nothing
        for e in index:
            mine = next((v for v in self.axes if v in e.names), None)
            if mine is None:
                parts.append(self.aff(e))
                continue
            if last is not None:
                parts += ["None"] * (self.axes.index(mine) - last - 1)
            last = self.axes.index(mine)
            base, span = e - mine, self.spans[mine]
            parts.append(f"{self.aff(base + span.start)}:{self.aff(base + span.end)}")
        return parts if last is None else parts + ["None"] * (len(self.axes) - last - 1)

    # values ------------------------------------------------------------------------------------------------------

    def number(self, value: float | int | bool, dtype: str) -> str:
        """A constant of an arithmetic type."""
        if dtype == "bool":
            return repr(bool(value))
        whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15 and (value or copysign(1.0, value) > 0)
        text = str(int(value)) if whole else repr(value)  # -0.0 keeps its sign
        for special in ("inf", "nan"):
            if special in text:
                self.used.add(special)
        return self.call(dtype, text)

    def python(self, e: Expr, want: str, env: Mapping[str, Aff], reads: tuple[Read, ...], level: int = 0) -> str:
        """The value of `e` converted to the arithmetic type `want`; `level` is the precedence around it."""

        def go(x: Expr, dtype: str, outer: int = 0) -> str:
            return self.python(x, dtype, env, reads, outer)

        def wrap(body: str, mine: int) -> str:
            return f"({body})" if mine < level else body

        if e.dtype != want:
            if isinstance(e, Const) and e.dtype == "i32":
                return self.number(e.value, want)
            return self.call(want, go(e, e.dtype))
        match e:
            case Const(value=value):
                return self.number(value, want)
            case Load(n=n):
                return self.loaded(reads[n], level)
            case Index(aff=aff):
                value = aff.subs(env)
                self.arrays.update(value.names & set(self.axes))
                return self.call("index", self.aff(value))
            case Scalar(name=name):
                return self.name(name)
            case Unary(op="-", x=x):
                return wrap(f"-{go(x, want, 7)}", 7)
            case Unary(op="not", x=x):
                return self.call("logical_not", go(x, want))
            case Unary(op=("abs" | "sqrt") as op, x=x):
                return f"abs({go(x, want)})" if op == "abs" else self.call("sqrt", go(x, want))
            case Binary(op=op, a=a, b=b) if op in _FUNCTION:
                return self.call(_FUNCTION[op], go(a, want), go(b, want))
            case Binary(op=op, a=a, b=b):
                mine = _LEVEL[op]
                return wrap(f"{go(a, want, mine)} {op} {go(b, want, mine + 1)}", mine)
            case Compare(op=op, a=a, b=b):
                common = promote(a.dtype, b.dtype)
                return wrap(f"{go(a, common, 4)} {op} {go(b, common, 4)}", 3)
            case Select(cond=c, a=a, b=b):
                return self.call("where", go(c, "bool"), go(a, want), go(b, want))
            case Call(function=function, args=(x,)):
                return self.call(function, go(x, "f64" if x.dtype == "f64" else "f32"))
            case Cast(to=to, x=x, rule=rule):
                return self.call(to, go(x, x.dtype), *((quoted(rule),) if rule else ()))
        raise InternalError(f"no NumPy text for {e!r}")

    def loaded(self, read: Read, level: int = 0) -> str:
        """A read; an inlined statement is rounded as its store would."""
        if isinstance(read, Address):
            return self.address(read)
        statement = self.program.statement[read.statement]
        dtype = self.program.source.buffer[statement.target.buffer].dtype
        return self.as_stored(statement.value, dtype, dict(zip(statement.loops, read.instance, strict=True)), read.reads, level)

    def as_stored(self, value: Expr, dtype: str, env: Mapping[str, Aff], reads: tuple[Read, ...], level: int = 0) -> str:
        """What a store of `value` to `dtype` leaves."""
        if dtype in ("f64", "f32", "i32") and value.dtype in (dtype, "i32"):
            return self.python(value, dtype, env, reads, level)
        return self.call(dtype, self.python(value, value.dtype, env, reads))

    def update(self, target: Address, op: str, arithmetic: str, term: str, operand: str) -> str:
        """`target op= term` where `arithmetic` is the type of the operation; `operand` is the term as a right operand."""
        t, dtype = self.address(target), self.program.buffer[target.buffer].dtype
        exact = arithmetic == dtype
        if exact and op in ("+=", "*="):
            return f"{t} {op} {term}"
        old = t if DTYPES[dtype].arithmetic == arithmetic else self.call(arithmetic, t)
        new = self.call(_FUNCTION[op[:-1]], old, term) if op in ("max=", "min=") else f"{old} {op[0]} {operand}"
        return f"{t} = {new if exact else self.call(dtype, new)}"
