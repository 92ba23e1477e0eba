"""Bounds on what any schedule moves: against the published leading terms, known optima, and schedules that must stay above."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import pytest

import tilec
from benchmarks.model import bounds, polybench
from tilec import bf16, f32, sizes
from tilec.api import Schedule
from tilec.cost.lower_bound import sum_bounds
from tilec.cost.subspaces import exponents, kernel, lattice, meet, spanned
from tilec.errors import ResourceError, TilecError

M, N, K = sizes("M N K")


@tilec.kernel
def rows(A: f32[M, N], y: f32[M]):
    for i in range(M):
        y[i] = 0
        for j in range(N):
            y[i] += A[i, j]


@tilec.kernel
def unfinished(A: f32[N, N], B: f32[N, N], C: f32[N, N], D: f32[N, N]):
    """D reads sums that are not finished: any of their values may be used where it comes into being."""
    for k in range(N):
        for i in range(N):
            for j in range(N):
                C[i, j] += A[i, k] * B[k, j]
        for i in range(N):
            for j in range(N):
                D[i, j] += C[i, k] * B[k, j]


def test_published_leading_terms() -> None:
    """Of every kernel of the table that is derived, the leading term is IOLB's."""
    found = [f for f in bounds.leading() if f.ratio is not None]
    assert len(found) >= 12
    for f in found:
        assert f.ratio == pytest.approx(1, rel=1e-3), f


def test_a_product_in_words() -> None:
    """2·M·N·K/sqrt(S) - 2·S, the bound that is tight (Smith et al., 2019), for elements of one word."""
    (b,) = sum_bounds(polybench.gemm.program)
    assert b.leading(words=True) == "2*NI*NJ*NK/sqrt(S)"
    given = {"NI": 1000, "NJ": 2000, "NK": 3000}
    words = 10_000
    assert b.at(8 * words, given) / 8 == pytest.approx(2 * 6e9 / 100 - 2 * words)


def test_exponents_of_a_convolution() -> None:
    """Not projections onto coordinates: X[p + r] mixes two loops. Two thirds each; a matrix product one half each."""
    (b,) = sum_bounds(tilec.workload("conv2d").program)
    assert [s for _, _, s in b.groups] == [Fraction(2, 3)] * 3
    maps = [[[1, 0, 0], [0, 0, 1]], [[0, 0, 1], [0, 1, 0]], [[1, 0, 0], [0, 1, 0]]]
    assert list(exponents(maps, 3)) == [(Fraction(1, 2),) * 3]


def test_exponents_hold_on_boxes() -> None:
    """|E| <= Π |φ_j(E)|^s_j, counted on boxes and on random sets."""
    rng = random.Random(0)
    maps = [[[1, 1, 0], [0, 0, 1]], [[0, 1, 0], [1, 0, 0]], [[0, 1, 1]]]
    for s in exponents(maps, 3):
        for _ in range(200):
            if rng.random() < 0.5:
                n = [rng.randint(1, 6) for _ in range(3)]
                e = {(a, b, c) for a in range(n[0]) for b in range(n[1]) for c in range(n[2])}
            else:
                e = {tuple(rng.randint(0, 4) for _ in range(3)) for _ in range(rng.randint(1, 60))}
            images = [{tuple(sum(a * x for a, x in zip(row, p, strict=True)) for row in m) for p in e} for m in maps]
            assert len(e) <= math.prod(len(i) ** float(x) for i, x in zip(images, s, strict=True)) * (1 + 1e-9)


def test_subspaces() -> None:
    x, y = kernel([[1, 0, 0]], 3), kernel([[0, 1, 0]], 3)
    assert spanned([(0, 1, 0), (0, 2, 2)], 3) == x
    assert meet(x, y, 3) == spanned([(0, 0, 1)], 3)
    assert len(lattice([x, y], 3) or ()) == 4  # x, y, their intersection, the whole


def tiled_gemm(m: int, n: int, k: int) -> Schedule:
    s = tilec.workload("gemm").schedule().split("i", m, into=("io", "ii")).split("j", n, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ii", "ji").split("acc.k", k, into=("ko", "ki")).reorder("io", "jo", "ko", "ii", "ji", "ki")
    s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", "shared")
    return s.bind("io", "block.y").bind("jo", "block.x")


def test_no_tiling_moves_less() -> None:
    """What a schedule moves is never below the bound for what it holds; a product's best tilings come close to it."""
    given = {"M": 512, "N": 512, "K": 512}
    gaps = []
    for tile in ((8, 8, 8), (16, 64, 8), (64, 64, 1), (128, 32, 4), (128, 128, 1), (256, 256, 2)):
        cost = tiled_gemm(*tile).cost(**given)
        found = cost.capacity_bound(cost.footprint["shared"])
        assert cost.traffic.total("global") >= cost.lower_bound("global", cost.footprint["shared"]) == found.bytes
        assert found.gap is not None and found.gap >= 1
        gaps.append(found.gap)
    assert min(gaps) < 1.5  # 64 × 64 × 1: only the operands' share of the memory is lost


SCHEDULES = {
    "syrk in tiles": lambda: (
        tilec.workload("syrk").schedule(reassociate="C").split("i", 8, into=("io", "ii")).split("k", 8, into=("ko", "ki"))
    ),
    "gemm_silu fused": lambda: tilec.workload("gemm_silu").schedule().compute_inline("C"),
    "swiglu": lambda: tilec.workload("swiglu").schedule(),
    "attention": lambda: tilec.workload("attention").schedule(),
    "conv2d": lambda: tilec.workload("conv2d").schedule(),
    "jacobi2d": lambda: tilec.workload("jacobi2d").schedule(),
    "rowquant_gemm": lambda: tilec.workload("rowquant_gemm").schedule(),
    "gemm_silu_quantize": lambda: tilec.workload("gemm_silu_quantize").schedule(),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_no_library_schedule_moves_less(name: str) -> None:
    """As written, everything but the accumulators passes through global memory: above the bound of any capacity it may have."""
    s = SCHEDULES[name]()
    cost = s.cost(**dict.fromkeys(s.program.sizes, 24))
    for capacity in (256, 1024, 1 << 16):
        found = cost.capacity_bound(capacity)
        assert cost.traffic.total("global") >= found.bytes >= found.compulsory


def test_tuned_schedules_stay_above() -> None:
    found = tilec.tune(tilec.workload("gemm_silu"), {"M": 256, "N": 512, "K": 512}, "h100-sxm")
    for candidate in found.top(5):
        cost = candidate.cost
        held = cost.footprint["shared"] + 4 * 65536
        assert cost.traffic.total("global") >= cost.lower_bound("global", held)


def test_the_gap_and_what_closes_it() -> None:
    cost = tiled_gemm(64, 64, 32).cost("h100-sxm", M=1024, K=4096, N=12288)
    found = cost.capacity_bound()
    assert found.capacity_bytes == 233_472 + 4 * 65_536
    assert found.formula == "8*K*M*N/sqrt(S)"
    assert found.gap == cost.traffic.total("global") / found.bytes
    assert found.same_as is not None and found.compulsory_from is not None
    # a perfect schedule with that capacity moves what this one does, one with a byte less may have to move more
    for capacity, bytes_ in ((found.same_as, cost.traffic.total("global")), (found.compulsory_from, found.compulsory)):
        assert cost.capacity_bound(capacity).capacity <= bytes_ < cost.capacity_bound(capacity - 1).capacity + 1


def test_elementwise_chains_have_the_compulsory_bound() -> None:
    cost = tilec.workload("act_chain").schedule().cost(M=128, N=256)
    found = cost.capacity_bound(64)
    assert (found.capacity, found.formula, found.same_as) == (0, "0", None)
    assert found.bytes == found.compulsory == cost.lower_bound("global")
    assert sum_bounds(rows.program) == ()  # a sum of rows reuses nothing


def test_unfinished_sums_count_for_nothing() -> None:
    """Every partial value may be used where it is made: all of them are taken off, and the bound of D is 0."""
    found = {b.statement: b for b in sum_bounds(unfinished.program)}
    assert found["S1"].at(1000, {"N": 200}) == 0
    cost = unfinished.schedule().cost(N=50)
    assert cost.traffic.total("global") >= cost.lower_bound("global", 1000)


def test_mistakes() -> None:
    cost = tiled_gemm(8, 8, 8).cost(M=64, N=64, K=64)
    with pytest.raises(ResourceError, match="give capacity_bytes, or a target"):
        cost.capacity_bound()
    with pytest.raises(ResourceError, match="capacity_bytes must be a whole number of at least 1, got 0"):
        cost.capacity_bound(0)
    with pytest.raises(TilecError, match="depends on K"):
        tiled_gemm(8, 8, 8).cost().capacity_bound(100)


@tilec.kernel
def mixed(A: bf16[M, K], B: f32[K, N], C: f32[M, N]):
    for i in range(M):
        for j in range(N):
            for k in range(K):
                C[i, j] += A[i, k] * B[k, j]


def test_bytes_of_the_arrays_count() -> None:
    """Elements of 2 and 4 bytes: sqrt(2·4·4) in place of sqrt(4·4·4)."""
    (b,), (c,) = sum_bounds(mixed.program), sum_bounds(polybench.gemm.program)
    assert b.coefficient() / b.coefficient(words=True) == pytest.approx(math.sqrt(32))
    assert c.coefficient() / c.coefficient(words=True) == pytest.approx(math.sqrt(512))
