"""Misses of a fully associative cache with least-recently-used replacement, from reuse over the loop tree.

Every access but the first of a line is a reuse, carried by one loop (the line was last touched in an earlier iteration of it)
or by a sequence of statements (touched by an earlier one). How many reuses a loop carries is a difference of exact counts of
distinct lines: those of its iterations one by one, less those of all together. Whether they hit depends on their distance, the
number of distinct lines touched in between, counted exactly at reuses drawn evenly from those of each loop. A reuse at distance d
hits in a cache of more than d lines (Mattson et al., Evaluation techniques for storage hierarchies, 1970).

Arrays start at a line and are row-major. Loops run in the order of the tree, as one thread would run them: the loops of
a GPU's blocks and threads, too. Registers and shared memory are not cached; a buffer in global memory is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from tilec.cost.calls import whole
from tilec.cost.touches import Intervals, Lines, Touch, below, find, moment, touches, union
from tilec.errors import ResourceError
from tilec.ir.affine import Aff
from tilec.ir.program import Guard, Loop, Node, Program
from tilec.ir.sizes import check_numbers
from tilec.ir.tree import Position
from tilec.ir.tree import at as node_at
from tilec.poly.count import Counter, Image, NotClosed

Parts: TypeAlias = dict[str, list[Intervals]]
NEVER = 1 << 60  # farther than any distance, beyond any loop
SAMPLES = 48  # reuses of each loop and buffer whose distance is counted
OUTER = 512  # iterations drawn where distinct lines have no closed count
MOST_ADDED = 10_000  # different iterations: more are not added up one by one


@dataclass(frozen=True)
class Reuse:
    """Reuses of one buffer's lines carried by one loop (or by the statements under it): how many, and sampled distances."""

    buffer: str
    carrier: str  # the loop's variable; of statements in sequence, the loop around them
    count: float
    distances: tuple[tuple[int, float], ...]  # with weights

    def missing(self, lines: int) -> float:
        """How many of them miss in a cache of that many lines."""
        return self.count * sum(w for d, w in self.distances if d >= lines) / sum(w for _, w in self.distances)


@dataclass(frozen=True)
class CacheMisses:
    """Lines fetched into a cache of `capacity_bytes`. by_buffer sums to total; compulsory: lines touched at all; terms: (buffer,
    carrying loop, misses, reuses). notes: numbers that rest on more than drawn distances."""

    capacity_bytes: int
    line_bytes: int
    total: float
    compulsory: int
    by_buffer: Mapping[str, float]
    terms: tuple[tuple[str, str, float, float], ...]
    notes: tuple[str, ...] = ()

    @property
    def bytes(self) -> float:
        """Bytes fetched."""
        return self.total * self.line_bytes

    def __str__(self) -> str:
        head = f"cache of {self.capacity_bytes:,} B, lines of {self.line_bytes} B: about {self.total:,.0f} misses"
        lines = [f"  {b}: {n:,.0f}" for b, n in self.by_buffer.items()]
        lines += [f"    {b} again over {v}: {m:,.0f} of {n:,.0f}" for b, v, m, n in self.terms if m]
        return "\n".join([f"{head}, {self.compulsory:,} of them first touches", *lines, *(f"  note: {n}" for n in self.notes)])


@dataclass(frozen=True)
class ReuseProfile:
    """All reuses of a program in lines of `line_bytes`; `misses(capacity)` for any cache."""

    line_bytes: int
    first: Mapping[str, int]  # distinct lines per buffer
    reuses: tuple[Reuse, ...]
    notes: tuple[str, ...] = ()

    def misses(self, capacity_bytes: int) -> CacheMisses:
        """Of a fully associative LRU cache; ResourceError unless it holds at least one line."""
        if whole("cache_misses", "capacity_bytes", capacity_bytes) < self.line_bytes:
            raise ResourceError(f"cache_misses: {capacity_bytes} B hold no line of {self.line_bytes} B")
        lines = capacity_bytes // self.line_bytes
        by = {b: float(n) for b, n in self.first.items()}
        terms = tuple((r.buffer, r.carrier, r.missing(lines), float(r.count)) for r in self.reuses)
        for b, _, m, _ in terms:
            by[b] += m
        total = sum(self.first.values())
        return CacheMisses(capacity_bytes, self.line_bytes, sum(by.values()), total, by, terms, self.notes)


def cache_misses(
    program: Program, capacity_bytes: int, line_bytes: int = 64, sizes: Mapping[str, int] | None = None, samples: int = SAMPLES
) -> CacheMisses:
    """Misses of one pass over a program in a fully associative cache. See `reuse_profile`."""
    return reuse_profile(program, line_bytes, sizes, samples).misses(capacity_bytes)


def reuse_profile(
    program: Program, line_bytes: int = 64, sizes: Mapping[str, int] | None = None, samples: int = SAMPLES
) -> ReuseProfile:
    """Reuse of cache lines by buffer and carrying loop. sizes: numbers for all sizes that are open.

    ResourceError for a line that is no power of two of at least 8 bytes, or a size without a number; CountError where an
    access touches too many separate rows.
    """
    whole("reuse_profile", "line_bytes", line_bytes, 8)
    whole("reuse_profile", "samples", samples, 1)
    if line_bytes & (line_bytes - 1):
        raise ResourceError(f"reuse_profile: line_bytes must be a power of two, got {line_bytes}")
    given = check_numbers(program, sizes or {}, "cache_misses")
    if missing := [n for n in program.sizes if n not in given]:
        raise ResourceError(f"cache_misses: give numbers for all sizes: {', '.join(missing)} are open")
    return _Profile(program, line_bytes, given, samples).profile()


class _Profile:
    def __init__(self, program: Program, line_bytes: int, sizes: Mapping[str, int], samples: int):
        self.program, self.line_bytes, self.samples = program, line_bytes, samples
        self.sizes = dict(sizes)
        self.all = touches(program, line_bytes, sizes)
        self.lines = Lines(sizes)
        self.counter = Counter((), ())
        self.rng = np.random.default_rng(0)
        self.notes: dict[str, None] = {}
        self.reuses: list[Reuse] = []

    def profile(self) -> ReuseProfile:
        first: dict[str, int] = {}
        for buffer in dict.fromkeys(t.buffer for t in self.all):
            mine = [t for t in self.all if t.buffer == buffer]
            first[buffer] = round(self._sequence(mine, (), ()))
        return ReuseProfile(self.line_bytes, first, tuple(self.reuses), tuple(self.notes))

    # ---- how many reuses each loop carries --------------------------------------------------------------------

    def _sequence(self, mine: Sequence[Touch], position: Position, around: tuple[str, ...]) -> float:
        """Distinct (iteration of the loops around, line) under the nodes at `position`; notes the reuses in and between them."""
        children = list(dict.fromkeys(t.site.position[: len(position) + 1] for t in mine))
        parts = [self._node(below(mine, c), c, around) for c in children]
        if len(children) == 1:
            return parts[0]
        whole_ = self._distinct(mine, around)
        self._note(mine, position, around, sum(parts) - whole_, None)
        return whole_

    def _node(self, mine: Sequence[Touch], position: Position, around: tuple[str, ...]) -> float:
        node: Node = node_at(self.program.body, position)
        if isinstance(node, Loop):
            each = self._sequence(mine, position, (*around, node.var))
            whole_ = self._distinct(mine, around)
            self._note(mine, position, around, each - whole_, node)
            return whole_
        if isinstance(node, Guard):
            return self._sequence(mine, position, around)
        return self._distinct(mine, around)  # what one action touches again hits

    def _distinct(self, mine: Sequence[Touch], around: tuple[str, ...]) -> float:
        """Distinct (iteration of the loops around, line): in closed form, else added up where few iterations differ, else from
        drawn iterations."""
        values = {n: Aff(v) for n, v in self.sizes.items()}
        outer = tuple(Aff.of(v) for v in around)
        images = dict[Image, None]()
        for t in mine:
            conditions = tuple(c.subs(values) for c in t.site.conditions)
            images[Image(tuple(loop.var for loop in t.loops), conditions, (*outer, *self._line(t, values)))] = None
        try:
            return float(self.counter.distinct(list(images)).eval({}))
        except NotClosed:
            found = self._added(mine, around)
        if found is None:
            self.notes[f"distinct lines of {mine[0].buffer} under {', '.join(around)}: from {OUTER} drawn iterations"] = None
            t, depth = max(mine, key=lambda x: len(x.loops)), len(around)
            found = sum(w * _count([self._under(mine, env, depth)]) for env, w in self._draw(t, depth, OUTER)) / OUTER
        return found

    def _line(self, t: Touch, values: Mapping[str, Aff]) -> tuple[Aff, ...]:
        shape = [e.subs(values).const for e in self.program.buffer[t.buffer].shape]
        if len(shape) > 1 and shape[-1] % t.unit == 0:
            *rest, last = (e.subs(values) for e in t.index)
            return (*rest, last // t.unit)
        return (t.linear // t.unit,)

    def _added(self, mine: Sequence[Touch], around: tuple[str, ...]) -> float | None:
        """Exact counts added up over the iterations of the loops around, equal ones taken once; None for too many."""
        t = max(mine, key=lambda x: len(x.loops))
        bounds = [e for loop in t.loops[: len(around)] for e in (*loop.lower, *loop.upper)]
        used = frozenset[str]().union(*(x.used for x in mine), *(e.names for e in bounds))
        left = MOST_ADDED

        def added(k: int, env: dict[str, int]) -> float:
            nonlocal left
            if k == len(around):
                left -= 1
                return _count([self._under(mine, env, k)])
            loop = t.loops[k]
            low, high = max(e.eval(env) for e in loop.lower), min(e.eval(env) for e in loop.upper)
            if loop.var not in used:
                return (high - low) * added(k + 1, {**env, loop.var: low}) if high > low else 0
            total = 0.0
            for v in range(low, high):
                if left <= 0:
                    break
                total += added(k + 1, {**env, loop.var: v})
            return total

        found = added(0, dict(self.sizes))
        return found if left > 0 else None

    # ---- distances --------------------------------------------------------------------------------------------

    def _note(
        self, mine: Sequence[Touch], position: Position, around: tuple[str, ...], count: float, carrier: Loop | None
    ) -> None:
        if count < 0.5:
            return
        distances: list[tuple[int, float]] = []
        for _ in range(3):  # a draw that is no reuse here counts for nothing
            for t, env, weight in self._reuse_draws(mine):
                distance = self._distance(mine, position, len(around), carrier, t, env)
                if distance is not None:
                    distances.append((distance, weight))
            if len(distances) >= self.samples // 2:
                break
        name = carrier.var if carrier is not None else f"{around[-1]} (statements)" if around else "the whole (statements)"
        if not distances:
            self.notes[f"no reuse of {mine[0].buffer} over {name} was drawn: {count:,.0f} are taken as misses"] = None
            distances = [(NEVER, 1.0)]
        self.reuses.append(Reuse(mine[0].buffer, name, count, tuple(distances)))

    def _reuse_draws(self, mine: Sequence[Touch]) -> list[tuple[Touch, dict[str, int], float]]:
        per = -(-self.samples // len(mine))
        return [(t, env, weight) for t in mine for env, weight in self._draw(t, len(t.loops), per)]

    def _draw(self, t: Touch, depth: int, count: int) -> list[tuple[dict[str, int], float]]:
        """Iterations of the first `depth` loops of a touch, every loop covered evenly. Each with the number of iterations that it
        would stand for alone, so that means are unbiased where ranges differ."""
        places = [(self.rng.permutation(count) + 0.5) / count for _ in range(depth)]
        out: list[tuple[dict[str, int], float]] = []
        for n in range(count):
            env, weight = dict(self.sizes), 1.0
            for loop, at in zip(t.loops, places, strict=False):
                low, high = max(e.eval(env) for e in loop.lower), min(e.eval(env) for e in loop.upper)
                if high <= low:
                    break
                env[loop.var] = low + int((high - low) * at[n])
                weight *= high - low
            else:
                if depth < len(t.loops) or all(c.holds(env) for c in t.guards):
                    out.append((env, weight))
        return out

    def _distance(
        self, mine: Sequence[Touch], position: Position, depth: int, carrier: Loop | None, t: Touch, env: dict[str, int]
    ) -> int | None:
        """Distinct lines between a touch's line's first use in this iteration (or statement) and its last before; None where it
        has no earlier use there."""
        line = t.lines(env)
        fixed = {k: env[k] for k in (*self.sizes, *(loop.var for loop in t.loops[:depth]))}
        if carrier is not None:
            x = env[carrier.var]
            now = self._extreme(mine, {**fixed, carrier.var: x}, depth + 1, line, False, None)
            low = max(e.eval(fixed) for e in carrier.lower)
            before = self._extreme(mine, fixed, depth, line, True, (low, x - 1)) if x > low else None
        else:
            child = t.site.position[: len(position) + 1]
            now = self._extreme(below(mine, child), fixed, depth, line, False, None)
            earlier = [u for u in mine if u.site.position[: len(child)] < child]
            before = self._extreme(earlier, fixed, depth, line, True, None)
        if now is None or before is None:
            return None
        return self._between(position, depth, before, now)

    def _extreme(
        self, mine: Sequence[Touch], env: dict[str, int], depth: int, line: int, last: bool, limits: tuple[int, int] | None
    ) -> tuple[Touch, Mapping[str, int]] | None:
        found = [(t, at) for t in mine if (at := find(t, env, depth, line, last, limits)) is not None]
        pick = max if last else min
        return pick(found, key=lambda f: moment(*f), default=None)

    def _between(
        self,
        position: Position,
        depth: int,
        before: tuple[Touch, Mapping[str, int]],
        now: tuple[Touch, Mapping[str, int]],
    ) -> int:
        """Distinct lines of all buffers touched strictly between two touches under the node at `position`."""
        (t, a), (u, b) = before, now
        k = len(position)
        node = node_at(self.program.body, position) if position else None
        parts: list[Parts] = []
        if isinstance(node, Loop) and a[node.var] != b[node.var]:
            parts.append(self._under(below(self.all, position), a, depth, (a[node.var] + 1, b[node.var] - 1)))
            parts.append(self._siblings(t, a, k, after=True))
            parts.append(self._siblings(u, b, k, after=False))
        else:
            middle = [x for x in below(self.all, position) if t.site.position[k] < x.site.position[k] < u.site.position[k]]
            parts.append(self._under(middle, a, depth))
        for one, after in ((before, True), (now, False)):
            parts += self._rest(*one, k, after)
        return _count(parts)

    def _rest(self, t: Touch, env: Mapping[str, int], top: int, after: bool) -> list[Parts]:
        """What runs after (before) a touch within the child of the node at place[:top] that holds it."""
        place, out = t.site.position, list[Parts]()
        for k in range(top, len(t.site.path)):  # path[k] is the node at place[: k + 1]
            node = t.site.path[k]
            if isinstance(node, Loop):
                v = env[node.var]
                limits = (v + 1, NEVER) if after else (-NEVER, v - 1)
                out.append(self._under(below(self.all, place[: k + 1]), env, _depth(t, k), limits))
            out.append(self._siblings(t, env, k + 1, after))
        same = [u for u in below(self.all, place) if (u.place > t.place if after else u.place < t.place)]
        out.append(self._under(same, env, len(t.loops)))
        return out

    def _siblings(self, t: Touch, env: Mapping[str, int], k: int, after: bool) -> dict[str, list[tuple]]:
        """The children of the node at place[:k] that stand after (before) the one on the touch's path."""
        place = t.site.position
        mine = [
            u for u in below(self.all, place[:k]) if (u.site.position[k] > place[k] if after else u.site.position[k] < place[k])
        ]
        return self._under(mine, env, _depth(t, k))

    def _under(self, some: Sequence[Touch], env: Mapping[str, int], depth: int, limits: tuple[int, int] | None = None) -> Parts:
        out: Parts = {}
        for t in some:
            found = self.lines.under(t, env, depth, limits)
            if len(found[0]):
                out.setdefault(t.buffer, []).append(found)
        return out


def _depth(t: Touch, k: int) -> int:
    """Loops above the k-th node of the touch's path."""
    return sum(isinstance(n, Loop) for n in t.site.path[:k])


def _count(parts: Sequence[Parts]) -> int:
    """Distinct lines."""
    by: Parts = {}
    for part in parts:
        for b, found in part.items():
            by.setdefault(b, []).extend(found)
    total = 0
    for found in by.values():
        a, b = union([f[0] for f in found], [f[1] for f in found])
        total += int((b - a + 1).sum())
    return total
