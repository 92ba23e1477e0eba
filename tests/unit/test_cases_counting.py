"""Known miscountings of public scheduling compilers; facts restated: a count is exact, whatever the extents."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.cases import legal, scheduled
from tilec.cost.price import price
from tilec.ir.program import Program
from tilec.ir.tree import addresses, sites
from tilec.lang import f32, kernel, sizes
from tilec.poly.count import Counter, Image, evaluate

N, P, R = sizes("N P R")


@kernel
def window(x: f32[P + R - 1], w: f32[R], o: f32[P]):
    for p in range(P):
        o[p] = 0
        for r in range(R):
            o[p] += w[r] * x[p + r]


@kernel
def two_taps(x: f32[2 * P + 1], o: f32[P], weight: f32):
    for p in range(P):
        o[p] = x[2 * p] + weight * x[2 * p + 1]


@kernel
def every_second(a: f32[2 * N], o: f32[N]):
    for i in range(N):
        o[i] = a[2 * i]


@kernel
def chooses(x: f32[N], y: f32[N], z: f32[1]):
    for i in range(N):
        y[i] = x[i] if x[i] > 0 else 2 * x[i]
    z[0] = 1


@kernel
def triangle(x: f32[N], s: f32[1]):
    for i in range(N):
        for j in range(i + 1):
            s[0] += x[j]


@kernel
def large(y: f32[1]):
    for i in range(2000000000):
        for j in range(2000000000):
            for k in range(2000000000):
                y[0] += 1


@kernel
def total100(x: f32[100], s: f32[1]):
    for i in range(100):
        s[0] += x[i]


def distinct(program: Program, buffer: str) -> list[Image]:
    """The images of all reads of a buffer."""
    out = []
    for site in sites(program.body):
        for a, _, write in addresses(site.action, program):
            if a.buffer == buffer and not write:
                out.append(Image(tuple(loop.var for loop in site.loops), site.conditions, a.index))
    return out


def touched(program: Program, buffer: str, **at: int) -> int:
    return evaluate(Counter(program.sizes, program.where).distinct(distinct(program, buffer)), at)


def test_08_the_counts_of_100_stay_those_of_100() -> None:
    whole = price(scheduled(total100).program, sizes={})
    split = price(scheduled(total100).split("i", 48, into=("io", "ii")).split("ii", 32, into=("im", "in_")).program, sizes={})
    assert whole.flops == split.flops == 100
    # a read of x, a read and a write of s[0] per instance
    assert whole.traffic.total("global") == split.traffic.total("global") == 100 * 3 * 4


def test_11_the_old_value_is_counted() -> None:
    """An accumulator of one element that is loaded before and stored after each of four steps."""
    s = scheduled(total100).split("i", 25, into=("io", "ii")).cache_write("s", at="io", memory="register", load=True)
    legal(s)
    moved = price(s.program, sizes={}).traffic.by_buffer("global")
    assert sum(bytes_ for key, bytes_ in moved.items() if "s" in (key if isinstance(key, tuple) else (key,))) == 2 * 4 * 4


@pytest.mark.parametrize(("p", "r"), [(1, 1), (16, 3), (7, 9)])
def test_25_a_window_touches_its_halo_once(p: int, r: int) -> None:
    assert touched(window.program, "x", P=p, R=r) == p + r - 1


def test_25_two_taps_at_stride_two() -> None:
    for p in (1, 2, 10):
        want = np.unique([2 * i + d for i in range(p) for d in range(2)]).size
        assert touched(two_taps.program, "x", P=p) == want == 2 * (p - 1) + 2


@pytest.mark.parametrize("t", [1, 8, 32])
def test_26_stride_two_touches_every_second_element(t: int) -> None:
    assert touched(every_second.program, "a", N=t) == t


def test_27_selects_are_their_own_kind_and_a_lone_statement_counts_once() -> None:
    cost = price(chooses.program, sizes={"N": 10})
    assert cost.flops == 10  # the multiplication
    assert cost.flops_by_kind["compare"] == cost.flops_by_kind["select"] == 10
    # x[i] is one access of its statement, however often it is written; then y[i], and z[0] once
    assert price(chooses.program, sizes={"N": 7}).traffic.total("global") == (7 + 7 + 1) * 4


def test_28_a_large_triangle_at_once() -> None:
    cost = price(triangle.program, sizes={"N": 1_000_000})
    assert cost.flops == 1_000_000 * 1_000_001 // 2


def test_29_counts_beyond_64_bits() -> None:
    assert price(large.program, sizes={}).flops == 2_000_000_000**3
