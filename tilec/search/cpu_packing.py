"""Copies of the operands of a contraction: packed panels of the right one, storage types of the left one widened."""

from __future__ import annotations

from math import gcd, prod

from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Address, Leaf, Program
from tilec.schedule.schedule import Schedule
from tilec.search.cpu_core import Core
from tilec.search.cpu_dot import Dots, is_peeled, moving, named, sum_loop, woven, woven_copies
from tilec.search.cpu_operands import Blocks, Place, dimension, right_operands, squared, sum_loops
from tilec.search.handles import fresh, path_of, site
from tilec.search.nests import Nest

UNDER_WAY = 8 << 10  # bytes of the right operand's that are asked for ahead: some more than bandwidth times latency of the memory
WIDEN_LANES = 32
AHEAD = 8  # rows of it, or groups of rows, that are asked for before they are packed


def packed(s: Schedule, nest: Nest, place: Place, b: Blocks, core: Core, dots: Dots | None) -> Schedule:
    """The right operands (they move with the columns of the tile, not with its rows) in panels of NR columns: by the first tile
    that reads them, or before pieces of rows, or ahead of the call."""
    q = nest.update
    assert q is not None
    path = path_of(s.program, q)
    blocks = [v for v in path if v not in place.outer and v in sum_loops(s.program, q, nest)] if b.KC else []
    at = place.outer[-2] if b.across == "rows" else blocks[0] if blocks else place.outer[-1]
    for buffer in right_operands(s.program, nest):
        (into,) = fresh(s, f"{buffer}_packed")
        shared = b.across == "rows" or buffer in b.ahead  # filled by all cores, before the tiles
        if buffer in b.ahead:
            s = s.cache_read(buffer, at=None, memory="global", into=into)
        else:
            s = s.cache_read(buffer, at=named(s.program, q, at), memory="scratch", into=into)
        if dots is not None:
            s = woven(s, into, nest, b.NR, dots).allocate(into, 64, "huge")
            if not shared and not dots.needs_whole_panels:
                s = _filled_at_first(s, buffer, into, nest, place, core, dots)
            s = woven_copies(s, into, nest, b.NR, dots, shared)
        else:
            s = _panels(s, into, dimension(s.program, into, q, path[-1]), b.NR, shared)
            if not shared:
                s = _filled_at_first(s, buffer, into, nest, place, core, None)
        if buffer in b.ahead:
            s = s.prepack(into)
            if b.flat:
                rows = UNDER_WAY // (DTYPES[s.program.buffer[into].dtype].bytes * b.NR)
                s = s.prefetch(into, f"{q}.{sum_loops(s.program, q, nest)[-1]}", max(1, rows), 2)
    return s


def of_itself(s: Schedule, nest: Nest, width: int, dots: Dots | None) -> Schedule:
    """Where a matrix is multiplied by its own transpose: panels of all of it, made by all cores before, for both operands."""
    buffer = squared(s.program, nest)
    if buffer is None:
        return s
    (into,) = fresh(s, f"{buffer}_packed")
    s = s.cache_read(buffer, at=None, memory="scratch", into=into)
    if dots is not None:
        return woven_copies(woven(s, into, nest, width, dots).allocate(into, 64, "huge"), into, nest, width, dots, True)
    return _panels(s, into, moving(s.program, nest, into)[1], width, True)


def _panels(s: Schedule, into: str, dim: int | None, width: int, shared: bool) -> Schedule:
    """A copy of a right operand in panels along the dimension of the lanes, as arithmetic types. shared: filled by all cores."""
    dtype = s.program.buffer[into].dtype
    if DTYPES[dtype].arithmetic != dtype:
        s = s.widen(into)
    if dim is not None:
        s = s.layout(into, "panels", dim, width)
    s = s.allocate(into, 64, "huge")
    if not shared:
        return s
    if dim is not None and dim == len(s.program.buffer[into].shape) - 1:
        panel, point = fresh(s, f"{into}_b", f"{into}_v")
        s = s.split(f"{into}.{dim}", width, into=(panel, point))
    return shared_out(s, into)


def _filled_at_first(s: Schedule, buffer: str, into: str, nest: Nest, place: Place, core: Core, dots: Dots | None) -> Schedule:
    """The first tile of rows fills the panel while it multiplies, its rows asked for before; where a rest of the sum reads it in
    a loop of its own, before it multiplies."""
    q = nest.update
    assert q is not None
    if dots is not None and is_peeled(s.program, q):
        return s.fill_at(into, named(s.program, q, place.tiles[-1]))
    k = named(s.program, q, sum_loop(s.program, q, nest, dots))
    crowded = _crowded(s.program, core, q, buffer, nest, AHEAD * (dots.instruction.depth if dots else 1))
    return s.fill_at(into, k).prefetch(buffer, k, *((4 * AHEAD, 2) if crowded else (AHEAD, 1)))


def _crowded(program: Program, core: Core, q: str, buffer: str, nest: Nest, rows: int) -> bool:
    """Would so many rows of the right operand take more than half of the ways of their sets in the first-level cache?"""
    b, index = program.buffer[buffer], program.statement[q].reads[_read(program, q, buffer)].index
    dim = next((d for d, e in enumerate(index) if nest.sums[-1] in e.names), 0)
    if not all(e.is_const for e in b.shape[dim + 1 :]):
        return False
    stride = prod(e.const for e in b.shape[dim + 1 :]) * DTYPES[b.dtype].bytes
    way = core.l1 // core.l1_ways
    return rows * gcd(way, stride) > way * core.l1_ways // 2


def _read(program: Program, q: str, buffer: str) -> int:
    """The number of the statement's read of a buffer."""
    return next(n for n, r in enumerate(program.statement[q].reads) if r.buffer == buffer)


def widened(s: Schedule, nest: Nest) -> Schedule:
    """Left operands of a storage type (they do not move with the columns), converted once for all panels that read them."""
    q = nest.update
    assert q is not None
    statement = s.program.statement[q]
    for n, access in enumerate(statement.reads):
        found = site(s.program, q)
        assert found is not None and isinstance(found.action, Leaf)
        read = found.action.reads[n]
        if not isinstance(read, Address) or read.buffer != access.buffer:  # converted already, with another sum
            continue
        names = frozenset[str]().union(*(e.names for e in access.index))
        b = s.program.buffer.get(access.buffer)
        alone = sum(a.buffer == access.buffer for a in statement.reads) == 1
        if b is None or not alone or nest.band[-1] in names or DTYPES[b.dtype].arithmetic == b.dtype or b.memory != "global":
            continue
        (into,) = fresh(s, f"{b.name}_wide")
        s = s.cache_read(b.name, at=None, memory="scratch", into=into).widen(into).allocate(into, 64, "huge")
        rank = len(s.program.buffer[into].shape)
        last = f"{into}.{rank - 1}"
        if last in copying(s, into):
            blocks, points = fresh(s, f"{into}_b", f"{into}_v")
            s = s.split(last, WIDEN_LANES, into=(blocks, points)).vectorize(points)
        s = shared_out(s, into)
    return s


def copying(s: Schedule, buffer: str) -> list[str]:
    """The loops that fill a copy, outermost first: a dimension of one element has none, one that was split has others."""
    have = set(s.loops)
    return [v for v in (f"{buffer}.{d}" for d in range(len(s.program.buffer[buffer].shape))) if v in have]


def shared_out(s: Schedule, buffer: str) -> Schedule:
    """The outermost of these loops on the cores."""
    return s.parallel(copying(s, buffer)[0]) if copying(s, buffer) else s
