"""Checking large and permitted results: which cells can be computed alone, and how far a result may be off."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest

import tilec
from tilec import f32, i32, silu, sizes, workloads
from tilec.ir import interp
from tilec.ir.arguments import check_scalars, written
from tilec.ir.dtypes import to_arithmetic
from tilec.runtime.bound import bounds
from tilec.runtime.job import BLOCK, check_for, make_inputs
from tilec.runtime.sample import free_sizes, instances, sample
from tilec.schedule.schedule import start
from tilec.search.regret import regret, spearman

M, N, K = sizes("M N K")


@tilec.kernel
def shifted(A: f32[M + 1, N], B: f32[M, N]):
    for i in range(M):
        for j in range(N):
            B[i, j] = A[i + 1, j] * 2.0


@tilec.kernel
def numbered(A: f32[M, N], B: f32[M, N]):
    for i in range(M):
        for j in range(N):
            B[i, j] = A[i, j] * f32(i)


@tilec.kernel
def triangle(A: f32[M, N], B: f32[M, N]):
    for i in range(M):
        for j in range(N):
            B[i, j] = A[i, j]
        for j in range(min(i, N)):
            B[i, j] = 0.0


@tilec.kernel
def column_sums(A: f32[M, N], s: f32[N]):
    for j in range(N):
        s[j] = 0.0
    for i in range(M):
        for j in range(N):
            s[j] += A[i, j]


@pytest.mark.parametrize(
    ("kernel", "free"),
    [
        ("gemm_silu", {"M", "N"}),
        ("attention", {"M"}),
        ("softmax", {"M"}),
        ("transpose", {"M", "N"}),
        ("conv2d", {"B", "K"}),
        ("rowquant_gemm", {"M", "N"}),
        ("syrk", set()),
        ("jacobi2d", set()),
        ("blur", set()),
        (shifted, {"N"}),
        (numbered, {"N"}),
        (triangle, set()),
        (column_sums, {"N"}),
    ],
)
def test_free_sizes(kernel, free: set[str]):
    program = workloads.get(kernel).program if isinstance(kernel, str) else kernel.program
    assert set(free_sizes(program)) == free


@pytest.mark.parametrize("name", workloads.names())
def test_a_sample_is_the_whole_run_to_the_bit(name: str):
    """The sampled cells, computed alone, against those of the complete run."""
    program = workloads.get(name).program
    numbers = dict(zip(program.sizes, (21, 26, 23, 11, 12, 2, 2), strict=False))
    part = sample(program, numbers, 0.2 * instances(program, numbers), seed=3)
    assert part.whole == (not free_sizes(program))
    arrays, scalars = make_inputs(program, numbers, 0)
    values = check_scalars(program, scalars)
    whole = interp.run(program, arrays, numbers, values)
    alone = interp.run(program, {n: part.part(n, a) for n, a in arrays.items()}, part.sizes, values)
    for n in written(program):
        want = part.part(n, whole[n])
        assert alone[n].shape == want.shape and alone[n].tobytes() == want.tobytes()


def test_a_sample_is_small_holds_both_ends_and_depends_on_the_seed():
    program = workloads.get("gemm_silu").program
    numbers = {"M": 1024, "N": 12288, "K": 4096}
    part = sample(program, numbers, 1e7, seed=1)
    assert instances(program, part.sizes) <= 1e7 and part.sizes["K"] == 4096
    for s in ("M", "N"):
        assert part.chosen[s][:4] == (0, 1, 2, 3) and part.chosen[s][-1] == numbers[s] - 1
        assert len(set(part.chosen[s])) == part.sizes[s] == len(part.chosen[s])
    assert part == sample(program, numbers, 1e7, seed=1) != sample(program, numbers, 1e7, seed=2)


# -- bounds ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", workloads.names())
def test_the_reference_lies_within_its_bound(name: str):
    program = workloads.get(name).program
    numbers = dict(zip(program.sizes, (17, 23, 19, 5, 9, 3, 3), strict=False))
    for seed in range(2):
        arrays, scalars = make_inputs(program, numbers, seed)
        values = check_scalars(program, scalars)
        want = interp.run(program, arrays, numbers, values)
        for n, (value, error) in bounds(program, arrays, numbers, values).items():
            got = to_arithmetic(program.buffer[n].dtype, want[n]).astype(np.float64)
            assert np.isfinite(error).all() and (np.abs(got - value) <= error).all()


@tilec.kernel
def dot(a: f32[K], b: f32[K], out: f32[1]):
    acc: f32 = 0
    for k in range(K):
        acc += a[k] * b[k]
    out[0] = acc


def test_the_value_is_exact_and_the_bound_is_that_of_the_book():
    """|error| <= about K·u·Σ|a·b|, and every order keeps within it; the value is the exact sum to f64."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(300).astype(np.float32) for _ in range(2))
    (value, error) = (x[0] for x in bounds(dot.program, {"a": a, "b": b}, {"K": 300}, {})["out"])
    exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a, b, strict=True))
    magnitude = float(np.abs(a.astype(float) * b).sum())
    assert abs(float(exact) - value) < 1e-12
    assert 300 * 2.0**-24 * magnitude <= error <= 302 * 2.0**-24 * magnitude * 1.01
    for seed in range(50):
        order = random.Random(seed).sample(range(300), 300)
        s = np.float32(0)
        for k in order:
            s = np.float32(s + a[k] * b[k])
        assert abs(float(s) - value) <= error
    assert abs(float(np.float32(np.dot(a.astype(float), b))) - value) <= error  # fused and rounded once


@tilec.kernel
def stored(a: f32[N], q: i32[N]):
    for j in range(N):
        q[j] = i32(silu(a[j] * 3.0))


def test_a_rounding_that_may_fall_either_way_is_allowed_to_and_no_other():
    a = np.array([1.0, 0.5, 1e9], np.float32)
    value, error = bounds(stored.program, {"a": a}, {"N": 3}, {})["q"]
    assert value[0] == 3 and error[0] == 0  # silu(3) = 2.86: far from a half
    assert error[2] in (0, np.inf)


def test_a_check_with_permissions_accepts_another_order_and_refuses_an_error():
    program = workloads.get("gemm").program
    numbers = {"M": 5, "N": 6, "K": 40}
    check = check_for(program, start(program, numbers, reassociate="acc").program, numbers)
    assert not check.exact
    arrays, scalars = make_inputs(program, numbers, 0)
    other = {n: a[..., ::-1].copy() if n == "A" else a[::-1].copy() if n == "W" else a for n, a in arrays.items()}
    backwards = interp.run(program, other, numbers, check_scalars(program, scalars))
    assert check.wrong(backwards) is None
    zero = {"C": np.zeros_like(backwards["C"])}
    assert "too far off" in (check.wrong(zero) or "")
    one = {"C": backwards["C"].copy()}
    one["C"][2, 3] *= 1.5
    assert "1 of 30 elements are too far off" in (check.wrong(one) or "")
    nothing = {"C": backwards["C"].copy()}
    nothing["C"][0, 0] = np.nan
    assert "1 of 30" in (check.wrong(nothing) or "")


def test_large_inputs_are_repeated_blocks_and_depend_on_the_seed():
    program = workloads.get("transpose").program
    numbers = {"M": 3000, "N": 2500}
    arrays, _ = make_inputs(program, numbers, 0)
    a = arrays["A"].reshape(-1)
    assert (a[:1000] == a[BLOCK : BLOCK + 1000]).all() and len(np.unique(a[:BLOCK])) > BLOCK // 2
    assert (make_inputs(program, numbers, 1)[0]["A"] != arrays["A"]).any() and not arrays["B"].any()


# -- regret ------------------------------------------------------------------------------------------------------------------


def test_regret_of_a_known_ranking():
    r = regret([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [2, 1, 3, 4, 5, 6, 7, 8, 9, 10])
    assert r.candidates == 10 and r.top1 == 1.0 and r.top8 == 0.0
    assert r.correlation == pytest.approx(1 - 6 * 2 / (10 * 99))
    assert regret([1, 2], [3, 4]).correlation != regret([1, 2], [3, 4]).correlation  # NaN
    assert regret([2.0] * 9, [1.0, *[2.0] * 8]).top1 == pytest.approx(8 / 9)  # the model cannot tell: a random pick
    assert regret([], []).candidates == 0
    assert regret([1, 2, 4], [1, 1, 1]).error == 1.0


def test_regret_of_ties_is_the_mean_over_all_orders():
    """Against every order of the tied candidates, one by one."""
    measured = [5.0, 3.0, 4.0, 7.0, 2.0, 6.0, 9.0, 8.0, 10.0, 2.5]
    predicted = [1, 2, 2, 2, 2, 3, 3, 3, 3, 3]
    best = min(measured)
    rng, trials = random.Random(0), 4000
    seen = 0.0
    for _ in range(trials):
        order = sorted(range(10), key=lambda n: (predicted[n], rng.random()))
        seen += min(measured[n] for n in order[:8]) / best - 1
    assert regret(predicted, measured).top8 == pytest.approx(seen / trials, abs=0.01)


def test_spearman_is_that_of_the_ranks():
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 1, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486832980505138)  # ties at their mean rank, by hand
    with pytest.raises(tilec.errors.ScheduleError, match="2 predicted and 1 measured"):
        regret([1, 2], [1])
    with pytest.raises(tilec.errors.ScheduleError, match="positive"):
        regret([0], [1])
