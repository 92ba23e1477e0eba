"""Schedules for CPUs of what is no contraction: rows of several steps, elementwise chains, stencils, whole sums."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.errors import LegalityError, ScheduleError
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Leaf, Loop, Program
from tilec.ir.tree import sites
from tilec.schedule.names import display, find_loop, loop_at
from tilec.schedule.schedule import Schedule
from tilec.search.cpu_core import WIDEST_LANES, Core, innermost, results, streamed, vectorised, writes_own
from tilec.search.handles import fresh, loops_of, path_of, site, standing
from tilec.search.inputs import private, row_inputs, wide
from tilec.search.nests import Group
from tilec.search.tiles import handed_on, inlined

MANY_REGISTERS = 32  # hold the steps of eight vectors at once; their bytes leave in whole lines, without a branch between them
ROWS_IN_TURN = 16  # that one core goes through before it takes others
CHAINS = 4  # partial sums that run side by side: a multiply-add's latency times two a cycle, in registers


def row_group(s: Schedule, group: Group, core: Core) -> Schedule:
    """Nests that share their rows, row by row: rows on the cores, steps of a row as vectors, its sums in partial sums where they
    may be reordered."""
    first, *rest = group
    q = first.leading
    for nest in rest:
        s = s.fuse_siblings(f"{q}.{path_of(s.program, q)[0]}", f"{nest.leading}.{nest.band[0]}")
    outer = path_of(s.program, q)[:1] if rest else path_of(s.program, q)[: len(first.band)]
    row = outer[-1]
    s = vectorised(row_steps(s, group, row, core))
    before = s
    for name in row_inputs(s.program, f"{q}.{row}"):
        s = asked_ahead(s, name, f"{q}.{row}", group)
    for name in results(s.program):
        written = next((nest for nest in group if name in nest.written), None)
        if (
            written is not None
            and s.program.statement[written.statements[-1]].loops[-1] != row
            and streamed(core, s.program, name)
        ):
            s = s.store(name)
    shared = outer[0]
    if s is not before and shared == row:  # the row that was asked for is one of the same core's
        loop = loop_at(s.program, find_loop(s.program, f"{q}.{row}"))
        shared, point = fresh(s, f"{row}o", f"{row}i")
        rows = loop.upper[0] - loop.lower[0]
        piece = core.chunks(rows.const, 1, ROWS_IN_TURN) if rows.is_const else ROWS_IN_TURN
        s = s.split(f"{q}.{row}", piece, into=(shared, point))
    return s.parallel(f"{q}.{shared}")


def row_steps(s: Schedule, group: Group, row: str, core: Core) -> Schedule:
    """The steps inside one iteration of `row`: a loop each, sums in partial sums, what is long cut into vectors."""
    statements = [n for nest in group for n in nest.statements]
    for buffer in private(s.program, group):
        s = s.place(buffer, "scratch" if wide(s.program, buffer, f"{group[0].leading}.{row}") else "register")
    s = distributed(s, row, statements)
    for name in statements:
        s = reduced(s, name, row, core)
    return lanes(s, row, core, statements)


def asked_ahead(s: Schedule, name: str, row: str, group: Group) -> Schedule:
    """The next row of an input, which several steps read, fetched while the last of them computes: the first finds it near."""
    readers = [n for nest in group for n in nest.statements if any(a.buffer == name for a in s.program.statement[n].reads)]
    path = path_of(s.program, readers[-1])
    try:
        return s.prefetch(name, at=f"{readers[-1]}.{path[-2]}", distance=1, of=row)
    except ScheduleError:  # a row of two loops only, or of no constant length
        return s


def distributed(s: Schedule, row: str, statements: Sequence[str]) -> Schedule:
    """Inner loops of several statements in loops of one each, as far as that is legal."""
    tried: set[str] = set()
    while True:
        for position, loop in innermost(s.program):
            name = display(s.program, position)
            mine = any(x.var == row for x in _around(s.program, name)) and {*_inside(loop)} & {*statements}
            if loop.var != row and len(loop.body) > 1 and name not in tried and mine:
                tried.add(name)
                try:
                    made = s.distribute(name)
                except ScheduleError:
                    continue
                if made.check().status == "legal":
                    s = made
                    break
        else:
            return s


def _inside(loop: Loop) -> list[str]:
    return [x.action.statement for x in sites(loop.body) if isinstance(x.action, Leaf)]


def _around(program: Program, name: str) -> list[Loop]:
    position = find_loop(program, name)
    found = next(x for x in sites(program.body) if x.position[: len(position)] == position)
    return list(found.loops)


def reduced(s: Schedule, name: str, row: str, core: Core) -> Schedule:
    """A sum of a row in partial sums: the lanes of CHAINS vectors, where its order is free."""
    program = s.program
    statement = program.statement[name]
    found = site(program, name)
    if statement.op == "=" or found is None or not isinstance(found.action, Leaf) or len(found.loops) < 2:
        return s
    target = found.action.target
    loop = found.loops[-1]
    if any(loop.var in e.names for e in target.index) or loop.var == row:
        return s
    exact = statement.op in ("max=", "min=") or DTYPES[program.buffer[target.buffer].dtype].kind == "int"
    root = program.buffer[target.buffer].root or target.buffer
    if not exact and root not in program.reassociate:
        return s
    one = core.lanes(program.buffer[target.buffer].dtype)
    width = CHAINS * one
    block, lane = fresh(s, f"{loop.var}o", f"{loop.var}l")
    try:
        made = s.split(f"{name}.{loop.var}", width, into=(block, lane)).reorder(f"{name}.{lane}", f"{name}.{block}")
        try:
            made = made.split_reduction(target.buffer, f"{name}.{lane}", fold=one)
        except ScheduleError:  # fewer iterations than partial sums
            made = made.split_reduction(target.buffer, f"{name}.{lane}")
        part = next(b.name for b in made.program.buffers if b.name not in program.buffer)
        made = made.place(part, "register", at=f"{name}.{row}").reorder(f"{name}.{block}", f"{name}.{lane}")
    except (ScheduleError, LegalityError):
        return s
    return made if made.check().status == "legal" else s


def lanes(s: Schedule, row: str, core: Core, statements: Sequence[str], times: int = 1) -> Schedule:
    """Long innermost loops that write along memory, cut into vectors; `times` as long where that leaves no rest."""
    for _ in range(64):
        for position, loop in innermost(s.program):
            kept = [a for a in loop.body if not writes_own(s.program, a, loop.var)]
            if loop.kind != "serial" or loop.var == row or len(kept) != 1 or not isinstance(kept[0], Leaf):
                continue
            target = kept[0].target
            if kept[0].statement not in statements or not target.index or target.index[-1].names & {loop.var} == frozenset():
                continue
            extent = loop.upper[0] - loop.lower[0]
            width = vector_lanes(s.program, target.buffer, core)
            width *= times if extent.is_const and extent.const % (times * width) == 0 else 1
            short = s.program.buffer[target.buffer].memory == "register" and extent.is_const and extent.const <= WIDEST_LANES
            if short or (len(loop.upper) == 1 and extent.is_const and extent.const <= width):
                continue
            name = display(s.program, position)
            if not loop.var.endswith(("_v", "_v2", "_v3", "_v4")):
                blocks, points = fresh(s, f"{loop.var}_b", f"{loop.var}_v")
                s = s.split(name, width, into=(blocks, points))
                break
        else:
            return s
    return s


def vector_lanes(program: Program, buffer: str, core: Core) -> int:
    """Lanes of one vector loop: four registers, whose steps run between each other's, and whose bytes fill a cache line."""
    return 4 * core.lanes(program.buffer[buffer].dtype)


def chain_group(s: Schedule, group: Group, core: Core, rows: int = 32) -> Schedule:
    """Elementwise nests: what is read once is computed in place, what is read at several offsets in strips of rows before; rows
    on the cores, vectors along memory, results past the caches where they are larger than these."""
    root = group[-1]
    s = inlined(s, group)
    q = root.leading
    past = [name for name in results(s.program) if name in root.written and streamed(core, s.program, name)]
    times = 2 if past and core.registers >= MANY_REGISTERS else 1
    outer, *more = root.band
    if more or any(standing(s.program, nest.statements) for nest in group[:-1]):
        left = [nest for nest in group[:-1] if standing(s.program, nest.statements)]
        if left:
            block, point = fresh(s, f"{outer}o", f"{outer}i")
            s = s.split(f"{q}.{outer}", rows, into=(block, point))
            for nest in reversed(left):
                s = s.compute_at(handed_on(s.program, nest), block)
            for buffer in private(s.program, group):
                s = s.place(buffer, "scratch")
            outer = block
    else:
        only = outer
        size = site(s.program, q)
        assert size is not None
        extent = size.loops[0].upper[0] - size.loops[0].lower[0]
        width = times * vector_lanes(s.program, s.program.statement[root.statements[-1]].target.buffer, core)
        piece = core.chunks(extent.const, width, 1 << 16) if extent.is_const else 1 << 14
        outer, point = fresh(s, f"{only}o", f"{only}i")
        s = s.split(f"{q}.{only}", piece, into=(outer, point))
    s = vectorised(lanes(s, outer, core, [n for nest in group for n in nest.statements], times), most=times * WIDEST_LANES)
    for name in past:
        s = s.store(name)
    return s.parallel(f"{q}.{outer}")


def whole_sum(s: Schedule, group: Group, core: Core) -> Schedule:
    """One number from a whole array: a partial sum on each core, of partial sums in lanes; in order where it must be."""
    nest = group[-1]
    name = nest.update or nest.leading
    update = s.program.statement[name]
    exact = update.op in ("max=", "min=") or DTYPES[s.program.buffer[update.target.buffer].dtype].kind == "int"
    if update.target.buffer not in s.program.reassociate and not exact:
        return s
    found = site(s.program, name)
    assert found is not None
    (v,) = loops_of(s.program, name, nest.sums[0])
    e = found.loops[-1].upper[0] - found.loops[-1].lower[0]
    width = CHAINS * core.lanes(s.program.buffer[update.target.buffer].dtype)
    piece = core.chunks(e.const, width, max(width, -(-e.const // core.cores))) if e.is_const else 1 << 16
    block, point = fresh(s, f"{v}o", f"{v}i")
    s = s.split(f"{name}.{v}", piece, into=(block, point)).split_reduction(update.target.buffer, f"{name}.{block}")
    return s.parallel(f"{name}.{block}")
