"""Loops, the order of iterations: reorder, distribute, fuse_siblings, reorder_siblings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import Guard, Leaf, Loop, Node, Program
from tilec.ir.tree import Body, Position, at, loop_conditions, loops, put, rename_loop, sites
from tilec.poly import bounds
from tilec.schedule.core import names, primitive
from tilec.schedule.names import display, executed, find_loop, free_name, loop_at, new_name, written
from tilec.schedule.nest import build, context, described, guarded, range_text, readable, siblings
from tilec.schedule.owners import repair


@primitive("loops")
def reorder(program: Program, *loops: str) -> Program:
    """Nest the named loops in the given order, outermost first.

    1. At least two loops, all different.
    2. They form one path: each stands inside the others or around them. Loops between them keep their places.
    3. The bounds can be written in the new order (always so for affine bounds; guards are added where needed).

    Statements between the permuted loops are split into siblings before and after, each keeping those of the loops that
    enclosed it, in the new relative order; leading loops that enclosed all of them stay common, and so do innermost loops that
    keep their places. Bounds that referred to a loop now further in are derived anew.

        for i in 0..N:                         for j in 0..N:
            for j in 0..i + 1:        ->           for i in j..N:
                for k in 0..K: S                       for k in 0..K: S
    """
    positions = [find_loop(program, name) for name in names(loops, "reorder's loops")] if loops else []
    if len(positions) < 2:
        raise ScheduleError("give two loops or more, the outermost first")
    if len(set(positions)) < len(positions):
        double = next(n for n, p in enumerate(positions) if p in positions[:n])
        raise ScheduleError(f"'{loops[double]}' and '{loops[positions.index(positions[double])]}' are the same loop")
    ordered = sorted(positions, key=len)
    for outer, inner in pairwise(ordered):
        if inner[: len(outer)] != outer:
            a, b = display(program, outer), display(program, inner)
            raise ScheduleError(
                f"'{a}' and '{b}' do not stand inside one another, so they form no path. Around '{b}': "
                f"{_around(program, inner)}. Around '{a}': {_around(program, outer)}"
            )
    return in_order(program, positions)


def in_order(program: Program, positions: Sequence[Position]) -> Program:
    """The loops at these positions of one path, nested in the order given."""
    ordered = sorted(positions, key=len)
    wanted = dict(zip(ordered, positions, strict=True))  # slot -> the loop that moves there
    moved = [p for p in ordered if wanted[p] != p]
    if not moved:
        return program
    return _permute(program, moved[0], moved[-1], {p: wanted[p] for p in moved})


def _around(program: Program, position: Position) -> str:
    found = [display(program, p) for p, _ in loops(program.body) if p == position[: len(p)] and p != position]
    return ", ".join(found) or "nothing"


@dataclass(frozen=True)
class _Level:
    """What stands around the path at one depth: the loops of the path so far, their guards, and the neighbours."""

    loops: frozenset[str]
    guards: tuple[Constraint, ...]
    before: Body
    after: Body


def _permute(program: Program, top: Position, bottom: Position, wanted: dict[Position, Position]) -> Program:
    """Exchange loops on the path top..bottom; what stands between is split off before and after."""
    slots = [bottom[:n] for n in range(len(top), len(bottom) + 1) if isinstance(at(program.body, bottom[:n]), Loop)]
    order = [loop_at(program, wanted.get(p, p)) for p in slots]
    seen: list[str] = []
    guards: list[Constraint] = []
    levels: list[_Level] = []
    for n in range(len(top), len(bottom) + 1):
        node = at(program.body, bottom[:n])
        assert isinstance(node, Loop | Guard)
        if isinstance(node, Guard):
            guards += node.conditions
        else:
            seen.append(node.var)
        before, after = (node.body[: bottom[n]], node.body[bottom[n] + 1 :]) if n < len(bottom) else (node.body, ())
        if before or after:
            levels.append(_Level(frozenset(seen), tuple(guards), before, after))
    new = _assemble(program, order, levels, (), context(program, top))
    return repair(program, replace(program, body=put(program.body, top, new)))


def _assemble(
    program: Program, order: Sequence[Loop], levels: Sequence[_Level], owed: tuple[Constraint, ...], known: list[Constraint]
) -> Body:
    """The levels, outermost first, under the loops of `order` that enclose them; leading loops common to all are shared.

    `owed`: conditions of shared loops whose bounds were derived anew, still to be enforced inside.
    """
    outer, *deeper = levels
    if not deeper:
        return build(program, order, (*outer.guards, *owed), outer.before, known, anew=bool(owed))
    shared: list[Loop] = []
    for loop in order:
        if loop.var not in outer.loops:
            break
        shared.append(loop)
    rest = order[len(shared) :]
    mine = [loop for loop in rest if loop.var in outer.loops]
    hidden = {loop.var for loop in rest}
    inside = known
    if shared and not readable(shared, hidden):
        conditions = [c for loop in (*shared, *mine) for c in loop_conditions(loop)]
        variables = [loop.var for loop in (*shared, *mine)]
        found, _ = bounds.nest(variables, (*conditions, *outer.guards, *owed), program.sizes, program.where, known)
        owed = (*owed, *(c for loop in shared for c in loop_conditions(loop)))
        shared = [replace(loop, lower=low, upper=up) for loop, (low, up) in zip(shared, found, strict=False)]
    inside = [*known, *(c for loop in shared for c in loop_conditions(loop))]

    def group(body: Body) -> Body:
        return build(program, mine, (*outer.guards, *owed), body, inside, anew=bool(owed)) if body else ()

    body = (*group(outer.before), *_assemble(program, rest, deeper, owed, inside), *group(outer.after))
    for loop in reversed(shared):
        body = (replace(loop, body=body),)
    return body


@primitive("loops")
def distribute(program: Program, loop: str, at: str | None = None) -> Program:
    """Give every child of a loop a copy of the loop, or (with `at`) split the body in two before the child that holds `at`.

    1. The loop's body has two children or more (a guard around all of them is copied too).
    2. `at` names a statement or a loop in the body that is not in its first child.

        for i: S0; S1; S2     ->    for i: S0   for i: S1   for i: S2
        at="S1"               ->    for i: S0   for i: S1; S2
    """
    position = find_loop(program, loop)
    node = loop_at(program, position)
    children, wrap = node.body, ()
    if len(children) == 1 and isinstance(guard := children[0], Guard):
        children, wrap = guard.body, guard.conditions
    if len(children) < 2:
        only = described(program, (*position, 0, 0) if wrap else (*position, 0))
        raise ScheduleError(f"the body of '{loop}' is only {only}: there is nothing to distribute")
    if at is None:
        parts = [(child,) for child in children]
    elif not isinstance(at, str):
        raise ScheduleError(f"at must be the name of a statement or a loop in the body of '{loop}', not {at!r}")
    else:
        cut = [n for n, child in enumerate(children) if _holds(child, at)]
        if not cut:
            inside = [*executed(children), *(v.var for _, v in loops(children))]
            raise ScheduleError(f"at: '{at}' is not inside '{loop}'. Inside: {', '.join(dict.fromkeys(inside))}")
        if cut[0] == 0:
            later = [*executed(children[1:]), *(v.var for _, v in loops(children[1:]))]
            raise ScheduleError(
                f"at: '{at}' is in the first part of '{loop}', before which there is nothing. Possible: "
                + ", ".join(dict.fromkeys(later))
            )
        parts = [children[: cut[0]], children[cut[0] :]]
    new = tuple(replace(node, body=guarded(wrap, part)) for part in parts)
    return repair(program, replace(program, body=put(program.body, position, new)))


def _follower(program: Program, position: Position, name: str) -> str:
    after = (*position[:-1], position[-1] + 1)
    if after[-1] >= len(siblings(program, position)):
        return f"nothing comes after '{name}'"
    return f"after '{name}' comes {described(program, after)}"


def _holds(child: Node, name: str) -> bool:
    body: Body = (child,)
    qualifier, dot, var = name.partition(".")
    if dot and any(loop.var == var and qualifier in (*written(loop.body), *executed(loop.body)) for _, loop in loops(body)):
        return True
    return name in executed(body) or any(loop.var == name for _, loop in loops(body))


@primitive("loops")
def fuse_siblings(program: Program, first: str, second: str, into: str | None = None) -> Program:
    """Merge two neighbouring loops into one that runs the first body, then the second, in each iteration.

    1. Both are loops of one body, `second` directly after `first`.
    2. They have the same kind.
    3. The smaller lower and the larger upper bound are known (bounds that differ by a constant, or are ordered by what is
       known); the body of a shorter loop is guarded.
    4. `into`, the merged loop's name, is free; by default it is that of the first loop.

        for i in 0..8: S0              for i in 0..12:
        for p in 0..12: S1     ->          if i < 8: S0
                                           S1[p = i]
    """
    a, b = find_loop(program, first), find_loop(program, second)
    if a[:-1] != b[:-1] or b[-1] != a[-1] + 1:
        follows = "they are the same loop" if a == b else _follower(program, a, first)
        raise ScheduleError(f"'{second}' is not the neighbour after '{first}': {follows}. reorder_siblings exchanges neighbours")
    x, y = loop_at(program, a), loop_at(program, b)
    if x.kind != y.kind:
        raise ScheduleError(f"'{first}' is {x.kind} and '{second}' is {y.kind}: merge them before one of them is bound")
    var = _merged_name(program, x, y, into)
    known = context(program, a)
    renamed = [rename_loop((loop,), loop.var, var)[0] if loop.var != var else loop for loop in (x, y)]
    x, y = (loop for loop in renamed if isinstance(loop, Loop))
    lower = _hull(program, x.lower, y.lower, known, False)
    upper = _hull(program, x.upper, y.upper, known, True)
    if lower is None or upper is None:
        side = "lower" if lower is None else "upper"
        raise ScheduleError(
            f"the {side} bounds of '{first}' ({range_text(x)}) and '{second}' ({range_text(y)}) cannot be compared for all "
            "sizes. Bind the sizes at schedule(...), or state an assumption: sizes(..., where=...)"
        )
    merged = Loop(var, lower, upper, (), x.kind)
    inside = [*known, *loop_conditions(merged)]
    body: Body = ()
    for part in (x, y):
        left = bounds.simplify(loop_conditions(part), inside, program.sizes, program.where)
        body = (*body, *guarded(left, part.body))
    merged = replace(merged, body=body)
    around = put(put(program.body, b, ()), a, (merged,))
    old = {loop_at(program, p).var: (var,) for p in (a, b)}
    return repair(program, replace(program, body=around), old)


def _merged_name(program: Program, x: Loop, y: Loop, into: str | None) -> str:
    if into is not None:
        if into in (x.var, y.var):
            inner = {loop.var for part in (x, y) for _, loop in loops(part.body)}
            if into in inner:
                raise ScheduleError(f"into: a loop inside is called '{into}' already")
            return into
        return new_name(program, into)
    for name in (x.var, y.var):
        if all(loop.var != name for part in (x, y) for _, loop in loops(part.body)):
            return name
    return free_name(program, x.var)


def _hull(
    program: Program, first: tuple[Aff, ...], second: tuple[Aff, ...], known: list[Constraint], upper: bool
) -> tuple[Aff, ...] | None:
    """Bounds (max of lowers, min of uppers) no tighter than either list and equal to one of them."""
    if set(first) == set(second):
        return first

    def looser(e: Aff, f: Aff) -> bool:
        c = Constraint.ge(e, f) if upper else Constraint.ge(f, e)
        return bounds.implied(c, known, program.sizes, program.where)

    for loose, tight in ((second, first), (first, second)):
        # min(tight) <= min(loose) when every loose bound is above some tight one
        if all(any(looser(e, f) for f in tight) for e in loose):
            return loose
    return None


@primitive("loops")
def reorder_siblings(program: Program, first: str, second: str) -> Program:
    """Exchange two neighbours: loops, or statements by name.

    1. Both are children of one body, `second` directly after `first`.

        for i: S0                 for j: S1
        for j: S1        ->       for i: S0
    """
    a, b = _node(program, first), _node(program, second)
    if a[:-1] != b[:-1] or b[-1] != a[-1] + 1:
        if b[:-1] == a[:-1] and a[-1] == b[-1] + 1:
            raise ScheduleError(f"'{first}' comes after '{second}': reorder_siblings(\"{second}\", \"{first}\") exchanges them")
        raise ScheduleError(f"'{second}' is not the neighbour after '{first}': {_follower(program, a, first)}")
    x, y = at(program.body, a), at(program.body, b)
    return replace(program, body=put(put(program.body, b, (x,)), a, (y,)))


def _node(program: Program, name: str) -> Position:
    """A loop, or the only leaf of a statement."""
    if name in program.statement:
        found = [s.position for s in sites(program.body) if isinstance(s.action, Leaf) and s.action.statement == name]
        if len(found) == 1:
            return found[0]
        places = ", ".join(display(program, p[:-1]) for p in found if len(p) > 1)
        raise ScheduleError(f"statement '{name}' stands at {len(found)} places ({places}): name a loop")
    return find_loop(program, name)
