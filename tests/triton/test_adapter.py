"""What tilec uses of Triton, held against the installed one: entry points, tools, conversions."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tilec.runtime import triton_run
from tilec.runtime.triton_worker import installed

pytestmark = pytest.mark.skipif(not installed(), reason="Triton is not installed: pip install 'tilec[triton]'")


def in_a_process(code: str, *argv: str) -> str:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code, *argv], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_version_is_in_range_and_the_tools_are_there() -> None:
    code = """
import os
from tilec.runtime import triton_adapter as a, triton_worker
assert triton_worker.version() == a.triton.__version__
for name in ("cuobjdump", "nvdisasm", "ptxas"):
    assert os.access(a.tool(name), os.X_OK), name
"""
    in_a_process(code)


def test_the_core_does_not_import_triton() -> None:
    code = "import sys, tilec.api, tilec.cli; print(sorted({'triton', 'torch'} & set(sys.modules)))"
    assert in_a_process(code) == "[]\n"


@pytest.mark.skipif(triton_run.available() is not None, reason="PyTorch is not installed")
def test_conversions_of_the_interpreter_are_exact() -> None:
    """Every bf16, f16 and f8 value up; f32 values (random bits, and all ties between neighbours) down, as ml_dtypes does."""
    code = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import numpy as np
from tilec.ir.dtypes import DTYPES, encode, decode
from tilec.runtime.triton_interpreter import convert
names = {"bf16": "bf16", "f16": "fp16", "f8e4m3": "fp8e4nv", "f8e5m2": "fp8e5"}
rng = np.random.default_rng(0)
for dtype, name in names.items():
    d = DTYPES[dtype]
    raw = np.arange(1 << d.bits, dtype=f"u{d.bytes}")
    up = convert(raw, name, "fp32")
    want = decode(dtype, raw.view(d.raw))
    assert np.array_equal(up, want, equal_nan=True), dtype
    finite = np.sort(want[np.isfinite(want)])
    ties = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    values = np.concatenate([ties, finite, rng.integers(0, 2**32, 1 << 16, dtype=np.uint32).view(np.float32)])
    down = convert(values, "fp32", name).view(d.raw)
    back, expected = decode(dtype, down), decode(dtype, encode(dtype, values))
    assert np.array_equal(back, expected, equal_nan=True), dtype
print("fine")
"""
    assert in_a_process(code) == "fine\n"


@pytest.mark.skipif(triton_run.available() is not None, reason="PyTorch is not installed")
def test_the_replaced_conversion_is_still_wrong_in_triton() -> None:
    """Why it is replaced; when this fails, Triton rounds by itself and the replacement can go."""
    code = """
import os
os.environ["TRITON_INTERPRET"] = "1"
import numpy as np, triton.language as tl
from triton.runtime import interpreter
x = np.array([1.0 + 3 * 2.0**-9], dtype=np.float32)
print(int(interpreter._convert_float(x, tl.float32, tl.bfloat16, None)[0]))
"""
    assert in_a_process(code) == f"{0x3F80}\n"  # the nearest is 0x3F81


def test_an_answer_for_a_kernel_that_is_wrong() -> None:
    request = {
        "text": "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef k(X):\n    tl.store(X, tl.nothing(1))\n",
        "kernel": "k",
        "signature": {"X": "*fp32"},
        "constants": {},
        "divisible": [],
        "capability": 90,
        "options": {"num_warps": 4},
    }
    argv = [sys.executable, "-W", "ignore", "-m", "tilec.runtime.triton_adapter", "compile"]
    done = subprocess.run(argv, input=json.dumps(request) + "\n", capture_output=True, text=True)
    assert "nothing" in json.loads(done.stdout)["error"]
