"""What barriers, commits and waits order: who comes before whom in one block, and which wait completes which copy.

T{n}[v] is an execution of the action at site n. Times are compared over the dimensions that tell actions from synchronising ones.
"""

from __future__ import annotations

from functools import cached_property

from tilec.ir.affine import Aff
from tilec.ir.program import APART_KINDS, Barrier, Commit, Copy, Loop, Wait
from tilec.ir.tree import Site
from tilec.poly.access import Relations, Tagged
from tilec.poly.isl import Map, Set, UnionMap, isl
from tilec.poly.precedence import after

_T = isl.dim_type


class Synchronisation:
    """The synchronising actions of one program; relations are found once and kept."""

    def __init__(self, r: Relations):
        self.r, self.solver = r, r.solver
        self._sequences: dict[tuple[int, int, int], Map] = {}
        self._between: dict[tuple[int, int], UnionMap] = {}
        self._complete: dict[tuple[int, int, bool], UnionMap] = {}

    # -- the order ----------------------------------------

    @cached_property
    def kept(self) -> list[int]:
        """The time dimensions that tell an action from every barrier, commit and wait: those down to the deepest of these."""
        depths = [len(s.position) for s in self.r.sites if isinstance(s.action, Barrier | Commit | Wait)]
        return [d for d in self.r.telling if d < 2 * max(depths, default=1) - 1]

    def short_time(self, n: int) -> list[Aff]:
        """The dimensions of time in `kept`, enough to compare with a synchronising action."""
        time = self.r.time(n, 0)
        return [time[d] for d in self.kept]

    def clock_of(self, n: int) -> UnionMap:
        """{ T{n}[v] -> short time } of the executed iterations of an action of any kind."""
        return self.r.map(n, f"T{n}", "", self.short_time(n)).to_union_map()

    def executed(self, n: int) -> Set:
        return self.r.domains[n].set_tuple_name(f"T{n}")

    def sequence(self, n: int, m: int, depth: int) -> Map:
        """{ T{n}[v] -> T{m}[w] : n before m, in one block: the first `depth` dimensions of time agree }, executed or not."""
        key = (n, m, depth)
        if key not in self._sequences:
            left, right = self.short_time(n), self.short_time(m)
            names, others = self.r.variables(n), self.r.variables(m)
            alike = {e.single or "" for e in left[:depth]}
            later = after(self.solver, others, right, names, left, alike)
            if any(e != f for e, f in zip(left[:depth], right[:depth], strict=True)):  # two children of one node: two blocks
                later = Map.empty(later.get_space())
            self._sequences[key] = later.reverse().set_tuple_name(_T.in_, f"T{n}").set_tuple_name(_T.out, f"T{m}")
        return self._sequences[key]

    def region(self, n: int) -> int:
        """How many time dimensions name the block (or parallel iteration) whose barriers, commits and waits an action meets."""
        return self._regions[n]

    @cached_property
    def _regions(self) -> list[int]:
        marks = {
            site.position[: n + 1]  # of every node with a barrier, commit or wait inside
            for site in self.r.sites
            if isinstance(site.action, Barrier | Commit | Wait)
            for n in range(len(site.path))
        }

        def region(site: Site) -> int:
            depth = 0
            for n, node in enumerate(site.path):
                if isinstance(node, Loop) and node.kind in APART_KINDS and site.position[: n + 1] in marks:
                    depth = n + 1
            return sum(d < 2 * depth for d in self.kept)

        return [region(site) for site in self.r.sites]

    def barrier_between(self, a: Tagged, b: Tagged) -> UnionMap:
        """{ a -> b : a barrier of their block stands between them }."""
        key = (a.site, b.site)
        if key not in self._between:
            regions = self.region(a.site), self.region(b.site)
            self._between[key] = self.after_barrier(*key, regions)
        return renamed(self._between[key], a.tag, b.tag)

    def after_barrier(self, a: int, b: int, regions: tuple[int, int]) -> UnionMap:
        """{ T{a} -> T{b} : a barrier stands between them, in a's block and in b's }."""
        ways = (
            self.sequence(a, k, regions[0]).intersect_range(self.executed(k)).apply_range(self.sequence(k, b, regions[1]))
            for k in self.actions(Barrier)
        )
        return self.r.union(ways)

    # -- asynchronous copies ----------------------------------------

    def actions(self, kind: type) -> list[int]:
        return [n for n, s in enumerate(self.r.sites) if isinstance(s.action, kind)]

    def covering(self, n: int) -> UnionMap:
        """{ T{n}[v], an asynchronous copy -> T{w}[v'], each Wait that covers its group }."""
        r, depth = self.r, self.region(n)
        # a commit or wait in an iteration of an unordered loop is none for the copies around that loop
        near = {m for kind in (Commit, Wait) for m in self.actions(kind) if self.region(m) == depth}
        marks = [m for m in self.actions(Commit) if m in near]
        commits = r.union(self.clock_of(m) for m in marks)
        first = _earliest(self.executed_sequence([n], marks, depth), commits)  # copy -> its commit
        following = self.solver.empty()
        if any(w.n for m, s in enumerate(r.sites) if m in near and isinstance(w := s.action, Wait)):
            following = _earliest(self.executed_sequence(marks, marks, depth), commits)
        out = self.solver.empty()
        for w in self.actions(Wait):
            action = r.sites[w].action
            assert isinstance(action, Wait)
            if w not in near:
                continue
            reached = first
            for _ in range(action.n):
                reached = reached.apply_range(following)
            out = out.union(reached.apply_range(self.executed_sequence(marks, [w], depth)))
        return out

    def executed_sequence(self, left: list[int], right: list[int], depth: int) -> UnionMap:
        return self.r.union(
            self.sequence(n, m, depth).intersect_domain(self.executed(n)).intersect_range(self.executed(m))
            for n in left
            for m in right
        )

    @cached_property
    def coverings(self) -> dict[int, UnionMap]:
        """`covering` of every asynchronous copy; found once a program."""
        copies = [n for n in self.actions(Copy) if self.is_asynchronous(n)]
        return self.solver.once(("coverings", self.r.text), lambda: {n: self.covering(n) for n in copies})

    def is_asynchronous(self, n: int) -> bool:
        action = self.r.sites[n].action
        return isinstance(action, Copy) and action.asynchronous

    @cached_property
    def waits(self) -> UnionMap:
        return self.r.union(self.clock_of(n) for n in self.actions(Wait))

    def idle_waits(self) -> list[int]:
        """Sites of Wait that never cover any asynchronous copy."""
        if not self.actions(Wait):
            return []
        covered = self.solver.empty_set()
        for m in self.coverings.values():
            covered = covered.union(m.range())
        return [n for n in self.actions(Wait) if self.clock_of(n).domain().intersect(covered).is_empty()]

    @cached_property
    def completions(self) -> dict[int, UnionMap]:
        """{ T{n}[v] -> the first Wait that covers the copy }; whatever follows that Wait follows the copy."""
        return {n: _earliest(m, self.waits) for n, m in self.coverings.items()}

    def complete_before(self, a: Tagged, b: Tagged, *, same_thread: bool) -> UnionMap:
        """{ a, an access of an asynchronous copy -> b : the copy is complete, for b's thread, before b starts }."""
        key = (a.site, b.site, same_thread)
        if not same_thread and not self.actions(Barrier):
            return self.solver.empty()
        if key not in self._complete:
            waits = self.actions(Wait)
            if same_thread:  # the copy's region holds its wait, so the time of the wait alone decides
                after = self.r.union(self.sequence(w, b.site, 0) for w in waits)
            else:
                regions = self.region(a.site), self.region(b.site)
                after = self.r.union(self.after_barrier(w, b.site, regions) for w in waits)
            self._complete[key] = self.completions[a.site].apply_range(after)
        return renamed(self._complete[key], a.tag, b.tag)


def renamed(pairs: UnionMap, left: str, right: str) -> UnionMap:
    """The same pairs under other tags; they have at most one of each."""
    if pairs.is_empty():
        return pairs
    return pairs.as_map().set_tuple_name(_T.in_, left).set_tuple_name(_T.out, right).to_union_map()


def _earliest(pairs: UnionMap, clock: UnionMap) -> UnionMap:
    """Of { x -> y }, for each x the y that comes first."""
    return pairs.apply_range(clock).lexmin().apply_range(clock.reverse()).intersect(pairs)
