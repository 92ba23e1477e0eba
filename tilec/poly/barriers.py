"""Where the threads of a block must meet: barriers derived from the races, visible in the tree and priced like the others."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.ir.program import APART_KINDS, THREAD_KINDS, Barrier, Guard, Loop, Node, Program, Wait
from tilec.ir.tree import Body, Position, put, transform
from tilec.poly.concurrency import HappensBefore, Race, common, happens_before
from tilec.poly.isl import Memory, OutOfBudget, Solver
from tilec.poly.verdict import Unresolved

_MOST = 32  # two rounds a level of phases; a tree deeper than this is left to the proof
_END = 1 << 30


def insert_barriers(program: Program, budget: int | None = None, memory: Memory | None = None) -> Program:
    """Strip the inserted barriers and put new ones where phases of a block communicate across threads.

    for threads: tile[t] = …                     for threads: tile[t] = …
    for threads: … = tile[t - 1]          →      barrier
                                                 for threads: … = tile[t - 1]

    A conflict that no barrier can order (inside one thread loop, under a guard) stays; the proof then reports it.
    """
    stripped = replace(program, body=transform(program.body, _strip))
    if not _has_threads(stripped.body):
        return stripped if stripped.body != program.body else program
    memory = memory or Memory()
    with memory.lend(stripped, budget) as solver:
        return _inserted(stripped, memory, solver)


def _strip(node: Node) -> Body:
    return () if isinstance(node, Barrier) and node.inserted else (node,)


def _has_threads(body: Body) -> bool:
    return any((isinstance(n, Loop) and n.kind in THREAD_KINDS) or _has_threads(getattr(n, "body", ())) for n in body)


@dataclass(frozen=True)
class _Place:
    """A conflict between children `first` and `second` of the node at `parent`; carried: by that loop's next iteration."""

    parent: Position
    first: int
    second: int
    carried: bool

    def served(self, cut: int) -> bool:
        """Would a barrier right before child `cut` (or at the end) stand between the two?"""
        if self.carried:
            return self.first < cut or cut <= self.second
        return self.first < cut <= self.second


def _inserted(program: Program, memory: Memory, solver: Solver) -> Program:
    """Innermost levels first, so that a barrier inside a loop spares one around it; per level the fewest cuts."""
    for _ in range(_MOST):
        try:
            with solver.guard():
                hb = happens_before(memory, solver, program)
                places = {p for race in hb.thread_races() if (p := _place(hb, race)) is not None}
        except (OutOfBudget, Unresolved):
            return program
        if not places:
            return program
        deepest = max(len(p.parent) for p in places)
        cuts: set[tuple[Position, int]] = set()
        for parent in {p.parent for p in places if len(p.parent) == deepest}:
            cuts |= {(parent, cut) for cut in _fewest([p for p in places if p.parent == parent])}
        body = program.body
        for parent, cut in sorted(cuts, reverse=True):
            body = _insert(body, parent, cut)
        program = replace(program, body=body)
    return program


def _fewest(places: list[_Place]) -> list[int]:
    """Cuts that serve every place within an iteration: the one that serves most first, the latest of equals.

    What these leave open between iterations is asked again with them in place: where a buffer has several slots, they suffice.
    """
    out: list[int] = []
    while places and not (out and all(p.carried for p in places)):
        cuts = sorted({p.second for p in places} | {p.first + 1 for p in places} | {_END})
        best = max(
            cuts, key=lambda cut: (sum(p.served(cut) for p in places if not p.carried), sum(p.served(cut) for p in places), cut)
        )
        out.append(best)
        places = [p for p in places if not p.served(best)]
    return out


def _place(hb: HappensBefore, race: Race) -> _Place | None:
    """Where a barrier would order this conflict; None where none can."""
    first, second = hb.r.sites[race.first.site], hb.r.sites[race.second.site]
    if race.unfinished:
        return _after_wait(hb, race)
    nodes, shared = common(first, second)
    free = _free(first.path[:nodes])
    together = hb.vary(race.first, race.second, shared, None)
    if free == nodes and first.position[nodes] < second.position[nodes] and not race.pairs.intersect(together).is_empty():
        return _Place(second.position[:nodes], first.position[nodes], second.position[nodes], False)
    carried = [n for n, node in enumerate(first.path[:free]) if isinstance(node, Loop) and node.kind not in APART_KINDS]
    for n in reversed(carried):
        level = sum(isinstance(node, Loop) for node in first.path[:n])
        if not race.pairs.intersect(hb.vary(race.first, race.second, level, "!=")).is_empty():
            return _Place(first.position[: n + 1], first.position[n + 1], second.position[n + 1], True)
    return None


def _after_wait(hb: HappensBefore, race: Race) -> _Place | None:
    """Between the innermost wait that stands before the reader in the text, and the reader."""
    second = hb.r.sites[race.second.site]
    found: list[_Place] = []
    for site in hb.r.sites:
        if isinstance(site.action, Wait):
            nodes, _ = common(site, second)
            if site.position[nodes] < second.position[nodes] and _free(second.path[:nodes]) == nodes:
                found.append(_Place(second.position[:nodes], site.position[nodes], second.position[nodes], False))
    place = max(found, key=lambda p: (len(p.parent), p.first), default=None)
    if place is None or any(isinstance(n, Barrier) for n in _children(hb.r.program.body, place)):
        return None
    return place


def _children(body: Body, place: _Place) -> Body:
    """The nodes between the two ends of a place."""
    for n in place.parent:
        node = body[n]
        assert isinstance(node, Loop | Guard)
        body = node.body
    return body[place.first + 1 : place.second]


def _free(path: tuple[Loop | Guard, ...]) -> int:
    """How many nodes from the outside a barrier may stand under."""
    return next((n for n, node in enumerate(path) if isinstance(node, Guard) or node.kind in THREAD_KINDS), len(path))


def _insert(body: Body, parent: Position, cut: int) -> Body:
    if parent:
        node = body[parent[0]]
        assert isinstance(node, Loop | Guard)
        return put(body, parent[:1], (replace(node, body=_insert(node.body, parent[1:], cut)),))
    at = min(cut, len(body))
    return (*body[:at], Barrier(inserted=True), *body[at:])
