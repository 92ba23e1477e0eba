"""Schedules for CPUs of contractions with rows of several steps between them, as attention has: blocks of rows on the cores.

A block of rows goes through all nests before the next begins: what one nest hands to the next (scores, probabilities) is as
many rows of scratch, which the second-level cache holds. The right operands are packed into panels once, before.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Program
from tilec.schedule.schedule import Schedule
from tilec.search.cpu_core import Core, bytes_of, vectorised
from tilec.search.cpu_gemm import summed
from tilec.search.cpu_operands import Blocks, Place, dimension, extents, right_operands
from tilec.search.cpu_rows import row_steps
from tilec.search.handles import fresh
from tilec.search.inputs import private
from tilec.search.nests import Group, Nest, graph


def blocked_rows(found: Sequence[Nest]) -> int:
    """How many of these nests, from the first, are a contraction, steps of its result's rows, and a contraction of what they
    leave, each fed by the one before; 0 where they do not begin so."""
    for n, nest in enumerate(found):
        if n == 0:
            if nest.kind != "contraction":
                return 0
            continue
        if not nest.ranges or nest.ranges[:1] != found[0].ranges[:1] or not {*nest.read} & {*found[n - 1].written}:
            return 0
        if nest.kind == "contraction":
            return n + 1 if n > 1 else 0
        if nest.kind != "rows":
            return 0
    return 0


def block_group(s: Schedule, group: Group, core: Core) -> Schedule:
    """The schedule of such a group. ScheduleError where an operand is not as it must be."""
    sums = [nest for nest in group if nest.kind == "contraction"]
    dtype = s.program.buffer[s.program.statement[sums[0].leading].target.buffer].dtype
    mr, nr = core.micro_tile(dtype)
    handed = [b for b in private(s.program, group) if _passes(group, b)]
    rows = extents(s.program, sums[0]).get(sums[0].band[0], 0)
    row = sum(bytes_of(s.program, b) for b in handed) // max(1, rows)
    most = max(mr, core.l2 // 2 // row) if row else 8 * mr
    height = core.chunks(rows, mr, most) if rows else 8 * mr
    first, *rest = group
    packed = {nest: right_operands(s.program, nest) for nest in sums}
    depth = {nest: _blocks(s.program, nest, core, nr) for nest in sums}
    inside: dict[Nest, str] = {}
    block = ""
    for nest in group:
        outer, inside[nest] = fresh(s, "ic", "ix")
        s = s.split(f"{nest.leading}.{nest.band[0]}", height, into=(outer, inside[nest]))
        block = block or outer
        if nest is not first:
            s = s.fuse_siblings(f"{first.leading}.{block}", f"{nest.leading}.{outer}")
    for buffer in handed:
        s = s.place(buffer, "scratch", at=f"{first.leading}.{block}").allocate(buffer, 64)
    for nest in rest:
        if nest.kind == "rows":
            s = row_steps(s, (nest,), inside[nest], core)
    for nest in sums:
        q = nest.leading
        io, ii, jr, jl = fresh(s, "io", "ii", "jr", "jl")
        s = s.split(f"{q}.{inside[nest]}", mr, into=(io, ii)).split(f"{q}.{nest.band[-1]}", nr, into=(jr, jl))
        s = s.reorder(*(f"{q}.{v}" for v in (jr, io, ii, jl)))
        s = summed(s, nest, Place([block], [jr, io], [ii, jl]), Blocks(mr, nr, nr, depth[nest]), own=True)
        for buffer in packed[nest]:
            s = _panels(s, buffer, q, jl, nr)
    return vectorised(s).parallel(f"{first.leading}.{block}")


def _passes(group: Group, buffer: str) -> bool:
    """Does one nest write it and another read it?"""
    return any("buffers" in data and buffer in data["buffers"] for _, _, data in graph(group).edges(data=True))


def _blocks(program: Program, nest: Nest, core: Core, nr: int) -> int:
    """Equal blocks of a long sum, so that one of a panel stays in a quarter of the second-level cache; 0 for all of it."""
    k = extents(program, nest).get(nest.sums[0], 0)
    dtype = program.buffer[program.statement[nest.leading].target.buffer].dtype
    longest = core.l2 // 4 // (nr * DTYPES[DTYPES[dtype].arithmetic].bytes)
    return -(-k // -(-k // longest)) if k > longest else 0


def _panels(s: Schedule, buffer: str, q: str, lane: str, nr: int) -> Schedule:
    """The right operand as a whole, in panels of `nr` columns, made by all cores before."""
    (into,) = fresh(s, f"{buffer}_packed")
    s = s.cache_read(buffer, at=None, memory="scratch", into=into)
    if DTYPES[s.program.buffer[into].dtype].arithmetic != s.program.buffer[into].dtype:
        s = s.widen(into)
    dim = dimension(s.program, into, q, lane)
    if dim is None:
        return s.parallel(f"{into}.0")
    s = s.layout(into, "panels", dim, nr).allocate(into, 64, "huge")
    panel, point = fresh(s, f"{into}_b", f"{into}_v")
    s = s.split(f"{into}.{dim}", nr, into=(panel, point))
    others = [f"{into}.{d}" for d in range(len(s.program.buffer[into].shape)) if d != dim]
    return s.reorder(panel, *others, point).parallel(panel)
