"""benchmarks/gpu.py in Triton's interpreter: the part that needs no device, and how it reads the profiler's answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.gpu_report.emit import FOLDER
from tilec.runtime import triton_run

pytestmark = pytest.mark.skipif(triton_run.available() is not None, reason=str(triton_run.available()))

CODE = """
import os
os.environ["TRITON_INTERPRET"] = "1"
from tilec.runtime.triton_interpreter import install
install()
import json
import os
from benchmarks import gpu
manifest = json.loads((gpu.FOLDER / "manifest.json").read_text())
some = {n: manifest["cases"][n] for n in ("gemm", "act_chain", "softmax", "rowquant_gemm_fused")}
print(json.dumps(gpu.correctness(manifest | {"cases": some}, "cpu", 1e18)))
some["gemm"]["odd"][0][2][1] -= 1
some["gemm"]["odd"][1][2][0] -= 1
print(json.dumps(gpu.correctness(manifest | {"cases": {"gemm": some["gemm"]}}, "cpu", 1e18)))
text = '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"\\n'
text += '"0","k_0","dram__bytes_read.sum","Mbyte","1.5"\\n"0","k_0","dram__bytes_write.sum","byte","2,000"\\n'
print(json.dumps(gpu.counted(text)), json.dumps(gpu.counted("no device")))
print(gpu.spearman([1, 2, 3], [10, 20, 30]), gpu.spearman([1, 2, 3], [3, 2, 1]))
"""


def test_correctness_and_counters() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    right, wrong, counters, ranks = done.stdout.splitlines()
    assert json.loads(right) == {"gemm": {"C": 0}, "act_chain": {"Q": 0}, "softmax": {"Y": 0}, "rowquant_gemm_fused": {"Y": 0}}
    assert json.loads(wrong)["gemm"]["C"] > 0  # another sum is seen
    assert counters == '{"read": 1500000.0, "write": 2000.0} null'
    assert ranks == "1.0 -1.0"


def test_the_folder_holds_what_the_script_needs() -> None:
    manifest = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))
    assert len(manifest["profiled"]) == 3 and all("traffic" in manifest["cases"][n] for n in manifest["profiled"])
    assert [len(group) for group in manifest["candidates"].values()] == [20, 20]
    for group in manifest["candidates"].values():
        assert all((FOLDER / f"{c['file']}.py").exists() for c in group)
        assert len({c["predicted"] for c in group}) > 5


def in_a_process(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


BYTES = """
import json, time
from benchmarks import gpu
manifest = json.loads((gpu.FOLDER / "manifest.json").read_text())
print(json.dumps(gpu.dram_bytes(manifest | {"profiled": ["gemm"]}, "cuda", time.monotonic() + 5)["gemm"]["measured"]))
"""
COUNTERS = """echo '"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
echo '"0","gemm_0","dram__bytes_read.sum","Gbyte","1.5"'
echo '"0","gemm_0","dram__bytes_write.sum","Kbyte","2"'"""


@pytest.mark.parametrize(
    ("script", "found"),
    [
        (COUNTERS, {"read": 1.5e9, "write": 2000.0}),
        ("echo '==ERROR== ERR_NVGPUCTRPERM' >&2; exit 1", "ncu gave no counters: ==ERROR== ERR_NVGPUCTRPERM"),
        ("exec sleep 60", "TimeoutExpired: "),
    ],
)
def test_the_profiler_is_asked(script: str, found: object, tmp_path: Path) -> None:
    """Its counters are read; one that may not count, or hangs, is a line of the result and no end of the script."""
    (tmp_path / "ncu").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "ncu").chmod(0o755)
    got = json.loads(in_a_process(BYTES, PATH=f"{tmp_path}:{os.environ['PATH']}"))
    assert got.startswith(found) if isinstance(found, str) else got == found


TIMED = """
import json, types
import torch
from benchmarks import gpu
clock, log = [0.0], []
class Event:
    def __init__(self, enable_timing): self.at = None
    def record(self): self.at = clock[0]
    def elapsed_time(self, end): return (end.at - self.at) * 1e3
torch.cuda.Event, torch.cuda.synchronize = Event, lambda: log.append("wait")
torch.cuda._sleep = lambda cycles: log.append("busy")
torch.cuda.get_device_properties = lambda n: types.SimpleNamespace()  # a PyTorch that does not tell the size of L2
def call(n):
    clock[0] += 1.0 + n
    log.append(n)
print(gpu.seconds(call, [{"n": 0}, {"n": 1}, {"n": 2}], "cuda", repeats=9))
print(log[-11:])
entry = {"x": [["A", "f32", [1 << 20]]], "scalars": {}}
gpu.arguments = lambda entry, sizes, device, exact: {"A": torch.empty(1 << 20)}
print(len(gpu.rotating(entry, "x", "cuda")))
"""


def test_times_between_events() -> None:
    """The median over rotating arrays, launched while the device is kept busy; an unknown L2 counts as 64 MiB."""
    median, log, copies = in_a_process(TIMED).splitlines()
    assert float(median) == 2.0  # of 1, 2 and 3 s
    assert log == "['busy', 0, 1, 2, 0, 1, 2, 0, 1, 2, 'wait']"
    assert copies == "8"  # at most


FAILING = """
import json, time
from benchmarks import gpu
manifest = json.loads((gpu.FOLDER / "manifest.json").read_text())
size, group = next(iter(manifest["candidates"].items()))
def rotating(entry, sizes, device): return [{"A": gpu.torch.ones(2, 2), "W": gpu.torch.ones(2, 2)}]
gpu.rotating = rotating
class Module:
    def gemm_silu(A, W): raise RuntimeError("out of resource: shared memory")
gpu.load = lambda name: Module
some = {"candidates": {size: group[:2]}}
print(json.dumps(gpu.times(some, "cpu", time.monotonic() + 99)))
print(json.dumps(gpu.order(some, "cpu", time.monotonic() + 99)))
"""


def test_a_candidate_that_fails_does_not_end_the_others() -> None:
    times, order = map(json.loads, in_a_process(FAILING).splitlines())
    (row,) = times.values()
    assert row["matmul, then silu"]["seconds"] > 0
    assert list(row.values()).count("RuntimeError: out of resource: shared memory") == 2
    (found,) = order.values()
    assert found["spearman"] is None
    assert [c["error"] for c in found["candidates"]] == ["RuntimeError: out of resource: shared memory"] * 2


def test_a_part_that_is_none() -> None:
    done = subprocess.run([sys.executable, "benchmarks/gpu.py", "--only", "speed"], capture_output=True, text=True)
    assert done.returncode == 2 and "no part 'speed': there are correctness, times, order, bytes" in done.stderr
