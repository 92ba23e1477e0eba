"""Which cache lines parts of a loop tree touch, at numbers for all sizes: exact, as unions of intervals of lines.

A `Touch` is one access of an array in global memory, its address linear in elements (arrays start at a line, rows follow each
other). The lines under a part are found box by box: loops whose range or address is no box are taken value by value, the dense
inner loops of an address become one interval. What is enumerated is rows of arrays, never the points of the loops.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeAlias

import numpy as np

from tilec.errors import CountError
from tilec.ir.affine import Aff, Constraint, Div
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Buffer, Guard, Loop, Program
from tilec.ir.tree import Position, Site, addresses, sites

MOST_ROWS = 1 << 20  # intervals of one part of one access
Env: TypeAlias = Mapping[str, int]
Intervals: TypeAlias = tuple[np.ndarray, np.ndarray]  # first and last line of each


@dataclass(frozen=True, eq=False)
class Touch:
    """One access of a global array: where it stands, its address in elements, elements per line, its place in the action."""

    site: Site
    buffer: str
    index: tuple[Aff, ...]
    linear: Aff
    unit: int
    place: int
    is_write: bool
    sizes: Env

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        return self.site.loops

    @cached_property
    def guards(self) -> tuple[Constraint, ...]:
        return tuple(c for n in self.site.path if isinstance(n, Guard) for c in n.conditions)

    @cached_property
    def used(self) -> frozenset[str]:
        """The names that decide which lines are touched: of the address, of guards, and of the bounds of loops that are used
        themselves or may be empty."""
        names = set(self.linear.names).union(*(c.names for c in self.guards))
        ranges = {**{n: (v, v) for n, v in self.sizes.items()}}
        empty: set[str] = set()
        for loop in self.loops:
            lows, highs = ([span(e, {}, ranges) for e in side] for side in (loop.lower, loop.upper))
            ranges[loop.var] = max(a for a, _ in lows), max(max(a for a, _ in lows), min(b for _, b in highs) - 1)
            if max(b for _, b in lows) >= min(a for a, _ in highs):
                empty.add(loop.var)
        for loop in reversed(self.loops):
            if loop.var in names or loop.var in empty:
                names = names.union(*(e.names for e in (*loop.lower, *loop.upper)))
        return frozenset(names)

    def lines(self, env: Env) -> int:
        """The line touched at numbers for all loops."""
        return self.linear.eval(env) // self.unit


def touches(program: Program, line_bytes: int, sizes: Env) -> list[Touch]:
    """Every access of global memory in the order of the text; sizes: numbers for all sizes of the program."""
    values = {n: Aff(v) for n, v in sizes.items()}
    out: list[Touch] = []
    for site in sites(program.body):
        for n, (a, _, is_write) in enumerate(addresses(site.action, program)):
            b = program.buffer[a.buffer]
            if b.memory == "global":
                unit = max(1, line_bytes // DTYPES[b.dtype].bytes)
                out.append(Touch(site, b.name, a.index, linear(b, a.index, values), unit, n, is_write, sizes))
    return out


def linear(b: Buffer, index: Sequence[Aff], sizes: Mapping[str, Aff]) -> Aff:
    """The address in elements, row-major."""
    total, stride = Aff(0), 1
    for e, extent in zip(reversed(index), reversed(b.shape), strict=True):
        total = total + e.subs(sizes) * stride
        stride *= extent.subs(sizes).const
    return total


def span(e: Aff, env: Env, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    """An interval that holds the values of `e`; names are numbers (env) or lie in ranges, both ends included."""
    low = high = e.const
    for atom, c in e.terms:
        if isinstance(atom, Div):
            a, b = span(atom.num, env, ranges)
            a, b = a // atom.den, b // atom.den
        elif atom in env:
            a = b = env[atom]
        else:
            a, b = ranges[atom]
        low, high = (low + c * a, high + c * b) if c > 0 else (low + c * b, high + c * a)
    return low, high


class Lines:
    """The lines under parts of a tree. Remembers what it found."""

    def __init__(self, sizes: Env):
        self.sizes = dict(sizes)
        self._known: dict[tuple[object, ...], Intervals] = {}

    def under(self, t: Touch, env: Env, depth: int, limits: tuple[int, int] | None = None) -> Intervals:
        """The lines that `t` touches with its first `depth` loops at `env`, the next within `limits` (ends included)."""
        fixed = tuple(env[loop.var] if loop.var in t.used else None for loop in t.loops[:depth])
        key = (id(t), depth, limits, fixed)
        found = self._known.get(key)
        if found is None:
            inside = {**self.sizes, **{loop.var: env[loop.var] for loop in t.loops[:depth]}}
            parts = list(self._boxes(t, inside, depth, limits))
            if not parts:
                found = np.zeros(0, np.int64), np.zeros(0, np.int64)
            else:
                found = union([p[0] for p in parts], [p[1] for p in parts])
            self._known[key] = found
        return found

    def _boxes(self, t: Touch, env: dict[str, int], depth: int, limits: tuple[int, int] | None) -> Iterable[Intervals]:
        free = [loop for loop in t.loops[depth:] if loop.var not in env]
        ranges: dict[str, tuple[int, int]] = {}
        open_: str | None = None
        for loop in free:
            lows, highs = ([span(e, env, ranges) for e in side] for side in (loop.lower, loop.upper))
            low = max(a for a, _ in lows), max(b for _, b in lows)
            high = min(a for a, _ in highs) - 1, min(b for _, b in highs) - 1
            if depth < len(t.loops) and limits is not None and loop is t.loops[depth]:
                low, high = (max(low[0], limits[0]), max(low[1], limits[0])), (min(high[0], limits[1]), min(high[1], limits[1]))
            if low[0] != low[1] or high[0] != high[1]:
                names = frozenset[str]().union(*(e.names for e in (*loop.lower, *loop.upper)))
                open_ = next(v for v in ranges if v in names)
                break
            if high[0] < low[0]:
                return
            ranges[loop.var] = low[0], high[0]
        if open_ is None:
            open_ = next((v for a, _ in t.linear.terms if isinstance(a, Div) for v in a.num.names if v in ranges), None)
        if open_ is None:
            for c in t.guards:
                a, b = span(c.expr, env, ranges)
                if (c.equal and not a <= 0 <= b) or (not c.equal and b < 0):
                    return
                if (c.equal and a != b) or (not c.equal and a < 0):
                    open_ = next(v for v in ranges if v in c.names)
                    break
        if open_ is not None:
            for v in range(ranges[open_][0], ranges[open_][1] + 1):
                yield from self._boxes(t, {**env, open_: v}, depth, limits)
            return
        yield box(t, env, ranges)


def box(t: Touch, env: Env, ranges: Mapping[str, tuple[int, int]]) -> Intervals:
    """The lines of a box of loops: dense inner loops make one interval, the others one start each."""
    steps = sorted((abs(c), b - a + 1) for v, (a, b) in ranges.items() if (c := t.linear.coefficient(v)) and b > a)
    base, _ = span(t.linear, env, ranges)
    width, rows = 1, list[tuple[int, int]]()
    for c, n in steps:
        if not rows and c - (width - 1) <= t.unit:  # no line between two neighbours is left out
            width += c * (n - 1)
        else:
            rows.append((c, n))
    if prod(n for _, n in rows) > MOST_ROWS:
        raise CountError(f"cache: an access of {t.buffer} touches more than {MOST_ROWS:,} separate rows in one part of the nest")
    starts = np.array([base], np.int64)
    for c, n in rows:
        starts = (starts[:, None] + c * np.arange(n, dtype=np.int64)).ravel()
    return starts // t.unit, (starts + width - 1) // t.unit


def union(first: Sequence[np.ndarray], last: Sequence[np.ndarray]) -> Intervals:
    """Disjoint intervals, sorted."""
    a, b = np.concatenate(first), np.concatenate(last)
    order = np.argsort(a, kind="stable")
    a, b = a[order], np.maximum.accumulate(b[order])
    new = np.concatenate(([True], a[1:] > b[:-1] + 1))
    return a[new], b[np.concatenate((np.flatnonzero(new)[1:] - 1, [len(b) - 1]))]


def find(t: Touch, env: Env, depth: int, line: int, last: bool = False, limits: tuple[int, int] | None = None) -> Env | None:
    """The first (or last) iteration of the loops below `depth` at which `t` touches `line`; the loop at `depth` within limits."""
    want = line * t.unit, (line + 1) * t.unit
    return _search(t, dict(env), depth, want, last, limits)


def _search(
    t: Touch, env: dict[str, int], k: int, want: tuple[int, int], last: bool, limits: tuple[int, int] | None
) -> dict[str, int] | None:
    if k == len(t.loops):
        fits = want[0] <= t.linear.eval(env) < want[1] and all(c.holds(env) for c in t.guards)
        return dict(env) if fits else None
    loop = t.loops[k]
    low, high = max(e.eval(env) for e in loop.lower), min(e.eval(env) for e in loop.upper) - 1
    if limits is not None:
        low, high = max(low, limits[0]), min(high, limits[1])
    if high < low:
        return None
    ranges = {loop.var: (low, high)}
    for inner in t.loops[k + 1 :]:
        ranges[inner.var] = (
            max(span(e, env, ranges)[0] for e in inner.lower),
            min(span(e, env, ranges)[1] for e in inner.upper) - 1,
        )
    c = t.linear.coefficient(loop.var)
    a, b = span(t.linear - Aff.of(loop.var) * c, env, ranges)
    if c > 0:
        low, high = max(low, -((b - want[0]) // c)), min(high, (want[1] - 1 - a) // c)
    elif c < 0:
        low, high = max(low, -((want[1] - 1 - a) // -c)), min(high, (b - want[0]) // -c)
    elif b < want[0] or a >= want[1]:
        return None
    for v in range(high, low - 1, -1) if last else range(low, high + 1):
        found = _search(t, {**env, loop.var: v}, k + 1, want, last, None)
        if found is not None or loop.var not in t.used:  # another value would touch the same lines
            return found
    return None


def moment(t: Touch, env: Env) -> tuple[int, ...]:
    """When a touch happens: positions in the text and loop values, outermost first."""
    out: list[int] = []
    for place, node in zip(t.site.position, (*t.site.path, None), strict=True):
        out += (place, env[node.var] if isinstance(node, Loop) else 0)
    return (*out, t.place)


def below(ts: Iterable[Touch], position: Position) -> list[Touch]:
    """Of some touches those under a node."""
    return [t for t in ts if t.site.position[: len(position)] == position]
