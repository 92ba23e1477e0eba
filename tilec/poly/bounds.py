"""Explicit loop bounds for an integer set, by projection: what every rewrite of loops and regions is made of.

`nest` scans {order : conditions} in that loop order. Names in the conditions that are neither in `order` nor sizes are fixed
outer variables. A level's bounds are the constraints that the projection onto it and its outer levels puts on its variable,
rounded by their coefficient, without those that the rest implies (decided exactly, on integers). A bound may be looser than the
projection (the loops inside are then empty); whatever of the conditions the bounds do not imply comes back as guards, so the
scan is exact by construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeAlias

from tilec.ir.affine import Aff, Constraint, Div, ceil_div
from tilec.poly.isl import DEFAULT_BUDGET, OutOfBudget, aff_text, constraints, divs_known, isl
from tilec.poly.matrices import basic_set

Bound: TypeAlias = tuple[tuple[Aff, ...], tuple[Aff, ...]]  # max of the lowers <= variable < min of the uppers
Conditions: TypeAlias = tuple[Constraint, ...]


class NotConvex(Exception):
    """The set cannot be scanned by loops with explicit bounds (a bound is missing, or guards are needed)."""


def nest_bounds(
    order: Sequence[str],
    conditions: Iterable[Constraint],
    sizes: Sequence[str],
    where: Iterable[Constraint] = (),
    context: Iterable[Constraint] = (),
) -> list[Bound]:
    """(lowers, exclusive uppers) of each loop of `order`, outermost first; NotConvex where guards would be needed."""
    bounds, guards = nest(order, conditions, sizes, where, context)
    if guards:
        raise NotConvex("not expressible as bounds: " + ", ".join(map(str, guards)))
    return bounds


def nest(
    order: Sequence[str],
    conditions: Iterable[Constraint],
    sizes: Sequence[str],
    where: Iterable[Constraint] = (),
    context: Iterable[Constraint] = (),
) -> tuple[list[Bound], list[Constraint]]:
    """Bounds and guards that together scan exactly {order : conditions}.

    `context`: what is known of the fixed outer variables (their own bounds); it is used to simplify and not repeated.
    """
    bounds, guards = _nest(tuple(order), tuple(conditions), tuple(sizes), tuple(where), tuple(context))
    return list(bounds), list(guards)


def simplify(
    conditions: Iterable[Constraint], context: Iterable[Constraint], sizes: Sequence[str], where: Iterable[Constraint] = ()
) -> list[Constraint]:
    """The conditions without those that the others and the context imply; the more complicated ones go first."""
    kept = list(dict.fromkeys(conditions))
    known = (*where, *context)
    for c in sorted(kept, key=_cost, reverse=True):
        rest = [k for k in kept if k != c]
        if _implied((*known, *rest), c, tuple(sizes)):
            kept = rest
    return kept


def implied(condition: Constraint, context: Iterable[Constraint], sizes: Sequence[str], where: Iterable[Constraint] = ()) -> bool:
    """Does the context imply the condition, for all sizes?"""
    return _implied((*where, *context), condition, tuple(sizes))


def is_empty(conditions: Iterable[Constraint], sizes: Sequence[str], where: Iterable[Constraint] = ()) -> bool:
    """Have the conditions no integer solution, whatever the sizes?"""
    return _empty((*where, *conditions), tuple(sizes))


def maximum(e: Aff, conditions: Iterable[Constraint], sizes: Sequence[str], where: Iterable[Constraint] = ()) -> int | None:
    """The largest value of `e` over all solutions and all sizes; None when unbounded (or there is no solution)."""
    return _maximum(e, (*where, *conditions), tuple(sizes))


def extent_const(
    bound: Bound, context: Iterable[Constraint], sizes: Sequence[str], where: Iterable[Constraint] = ()
) -> int | None:
    """The largest extent a loop can have under `context`, or None when it grows with the sizes."""
    lowers, uppers = bound
    x = "extent"
    pairs = [Constraint.ge(u - low, x) for low in lowers for u in uppers]
    top = maximum(Aff.of(x), (*context, *pairs), sizes, where)
    return None if top is None else max(top, 0)


def tightest(
    var: str, found: Iterable[Constraint], known: Iterable[Constraint], sizes: Sequence[str], where: Iterable[Constraint] = ()
) -> Bound:
    """The fewest and simplest bounds of one loop that say what `found` says of its variable, given what is known outside."""
    direct = [c for c in found if bounds_directly(c, var)]
    return _bound(var, _irredundant(var, direct, (*where, *known), tuple(sizes)))


# ---- the exact questions ------------------------------------------------------------------------------------------


def _names(*groups: Iterable[Constraint]) -> list[str]:
    out: set[str] = set()
    for group in groups:
        for c in group:
            out |= c.names
    return sorted(out)


def new_context() -> isl.Context:
    ctx = isl.Context()
    ctx.set_max_operations(DEFAULT_BUDGET)
    return ctx


@contextmanager
def unknown_on_error() -> Iterator[None]:
    """An isl failure inside the block is OutOfBudget."""
    try:
        yield
    except isl.Error as e:
        raise OutOfBudget(str(e).splitlines()[0]) from None


def named_set(
    dims: Sequence[str],
    parameters: Sequence[str],
    conditions: Iterable[Constraint],
    sizes: Sequence[str],
    ctx: isl.Context | None = None,
) -> isl.Set:
    """{ [dims] : conditions and used sizes >= 1 } with the other names as parameters; in a context of its own unless given."""
    if ctx is None:
        ctx = new_context()
    used = set(dims) | set(parameters)
    facts = [Constraint.ge(s, 1) for s in sizes if s in used]
    return basic_set(ctx, parameters, dims, (*conditions, *facts)).to_set()


def connected(names: Iterable[str], conditions: Iterable[Constraint]) -> Conditions:
    """The conditions that are linked to the names through shared ones; the others say nothing about them (unless they
    contradict themselves)."""
    reached, rest, out = set(names), list(conditions), list[Constraint]()
    while True:
        left: list[Constraint] = []
        before = len(out)
        for c in rest:
            if reached.isdisjoint(c.names):
                left.append(c)
            else:
                out.append(c)
                reached |= c.names
        if len(out) == before:
            return tuple(out)
        rest = left


@lru_cache(maxsize=20_000)
def _empty(conditions: Conditions, sizes: tuple[str, ...]) -> bool:
    with unknown_on_error():
        return named_set(_names(conditions), (), conditions, sizes).is_empty()


@lru_cache(maxsize=20_000)
def _implied(context: Conditions, c: Constraint, sizes: tuple[str, ...]) -> bool:
    if c.expr.is_const:
        return c.holds({})
    if any(k.expr.terms == c.expr.terms and (k == c or (not c.equal and k.expr.const <= c.expr.const)) for k in context):
        return True  # it is said there, or more than it
    context = connected(c.names, context)
    below = Constraint(-c.expr - 1)  # expr < 0
    if not _empty((*context, below), sizes):
        return False
    return not c.equal or _empty((*context, Constraint(c.expr - 1)), sizes)


@lru_cache(maxsize=20_000)
def _maximum(e: Aff, conditions: Conditions, sizes: tuple[str, ...]) -> int | None:
    if e.is_const:
        return e.const
    x, conditions = "value", connected(e.names, conditions)
    names = [n for n in _names(conditions, (Constraint(e),)) if n != x]
    with unknown_on_error():
        whole = named_set([x, *names], (), (*conditions, Constraint.eq(x, e)), sizes)
        line = whole.project_out(isl.dim_type.set, 1, len(names))
        top = line.dim_max_val(0)
        return top.to_python() if top.is_int() else None


# ---- projection ---------------------------------------------------------------------------------------------------


def _cost(c: Constraint) -> tuple[int, int, int, int, str]:
    """How hard a condition is to read: divisions, then coefficients other than 1, then names, then constants."""
    divs = sum(isinstance(a, Div) for a, _ in c.expr.terms)
    big = sum(abs(k) != 1 for _, k in c.expr.terms)
    return (divs, big, len(c.expr.names), abs(c.expr.const), aff_text(c.expr))


def convex_constraints(s: isl.Set, names: Sequence[str]) -> list[Constraint]:
    """The constraints of (a hull of) `s`; conditions under an unknown existential are left out."""
    pieces = s.coalesce()
    hull = pieces.get_basic_sets()[0] if pieces.n_basic_set() == 1 else pieces.simple_hull()
    if not divs_known(hull):
        hull = hull.remove_unknown_divs()
    if not divs_known(hull):
        hull = hull.remove_divs()
    return constraints(hull, names)


def on_variable(s: isl.Set, names: Sequence[str], var: str) -> list[Constraint]:
    """The constraints of (a hull of) `s` that bound `var`: those in which it occurs outside divisions only."""
    return [] if s.is_empty() else [c for c in convex_constraints(s, names) if bounds_directly(c, var)]


def bounds_directly(c: Constraint, var: str) -> bool:
    inside = any(isinstance(a, Div) and var in a.num.names for a, _ in c.expr.terms)
    return c.expr.coefficient(var) != 0 and not inside


def as_bound(c: Constraint, var: str) -> tuple[Aff | None, Aff | None]:
    """The (lower, exclusive upper) that a·var + e >= 0 (or == 0) puts on var."""
    a = c.expr.coefficient(var)
    e = c.expr - Aff.of(var) * a
    if a < 0 and not c.equal:
        return None, e // -a + 1
    if a < 0:
        a, e = -a, -e
    return ceil_div(-e, a), ((-e) // a + 1 if c.equal else None)


@lru_cache(maxsize=4_000)
def _nest(
    order: tuple[str, ...], conditions: Conditions, sizes: tuple[str, ...], where: Conditions, context: Conditions
) -> tuple[tuple[Bound, ...], Conditions]:
    known = (*where, *context)
    everything = (*known, *conditions)
    if _empty(everything, sizes):
        return tuple(((Aff(0),), (Aff(0),)) for _ in order), ()
    parameters = [n for n in _names(everything, [Constraint(Aff.of(s)) for s in sizes]) if n not in order]
    bounds: list[Bound] = []
    chosen: list[Constraint] = []
    with unknown_on_error():
        whole = named_set(order, parameters, everything, sizes)
        for n, var in enumerate(order):
            level = whole.project_out(isl.dim_type.set, n + 1, len(order) - n - 1)
            visible = set(order[: n + 1]) | set(parameters)
            found = on_variable(level, order[: n + 1], var)
            # the person's own wording of a bound is kept where it is as good as the projection's
            found += [c for c in conditions if c.names <= visible and bounds_directly(c, var)]
            kept = _irredundant(var, found, (*known, *chosen), sizes)
            bounds.append(_bound(var, kept))
            chosen += kept
    guards = [c for c in dict.fromkeys(conditions) if not _implied((*known, *chosen), c, sizes)]
    return tuple(bounds), tuple(simplify(guards, (*context, *chosen), sizes, where))


def _bound(var: str, kept: Iterable[Constraint]) -> Bound:
    sides = [as_bound(c, var) for c in kept]
    lower = tuple(dict.fromkeys(low for low, _ in sides if low is not None))
    upper = tuple(dict.fromkeys(up for _, up in sides if up is not None))
    if not lower or not upper:
        raise NotConvex(f"'{var}' has no {'upper' if lower else 'lower'} bound")
    return lower, upper


def _irredundant(var: str, found: Iterable[Constraint], known: Conditions, sizes: tuple[str, ...]) -> list[Constraint]:
    """As few and simple constraints as bound `var` alike, lowers before uppers, constants first."""
    kept = sorted(dict.fromkeys(found), key=_cost)
    for c in reversed(list(kept)):
        rest = [k for k in kept if k != c]
        if rest and _implied((*known, *rest), c, sizes):
            kept = rest
    return sorted(kept, key=lambda c: (len(c.expr.names), c.expr.coefficient(var) < 0))
