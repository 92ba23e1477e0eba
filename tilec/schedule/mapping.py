"""Mapping: which loops run on what. parallel, vectorize, bind, barrier.

`parallel`, `vectorize` and `bind` take several loops at once, so that sibling phases change together.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.errors import ScheduleError
from tilec.ir.program import BLOCK_KINDS, THREAD_KINDS, Barrier, Commit, Guard, Leaf, Loop, Program, Wait
from tilec.ir.tree import Position, at, loops, path_to, put, sites
from tilec.schedule.core import choice, names, primitive
from tilec.schedule.names import display, find_loop, find_statement, loop_at
from tilec.schedule.nest import const_extent, context, range_text, siblings, swap
from tilec.schedule.owners import access_sites, owning

AXES = (*BLOCK_KINDS, *THREAD_KINDS)


@primitive("mapping")
def parallel(program: Program, loops: str | tuple[str, ...]) -> Program:
    """Run the iterations of loops unordered, on a CPU's cores.

    1. Each loop is serial.

        for i in 0..N: S    ->    for i in 0..N: S   # parallel
    """
    return _mark(program, names(loops, "the loops"), "parallel")


@primitive("mapping")
def vectorize(program: Program, loops: str | tuple[str, ...]) -> Program:
    """Run the iterations of loops as the lanes of vector instructions.

    1. Each loop is serial.
    2. Its extent is bounded by a constant for all sizes.

        for i in 0..8: S    ->    for i in 0..8: S   # vector
    """
    given = names(loops, "the loops")
    for name in given:
        _bounded(program, find_loop(program, name), name, "vectorize the inner loop")
    return _mark(program, given, "vector")


@primitive("mapping")
def bind(program: Program, loops: str | tuple[str, ...], axis: str) -> Program:
    """Run the iterations of loops on the blocks or threads of a GPU.

    1. `axis` is "block.x", "block.y", "block.z", "thread.x", "thread.y" or "thread.z".
    2. Each loop is serial, and no loop around it or inside it has that axis.
    3. A block loop stands under block loops only, and is the only child of the one above.
    4. A thread loop's extent is bounded by a constant for all sizes.
    5. No barrier, commit or wait stands inside a thread loop, and no shared buffer is owned by it or a loop inside it.

        for i in 0..N: S    ->    for i in 0..N: S   # block.x
    """
    given = names(loops, "the loops")
    choice(axis, "the axis", AXES)
    positions = [find_loop(program, name) for name in given]
    if axis in THREAD_KINDS:
        for name, position in zip(given, positions, strict=True):
            _bounded(program, position, name, f"bind the inner loop to {axis}")
    new = _mark(program, given, axis)
    for name, position in zip(given, positions, strict=True):
        _axis_free(new, position, name, axis)
        if axis in BLOCK_KINDS:
            _outermost(new, position, name)
        else:
            _thread_rules(new, position, name)
    return new


def _mark(program: Program, given: tuple[str, ...], kind: str) -> Program:
    positions = [find_loop(program, name) for name in given]
    for name, position in zip(given, positions, strict=True):
        if positions.count(position) > 1:
            raise ScheduleError(f"'{name}' and another of the names mean the same loop")
        node = loop_at(program, position)
        if node.kind != "serial":
            raise ScheduleError(f"'{name}' is {node.kind} already: only a serial loop can become {kind}")
    for position in positions:
        program = swap(program, position, replace(loop_at(program, position), kind=kind))
    return program


def _bounded(program: Program, position: Position, name: str, what: str) -> None:
    node = loop_at(program, position)
    if const_extent(program, node, context(program, position)) is None:
        raise ScheduleError(
            f"the extent of '{name}' ({range_text(node)}) is no constant. "
            f'Possible: split("{name}", n) and {what}, or bind the size at schedule(...)'
        )


def _axis_free(program: Program, position: Position, name: str, axis: str) -> None:
    related = [(p, n) for p, n in loops(program.body) if p != position and (_above(p, position) or _above(position, p))]
    for p, other in related:
        if other.kind == axis:
            side = "around" if _above(p, position) else "inside"
            used = {loop.kind for _, loop in related}
            free = [a for a in AXES if a not in used and a.split(".")[0] == axis.split(".")[0]]
            shown = display(program, p)
            raise ScheduleError(f"'{shown}' {side} '{name}' is {axis} already. Free: {', '.join(free) or 'none'}")


def _above(p: Position, q: Position) -> bool:
    return q[: len(p)] == p


def _outermost(program: Program, position: Position, name: str) -> None:
    path = path_to(program.body, position)
    bad = [(d, n) for d, n in enumerate(path) if not (isinstance(n, Loop) and n.kind in BLOCK_KINDS)]
    if bad:
        depth, outer = bad[0]
        what = f"'{display(program, position[: depth + 1])}' ({outer.kind})" if isinstance(outer, Loop) else "a guard"
        raise ScheduleError(
            f"'{name}' stands under {what}; a block loop stands under block loops only. "
            "Possible: bind the loops around it first, or reorder it outwards"
        )
    if path and len(siblings(program, position)) > 1:
        parent = display(program, position[:-1])
        raise ScheduleError(
            f"'{name}' is not the only child of the block loop '{parent}'. Possible: distribute(\"{parent}\") before it "
            "is bound, or compute_at, so that one nest holds everything"
        )


def _thread_rules(program: Program, position: Position, name: str) -> None:
    node = loop_at(program, position)
    for site in sites(node.body):
        if isinstance(site.action, Barrier | Commit | Wait):
            what = type(site.action).__name__.lower()
            raise ScheduleError(
                f"a {what} stands inside '{name}', and none may stand in a thread loop: bind loops inside it instead"
            )
    found = access_sites(program)
    for b in program.buffers:
        if b.memory == "shared" and b.owner is not None:
            around = owning(b, found.get(b.name, []))
            under = any(s.position[: len(position)] == position for s in found.get(b.name, []))
            if under and node.var in around:
                raise ScheduleError(
                    f"the shared buffer '{b.name}' is owned by '{b.owner}', {_relation(node.var, b.owner)} '{name}': every "
                    f"thread would have its own. Possible: place it at a loop around '{name}', or in register"
                )


def _relation(var: str, owner: str) -> str:
    return "the same as" if var == owner else "inside"


@primitive("mapping", keeps_barriers=True)
def barrier(program: Program, after: str, remove: bool = False) -> Program:
    """Set a barrier after a loop or a statement, or remove the one that stands there.

    1. `after` names a loop, or a statement that stands at one place.
    2. It stands under no thread loop and no guard.
    3. remove=True: a barrier stands directly after it (set or inserted by tilec); the proof must hold without it.

        for i in 0..32: S0  # thread.x          for i in 0..32: S0  # thread.x
        for i in 0..32: S1  # thread.x    ->    barrier
                                                for i in 0..32: S1  # thread.x
    """
    position = _place(program, after)
    body, n = siblings(program, position), position[-1]
    follower = body[n + 1] if n + 1 < len(body) else None
    if remove:
        if not isinstance(follower, Barrier):
            where = ", ".join(_barriers(program)) or "there is none"
            raise ScheduleError(f"no barrier stands after '{after}'. Barriers stand after: {where}")
        return replace(program, body=put(program.body, (*position[:-1], n + 1), ()))
    for depth, node in enumerate(path_to(program.body, position)):
        if isinstance(node, Guard) or node.kind in THREAD_KINDS:
            what = "a guard" if isinstance(node, Guard) else f"the {node.kind} loop '{node.var}'"
            possible = f" Possible: after '{display(program, position[: depth + 1])}'" if isinstance(node, Loop) else ""
            raise ScheduleError(f"'{after}' stands under {what}, where no barrier may stand.{possible}")
    if isinstance(follower, Barrier):
        if not follower.inserted:
            raise ScheduleError(f"a barrier stands after '{after}' already")
        return replace(program, body=put(program.body, (*position[:-1], n + 1), (Barrier(),)))
    return replace(program, body=put(program.body, position, (body[n], Barrier())))


def _place(program: Program, name: str) -> Position:
    if name in program.statement:
        find_statement(program, name)
        found = [s.position for s in sites(program.body) if isinstance(s.action, Leaf) and s.action.statement == name]
        if len(found) != 1:
            raise ScheduleError(f"statement '{name}' stands at {len(found)} places: name a loop")
        return found[0]
    return find_loop(program, name)


def _barriers(program: Program) -> list[str]:
    """What stands directly before each barrier."""
    out: list[str] = []
    for site in sites(program.body):
        if isinstance(site.action, Barrier) and site.position[-1] > 0:
            before = (*site.position[:-1], site.position[-1] - 1)
            node = at(program.body, before)
            out.append(
                f"'{display(program, before)}'" if isinstance(node, Loop) else f"'{getattr(node, 'statement', 'an action')}'"
            )
    return out
