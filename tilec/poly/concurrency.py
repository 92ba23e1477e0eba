"""Happens-before: which accesses are ordered on a machine that runs unordered loops and asynchronous copies.

Two accesses of one physical cell, at least one of them a write, must be ordered. The tree orders them, except that
- iterations of a parallel, vector or block loop are unordered;
- two hardware threads of a block are ordered only by a Barrier that stands between them in the tree's order;
- an asynchronous copy may read and write from its Copy until a Wait that covers its Commit group; that Wait orders it for
  the issuing thread, for another thread only a Barrier after the Wait does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TypeAlias

from tilec.ir.affine import Aff
from tilec.ir.program import APART_KINDS, THREAD_KINDS, UNORDERED_KINDS, Barrier, Commit, Copy, Loop, Node, Program, Wait
from tilec.ir.tree import Site
from tilec.poly.access import Relations, Tagged
from tilec.poly.cells import cell, owner_depth, thread_indices
from tilec.poly.isl import Map, Set, Solver, UnionMap, isl

_T = isl.dim_type
Pairs: TypeAlias = dict[tuple[str, int, str, int, str], list[Map]]


@dataclass(frozen=True)
class Race:
    """pairs: { first access -> second access } in the tree's order, unordered on the machine; why says by what."""

    first: Tagged
    second: Tagged
    pairs: Map
    why: str
    threads: bool = False  # between threads of a block: a barrier would order it
    unfinished: bool = False  # the first is an asynchronous copy that may still be in flight


def is_concurrent(program: Program) -> bool:
    """Is the tree's order more than the machine promises?"""

    def unordered(nodes: tuple) -> bool:
        return any(
            (isinstance(n, Loop) and n.kind in UNORDERED_KINDS)
            or (isinstance(n, Copy) and n.asynchronous)
            or unordered(getattr(n, "body", ()))
            for n in nodes
        )

    return unordered(program.body)


def common(a: Site, b: Site) -> tuple[int, int]:
    """(path nodes, loops) that two sites share."""
    nodes = 0
    while nodes < min(len(a.path), len(b.path)) and a.position[nodes] == b.position[nodes]:
        nodes += 1
    return nodes, sum(isinstance(n, Loop) for n in a.path[:nodes])


def _synchronises(node: Node) -> bool:
    return isinstance(node, Barrier | Commit | Wait) or any(_synchronises(n) for n in getattr(node, "body", ()))


def _thread_bound(site: Site) -> bool:
    return any(loop.kind in THREAD_KINDS for loop in site.loops)


class HappensBefore:
    """The races of one program, found pair of accesses by pair of accesses.

    pairs: what was found before of the same program with other barriers, in the same solver; what is found now is added.
    """

    def __init__(self, r: Relations, pairs: Pairs | None = None):
        self.r, self.solver = r, r.solver
        self.pairs: Pairs = {} if pairs is None else pairs
        self._sequences: dict[tuple[int, int, int], Map] = {}
        self._between: dict[tuple[int, int], UnionMap] = {}
        self._complete: dict[tuple[int, int, bool], UnionMap] = {}
        self.has_async = any(isinstance(s.action, Copy) and s.action.asynchronous for s in r.sites)

    # -- what conflicts ----------------------------------------

    def conflicts(self) -> Iterator[tuple[Tagged, Tagged]]:
        """Pairs of accesses to one buffer, one of them a write."""
        tagged = self.r.tagged
        for i, a in enumerate(tagged):
            for b in tagged[i:]:
                if a.address.buffer == b.address.buffer and "write" in (a.role, b.role):
                    yield a, b

    @cached_property
    def cells(self) -> dict[str, Map]:
        """{ access -> physical cell } by tag."""
        r = self.r
        return {a.tag: r.map(a.site, a.tag, *cell(r.program, r.sites[a.site], a.address, folded=True)) for a in r.tagged}

    def same_cell(self, a: Tagged, b: Tagged) -> Map:
        return self.cells[a.tag].apply_range(self.cells[b.tag].reverse())

    def vary(self, a: Tagged, b: Tagged, equal: int, then: str | None) -> Map:
        """{ a -> b : the first `equal` common loops agree, and the next one differs (`then`: "<", ">", "!=" or None) }."""
        out = pair_space(self.solver, len(self.r.variables(a.site)), len(self.r.variables(b.site)))
        for n in range(equal):
            out = out.equate(_T.in_, n, _T.out, n)
        if then == "!=":
            out = out.order_lt(_T.in_, equal, _T.out, equal).union(out.order_gt(_T.in_, equal, _T.out, equal))
        elif then is not None:
            order = out.order_lt if then == "<" else out.order_gt
            out = order(_T.in_, equal, _T.out, equal)
        return out.set_tuple_name(_T.in_, a.tag).set_tuple_name(_T.out, b.tag)

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
            later = self.r.after(others, right, names, left, alike)
            if any(e != f for e, f in zip(left[:depth], right[:depth], strict=True)):  # two children of one node: two blocks
                later = Map.empty(later.get_space())
            self._sequences[key] = later.reverse().set_tuple_name(_T.in_, f"T{n}").set_tuple_name(_T.out, f"T{m}")
        return self._sequences[key]

    def region(self, site: Site) -> int:
        """How many time dimensions name the block (or parallel iteration) whose barriers, commits and waits an action meets."""
        depth = 0
        for n, node in enumerate(site.path):
            if isinstance(node, Loop) and node.kind in APART_KINDS and _synchronises(node):
                depth = n + 1
        return sum(d < 2 * depth for d in self.kept)

    def barrier_between(self, a: Tagged, b: Tagged) -> UnionMap:
        """{ a -> b : a barrier of their block stands between them }."""
        key = (a.site, b.site)
        if key not in self._between:
            regions = self.region(self.r.sites[a.site]), self.region(self.r.sites[b.site])
            self._between[key] = self.after_barrier(*key, regions)
        return _renamed(self._between[key], a.tag, b.tag)

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
        r, depth = self.r, self.region(self.r.sites[n])
        # a commit or wait in an iteration of an unordered loop is none for the copies around that loop
        near = {m for kind in (Commit, Wait) for m in self.actions(kind) if self.region(r.sites[m]) == depth}
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
        return {n: self.covering(n) for n in self.actions(Copy) if self._asynchronous(n)}

    def _asynchronous(self, n: int) -> bool:
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
        if key not in self._complete:
            waits = self.actions(Wait)
            if same_thread:  # the copy's region holds its wait, so the time of the wait alone decides
                after = self.r.union(self.sequence(w, b.site, 0) for w in waits)
            else:
                regions = self.region(self.r.sites[a.site]), self.region(self.r.sites[b.site])
                after = self.r.union(self.after_barrier(w, b.site, regions) for w in waits)
            self._complete[key] = self.completions[a.site].apply_range(after)
        return _renamed(self._complete[key], a.tag, b.tag)

    # -- races ----------------------------------------

    def races(self) -> Iterator[Race]:
        """Every kind of unordered conflict, as non-empty relations; the first found first."""
        by_tag = {a.tag: a for a in self.r.tagged}
        clear: set[tuple[str, str]] = set()
        for a, b in self.conflicts():
            # an old value is read where and just before its update writes: what races with it races with the write
            twin = tuple(by_tag[f"L{t.site}w"] if t.role == "old" else t for t in (a, b))
            if twin != (a, b):
                if (twin[0].tag, twin[1].tag) not in clear:
                    if next(self.races_of(*twin), None) is None:
                        clear.add((twin[0].tag, twin[1].tag))
                    else:
                        yield from self.races_of(a, b)
            elif (a.tag, b.tag) not in clear:
                yield from self.races_of(a, b)

    def races_of(self, a: Tagged, b: Tagged) -> Iterator[Race]:
        yield from self._apart(a, b)
        yield from self._threads(a, b)
        if self.has_async:
            yield from self._unfinished(a, b)

    def unfinished_results(self) -> Iterator[tuple[Tagged, Set]]:
        """Asynchronous copies into an argument that no wait ever covers: its final elements may lack them."""
        for a in self.r.tagged:
            if a.role == "write" and self._asynchronous(a.site) and self.r.program.buffer[a.address.buffer].role == "param":
                copies = self.r.domains[a.site].set_tuple_name(f"T{a.site}").to_union_set()
                left = copies.subtract(self.coverings[a.site].domain())
                if not left.is_empty():
                    yield a, left.as_set().set_tuple_name(a.tag)

    def thread_races(self) -> Iterator[Race]:
        """The races that a barrier could order."""
        for a, b in self.conflicts():
            if "old" not in (a.role, b.role):  # its write races alike
                yield from self._threads(a, b)
                if self.has_async:
                    yield from (race for race in self._unfinished(a, b) if race.threads)

    def _apart(self, a: Tagged, b: Tagged) -> Iterator[Race]:
        sa, sb = self.r.sites[a.site], self.r.sites[b.site]
        _, shared = common(sa, sb)
        private = owner_depth(self.r.program.buffer[a.address.buffer], sa)  # these loops' iterations have cells of their own
        for n, loop in enumerate(sa.loops[:shared]):
            if loop.kind in APART_KINDS and n >= private:
                for then in ("<",) if a is b else ("<", ">"):  # both: one may show at smaller sizes than the other
                    pairs = self.same_cell(a, b).intersect(self.vary(a, b, n, then))
                    if not pairs.is_empty():
                        first, second = (a, b) if then == "<" else (b, a)
                        pairs = pairs if then == "<" else pairs.reverse()
                        yield Race(first, second, pairs, f"iterations of the {loop.kind} loop {loop.var} are unordered")

    def _threads(self, a: Tagged, b: Tagged) -> Iterator[Race]:
        sa, sb = self.r.sites[a.site], self.r.sites[b.site]
        if not (_thread_bound(sa) or _thread_bound(sb)) or self.r.program.buffer[a.address.buffer].memory == "register":
            return
        if not self.one_launch(sa, sb):
            return
        for first, second, pairs in self.between_threads(a, b):
            open_pairs = pairs.to_union_map().subtract(self.barrier_between(first, second))
            if not open_pairs.is_empty():
                yield Race(
                    first, second, open_pairs.as_map(), "two threads of a block, with no barrier between them", threads=True
                )

    def between_threads(self, a: Tagged, b: Tagged) -> list[tuple[Tagged, Tagged, Map]]:
        """(first, second, { first -> second : one cell, in one block, first precedes second, by two threads }), if there are."""

        def find() -> list[Map]:
            cells, threads = self.same_cell(a, b), self.same_thread(a, b)
            if cells.is_subset(threads):
                return []
            out = [cells.intersect(self.together_before(a, b, one_launch=True)).subtract(threads)]
            if a is not b:
                before = self.together_before(b, a, one_launch=True)
                out.append(cells.reverse().intersect(before).subtract(threads.reverse()))
            return out

        found = zip(((a, b), (b, a)), self._known("threads", a, b, find), strict=False)
        return [
            (first, second, pairs.set_tuple_name(_T.in_, first.tag).set_tuple_name(_T.out, second.tag))
            for (first, second), pairs in found
            if not pairs.is_empty()
        ]

    @cached_property
    def ordinals(self) -> list[int]:
        """For each site the number of sites before it that are no barriers."""
        return list(accumulate((not isinstance(s.action, Barrier) for s in self.r.sites), initial=0))

    def _known(self, kind: str, a: Tagged, b: Tagged, find: Callable[[], list[Map]]) -> list[Map]:
        """What `find` finds, or what it found with other barriers in the program; then the tags may be old."""
        ends = [(self.ordinals[t.site], t.tag.removeprefix(f"L{t.site}")) for t in (a, b)]
        key = (kind, *ends[0], *ends[1])
        if key not in self.pairs:
            self.pairs[key] = find()
        return self.pairs[key]

    def _unfinished(self, a: Tagged, b: Tagged) -> Iterator[Race]:
        for first, second in ((a, b), (b, a)):
            if not self._asynchronous(first.site):
                continue
            for part, is_mine in zip(self.open_pairs(first, second), (True, False), strict=True):
                if part.is_empty():
                    continue
                left = _renamed(part.to_union_map(), first.tag, second.tag)
                left = left.subtract(self.complete_before(first, second, same_thread=is_mine))
                if not left.is_empty():
                    why = "the asynchronous copy may still be in flight: no wait covers it before"
                    if not is_mine:
                        why = "the asynchronous copy is not complete for another thread: that takes a wait, then a barrier"
                    yield Race(first, second, left.as_map(), why, threads=not is_mine, unfinished=True)
            if a is b:
                break

    def open_pairs(self, first: Tagged, second: Tagged) -> list[Map]:
        """{ first -> second : one cell, first precedes second } in one thread, and in two."""

        def find() -> list[Map]:
            pairs = self.same_cell(first, second).intersect(self.together_before(first, second, one_launch=False))
            if first.site == second.site:  # the copy's own read and write
                pairs = pairs.subtract(self.vary(first, second, len(self.r.variables(first.site)), None))
            same = self.same_thread(first, second)
            return [pairs.intersect(same), pairs.subtract(same)]

        return self._known("asynchronous", first, second, find)

    def one_launch(self, sa: Site, sb: Site) -> bool:
        """Can the two run in one block of one kernel launch?"""
        _, shared = common(sa, sb)
        return sa.position[0] == sb.position[0] and not any(
            loop.kind.startswith("block") for s in (sa, sb) for loop in s.loops[shared:]
        )

    def together_before(self, first: Tagged, second: Tagged, *, one_launch: bool) -> Map:
        """{ first -> second : first precedes second in the tree, by an ordered or thread loop or by the text }.

        With one_launch, only pairs that run in the same block of one kernel launch.
        """
        sa, sb = self.r.sites[first.site], self.r.sites[second.site]
        _, shared = common(sa, sb)
        start = 0
        if one_launch:
            start = max((n + 1 for n, loop in enumerate(sa.loops[:shared]) if loop.kind.startswith("block")), default=0)
        alike = {loop.var for n, loop in enumerate(sa.loops[:shared]) if n < start or loop.kind in APART_KINDS}
        return self.r.later(second.tag, first.tag, alike).reverse()

    def same_thread(self, a: Tagged, b: Tagged) -> Map:
        return self.thread_map(a).apply_range(self.thread_map(b).reverse())

    def thread_map(self, a: Tagged) -> Map:
        """{ a -> its hardware thread }, executed or not."""
        return self.r.free_map(a.tag, self.r.variables(a.site), "", thread_indices(self.r.sites[a.site]))


def _renamed(pairs: UnionMap, left: str, right: str) -> UnionMap:
    """The same pairs under other tags; they have at most one of each."""
    if pairs.is_empty():
        return pairs
    return pairs.as_map().set_tuple_name(_T.in_, left).set_tuple_name(_T.out, right).to_union_map()


def pair_space(solver: Solver, left: int, right: int) -> Map:
    """{ [left dimensions] -> [right dimensions] }, all pairs."""
    return Map.universe(isl.Space.alloc(solver.ctx, 0, left, right))


def _earliest(pairs: UnionMap, clock: UnionMap) -> UnionMap:
    """Of { x -> y }, for each x the y that comes first."""
    return pairs.apply_range(clock).lexmin().apply_range(clock.reverse()).intersect(pairs)


__all__ = ["HappensBefore", "Race", "common", "is_concurrent"]
