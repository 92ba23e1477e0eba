"""Dot products in the recipe for contractions: instructions that add several neighbouring products to each lane.

The structure is that of cpu_gemm.py. The instruction reads groups of `depth` neighbours along the sum, so the right operand is
packed with these next to each other, backwards where the instruction adds the last element first; the left one is read as it
lies, a group for all lanes, which is turned round then.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tilec.errors import InternalError, ScheduleError
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES
from tilec.ir.expr import Binary, Cast, Expr, Load
from tilec.ir.instructions import BIASED, INSTRUCTIONS, Instruction
from tilec.ir.program import Address, Copy, Leaf, Loop, Program
from tilec.ir.tree import Position, at, sites
from tilec.schedule.names import display
from tilec.schedule.schedule import Schedule
from tilec.search.cpu_core import WIDEST_LANES, Core
from tilec.search.cpu_operands import extents, right_operands, squared, sum_loops
from tilec.search.handles import fresh, loops_of, site
from tilec.search.nests import Group, Nest


def instruction_for(program: Program, nest: Nest, core: Core) -> Instruction | None:
    """The declared instruction that adds the most products of this sum at once, of those that the machine has and the
    permissions allow."""
    if nest.update is None or len(nest.sums) != 1:
        return None
    statement = program.statement[nest.update]
    result = program.buffer[statement.target.buffer].dtype
    operands = _factors(statement.value)
    if statement.op != "+=" or operands is None:
        return None
    dtypes = {program.buffer[statement.reads[n].buffer].dtype for n in operands}
    able = [
        i
        for i in INSTRUCTIONS.values()
        if i.depth > 1
        and i.result == result
        and dtypes == {i.operand}
        and i.needs in core.features
        and i.bits <= 8 * core.vector
        and (program.contract or not i.contracted)
        and (program.hardware_rounding or not i.flushes)
    ]
    return max(able, key=lambda i: i.depth * i.lanes, default=None)


def _factors(e: Expr) -> tuple[int, int] | None:
    """The two loads of a product; conversions to the arithmetic type are exact."""
    while isinstance(e, Cast) and e.to == e.dtype:
        e = e.x
    if not isinstance(e, Binary) or e.op != "*":
        return None
    found: list[int] = []
    for x in (e.a, e.b):
        while isinstance(x, Cast) and x.to == x.dtype:
            x = x.x
        if not isinstance(x, Load):
            return None
        found.append(x.n)
    return found[0], found[1]


@dataclass(frozen=True)
class Dots:
    """instruction: of all sums of a group."""

    instruction: Instruction

    @property
    def word(self) -> int:
        return DTYPES[self.instruction.operand].bytes

    @property
    def weaves_rows(self) -> bool:
        """Does it take rows of the right operand as they lie, at little cost?"""
        return self.instruction.depth == 2 and self.instruction.contracted

    @property
    def needs_whole_panels(self) -> bool:
        """Are sums over the right operand taken off (ir/instructions.py), made once of a panel that is there?"""
        return self.instruction.name == BIASED

    @property
    def step(self) -> int:
        """The modulus of a group's digit: negative where the elements lie backwards."""
        depth = self.instruction.depth
        return -depth if self.instruction.order == tuple(reversed(range(depth))) else depth


def dots_of(program: Program, group: Group, core: Core) -> Dots | None:
    """How the sums of a group run by dot products; None where one of them cannot."""
    sums = [n for n in group if n.kind == "contraction"]
    found = {instruction_for(program, nest, core) for nest in sums}
    if len(found) != 1 or (chosen := found.pop()) is None:
        return None
    if any(0 < extents(program, nest)[nest.sums[0]] < 2 * chosen.depth for nest in sums):  # no loop over groups
        return None
    for nest in sums:
        assert nest.update is not None
        mine = right_operands(program, nest)
        reads = [r.buffer for r in program.statement[nest.update].reads]
        if (len(mine) != 1 or len(reads) != 2) and squared(program, nest) is None:
            return None
    return Dots(chosen)


def grouped(s: Schedule, nest: Nest, d: Dots) -> Schedule:
    """The innermost loop over k in groups that the instruction adds, inside the points; what is left over runs one by one."""
    q = nest.update
    assert q is not None
    kq, kk = fresh(s, "kq", "kk")
    k = loops_of(s.program, q, nest.sums[0])[-1]
    s = _split(s, q, k, d.instruction.depth, kq, kk)
    path = path_to_groups(s.program, q)
    first = next(n for n, (v, _) in enumerate(path) if v == kk)
    return s.reorder(*(name for _, name in (*path[first + 1 :], path[first])))


def _split(s: Schedule, of: str, loop: str, depth: int, outer: str, inner: str) -> Schedule:
    """A loop around a statement or around the copies of a buffer in groups of `depth`; the rest apart where there may be one."""
    path = path_to_groups(s.program, of)
    node, name = next((at(s.program.body, p), x) for p, (v, x) in zip(_loops(s.program, of), path, strict=True) if v == loop)
    assert isinstance(node, Loop)
    spans = [u - node.lower[0] for u in node.upper]
    exact = all(n % depth == 0 for e in spans for n in (e.const, *(factor for _, factor in e.terms)))
    return s.split(name, depth, into=(outer, inner), tail="exact" if exact else "peel")


def _loops(program: Program, of: str) -> list[Position]:
    """The positions of the loops around the first place where a statement runs, or a buffer is filled by copies."""
    for s in sites(program.body):
        if of in (getattr(s.action, "statement", None), getattr(getattr(s.action, "dst", None), "buffer", None)):
            starts = [s.position[:n] for n in range(1, len(s.position))]
            return [p for p in starts if isinstance(at(program.body, p), Loop)]
    raise InternalError(f"'{of}' runs nowhere")


def shared_loops(program: Program, of: str) -> list[str]:
    """Those of them that run on the cores."""
    found = [(p, at(program.body, p)) for p in _loops(program, of)]
    return [display(program, p) for p, loop in found if isinstance(loop, Loop) and loop.kind == "parallel"]


def path_to_groups(program: Program, of: str) -> list[tuple[str, str]]:
    """(variable, name) of each of these loops."""
    found = [(p, at(program.body, p)) for p in _loops(program, of)]
    return [(loop.var, display(program, p)) for p, loop in found if isinstance(loop, Loop)]


def named(program: Program, of: str, var: str) -> str:
    return next(name for v, name in path_to_groups(program, of) if v == var)


def woven(s: Schedule, into: str, nest: Nest, width: int, d: Dots) -> Schedule:
    """A copy of a right operand in panels of `width` columns, each a run of groups."""
    depth, rank = d.instruction.depth, len(s.program.buffer[into].shape)
    k, n = moving(s.program, nest, into)
    front = tuple((dim, 1, 0) for dim in range(rank) if dim not in (k, n))
    return s.layout(into, "digits", (*front, (n, width, 0), (k, depth, 0), (n, 1, width), (k, 1, d.step)))


def woven_copies(s: Schedule, into: str, nest: Nest, width: int, d: Dots, shared: bool) -> Schedule:
    """The copies that fill it, a panel's columns as a vector of groups; what is left of the sum one by one. shared: by all
    cores."""
    s, outermost = _by_groups(s, into, *moving(s.program, nest, into), width, d)
    return s.parallel(named(s.program, into, outermost)) if shared else s


def _by_groups(s: Schedule, into: str, k: int, n: int, width: int, d: Dots) -> tuple[Schedule, str]:
    """Copies in groups along dimension `k`, of `width` neighbours along `n` as a vector; and the outermost of their loops."""
    group, one, panel, point = fresh(s, f"{into}_k", f"{into}_o", f"{into}_b", f"{into}_v")
    order = [point, one]
    loop, extent = _copying(s.program, into, n)
    if 0 < extent <= width:
        order[0] = loop
    else:
        s = s.split(named(s.program, into, loop), width, into=(panel, point))
        order.insert(0, panel)
    loop, extent = _copying(s.program, into, k)
    if extent == d.instruction.depth:
        order[-1] = loop
    else:
        s = _split(s, into, loop, d.instruction.depth, group, one)
        order.insert(0, group)
    s = s.reorder(*(named(s.program, into, v) for v in order))
    return s.vectorize(named(s.program, into, order[-2])), order[0]


def turned_copy(s: Schedule, into: str, d: Dots) -> Schedule:
    """A copy of a left operand of few rows: groups in the instruction's order, those of all rows next to each other."""
    depth = d.instruction.depth
    s = s.layout(into, "digits", ((1, depth, 0), (0, 1, 0), (1, 1, d.step))).allocate(into, 64, "huge")
    group, one = fresh(s, f"{into}_k", f"{into}_o")
    s = s.split(f"{into}.1", depth, into=(group, one), tail="exact")
    return s.reorder(group, f"{into}.0", one).parallel(group)


def lying(s: Schedule, nest: Nest, d: Dots) -> Schedule:
    """Left operands whose groups do not lie together, as the sum runs along another dimension than the last: copies, the groups
    of neighbours in the last dimension next to each other."""
    q = nest.update
    assert q is not None
    right = right_operands(s.program, nest)
    for number, access in enumerate(s.program.statement[q].reads):
        found = site(s.program, q)
        assert found is not None and isinstance(found.action, Leaf)
        read, last = found.action.reads[number], access.index[-1].names
        copied = not isinstance(read, Address) or read.buffer != access.buffer  # with another sum
        if copied or access.buffer in right or nest.sums[0] in last or not last:
            continue
        (into,) = fresh(s, f"{access.buffer}_packed")
        s = s.cache_read(access.buffer, at=None, memory="scratch", into=into)
        rank, depth = len(s.program.buffer[into].shape), d.instruction.depth  # without dimensions of one element
        k, n = _dimension(_read(s.program, q, into), loops_of(s.program, q, nest.sums[0])), rank - 1
        front = tuple((dim, 1, 0) for dim in range(n) if dim != k)
        if k < n:
            s = s.layout(into, "digits", (*front, (k, depth, 0), (n, 1, 0), (k, 1, d.step))).allocate(into, 64, "huge")
            s, _ = _by_groups(s, into, k, n, WIDEST_LANES, d)
        s = s.parallel(path_to_groups(s.program, into)[0][1])
    return s


def _copying(program: Program, into: str, dim: int) -> tuple[str, int]:
    """The loop of the copies that runs along a dimension, and its constant extent; 0 where it is not constant."""
    found = next(s for s in sites(program.body) if isinstance(s.action, Copy) and s.action.dst.buffer == into)
    assert isinstance(found.action, Copy)
    names = found.action.dst.index[dim].names
    loop = [x for x in found.loops if x.var in names][-1]
    extent = loop.upper[0] - loop.lower[0]
    return loop.var, extent.const if extent.is_const else 0


def moving(program: Program, nest: Nest, into: str) -> tuple[int, int]:
    """The dimensions of a copied right operand along the sum and along the columns."""
    q = nest.update
    assert q is not None
    columns = loops_of(program, q, nest.band[-1])
    index = _read(program, q, into, columns)
    return _dimension(index, loops_of(program, q, nest.sums[0])), _dimension(index, columns)


def _read(program: Program, q: str, buffer: str, along: Collection[str] = ()) -> tuple[Aff, ...]:
    """The index of a sum's read of a buffer; of two, the one that moves along these loops."""
    found = site(program, q)
    assert found is not None and isinstance(found.action, Leaf)
    reads = [r.index for r in found.action.reads if isinstance(r, Address) and r.buffer == buffer]
    return next((x for x in reads if any(e.names & {*along} for e in x)), reads[0])


def is_peeled(program: Program, q: str) -> bool:
    """Does the statement run in more than one place: in groups, and one by one?"""
    return sum(isinstance(s.action, Leaf) and s.action.statement == q for s in sites(program.body)) > 1


def _dimension(index: Sequence[Aff], loops: Collection[str]) -> int:
    """The dimension of an access that moves with these loops."""
    found = [d for d, e in enumerate(index) if e.names & {*loops}]
    if len(found) != 1:
        raise ScheduleError(f"'{', '.join(loops)}' do not run along one dimension")
    return found[0]


def instructed(s: Schedule, nest: Nest, d: Dots) -> Schedule:
    """The innermost loops over the columns run by the instruction."""
    q = nest.update
    assert q is not None
    (_, name), _ = path_to_groups(s.program, q)[-2:]
    return s.vectorize(name).instruction(name, d.instruction.name)


def sum_loop(program: Program, q: str, nest: Nest, dots: Dots | None) -> str:
    """The innermost loop over the sum, over groups where an instruction adds them."""
    return sum_loops(program, q, nest)[-2 if dots else -1]
