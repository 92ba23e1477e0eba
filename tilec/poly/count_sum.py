"""Summing a polynomial over the integer points of a system: variable by variable, with Faulhaber's formula.

The sum over x of a polynomial between its largest lower and smallest upper bound is a polynomial in these bounds; which bound
is the largest splits into cases (by rational comparison, so the cases stay affine). A variable inside a floor is split into
residue classes first. The result is a list of pieces: conditions on the sizes, and a polynomial in sizes and floors of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm

from tilec.ir.affine import Aff, Constraint, Div
from tilec.ir.closed import Atom, Closed, Sum, atom, bracket, total
from tilec.ir.power_sum import power_sum
from tilec.poly.count_system import Oracle, System, outside, solve_equalities, substitute, tidied, without_redundant

MAX_PERIOD = 128
MAX_PIECES = 3000


class NotClosed(Exception):
    """No closed form within the budget; the reason is the text."""


@dataclass(frozen=True)
class Piece:
    conditions: tuple[Constraint, ...]
    value: Closed


class Summation:
    """One count: keeps the budget of cases."""

    def __init__(self, oracle: Oracle, max_pieces: int = MAX_PIECES, max_period: int = MAX_PERIOD):
        self.oracle = oracle
        self.left = max_pieces
        self.max_period = max_period

    def pieces(self, system: System, value: Closed) -> list[Piece]:
        """Σ value over the variables; every other name is treated like a size."""
        self.left -= 1
        if self.left < 0:
            raise NotClosed("too many cases of bounds")
        system, solved = solve_equalities(system)
        value = value.subs(solved) if solved else value
        if not self.oracle.feasible(system.conditions):
            return []
        if not system.variables:
            return [Piece(system.conditions, value)]
        system = without_redundant(system, self.oracle)
        x = self._next(system, value)
        period = _period(system, value, x)
        if period > 1:
            return self._residues(system, value, x, period)
        rest = tuple(v for v in system.variables if v != x)
        lower: list[tuple[int, Aff]] = []
        upper: list[tuple[int, Aff]] = []
        others: list[Constraint] = []
        for c in system.conditions:
            k = c.expr.coefficient(x)
            if k == 0:
                others.append(c)
            elif c.equal:  # k·x = -e with |k| > 1: x exists where k divides e
                e = (c.expr - Aff.of(x) * k) * (-1 if k > 0 else 1)
                conditions = [*(d for d in system.conditions if d is not c)]
                new = [*substitute(conditions, x, e // abs(k)), Constraint(e % abs(k), True)]
                return self.pieces(System(rest, tidied(new)), value.subs({x: e // abs(k)}))
            elif k > 0:
                lower.append((k, Aff.of(x) * k - c.expr))  # k·x >= e
            else:
                upper.append((-k, c.expr - Aff.of(x) * k))  # k·x <= e
        if not lower or not upper:
            raise NotClosed(f"{x} has no {'lower' if not lower else 'upper'} bound")
        out: list[Piece] = []
        for n, (a, low) in enumerate(lower):
            first = [
                Constraint(low * b - e * a - (1 if m < n else 0)) for m, (b, e) in enumerate(lower) if m != n
            ]  # low/a >= e/b
            for o, (b, high) in enumerate(upper):
                case = [*others, *first]
                case += [Constraint(e * b - high * c - (1 if m < o else 0)) for m, (c, e) in enumerate(upper) if m != o]
                case.append(Constraint(high * a - low * b + (1 if a == b == 1 else 0)))  # an empty range adds 0
                inner = tidied(case)
                if self.oracle.feasible(inner):
                    summed = _integrate(value, x, -((-low) // a), high // b)
                    out += self.pieces(System(rest, inner), summed)
        return out

    def as_sum(self, system: System) -> Closed:
        """Σ over the outermost variable, whose bounds hold only sizes, of the closed count of the others."""
        if not system.variables:
            raise NotClosed("no variable to add up over")
        x = system.variables[0]
        own = [c for c in system.conditions if x in c.names and not c.names & set(system.variables[1:])]
        lower, upper = [], []
        for c in own:
            k = c.expr.coefficient(x)
            if c.equal or not outside(c.expr, x):
                continue
            if k > 0:
                lower.append(-((c.expr - Aff.of(x) * k) // k))
            elif k < 0:
                upper.append((c.expr - Aff.of(x) * k) // -k)
        if not lower or not upper:
            raise NotClosed(f"{x} is not bounded by sizes alone")
        inner = self.pieces(System(system.variables[1:], system.conditions), Closed.of(1))
        body = total(bracket(p.conditions) * p.value for p in inner)
        return atom(Sum(x, Closed.of(lower[0]), Closed.of(upper[0]), body))

    def _next(self, system: System, value: Closed) -> str:
        """The variable that costs the least: no residue classes now (period 1) or later (unit coefficients), then few cases; the
        innermost of equals."""

        def score(v: str) -> tuple[int, int, int]:
            lower = sum(c.expr.coefficient(v) > 0 for c in system.conditions)
            upper = sum(c.expr.coefficient(v) < 0 for c in system.conditions)
            unit = sum(abs(c.expr.coefficient(v)) > 1 for c in system.conditions)
            return _period(system, value, v), unit, lower * upper

        return min(reversed(system.variables), key=score)

    def _residues(self, system: System, value: Closed, x: str, period: int) -> list[Piece]:
        if period > self.max_period:
            raise NotClosed(f"{x} has {period} residue classes")
        out: list[Piece] = []
        for r in range(period):
            new = Aff.of(x) * period + r
            conditions = substitute(system.conditions, x, new)
            if self.oracle.feasible(conditions):
                out += self.pieces(System(system.variables, conditions), value.subs({x: new}))
        return out


def _period(system: System, value: Closed, x: str) -> int:
    """x ↦ period·q + r takes x out of every floor."""
    period = 1
    for c in system.conditions:
        period = lcm(period, _aff_period(c.expr, x))
    for a in value.atoms:
        if isinstance(a, Div):
            period = lcm(period, _aff_period(Aff(0, ((a, 1),)), x))
    return period


def _aff_period(e: Aff, x: str) -> int:
    period = 1
    for a, _ in e.terms:
        if isinstance(a, Div) and x in a.num.names:
            inner = _aff_period(a.num, x)
            k = abs(_slope(a.num, x, inner))
            period = lcm(period, inner * (a.den // gcd(k, a.den)))
    return period


def _slope(e: Aff, x: str, period: int) -> int:
    """How much e grows when x grows by a period that takes x out of its floors."""
    grown = e.subs({x: Aff.of(x) * period})
    return grown.coefficient(x)


def _integrate(value: Closed, x: str, lower: Aff, upper: Aff) -> Closed:
    """Σ_{x=lower}^{upper} value, right for upper >= lower - 1."""
    powers: dict[int, list[tuple[tuple[tuple[Atom, int], ...], Fraction]]] = {}
    for monomial, c in value.terms:
        p = dict(monomial).get(x, 0)
        powers.setdefault(p, []).append((tuple((a, k) for a, k in monomial if a != x), c))
    out = Closed()
    for p, terms in powers.items():
        out = out + Closed(tuple(terms)) * (power_sum(p, Closed.of(upper)) - power_sum(p, Closed.of(lower - 1)))
    return out


def gathered(pieces: Sequence[Piece], oracle: Oracle) -> Closed:
    """Σ [conditions]·value with conditions that always hold left out and equal values joined where they cover everything."""
    values: dict[Closed, list[tuple[Constraint, ...]]] = {}
    out: list[Closed] = []
    for p in pieces:
        conditions = list(p.conditions)
        for c in p.conditions:
            others = [d for d in conditions if d is not c]
            if oracle.implies(others, c):
                conditions = others
        if conditions:
            values.setdefault(p.value, []).append(tuple(conditions))
        else:
            out.append(p.value)
    for value, cases in values.items():
        if len(cases) == 1 and _vanishes(value, cases[0], oracle):
            out.append(value)
            continue
        if len(cases) == 2 and len(cases[0]) == len(cases[1]) == 1 and _complements(cases[0][0], cases[1][0]):
            out.append(value)
            continue
        out += [bracket(conditions) * value for conditions in cases]
    return total(out)


def _vanishes(value: Closed, conditions: tuple[Constraint, ...], oracle: Oracle, most: int = 300) -> bool:
    """Is the value 0 wherever the conditions, all on one size, fail? Decided where only few values of the size are left."""
    names = frozenset(n for c in conditions for n in c.names)
    if len(names) != 1 or not names <= oracle.sizes:
        return False
    (name,) = names
    beyond = [Constraint.lt(most, name)]
    if not all(oracle.implies(beyond, c) for c in conditions):
        return False
    outside_of_it = [n for n in range(1, most + 1) if not all(c.holds({name: n}) for c in conditions)]
    return not any(value.subs({name: n}).terms for n in outside_of_it)


def _complements(a: Constraint, b: Constraint) -> bool:
    return not a.equal and not b.equal and a.expr + b.expr == Aff(-1)
