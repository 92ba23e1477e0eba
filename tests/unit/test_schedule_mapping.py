"""Mapping and split reductions: kinds, barriers, partial results, and what runs."""

from __future__ import annotations

import numpy as np
import pytest

from tilec.errors import LegalityError, ScheduleError
from tilec.ir.interp import run
from tilec.ir.printer import loop_tree, text
from tilec.lang import f32, i32, kernel, sizes
from tilec.schedule.schedule import Schedule, start
from tilec.workloads.gemm_silu import gemm_silu

M, N = sizes("M N")


@kernel
def rows(x: f32[M, 48], y: f32[M]):
    for i in range(M):
        acc: f32 = 0
        for k in range(48):
            acc += x[i, k]
        y[i] = acc


@kernel
def largest(x: f32[N], y: f32[1]):
    m: f32 = 0
    for k in range(N):
        m = max(m, abs(x[k]))
    y[0] = m


@kernel
def histogram(x: i32[N], y: i32[1]):
    for k in range(N):
        y[0] += x[k]


@kernel
def lower(x: f32[N, N], y: f32[N]):
    """Row sums of a triangle."""
    for i in range(N):
        acc: f32 = 1
        for k in range(i + 1):
            acc += x[i, k]
        y[i] = acc


@kernel
def neighbours(x: f32[32], y: f32[32]):
    t: f32[32]
    for i in range(32):
        t[i] = 2 * x[i]
    for i in range(32):
        y[i] = t[31 - i]


def lines(s: Schedule) -> list[str]:
    return [line.strip() for line in text(s.program).splitlines()]


# -- split_reduction ----------------------------------------------------------------------------------------------------


def lanes() -> Schedule:
    """48 elements on 32 lanes."""
    s = start(rows, reassociate="acc").split("k", 32, into=("ko", "lane")).reorder("lane", "ko")
    return s.split_reduction("acc", "lane").place("acc_part", "shared")


def test_partials_are_started_filled_and_merged_in_order():
    assert [t.strip() for t in loop_tree(lanes().program).splitlines()] == [
        "i in 0..M",
        "S0: acc",
        "lane in 0..32",
        "identity: acc_part",
        "ko in 0..floor((15 - lane)/32) + 2",
        "S1: acc",
        "lane_m in 0..32",
        "merge: acc += acc_part",
        "S2: y",
    ]
    part = lanes().program.buffer["acc_part"]
    assert (part.role, part.root, part.owner, [str(e) for e in part.shape]) == ("partial", "acc", "i", ["32"])


def test_partials_are_folded_before_they_are_merged():
    s = start(rows, reassociate="acc").split("k", 16, into=("ko", "lane")).reorder("lane", "ko")
    s = s.split_reduction("acc", "lane", fold=4)
    assert lines(s)[-6:] == [
        "for lane_m.0 in 1..4:",
        "for lane_m.1 in 0..4:",
        "acc_part[lane_m.1, i] += acc_part[4*lane_m.0 + lane_m.1, i]  # merge",
        "for lane_m in 0..4:",
        "acc += acc_part[lane_m, i]  # merge",
        "y[i] = acc  # S2",
    ]
    assert s.verdict.permissions == ('reassociate="acc"',)
    x = np.arange(3 * 48, dtype=np.float32).reshape(3, 48)
    assert run(s.program, {"x": x}, {"M": 3})["y"].tolist() == x.sum(1).tolist()


def test_folded_partials_of_a_tile():
    s = start(gemm_silu, {"K": 9}, reassociate="acc").split("k", 4).reorder("k_i", "acc.i", "acc.j", "k_o")
    assert s.split_reduction("acc", "k_i", fold=2).verdict.status == "legal"


def test_48_elements_on_32_threads():
    s = lanes().bind("i", "block.x").bind("lane", "thread.x")
    assert "barrier  # inserted" in lines(s)
    assert s.verdict.permissions == ('reassociate="acc"',)
    x = np.arange(3 * 48, dtype=np.float32).reshape(3, 48)
    assert run(s.program, {"x": x}, {"M": 3})["y"].tolist() == x.sum(1).tolist()


def test_the_inserted_barrier_cannot_be_removed():
    s = lanes().bind("i", "block.x").bind("lane", "thread.x")
    with pytest.raises(LegalityError) as e:
        s.barrier("lane", remove=True)
    assert e.value.witness is not None and e.value.witness.kind == "race"
    assert "barrier  # inserted" in lines(s)


def test_without_permission_the_order_of_a_float_sum_stays():
    s = start(rows).split("k", 32)
    with pytest.raises(LegalityError, match='legal with the permission schedule\\(reassociate="acc"\\)'):
        s.split_reduction("acc", "k_o")


def test_maxima_need_no_permission():
    s = start(largest).split("k", 4).split_reduction("k_o")
    assert s.verdict.status == "legal" and s.verdict.permissions == ()
    x = np.array([1, -9, 3, 4, 5, -6, 7], np.float32)
    assert run(s.program, {"x": x}, {"N": 7})["y"].tolist() == [9]


def test_a_parameter_as_accumulator_counts_its_first_value_once():
    s = start(histogram).split("k", 4).split_reduction("y", "k_o").parallel("k_o")
    out = run(s.program, {"x": np.arange(10, dtype=np.int32), "y": np.array([100], np.int32)}, {"N": 10})
    assert out["y"].tolist() == [145]


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_a_triangle_of_partials(n: int):
    s = start(lower, reassociate="acc").split("k", 3).split_reduction("acc", "k_o", into="part")
    x = np.arange(n * n, dtype=np.float32).reshape(n, n)
    assert run(s.program, {"x": x}, {"N": n})["y"].tolist() == [1 + x[i, : i + 1].sum() for i in range(n)]


def test_partials_of_a_tile():
    s = start(gemm_silu, reassociate="acc").split("k", 4).reorder("k_o", "acc.i", "acc.j", "k_i").split_reduction("acc", "k_o")
    assert s.program.buffer["acc_part"].shape[1:] == s.program.source.buffer["acc"].shape
    assert s.loops[:3] == ("acc.i", "acc.j", "k_o") and "k_o_m" in s.loops
    assert s.parallel("k_o").verdict.status == "legal"


def test_a_reduction_inside_threads_is_a_race_until_split():
    with pytest.raises(LegalityError) as e:
        start(rows).bind("i", "block.x").bind("k", "thread.x")
    assert e.value.witness is not None and e.value.witness.kind == "race"
    assert str(e.value).endswith('legal after split_reduction("k") and with schedule(reassociate="acc"): bind("k", "thread.x")')


# -- kinds and barriers -------------------------------------------------------------------------------------------------


def test_several_loops_become_threads_at_once():
    s = start(neighbours).parallel(("t.i", "y.i"))
    assert [line for line in lines(s) if line.endswith("# parallel")] == ["for i in 0..32:  # parallel"] * 2


def in_one_block() -> Schedule:
    """Both loops as phases of one block: a block loop of one iteration is made by splitting."""
    s = start(neighbours).split("t.i", 32, into=("b", "t0")).split("y.i", 32, into=("c", "t1"))
    return s.fuse_siblings("b", "c").bind("b", "block.x").bind(("t0", "t1"), "thread.x")


def test_phases_that_talk_get_a_barrier_and_keep_a_set_one():
    s = in_one_block()
    assert lines(s).count("barrier  # inserted") == 1
    s = s.barrier("t0")
    assert "barrier" in lines(s) and "barrier  # inserted" not in lines(s)
    x = np.arange(32, dtype=np.float32)
    assert run(s.program, {"x": x})["y"].tolist() == (2 * x[::-1]).tolist()
    with pytest.raises(ScheduleError, match="already"):
        s.barrier("t0")
    with pytest.raises(LegalityError):
        s.barrier("t0", remove=True)


def test_a_needless_barrier_can_be_removed():
    s = start(rows).split("k", 4).barrier("acc.i")
    assert lines(s)[-1] == "barrier"
    assert "barrier" not in lines(s.barrier("acc.i", remove=True))


def test_split_keeps_kinds():
    s = start(rows).parallel("i").split("i", 4)
    assert [line.partition("# ")[2] for line in lines(s) if line.startswith("for i_")] == ["parallel", "parallel"]
    v = start(rows).split("k", 16, tail="exact").vectorize
    with pytest.raises(LegalityError):
        v("k_i")


def test_vector_lanes_of_independent_elements():
    s = start(neighbours).vectorize("y.i").split("y.i", 8)
    assert [line.partition("# ")[2] for line in lines(s) if line.startswith("for i_")] == ["", "vector"]
