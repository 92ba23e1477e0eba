"""Systems of affine conditions made ready for counting: tightened, solved, rid of redundancies, split loops joined.

Every step keeps the number of integer points. `System` is variables with conditions over them and the sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import gcd

from tilec.ir.affine import Aff, Constraint, Div
from tilec.poly.isl import Solver

IMPOSSIBLE = Constraint(Aff(-1))


@dataclass(frozen=True)
class System:
    """{ variables : conditions }; variables from the outermost to the innermost."""

    variables: tuple[str, ...]
    conditions: tuple[Constraint, ...]


class Oracle:
    """Answers emptiness and implication within the assumptions on sizes; remembers its answers."""

    def __init__(self, sizes: Sequence[str], where: Iterable[Constraint] = (), budget: int | None = None):
        self.solver = Solver(sizes, where, budget)
        self.sizes = frozenset(sizes)
        self._known: dict[frozenset[Constraint], bool] = {}

    def feasible(self, conditions: Iterable[Constraint]) -> bool:
        key = frozenset(conditions)
        if any(c.expr.is_const and not c.holds({}) for c in key):
            return False
        found = self._known.get(key)
        if found is None:
            names = sorted({n for c in key for n in c.names} - self.sizes)
            with self.solver.guard():
                found = not self.solver.set("", names, key).is_empty()
            self._known[key] = found
        return found

    def implies(self, conditions: Sequence[Constraint], c: Constraint) -> bool:
        if c.expr.is_const:
            return c.holds({})
        if c.equal:
            return self.implies(conditions, Constraint(c.expr)) and self.implies(conditions, Constraint(-c.expr))
        return not self.feasible([*conditions, Constraint(-c.expr - 1)])


def tidy(c: Constraint) -> Constraint | None:
    """The same condition without common factors and, where one division is alone in it, without the division; None if true."""
    e = c.expr
    while True:
        if e.is_const:
            return None if Constraint(e, c.equal).holds({}) else IMPOSSIBLE
        g = gcd(*(k for _, k in e.terms))
        if c.equal:
            if e.const % g:
                return IMPOSSIBLE
            e = Aff(e.const // g, tuple((a, k // g) for a, k in e.terms)) if g > 1 else e
            return Constraint(e if e.terms[0][1] > 0 else -e, True)
        if g > 1:
            e = Aff(e.const // g, tuple((a, k // g) for a, k in e.terms))
        divs = [(a, k) for a, k in e.terms if isinstance(a, Div)]
        if len(divs) != 1 or abs(divs[0][1]) != 1:
            return Constraint(e)
        a, k = divs[0]
        assert isinstance(a, Div)
        rest = e - Aff(0, ((a, k),))
        # floor(n/d) >= -r  <=>  n >= -d·r;   floor(n/d) <= r  <=>  n <= d·r + d - 1
        e = rest * a.den + a.num if k > 0 else rest * a.den + (a.den - 1) - a.num


def tidied(conditions: Iterable[Constraint]) -> tuple[Constraint, ...]:
    out: dict[Constraint, None] = {}
    for c in conditions:
        t = tidy(c)
        if t is not None:
            out[t] = None
    return tuple(out)


def substitute(conditions: Iterable[Constraint], name: str, value: Aff) -> tuple[Constraint, ...]:
    return tidied(c.subs({name: value}) for c in conditions)


def outside(e: Aff, name: str) -> bool:
    """Does `name` occur in no division of e?"""
    return all(isinstance(a, str) or name not in a.num.names for a, _ in e.terms)


def solve_equalities(system: System) -> tuple[System, dict[str, Aff]]:
    """Replace variables that an equality determines with coefficient 1; the second value says by what."""
    variables, conditions = list(system.variables), tidied(system.conditions)
    solved: dict[str, Aff] = {}
    while True:
        for c in conditions:
            if not c.equal:
                continue
            name = next((v for v in reversed(variables) if abs(c.expr.coefficient(v)) == 1 and outside(c.expr, v)), None)
            if name is None:
                continue
            k = c.expr.coefficient(name)
            value = (c.expr - Aff.of(name) * k) * -k
            variables.remove(name)
            conditions = substitute((d for d in conditions if d is not c), name, value)
            solved = {n: a.subs({name: value}) for n, a in solved.items()} | {name: value}
            break
        else:
            return System(tuple(variables), conditions), solved


def without_redundant(system: System, oracle: Oracle, given: tuple[Constraint, ...] = ()) -> System:
    """Drop conditions that the others (and those `given` on sizes) imply: with divisions first, on one variable last."""
    kept = list(system.conditions)
    order = sorted(kept, key=lambda c: (c.equal, all(isinstance(a, str) for a, _ in c.expr.terms), -len(c.names)))
    for c in order:
        if c.equal or not c.names & set(system.variables):
            continue
        others = [d for d in kept if d is not c]
        if any(d.names & c.names for d in others) and oracle.implies([*others, *given], c):
            kept = others
    return System(system.variables, tuple(kept))


def components(system: System) -> tuple[list[System], tuple[Constraint, ...]]:
    """Independent parts, and the conditions on sizes alone."""
    group = {v: {v} for v in system.variables}
    for c in system.conditions:
        mine = [v for v in system.variables if v in c.names]
        for v in mine[1:]:
            if group[v] is not group[mine[0]]:
                joined = group[v] | group[mine[0]]
                for w in joined:
                    group[w] = joined
    parts: list[System] = []
    seen: set[str] = set()
    for v in system.variables:
        if v not in seen:
            seen |= group[v]
            names = tuple(w for w in system.variables if w in group[v])
            parts.append(System(names, tuple(c for c in system.conditions if c.names & group[v])))
    alone = tuple(c for c in system.conditions if not c.names & set(system.variables))
    return parts, alone


def join_splits(system: System) -> System:
    """Undo strip-mining: t and x with lo <= x < lo + c that occur together only as c·t + x become one variable y = c·t + x - lo.

    Conditions on t alone are kept as conditions on floor(y/c). This is what makes the sum of min(64, M - 64·io) come out as M.
    """
    while True:
        found = _one_join(system)
        if found is None:
            return system
        system = found


def split_halo(system: System, oracle: Oracle, given: tuple[Constraint, ...] = ()) -> tuple[System, System] | None:
    """Cut the range of an x wider than the split it belongs to: the halo's part, and a part that `join_splits` can join.

    The halo may be symbolic: x in 0..R + 15 beside 16·t + x < P + R - 1 is cut at R - 1.
    """
    for x in reversed(system.variables):
        found = _size_range(system, x)
        if found is None:
            continue
        lower, upper, others = found
        together = [c.expr for c in others if x in c.names]
        signs = {e.coefficient(x) > 0 for e in together}
        if len(signs) != 1:
            continue
        for t in system.variables:
            factors = {e.coefficient(t) / k if (k := e.coefficient(x)) else 0 for e in together} if t != x else set()
            factor = int(next(iter(factors))) if len(factors) == 1 else 0
            if factor < 2 or not all(_combined(e, t, x, factor) for e in together):
                continue
            # an upper condition on c·t + x cuts the last cells of the tail, so the halo is taken from the front
            at = upper - factor + 1 if signs == {False} else lower + factor
            halo = at - lower if signs == {False} else upper - at + 1
            if (halo.is_const and not 0 < halo.const <= 7 * factor) or not oracle.implies(given, Constraint(halo)):
                continue
            names, conditions = system.variables, system.conditions
            front = tidied((*conditions, Constraint.lt(x, at)))
            back = substitute((*conditions, Constraint.ge(x, at)), x, Aff.of(x) + at)
            return System(names, front), System(names, back)
    return None


def _size_range(system: System, x: str) -> tuple[Aff, Aff, list[Constraint]] | None:
    """The only lower and the only upper bound of x by sizes alone (inclusive), and the other conditions."""
    lower, upper, others = [], [], []
    for c in system.conditions:
        k = c.expr.coefficient(x)
        if x in c.names and not c.names & (set(system.variables) - {x}) and not c.equal and abs(k) == 1 and outside(c.expr, x):
            bound = (c.expr - Aff.of(x) * k) * -k
            (lower if k > 0 else upper).append(bound)
        else:
            others.append(c)
    return (lower[0], upper[0], others) if len(lower) == len(upper) == 1 else None


def _const_range(system: System, x: str) -> tuple[int | None, int | None, list[Constraint]]:
    """The constant bounds of x (inclusive), and the other conditions."""
    lower, upper, others = None, None, []
    for c in system.conditions:
        if c.names == {x} and not c.equal and abs(c.expr.coefficient(x)) == 1 and outside(c.expr, x):
            if c.expr.coefficient(x) == 1:
                lower = -c.expr.const if lower is None else max(lower, -c.expr.const)
            else:
                upper = c.expr.const if upper is None else min(upper, c.expr.const)
        else:
            others.append(c)
    return lower, upper, others


def _one_join(system: System) -> System | None:
    for x in reversed(system.variables):
        lower, upper, others = _const_range(system, x)
        if lower is None or upper is None or upper <= lower:
            continue
        factor = upper - lower + 1
        for t in system.variables:
            if t != x:
                new = _joined(others, t, x, factor, lower)
                if new is not None:
                    return System(tuple(v for v in system.variables if v != x), new)
    return None


def _joined(conditions: Sequence[Constraint], t: str, x: str, factor: int, lower: int) -> tuple[Constraint, ...] | None:
    """The conditions on y (called t again), or None where t and x also occur otherwise. Some condition must hold both."""
    out: list[Constraint] = []
    together = False
    for c in conditions:
        if x in c.names:
            if not _combined(c.expr, t, x, factor):
                return None
            together = True
            out.append(Constraint(_replace(c.expr, t, x, lower), c.equal))
        elif t in c.names:
            k = c.expr.coefficient(t)
            if c.equal or abs(k) != 1 or not outside(c.expr, t):
                return None
            rest = c.expr - Aff.of(t) * k
            # t >= -rest  <=>  y >= -factor·rest;   t <= rest  <=>  y <= factor·rest + factor - 1
            y = Aff.of(t) * k + rest * factor
            out.append(Constraint(y if k > 0 else y + (factor - 1)))
        else:
            out.append(c)
    return tidied(out) if together else None


def _combined(e: Aff, t: str, x: str, factor: int) -> bool:
    if e.coefficient(t) != factor * e.coefficient(x):
        return False
    return all(isinstance(a, str) or _combined(a.num, t, x, factor) for a, _ in e.terms)


def _replace(e: Aff, t: str, x: str, lower: int) -> Aff:
    """a·(factor·t + x) becomes a·(y + lower), y called t."""
    out = Aff(e.const)
    for a, k in e.terms:
        if a == t:
            continue
        if a == x:
            out = out + (Aff.of(t) + lower) * k
        elif isinstance(a, Div):
            out = out + (_replace(a.num, t, x, lower) // a.den) * k
        else:
            out = out + Aff.of(a) * k
    return out
