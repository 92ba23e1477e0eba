"""The only file that imports islpy: a thin layer that hides what moves between its releases.

Everything is addressed by name. Sets and maps are written as isl text from tilec expressions and read back into them. A `Solver`
is one isl context with an operation budget; a complete proof makes one and drops it, the steps of a chain share one (`Memory`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, TypeVar

import islpy as isl
from islpy import BasicSet, Map, Set, Space, UnionMap, UnionSet, Val
from islpy import dim_type as T

from tilec.errors import InternalError
from tilec.ir.affine import Aff, Constraint, Div
from tilec.ir.program import Program

DEFAULT_BUDGET = 20_000_000  # isl operations; a proof of the GEMM chain takes some 10^5
MOST_KEPT = 5_000  # relations that a chain of steps remembers (some 25 a step, 10 KB each) before it begins anew

Made = TypeVar("Made")


class OutOfBudget(Exception):
    """isl gave up: the operation budget is spent."""


def mangle(name: str) -> str:
    """A tilec name as an isl identifier (never an isl keyword)."""
    return name.replace(".", "__") + "_"


def unmangle(name: str) -> str:
    return name[:-1].replace("__", ".")


class Solver:
    """One isl context and the sizes that are its parameters, with what was made in it by content."""

    def __init__(self, sizes: Sequence[str], where: Iterable[Constraint] = (), budget: int | None = None):
        self.ctx = isl.Context()
        self.sizes = tuple(sizes)
        self.budget = budget
        self.made: dict[Hashable, Any] = {}
        self.numbers: dict[Hashable, int] = {}
        conditions = [f"{mangle(n)} >= 1" for n in sizes] + [constraint_text(c) for c in where]
        self.header = f"[{', '.join(map(mangle, sizes))}] -> "
        self.context = isl.Set.read_from_str(self.ctx, self.header + "{ : " + " and ".join(conditions or ["true"]) + " }")
        self.ctx.set_max_operations(budget if budget is not None else DEFAULT_BUDGET)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` makes, made once: `key` must hold all that it depends on, besides the sizes and the assumptions on them."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def number(self, content: Hashable) -> int:
        """A short name for some content: equal contents have equal numbers."""
        return self.numbers.setdefault(content, len(self.numbers))

    @property
    def spent(self) -> bool:
        """Is the budget gone? Inside isl's parser that shows as a syntax error, so the simplest text is tried."""
        try:
            isl.BasicSet.read_from_str(self.ctx, "{ [x] : x >= 0 }")
        except isl.Error:
            return True
        return False

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn a spent budget into OutOfBudget, any other failure of isl into InternalError."""
        try:
            yield
        except isl.Error as e:
            if "operations exceeded" in str(e) or self.spent:
                raise OutOfBudget(f"more than {self.budget or DEFAULT_BUDGET:,}") from None
            raise InternalError(f"isl failed: {str(e).splitlines()[0]}") from e

    def set(self, name: str, variables: Sequence[str], conditions: Iterable[Constraint]) -> isl.Set:
        """{ name[variables] : conditions }, within the assumptions on sizes."""
        text = self.header + "{ " + tuple_text(name, [Aff.of(v) for v in variables]) + " : " + conditions_text(conditions) + " }"
        return isl.Set.read_from_str(self.ctx, text).intersect_params(self.context)

    def map(self, domain: isl.Set, variables: Sequence[str], tag: str, target: str, index: Sequence[Aff]) -> isl.Map:
        """{ tag[variables] -> target[index] : variables in `domain` }."""
        text = self.header + "{ " + tuple_text(tag, [Aff.of(v) for v in variables]) + " -> " + tuple_text(target, index) + " }"
        return isl.Map.read_from_str(self.ctx, text).intersect_domain(domain.set_tuple_name(tag))

    def empty(self) -> isl.UnionMap:
        return isl.UnionMap.empty(self.context.get_space())

    def empty_set(self) -> isl.UnionSet:
        return isl.UnionSet.empty(self.context.get_space())

    def read_map(self, body: str) -> isl.UnionMap:
        return isl.UnionMap.read_from_str(self.ctx, self.header + body)

    def read_set(self, body: str) -> isl.UnionSet:
        return isl.UnionSet.read_from_str(self.ctx, self.header + body)


class Memory:
    """One solver for the steps of a chain: what one step's proof made, the next one's finds. Never process-wide."""

    def __init__(self) -> None:
        self._solver: Solver | None = None
        self._key: Hashable = None
        self._lock = Lock()
        self.last: Any = None  # what was made of the program asked last

    @contextmanager
    def lend(self, program: Program, budget: int | None) -> Iterator[Solver]:
        """The solver with a fresh budget, for one borrower at a time. A second borrower, or another original, gets a new one."""
        if not self._lock.acquire(blocking=False):
            yield Solver(program.sizes, program.where, budget)
            return
        try:
            key, found = (program.source, program.sizes, program.where, budget), self._solver
            if found is None or self._key != key or len(found.made) > MOST_KEPT:
                found = Solver(program.sizes, program.where, budget)
            self._solver, self._key = None, key  # an error inside leaves none
            found.ctx.reset_operations()
            yield found
            self._solver = found
        finally:
            self._lock.release()


def aff_text(e: Aff) -> str:
    parts = [str(e.const)] if e.const or not e.terms else []
    for atom, c in e.terms:
        inner = mangle(atom) if isinstance(atom, str) else f"floor(({aff_text(atom.num)})/{atom.den})"
        parts.append(f"{c}*{inner}" if c != 1 else inner)
    return " + ".join(parts)


def without_floor(c: Constraint) -> Constraint:
    """floor(n/d) + r >= 0 is n + d·r >= 0, and r - floor(n/d) >= 0 is d·r + d - 1 - n >= 0: fewer existentials for isl."""
    if c.equal:
        return c
    for atom, k in c.expr.terms:
        if isinstance(atom, Div) and abs(k) == 1:
            rest = c.expr - Aff(0, ((atom, k),))
            scaled = rest * atom.den
            return without_floor(Constraint(scaled + atom.num if k == 1 else scaled + (atom.den - 1) - atom.num))
    return c


def constraint_text(c: Constraint) -> str:
    c = without_floor(c)
    return f"{aff_text(c.expr)} {'=' if c.equal else '>='} 0"


def conditions_text(conditions: Iterable[Constraint]) -> str:
    return " and ".join(constraint_text(c) for c in conditions) or "true"


def tuple_text(name: str, index: Sequence[Aff]) -> str:
    return f"{name}[{', '.join(map(aff_text, index))}]"


def from_aff(aff: isl.Aff, names: Sequence[str]) -> tuple[Aff, int]:
    """(numerator, denominator) of an isl expression whose set dimensions are called `names` (tilec names)."""
    den = aff.get_denominator_val().to_python()
    total = Aff(_scaled(aff.get_constant_val(), den))
    space = aff.get_domain_space()
    for n in range(space.dim(isl.dim_type.param)):
        c = _scaled(aff.get_coefficient_val(isl.dim_type.param, n), den)
        if c:
            total = total + Aff.of(unmangle(space.get_dim_name(isl.dim_type.param, n) or "")) * c
    for n, name in enumerate(names):
        c = _scaled(aff.get_coefficient_val(isl.dim_type.in_, n), den)
        if c:
            total = total + Aff.of(name) * c
    for n in range(aff.dim(isl.dim_type.div)):
        c = _scaled(aff.get_coefficient_val(isl.dim_type.div, n), den)
        if c:
            num, d = from_aff(aff.get_div(n), names)
            total = total + Aff.of(num // d) * c
    return total, den


def _scaled(value: isl.Val, den: int) -> int:
    product = value * den
    return product.to_python()


def constraints(bset: isl.BasicSet, names: Sequence[str]) -> list[Constraint]:
    """The constraints of a basic set whose existentials are all divisions (see `divs_known`)."""
    space = bset.get_space()
    atoms = [Aff.of(unmangle(space.get_dim_name(T.param, n) or "")) for n in range(space.dim(T.param))]
    atoms += [Aff.of(name) for name in names]
    for n in range(bset.dim(T.div)):
        num, den = from_aff(bset.get_div(n), names)
        atoms.append(num // den)
    atoms.append(Aff(1))
    order = (T.param, T.set, T.div, T.cst)
    out: list[Constraint] = []
    for matrix, equal in ((bset.equalities_matrix(*order), True), (bset.inequalities_matrix(*order), False)):
        for row in rows_of(matrix):
            total = Aff(0)
            for atom, c in zip(atoms, row, strict=True):
                if c:
                    total = total + atom * c
            out.append(Constraint(total, equal))
    return out


def rows_of(m: isl.Mat) -> list[tuple[int, ...]]:
    """An integer matrix as Python numbers."""
    return [tuple(m.get_element_val(r, c).to_python() for c in range(m.cols())) for r in range(m.rows())]


def lexmax(m: isl.Map) -> isl.Map:
    """m.lexmax(), by another form of m where isl trips over its own divisions (seen in isl 0.27 on cells modulo 3)."""
    try:
        return m.lexmax()
    except isl.Error as e:
        if "operations exceeded" in str(e):
            raise
        return m.detect_equalities().lexmax()


def lexmin(s: isl.Set) -> isl.Set:
    """s.lexmin(), with the same way out as `lexmax`."""
    try:
        return s.lexmin()
    except isl.Error as e:
        if "operations exceeded" in str(e):
            raise
        return s.detect_equalities().lexmin()


def pieces_of_set(u: isl.UnionSet) -> list[isl.Set]:
    """The single-tuple parts of a union set, by tuple name."""
    found: list[isl.Set] = []
    u.foreach_set(found.append)
    return sorted(found, key=lambda s: s.get_tuple_name() or "")


def pieces_of_map(u: isl.UnionMap) -> list[isl.Map]:
    """The parts of a union map with one domain and one range tuple each."""
    found: list[isl.Map] = []
    u.foreach_map(found.append)
    return found


def divs_known(bset: isl.BasicSet) -> bool:
    """Is every existential an integer division? (isl refuses to give one that is not.)"""
    try:
        return all(not d.is_nan() for d in (bset.get_div(n) for n in range(bset.dim(isl.dim_type.div))))
    except isl.Error:
        return False


__all__ = [
    "DEFAULT_BUDGET",
    "BasicSet",
    "Div",
    "Map",
    "Memory",
    "OutOfBudget",
    "Set",
    "Solver",
    "Space",
    "T",
    "UnionMap",
    "UnionSet",
    "Val",
    "aff_text",
    "conditions_text",
    "constraint_text",
    "constraints",
    "divs_known",
    "from_aff",
    "isl",
    "lexmax",
    "lexmin",
    "mangle",
    "pieces_of_map",
    "pieces_of_set",
    "rows_of",
    "tuple_text",
    "unmangle",
    "without_floor",
]
