"""Kernels compiled for five architectures without a GPU, and read back from the machine code."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from benchmarks.gpu_report.schedules import case
from tilec.codegen.triton import emit, options_for
from tilec.errors import MeasureError, ScheduleError
from tilec.runtime.triton_jobs import Compiled, Job, _stored, capability, compile_all, jobs
from tilec.runtime.triton_worker import ask, installed, pool, version, worker
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
    key = every[0].key(version())
    good = (tmp_path / f"{key}.json").read_text(encoding="utf-8")
    texts = ["no json", "[]", good.replace('"registers": ', '"x": 1, "y": '), good.replace('"matrix": ', '"matrix": 1, "x": ')]
    for spoilt in texts:
        (tmp_path / f"{key}.json").write_text(spoilt)
        assert _stored(tmp_path / f"{key}.json", every[0]) is None
    (tmp_path / f"{key}.json").write_text(good.replace('"registers": ', '"registers": "many", "shared": 1, "stack": ', 1))
    assert compile_all(every[:1], 1, None, tmp_path) == found[:1]  # a spoilt entry is made again
    assert (tmp_path / f"{key}.json").read_text(encoding="utf-8") == good


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


def broken(first: str) -> Job:
    """A job whose text does something else before its kernels are defined."""
    job = wanted("transpose", "h100-sxm")[0]
    return replace(job, text=job.text.replace("import triton\n", f"import triton\n{first}\n", 1))


@needs_triton
def test_a_compiler_that_dies_is_one_kernels_error(tmp_path: Path) -> None:
    """Another process goes on with the others; the error is not kept."""
    fine = wanted("transpose", "h100-sxm")[0]
    found = compile_all([broken("import os; os.abort()"), fine], 1, None, tmp_path)
    assert found[0].error == "Triton's process ended: killed by SIGABRT"
    assert found[1].error is None and found[1].registers > 0
    assert [p.name for p in tmp_path.iterdir()] == [f"{fine.key(version())}.json"]


@needs_triton
def test_what_a_compiler_prints_is_no_answer(tmp_path: Path) -> None:
    loud = broken("import sys; print('{' * 200000); print('x' * 200000, file=sys.stderr)")
    (got,) = compile_all([loud], 1, None, tmp_path)
    assert got.error is None and got.registers > 0


@needs_triton
def test_an_interrupted_pool_leaves_no_process() -> None:
    running = pool({str(n): asdict(broken("import time; time.sleep(600)")) for n in range(2)}, 2, limit=1)
    key, answer = next(running)
    assert key in ("0", "1") and answer == {"error": "compiling took more than 1 s", "died": True}
    running.close()
    mine = subprocess.run(["ps", "-o", "args=", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    assert "triton_adapter" not in mine


@needs_triton
def test_a_cache_that_cannot_be_written_costs_time_only(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")  # where the folder should be
    job = wanted("transpose", "h100-sxm")[0]
    (got,) = compile_all([job], 1, None, tmp_path / "file" / "cache")
    assert isinstance(got, Compiled) and got.error is None and got.registers > 0


@needs_triton
def test_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "4.0.1")
    text = r"Triton 4\.0\.1 is installed; tilec works with >=3\.9,<3\.10: pip install 'tilec\[triton\]'"
    with pytest.raises(MeasureError, match=text):
        compile_all(wanted("transpose", "h100-sxm"))
    with pytest.raises(MeasureError, match=text):
        worker("interpret")


@needs_triton
def test_a_process_that_cannot_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("raise ImportError('libtriton.so: no such file')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(MeasureError, match=r"Triton's process ended: ImportError: libtriton\.so: no such file"):
        ask(worker("compile"), {})
