"""Numbers out of isl sets: the smallest sizes that show a fact, and points with coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tilec.poly.isl import Set, Solver, UnionMap, UnionSet, isl, lexmin, pieces_of_set

U = TypeVar("U", UnionMap, UnionSet)
_PARAM, _SET = isl.dim_type.param, isl.dim_type.set


@dataclass(frozen=True)
class Point:
    """A tuple with numbers: ("S0", (0, 1))."""

    name: str
    at: tuple[int, ...]

    def __str__(self) -> str:
        return named(self.name, self.at)


def named(name: str, at: tuple[int, ...]) -> str:
    """`S0[0,1]`, `s` when there is no index."""
    return f"{name}[{','.join(map(str, at))}]" if at else name


def union_params(u: UnionSet | UnionMap) -> Set:
    return u.params()


def smallest_sizes(solver: Solver, params: Set) -> dict[str, int]:
    """The member of a set of sizes with the least sum, then lexicographically least."""
    count = len(solver.sizes)
    if not count:
        return {}
    s = params.align_params(solver.context.get_space())
    s = isl.Set.from_params(s).insert_dims(_SET, 0, 1)
    s = s.move_dims(_SET, 1, _PARAM, 0, count)
    total = isl.Constraint.alloc_equality(isl.LocalSpace.from_space(s.get_space()))
    total = total.set_coefficient_val(_SET, 0, -1)
    for n in range(count):
        total = total.set_coefficient_val(_SET, n + 1, 1)
    point = lexmin(s.add_constraint(total)).sample_point()
    return {name: point.get_coordinate_val(_SET, n + 1).to_python() for n, name in enumerate(solver.sizes)}


def fix(solver: Solver, u: U, sizes: dict[str, int]) -> U:
    """Restrict to the given sizes."""
    conditions = " and ".join(f"{name}_ = {value}" for name, value in sizes.items()) or "true"
    params = Set.read_from_str(solver.ctx, solver.header + "{ : " + conditions + " }")
    return u.intersect_params(params)


def coordinates(s: Set) -> tuple[int, ...]:
    """The coordinates of some point of a set (callers pass singletons or a lexmin)."""
    point = s.sample_point()
    return tuple(point.get_coordinate_val(_SET, n).to_python() for n in range(s.dim(_SET)))


def points(u: UnionSet) -> list[Point]:
    """The lexicographically least point of every tuple in a set whose sizes are fixed, in the order of names."""
    out: list[Point] = []
    for s in pieces_of_set(u):
        if not s.is_empty():
            out.append(Point(s.get_tuple_name() or "", coordinates(lexmin(s))))
    return sorted(out, key=lambda p: (p.name, p.at))


def as_set(solver: Solver, p: Point) -> UnionSet:
    return solver.read_set(f"{{ {p.name}[{', '.join(map(str, p.at))}] }}")


def image(solver: Solver, p: Point, m: UnionMap) -> list[Point]:
    return points(as_set(solver, p).apply(m))


def time_of(solver: Solver, p: Point, clock: UnionMap) -> tuple[int, ...] | None:
    found = image(solver, p, clock)
    return found[0].at if found else None


def describe(params: Set, sizes: tuple[str, ...]) -> str:
    """Readable conditions on sizes: `N >= 2`; every size is at least 1 anyway."""
    if not sizes:
        return "the bound sizes"
    base = isl.Set.universe(params.get_space())
    for n in range(params.dim(_PARAM)):
        base = base.lower_bound_val(_PARAM, n, isl.Val.int_from_si(params.get_ctx(), 1))
    if base.is_subset(params):
        return "all sizes"
    text = params.gist(base).coalesce().to_str()
    body = text[text.index("{") + 1 : text.rindex("}")].strip().removeprefix(":").strip()
    for name in sizes:
        body = body.replace(f"{name}_", name)
    return body.replace(" mod ", " % ").replace(" = ", " == ") or "all sizes"


__all__ = [
    "Point",
    "as_set",
    "coordinates",
    "describe",
    "fix",
    "image",
    "named",
    "points",
    "smallest_sizes",
    "time_of",
    "union_params",
]
