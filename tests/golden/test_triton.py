"""What a person reads of a few kernels in Triton: whole files. That they compute the right values is tested in tests/triton."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.gpu_report.schedules import case
from tilec.codegen.triton import source


@pytest.mark.parametrize(
    ("name", "target"),
    [("gemm_silu", "h100-sxm"), ("softmax", "b200"), ("rowquant_gemm_fused", "rtx-pro-6000"), ("act_chain", "a100-sxm")],
)
def test_triton(name: str, target: str, golden: Callable[[str, str], None]) -> None:
    golden(f"{name}.triton", source(case(name).schedule().program, target))
