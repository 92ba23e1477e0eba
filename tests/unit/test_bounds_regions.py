"""Boxes, hulls, coverage and injectivity, against enumeration where it is cheap."""

from __future__ import annotations

from itertools import product

import pytest

from tilec.ir.affine import Aff, Constraint, ceil_div
from tilec.poly.regions import NoBox, Piece, box, covers, hull, injective

C, V = Constraint, Aff.of


def tile(outer, inner, size, factor):
    return (
        C.ge(outer, 0),
        C.lt(outer, ceil_div(size, factor)),
        C.ge(inner, 0),
        C.lt(inner, factor),
        C.lt(V(inner) + V(outer) * factor, size),
    )


ROWS = tile("io", "ii", "M", 64)


def text(spans):
    return [(str(s.base), str(s.extent)) for s in spans]


def test_box_of_a_tile():
    piece = Piece((V("io") * 64 + "ii", V("k"), V("io")), (*ROWS, C.ge("k", 0), C.lt("k", "K")))
    assert text(box([piece], ["io"], ["M", "K"])) == [("64*io", "64"), ("0", "K"), ("io", "1")]
    assert text(box([piece], [], ["M", "K"])) == [("0", "M"), ("0", "K"), ("0", "ceil(M/64)")]


def test_box_of_a_window_prefers_the_tile():
    taps = (C.ge("r", 0), C.lt("r", "R"))
    piece = Piece((V("io") * 64 + "ii" + "r",), (*ROWS, *taps))
    assert text(box([piece], ["io"], ["M", "R"])) == [("64*io", "R + 63")]
    two = [Piece((V("io") * 64 + "ii" + d,), ROWS) for d in (-1, 1)]
    assert text(box(two, ["io"], ["M"])) == [("64*io - 1", "66")]


def test_box_that_grows_with_the_outer_loop():
    triangle = Piece((V("j"),), (C.ge("i", 0), C.lt("i", "N"), C.ge("j", 0), C.ge("i", "j")))
    assert text(box([triangle], ["i"], ["N"])) == [("0", "N")]
    free = Piece((V("j"),), (C.ge("j", 0), C.lt("j", V("i"))))
    with pytest.raises(NoBox):
        box([free], ["i"], ["N"])


@pytest.mark.parametrize("shift", [-2, 0, 3])
def test_box_is_smallest(shift):
    small = tile("o", "p", "N", 3)
    pieces = [Piece((V("o") * 3 + V("p") * 2 + shift,), small), Piece((V("o") * 3 + 1,), small)]
    (span,) = box(pieces, ["o"], ["N"])
    widest = 0
    for n, o in product(range(1, 12), range(4)):
        env = {"N": n, "o": o}
        touched = {
            p.index[0].eval({**env, "p": q})
            for p in pieces
            for q in range(3)
            if all(c.holds({**env, "p": q}) for c in p.conditions)
        }
        if touched:
            base = span.base.eval(env)
            assert base <= min(touched) and max(touched) < base + span.extent.const
            widest = max(widest, max(touched) - min(touched) + 1)
    assert widest == span.extent.const


def test_hull_keeps_what_no_iteration_reads():
    guarded = Piece((V("io") * 64 + "ii",), (*ROWS, C.lt("io", 5)))
    conditions = hull(["x"], [guarded], ["io"], ["M"])
    env = {"M": 1000, "io": 7, "x": 7 * 64}
    assert not all(c.holds(env) for c in conditions) and all(c.holds({**env, "io": 4, "x": 4 * 64}) for c in conditions)
    nothing = hull(["x"], [Piece((V("i"),), (C.lt("i", 0), C.ge("i", 0)))], [], [])
    assert not any(all(c.holds({"x": x}) for c in nothing) for x in range(-2, 3))


def test_covers_is_exact():
    span = (C.ge("i", 0), C.lt("i", "N"))
    whole, evens = Piece((V("i"),), span), Piece((V("i") * 2,), (*span, C.lt(V("i") * 2, "N")))
    assert covers([whole], [evens], [], ["N"]) and not covers([evens], [whole], [], ["N"])
    odds = Piece((V("i") * 2 + 1,), (*span, C.lt(V("i") * 2 + 1, "N")))
    assert covers([evens, odds], [whole], [], ["N"])


def test_injective():
    assert injective(Piece((V("io") * 64 + "ii",), ROWS), ["io", "ii"], ["M"])
    wide = (*ROWS[:2], C.ge("ii", 0), C.lt("ii", 66))
    assert not injective(Piece((V("io") * 64 + "ii",), wide), ["io", "ii"], ["M"])
    assert not injective(Piece((V("ii"),), ROWS), ["io", "ii"], ["M"])
    assert injective(Piece((V("ii"),), (*ROWS, C.lt("M", 65))), ["io", "ii"], ["M"])


def test_a_loop_may_be_called_x():
    """The hull's own dimension has a name that no loop can have."""
    steps = (C.ge("x", 0), C.lt("x", 8), C.ge("y", 0), C.lt("y", 4))
    assert text(box([Piece((V("x") + V("y") * 8,), steps)], [], [])) == [("0", "32")]
