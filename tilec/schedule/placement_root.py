"""compute_root: a nest back at the top level, over everything it computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import Guard, Leaf, Loop, Node, Program
from tilec.ir.tree import addresses, at, loop_conditions, put, sites, subs
from tilec.poly.bounds import tightest
from tilec.poly.regions import Piece, hull
from tilec.schedule.core import primitive
from tilec.schedule.names import find_buffer
from tilec.schedule.placement_region import Place, recomputed
from tilec.schedule.placement_uses import common_node, conditions_to, insert, inside, loops_to, uses
from tilec.schedule.storage import stored


@primitive("placement")
def compute_root(program: Program, buffer: str) -> Program:
    """Compute a buffer whole, at the top level, before the nest that it was computed in.

    1. `buffer` is no cache. Something outside the nest that computes it reads it, and one node below their nearest common
       ancestor computes it.
    2. That node is not at the top level yet.
    3. Each of its loops counts an original coordinate from a start that the loops around determine (as compute_at leaves them).
    4. It reads and writes nothing, except `buffer`, that lives in one iteration of the loops it leaves.

        for io:                                                  for i in 0..N: B[i] = f(A[i])
            for i in 0..4: B[4*io + i] = f(A[4*io + i])    ->    for io:
            … B[4*io + ii] …                                         … B[4*io + ii] …
    """
    b = find_buffer(program, buffer)
    if b.role in ("cache", "partial"):
        raise ScheduleError(
            f"'{b.name}' is a {b.role}, filled where it is used: only a buffer of the kernel is computed at the top level"
        )
    found = uses(program, b.name)
    writers = [u.position for u in found if u.write]
    if not writers:
        raise ScheduleError(f"nothing computes '{b.name}'")
    child = common_node(writers)
    node = common_node([u.position for u in found])  # what holds writers and readers
    if len(child) <= len(node):
        if not node and len({p[0] for p in writers}) == 1:
            raise ScheduleError(f"'{b.name}' is computed at the top level already")
        raise ScheduleError(f"the writers of '{b.name}' stand beside its readers in several nodes: no single nest can move")
    child = child[: len(node) + 1]
    if not node:
        raise ScheduleError(f"'{b.name}' is computed at the top level already")
    if all(inside(u.position, child) for u in found if u.reads):
        raise ScheduleError(f"nothing outside the nest that computes '{b.name}' reads it")
    left = [loop.var for loop in loops_to(program.body, node)]
    _reaches(program, at(program.body, child), b.name, left)
    moved = _unshifted(program, at(program.body, child), left, conditions_to(program.body, node))
    body = insert(put(program.body, child, ()), child[:1], before=[moved])
    new = replace(program, body=body, recomputed=_still(program, moved))
    if b.owner in left and (b.placed or b.role != "temp"):
        new = stored(new, b, b.memory, (), uses(new, b.name))
    return new


def _reaches(program: Program, child: Node, name: str, left: Sequence[str]) -> None:
    for site in sites((child,)):
        for a, _, _ in addresses(site.action, program):
            b = program.buffer[a.buffer]
            if b.name != name and b.owner in left and (b.placed or b.role != "temp"):
                raise ScheduleError(f"the nest uses '{b.name}', which lives in one iteration of '{b.owner}'")


def _unshifted(program: Program, child: Node, left: Sequence[str], above: tuple[Constraint, ...]) -> Node:
    """The nest with its loops over the original coordinates, and bounds over all iterations of the loops it leaves."""
    gone = frozenset(left)

    def node(n: Node, path: tuple[str, ...], old: tuple[Constraint, ...], known: tuple[Constraint, ...]) -> Node:
        if isinstance(n, Guard):
            for c in n.conditions:
                if c.names & gone:
                    raise ScheduleError(f"the nest's guard {c} depends on '{min(c.names & gone)}'")
            inner = tuple(node(x, path, (*old, *n.conditions), (*known, *n.conditions)) for x in n.body)
            return replace(n, body=inner)
        if not isinstance(n, Loop):
            return n
        start = _start(n, gone)
        conditions = tuple(c.subs({n.var: Aff.of(n.var) - start}) for c in loop_conditions(n))
        old = (*old, *conditions)
        variables = (*path, n.var)
        dims = [v + ".x" for v in variables]
        piece = Piece(tuple(Aff.of(v) for v in variables), old)
        back = dict(zip(dims, variables, strict=True))
        found = [c.subs(back) for c in hull(dims, [piece], (), program.sizes, program.where)]
        lower, upper = tightest(n.var, found, known, program.sizes, program.where)
        body = subs(n.body, {n.var: Aff.of(n.var) - start})
        known = (*known, *loop_conditions(replace(n, lower=lower, upper=upper)))
        return Loop(n.var, lower, upper, tuple(node(x, variables, old, known) for x in body), n.kind)

    new = node(child, (), above, ())
    for site in sites((new,)):
        names = frozenset().union(*(e.names for e in getattr(site.action, "instance", ()))) & gone
        if names:
            raise ScheduleError(f"the nest's instances depend on '{min(names)}' in a way that cannot be undone")
    return new


def _start(loop: Loop, gone: frozenset[str]) -> Aff:
    """The part of the coordinate that `loop` counts which the loops left behind determine, divided by its step."""
    for site in sites(loop.body):
        for e in getattr(site.action, "instance", ()):
            step = e.coefficient(loop.var)
            moving = [(a, c) for a, c in e.terms if isinstance(a, str) and a in gone]
            if step and moving and all(c % step == 0 for _, c in moving):
                return Aff(0, tuple((a, c // step) for a, c in moving))
    return Aff(0)


def _still(program: Program, moved: Node) -> frozenset[str]:
    """What stays recomputed once the nest runs at the top level."""
    inner = [s.action.statement for s in sites((moved,)) if isinstance(s.action, Leaf)]
    everywhere = [s.action.statement for s in sites(program.body) if isinstance(s.action, Leaf)]
    again = recomputed(program, moved, Place((), ()))
    once = {name for name in inner if everywhere.count(name) == 1 and name not in again}
    return program.recomputed - once
