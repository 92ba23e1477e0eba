"""benchmarks/gpu.py in Triton's interpreter: the part that needs no device, and how it reads the profiler's answer."""

from __future__ import annotations

import json
import subprocess
import sys

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
