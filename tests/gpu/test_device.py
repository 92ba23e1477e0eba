"""Emitted kernels on a CUDA device: skipped where there is none."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest


def device() -> str | None:
    """Why there is no device to run on, or None."""
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("triton") is None:
        return "PyTorch and Triton are not installed"
    code = "import torch; print(torch.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return None if done.stdout.strip() == "True" else "no CUDA device"


reason = device()
pytestmark = pytest.mark.skipif(reason is not None, reason=str(reason))


def test_every_kernel_is_right_on_the_device() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks.gpu", "--only", "correctness"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
