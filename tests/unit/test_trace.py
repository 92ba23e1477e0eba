"""The trace: to Python text and JSON and back, replayed on the same kernel and on another one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.schedule_fuzz import walk
from tilec.errors import ScheduleError
from tilec.lang import bf16, f32, kernel, sizes
from tilec.schedule.schedule import Schedule, start
from tilec.schedule.trace import Step, Trace
from tilec.workloads.gemm_silu import gemm_silu

M, N, K = sizes("M N K")


@kernel
def gemm_scaled(A: bf16[M, K], W: bf16[K, N], Y: f32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            Y[i, j] = acc * 2


@kernel
def gemm_clamped(A: bf16[M, K], W: bf16[K, N], B: f32[N], Y: bf16[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            Y[i, j] = max(acc + B[j], 0)


def tiled(s: Schedule) -> Schedule:
    """The GEMM tile of the design document, as far as a kernel with the buffers acc and Y has it."""
    s = s.split("Y.i", 64, into=("io", "ii")).split("Y.j", 64, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
    s = s.split("acc.k", 32, into=("ko", "ki")).reorder("ko", "S1.ii", "S1.ji", "ki")
    return s.cache_read("A", at="ko", memory="shared").place("acc", "shared").bind("io", "block.y").bind("jo", "block.x")


def test_python_text_is_a_program():
    s = start(gemm_silu).split("k", 4, into=("ko", "ki")).reorder("ko", "acc.i", "acc.j", "ki").unroll(("ki",))
    text = s.trace.to_python()
    assert text.splitlines() == [
        's = s.split("k", 4, into=("ko", "ki"))',
        's = s.reorder("ko", "acc.i", "acc.j", "ki")',
        's = s.unroll(("ki",))',
    ]
    scope = {"s": start(gemm_silu)}
    exec(text, scope)
    assert scope["s"] == s
    assert str(s.trace) == text


def test_round_trips():
    for kernel_name in ("counts", "band"):
        trace = walk(kernel_name, 3, steps=6)[0].trace
        assert len(trace) >= 3
        assert Trace.from_python(trace.to_python()) == trace
        assert Trace.from_json(trace.to_json()) == trace


def test_a_chain_and_a_start_are_read_too():
    trace = Trace.from_python('gemm_silu.schedule(M=4).split("k", 4).unroll("k_i")')
    assert [step.name for step in trace] == ["split", "unroll"]
    assert Trace.from_python('(s\n  .split("k", 4)\n  .unroll("k_i"))') == trace


def test_json_has_documented_keys():
    trace = Trace((Step.of("split", ("k", 4), {"into": ("ko", "ki")}),))
    assert json.loads(trace.to_json()) == [{"name": "split", "args": ["k", 4], "kwargs": {"into": ["ko", "ki"]}}]


def test_replays_on_another_kernel():
    s = tiled(start(gemm_scaled))
    again = s.trace.apply(start(gemm_scaled, {"M": 100, "N": 65, "K": 33}))
    assert again.trace == s.trace and again.loops == s.loops
    assert again.verdict.status == "legal"
    other = s.trace.apply(start(gemm_clamped))
    assert other.program.buffer["acc"].shape == s.program.buffer["acc"].shape
    assert "B[64*jo + ji]" in str(other)


def test_a_replay_stops_at_the_step_that_fails():
    trace = Trace.from_python('s.split("k", 4).split("p", 4)')
    with pytest.raises(ScheduleError, match=r"split\(\"p\", 4\): no loop 'p'"):
        trace.apply(start(gemm_silu))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("s = s.split(", "trace: no Python"),
        ("import os", "trace: line 1 is no step"),
        ('s = s.split("k", n)', "trace: line 1: the arguments of split must be literals"),
        ("s = s.frobnicate()", "no primitive 'frobnicate'"),
        ('s = open("x").close', "trace: line 1 is no step"),
        ("s = 1 + 2", "trace: line 1 is no step"),
    ],
)
def test_python_that_is_no_trace(text: str, message: str):
    with pytest.raises(ScheduleError) as e:
        Trace.from_python(text)
    assert str(e.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "trace: no JSON"),
        ("{}", "trace: the JSON must be a list"),
        ("[1]", "trace: step 0 must be an object"),
        ('[{"name": "split", "args": 3}]', "trace: step 0: args must be a list"),
        ('[{"name": "frobnicate"}]', "no primitive 'frobnicate'"),
        ('[{"name": "split", "args": [2.5]}]', "2.5 is no argument"),
    ],
)
def test_json_that_is_no_trace(text: str, message: str):
    with pytest.raises(ScheduleError) as e:
        Trace.from_json(text)
    assert str(e.value).startswith(message)


def test_reading_a_trace_runs_nothing(tmp_path: Path):
    target = tmp_path / "made"
    with pytest.raises(ScheduleError):
        Trace.from_python(f's = s.split(open({str(target)!r}, "w"), 4)')
    assert not target.exists()
