"""Exact counting: integer points of loop nests and of images of accesses, as closed forms in the sizes.

    Counter(sizes, where).points(variables, conditions)   how many iterations satisfy the conditions
    Counter(sizes, where).distinct(images)                how many different cells a set of accesses touches

Independent parts multiply; split loops are joined again; single ranges are closed at once; what is left is summed symbolically
(`count_sum`). Nothing is enumerated: a triangle of N = 1,000,000 costs what one of N = 3 costs. `NotClosed` says that the budget
of cases is spent; `points_at` then counts at given sizes, which decides most cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilec.ir.affine import Aff, Constraint
from tilec.ir.closed import Closed, bracket, maximum, minimum, positive, total
from tilec.poly import isl
from tilec.poly.count_sum import MAX_PERIOD, MAX_PIECES, NotClosed, Summation, gathered
from tilec.poly.count_system import (
    Oracle,
    System,
    components,
    join_splits,
    outside,
    solve_equalities,
    split_halo,
    tidied,
    without_redundant,
)
from tilec.poly.count_tidy import fewer_cases


@dataclass(frozen=True)
class Image:
    """The cells `index` over the iterations of `variables` that satisfy `conditions`."""

    variables: tuple[str, ...]
    conditions: tuple[Constraint, ...]
    index: tuple[Aff, ...]


class Counter:
    """Counts within fixed assumptions on the sizes (each at least 1, and `where`). Remembers every count it made."""

    def __init__(
        self,
        sizes: Sequence[str] = (),
        where: Iterable[Constraint] = (),
        budget: int | None = None,
        max_pieces: int = MAX_PIECES,
        max_period: int = MAX_PERIOD,
    ):
        self.sizes = tuple(sizes)
        self.where = tuple(where)
        self.oracle = Oracle(sizes, self.where, budget)
        self.max_pieces, self.max_period = max_pieces, max_period
        self._known: dict[tuple[int, frozenset[Constraint], frozenset[Constraint]], Closed] = {}

    def points(self, variables: Sequence[str], conditions: Iterable[Constraint]) -> Closed:
        """The number of integer points, exact for all sizes; raises NotClosed."""
        try:
            return fewer_cases(self._system(System(tuple(variables), tuple(conditions))), self.sizes)
        except isl.OutOfBudget as e:
            raise NotClosed(f"the operation budget is spent ({e})") from None

    def points_at(self, variables: Sequence[str], conditions: Iterable[Constraint], sizes: Mapping[str, int]) -> int:
        """The number of points at given sizes; raises NotClosed where even that would take an enumeration."""
        values = {k: Aff(v) for k, v in sizes.items()}
        other = Counter((), (), None, self.max_pieces, self.max_period)
        count = other.points(variables, [c.subs(values) for c in conditions])
        return evaluate(count, sizes)

    def distinct(self, images: Sequence[Image]) -> Closed:
        """The number of different cells in the union of the images (all of one dimension); raises NotClosed."""
        try:
            return fewer_cases(self._distinct(images), self.sizes)
        except isl.OutOfBudget as e:
            raise NotClosed(f"the operation budget is spent ({e})") from None

    def _distinct(self, images: Sequence[Image]) -> Closed:
        if not images:
            return Closed()
        union: isl.Set | None = None
        with self.oracle.solver.guard():
            for i in images:
                domain = self.oracle.solver.set("", i.variables, i.conditions)
                cells = self.oracle.solver.map(domain, i.variables, "i", "", i.index or (Aff(0),)).range()
                union = cells if union is None else union.union(cells)
            assert union is not None
            return self.count_set(union)

    def count_set(self, cells: isl.Set) -> Closed:
        """The number of points of an isl set over the counter's sizes."""
        names = tuple(f"x.{n}" for n in range(cells.dim(isl.isl.dim_type.set)))
        with self.oracle.solver.guard():
            basics = cells.coalesce().compute_divs().make_disjoint().compute_divs().get_basic_sets()
        out = Closed()
        for b in basics:
            out = out + self._system(System(names, tuple(isl.constraints(b, names))))
        return out

    def _system(self, system: System) -> Closed:
        """Independent parts multiply; conditions on sizes alone become a bracket."""
        system, _ = solve_equalities(system)
        parts, alone = components(system)
        given = tuple(c for c in alone if not self.oracle.implies((), c))
        if not self.oracle.feasible(given):
            return Closed()
        product = bracket(given)
        for part in parts:
            product = product * self._part(part, given)
            if not product.terms:
                break
        return product

    def _part(self, part: System, given: tuple[Constraint, ...]) -> Closed:
        """One connected part, remembered under its variables' places rather than their names."""
        names = {v: f"v.{n}" for n, v in enumerate(part.variables)}
        renamed = tuple(c.subs(names) for c in part.conditions)
        key = (len(names), frozenset(renamed), frozenset(given))
        known = self._known.get(key)
        if known is None:
            try:
                known = self._known[key] = self._count(System(tuple(names.values()), tidied(renamed)), given)
            except NotClosed as e:
                text = str(e)
                for v, place in names.items():
                    text = text.replace(place, v)
                raise NotClosed(text) from None
        return known

    def _count(self, part: System, given: tuple[Constraint, ...]) -> Closed:
        if not self.oracle.feasible((*part.conditions, *given)):
            return Closed()
        try:
            return self._joined(part, given)
        except NotClosed as first:
            try:
                whole = System(part.variables, (*part.conditions, *given))
                return Summation(self.oracle, self.max_pieces, self.max_period).as_sum(whole)
            except NotClosed:
                raise first from None

    def _joined(self, part: System, given: tuple[Constraint, ...]) -> Closed:
        lean = without_redundant(part, self.oracle, given)
        joined = join_splits(lean)
        if joined != lean:
            joined = without_redundant(joined, self.oracle, given)
        pieces, alone = components(joined)
        if len(pieces) > 1 or alone:
            return self._system(System(joined.variables, (*joined.conditions, *given)))
        halves = split_halo(joined, self.oracle, given)
        if halves is not None:  # min(64 + h, M - 64·io + h) is h + min(64, M - 64·io)
            return total(self._part(h, given) for h in halves)
        simple = self._range(joined, given)
        if simple is not None:
            return simple
        summation = Summation(self.oracle, self.max_pieces, self.max_period)
        return gathered(summation.pieces(System(joined.variables, (*joined.conditions, *given)), Closed.of(1)), self.oracle)

    def _range(self, part: System, given: tuple[Constraint, ...]) -> Closed | None:
        """One variable between bounds: max(0, upper - lower + 1)."""
        if len(part.variables) != 1:
            return None
        x = part.variables[0]
        lower: list[Closed] = []
        upper: list[Closed] = []
        for c in part.conditions:
            k = c.expr.coefficient(x)
            if c.equal or not outside(c.expr, x):
                return None
            rest = c.expr - Aff.of(x) * k
            if k > 0:
                lower.append(Closed.of(-(rest // k)))
            else:
                upper.append(Closed.of(rest // -k))
        if not lower or not upper:
            raise NotClosed(f"{x} has no {'lower' if not lower else 'upper'} bound")
        always = True
        for low in lower:
            for high in upper:
                gap = (high - low + 1).affine
                always = always and gap is not None and self.oracle.implies(given, Constraint(gap))
        extent = minimum(upper) - maximum(lower) + 1
        return extent if always else positive(extent)


def evaluate(count: Closed, sizes: Mapping[str, int]) -> int:
    """A count's value; NotClosed where a finite sum in it is too long to add up."""
    try:
        return int(count.eval(sizes))
    except ArithmeticError as e:
        raise NotClosed(str(e)) from None
