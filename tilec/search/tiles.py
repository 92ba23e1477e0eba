"""The schedule of a group of nests at the output tile of its last one.

Only primitives are called, each of which proves its own step; what one refuses goes through as its error.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir.program import Leaf, Program
from tilec.ir.tree import Position, sites
from tilec.ir.tree import at as node_at
from tilec.schedule.names import display, find_loop
from tilec.schedule.placement_uses import all_uses, uses
from tilec.schedule.schedule import Schedule
from tilec.search.handles import fresh, loop_named, loops_of, outside_reads, path_of, standing
from tilec.search.inputs import names_in, operands, private, statement_of, tile_inputs
from tilec.search.nests import Group, Nest, graph, independent
from tilec.search.plan import Knobs, Plan, on_blocks

Sum = tuple[Nest, str]  # a contraction and the loop over its k blocks


def tiled(s: Schedule, group: Group, knobs: Knobs, plan: Plan) -> Schedule:
    """Producers inlined or computed at the tile, sums cut along k with their operands in shared memory, tiles on blocks."""
    root = group[-1]
    s = inlined(s, group)
    s, outer = cut(s, root, knobs, plan)
    sums: list[Sum] = []
    if root.kind == "contraction":
        s, ko = contraction(s, root, outer, knobs, plan)
        sums.append((root, ko))
    for nest in reversed(group[:-1]):
        if not standing(s.program, nest.statements):
            continue
        if beside(nest, group):
            s, own = cut(s, nest, knobs, plan)
            for a, b in zip(own, outer, strict=True):
                s = s.fuse_siblings(a, b, into=b)
            if nest.kind == "contraction":
                s, ko = contraction(s, nest, outer, knobs, plan)
                sums.append((nest, ko))
            continue
        buffer = handed_on(s.program, nest)
        at = level(s.program, nest, buffer, outer, [ko for _, ko in sums])
        s = s.compute_at(buffer, at)
        if nest.kind == "contraction":
            s, ko = contraction(s, nest, outer[: outer.index(at) + 1], knobs, plan)
            sums.append((nest, ko))
    for buffer in private(s.program, group):
        s = s.place(buffer, "shared")
    if plan.together and independent(group):
        s, sums = merged(s, sums)
    for nest, ko in sums:
        for buffer in operands(s.program, ko, nest.update or ""):
            s = s.cache_read(buffer, at=ko, memory="shared")
    if sums or plan.shared:
        last = [v for v in path_of(s.program, standing(s.program, root.statements)[-1]) if v in outer][-1]
        for buffer in tile_inputs(s.program, last, [nest.update or "" for nest, _ in sums]):
            s = s.cache_read(buffer, at=last, memory="shared")
    for ko in dict.fromkeys(ko for _, ko in sums):
        s = s.pipeline(ko, stages=plan.stages) if plan.stages > 1 else s
    alone = 1  # a loop on blocks is the only child of the one around it
    while alone < len(outer) and len(loop_named(s.program, outer[alone - 1]).body) == 1:
        alone += 1
    return on_blocks(s, outer[:alone], plan)


def pointwise(program: Program, buffer: str, group: Group) -> bool:
    """May the producer be evaluated at its only read: a temporary, written by one `=`, read once per instance in the group?"""
    found = uses(program, buffer)
    writes, reads = [u for u in found if u.write], [u for u in found if u.reads]
    if program.buffer[buffer].role != "temp" or len(writes) != 1 or writes[0].update or len(reads) != 1:
        return False
    nest = {n: nest.name for nest in group for n in nest.statements}
    writer, reader = (nest.get(statement_of(u)) for u in (writes[0], reads[0]))
    return None not in (writer, reader) and writer != reader and {x.var for x in reads[0].site.loops} <= names_in(reads[0])


def inlined(s: Schedule, group: Group) -> Schedule:
    """Elementwise producers evaluated where they are read; the rounding of their stores stays."""
    for nest in group[:-1]:
        for buffer in nest.written:
            if pointwise(s.program, buffer, group):
                s = s.compute_inline(buffer)
    return s


def tile_knobs(program: Program, nest: Nest) -> dict[str, str]:
    """The tiled loops of a band and their knobs: BN for the innermost one, BM for one that an operand uses without it (else the
    next further out); rows BM."""
    *rest, last = nest.band
    if nest.kind == "rows":
        return {last: "BM"}
    out = {last: "BN"}
    if rest:
        accesses = [a for n in nest.statements for a in program.statement[n].reads]
        named = [frozenset[str]().union(*(e.names for e in a.index)) for a in accesses if a.index]
        partners = [v for v in reversed(rest) if any(v in names and last not in names for names in named)]
        out[(partners or rest[::-1])[0]] = "BM"
    return out


def beside(nest: Nest, group: Group) -> bool:
    """Does nothing in the group read what the nest writes, so that it can only share the tile loops of the last one?"""
    return not graph(group)[group.index(nest)] and nest.ranges == group[-1].ranges


def cut(s: Schedule, nest: Nest, knobs: Knobs, plan: Plan) -> tuple[Schedule, list[str]]:
    """The nest's band in tiles: (schedule, the loops around one tile, outermost first)."""
    q = nest.leading
    if nest.update is not None and len(nest.statements) == 1:
        wanted = [*nest.band, *nest.sums]
        if [v for v in s.program.statement[q].loops if v in wanted] != wanted:
            s = s.reorder(*(f"{q}.{v}" for v in wanted))
    by = tile_knobs(s.program, nest)
    outer: list[str] = []
    points: list[str] = []
    for v in nest.band:
        if v not in by:
            outer.append(v)
            continue
        tile, point = fresh(s, f"{v}o", f"{v}i")
        s = s.split(f"{q}.{v}", knobs[by[v]], into=(tile, point))
        outer.append(tile)
        points.append(point)
    if plan.order == "j" and len(points) > 1:
        a, b = (nest.band.index(v) for v in nest.band if v in by)
        outer[a], outer[b] = outer[b], outer[a]
    band = [f"{q}.{v}" for v in (*outer, *points)]
    return (s.reorder(*band) if len(band) > 2 else s), outer


def contraction(s: Schedule, nest: Nest, outer: Sequence[str], knobs: Knobs, plan: Plan) -> tuple[Schedule, str]:
    """A sum inside tile loops, cut along k, its accumulator kept for the tile: (schedule, the loop over the k blocks)."""
    q = nest.update
    assert q is not None
    tiles: list[str] = []
    points: list[str] = []
    for v in nest.band:
        made_of = loops_of(s.program, q, v)
        below = [x for x in made_of if x not in outer]
        if below and below == made_of:  # the whole range runs inside the tile: it gets tiles of its own
            tile, point = fresh(s, f"{v}t", f"{v}p")
            s = s.split(f"{q}.{below[-1]}", knobs["BN"], into=(tile, point))
            tiles.append(tile)
            points.append(point)
        elif below:
            points.append(below[-1])
    if tiles:
        s = s.reorder(*(f"{q}.{v}" for v in (*tiles, *points)))
    k = nest.sums[0]
    ko, ki = fresh(s, f"{k}o", f"{k}i")
    s = s.split(f"{q}.{loops_of(s.program, q, k)[-1]}", knobs["BK"], into=(ko, ki))
    s = s.reorder(f"{q}.{ko}", *(f"{q}.{v}" for v in points), f"{q}.{ki}")
    target = s.program.statement[q].target.buffer
    if s.program.buffer[target].role == "temp":
        return s.place(target, plan.accumulator), ko
    return s.cache_write(target, at=f"{q}.{[*outer, *tiles][-1]}", memory=plan.accumulator), ko


def handed_on(program: Program, nest: Nest) -> str:
    """The buffer through which what is left of a producer is read elsewhere (its name, when nothing is)."""
    left = standing(program, nest.statements)
    written = [s.action.target.buffer for s in sites(program.body) if isinstance(s.action, Leaf) and s.action.statement in left]
    return next((b for b in reversed(written) if outside_reads(program, b, nest.statements)), nest.name)


def level(program: Program, nest: Nest, buffer: str, tiles: Sequence[str], sums: Sequence[str]) -> str:
    """The loop at which a producer runs: of the tile loops around every reader, the deepest one that the cells read depend on. An
    elementwise producer may run at a k-block loop, and is then recomputed in every tile."""
    readers = outside_reads(program, buffer, nest.statements)
    allowed = [*tiles, *(sums if nest.kind == "elementwise" else ())]
    paths = [[x.var for x in u.site.loops] for u in readers]
    common = [v for v in (paths[0] if paths else tiles) if v in allowed and all(v in p for p in paths)]
    used = frozenset[str]().union(*map(names_in, readers))
    return next((v for v in reversed(common) if v in used), common[0] if common else tiles[0])


def merged(s: Schedule, sums: list[Sum]) -> tuple[Schedule, list[Sum]]:
    """The k loops of sums in one tile as one loop, so that what they share is fetched once."""
    ordered = sorted(sums, key=lambda x: find_loop(s.program, x[1]))
    (_, ko), *rest = ordered
    for _, other in rest:
        s = brought_together(s, ko, other).fuse_siblings(ko, other, into=ko)
    return s, [(nest, ko) for nest, _ in ordered]


def brought_together(s: Schedule, first: str, second: str) -> Schedule:
    """Two sibling loops as neighbours: what is between goes after the second if it uses what the first writes, else before."""
    while True:
        a, b = find_loop(s.program, first), find_loop(s.program, second)
        between = [(*a[:-1], n) for n in range(a[-1] + 1, b[-1])]
        if a[:-1] != b[:-1] or not between:
            return s
        written = {u for u, found in all_uses(s.program, a).items() if any(x.write for x in found)}
        names = [_node_name(s.program, p) for p in between]
        late = [not written.isdisjoint(all_uses(s.program, p)) for p in between]
        if not late[0]:
            s = s.reorder_siblings(first, names[0])
        elif late[-1]:
            s = s.reorder_siblings(names[-1], second)
        else:
            n = next(n for n in range(len(late)) if late[n] and not late[n + 1])
            s = s.reorder_siblings(names[n], names[n + 1])


def _node_name(program: Program, position: Position) -> str:
    node = node_at(program.body, position)
    return node.statement if isinstance(node, Leaf) else display(program, position)
