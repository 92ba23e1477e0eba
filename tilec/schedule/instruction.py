"""instruction: a nest that one machine instruction runs, checked against what is declared of that instruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff
from tilec.ir.expr import Binary, Cast, Expr, Load
from tilec.ir.instructions import INSTRUCTIONS, Instruction
from tilec.ir.layouts import address
from tilec.ir.program import Address, Leaf, Loop, Program
from tilec.ir.tree import loops, sites
from tilec.schedule.core import choice, primitive
from tilec.schedule.names import find_loop, loop_at
from tilec.schedule.nest import const_extent, context, described, range_text, swap

_SAMPLES = (0, 1, 3)  # values of the loops around and multiples of a size where strides are looked at


@primitive("mapping")
def instruction(program: Program, loop: str, name: str) -> Program:
    """Run the nest that starts at a vector loop by one machine instruction, whose semantics are declared (ir/instructions.py).

    1. `name` is a declared instruction; `loop` is a vector loop whose full extent is a multiple of the instruction's lanes.
    2. Inside it stands one multiply-add `acc += a * b` alone, under one loop of exactly `depth` iterations where the
       instruction adds `depth` products to a lane (none where it adds one).
    3. acc has the instruction's result dtype, a and b (converted at most to the arithmetic type) its operand dtype.
    4. acc's lanes lie next to each other; so do the `depth` elements of a, which does not depend on the lane, and the elements
       of b: either the groups of `depth`, lane by lane, as `layout` packs them, or the lanes of each of `depth` rows, which are
       woven into groups in registers. A pair of a that runs against those of b is turned round in a register.
    5. Permissions: contract where the instruction rounds once, hardware_rounding where it flushes denormals; and, unless the
       elements lie so that the instruction adds them in the order of the loop, reassociate of acc (integers need none).

        for j in 0..16:  # vector                   for j in 0..16:  # vector, vdpbf16ps
            for p in 0..2: acc[j] += a[p]*b[p, j]  ->   …
    """
    position = find_loop(program, loop)
    node = loop_at(program, position)
    choice(name, "the instruction", tuple(INSTRUCTIONS))
    wanted = INSTRUCTIONS[name]
    if node.kind != "vector":
        raise ScheduleError(f"'{loop}' is {node.kind}: an instruction runs the lanes of a vector loop. vectorize it first")
    if node.instruction is not None:
        raise ScheduleError(f"{node.instruction} runs '{loop}' already")
    extent = const_extent(program, node, context(program, position)) or 0
    if extent % wanted.lanes:
        raise ScheduleError(
            f"'{loop}' has {extent} lanes; {name} has {wanted.lanes}. Possible: split by a multiple of {wanted.lanes}"
        )
    leaf, inner = _body(program, node, position, loop, wanted)
    found = _Operands.of(program, leaf, node, inner, wanted)
    found.check_permissions(program, wanted)
    return swap(program, position, replace(node, instruction=name))


def _body(program: Program, node: Loop, position: tuple[int, ...], loop: str, wanted: Instruction) -> tuple[Leaf, Loop | None]:
    inner: Loop | None = None
    body = node.body
    if wanted.depth > 1 and len(body) == 1 and isinstance(body[0], Loop):
        inner = body[0]
        body = inner.body
    held = [s.action for s in sites(node.body)]
    depth = f"under one loop of {wanted.depth} iterations, " if wanted.depth > 1 else ""
    if len(body) != 1 or not isinstance(body[0], Leaf) or len(held) != 1 or (wanted.depth > 1 and inner is None):
        shown = ", ".join(described(program, (*position, n)) for n in range(len(node.body)))
        raise ScheduleError(f"inside '{loop}' one multiply-add must stand alone, {depth}not: {shown}")
    if inner is not None and not (
        len(inner.lower) == len(inner.upper) == 1 and inner.upper[0] - inner.lower[0] == Aff(wanted.depth)
    ):
        raise ScheduleError(
            f"'{inner.var}' runs {range_text(inner)}; {wanted.name} adds exactly {wanted.depth} products. "
            f'Possible: split by {wanted.depth} with tail="peel", or "exact"'
        )
    return body[0], inner


@dataclass(frozen=True)
class _Operands:
    """The accumulator's buffer, and whether the instruction's order is the loop's."""

    accumulator: str
    in_order: bool

    @staticmethod
    def of(program: Program, leaf: Leaf, lanes: Loop, inner: Loop | None, wanted: Instruction) -> _Operands:
        statement = program.statement[leaf.statement]
        loads = _product(statement.value)
        if statement.op != "+=" or loads is None:
            raise ScheduleError(f"{statement.name} is no multiply-add acc += a * b of two elements")
        target = program.buffer[leaf.target.buffer]
        if target.dtype != wanted.result:
            raise ScheduleError(f"{wanted.name} adds into {wanted.result}; '{target.name}' is {target.dtype}")
        reads: list[Address] = []
        for n in loads:
            read = leaf.reads[n]
            if not isinstance(read, Address):
                raise ScheduleError(f"an operand of {statement.name} is computed in place: an instruction reads memory")
            if program.buffer[read.buffer].dtype != wanted.operand:
                raise ScheduleError(
                    f"{wanted.name} multiplies {wanted.operand}; '{read.buffer}' is {program.buffer[read.buffer].dtype}"
                )
            reads.append(read)
        along = [any(lanes.var in e.names for e in r.index) for r in reads]
        if along.count(True) != 1:
            raise ScheduleError(f"one operand of {statement.name} must move with the lanes '{lanes.var}', the other must not")
        b, a = (reads[0], reads[1]) if along[0] else (reads[1], reads[0])
        strides = _Strides(program, lanes.var, inner.var if inner is not None else None, wanted)
        strides.want(leaf.target, lane=1, depth=0)
        if inner is None:
            strides.want(b, lane=1, depth=None)
            return _Operands(target.root or target.name, True)
        if strides.rows(b):
            if strides.signed(a, 0) < 0 and wanted.depth > 2:
                raise ScheduleError(f"'{a.buffer}' runs against the rows of '{b.buffer}' along '{inner.var}'")
            return _Operands(target.root or target.name, True)
        forward = strides.signed(b, wanted.depth)
        if forward != strides.signed(a, 0) and wanted.depth > 2:  # a pair is turned round in a register
            raise ScheduleError(f"'{a.buffer}' and '{b.buffer}' run against each other along '{inner.var}'")
        placed = tuple(range(wanted.depth)) if forward > 0 else tuple(reversed(range(wanted.depth)))
        # the loop's d-th element lies at position placed[d]: in order when the instruction adds those positions so
        return _Operands(target.root or target.name, placed == wanted.order)

    def check_permissions(self, program: Program, wanted: Instruction) -> None:
        missing = []
        if wanted.contracted and not program.contract:
            missing.append("contract=True")
        if wanted.flushes and not program.hardware_rounding:
            missing.append("hardware_rounding=True")
        exact = wanted.result == "i32"
        if not exact and not self.in_order and self.accumulator not in program.reassociate:
            missing.append(f'reassociate="{self.accumulator}" (or the elements of each group laid out backwards)')
        if missing:
            raise ScheduleError(f"{wanted.name}: {wanted.meaning}. This needs {', '.join(missing)} at schedule(...)")


def _product(e: Expr) -> tuple[int, int] | None:
    """The two loads that are multiplied."""
    if isinstance(e, Cast) and e.to == e.dtype:
        return _product(e.x)
    if isinstance(e, Binary) and e.op == "*":
        a, b = _load(e.a), _load(e.b)
        return None if a is None or b is None else (a, b)
    return None


def _load(e: Expr) -> int | None:
    while isinstance(e, Cast) and e.to == e.dtype:  # a widening, exact
        e = e.x
    return e.n if isinstance(e, Load) else None


@dataclass(frozen=True)
class _Strides:
    """Distances in memory, in elements, at samples of everything around."""

    program: Program
    lane: str
    depth: str | None
    wanted: Instruction

    def want(self, a: Address, lane: int, depth: int | None) -> None:
        for env in self.samples():
            base = self.place(a, env)
            for n in range(self.wanted.lanes):
                if self.place(a, {**env, self.lane: n}) - base != n * lane:
                    raise ScheduleError(f"the lanes '{self.lane}' of '{a.buffer}' do not lie next to each other in memory")
            if self.depth is not None and depth is not None:
                for d in range(self.wanted.depth):
                    if self.place(a, {**env, self.depth: d}) - base != d * depth:
                        raise ScheduleError(f"'{a.buffer}' moves with '{self.depth}'")

    def rows(self, a: Address) -> bool:
        """Do the lanes of each of the group's elements lie next to each other?"""
        return all(
            self.place(a, {**env, self.lane: n, self.depth or "": d}) - self.place(a, {**env, self.depth or "": d}) == n
            for env in self.samples()
            for n in range(self.wanted.lanes)
            for d in range(self.wanted.depth)
        )

    def signed(self, a: Address, lane: int) -> int:
        """+1 or -1: the direction of the group's elements; ScheduleError where they do not lie as the instruction reads them."""
        assert self.depth is not None
        found: set[int] = set()
        for env in self.samples():
            base = self.place(a, env)
            found.add(self.place(a, {**env, self.depth: 1}) - base)
            for n in range(self.wanted.lanes):
                for d in range(self.wanted.depth):
                    step = next(iter(found))
                    if self.place(a, {**env, self.lane: n, self.depth: d}) - base != n * lane + d * step:
                        found.add(0)
        if found not in ({1}, {-1}):
            extra = f", lane by lane ({self.wanted.depth} elements each)" if lane else ""
            raise ScheduleError(
                f"the {self.wanted.depth} elements of '{a.buffer}' along '{self.depth}' must lie next to each other{extra}: "
                'cache_read them and use layout(…, "digits", …)'
            )
        return found.pop()

    def samples(self) -> list[dict[str, int]]:
        names = {loop.var for _, loop in loops(self.program.body)}
        out = []
        for n in _SAMPLES:
            env = dict.fromkeys(names, n)
            env |= {size: 960 * (n + 1) for size in self.program.sizes}
            out.append({**env, self.lane: 0, **({self.depth: 0} if self.depth else {})})
        return out

    def place(self, a: Address, env: Mapping[str, int]) -> int:
        b = self.program.buffer[a.buffer]
        return address(b.layout, [e.eval(env) for e in b.shape], [e.eval(env) for e in a.index])
