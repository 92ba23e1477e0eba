"""Schedules of contractions by dot products: instructions that add several neighbouring products to each lane.

The structure is that of cpu_gemm.py (pieces of columns on the cores, blocks of the sum, micro-tiles in registers). What differs:
the instruction reads groups of `depth` neighbours along the sum, so both operands are copied with these next to each other,
backwards where the instruction adds the last element first. The left operand is copied once as a whole, in blocks of the sum, so
that the rows of a micro-tile do not share their sets of the caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilec.errors import InternalError, ScheduleError
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES
from tilec.ir.expr import Binary, Cast, Expr, Load
from tilec.ir.instructions import INSTRUCTIONS, Instruction
from tilec.ir.program import Address, Leaf, Loop, Program
from tilec.ir.tree import Position, at, sites
from tilec.schedule.names import display
from tilec.schedule.placement_uses import uses
from tilec.schedule.schedule import Schedule
from tilec.search.cpu_core import Core, vectorised
from tilec.search.cpu_gemm import Blocks, extents, right_operands
from tilec.search.handles import fresh, loops_of, path_of, standing
from tilec.search.nests import Group, Nest
from tilec.search.tiles import handed_on, inlined, tile_knobs

MOST_ROWS = 12  # of a micro-tile
FLAT_ROWS = 16  # up to as many, packing floats in pairs takes longer than half the arithmetic that it saves: none is packed
BLOCK = 2048  # bytes of a row of the left operand that lie together, where k is not cut
AHEAD = 8  # groups of the right operand that are asked for before they are used
COPIED = 64  # bytes that are copied at once


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
    """instruction: of all sums of a group. lefts: the buffers that do not move with the columns, with their dimension of k."""

    instruction: Instruction
    lefts: tuple[str, ...]
    rights: tuple[str, ...]

    @property
    def word(self) -> int:
        return DTYPES[self.instruction.operand].bytes

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
    lefts: list[str] = []
    rights: list[str] = []
    for nest in sums:
        assert nest.update is not None
        mine = right_operands(program, nest)
        reads = [r.buffer for r in program.statement[nest.update].reads]
        if len(mine) != 1 or len(reads) != 2 or reads[0] == reads[1]:
            return None
        rights += mine
        lefts += [b for b in reads if b not in mine]
    return Dots(chosen, tuple(dict.fromkeys(lefts)), tuple(dict.fromkeys(rights)))


def choose_dots(program: Program, group: Group, core: Core, d: Dots, ahead: frozenset[str] = frozenset()) -> Blocks:
    """Sizes: the rows of a micro-tile in three quarters of the first-level cache, the packed piece in those of the second."""
    sums = [n for n in group if n.kind == "contraction"]
    nest, root = sums[-1], group[-1]
    size = extents(program, nest)
    by = tile_knobs(program, root)
    own = dict(zip(root.band, nest.band, strict=False)) if len(root.band) == len(nest.band) else {}
    of = {knob: size.get(own.get(v, v), 0) for v, knob in by.items()}
    m, n, k = of.get("BM", 0), of.get("BN", 0), size.get(nest.sums[0], 0)
    depth, lanes = d.instruction.depth, d.instruction.lanes
    nr = 2 * lanes
    mr = min(MOST_ROWS, (core.registers - 3) // 2, m or MOST_ROWS)
    longest = core.l1 * 3 // 4 // (mr * d.word) // (8 * depth) * (8 * depth)
    kc = 0
    if k > longest and k % depth == 0:
        blocks = -(-k // longest)
        kc = -(-k // (8 * depth * blocks)) * 8 * depth
    most = max(nr, core.l2 * 3 // 4 // ((kc or k or longest) * d.word) // nr * nr)
    ahead = ahead & frozenset(d.rights)
    if n and -(-n // nr) < 2 * core.cores and m >= 4 * mr * core.cores:
        return Blocks(mr, nr, -(-n // nr) * nr, kc, "rows", core.chunks(m, mr, 16 * mr), ahead=ahead)
    nc = core.chunks(n, nr, most) if n else most
    mc = -(-m // mr) * mr or 16 * mr
    if kc and 4 * mc * nc > core.l2 // 8:  # the sums of a piece stay in the second-level cache from block to block
        mc = max(mr, core.l2 // 8 // (4 * nc) // mr * mr)
    return Blocks(mr, nr, nc, kc, MC=mc if kc else 0, ahead=ahead)


def dot_group(s: Schedule, group: Group, b: Blocks, d: Dots) -> Schedule:
    """The schedule of contractions over one band, and what is elementwise around them, by dot products."""
    root = group[-1]
    by = tile_knobs(s.program, root)
    columns = next(v for v, knob in by.items() if knob == "BN")
    rows = next((v for v, knob in by.items() if knob == "BM"), None)
    if rows is None:
        raise ScheduleError(f"{root.name} has no rows: dot products run tiles")
    s = inlined(s, group)
    if root.update is not None and len(root.statements) == 1:  # a sum into an argument, in any loop order
        wanted = [*root.band, *root.sums]
        if [v for v in s.program.statement[root.leading].loops if v in wanted] != wanted:
            s = s.reorder(*(f"{root.leading}.{v}" for v in wanted))
    q = root.leading
    batch = [v for v in root.band if v not in by]
    jc, jr, jl, io, ii, ic, jx, ix = fresh(s, "jc", "jr", "jl", "io", "ii", "ic", "jx", "ix")
    s = s.split(f"{q}.{columns}", b.NC, into=(jc, jx)).split(f"{q}.{jx}", b.NR, into=(jr, jl))
    outer = [*batch, jc]
    if b.MC:
        s = s.split(f"{q}.{rows}", b.MC, into=(ic, ix)).split(f"{q}.{ix}", b.MR, into=(io, ii))
        outer.append(ic)
    else:
        s = s.split(f"{q}.{rows}", b.MR, into=(io, ii))
    s = s.reorder(*(f"{q}.{v}" for v in (*outer, io, jr, ii, jl)))
    sums: list[Nest] = []
    if root.kind == "contraction":
        s = _summed(s, root, outer, [io, jr], [ii, jl], b, d.instruction.depth)
        sums.append(root)
    for nest in reversed(group[:-1]):
        if not standing(s.program, nest.statements):
            continue
        s = s.compute_at(handed_on(s.program, nest), jr if not b.KC else outer[-1])
        if nest.kind == "contraction":
            s = _summed(s, nest, outer, [], [], b, d.instruction.depth)
            sums.append(nest)
    for nest in sums if not b.KC else ():
        s = _grouped(s, nest, d)
    for buffer in d.rights:
        s = _right(s, buffer, sums, outer, b, d)
    for buffer in d.lefts:
        s = _left(s, buffer, sums, b, d)
    s = vectorised(s)
    for nest in sums:
        s = _instructed(s, nest, d)
    for nest in sums:
        assert nest.update is not None
        kq = loops_of(s.program, nest.update, nest.sums[0])[-2]
        for right in {u for u in _reads(s.program, nest.update) if s.program.buffer[u].root in d.rights}:
            s = s.prefetch(right, at=_name(s.program, nest.update, kq), distance=AHEAD)
        if b.KC:
            path = path_of(s.program, nest.update)
            micro = path[path.index(loops_of(s.program, nest.update, nest.sums[0])[1]) - 1]
            target = s.program.statement[nest.update].target.buffer
            if s.program.buffer[target].memory in ("scratch", "global"):
                s = s.prefetch(target, at=f"{nest.update}.{micro}", distance=1)
    return s.parallel(outer[-1] if b.across == "rows" else batch[0] if batch else jc)


def _summed(
    s: Schedule, nest: Nest, outer: Sequence[str], tiles: list[str], points: list[str], b: Blocks, depth: int
) -> Schedule:
    """One contraction: k outside the points of its micro-tile, whose accumulators are in registers (blocked: per block of k, the
    groups that the instruction adds inside the points already).
    tiles, points: the loops of the band, where they are cut already."""
    q = nest.update
    assert q is not None
    target = s.program.statement[q].target.buffer
    temp = s.program.buffer[target].role == "temp"
    k = nest.sums[0]
    if not b.KC:
        points = points or _band(s.program, q, nest)[-2:]
        at_ = tiles[-1] if tiles else _parent(s.program, q, points[0])
        s = s.place(target, "register", at=at_) if temp else s.cache_write(target, at=f"{q}.{at_}", memory="register")
        return s.reorder(*(f"{q}.{v}" for v in (k, *points)))
    if not tiles:
        for v, factor in zip(_band(s.program, q, nest)[-2:], (b.MR, b.NR), strict=True):
            tile, point = fresh(s, f"{v}t", f"{v}p")
            s = s.split(f"{q}.{v}", factor, into=(tile, point))
            tiles.append(tile)
            points.append(point)
    if temp:
        s = s.place(target, "scratch", at=outer[-1])
    kg, kk, ko, kq = fresh(s, "kg", "kk", "ko", "kq")
    s = s.split(f"{q}.{loops_of(s.program, q, k)[-1]}", depth, into=(kg, kk), tail="exact")
    s = s.split(f"{q}.{kg}", b.KC // depth, into=(ko, kq))
    s = s.reorder(*(f"{q}.{v}" for v in (ko, *tiles, kq, *points, kk)))
    return s.cache_write(target, at=f"{q}.{tiles[-1]}", memory="register")


def _band(program: Program, q: str, nest: Nest) -> list[str]:
    """The loops over the band around the statement, outermost first."""
    wanted = {x for v in nest.band for x in loops_of(program, q, v)}
    return [v for v in path_of(program, q) if v in wanted]


def _parent(program: Program, q: str, loop: str) -> str:
    path = path_of(program, q)
    return path[path.index(loop) - 1]


def _grouped(s: Schedule, nest: Nest, d: Dots) -> Schedule:
    """The innermost loop over k in groups that the instruction adds, inside the points; what is left over runs one by one."""
    q = nest.update
    assert q is not None
    kq, kk = fresh(s, "kq", "kk")
    k = loops_of(s.program, q, nest.sums[0])[-1]
    s = _split(s, q, k, d.instruction.depth, kq, kk)
    path = _path(s.program, q)
    first = next(n for n, (v, _) in enumerate(path) if v == kk)
    return s.reorder(*(name for _, name in (*path[first + 1 :], path[first])))


def _split(s: Schedule, of: str, loop: str, depth: int, outer: str, inner: str) -> Schedule:
    """A loop around a statement or around the copies of a buffer in groups of `depth`; the rest apart where there may be one."""
    path = _path(s.program, of)
    node, name = next((at(s.program.body, p), x) for p, (v, x) in zip(_loops(s.program, of), path, strict=True) if v == loop)
    assert isinstance(node, Loop)
    spans = [u - node.lower[0] for u in node.upper]
    exact = all(e.is_const and e.const % depth == 0 for e in spans)
    return s.split(name, depth, into=(outer, inner), tail="exact" if exact else "peel")


def _loops(program: Program, of: str) -> list[Position]:
    """The positions of the loops around the first place where a statement runs, or a buffer is filled by copies."""
    for s in sites(program.body):
        if of in (getattr(s.action, "statement", None), getattr(getattr(s.action, "dst", None), "buffer", None)):
            starts = [s.position[:n] for n in range(1, len(s.position))]
            return [p for p in starts if isinstance(at(program.body, p), Loop)]
    raise InternalError(f"'{of}' runs nowhere")


def _path(program: Program, of: str) -> list[tuple[str, str]]:
    """(variable, name) of each of these loops."""
    found = [(p, at(program.body, p)) for p in _loops(program, of)]
    return [(loop.var, display(program, p)) for p, loop in found if isinstance(loop, Loop)]


def _name(program: Program, of: str, var: str) -> str:
    return next(name for v, name in _path(program, of) if v == var)


def _right(s: Schedule, buffer: str, sums: Sequence[Nest], outer: Sequence[str], b: Blocks, d: Dots) -> Schedule:
    """A right operand in panels of NR columns, each a run of groups, copied before the tiles that read it."""
    nest, number = _reading(s.program, buffer, sums)
    q = nest.update
    assert q is not None
    (into,) = fresh(s, f"{buffer}_packed")
    where = outer[-2] if b.MC else outer[-1]
    if buffer in b.ahead:
        s = s.cache_read(buffer, at=None, memory="global", into=into)
    else:
        s = s.cache_read(buffer, at=_name(s.program, q, where), memory="scratch", into=into)
    depth, rank = d.instruction.depth, len(s.program.buffer[into].shape)
    index = s.program.statement[q].reads[number].index
    k, n = _dimension(index, nest.sums[0], rank), _dimension(index, nest.band[-1], rank)
    front = tuple((dim, 1, 0) for dim in range(rank) if dim not in (k, n))
    digits = (*front, (n, b.NR, 0), (k, depth, 0), (n, 1, b.NR), (k, 1, d.step))
    s = s.layout(into, "digits", digits).allocate(into, 64, "huge")
    group, one, panel, point = fresh(s, f"{into}_k", f"{into}_o", f"{into}_b", f"{into}_v")
    s = s.split(_name(s.program, into, f"{into}.{n}"), b.NR, into=(panel, point))
    s = _split(s, into, f"{into}.{k}", depth, group, one)
    s = s.reorder(*(_name(s.program, into, v) for v in (group, panel, point, one))).vectorize(_name(s.program, into, point))
    return s.parallel(_name(s.program, into, group)).prepack(into) if buffer in b.ahead else s


def _left(s: Schedule, buffer: str, sums: Sequence[Nest], b: Blocks, d: Dots) -> Schedule:
    """A left operand as a whole in rows of blocks of the sum, in the order of the instruction. A temporary that the program
    writes in this order itself is laid out so where it is."""
    nest, number = _reading(s.program, buffer, sums)
    statement = s.program.statement[nest.update or ""]
    depth, kept = d.instruction.depth, s.program.buffer[buffer]
    block = b.KC or BLOCK // d.word
    rank = len(kept.shape)
    k = _dimension(statement.reads[number].index, nest.sums[0], rank)
    front = tuple((dim, 1, 0) for dim in range(rank) if dim != k)
    whole = kept.shape[k].is_const and kept.shape[k].const <= block
    leading = () if whole else ((k, block, 0),)
    inside = ((k, depth, 0 if whole else block // depth), (k, 1, d.step)) if d.step < 0 else ((k, 1, 0 if whole else block),)
    digits = (*leading, *front, *inside)
    if kept.role == "temp" and d.step > 0:
        return s.place(buffer, "global").layout(buffer, "digits", digits).allocate(buffer, 64, "huge")
    others = [u for u in uses(s.program, buffer) if u.reads and getattr(u.site.action, "statement", "") not in _updates(sums)]
    if others:
        raise ScheduleError(f"'{buffer}' is also read where it would have to lie in its own order")
    (into,) = fresh(s, f"{buffer}_packed")
    s = s.cache_read(buffer, at=None, memory="scratch", into=into).layout(into, "digits", digits).allocate(into, 64, "huge")
    group, one, panel, point = fresh(s, f"{into}_k", f"{into}_o", f"{into}_b", f"{into}_v")
    if d.step < 0:
        s = _split(s, into, f"{into}.{k}", depth, group, one)
        s = s.split(_name(s.program, into, group), COPIED // (depth * d.word), into=(panel, point))
    else:
        s = s.split(_name(s.program, into, f"{into}.{k}"), COPIED // d.word, into=(panel, point))
    s = s.vectorize(_name(s.program, into, point))
    return s.parallel(f"{into}.0") if rank > 1 else s


def _reads(program: Program, q: str) -> list[str]:
    """The buffers that the statement reads where it runs first."""
    found = next(s.action for s in sites(program.body) if isinstance(s.action, Leaf) and s.action.statement == q)
    return [r.buffer for r in found.reads if isinstance(r, Address)]


def _updates(sums: Sequence[Nest]) -> list[str]:
    return [nest.update or "" for nest in sums]


def _reading(program: Program, buffer: str, sums: Sequence[Nest]) -> tuple[Nest, int]:
    """A sum that reads the buffer, and the number of that read."""
    for nest in sums:
        for n, r in enumerate(program.statement[nest.update or ""].reads):
            if r.buffer == buffer:
                return nest, n
    raise InternalError(f"no sum reads '{buffer}'")


def _dimension(index: Sequence[Aff], var: str, rank: int) -> int:
    """The dimension of an access that moves with a variable, alone."""
    found = [d for d, e in enumerate(index) if var in e.names]
    if len(found) != 1 or len(index) != rank or index[found[0]] != Aff.of(var):
        raise ScheduleError(f"'{var}' does not run along one dimension")
    return found[0]


def _instructed(s: Schedule, nest: Nest, d: Dots) -> Schedule:
    """The innermost loops over the columns run by the instruction."""
    q = nest.update
    assert q is not None
    (_, name), _ = _path(s.program, q)[-2:]
    return s.vectorize(name).instruction(name, d.instruction.name)
