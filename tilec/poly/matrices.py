"""Sets from constraint matrices: the same as isl text made from the conditions, some five times faster than parsing it.

A division floor(e/d) becomes an existential q with 0 <= e - d·q < d.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

from tilec.ir.affine import Aff, Constraint, Div
from tilec.poly.isl import UnionMap, isl, mangle, pieces_of_map, rows_of

Row = tuple[dict[int, int], int]  # column -> coefficient, constant
_T = isl.dim_type


class _Rows:
    """The rows of a constraint system; columns are the given names, then one per division."""

    def __init__(self, names: Sequence[str]):
        assert len(set(names)) == len(names), names
        self.columns = {n: k for k, n in enumerate(names)}
        self.width = len(self.columns)
        self.divisions: dict[Div, int] = {}
        self.equal: list[Row] = []
        self.at_least: list[Row] = []

    def row(self, e: Aff) -> Row:
        coefficients: dict[int, int] = {}
        for atom, c in e.terms:
            column = self.columns[atom] if isinstance(atom, str) else self.division(atom)
            coefficients[column] = coefficients.get(column, 0) + c
        return coefficients, e.const

    def division(self, div: Div) -> int:
        if div not in self.divisions:
            inner, const = self.row(div.num)
            column = self.width + len(self.divisions)
            self.divisions[div] = column
            self.at_least.append(({**inner, column: -div.den}, const))
            self.at_least.append(({**{k: -c for k, c in inner.items()}, column: div.den}, div.den - 1 - const))
        return self.divisions[div]

    def add(self, c: Constraint) -> None:
        row = self.row(c.expr)
        (self.equal if c.equal else self.at_least).append(row)

    def matrices(self, ctx: isl.Context) -> tuple[isl.Mat, isl.Mat]:
        """The equalities and the inequalities."""
        values: dict[int, isl.Val] = {}
        return self.matrix(ctx, self.equal, values), self.matrix(ctx, self.at_least, values)

    def matrix(self, ctx: isl.Context, rows: Sequence[Row], values: dict[int, isl.Val]) -> isl.Mat:
        columns = self.width + len(self.divisions) + 1
        m = isl.Mat.alloc(ctx, 0, columns).insert_zero_rows(0, len(rows))
        for n, (coefficients, const) in enumerate(rows):
            for column, c in (*coefficients.items(), (columns - 1, const)):
                if c:
                    if c not in values:
                        values[c] = isl.Val(str(c), context=ctx)
                    m = m.set_element_val(n, column, values[c])
        return m


def basic_set(
    ctx: isl.Context, parameters: Sequence[str], variables: Sequence[str], conditions: Iterable[Constraint]
) -> isl.BasicSet:
    """{ [variables] : conditions } with those parameters (tilec names); every name of the conditions is one of either."""
    rows = _Rows((*parameters, *variables))
    for c in conditions:
        rows.add(c)
    space = isl.Space.set_alloc(ctx, len(parameters), len(variables))
    equal, at_least = rows.matrices(ctx)
    return isl.BasicSet.from_constraint_matrices(_named(space, parameters), equal, at_least, _T.param, _T.set, _T.div, _T.cst)


def _named(space: isl.Space, parameters: Sequence[str]) -> isl.Space:
    for n, name in enumerate(parameters):
        space = space.set_dim_name(_T.param, n, mangle(name))
    return space


def basic_map(
    ctx: isl.Context, parameters: Sequence[str], variables: Sequence[str], index: Sequence[Aff], tag: str = "", into: str = ""
) -> isl.BasicMap:
    """{ tag[variables] -> into[index] } with those parameters (tilec names)."""
    outs = [f"out {k}" for k in range(len(index))]  # no name of a program has a blank
    rows = _Rows((*parameters, *variables, *outs))
    first = len(parameters) + len(variables)
    for k, e in enumerate(index):
        coefficients, const = rows.row(e)
        rows.equal.append(({**coefficients, first + k: -1}, const))
    space = _named(isl.Space.alloc(ctx, len(parameters), len(variables), len(index)), parameters)
    equal, at_least = rows.matrices(ctx)
    found = isl.BasicMap.from_constraint_matrices(space, equal, at_least, _T.param, _T.in_, _T.out, _T.div, _T.cst)
    if tag:
        found = found.set_tuple_name(_T.in_, tag)
    return found.set_tuple_name(_T.out, into) if into else found


@dataclass(frozen=True)
class _Part:
    """One basic map as numbers."""

    parameters: tuple[str, ...]
    ends: tuple[tuple[str, int], tuple[str, int]]  # (tuple name, dimensions) of domain and range
    equal: tuple[tuple[int, ...], ...]
    at_least: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Frozen:
    """A union map that outlives its context; `text` where it has existentials."""

    parts: tuple[_Part, ...]
    text: str | None = None

    @property
    def any(self) -> bool:
        """Does it hold anything, going by its form? (No parts, no pairs.)"""
        return bool(self.parts or self.text)

    @staticmethod
    def of(relation: UnionMap) -> Frozen:
        pieces = pieces_of_map(relation)
        if any(b.dim(_T.div) for m in pieces for b in m.get_basic_maps()):
            return Frozen((), relation.to_str())
        return Frozen(tuple(_part(b) for m in pieces for b in m.get_basic_maps()))

    def thaw(self, ctx: isl.Context) -> UnionMap:
        if self.text is not None or not self.parts:
            return UnionMap.read_from_str(ctx, self.text or "{ }")
        values: dict[int, isl.Val] = {}
        found: dict[tuple[tuple[str, int], tuple[str, int]], isl.Map] = {}
        for p in self.parts:
            (left, n), (right, m) = p.ends
            space = isl.Space.alloc(ctx, len(p.parameters), n, m)
            for k, name in enumerate(p.parameters):
                space = space.set_dim_name(_T.param, k, name)
            space = space.set_tuple_name(_T.in_, left).set_tuple_name(_T.out, right)
            width = len(p.parameters) + n + m + 1
            equal, at_least = (_dense(ctx, rows, width, values) for rows in (p.equal, p.at_least))
            order = (_T.param, _T.in_, _T.out, _T.div, _T.cst)
            basic = isl.BasicMap.from_constraint_matrices(space, equal, at_least, *order).to_map()
            found[p.ends] = found[p.ends].union(basic) if p.ends in found else basic
        out = [one.to_union_map() for one in found.values()]
        return reduce(UnionMap.union, out)


def _part(b: isl.BasicMap) -> _Part:
    order = (_T.param, _T.in_, _T.out, _T.div, _T.cst)

    ends = tuple((b.get_tuple_name(t) or "", b.dim(t)) for t in (_T.in_, _T.out))
    names = tuple(b.get_dim_name(_T.param, k) or "" for k in range(b.dim(_T.param)))
    return _Part(
        names, (ends[0], ends[1]), tuple(rows_of(b.equalities_matrix(*order))), tuple(rows_of(b.inequalities_matrix(*order)))
    )


def _dense(ctx: isl.Context, rows: Sequence[Sequence[int]], width: int, values: dict[int, isl.Val]) -> isl.Mat:
    m = isl.Mat.alloc(ctx, 0, width).insert_zero_rows(0, len(rows))
    for n, row in enumerate(rows):
        for column, c in enumerate(row):
            if c:
                if c not in values:
                    values[c] = isl.Val(str(c), context=ctx)
                m = m.set_element_val(n, column, values[c])
    return m
