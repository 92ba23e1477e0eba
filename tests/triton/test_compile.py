"""Kernels compiled for five architectures without a GPU, and read back from the machine code."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu_report.schedules import case
from tilec.codegen.triton import emit, options_for
from tilec.errors import MeasureError, ScheduleError
from tilec.runtime.triton_jobs import capability, compile_all, installed, jobs
from tilec.targets import load

TARGETS = {"a100-sxm": "HMMA", "rtx-4090": "HMMA", "h100-sxm": "HGMMA", "b200": "UTCHMMA", "rtx-pro-6000": "HMMA"}
needs_triton = pytest.mark.skipif(not installed(), reason="Triton is not installed: pip install 'tilec[triton]'")


def wanted(name: str, target: str):
    c = case(name)
    return jobs(emit(c.schedule().program, options_for(target)), dict(c.real), capability(load(target)))


@needs_triton
def test_gemm_silu_everywhere(tmp_path: Path) -> None:
    every = [job for t in TARGETS for job in wanted("gemm_silu", t)]
    seen: list[tuple[int, int]] = []
    found = compile_all(every, 2, lambda done, total: seen.append((done, total)), tmp_path)
    for (target, mnemonic), got in zip(TARGETS.items(), found, strict=True):
        assert got.error is None, (target, got.error)
        assert set(got.matrix) == {mnemonic}
        assert 64 <= got.registers <= 255 and got.spills == 0 and got.stack == 0
        assert got.conversions and all(".rn." in c for c in got.conversions)
        # two tiles of 64 × 32 and 32 × 64 bf16 per stage; b200 has two barriers of 8 bytes beside them
        stages = {"a100-sxm": 2, "rtx-4090": 2, "h100-sxm": 3, "b200": 3, "rtx-pro-6000": 2}[target]
        assert got.shared == stages * 8192 + (16 if target == "b200" else 0)
    assert (found[3].tensor_memory > 0) and seen[0] == (0, 5) and seen[-1] == (5, 5)
    again: list[tuple[int, int]] = []
    assert compile_all(every, 2, lambda done, total: again.append((done, total)), tmp_path) == found
    assert again == [(5, 5)]  # all known: nothing was compiled
    for file in tmp_path.iterdir():
        file.write_text("no json")
    assert compile_all(every[:1], 1, None, tmp_path) == found[:1]  # a spoilt entry is made again


@needs_triton
def test_casts_are_single_roundings_in_the_machine(tmp_path: Path) -> None:
    found = compile_all([*wanted("act_chain", "h100-sxm"), *wanted("act_chain", "a100-sxm")], 2, None, tmp_path)
    assert "cvt.rn.satfinite.e4m3x2.f32" in found[0].conversions
    assert not any("e4m3" in c for c in found[1].conversions)  # integer operations there
    assert all(".rn." in c for f in found for c in f.conversions)


@needs_triton
def test_a_kernel_that_does_not_compile_says_why(tmp_path: Path) -> None:
    job = wanted("gemm", "h100-sxm")[0]
    broken = type(job)(**{**job.__dict__, "text": job.text.replace("tl.dot(A_shared, W_shared, acc)", "tl.dot(A_shared, acc)")})
    (got,) = compile_all([broken], 1, None, tmp_path)
    assert got.error is not None and "dot" in got.error.lower() and got.registers == 0


def test_what_cannot_be_compiled_for() -> None:
    with pytest.raises(ScheduleError, match="tpu-v5e is no GPU with a compute capability"):
        capability(load("tpu-v5e"))
    with pytest.raises(ScheduleError, match=r"v100 has compute capability 7\.0; compiled are 8\.0"):
        capability(load("v100"))
    with pytest.raises(ScheduleError, match="the sizes N, K are open"):
        jobs(emit(case("gemm").schedule().program), {"M": 64}, 90)


@pytest.mark.skipif(installed(), reason="Triton is installed")
def test_without_triton() -> None:
    with pytest.raises(MeasureError, match=r"Triton is not installed: pip install 'tilec\[triton\]'"):
        compile_all(wanted("gemm", "h100-sxm"))
