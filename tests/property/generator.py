"""Random small kernels, as original programs, for the tests that attack the proof.

Shapes are derived from the accesses, so every kernel is in bounds at all sizes; what reads cells that were never written is
filtered by executing the kernel. Nothing here depends on the front end, so a fault there cannot hide one in the proof.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.property.brute import Machine
from tilec.ir.affine import Aff, Constraint
from tilec.ir.expr import Binary, Cast, Compare, Const, Expr, Index, Load, Select
from tilec.ir.program import Access, Address, Buffer, Guard, Leaf, Loop, Node, Program, Statement

TRIED = ({"N": 1, "M": 1}, {"N": 2, "M": 3}, {"N": 3, "M": 2}, {"N": 4, "M": 4}, {"N": 5, "M": 3})
ARITHMETIC = {"f32": "f32", "f16": "f32", "bf16": "f32", "i32": "i32", "f64": "f64"}


@dataclass(frozen=True)
class Range:
    """A loop variable with its bounds and a hull of its values, affine in the sizes alone (both ends inclusive)."""

    var: str
    lower: Aff
    upper: Aff  # exclusive
    low: int
    high: Aff


@dataclass
class Declared:
    """A buffer while its shape is still growing; `around` are the ranges it is private to."""

    name: str
    dtype: str
    dims: int
    role: str
    around: tuple[Range, ...] = ()
    low: list[int] = field(default_factory=list)
    high: list[Aff] = field(default_factory=list)
    written: bool = False


def hull(index: Aff, ranges: Iterable[Range]) -> tuple[Aff, Aff]:
    """Smallest and largest value over the ranges, affine in the sizes."""
    low = high = Aff(index.const)
    known = {r.var: r for r in ranges}
    for atom, c in index.terms:
        assert isinstance(atom, str)
        ends = (Aff.of(known[atom].low), known[atom].high) if atom in known else (Aff.of(atom), Aff.of(atom))
        low = low + ends[c < 0] * c
        high = high + ends[c > 0] * c
    return low, high


def larger(a: Aff, b: Aff) -> Aff:
    """An upper bound of both for sizes >= 1: the larger coefficient of each."""
    names = sorted(a.names | b.names)
    out = Aff(max(a.const, b.const))
    for n in names:
        out = out + Aff.of(n) * max(a.coefficient(n), b.coefficient(n))
    return out


@dataclass
class Draft:
    """A statement before the shapes are known: indices are not yet shifted to start at 0."""

    ranges: tuple[Range, ...]
    guards: tuple[Constraint, ...]
    target: tuple[Declared, tuple[Aff, ...]]
    op: str
    reads: list[tuple[Declared, tuple[Aff, ...]]]
    value: Expr
    name: str = ""


class Kernel:
    """One random kernel being written."""

    def __init__(self, rng: Random):
        self.rng = rng
        self.sizes = ["N", "M"][: rng.choice((1, 1, 2))]
        self.dtype = rng.choice(("f32", "f32", "f32", "i32", "bf16"))
        self.buffers: list[Declared] = []
        self.drafts: list[Draft] = []
        self.left = rng.choice((1, 2, 2, 3, 3))
        for name in "AB"[: rng.choice((1, 2))]:
            self.declare(name, rng.choice((1, 1, 2)), "param")
        if rng.random() < 0.5:
            self.declare("T", rng.choice((0, 1, 1, 2)), "temp")

    def declare(self, name: str, dims: int, role: str, around: tuple[Range, ...] = ()) -> Declared:
        dtype = self.dtype if role == "param" or self.dtype == "i32" else "f32"
        new = Declared(name, dtype, dims, role, around, [0] * dims, [Aff(0)] * dims)
        self.buffers.append(new)
        return new

    def range(self, depth: int, ranges: Sequence[Range]) -> Range:
        rng, var = self.rng, "ijk"[depth]
        size = Aff.of(rng.choice(self.sizes))
        kind = rng.random()
        if ranges and kind < 0.25:
            outer = rng.choice(ranges)
            if rng.random() < 0.5:
                return Range(var, Aff(outer.low), Aff.of(outer.var) + rng.choice((0, 1, 1)), outer.low, outer.high)
            return Range(var, Aff.of(outer.var) + rng.choice((0, 1)), outer.high + 1, outer.low, outer.high)
        if kind < 0.4:
            extent = rng.choice((2, 3, 4))
            return Range(var, Aff(0), Aff(extent), 0, Aff(extent - 1))
        low, cut = rng.choice((0, 0, 0, 1)), rng.choice((0, 0, 0, 1))
        return Range(var, Aff(low), size - cut, low, size - cut - 1)

    def index(self, ranges: Sequence[Range]) -> Aff:
        rng = self.rng
        if not ranges or rng.random() < 0.08:
            return Aff(rng.choice((0, 0, 1)))
        r = rng.choice(ranges)
        kind = rng.random()
        if kind < 0.55:
            return Aff.of(r.var)
        if kind < 0.8:
            return Aff.of(r.var) + rng.choice((-1, 1, 1, 2))
        if kind < 0.9 and r.low == 0:
            return r.high - r.var
        if kind < 0.95:
            return Aff.of(r.var) * 2
        return Aff.of(r.var) + rng.choice(ranges).var

    def access(self, b: Declared, ranges: Sequence[Range]) -> tuple[Declared, tuple[Aff, ...]]:
        index = [self.index(ranges) for _ in range(b.dims)]
        if b.dims == 2 and len(ranges) >= 2 and self.rng.random() < 0.6:  # the common case: distinct variables
            a, c = self.rng.sample(range(len(ranges)), 2)
            index = [
                Aff.of(ranges[a].var) + self.rng.choice((0, 0, 0, 1, -1)),
                Aff.of(ranges[c].var) + self.rng.choice((0, 0, 1)),
            ]
        for d, e in enumerate(index):
            low, high = hull(e, ranges)
            if low.terms:  # starts at an expression of the sizes: not shiftable to 0 by a constant
                return self.access(b, ranges)
            b.low[d] = min(b.low[d], low.const)
            b.high[d] = larger(b.high[d], high)
        return b, tuple(index)

    def visible(self, ranges: Sequence[Range]) -> list[Declared]:
        names = tuple(ranges)
        return [b for b in self.buffers if b.around == names[: len(b.around)]]

    def statement(
        self, ranges: tuple[Range, ...], guards: tuple[Constraint, ...], target: Declared | None = None, op: str = ""
    ) -> None:
        rng, kind = self.rng, ARITHMETIC[self.dtype]
        visible = self.visible(ranges)
        target = target or rng.choice(visible)
        op = op or rng.choice(("=", "=", "=", "+=", "+=", "max=" if self.dtype != "i32" or rng.random() < 0.3 else "+="))
        readable = [b for b in visible if b.role == "param" or b.written] or [b for b in visible if b.role == "param"]
        reads = [self.access(rng.choice(readable), ranges) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        value: Expr = Const(rng.choice((1, 2, 3)), kind) if not reads else Load(0, kind)
        if len(reads) == 2:
            value = Binary(rng.choice("+-*"), value, Load(1, kind), kind)
        if ranges and rng.random() < 0.4:
            place: Expr = Index(Aff.of(ranges[-1].var) + 1)
            value = Binary("+", value, place if kind == "i32" else Cast(kind, place, kind), kind)
        elif rng.random() < 0.15:
            value = Select(Compare("<", value, Const(3, kind)), value, Const(2, kind), kind)
        self.drafts.append(Draft(ranges, guards, self.access(target, ranges), op, reads, value))
        target.written = True
        self.left -= 1

    def body(self, ranges: tuple[Range, ...], guards: tuple[Constraint, ...], budget: int) -> list:
        """A random body of `budget` statements, as a list of ("loop", range, body), ("if", conditions, body) and drafts."""
        rng, out = self.rng, []
        while budget > 0:
            mine = rng.randint(1, budget)
            budget -= mine
            deep = len(ranges)
            if deep < 3 and (deep == 0 or rng.random() < 0.6):
                new = self.range(deep, ranges)
                if deep and mine == 1 and rng.random() < 0.2 and self.open_scalar(ranges):
                    out.append(self.take(ranges, guards, op="="))
                out.append(("loop", new, self.body((*ranges, new), guards, mine)))
            elif ranges and rng.random() < 0.15:
                condition = Constraint.ge(Aff.of(rng.choice(ranges).var), rng.choice((Aff(1), Aff.of(ranges[0].var))))
                out.append(("if", condition, self.body(ranges, (*guards, condition), mine)))
            else:
                for _ in range(mine):
                    out.append(self.take(ranges, guards))
        return out

    def take(
        self, ranges: tuple[Range, ...], guards: tuple[Constraint, ...], target: Declared | None = None, op: str = ""
    ) -> Draft:
        self.statement(ranges, guards, target, op)
        return self.drafts[-1]

    def open_scalar(self, ranges: tuple[Range, ...]) -> bool:
        if any(b.name == "t" for b in self.buffers):
            return False
        self.declare("t", self.rng.choice((0, 0, 1)), "temp", ranges)
        return True

    def reduction(self) -> list:
        """acc = 0; for k: acc += …; Y[…] = acc, under one or two loops: the shape of most real kernels."""
        rng = self.rng
        outer: list[Range] = [self.range(0, ())]
        if rng.random() < 0.4:
            outer.append(self.range(1, outer))
        ranges = tuple(outer)
        acc = self.declare("acc", 0, "temp", ranges)
        acc.written = True
        start = self.take(ranges, (), acc, "=")
        inner = self.range(len(ranges), ranges)
        update = self.take((*ranges, inner), (), acc, rng.choice(("+=", "+=", "max=")))
        end = self.take(ranges, (), rng.choice([b for b in self.buffers if b.role == "param"]), rng.choice(("=", "=", "+=")))
        read = self.access(acc, ranges)
        end.reads[:1] = [read]
        end.value = Load(0, ARITHMETIC[self.dtype]) if len(end.reads) == 1 else end.value
        nest: list = [start, ("loop", inner, [update]), end]
        if rng.random() < 0.3 and len(ranges) == 1:  # as separate nests over an expanded accumulator
            acc.around, acc.dims, acc.low, acc.high = (), 1, [0], [Aff(0)]
            for draft in (start, update, end):
                draft.target = (acc, self.first(acc, ranges)) if draft.target[0] is acc else draft.target
                draft.reads = [(acc, self.first(acc, ranges)) if b is acc else (b, e) for b, e in draft.reads]
            return [("loop", ranges[0], [x]) for x in nest]
        for r in reversed(ranges):
            nest = [("loop", r, nest)]
        return nest

    @staticmethod
    def first(b: Declared, ranges: tuple[Range, ...]) -> tuple[Aff, ...]:
        b.high[0] = larger(b.high[0], ranges[0].high)
        return (Aff.of(ranges[0].var),)

    def program(self) -> Program:
        nest = self.reduction() if self.rng.random() < 0.35 else self.body((), (), self.left)
        for n, draft in enumerate(self.in_order(nest)):
            draft.name = f"S{n}"
        buffers, used = [], {b.name for d in self.drafts for b, _ in (d.target, *d.reads)}
        for b in self.buffers:
            if b.name in used:
                leading = [r.high + 1 for r in b.around]
                shape = leading + [h + 1 - low for low, h in zip(b.low, b.high, strict=True)]
                buffers.append(Buffer(b.name, b.dtype, tuple(shape), b.role, private=len(b.around)))
        statements: list[Statement] = []
        body = self.build(nest, statements)
        statements.sort(key=lambda s: s.name)
        return Program("random", tuple(self.sizes), (), (), tuple(buffers), tuple(statements), body)

    def in_order(self, nest: list) -> Iterable[Draft]:
        for node in nest:
            if isinstance(node, Draft):
                yield node
            else:
                yield from self.in_order(node[2])

    def build(self, nest: list, statements: list[Statement]) -> tuple[Node, ...]:
        out: list[Node] = []
        for node in nest:
            if isinstance(node, Draft):
                out.append(self.leaf(node, statements))
            elif node[0] == "loop":
                out.append(Loop(node[1].var, (node[1].lower,), (node[1].upper,), self.build(node[2], statements)))
            else:
                out.append(Guard((node[1],), self.build(node[2], statements)))
        return tuple(out)

    def leaf(self, d: Draft, statements: list[Statement]) -> Leaf:
        def logical(b: Declared, index: tuple[Aff, ...]) -> Access:
            lead = [Aff.of(r.var) for r in b.around]
            return Access(b.name, (*lead, *(e - low for e, low in zip(index, b.low, strict=True))))

        conditions = list(d.guards)
        for r in d.ranges:
            conditions += [Constraint.ge(r.var, r.lower), Constraint.lt(r.var, r.upper)]
        loops = tuple(r.var for r in d.ranges)
        target, reads = logical(*d.target), tuple(logical(*r) for r in d.reads)
        statements.append(Statement(d.name, loops, tuple(conditions), target, d.op, d.value, reads))
        instance = tuple(Aff.of(v) for v in loops)
        return Leaf(d.name, instance, Address(*_pair(target)), tuple(Address(*_pair(r)) for r in reads))


def _pair(a: Access) -> tuple[str, tuple[Aff, ...]]:
    return a.buffer, a.index


def sizes_of(program: Program, tried: dict[str, int]) -> dict[str, int]:
    return {n: tried[n] for n in program.sizes}


def is_defined(original: Program, sizes: dict[str, int]) -> bool:
    """In bounds, inside its domains, and no read of a cell that was never written."""
    run = Machine(original, sizes, frozenset())
    return not run.faults and all(content is not None for _, _, _, content, _ in run.reads)


def random_program(rng: Random) -> Program:
    """An original program: in bounds, with no read of a never-written cell at the sizes of TRIED, and with something to see."""
    while True:
        program = Kernel(rng).program()
        if all(program.buffer[s.target.buffer].role != "param" for s in program.statements):
            continue  # nothing comes out
        if all(is_defined(program, sizes_of(program, t)) for t in TRIED):
            return program
