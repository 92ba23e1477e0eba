"""Fewer brackets: a count with cases in a size often is one formula but for a few small sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilec.ir.affine import Aff, Constraint, Div
from tilec.ir.closed import Atom, Bracket, Closed, Positive, atom, bracket, total

MOST = 16  # small sizes that a correction may name


def fewer_cases(count: Closed, sizes: Sequence[str]) -> Closed:
    """An equal count, for sizes >= 1, with fewer brackets and max where there is one.

    For each size: the formula that holds from some threshold on, plus [size = v]·difference for the smaller v where it differs.
    """
    for name in sizes:
        count = _one_size(count, name)
    return count


def _one_size(count: Closed, name: str) -> Closed:
    special = [a for a in count.atoms if isinstance(a, Bracket | Positive) and _names(a) == {name}]
    if not special:
        return count
    threshold = max(_threshold(a, name) for a in special)
    if threshold > MOST:
        return count
    large = replaced(count, {a: _beyond(a, name, threshold) for a in special})
    parts = [large]
    for v in range(1, threshold):
        difference = count.subs({name: v}) - large.subs({name: v})
        if difference.terms:
            parts.append(bracket([Constraint(Aff.of(name) - v, True)]) * difference)
    new = total(parts)
    return new if len(str(new)) < len(str(count)) else count


def replaced(e: Closed, values: Mapping[Atom, Closed]) -> Closed:
    """The formula with atoms replaced."""
    out = []
    for monomial, c in e.terms:
        part = Closed.of(c)
        for a, p in monomial:
            part = part * values.get(a, atom(a)) ** p
        out.append(part)
    return total(out)


def _names(a: Atom) -> frozenset[str]:
    return atom(a).names


def _threshold(a: Atom, name: str) -> int:
    """From this size on the atom's case no longer changes; MOST + 1 where that isn't plain."""
    exprs = [c.expr for c in a.conditions] if isinstance(a, Bracket) else [a.value.affine if isinstance(a, Positive) else None]
    worst = 1
    for e in exprs:
        if e is None or any(isinstance(b, Div) for b, _ in e.terms):
            return MOST + 1
        k = e.coefficient(name)  # k·size + const changes sign once, before |const / k| + 1
        worst = max(worst, abs(e.const) // abs(k) + 2)
    return worst


def _beyond(a: Atom, name: str, size: int) -> Closed:
    """The atom's form for sizes at and beyond `size`."""
    if isinstance(a, Positive):
        return a.value if a.value.subs({name: size}).eval({}) > 0 else Closed()
    assert isinstance(a, Bracket)
    return Closed.of(1 if all(c.holds({name: size}) and not c.equal for c in a.conditions) else 0)
