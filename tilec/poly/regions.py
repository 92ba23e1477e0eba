"""Which cells and instances a part of the tree touches: boxes for storage, hulls for copies and for shrunken loops.

A `Piece` is an indexed set { index : conditions }. Names of `outer` (the loops outside the part) and sizes stay symbolic; every
other name of a piece is a variable of the part and is projected out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tilec.ir.affine import Aff, AffLike, Constraint
from tilec.poly.bounds import (
    Conditions,
    as_bound,
    bounds_directly,
    connected,
    convex_constraints,
    is_empty,
    maximum,
    named_set,
    new_context,
    unknown_on_error,
)
from tilec.poly.isl import isl


@dataclass(frozen=True)
class Piece:
    """{ index : conditions }, in terms of loop variables and sizes."""

    index: tuple[Aff, ...]
    conditions: Conditions

    def subs(self, values: Mapping[str, AffLike]) -> Piece:
        return Piece(tuple(e.subs(values) for e in self.index), tuple(c.subs(values) for c in self.conditions))


class NoBox(Exception):
    """No box of constant (or size-affine) extent holds the cells of one iteration; `sizes` are those it grows with."""

    def __init__(self, dimension: int, sizes: Sequence[str]):
        super().__init__(f"dimension {dimension}")
        self.dimension, self.sizes = dimension, tuple(sizes)


@dataclass(frozen=True)
class Span:
    """One dimension of a box: base <= index < base + extent; the extent is constant or affine in the sizes."""

    base: Aff
    extent: Aff


def box(
    pieces: Iterable[Piece], outer: Sequence[str], sizes: Sequence[str], where: Iterable[Constraint] = ()
) -> tuple[Span, ...]:
    """The smallest box that holds all pieces for every value of the outer loops and the sizes, per dimension.

    A constant extent is preferred (a partial tile gets the full tile), then one affine in the sizes; NoBox otherwise.
    """
    return _box(tuple(dict.fromkeys(pieces)), tuple(outer), tuple(sizes), tuple(where))


def hull(
    names: Sequence[str],
    pieces: Iterable[Piece],
    outer: Sequence[str],
    sizes: Sequence[str],
    where: Iterable[Constraint] = (),
) -> list[Constraint]:
    """A conjunction over `names` (and outer loops, sizes) that holds exactly where some piece's index may be: their convex hull's
    simple form, strides left out. An impossible condition when all pieces are empty."""
    return list(_hull(tuple(names), tuple(dict.fromkeys(pieces)), tuple(outer), tuple(sizes), tuple(where)))


def covers(
    whole: Iterable[Piece],
    part: Iterable[Piece],
    outer: Sequence[str],
    sizes: Sequence[str],
    where: Iterable[Constraint] = (),
) -> bool:
    """Is every index of `part` one of `whole`, in the same iteration of the outer loops? Exact."""
    return _covers(tuple(whole), tuple(part), tuple(outer), tuple(sizes), tuple(where))


def injective(piece: Piece, variables: Sequence[str], sizes: Sequence[str], where: Iterable[Constraint] = ()) -> bool:
    """Do different values of `variables` always give different indices?"""
    return _injective(piece, tuple(variables), tuple(sizes), tuple(where))


def exact(c: Piece, d: Piece) -> Conditions:
    """The conditions under which two pieces (of disjoint variables) have the same index."""
    return (*c.conditions, *d.conditions, *(Constraint.eq(a, b) for a, b in zip(c.index, d.index, strict=True)))


def renamed(piece: Piece, keep: Iterable[str], suffix: str) -> Piece:
    """The piece with every name outside `keep` renamed, to join it with another one."""
    names = frozenset().union(*(e.names for e in piece.index), *(c.names for c in piece.conditions)) - frozenset(keep)
    values = {n: Aff.of(n + suffix) for n in names}
    return piece.subs(values)


# ---- isl ----------------------------------------------------------------------------------------------------------


def _parameters(pieces: Iterable[Piece], outer: Sequence[str], sizes: Sequence[str], where: Conditions) -> list[str]:
    used: set[str] = set().union(*(c.names for c in where))
    for p in pieces:
        used = used.union(*(e.names for e in p.index), *(c.names for c in p.conditions))
    return [n for n in dict.fromkeys((*sizes, *outer)) if n in used]


def _image(
    names: Sequence[str],
    piece: Piece,
    parameters: Sequence[str],
    fixed: frozenset[str],
    sizes: Sequence[str],
    where: Conditions,
    ctx: isl.Context,
) -> isl.Set:
    """{ [names] : some inner variables of the piece give that index }."""
    used = frozenset().union(*(e.names for e in piece.index), *(c.names for c in piece.conditions))
    inner = sorted(used - fixed)
    equal = [Constraint.eq(n, e) for n, e in zip(names, piece.index, strict=True)]
    whole = named_set([*names, *inner], parameters, (*piece.conditions, *equal, *where), sizes, ctx)
    return whole.project_out(isl.dim_type.set, len(names), len(inner))


def _union(
    names: Sequence[str], pieces: Sequence[Piece], outer: Sequence[str], sizes: Sequence[str], where: Conditions
) -> isl.Set:
    ctx = new_context()
    parameters = _parameters(pieces, outer, sizes, where)
    fixed = frozenset(outer) | frozenset(sizes)
    first, *rest = [_image(names, p, parameters, fixed, sizes, where, ctx) for p in pieces]
    for s in rest:
        first = first.union(s)
    return first.coalesce()


@lru_cache(maxsize=4_000)
def _hull(
    names: tuple[str, ...], pieces: tuple[Piece, ...], outer: tuple[str, ...], sizes: tuple[str, ...], where: Conditions
) -> Conditions:
    with unknown_on_error():
        union = _union(names, pieces, outer, sizes, where)
        if union.is_empty():
            return (Constraint(Aff(-1)),)
        return tuple(convex_constraints(union, names))


@lru_cache(maxsize=4_000)
def _covers(
    whole: tuple[Piece, ...], part: tuple[Piece, ...], outer: tuple[str, ...], sizes: tuple[str, ...], where: Conditions
) -> bool:
    if not part:
        return True
    if not whole:
        return all(is_empty(p.conditions, sizes, where) for p in part)
    names = [f"cell.{n}" for n in range(len(part[0].index))]
    with unknown_on_error():
        # the same parameters in both, so that the sets live in one space
        parameters = _parameters([*whole, *part], outer, sizes, where)
        fixed, ctx = frozenset(outer) | frozenset(sizes), new_context()
        sets = [[_image(names, p, parameters, fixed, sizes, where, ctx) for p in group] for group in (whole, part)]
        big, small = sets[0][0], sets[1][0]
        for s in sets[0][1:]:
            big = big.union(s)
        for s in sets[1][1:]:
            small = small.union(s)
        return small.is_subset(big)


@lru_cache(maxsize=4_000)
def _injective(piece: Piece, variables: tuple[str, ...], sizes: tuple[str, ...], where: Conditions) -> bool:
    other = renamed(piece, sizes, ".other")
    same = exact(piece, other)
    for v in variables:
        before = Constraint.lt(v, v + ".other")
        if not is_empty(connected(before.names, (*same, before)), sizes, where):
            return False
    return True


# ---- boxes --------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4_000)
def _box(pieces: tuple[Piece, ...], outer: tuple[str, ...], sizes: tuple[str, ...], where: Conditions) -> tuple[Span, ...]:
    rank = len(pieces[0].index)
    return tuple(_span(d, pieces, outer, sizes, where) for d in range(rank))


def _span(d: int, pieces: tuple[Piece, ...], outer: tuple[str, ...], sizes: tuple[str, ...], where: Conditions) -> Span:
    fixed = frozenset(outer) | frozenset(sizes)
    indices = {p.index[d] for p in pieces}
    if len(indices) == 1 and next(iter(indices)).names <= fixed:
        return Span(next(iter(indices)), Aff(1))
    lines = tuple(dict.fromkeys(Piece((p.index[d],), p.conditions) for p in pieces))
    lowers, uppers = _sides(lines, outer, sizes, where)
    found: list[tuple[int, tuple[int, str], Aff]] = []
    for base in lowers:
        tops = [maximum(line.index[0] - base, line.conditions, sizes, where) for line in lines]
        known = [t for t in tops if t is not None]
        if len(known) == len(tops):
            found.append((max(known) + 1, _plain(base), base))
    if found:
        extent, _, base = min(found)
        return Span(base, Aff(extent))
    # what moves with the outer loops is held by the range over all of them
    for low, up in ((lowers, uppers), _sides(lines, (), sizes, where)):
        pairs = [Span(base, top - base) for base in low for top in up if base.names <= fixed]
        pairs = [p for p in pairs if p.extent.names <= frozenset(sizes)]
        if pairs:
            return min(pairs, key=lambda p: (len(p.extent.names), p.extent.const, _plain(p.base)))
    raise NoBox(d, sorted(frozenset().union(*(u.names for u in (*uppers, *lowers))) & frozenset(sizes)))


def _sides(
    lines: tuple[Piece, ...], outer: tuple[str, ...], sizes: tuple[str, ...], where: Conditions
) -> tuple[list[Aff], list[Aff]]:
    """Lower and (exclusive) upper bounds of one index, the plainest first."""
    x = ".x"  # no loop has this name
    sides = [as_bound(c, x) for c in _hull((x,), lines, outer, sizes, where) if bounds_directly(c, x)]
    lowers = {low for low, _ in sides if low is not None}
    uppers = {up for _, up in sides if up is not None}
    return sorted(lowers, key=_plain), sorted(uppers, key=_plain)


def _plain(e: Aff) -> tuple[int, str]:
    return (len(e.terms), str(e))
