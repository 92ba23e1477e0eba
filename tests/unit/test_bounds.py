"""Explicit bounds of an integer set in a loop order: the wording that people read, and exactness by enumeration."""

from __future__ import annotations

from itertools import product

import pytest

from tilec.ir.affine import Aff, Constraint, ceil_div
from tilec.poly.bounds import NotConvex, extent_const, implied, is_empty, maximum, nest, nest_bounds, simplify

C = Constraint
V = Aff.of


def text(bounds):
    return [(" ".join(map(str, low)), " ".join(map(str, up))) for low, up in bounds]


def tile(var, outer, inner, size, factor):
    return [
        C.ge(outer, 0),
        C.lt(outer, ceil_div(size, factor)),
        C.ge(inner, 0),
        C.lt(inner, factor),
        C.lt(V(inner) + V(outer) * factor, size),
    ]


def test_triangle_reordered():
    conditions = [C.ge("i", 0), C.lt("i", "N"), C.ge("j", 0), C.ge("i", "j")]
    assert text(nest_bounds(["j", "i"], conditions, ["N"])) == [("0", "N"), ("j", "N")]
    assert text(nest_bounds(["i", "j"], conditions, ["N"])) == [("0", "N"), ("0", "i + 1")]


def test_tile_and_its_exchange():
    conditions = tile("i", "io", "ii", "M", 64)
    assert text(nest_bounds(["io", "ii"], conditions, ["M"])) == [("0", "ceil(M/64)"), ("0", "64 M - 64*io")]
    assert text(nest_bounds(["ii", "io"], conditions, ["M"])) == [("0", "64 M"), ("0", "ceil((M - ii)/64)")]


def test_assumptions_simplify():
    conditions = tile("i", "io", "ii", "M", 64)
    where = [C.eq(V("M") % 64, 0)]
    assert text(nest_bounds(["io", "ii"], conditions, ["M"], where))[1] == ("0", "64")
    constant = [c.subs({"M": 1024}) for c in conditions]
    assert text(nest_bounds(["io", "ii"], constant, [])) == [("0", "16"), ("0", "64")]


def test_outer_variables_are_fixed():
    conditions = [C.ge("x", V("io") * 4), C.lt("x", V("io") * 4 + 4), C.lt("x", "N")]
    assert text(nest_bounds(["x"], conditions, ["N"])) == [("4*io", "N 4*io + 4")]
    context = [C.eq("N", 8), C.ge("io", 0), C.lt("io", 2)]
    assert text(nest_bounds(["x"], conditions, ["N"], context=context)) == [("4*io", "4*io + 4")]


def test_guards_where_bounds_do_not_reach():
    conditions = [C.ge("i", 0), C.lt("i", 10), C.eq(V("i") % 3, 1)]
    bounds, guards = nest(["i"], conditions, [])
    assert text(bounds)[0][0] in ("0", "1") and guards == [C.eq(V("i") % 3, 1)]
    with pytest.raises(NotConvex):
        nest_bounds(["i"], conditions, [])
    with pytest.raises(NotConvex, match="no upper bound"):
        nest_bounds(["i"], [C.ge("i", 0)], [])


CASES = [
    (["j", "i"], [C.ge("i", 0), C.lt("i", "N"), C.ge("j", 0), C.ge("i", "j"), C.ge(V("i") + V("j"), 2)]),
    (["b", "a"], tile("x", "a", "b", "N", 3)),
    (["ii", "jj", "io", "jo"], tile("x", "io", "ii", "N", 2) + tile("x", "jo", "ji", "N", 3) + [C.eq("jj", "ji")]),
    (["t", "p"], [C.ge("p", 0), C.lt("p", "N"), C.eq("t", V("p") * 2 + 1)]),
    (["p", "t"], [C.ge("t", 0), C.lt("t", V("N") * 2), C.eq(V("p") * 2, V("t"))]),
    (["t", "s"], [C.ge("s", 0), C.lt("s", "N"), C.ge(V("t") - V("s"), 0), C.lt(V("t") - V("s"), 4), C.eq(V("t") % 2, 0)]),
]


@pytest.mark.parametrize("order, conditions", CASES)
@pytest.mark.parametrize("size", [1, 2, 5])
def test_scan_is_exact(order, conditions, size):
    order = [*order, "ji"] if any("ji" in c.names for c in conditions) else order
    bounds, guards = nest(order, conditions, ["N"])

    def scan(n, env):
        if n == len(order):
            return [tuple(env[v] for v in order)] if all(g.holds(env) for g in guards) else []
        lower, upper = bounds[n]
        span = range(max(e.eval(env) for e in lower), min(e.eval(env) for e in upper))
        return [p for x in span for p in scan(n + 1, {**env, order[n]: x})]

    everything = [
        p
        for p in product(range(-1, 11), repeat=len(order))
        if all(c.holds({"N": size, **dict(zip(order, p, strict=True))}) for c in conditions)
    ]
    assert scan(0, {"N": size}) == everything


def test_questions():
    assert implied(C.ge("N", 1), [], ["N"]) and not implied(C.ge("N", 2), [], ["N"])
    assert implied(C.eq("i", 0), [C.ge("i", 0), C.lt("i", 1)], [])
    assert is_empty([C.lt("N", 1)], ["N"]) and not is_empty([C.lt("n", 1)], ["N"])
    assert [str(c) for c in simplify([C.lt("i", 3), C.lt("i", 5)], [], [])] == ["i <= 2"]
    assert maximum(V("i") * 2 + 1, [C.lt("i", 5)], []) == 9 and maximum(V("N"), [], ["N"]) is None
    low, up = (V(0),), (V(64), V("M") - V("io") * 64)
    assert extent_const((low, up), [], ["M"]) == 64 and extent_const((low, (V("M"),)), [], ["M"]) is None
