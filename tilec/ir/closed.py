"""Closed-form expressions in sizes: what a count or a number of bytes is as a formula.

    closed ::= Σ rational · Π atom^power                        one normal form, so equality is structural
    atom   ::= name | floor(aff / int)                           as in `ir/affine.py`
             | max(0, closed)                                    min(a, b) is b - max(0, b - a)
             | [conditions]                                      1 where they hold, else 0
             | Σ over name from closed to closed of closed       a finite sum that has no simpler form

Values are exact: Python integers of any size, or whole NumPy arrays of candidates at once (int64 where every intermediate is
proved to fit, Python integers in an object array where not).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, TypeAlias, Union

import numpy as np

from tilec.ir.affine import Aff, AffLike, Constraint, Div
from tilec.ir.closed_text import render

MAX_SUM = 50_000_000  # terms of a finite sum that are still added up


@dataclass(frozen=True)
class Positive:
    """max(0, value)."""

    value: Closed

    def __str__(self) -> str:
        return f"max(0, {self.value})"


@dataclass(frozen=True)
class Bracket:
    """1 where every condition holds, else 0."""

    conditions: tuple[Constraint, ...]

    def __str__(self) -> str:
        return "[" + " and ".join(map(str, self.conditions)) + "]"


@dataclass(frozen=True)
class Sum:
    """Σ body for var = lower … upper (inclusive; empty when upper < lower)."""

    var: str
    lower: Closed
    upper: Closed
    body: Closed

    def __str__(self) -> str:
        return f"sum({self.body} for {self.var} in {self.lower}..{self.upper + 1})"


Atom: TypeAlias = Union[str, Div, Positive, Bracket, Sum]
Monomial: TypeAlias = tuple[tuple[Atom, int], ...]
ClosedLike: TypeAlias = Union["Closed", Aff, int, Fraction, str]


@dataclass(frozen=True)
class Closed:
    """A polynomial over atoms with rational coefficients; its values at integers are integers."""

    terms: tuple[tuple[Monomial, Fraction], ...] = ()

    @staticmethod
    def of(value: ClosedLike) -> Closed:
        if isinstance(value, Closed):
            return value
        if isinstance(value, str):
            return atom(value)
        if isinstance(value, Aff):
            terms: list[tuple[Monomial, Fraction]] = [((), Fraction(value.const))]
            for a, c in value.terms:
                if isinstance(a, Div) and a.num.terms[0][1] < 0:  # floor(-n/d) is -floor((n + d - 1)/d): one of two spellings
                    a, c = Div(-a.num + (a.den - 1), a.den), -c
                terms.append((((a, 1),), Fraction(c)))
            return _normal(terms)
        return Closed((((), Fraction(value)),)) if value else Closed()

    def __add__(self, other: ClosedLike) -> Closed:
        other = Closed.of(other)
        if not other.terms:
            return self
        return _normal([*self.terms, *other.terms]) if self.terms else other

    def __neg__(self) -> Closed:
        return Closed(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: ClosedLike) -> Closed:
        return self + (-Closed.of(other))

    def __rsub__(self, other: ClosedLike) -> Closed:
        return Closed.of(other) - self

    def __mul__(self, other: ClosedLike) -> Closed:
        if isinstance(other, int | Fraction):
            return Closed(tuple((m, c * other) for m, c in self.terms)) if other else Closed()
        other = Closed.of(other)
        return _normal([(_product(m, n), c * d) for m, c in self.terms for n, d in other.terms])

    __radd__ = __add__
    __rmul__ = __mul__

    def __pow__(self, n: int) -> Closed:
        out = Closed.of(1)
        for _ in range(n):
            out = out * self
        return out

    @cached_property
    def atoms(self) -> frozenset[Atom]:
        return frozenset(a for m, _ in self.terms for a, _ in m)

    @cached_property
    def names(self) -> frozenset[str]:
        """Every free name that occurs."""
        out: set[str] = set()
        for a in self.atoms:
            out |= _atom_names(a)
        return frozenset(out)

    @property
    def constant(self) -> int | None:
        """The value, when it is a number."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            value = self.terms[0][1]
            if value.denominator != 1:
                raise ArithmeticError(f"a count came out as {value}")
            return value.numerator
        return None

    @cached_property
    def affine(self) -> Aff | None:
        """The same value as an Aff, where it is one."""
        out = Aff(0)
        for m, c in self.terms:
            if c.denominator != 1 or len(m) > 1 or any(p != 1 or not isinstance(a, str | Div) for a, p in m):
                return None
            inner = m[0][0] if m else None
            out = out + (Aff(0, ((inner, c.numerator),)) if isinstance(inner, str | Div) else c.numerator)
        return out

    def subs(self, values: Mapping[str, AffLike]) -> Closed:
        """Replace names by affine expressions, simultaneously (the variable of a Sum is never replaced)."""
        if self.names.isdisjoint(values):
            return self
        out: list[tuple[Monomial, Fraction]] = []
        for m, c in self.terms:
            part = Closed((((), c),))
            for a, p in m:
                part = part * _atom_subs(a, values) ** p
            out += part.terms
        return _normal(out)

    def eval(self, env: Mapping[str, Any]) -> Any:
        """The exact value at `env` (name → int, or integer arrays that broadcast together)."""
        arrays = {k: np.asarray(v) for k, v in env.items() if k in self.names}
        if all(v.ndim == 0 for v in arrays.values()):
            return self._at({k: int(v) for k, v in arrays.items()})
        spans = {k: (int(v.min()), int(v.max())) for k, v in arrays.items() if v.size}
        exact = len(spans) == len(arrays) and _fits(self, spans)
        kind: Any = np.int64 if exact else object
        prepared = {}
        for k, v in arrays.items():
            prepared[k] = v.astype(np.int64) if exact else _objects(v)
        result = self._at(prepared)
        shape = np.broadcast_shapes(*(v.shape for v in arrays.values()))
        return np.broadcast_to(np.asarray(result, dtype=kind), shape).copy()

    def _at(self, env: Mapping[str, Any]) -> Any:
        den = self.denominator
        total: Any = 0
        values = {a: _atom_value(a, env) for a in self.atoms}
        for m, c in self.terms:
            value: Any = c.numerator * (den // c.denominator)
            for a, p in m:
                for _ in range(p):
                    value = value * values[a]
            total = total + value
        return total if den == 1 else total // den

    @cached_property
    def denominator(self) -> int:
        """The least common denominator of the coefficients."""
        return math.lcm(*(c.denominator for _, c in self.terms))

    def __str__(self) -> str:
        return render(self.terms)

    def __repr__(self) -> str:
        return f"Closed({render(self.terms)})"


def atom(a: Atom) -> Closed:
    return Closed(((((a, 1),), Fraction(1)),))


def positive(value: ClosedLike) -> Closed:
    """max(0, value), with max(0, -e) written by max(0, e) so that the two cancel where they meet."""
    value = Closed.of(value)
    number = value.constant
    if number is not None:
        return Closed.of(max(0, number))
    if value.terms[0][1] < 0:
        return atom(Positive(-value)) + value
    return atom(Positive(value))


def maximum(values: Iterable[ClosedLike]) -> Closed:
    """The largest of the values (at least one)."""
    first, *rest = map(Closed.of, values)
    for v in rest:
        first = first if v == first else first + positive(v - first)
    return first


def minimum(values: Iterable[ClosedLike]) -> Closed:
    """The least of the values (at least one)."""
    first, *rest = map(Closed.of, values)
    for v in rest:
        first = first if v == first else first - positive(first - v)
    return first


def bracket(conditions: Iterable[Constraint]) -> Closed:
    """The indicator of the conditions; constant ones are decided."""
    kept: list[Constraint] = []
    for c in conditions:
        if c.expr.is_const:
            if not c.holds({}):
                return Closed()
        elif c not in kept:
            kept.append(c)
    return atom(Bracket(tuple(sorted(kept, key=str)))) if kept else Closed.of(1)


def total(values: Iterable[ClosedLike]) -> Closed:
    """The sum of the values; 0 of none."""
    return _normal([t for v in values for t in Closed.of(v).terms])


def _normal(terms: Iterable[tuple[Monomial, Fraction]]) -> Closed:
    sums: dict[Monomial, Fraction] = {}
    for m, c in terms:
        sums[m] = sums.get(m, Fraction(0)) + c
    kept = [(m, c) for m, c in sums.items() if c]
    if len(kept) > 1:
        kept.sort(key=lambda t: (-sum(p for _, p in t[0]), [(*_key(a), p) for a, p in t[0]]))
    return Closed(tuple(kept))


def _key(a: Atom) -> tuple[Any, ...]:
    if isinstance(a, str):
        return (0, a)
    if isinstance(a, Div):
        return (1, tuple(sorted(a.num.names)), a.den, a.num.const, tuple((_key(b), c) for b, c in a.num.terms))
    return (2, str(a))


def _product(m: Monomial, n: Monomial) -> Monomial:
    if not m or not n:
        return m or n
    powers = dict(m)
    for a, p in n:
        powers[a] = 1 if isinstance(a, Bracket) and a in powers else powers.get(a, 0) + p
    return tuple(sorted(powers.items(), key=lambda t: _key(t[0])))


def _atom_names(a: Atom) -> frozenset[str]:
    match a:
        case str():
            return frozenset((a,))
        case Div():
            return a.num.names
        case Positive():
            return a.value.names
        case Bracket():
            return frozenset(n for c in a.conditions for n in c.names)
        case Sum():
            return a.lower.names | a.upper.names | (a.body.names - {a.var})


def _atom_subs(a: Atom, values: Mapping[str, AffLike]) -> Closed:
    if _atom_names(a).isdisjoint(values):
        return atom(a)
    match a:
        case str():
            return Closed.of(Aff.of(values[a]))
        case Div():
            return Closed.of(a.num.subs(values) // a.den)
        case Positive():
            return positive(a.value.subs(values))
        case Bracket():
            return bracket(c.subs(values) for c in a.conditions)
        case Sum():
            inner = {k: v for k, v in values.items() if k != a.var}
            new = Sum(a.var, a.lower.subs(values), a.upper.subs(values), a.body.subs(inner))
            low, high = new.lower.constant, new.upper.constant
            return Closed() if low is not None and high is not None and high < low else atom(new)


def _atom_value(a: Atom, env: Mapping[str, Any]) -> Any:
    match a:
        case str():
            return env[a]
        case Div():
            return a.num.eval(env) // a.den
        case Positive():
            value = a.value._at(env)
            return np.maximum(value, 0) if isinstance(value, np.ndarray) else max(value, 0)
        case Bracket():
            held: Any = 1
            for c in a.conditions:
                value = c.expr.eval(env)
                ok = (value == 0) if c.equal else (value >= 0)
                held = held * (ok.astype(np.int64) if isinstance(ok, np.ndarray) else int(ok))
            return held
        case Sum():
            return _sum_value(a, env)


def _sum_value(a: Sum, env: Mapping[str, Any]) -> Any:
    shape = np.broadcast_shapes(*(np.shape(v) for v in env.values()))
    if shape:
        flat = {k: np.broadcast_to(v, shape).ravel() for k, v in env.items()}
        out = np.empty(math.prod(shape), dtype=object)
        for n in range(out.size):
            out[n] = _sum_value(a, {k: int(v[n]) for k, v in flat.items()})
        return out.reshape(shape)
    lower, upper = a.lower._at(env), a.upper._at(env)
    if upper < lower:
        return 0
    if upper - lower >= MAX_SUM:
        raise ArithmeticError(f"a sum of {upper - lower + 1:,} terms is too long to add up (at most {MAX_SUM:,})")
    result = 0
    for start in range(lower, upper + 1, 1 << 20):  # bounded memory
        stop = min(upper + 1, start + (1 << 20))
        values = a.body.eval({**env, a.var: np.arange(start, stop)}) if a.var in a.body.names else a.body._at(env)
        if isinstance(values, np.ndarray):
            big = values.dtype == object or max(abs(int(values.max())), abs(int(values.min()))) >= 1 << 42
            result += sum(values.tolist()) if big else int(values.sum())
        else:
            result += values * (stop - start)
    return result


def _objects(v: np.ndarray) -> np.ndarray:
    out = np.empty(v.shape, dtype=object)
    for index in np.ndindex(v.shape):
        out[index] = int(v[index])
    return out


def _fits(e: Closed, spans: Mapping[str, tuple[int, int]], bits: int = 62) -> bool:
    """Is every intermediate value of `_at` below 2^bits in magnitude?"""
    limit = 1 << bits

    def aff(x: Aff) -> int:
        size = abs(x.const)
        for a, c in x.terms:
            size += abs(c) * (span(a) if isinstance(a, str) else aff(a.num))
        return size if size < limit else limit

    def span(name: str) -> int:
        return max(map(abs, spans[name])) if name in spans else limit

    def closed(x: Closed) -> int:
        size = 0
        for m, c in x.terms:
            value = abs(c.numerator) * (x.denominator // c.denominator)
            for a, p in m:
                value *= max(1, one(a)) ** p
            size += value
        return min(size, limit)

    def one(a: Atom) -> int:
        match a:
            case str():
                return span(a)
            case Div():
                return aff(a.num)
            case Positive():
                return closed(a.value)
            case Bracket():
                return limit if any(aff(c.expr) >= limit for c in a.conditions) else 1
            case Sum():
                return limit  # added up one candidate at a time

    return closed(e) < limit
