"""Where a nest runs: compute_at and reverse_compute_at (compute_root: placement_root.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilec.errors import ScheduleError
from tilec.ir.program import Node, Program
from tilec.ir.tree import Position, at, loops, put
from tilec.poly.regions import Piece
from tilec.schedule.core import primitive
from tilec.schedule.names import display, find_buffer, find_loop
from tilec.schedule.owners import repair
from tilec.schedule.placement_region import Place, joins, rebase, recomputed, separate, shrink
from tilec.schedule.placement_uses import Use, all_uses, check_room, common, conditions_to, insert, inside, loops_to, uses


@primitive("placement")
def compute_at(program: Program, buffer: str, loop: str) -> Program:
    """Compute what a loop needs of a buffer inside it, just before the first reader.

    1. Something outside the nest that computes `buffer` reads it, and every such reader is inside `loop`.
    2. Below the nearest common ancestor of the writers and `loop`, one child holds all writers, and it does not hold `loop`.
    3. Other buffers that this nest writes are read only in it or inside `loop`.
    4. The nest may stand there: it holds no block loop, no thread axis that is around already, and no block loop is beside it.

        for i in 0..N: B[i] = f(A[i])             for io:
        for io:                            ->         for i in 0..4: B[4*io + i] = f(A[4*io + i])
            for ii in 0..4: C[..] = g(B[4*io + ii])   for ii in 0..4: C[..] = g(B[4*io + ii])

    The nest's loops shrink to the hull of what is read there, within its old bounds; loops whose range moves with the outer loops
    count from 0. Instances needed by several iterations of the loops around are recomputed. Storage changes only by `place`.
    """
    b = find_buffer(program, buffer)
    position = find_loop(program, loop)
    found = uses(program, b.name)
    problem = _compute_at_problem(program, b.name, found, position, loop)
    if problem:
        legal = _legal(program, found, lambda p: _compute_at_problem(program, b.name, found, p, "") is None)
        raise ScheduleError(f"{problem}\n  legal loops: {legal}")
    child = _moving(found, position)
    readers = [u for u in found if u.reads and not inside(u.position, child)]
    before = min(u.position[len(position)] for u in readers)
    own = [u for u in found if u.write and inside(u.position, child)]
    return _move(program, child, (*position, before), [(own, [u.piece for u in readers])], after=False)


def _moving(found: Sequence[Use], position: Position) -> Position:
    """The one child of the nearest common ancestor of the writers and the loop that holds all writers."""
    writers = [u.position for u in found if u.write]
    ancestor = common([*(p[:-1] for p in writers), position])
    return common([p[: len(ancestor) + 1] for p in writers])


def _compute_at_problem(program: Program, name: str, found: Sequence[Use], position: Position, target: str) -> str | None:
    writers = [u.position for u in found if u.write]
    if not writers:
        return f"nothing computes '{name}'"
    ancestor = common([*(p[:-1] for p in writers), position])
    child = _moving(found, position)
    if len(child) == len(ancestor):
        return f"the writers of '{name}' stand in several nests, and one must move: merge them first (fuse_siblings)"
    if inside(position, child):
        return f"'{name}' is computed around '{target}': a nest cannot move into itself"
    readers = [u for u in found if u.reads and not inside(u.position, child)]
    if not readers:
        return f"nothing outside the nest that computes '{name}' reads it"
    outside = [u for u in readers if not inside(u.position, position)]
    if outside:
        return f"'{target}' does not enclose every reader of '{name}': {_who(outside[0])} reads it outside"
    return _shared_problem(program, name, child, position, target)


def _shared_problem(program: Program, name: str, child: Position, position: Position, target: str) -> str | None:
    for b in program.buffers:
        if b.name == name:
            continue
        found = uses(program, b.name)
        if not any(u.write and inside(u.position, child) for u in found):
            continue
        outside = [u for u in found if u.reads and not inside(u.position, child) and not inside(u.position, position)]
        if outside:
            return f"the nest also writes '{b.name}', which {_who(outside[0])} reads outside '{target}'"
    return None


def _who(u: Use) -> str:
    return str(getattr(u.site.action, "statement", "a " + type(u.site.action).__name__.lower()))


def _legal(program: Program, found: Sequence[Use], legal: Callable[[Position], bool]) -> str:
    """The loops that pass the preconditions, outermost first."""

    def room(position: Position) -> bool:
        try:
            check_room(program, position, at(program.body, _moving(found, position)))
        except ScheduleError:
            return False
        return True

    return ", ".join(display(program, p) for p, _ in loops(program.body) if legal(p) and room(p)) or "none"


@primitive("placement")
def reverse_compute_at(program: Program, buffer: str, loop: str) -> Program:
    """Move the nest that computes `buffer` (a consumer) into the loop where its input is produced, just after the last producer.

    1. Below the nearest common ancestor of the writers of `buffer` and `loop`, one child holds all writers, not holding `loop`.
    2. That nest reads something that is written inside `loop`.
    3. Nothing inside `loop` reads what the nest writes.
    4. The nest may stand there (as for compute_at).

        for io:                                         for io:
            for i in 0..4: B[4*io + i] = f(..)    ->        for i in 0..4: B[4*io + i] = f(..)
        for i in 0..N: Y[i] = g(B[i])                       for i in 0..4: Y[4*io + i] = g(B[4*io + i])

    Its loops shrink to the instances that read what this iteration writes, of every buffer it takes from there.
    """
    b = find_buffer(program, buffer)
    position = find_loop(program, loop)
    everything = all_uses(program)
    problem = _reverse_problem(b.name, everything, position, loop)
    if problem:
        own = everything.get(b.name, [])
        legal = _legal(program, own, lambda p: _reverse_problem(b.name, everything, p, "") is None)
        raise ScheduleError(f"{problem}\n  legal loops: {legal}")
    child = _moving(everything[b.name], position)
    groups: list[Group] = []
    last = 0
    for name in _taken_from(everything, child, position):
        writes = [u for u in everything[name] if u.write and inside(u.position, position)]
        groups.append(([u for u in everything[name] if u.reads and inside(u.position, child)], [u.piece for u in writes]))
        last = max(last, *(u.position[len(position)] for u in writes))
    return _move(program, child, (*position, last), groups, after=True)


def _reverse_problem(name: str, everything: dict[str, list[Use]], position: Position, target: str) -> str | None:
    writers = [u.position for u in everything.get(name, []) if u.write]
    if not writers:
        return f"nothing computes '{name}'"
    child = _moving(everything[name], position)
    if len(child) == len(common([*(p[:-1] for p in writers), position])):
        return f"the writers of '{name}' stand in several nests, and one must move: merge them first (fuse_siblings)"
    if inside(position, child):
        return f"'{name}' is computed around '{target}': a nest cannot move into itself"
    if not _taken_from(everything, child, position):
        return f"the nest that computes '{name}' reads nothing that '{target}' writes"
    for written, found in everything.items():
        if any(u.write and inside(u.position, child) for u in found):
            early = [u for u in found if u.reads and inside(u.position, position) and not inside(u.position, child)]
            if early:
                return f"{_who(early[0])} inside '{target}' reads '{written}', which the nest computes"
    return None


def _taken_from(everything: dict[str, list[Use]], child: Position, position: Position) -> list[str]:
    """Buffers that the nest at `child` reads and that are written inside the loop at `position`, outside the nest."""
    return [
        name
        for name, found in everything.items()
        if any(u.reads and inside(u.position, child) for u in found)
        and any(u.write and inside(u.position, position) and not inside(u.position, child) for u in found)
    ]


Group: TypeAlias = tuple[Sequence[Use], Sequence[Piece]]  # accesses inside the nest, and the cells they must meet


def _move(program: Program, child: Position, anchor: Position, groups: Sequence[Group], *, after: bool) -> Program:
    """The node at `child` beside the one at `anchor`, shrunk to the iterations that meet each group's wanted cells."""
    parent = anchor[:-1]
    place = Place(tuple(loop.var for loop in loops_to(program.body, parent)), conditions_to(program.body, parent))
    above = conditions_to(program.body, child[:-1])
    outside = [loop.var for loop in loops_to(program.body, child[:-1])]
    check_room(program, parent, at(program.body, child))
    moved, became = separate(program, at(program.body, child), [v for v in place.loops if v not in outside])
    names = {old: new for old, (new,) in became.items()}
    for own, wanted in groups:
        pieces = [(u.position[len(child) :], u.piece.subs(names)) for u in own]
        needed = joins(program, place, above, pieces, wanted)
        if not needed:
            raise ScheduleError("nothing that this nest computes is needed there")
        moved = shrink(program, moved, place, needed)
    moved = rebase(program, moved, place)
    new = _relocate(program, child, anchor, moved, after)
    if not after:
        new = replace(new, recomputed=program.recomputed | recomputed(program, moved, place))
    return repair(program, new, became)


def _relocate(program: Program, child: Position, anchor: Position, moved: Node, after: bool) -> Program:
    if after:
        body = insert(program.body, anchor, after=[moved])
    else:
        body = insert(program.body, anchor, before=[moved])
    depth = len(anchor) - 1
    if inside(child, anchor[:-1]) and child[depth] >= anchor[depth] + after:
        child = (*anchor[:-1], child[depth] + 1, *child[depth + 1 :])
    return replace(program, body=put(body, child, ()))
