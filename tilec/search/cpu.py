"""Schedules for CPUs, picked without measuring: structure from the program, sizes from the program and the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilec.errors import LegalityError, ScheduleError
from tilec.ir.program import Program
from tilec.schedule.refusal import refuse
from tilec.schedule.schedule import Schedule, start
from tilec.search.cpu_blocks import block_group, blocked_rows
from tilec.search.cpu_core import Core
from tilec.search.cpu_dot import dots_of
from tilec.search.cpu_gemm import choose, contraction_group
from tilec.search.cpu_operands import Blocks
from tilec.search.cpu_rows import chain_group, row_group, whole_sum
from tilec.search.nests import Group, Nest, nests
from tilec.search.rows import by_rows
from tilec.search.unproved import Memo, unproved
from tilec.targets import Target, load


@dataclass(frozen=True)
class Picked:
    """A schedule with what was decided for each group of nests."""

    schedule: Schedule
    groups: tuple[str, ...]
    notes: tuple[str, ...]


def group_nests(program: Program, found: Sequence[Nest]) -> list[Group]:
    """The nests in runs that one structure covers: contractions with the elementwise nests behind them (several contractions
    where one consumer reads them all), rows with rows, elementwise chains."""
    groups: list[list[Nest]] = []
    n = 0
    while n < len(found):
        last, together = groups[-1] if groups else [], blocked_rows(found[n:])
        if together:
            groups.append(list(found[n : n + together]))
        elif last and not blocked_rows(last) and _continues(last, found[n], found[n + 1 :]):
            last.append(found[n])
        else:
            groups.append([found[n]])
        n += max(1, together)
    return [tuple(g) for g in groups]


def _continues(group: list[Nest], nest: Nest, later: Sequence[Nest]) -> bool:
    sums = [x for x in group if x.kind == "contraction"]
    written = {b for x in group for b in x.written}
    reads = bool(written & set(nest.read))
    if sums:
        if nest.kind == "elementwise":
            return reads and nest.ranges == sums[-1].ranges
        together = nest.kind == "contraction" and nest.ranges == sums[-1].ranges and not reads
        return (
            together
            and bool(later)
            and later[0].kind == "elementwise"
            and bool({*later[0].read} & {*nest.written})
            and bool({*later[0].read} & written)
        )
    if nest.kind == "elementwise" and all(x.kind == "elementwise" for x in group):
        return reads
    kinds = {"rows", "elementwise"}
    return (
        nest.kind in kinds
        and all(x.kind in kinds for x in group)
        and bool(nest.ranges)
        and nest.ranges[:1] == group[-1].ranges[:1]
    )


def scheduled(
    s: Schedule, core: Core, blocks: Mapping[str, Blocks] | None = None, ahead: frozenset[str] = frozenset()
) -> tuple[Schedule, tuple[str, ...]]:
    """Every group of a fresh schedule by its structure; a group that its structure does not fit stays in its written order, said
    in the notes. blocks: sizes for contractions, by the name of the group's last nest, instead of those chosen.
    ahead: arguments whose packed copy the caller may bring."""
    program = s.program.source
    prefix, found = nests(program)
    notes = [f"{', '.join(prefix)} in the written order: what stands inside depends on it"] if prefix else []
    for group in [(nest,) for nest in found] if prefix else group_nests(s.program, found):
        for make in _structures(s, group, core, blocks or {}, ahead):
            try:
                s = make(s)
                break
            except (ScheduleError, LegalityError) as e:
                notes.append(f"{group[-1].name}: {str(e).splitlines()[0]}")
        else:
            notes.append(f"{group[-1].name} in the written order")
    return s, tuple(notes)


def _structures(
    s: Schedule, group: Group, core: Core, blocks: Mapping[str, Blocks], ahead: frozenset[str]
) -> list[Callable[[Schedule], Schedule]]:
    if blocked_rows(group):
        return [lambda s: _proved(block_group(s, group, core))]
    if any(nest.kind == "contraction" for nest in group):
        given = blocks.get(group[-1].name)
        dots = dots_of(s.program, group, core)
        b = given or choose(s.program, group, core, ahead)
        first: list[Callable[[Schedule], Schedule]] = []
        if dots is not None and b.MR > 1:
            d = given or choose(s.program, group, core, ahead, dots)
            first = [lambda s: _proved(contraction_group(s, group, d, core, dots))]
        windows = any(len(nest.sums) > 1 for nest in group)  # which would be copied again and again
        plain = replace(choose(s.program, group, core) if b.flat and b.packed else b, packed=False)
        ways = [plain] if windows else [b, plain]
        return [*first, *(lambda s, b=b: _proved(contraction_group(s, group, b, core)) for b in ways)]
    if by_rows(group):
        return [lambda s: _proved(row_group(s, group, core))]
    if all(nest.kind == "elementwise" for nest in group):
        return [lambda s: _proved(chain_group(s, group, core))]
    if len(group) == 1 and group[0].kind == "sum":
        return [lambda s: _proved(whole_sum(s, group, core))]
    return []


def _proved(s: Schedule) -> Schedule:
    verdict = s.check()
    if verdict.status != "legal":
        raise refuse("the structure", s.program, verdict)
    return s


def pick(
    program: Program,
    target: str | Target = "host",
    blocks: Mapping[str, Blocks] | None = None,
    ahead: Iterable[str] = (),
    threads: int | None = None,
    **options: Any,
) -> Picked:
    """tilec's own schedule of a program for a CPU, proved. options: sizes=, reassociate=, contract=, hardware_rounding=.

    ahead: arguments that the caller may pack before the calls; ScheduleError for one that nothing packs. threads: for no more of
    them than that.
    """
    core = Core.of(load(target), threads)
    fresh = start(program, **options)
    memo: Memo = {}
    if not isinstance(ahead, Iterable) or not all(isinstance(name, str) for name in ahead):
        raise ScheduleError(f"ahead={ahead!r}: the names of arguments that the caller packs")
    wanted = frozenset(ahead)
    made, notes = scheduled(unproved(fresh, memo), core, blocks, wanted)
    left = sorted(wanted - {b.root for b in made.program.buffers if b.prepacked})
    if left:
        able = sorted({b.root for b in made.program.buffers if b.role == "cache" and b.layout is not None and b.root})
        raise ScheduleError(f"'{left[0]}' is not packed ahead of the call. Possible: {', '.join(able) or 'none'}")
    verdict = made.check()
    if verdict.status != "legal":
        raise refuse("the picked schedule", made.program, verdict)
    out = replace(fresh, program=made.program, trace=made.trace, proved=verdict)
    names = tuple("+".join(nest.name for nest in group) for group in group_nests(program, nests(program.source)[1]))
    return Picked(out, names, notes)
