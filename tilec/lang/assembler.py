"""From statements in nested loops to an original Program: scopes, temporaries, domains. Both front ends end here.

A temporary declared inside loops i, j gets one leading dimension per loop around the declaration, as wide as the
loop's range; a lower bound that may be negative is subtracted from the index.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tilec.errors import LanguageError
from tilec.ir import expr as ir
from tilec.ir.affine import Aff, Constraint
from tilec.ir.dtypes import DTYPES, promote
from tilec.ir.program import Access, Address, Buffer, Guard, Leaf, Loop, Node, Program, Statement
from tilec.ir.tree import loop_conditions
from tilec.lang.affine import extreme, nonnegative
from tilec.lang.values import Value, ValueLike, convert, lift, load, negative, renumber

# Keywords of schedule(), cost() and run(): a size or parameter of that name could not be given there.
CALL_KEYWORDS = (
    "backend",
    "arrays",
    "target",
    "threads",
    "registers",
    "reassociate",
    "contract",
    "hardware_rounding",
    "proof_budget",
)

ASSIGN = ("=", "+=", "-=", "*=", "max=", "min=")


@dataclass
class _Frame:
    """An open loop, guard or the kernel's body."""

    node: Loop | Guard | None
    body: list[Node] = field(default_factory=list)
    visible: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Declared:
    prefix: tuple[Aff, ...]  # the leading index of every access: the loops around the declaration, shifted to start at 0
    where: str  # "parameter", "line 7" or ""
    scope: str  # what stands around the declaration, for messages


class Assembler:
    """Collects one kernel; every method raises LanguageError (without a place) for what the language has not."""

    def __init__(self, name: str):
        self.name = name
        self.sizes: list[str] = []
        self.scalars: dict[str, str] = {}
        self.buffers: dict[str, Buffer] = {}
        self.statements: list[Statement] = []
        self._where: list[Constraint] = []
        self._together: dict[str, tuple[str, ...]] = {}
        self._declared: dict[str, _Declared] = {}
        self._loop_names: set[str] = set()
        self._frames = [_Frame(None)]
        self.parameters: list[str] = []

    # names

    def size(self, name: str, where: Iterable[Constraint] = (), together: Sequence[str] = ()) -> Aff:
        """A size of the kernel; those declared `together` come in that order, whatever is used first."""
        if name not in self.sizes:
            self._claim(name, "size")
            self.sizes.append(name)
            self._together[name] = tuple(together) or (name,)
        for c in where:
            if c not in self._where:
                self._where.append(c)
        return Aff.of(name)

    def _claim(self, name: str, what: str) -> None:
        if not name.isascii() or not name.isidentifier() or keyword.iskeyword(name) or "__" in name:
            rule = "the letters a to z and A to Z, digits and single underscores, no keyword of Python"
            raise LanguageError(f"'{name}' is no name for a {what}: {rule}.")
        if what in ("size", "parameter") and name in CALL_KEYWORDS:
            rule = f"schedule(), cost() and run() take {', '.join(CALL_KEYWORDS)} as keywords of their own"
            raise LanguageError(f"'{name}' is no name for a {what}: {rule}.")
        if re.fullmatch(r"S\d+", name):
            raise LanguageError(f"'{name}' is no name for a {what}: S0, S1, … are the statements.")
        taken = self._taken(name, what)
        if taken:
            raise LanguageError(f"'{name}' is declared twice: it is already {taken}. Give this {what} a name of its own.")

    def _taken(self, name: str, what: str) -> str | None:
        if name in self.buffers:
            where = self._declared[name].where
            kind = "a parameter" if self.buffers[name].role == "param" else "a temporary"
            return kind + (f" (line {where})" if where else "")
        if name in self.scalars:
            return "a scalar parameter"
        if name in self.sizes:
            return "a size"
        if name in (self._loop_names if what != "loop variable" else {v.var for v in self.loops}):
            return "a loop variable"
        return None

    # declarations

    def parameter(self, name: str, dtype: str, shape: Sequence[Aff]) -> None:
        self._claim(name, "parameter")
        self._dtype(dtype)
        self.buffers[name] = Buffer(name, dtype, tuple(shape), role="param")
        self._declared[name] = _Declared((), "", "")
        self._frames[0].visible.add(name)
        self.parameters.append(name)

    def scalar(self, name: str, dtype: str) -> Value:
        self._claim(name, "parameter")
        if dtype not in ("f64", "f32", "i32"):
            raise LanguageError(f"a scalar parameter is f64, f32 or i32; '{name}: {dtype}' is not.")
        self.scalars[name] = dtype
        self.parameters.append(name)
        return Value(ir.Scalar(name, dtype))

    def temporary(self, name: str, dtype: str, shape: Sequence[Aff] = (), line: int | None = None) -> None:
        self._claim(name, "temporary")
        self._dtype(dtype)
        prefix: list[Aff] = []
        extents: list[Aff] = []
        ranges = self.ranges()
        for loop in self.loops:
            low, high = ranges[loop.var]
            shift = Aff(0) if nonnegative(low) else low
            prefix.append(Aff.of(loop.var) - shift)
            extents.append(high - shift + 1)
        self.buffers[name] = Buffer(name, dtype, (*extents, *shape), private=len(prefix))
        inner = self._frames[-1].node
        scope = f"loop '{inner.var}'" if isinstance(inner, Loop) else "an `if`"
        self._declared[name] = _Declared(tuple(prefix), str(line) if line is not None else "", scope)
        self._frames[-1].visible.add(name)

    def _dtype(self, dtype: str) -> None:
        if dtype not in DTYPES:
            raise LanguageError(f"no dtype '{dtype}'. Dtypes: {', '.join(DTYPES)}.")

    # loops and guards

    @property
    def loops(self) -> list[Loop]:
        return [f.node for f in self._frames if isinstance(f.node, Loop)]

    def conditions(self) -> tuple[Constraint, ...]:
        out: list[Constraint] = []
        for frame in self._frames:
            if isinstance(frame.node, Loop):
                out += loop_conditions(frame.node)
            elif isinstance(frame.node, Guard):
                out += frame.node.conditions
        return tuple(out)

    def ranges(self) -> dict[str, tuple[Aff, Aff]]:
        """The lowest and highest value of every open loop variable, affine in the sizes (a hull, not more)."""
        out: dict[str, tuple[Aff, Aff]] = {}
        for loop in self.loops:
            low = _best([extreme(e, out, False) for e in loop.lower], lambda a, b: nonnegative(a - b))
            high = _best([extreme(e - 1, out, True) for e in loop.upper], lambda a, b: nonnegative(b - a))
            out[loop.var] = (low, high)
        return out

    @contextmanager
    def loop(self, var: str, lower: Sequence[Aff], upper: Sequence[Aff]) -> Iterator[Aff]:
        self._claim(var, "loop variable")
        self._loop_names.add(var)
        with self._open(Loop(var, tuple(dict.fromkeys(lower)), tuple(dict.fromkeys(upper)), ())):
            yield Aff.of(var)

    @contextmanager
    def guard(self, conditions: Sequence[Constraint]) -> Iterator[None]:
        with self._open(Guard(tuple(conditions), ())):
            yield

    @contextmanager
    def _open(self, node: Loop | Guard) -> Iterator[None]:
        self._frames.append(_Frame(node))
        try:
            yield
        finally:
            frame = self._frames.pop()
        if frame.body:  # loops and guards without statements do nothing
            self._frames[-1].body.append(replace(node, body=tuple(frame.body)))

    # accesses and statements

    def rank(self, name: str) -> int:
        """The number of subscripts a person writes."""
        b = self.buffers[name]
        return len(b.shape) - b.private

    def check_visible(self, name: str) -> None:
        if not any(name in f.visible for f in self._frames):
            scope = self._declared[name].scope
            raise LanguageError(
                f"'{name}' is declared inside {scope} and is gone after it; declare it before that to use its value here."
            )

    def access(self, name: str, index: Sequence[Aff]) -> Access:
        """The element `name[index]`, its private dimensions filled in."""
        if name not in self.buffers:
            raise LanguageError(f"'{name}' is not declared. {self.declared_text()}")
        self.check_visible(name)
        if len(index) != self.rank(name):
            shape = self.buffers[name].shape[self.buffers[name].private :]
            what = f"'{name}' has shape [{', '.join(map(str, shape))}]" if shape else f"'{name}' is a scalar"
            count = f"{len(shape)} subscript{'s' if len(shape) > 1 else ''}, not {len(index)}" if shape else "no subscript"
            raise LanguageError(f"{what} and takes {count}.")
        return Access(name, (*self._declared[name].prefix, *index))

    def declared_text(self) -> str:
        names = [n for n in self.buffers if any(n in f.visible for f in self._frames)] + list(self.scalars)
        text = f"Declared here: {', '.join(names)}" if names else "Nothing is declared here"
        loops = [v.var for v in self.loops]
        return text + (f"; loops: {', '.join(loops)}." if loops else ".")

    def read(self, name: str, index: Sequence[Aff] = ()) -> Value:
        return load(self.access(name, index), self.buffers[name].dtype)

    def store(self, name: str, index: Sequence[Aff], op: str, value: ValueLike, line: int | None = None) -> Statement:
        """name[index] op value, for op one of = += -= *= max= min=; `a = a + e` becomes `a += e`, and so on."""
        if name in self.scalars:
            raise LanguageError(f"'{name}' is a scalar parameter and cannot be assigned; declare a temporary for the new value.")
        if name in {v.var for v in self.loops}:
            raise LanguageError(f"'{name}' is a loop variable and cannot be assigned.")
        if name in self.sizes:
            raise LanguageError(f"'{name}' is a size and cannot be assigned.")
        if op not in ASSIGN:
            raise LanguageError(f"no assignment '{op}'. Assignments: {' '.join(ASSIGN)}.")
        target = self.access(name, index)
        v = lift(value)
        arithmetic = DTYPES[self.buffers[name].dtype].arithmetic
        if op == "=":
            op, v = _as_update(target, v)
        if v.dtype == "bool":
            convert(v, "f32")
        if op != "=":
            v = convert(v, promote(arithmetic, v.dtype))
        elif isinstance(v.expr, ir.Const) and v.dtype == "i32":
            v = convert(v, arithmetic)
        if op == "-=":  # x - e is x + (-e), bit for bit
            op, v = "+=", negative(v)
        s = Statement(
            f"S{len(self.statements)}",
            tuple(loop.var for loop in self.loops),
            self.conditions(),
            target,
            op,
            v.expr,
            v.reads,
            line,
        )
        self.statements.append(s)
        self._frames[-1].body.append(
            Leaf(
                s.name,
                tuple(Aff.of(x) for x in s.loops),
                Address(target.buffer, target.index),
                tuple(Address(a.buffer, a.index) for a in s.reads),
            )
        )
        return s

    def program(self) -> Program:
        """The original program; LanguageError if nothing is ever computed."""
        if not self.statements:
            raise LanguageError(f"kernel '{self.name}' has no statement.")
        known = set(self.sizes)
        return Program(
            name=self.name,
            sizes=tuple(dict.fromkeys(n for s in self.sizes for n in self._together[s] if n in known)),
            where=tuple(c for c in self._where if c.names <= known),
            scalars=tuple(self.scalars.items()),
            buffers=tuple(self.buffers.values()),
            statements=tuple(self.statements),
            body=tuple(self._frames[0].body),
            parameters=tuple(self.parameters),
        )


def _best(candidates: list[Aff], better: Callable[[Aff, Aff], bool]) -> Aff:
    """The tightest of several valid bounds, as far as it shows; else the first."""
    best = candidates[0]
    for c in candidates[1:]:
        if better(c, best):
            best = c
    return best


def _as_update(target: Access, v: Value) -> tuple[str, Value]:
    """`a = a + e` as `a += e`; likewise a - e, a * e, max(a, e), min(a, e), with a on either side where that is the same."""
    if target not in v.reads or not isinstance(v.expr, ir.Binary):
        return "=", v
    n = v.reads.index(target)
    op = {"+": "+=", "-": "-=", "*": "*=", "max": "max=", "min": "min="}.get(v.expr.op)
    if op is None:
        return "=", v
    if _is_load(v.expr.a, n):
        rest = v.expr.b
    elif op != "-=" and _is_load(v.expr.b, n):
        rest = v.expr.a
    else:
        return "=", v
    return op, _without_unused(Value(rest, v.reads))


def _is_load(e: ir.Expr, n: int) -> bool:
    """Load(n), possibly widened: widening is exact, and an update does it too."""
    if isinstance(e, ir.Cast) and e.rule is None and e.to in ("f64", "f32") and e.dtype == e.to:
        return isinstance(e.x, ir.Load) and e.x.n == n
    return isinstance(e, ir.Load) and e.n == n


def _without_unused(v: Value) -> Value:
    used = list(dict.fromkeys(e.n for e in ir.walk(v.expr) if isinstance(e, ir.Load)))
    new = [0] * len(v.reads)
    for m, n in enumerate(used):
        new[n] = m
    return Value(renumber(v.expr, tuple(new)), tuple(v.reads[n] for n in used))
