"""Where C text is added: the loops around, what their variables stand for, which lanes are active, what is known to hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import gcd, inf

from tilec.codegen.c_scope import LANE, Range, bounds, simplified
from tilec.ir.affine import Aff, Constraint, Div
from tilec.ir.program import Loop

MOST = 1 << 20  # iterations that a constant may bound


class NotVector(Exception):
    """A loop cannot run as lanes: the reason. It then runs one iteration after the other."""


@dataclass(frozen=True)
class Lanes:
    """The lanes of a vector: `count` is a C variable with how many are active (None: all), `key` tells counts apart."""

    var: str
    lanes: int
    count: str | None = None
    key: tuple[Aff, ...] = ()
    narrowed: bool = False  # by a guard: lanes that are not active here are active elsewhere


@dataclass(frozen=True)
class Place:
    path: tuple[Loop, ...] = ()
    env: Mapping[str, Aff] = field(default_factory=dict)  # unrolled variables and those that run along lanes
    ranges: Mapping[str, Range] = field(default_factory=dict)
    known: Mapping[Aff, int] = field(default_factory=dict)  # e (a direction) -> c, where e + c >= 0 holds
    lanes: Lanes | None = None
    widened: frozenset[str] = frozenset()  # buffers declared while lanes were active: a value per lane
    depth: int = 1
    parallel: bool = False
    partial: bool = False  # on the side of a version where tiles are not full
    branch: tuple[tuple[int, int, int], ...] = ()  # the versions around: which `if`, which side of it, below how many loops
    unrolled: bool = False
    tile: bool = False  # below the owner of variables
    team: bool = False  # every thread of a team is here

    @property
    def width(self) -> int:
        return self.lanes.lanes if self.lanes else 1

    def aff(self, e: Aff) -> Aff:
        """With the variables replaced that no C loop runs."""
        return simplified(e.subs(self.env) if self.env else e, self.ranges)

    def affs(self, es: Iterable[Aff]) -> tuple[Aff, ...]:
        return tuple(dict.fromkeys(self.aff(e) for e in es))

    def holds(self, c: Constraint) -> bool | None:
        """True or False where it is decided here, else None."""
        e = self.aff(c.expr)
        low, high = bounds(e, self.ranges)
        if c.equal:
            return True if low == high == 0 else False if low > 0 or high < 0 else None
        if low >= 0:
            return True
        if high < 0:
            return False
        rest, step = direction(e)
        least = self.known.get(rest)
        if least is not None and least <= e.const // step:
            return True
        above = self.known.get(-rest)  # rest <= above
        return False if above is not None and step * above + e.const < 0 else None

    def most(self, e: Aff) -> float:
        """No value of `e` here is larger."""
        high = bounds(e, self.ranges)[1]
        rest, step = direction(e)
        above = self.known.get(-rest)
        return high if above is None else min(high, step * above + e.const)

    def knowing(self, cs: Iterable[Constraint]) -> Place:
        known, ranges = dict(self.known), dict(self.ranges)
        for c in cs:
            e = self.aff(c.expr)
            rest, step = direction(e)
            known[rest] = min(known.get(rest, e.const // step), e.const // step)
            if len(e.terms) == 1 and isinstance(v := e.terms[0][0], str) and v in ranges:  # f*v + const >= 0
                f = e.terms[0][1]
                low, high = ranges[v]
                ranges[v] = (max(low, -(e.const // f)), high) if f > 0 else (low, min(high, e.const // -f))
        return replace(self, known=known, ranges=ranges)

    def version(self, of: int, side: int) -> Place:
        """On one side of the `if` number `of`."""
        return replace(self, branch=(*self.branch, (of, side, len(self.path))))

    def running(self, loop: Loop, lower: tuple[Aff, ...], upper: tuple[Aff, ...]) -> Place:
        """Inside a C loop over the variable."""
        low = max(bounds(e, self.ranges)[0] for e in lower)
        high = min(bounds(e, self.ranges)[1] for e in upper) - 1
        env = {n: v for n, v in self.env.items() if n != loop.var}
        if low >= high > -inf:  # one iteration: what depends on it is constant, so that cells may become variables
            env[loop.var] = Aff(int(low))
        inside = {**self.ranges, loop.var: (low, max(low, high))}
        known = {e: c for e, c in self.known.items() if loop.var not in e.names}
        here = replace(self, path=(*self.path, loop), env=env, ranges=inside, known=known, depth=self.depth + 1)
        return here.knowing([c for e in upper if not e.is_const for c in _before(e, loop.var)])

    def fixed(self, loop: Loop, value: Aff, lanes: Lanes | None = None) -> Place:
        """With the variable replaced by an expression; its values are those of the expression."""
        ranges = dict(self.ranges)
        if lanes is not None:
            ranges[LANE] = (0, lanes.lanes - 1)
        env = {**self.env, loop.var: value}
        return replace(self, path=(*self.path, loop), env=env, ranges=ranges, lanes=lanes or self.lanes, unrolled=True)


@dataclass(frozen=True)
class Extent:
    """A loop's values: from `start` (a single lower bound), at most `most` of them; `exact` when always that many.

    `needed`: the conditions under which it is exact; none where it is not exact either: no tile is full. `tile`: the constant
    among its bounds, which `most` may be below where more is known.
    """

    start: Aff
    most: int
    exact: bool
    needed: tuple[Constraint, ...]
    gaps: tuple[Aff, ...]
    tile: int = 0


def _before(end: Aff, var: str) -> list[Constraint]:
    """var < end; also without the division in an end such as ceil(M/4) - 2*i, which integers do not need."""
    out = [Constraint(end - var - 1)]
    divisions = [(a, c) for a, c in end.terms if isinstance(a, Div)]
    if len(divisions) == 1 and divisions[0][1] == 1:
        only = divisions[0][0]  # floor(n/d) >= e exactly where n >= d*e
        rest = end - Aff(0, ((only, 1),))
        out.append(Constraint(only.num + (rest - var - 1) * only.den))
    return out


def direction(e: Aff) -> tuple[Aff, int]:
    """(d, n) where e = n*d + constant with the largest n: integers have n*d + c >= 0 exactly where d + floor(c/n) >= 0."""
    n = gcd(*(c for _, c in e.terms)) or 1
    return Aff(0, tuple((a, c // n) for a, c in e.terms)), n


def extent(loop: Loop, place: Place) -> Extent | None:
    """None when no constant bounds it by form, or it has several lower bounds."""
    lower, upper = place.affs(loop.lower), place.affs(loop.upper)
    start = lower[0]
    if len(lower) > 1:
        constants = [e.const for e in lower if e.is_const]
        if len(constants) != len(lower):
            return None
        start = Aff(max(constants))
    gaps = tuple(dict.fromkeys(simplified(u - start, place.ranges) for u in upper))
    limit = min(place.most(g) for g in gaps)
    if limit > MOST:
        return None
    most = max(int(limit), 0)
    needed = tuple(Constraint(g - most) for g in gaps if not (g.is_const and g.const >= most))
    open_ = tuple(c for c in needed if place.holds(c) is not True)
    if not any(g.is_const for g in gaps):  # only a condition around bounds it: there is no full tile
        return Extent(start, most, False, (), gaps)
    tile = min(g.const for g in gaps if g.is_const)
    return Extent(start, most, not open_, open_, gaps, tile)


def everywhere(e: Aff, inner: Mapping[str, Range]) -> Aff | None:
    """The least value of `e` over the inner variables, which have constant ranges; None when they have not."""
    out = e
    for name in e.names & set(inner):
        c = out.coefficient(name)
        if c == 0:
            return None  # inside a division
        low, high = inner[name]
        value = low if c > 0 else high
        if value in (inf, -inf):
            return None
        out = out.subs({name: int(value)})
    return out
