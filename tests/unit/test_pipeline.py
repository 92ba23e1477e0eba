"""pipeline: the text, the order of waits, the values at odd sizes, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.scheduled import same
from tests.unit.test_storage import lines, tiled_gemm
from tilec.errors import LegalityError, ScheduleError
from tilec.ir.printer import text
from tilec.ir.program import Barrier, Wait
from tilec.ir.tree import transform
from tilec.lang import f32, kernel, sizes
from tilec.poly.prove import prove
from tilec.schedule.schedule import Schedule, start

N = sizes("N")


def cached() -> Schedule:
    s = tiled_gemm().cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared")
    return s.place("acc", "shared").bind("io", "block.y").bind("jo", "block.x")


def test_two_stages():
    s = cached().pipeline("ko", stages=2)
    found = lines(s)
    assert "A_shared: bf16[2, 16, 8] in shared" in found and s.program.buffer["A_shared"].owner == "jo"
    main = found[found.index("for ko in 0..ceil(K/8):  # pipelined") :]
    assert main[1:3] == ["wait(0)", "if ko + 1 < ceil(K/8):"]
    assert main[5].startswith(
        "async A_shared[(ko + 1) % 2, A_shared.0, A_shared.1] = A[16*io + A_shared.0, 8*ko + A_shared.1 + 8]"
    )
    assert main[9] == "commit" and main[13].startswith("acc[i, j] += A_shared[ko % 2, i, ki] * W_shared[ko % 2, ki, j]")
    for k in (1, 8, 9, 17):
        same(s.program, M=17, N=3, K=k)


def test_three_stages_have_a_prologue_loop():
    s = cached().pipeline("ko", stages=3)
    found = lines(s)
    assert "for ko_pre in 0..2:" in found and "if ko_pre < ceil(K/8):" in found and "wait(1)" in found
    for k in (1, 8, 9, 40):
        same(s.program, M=3, N=17, K=k)


def test_one_stage_changes_nothing():
    s = cached()
    assert s.pipeline("ko", stages=1).program == s.program


def test_a_wait_that_comes_too_late_is_a_race():
    s = cached().pipeline("ko", stages=2)
    late = transform(s.program.body, lambda n: (Wait(1),) if isinstance(n, Wait) else (n,))
    assert prove(s.program.source, replace(s.program, body=late)).status == "illegal"


def test_a_chain_of_caches_is_fetched_at_its_first_link():
    s = cached().cache_read("A_shared", at="ko", memory="register", into="A_near").pipeline("ko", stages=2)
    assert [str(e) for e in s.program.buffer["A_shared"].shape] == ["2", "16", "8"]
    assert [str(e) for e in s.program.buffer["A_near"].shape] == ["16", "8"]
    same(s.program, M=5, N=4, K=20)


def test_what_the_loop_itself_computes_cannot_be_fetched_ahead():
    @kernel
    def running(x: f32[N], y: f32[N + 1]):
        y[0] = 0
        for i in range(N):
            y[i + 1] = y[i] + x[i]

    s = start(running).cache_read("y", at="i", memory="shared")
    with pytest.raises(LegalityError):
        s.pipeline("i", stages=2)


def test_refusals():
    with pytest.raises(ScheduleError, match="no nest of copies directly under"):
        tiled_gemm().pipeline("ko", stages=2)
    with pytest.raises(ScheduleError, match="stages must be >= 1"):
        cached().pipeline("ko", stages=0)
    with pytest.raises(ScheduleError, match="only a serial loop"):
        cached().pipeline("jo", stages=2)
    s = cached().pipeline("ko", stages=2)
    with pytest.raises(ScheduleError, match="place it before pipeline"):
        s.place("A_shared", "register")
    assert text(s.program) == text(cached().pipeline("ko", stages=2).program)


def test_on_threads():
    s = cached().bind(("S0.i", "S1.i", "Y.ii", "A_shared.0", "W_shared.0"), "thread.y")
    s = s.bind(("S0.j", "S1.j", "Y.ji", "A_shared.1", "W_shared.1"), "thread.x").place("acc", "register").pipeline("ko", stages=2)
    found = lines(s)
    at = found.index("for ko in 0..ceil(K/8):  # pipelined")
    assert "barrier  # inserted" in found[at:]  # another thread's copies, and the slot that another thread may still read
    same(s.program, M=17, N=19, K=20)
    bare = transform(s.program.body, lambda n: () if isinstance(n, Barrier) else (n,))
    verdict = prove(s.program.source, replace(s.program, body=bare))
    assert verdict.status == "illegal" and verdict.witness is not None and verdict.witness.kind == "race"


def test_a_loop_that_starts_later():
    s = tiled_gemm().shift("ko", 3).cache_read("A", at="ko", memory="shared").pipeline("ko", stages=2)
    found = lines(s)
    assert "for ko in 3..ceil(K/8) + 3:  # pipelined" in found and "if ko <= ceil(K/8) + 1:" in found
    assert any(line.startswith("async A_shared[1, A_shared.0_pre") for line in found)  # 3 % 2
    same(s.program, M=3, N=5, K=20)


def test_what_an_iteration_makes_for_itself_is_not_fetched_ahead() -> None:
    """y[i] = 2·t + 1 with t made in the same iteration and copied: there is nothing to copy an iteration early."""

    @kernel
    def own(x: f32[N], y: f32[N]):
        for i in range(N):
            t: f32 = x[i] * 2
            y[i] = t + 1

    s = start(own).place("t", "shared").cache_read("t", at="i", memory="register")
    with pytest.raises(ScheduleError, match="no nest of copies directly under 'i'"):
        s.pipeline("i", 2)
