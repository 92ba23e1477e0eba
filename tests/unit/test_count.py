"""Counting against plain enumeration, and at sizes where enumeration is out of the question."""

from __future__ import annotations

import itertools
import random
import time

import numpy as np
import pytest

from tilec.ir.affine import Aff, Constraint, ceil_div
from tilec.ir.closed import Closed
from tilec.poly.count import Counter, Image, NotClosed, evaluate

A = Aff.of


def within(lower, var, *upper):
    return [Constraint.ge(var, lower), *(Constraint.lt(var, u) for u in upper)]


def enumerate_points(variables, conditions, env, low=-8, high=40):
    """Every integer point, by trying the values in turn; a condition is asked as soon as its variables are known."""
    found = []

    def go(n, values):
        if n == len(variables):
            if all(c.holds(values) for c in conditions):
                found.append(tuple(values[v] for v in variables))
            return
        for x in range(low, high):
            new = {**values, variables[n]: x}
            if all(c.holds(new) for c in conditions if c.names <= set(new)):
                go(n + 1, new)

    go(0, dict(env))
    return found


def test_split_loops_close_to_their_extent():
    c = Counter(("M", "N", "K"))
    copy = (
        within(0, "io", ceil_div("M", 64))
        + within(0, "jo", ceil_div("N", 64))
        + within(0, "ko", ceil_div("K", 32))
        + within(0, "a", 64, A("M") - A("io") * 64)
        + within(0, "b", 32, A("K") - A("ko") * 32)
    )
    assert str(c.points(("io", "jo", "ko", "a", "b"), copy)) == "K*M*ceil(N/64)"
    three = (
        within(0, "io", ceil_div("M", 128))
        + within(0, "im", 8, ceil_div(A("M") - A("io") * 128, 16))
        + within(0, "ii", 16, A("M") - A("io") * 128 - A("im") * 16)
    )
    assert str(c.points(("io", "im", "ii"), three)) == "M"
    halo = within(0, "po", ceil_div("M", 64)) + within(0, "x", 66, A("M") - A("po") * 64 + 2)
    assert str(c.points(("po", "x"), halo)) == "M + 2*ceil(M/64)"
    prologue = c.points(("b",), within(0, "b", 32, "K"))
    steady = within(0, "ko", ceil_div("K", 32) - 1) + within(0, "b", 32, A("K") - A("ko") * 32 - 32)
    assert str(prologue + c.points(("ko", "b"), steady)) == "K"


def test_triangles_at_once():
    c = Counter(("N",))
    count = c.points(("i", "j"), within(0, "i", "N") + within(0, "j", A("i") + 1))
    assert str(count) == "N*(N + 1)/2"
    assert count.eval({"N": 1_000_000}) == 500_000_500_000
    tiled = (
        within(0, "io", ceil_div("N", 64))
        + within(0, "jo", A("io") + 1)
        + within(0, "ii", 64, A("N") - A("io") * 64)
        + within(0, "ji", 64, A("io") * 64 + A("ii") - A("jo") * 64 + 1)
    )
    assert c.points(("io", "jo", "ii", "ji"), tiled) == count
    start = time.process_time()
    fixed = Counter().points(("i", "j"), within(0, "i", 1_000_000) + within(0, "j", A("i") + 1))
    assert fixed.constant == 500_000_500_000
    assert time.process_time() - start < 1


def test_triangular_copies_and_skewed_tiles_close():
    c = Counter(("T", "N"))
    rows = within(0, "k", "N") + within(0, "io", ceil_div("N", 32)) + [Constraint.ge(A("io") * 32 + 31, A("k") + 1)]
    copies = c.points(("io", "k", "ii"), rows + within(0, "ii", 32, A("N") - A("io") * 32))
    assert str(copies) == "N**2 + 512*floor(N/32)**2 + 480*floor(N/32) - 32*N*floor(N/32)"
    for n in (1, 31, 32, 100):
        steps = [(k, io) for k in range(n) for io in range(-(-n // 32)) if 32 * io + 31 >= k + 1]
        assert copies.eval({"N": n}) == sum(min(32, n - 32 * io) for _, io in steps)
    tiles = [*within(0, "to", ceil_div("T", 8)), Constraint.ge("io", (A("to") * 8 + 1) // 64)]
    tiles = [*tiles, Constraint.lt(A("io") * 64, A("N") + A("to") * 8 + 6)]
    halo = tiles + within(A("io") * 64 - 1, "x", A("io") * 64 + 66, A("N") + A("to") * 8 + 8) + [Constraint.ge("x", A("to") * 8)]
    skewed = c.points(("to", "io", "x"), halo)
    for t, n in ((100, 500), (7, 64), (33, 129), (1, 1)):
        want = 0
        for to in range(-(-t // 8)):
            for io in range((8 * to + 1) // 64, -(-(n + 6 + 8 * to) // 64)):
                want += max(0, min(64 * io + 66, n + 8 * to + 8) - max(64 * io - 1, 8 * to))
        assert skewed.eval({"T": t, "N": n}) == want == c.points_at(("to", "io", "x"), halo, {"T": t, "N": n})


def test_counts_past_64_bits_are_exact():
    n = 5_000_000_001
    count = Counter(("N",)).points(("i", "j", "k"), [x for v in "ijk" for x in within(0, v, "N")])
    assert count.eval({"N": n}) == n**3 > 2**63
    many = count.eval({"N": np.array([1, 10, n])})
    assert list(many) == [1, 1000, n**3]
    assert Counter().points(("i", "j"), within(0, "i", 2**40) + within(0, "j", 2**40)).constant == 2**80


def test_distinct_elements():
    c = Counter(("P", "R", "T"))
    window = Image(("p", "r"), tuple(within(0, "p", "P") + within(0, "r", "R")), (A("p") + A("r"),))
    assert str(c.distinct([window])) == "P + R - 1"
    assert str(c.distinct([Image(("i",), tuple(within(0, "i", "T")), (A("i") * 2,))])) == "T"
    stride2 = Image(("p", "r"), tuple(within(0, "p", "P") + within(0, "r", "R")), (A("p") * 2 + A("r"),))
    both = c.distinct([stride2])
    for p, r in itertools.product(range(1, 6), range(2, 6)):  # with two or more taps nothing is skipped
        assert both.eval({"P": p, "R": r}) == 2 * (p - 1) + r
    assert both.eval({"P": 5, "R": 1}) == 5
    row = Image(("i",), tuple(within(0, "i", "P")), (A("i"), A(0)))
    column = Image(("j",), tuple(within(0, "j", "R")), (A(0), A("j")))
    assert str(c.distinct([row, column])) == "P + R - 1"
    assert c.distinct([Image((), (), ())]).constant == 1 and c.distinct([]).constant == 0
    maybe = c.distinct([Image(("i",), tuple(within(1, "i", "P")), ())])  # one cell, if the loop runs at all
    assert [maybe.eval({"P": p}) for p in (1, 2, 3)] == [0, 1, 1]


def _random_system(rng):
    variables = ("x", "y", "z")[: rng.randint(1, 3)]
    conditions = []
    for n, v in enumerate(variables):
        outer = variables[:n]

        def some(outer=outer):
            e = A(rng.randint(-1, 3))
            if rng.random() < 0.6:
                e = e + A(rng.choice(["N", "M"]))
            for o in outer:
                if rng.random() < 0.5:
                    e = e + A(o) * rng.choice([-3, -2, -1, 1, 2])
            return e if rng.random() < 0.7 else e // rng.choice([2, 3, 4])

        lower = A(0) if rng.random() < 0.6 else some()
        conditions += [Constraint.ge(v, lower), Constraint.ge(v, -4)]
        conditions += [Constraint.lt(v, some()) for _ in range(rng.randint(1, 2))]
        conditions.append(Constraint.lt(v, 14))
    if rng.random() < 0.4:
        v = rng.choice(variables)
        e = A(v) + (A("N") if rng.random() < 0.3 else 0)
        m = rng.choice([2, 3])
        conditions.append(Constraint.eq(e % m, rng.randint(0, m - 1)) if rng.random() < 0.6 else Constraint.ge(e % m, 1))
    return variables, conditions


@pytest.mark.parametrize("seed", [s for s in range(40) if s != 20])
def test_random_nests_equal_enumeration(seed):
    rng = random.Random(seed)
    variables, conditions = _random_system(rng)
    counter = Counter(("N", "M"))
    count = counter.points(variables, conditions)
    for n, m in ((1, 1), (1, 6), (4, 3), (7, 2), (5, 9)):
        env = {"N": n, "M": m}
        want = len(enumerate_points(variables, conditions, env, -5, 16))
        assert count.eval(env) == want, (variables, [str(c) for c in conditions], env, str(count))
        assert counter.points_at(variables, conditions, env) == want
    arrays = {"N": np.array([1, 1, 4, 7, 5]), "M": np.array([1, 6, 3, 2, 9])}
    assert list(np.broadcast_to(count.eval(arrays), 5)) == [
        count.eval({"N": int(n), "M": int(m)}) for n, m in zip(*arrays.values(), strict=True)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_random_images_equal_enumeration(seed):
    rng = random.Random(1000 + seed)
    counter = Counter(("N", "M"))
    images = []
    for _ in range(rng.randint(1, 2)):
        variables = ("x", "y")[: rng.randint(1, 2)]
        conditions = [c for v in variables for c in within(0, v, A(rng.choice("NM")) + rng.randint(0, 2))]
        if len(variables) == 2 and rng.random() < 0.4:
            conditions.append(Constraint.ge("x", "y"))
        index = A(rng.randint(0, 3))
        for v in variables:
            index = index + A(v) * rng.choice([1, 2, 3])
        images.append(Image(variables, tuple(conditions), (index if rng.random() < 0.8 else index // 2,)))
    count = counter.distinct(images)
    for n, m in ((1, 1), (2, 5), (6, 3), (4, 4)):
        cells = set()
        for i in images:
            for point in enumerate_points(i.variables, i.conditions, {"N": n, "M": m}):
                cells.add(tuple(e.eval({"N": n, "M": m, **dict(zip(i.variables, point, strict=True))}) for e in i.index))
        assert count.eval({"N": n, "M": m}) == len(cells), (images, n, m, str(count))


def test_a_sum_stands_where_residue_classes_are_too_many():
    conditions = within(0, "x", "N") + within(0, "y", (A("x") * 3) // 100 + 1)
    counter = Counter(("N",), max_period=16)
    count = counter.points(("x", "y"), conditions)
    assert "sum(" in str(count)
    assert count.eval({"N": 2000}) == sum(3 * x // 100 + 1 for x in range(2000))
    assert list(count.eval({"N": np.array([0, 1, 700])})) == [0, 1, sum(3 * x // 100 + 1 for x in range(700))]
    with pytest.raises(NotClosed, match="too long to add up"):
        evaluate(count, {"N": 10**12})
    exact = Counter(("N",), max_period=100).points(("x", "y"), conditions)
    assert exact.eval({"N": 123_457}) == count.eval({"N": 123_457})


def test_out_of_budget_is_named():
    big = within(0, "x", "N") + within(0, "y", "N") + [Constraint.lt(A("x") * 2 + A("y") * 3, "N")]
    with pytest.raises(NotClosed, match="too many cases"):
        Counter(("N",), max_pieces=1).points(("x", "y"), big)
    with pytest.raises(NotClosed, match="operation budget"):
        Counter(("N",), budget=1).points(("x", "y"), big)
    with pytest.raises(NotClosed, match="x has no upper bound"):
        Counter(("N",)).points(("x",), [Constraint.ge("x", 0)])
    assert isinstance(Counter(("N",)).points(("x",), within(0, "x", "N")), Closed)
