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

from tilec.ir.affine import Aff
from tilec.ir.program import APART_KINDS, THREAD_KINDS, UNORDERED_KINDS, Barrier, Copy, Loop, Program
from tilec.ir.tree import Site
from tilec.poly.access import Relations, Tagged
from tilec.poly.cells import cell, owner_depth, thread_indices
from tilec.poly.isl import Map, Memory, Set, Solver, isl, mangle
from tilec.poly.precedence import comparison
from tilec.poly.synchronisation import Synchronisation, renamed

_T = isl.dim_type


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


def _thread_bound(site: Site) -> bool:
    return any(loop.kind in THREAD_KINDS for loop in site.loops)


class HappensBefore(Synchronisation):
    """The races of one program, found pair of accesses by pair of accesses.

    quick: where barriers stand right between two phases the text alone answers; else every pair is asked in isl.
    """

    def __init__(self, r: Relations, *, quick: bool = False):
        super().__init__(r)
        self.quick = quick
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
        return {a.tag: r.map(a.site, a.tag, f"C_{mangle(a.address.buffer)}", self.places[a.tag][0]) for a in r.tagged}

    @cached_property
    def places(self) -> dict[str, tuple[tuple[Aff, ...], tuple[Aff, ...]]]:
        """Of each access by tag the coordinates of its physical cell and its hardware thread."""
        r = self.r
        return {
            a.tag: (
                tuple(cell(r.program, r.sites[a.site], a.address, folded=True)[1]),
                thread_indices(r.sites[a.site]),
            )
            for a in r.tagged
        }

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
            if a.role == "write" and self.is_asynchronous(a.site) and self.r.program.buffer[a.address.buffer].role == "param":
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
                    yield from self._unfinished(a, b, (False,))

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

    def _threads(self, a: Tagged, b: Tagged) -> tuple[Race, ...]:
        """Found once a program: where barriers were derived, the last round's answers are the proof's."""
        return self.solver.once(("races of threads", self.r.text, a.tag, b.tag), lambda: tuple(self._between_threads(a, b)))

    def _between_threads(self, a: Tagged, b: Tagged) -> Iterator[Race]:
        sa, sb = self.r.sites[a.site], self.r.sites[b.site]
        if not (_thread_bound(sa) or _thread_bound(sb)) or self.r.program.buffer[a.address.buffer].memory == "register":
            return
        if not self.one_launch(sa, sb) or (self.quick and self.fenced(a, b)):
            return
        for first, second, pairs in self.between_threads(a, b):
            open_pairs = pairs.to_union_map().subtract(self.barrier_between(first, second))
            if not open_pairs.is_empty():
                yield Race(
                    first, second, open_pairs.as_map(), "two threads of a block, with no barrier between them", threads=True
                )

    def between_threads(self, a: Tagged, b: Tagged) -> list[tuple[Tagged, Tagged, Map]]:
        """(first, second, { first -> second : one cell, in one block, first precedes second, by two threads }), if there are."""

        if self.solver.once(("one thread", self.sides(a, b)), lambda: self.same_cell(a, b).is_subset(self.same_thread(a, b))):
            return []

        def find() -> list[Map]:
            cells, threads = self.same_cell(a, b), self.same_thread(a, b)
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

    def _known(self, kind: str, a: Tagged, b: Tagged, find: Callable[[], list[Map]]) -> list[Map]:
        """What `find` finds, or what it found of two accesses of the same content and order; then the tags may be old."""
        orders = tuple(
            comparison(*self.r.moments[y.tag], *self.r.moments[x.tag], self.alike(x, y, one_launch=kind == "threads"))
            for x, y in ((a, b), (b, a))
        )
        return self.solver.once((kind, a is b, a.site == b.site, self.sides(a, b), *orders), find)

    def sides(self, a: Tagged, b: Tagged) -> tuple[int, int]:
        """Numbers for all that two accesses depend on, but their order."""
        return self._numbers[a.tag], self._numbers[b.tag]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {a.tag: self.solver.number((self.r.content[a.site], *self.places[a.tag])) for a in self.r.tagged}

    def fenced(self, a: Tagged, b: Tagged) -> bool:
        """Do barriers next to the two phases that hold a and b order them, whatever their iterations?

        Let a and b stand under two children of one node. A barrier that is a child between them runs after a and before b in
        each iteration of the node, so it stands between any a and a later b. One before a's child or after b's does so
        between any b and an a of a later iteration.
        """
        sa, sb = self.r.sites[a.site], self.r.sites[b.site]
        nodes, shared = common(sa, sb)
        left, right = sorted((sa.position[nodes], sb.position[nodes]))
        if left == right or any(n.kind in THREAD_KINDS for n in sa.path[:nodes] if isinstance(n, Loop)):
            return False
        region = self.region(a.site)
        cuts = [
            self.r.sites[k].position[nodes]
            for k in self.actions(Barrier)
            if len(self.r.sites[k].position) == nodes + 1
            and self.r.sites[k].position[:nodes] == sa.position[:nodes]
            and self.region(k) == region == self.region(b.site)
        ]
        between = any(left < cut < right for cut in cuts)
        again = any(loop.var not in self.alike(a, b, one_launch=True) for loop in sa.loops[:shared])
        return between and (not again or any(cut < left or cut > right for cut in cuts))

    def _unfinished(self, a: Tagged, b: Tagged, mine: tuple[bool, ...] = (True, False)) -> Iterator[Race]:
        """Copies in flight for their own thread (True), for another one (False)."""
        for first, second in ((a, b), (b, a)) if a is not b else ((a, b),):
            if self.is_asynchronous(first.site):
                for is_mine in mine:
                    yield from self._in_flight(first, second, is_mine)

    def _in_flight(self, first: Tagged, second: Tagged, is_mine: bool) -> tuple[Race, ...]:
        """Found once a program."""

        def find() -> tuple[Race, ...]:
            part = self.open_pairs(first, second)[0 if is_mine else 1]
            if part.is_empty():
                return ()
            left = renamed(part.to_union_map(), first.tag, second.tag)
            left = left.subtract(self.complete_before(first, second, same_thread=is_mine))
            if left.is_empty():
                return ()
            why = "the asynchronous copy may still be in flight: no wait covers it before"
            if not is_mine:
                why = "the asynchronous copy is not complete for another thread: that takes a wait, then a barrier"
            return (Race(first, second, left.as_map(), why, threads=not is_mine, unfinished=True),)

        return self.solver.once(("in flight", self.r.text, first.tag, second.tag, is_mine), find)

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
        return self.r.later(second.tag, first.tag, self.alike(first, second, one_launch=one_launch)).reverse()

    def alike(self, first: Tagged, second: Tagged, *, one_launch: bool) -> set[str]:
        """The common loops whose iterations must agree for one access to come before the other."""
        sa, sb = self.r.sites[first.site], self.r.sites[second.site]
        _, shared = common(sa, sb)
        start = 0
        if one_launch:
            start = max((n + 1 for n, loop in enumerate(sa.loops[:shared]) if loop.kind.startswith("block")), default=0)
        return {loop.var for n, loop in enumerate(sa.loops[:shared]) if n < start or loop.kind in APART_KINDS}

    def same_thread(self, a: Tagged, b: Tagged) -> Map:
        return self.thread_map(a).apply_range(self.thread_map(b).reverse())

    def thread_map(self, a: Tagged) -> Map:
        """{ a -> its hardware thread }, executed or not."""
        return self.r.free_map(a.tag, self.r.variables(a.site), "", thread_indices(self.r.sites[a.site]))


def happens_before(memory: Memory, solver: Solver, program: Program) -> HappensBefore:
    """The quick one of a program, with its relations; that of the program asked last is remembered."""
    last = memory.last
    if not isinstance(last, HappensBefore) or last.r.program is not program or last.solver is not solver:
        last = memory.last = HappensBefore(Relations(solver, program), quick=True)
    return last


def pair_space(solver: Solver, left: int, right: int) -> Map:
    """{ [left dimensions] -> [right dimensions] }, all pairs."""
    return Map.universe(isl.Space.alloc(solver.ctx, 0, left, right))


__all__ = ["HappensBefore", "Race", "common", "happens_before", "is_concurrent"]
