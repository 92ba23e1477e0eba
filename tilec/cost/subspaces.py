"""Subspaces of small rational vector spaces, and the exponents of Brascamp-Lieb inequalities for linear projections.

|E| <= Π |φ_j(E)|^s_j for every finite set E of integer points where dim H <= Σ s_j · dim φ_j(H) for every subspace H; it is
enough to ask this of the subspaces made from the kernels of the φ_j by sums and intersections (Christ, Demmel, Knight, Scanlon,
Yelick: Communication lower bounds and optimal algorithms for programs that reference arrays, 2013; Valdimarsson 2010).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import TypeAlias

Vector: TypeAlias = tuple[Fraction, ...]
Space: TypeAlias = tuple[Vector, ...]  # a basis in reduced echelon form: equal spaces have equal bases

MOST_SPACES = 200
MOST_SYSTEMS = 20_000


def spanned(vectors: Iterable[Sequence[Fraction | int]], n: int) -> Space:
    """The reduced echelon basis of the span, in n dimensions."""
    rows = [[Fraction(x) for x in v] for v in vectors]
    out: list[list[Fraction]] = []
    column = 0
    while rows and column < n:
        pivot = next((r for r in rows if r[column]), None)
        if pivot is not None:
            rows.remove(pivot)
            pivot = [x / pivot[column] for x in pivot]
            rows = [[x - r[column] * p for x, p in zip(r, pivot, strict=True)] for r in rows]
            out = [[x - r[column] * p for x, p in zip(r, pivot, strict=True)] for r in out]
            out.append(pivot)
        column += 1
    return tuple(tuple(r) for r in out)


def kernel(rows: Sequence[Sequence[int]], n: int) -> Space:
    """The vectors that a matrix of the given rows maps to 0."""
    reduced = spanned(rows, n)
    pivots = [next(k for k, x in enumerate(r) if x) for r in reduced]
    out: list[Vector] = []
    for free in (k for k in range(n) if k not in pivots):
        v = [Fraction(0)] * n
        v[free] = Fraction(1)
        for r, p in zip(reduced, pivots, strict=True):
            v[p] = -r[free]
        out.append(tuple(v))
    return spanned(out, n)


def meet(a: Space, b: Space, n: int) -> Space:
    """The intersection."""
    # x = Σ u_i a_i = Σ v_j b_j: the kernel of [a | -b] in (u, v)
    if not a or not b:
        return ()
    rows = [[*(v[k] for v in a), *(-v[k] for v in b)] for k in range(n)]
    scaled = [[int(x * _common(r)) for x in r] for r in rows]
    found = kernel(scaled, len(a) + len(b))
    return spanned([[sum((u * v[k] for u, v in zip(w, a, strict=False)), Fraction(0)) for k in range(n)] for w in found], n)


def _common(row: Sequence[Fraction]) -> int:
    out = 1
    for x in row:
        out *= x.denominator
    return out


def lattice(kernels: Sequence[Space], n: int) -> list[Space] | None:
    """All sums and intersections of the kernels, and the whole space; None where they are too many."""
    whole = spanned([[int(a == b) for b in range(n)] for a in range(n)], n)
    found: dict[Space, None] = {k: None for k in (*kernels, whole) if k}
    pending = list(found)  # to be paired with all that are found
    while pending:
        a = pending.pop()
        for b in list(found):
            for new in (spanned((*a, *b), n), meet(a, b, n)):
                if new and new not in found:
                    found[new] = None
                    pending.append(new)
            if len(found) > MOST_SPACES:
                return None
    return list(found)


def exponents(maps: Sequence[Sequence[Sequence[int]]], n: int) -> tuple[tuple[Fraction, ...], ...]:
    """Valid exponents of least sum for the maps (matrices over n variables): the extreme ones, then their mean."""
    return _exponents(tuple(tuple(map(tuple, m)) for m in maps), n)


@lru_cache(maxsize=256)
def _exponents(maps: tuple[tuple[tuple[int, ...], ...], ...], n: int) -> tuple[tuple[Fraction, ...], ...]:
    """They depend on the accesses alone, so one search serves every cost of a kernel."""
    kernels = [kernel(m, n) for m in maps]
    spaces = lattice(kernels, n)
    if spaces is None:
        return ()
    rows = {
        (*(Fraction(len(h) - len(meet(h, k, n))) for k in kernels), Fraction(len(h)))
        for h in spaces  # Σ s_j dim φ_j(H) >= dim H
    }
    return tuple(_least(sorted(r for r in rows if r[-1]), len(maps)))


def _least(rows: Sequence[tuple[Fraction, ...]], m: int) -> Iterator[tuple[Fraction, ...]]:
    """Vertices of { s : rows·s >= last, 0 <= s <= 1 } with the least sum, then their mean; from all bases, as they are few."""
    unit = [tuple(Fraction(int(a == b)) for b in range(m)) for a in range(m)]
    sides = [*rows, *((*u, Fraction(0)) for u in unit), *((*(-x for x in u), Fraction(-1)) for u in unit)]
    best: dict[tuple[Fraction, ...], None] = {}
    least: Fraction | None = None
    for n, chosen in enumerate(combinations(sides, m)):
        if n > MOST_SYSTEMS:
            return
        s = _solve(chosen, m)
        if s is None or any(sum((a * x for a, x in zip(r, s, strict=False)), Fraction(0)) < r[-1] for r in sides):
            continue
        total = sum(s, Fraction(0))
        if least is None or total < least:
            best, least = {}, total
        if total == least:
            best[s] = None
    yield from best
    if len(best) > 1:
        yield tuple(sum(column, Fraction(0)) / len(best) for column in zip(*best, strict=True))


def _solve(rows: Sequence[tuple[Fraction, ...]], m: int) -> tuple[Fraction, ...] | None:
    reduced = spanned(rows, m + 1)
    if len(reduced) != m or any(r[k] != 1 for k, r in enumerate(reduced)):
        return None
    return tuple(r[m] for r in reduced)
