"""Loops that run in order, are written out, or are shared out among threads.

A loop in which some iterations cost more, or that packs on its way, hands its iterations to whoever is free.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace

from tilec.codegen import c_comments, c_memory
from tilec.codegen.c_place import Extent, NotVector, Place, extent
from tilec.codegen.c_scope import LANE
from tilec.codegen.c_vectors import Vectors
from tilec.ir import tree
from tilec.ir.affine import Constraint
from tilec.ir.printer import owned
from tilec.ir.program import Address, Guard, Loop, Node

MOST_COPIES = 64  # a loop is written out at most so many times


class Loops(Vectors):
    """All loops, on top of those along lanes."""

    @abstractmethod
    def each(self, body: tuple[Node, ...], place: Place) -> None:
        """Nodes one after the other; what owns variables has no versions."""

    def loop(self, node: Loop, place: Place) -> None:
        if node.kind == "team":
            self._team(node, place)
            return
        if node.kind == "vector" and place.lanes is None:
            try:
                self._attempt(lambda: self._written_out(node, place, lambda: self.vector(node, place)))
                return
            except NotVector as why:
                self.line(place, f"// {self.names[node.var]} runs in order: {why}")
        ext = extent(node, place)
        if ext is not None and ext.most == 0:
            return
        if ext is not None and self.written_out(node, ext):
            self._written_out(node, place, lambda: self._unrolled(node, ext, place))
        else:
            self._counted(node, place)

    def _written_out(self, node: Loop, place: Place, write: Callable[[], None]) -> None:
        """Below one comment for the outermost such loop, where one action inside is all."""
        if self.headed or c_comments.nest(node) is None:
            write()
            return
        self.headed, start = True, len(self.lines)
        try:
            write()
        finally:
            self.headed = False
        self.lines[start:] = c_comments.headed(self.program, node, place, self.lines[start:])

    def _attempt(self, write: Callable[[], None]) -> None:
        """Undo everything when it turns out not to be possible."""
        lines, pieces, loads = len(self.lines), len(self.pieces), dict(self.loads)
        around, owed, headed = len(self.around), self.owed, self.headed
        accesses = {n: len(a) for n, a in self.storage.accesses.items()}
        try:
            write()
        except NotVector:
            del self.lines[lines:]
            del self.pieces[pieces:]
            del self.around[around:]
            self.loads, self.owed, self.headed = loads, owed, headed
            for n, found in self.storage.accesses.items():
                del found[accesses.get(n, 0) :]
            raise

    def written_out(self, node: Loop, ext: Extent) -> bool:
        if ext.most > MOST_COPIES or node.kind not in ("serial", "unrolled", "vector"):
            return False
        return node.kind == "unrolled" or any(node.var in e.names for a in self._registers(node) for e in a.index)

    def _registers(self, node: Loop) -> Iterator[Address]:
        """Accesses inside to buffers of several cells that are held in variables."""
        for site in tree.sites(node.body):
            for a, _, _ in tree.addresses(site.action, self.program):
                b = self.program.buffer[a.buffer]
                if b.shape and self.storage.in_variables(b):
                    yield a

    def _unrolled(self, node: Loop, ext: Extent, place: Place) -> None:
        mine = owned(self.program, place.path, node)
        for n in range(ext.most):
            value = ext.start + n
            inner = place.fixed(node, value)
            needed = [c for c in (Constraint(g - n - 1) for g in ext.gaps) if place.holds(c) is not True]
            if any(LANE in c.names for c in needed):
                raise NotVector("a bound inside differs between lanes")
            if needed or mine:
                head = f"if ({self.scope(place).conditions(needed)}) {{" if needed else "{"
                self.open(place, f"{head}  // {self.names[node.var]} = {self.scope(place).aff(value)}")
                self.nodes(node.body, replace(inner, depth=place.depth + 1).knowing(needed), mine)
                self.close(place)
            else:
                self.nodes(node.body, inner, [])

    def _header(self, node: Loop, place: Place) -> tuple[str, Place]:
        """The line that opens a C loop, and the place inside."""
        lower, upper = place.affs(node.lower), place.affs(node.upper)
        if any(LANE in e.names for e in (*lower, *upper)):
            raise NotVector(f"the bounds of {node.var} differ between lanes")
        clean, v, scope = replace(node, lower=lower, upper=upper), self.names[node.var], self.scope(place)
        return f"for (i64 {v} = {scope.lower(clean)}; {v} < {scope.upper(clean)}; ++{v}) {{", place.running(node, lower, upper)

    def _counted(self, node: Loop, place: Place) -> None:
        """A C loop."""
        header, inner = self._header(node, place)
        inner = replace(inner, unrolled=False)
        said = [node.kind] * (node.kind not in ("serial", "unrolled")) + [node.var] * (self.names[node.var] != node.var)
        said += filter(None, [c_comments.runs_over(self.program, place.path, node)])
        note = f"  // {', '.join(said)}" if said else ""
        shared = node.kind == "parallel" and not place.parallel and place.lanes is None
        fenced = shared and any(getattr(site.action, "streaming", False) for site in tree.sites(node.body))
        apart = fenced and not place.team  # a fence for each thread after its share
        outer, kept = place, self.opened(node, header, place)
        if apart:
            self.open(place, "#pragma omp parallel num_threads(threads)")
            self.open(place, "{")
            place, inner = replace(place, depth=place.depth + 1), replace(inner, depth=inner.depth + 1)
        if shared:
            inner = replace(inner, parallel=True, team=False)
            what = "for" if apart or place.team else "parallel for"
            end = " nowait" if apart else "" if place.team else " num_threads(threads)"
            packs = any(b.memory == "scratch" for b in owned(self.program, place.path, node))
            share = "dynamic" if packs or _uneven(node) else "static"
            self.open(place, f"#pragma omp {what} schedule({share}){end}")
        self.open(place, header + note)
        headed, self.headed = self.headed, False
        self.nodes(node.body, inner, owned(self.program, place.path, node))
        self.headed = headed
        self.close(place)
        self.closed(node, kept)
        if fenced:
            self.line(place, f"{c_memory.fence(self.helpers)}();")
        if apart:
            self.close(outer)

    # threads ---------------------------------------------------------------------------------------------------------

    def _team(self, node: Loop, place: Place) -> None:
        """One parallel region: parallel loops inside share their iterations out and meet at their end."""
        for b in owned(self.program, place.path, node):
            place = self.declare(b, place)
        self.open(place, "#pragma omp parallel num_threads(threads)")
        self.open(place, f"{{  // {self.names[node.var]}: one team of threads")
        inner = replace(place.fixed(node, place.aff(node.lower[0])), depth=place.depth + 1, team=True)
        self._by_all(node.body, inner)
        self.close(place)

    def _by_all(self, body: tuple[Node, ...], place: Place) -> None:
        """What every thread of a team runs; nodes without a parallel loop run on one of them."""
        alone: list[Node] = []

        def flush() -> None:
            if alone:
                self.open(place, "#pragma omp single")
                self.open(place, "{")
                self.each(tuple(alone), replace(place, depth=place.depth + 1, team=False))
                self.close(place)
                alone.clear()

        for node in body:
            if not isinstance(node, Loop | Guard) or not _holds_parallel(node):
                alone.append(node)
                continue
            flush()
            if isinstance(node, Guard):
                self.open(place, f"if ({self.scope(place).conditions(node.conditions)}) {{")
                self._by_all(node.body, replace(place, depth=place.depth + 1).knowing(node.conditions))
                self.close(place)
            elif node.kind == "parallel":
                self._counted(node, place)
            else:
                header, inner = self._header(node, place)
                self.open(place, f"{header}  // by all threads")
                for b in owned(self.program, place.path, node):
                    inner = self.declare(b, inner)
                self._by_all(node.body, inner)
                self.close(place)
        flush()


def _uneven(node: Loop) -> bool:
    """Do iterations differ in their work by more than a tile that is cut: is a loop inside bounded by the variable alone?"""
    for _, loop in tree.loops(node.body):
        low = any(node.var in e.names for e in loop.lower)
        if low or (any(node.var in e.names for e in loop.upper) and not any(e.is_const for e in loop.upper)):
            return True
    return False


def _holds_parallel(node: Node) -> bool:
    if not isinstance(node, Loop | Guard):
        return False
    return (isinstance(node, Loop) and node.kind == "parallel") or any(_holds_parallel(n) for n in node.body)


def team_loops(body: tuple[Node, ...], inside: bool = False) -> frozenset[str]:
    """Teams, and the loops inside them that all threads run."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, Guard):
            found |= team_loops(node.body, inside)
        elif isinstance(node, Loop) and (node.kind == "team" or (inside and node.kind != "parallel" and _holds_parallel(node))):
            found |= {node.var} | team_loops(node.body, True)
        elif isinstance(node, Loop) and not inside:
            found |= team_loops(node.body, False)
    return frozenset(found)
