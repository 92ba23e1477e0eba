"""Which of two times is the later: the comparison of two lists of variables and constants, and its relation."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeAlias

from tilec.ir.affine import Aff
from tilec.poly.isl import Map, Solver, Space, T, Val

Comparison: TypeAlias = tuple[tuple[int | None, int | None, int], ...]


def comparison(
    names: Sequence[str], time: Sequence[Aff], others: Sequence[str], other: Sequence[Aff], alike: Collection[str] = ()
) -> Comparison:
    """All that `time > other` depends on: per dimension the two variables by number (and whether they are alike), or a variable
    and the constant it meets; last, where two constants differ, whether the first is the greater."""
    out: list[tuple[int | None, int | None, int]] = []
    for e, f in zip(time, other, strict=True):
        v, w = e.single, f.single
        if v is not None and w is not None:
            out.append((names.index(v), others.index(w), v in alike and v == w))
        elif v is not None:
            out.append((names.index(v), None, f.const))
        elif w is not None:
            out.append((None, others.index(w), e.const))
        elif e.const != f.const:
            out.append((None, None, e.const > f.const))
            break
    return tuple(out)


def after(
    solver: Solver,
    names: Sequence[str],
    time: Sequence[Aff],
    others: Sequence[str],
    other: Sequence[Aff],
    alike: Collection[str] = (),
) -> Map:
    """{ names -> others : time > other, lexicographically }; the entries of both are variables or constants.

    alike: variables of both that must be equal.
    """
    steps = comparison(names, time, others, other, alike)
    return solver.once(("after", len(names), len(others), steps), lambda: _after(solver, len(names), len(others), steps))


def _after(solver: Solver, left: int, right: int, steps: Comparison) -> Map:
    def value(n: int) -> Val:
        return Val(str(n), context=solver.ctx)

    equal = Map.universe(Space.alloc(solver.ctx, 0, left, right))
    out = Map.empty(equal.get_space())
    for n, m, c in steps:
        if n is not None and m is not None:
            if not c:
                out = out.union(equal.order_gt(T.in_, n, T.out, m))
            equal = equal.equate(T.in_, n, T.out, m)
        elif n is not None:
            out = out.union(equal.lower_bound_val(T.in_, n, value(c + 1)))
            equal = equal.fix_val(T.in_, n, value(c))
        elif m is not None:
            out = out.union(equal.upper_bound_val(T.out, m, value(c - 1)))
            equal = equal.fix_val(T.out, m, value(c))
        elif c:
            return out.union(equal)
        else:
            return out
    return out


__all__ = ["Comparison", "after", "comparison"]
