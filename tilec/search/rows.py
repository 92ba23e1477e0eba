"""The schedule of a group whose nests share their rows: merged row by row, rows on blocks."""

from __future__ import annotations

from tilec.schedule.schedule import Schedule
from tilec.search.handles import path_of
from tilec.search.inputs import private, row_inputs, row_results, wide
from tilec.search.nests import Group
from tilec.search.plan import Plan, on_blocks


def by_rows(group: Group) -> bool:
    """Do the nests run row by row: the same range of rows, one of them in several steps, and no contraction among them?"""
    kinds = {nest.kind for nest in group}
    return "rows" in kinds and kinds <= {"rows", "elementwise"} and len({nest.ranges[0] for nest in group}) == 1


def rowwise(s: Schedule, group: Group, plan: Plan) -> Schedule:
    """The nests merged at their first loop; what only a row needs is kept in it, its inputs (plan.shared) in shared memory."""
    first, *rest = group
    q, depth = first.leading, len(plan.prefix)
    for nest in rest:
        s = s.fuse_siblings(f"{q}.{path_of(s.program, q)[depth]}", f"{nest.leading}.{nest.band[0]}")
    outer = path_of(s.program, q)[depth : depth + (1 if rest else len(first.band))]
    names = [f"{q}.{v}" for v in outer]
    row = names[-1]
    if rest or plan.shared:
        for buffer in private(s.program, group):
            s = s.place(buffer, "shared" if wide(s.program, buffer, row) else "register")
        for buffer in row_results(s.program, row):
            s = s.cache_write(buffer, at=row, memory="register")
    if plan.shared:
        for buffer in row_inputs(s.program, row):
            s = s.cache_read(buffer, at=row, memory="shared")
    return on_blocks(s, names, plan)
