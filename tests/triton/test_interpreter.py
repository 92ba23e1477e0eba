"""Every emitted kernel in Triton's interpreter, over odd sizes and partial tiles, against the reference.

Inputs are multiples of 1/4 that make every float sum exact, so that the order of adding cannot matter and each output must have
the reference's bits; and random ones, whose sums may differ by the rounding that reordering allows.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gpu_report.schedules import CASES, Case, case
from tilec.codegen.triton import Options, emit
from tilec.ir import interp
from tilec.ir.arguments import written
from tilec.ir.dtypes import to_storage
from tilec.ir.program import Program
from tilec.runtime import triton_run
from tilec.runtime.process import kill_group
from tilec.runtime.triton_worker import worker

reason = triton_run.available()
pytestmark = pytest.mark.skipif(reason is not None, reason=str(reason))


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[str]]:
    p = worker("interpret")
    yield p
    kill_group(p)


def inputs(program: Program, sizes: dict[str, int], seed: int, exact: bool) -> dict[str, np.ndarray]:
    """An array per parameter; outputs start at zero."""
    rng = np.random.default_rng(seed)
    source = program.source
    out = {}
    for b in source.buffers:
        if b.role == "param":
            shape = tuple(e.eval(sizes) for e in b.shape)
            values = rng.integers(-8, 9, shape) / 4 if exact else rng.standard_normal(shape)
            values = np.zeros(shape) if b.name in written(source) else values
            out[b.name] = to_storage(b.dtype, values.astype(np.float32))
    return out


def reference(program: Program, arrays: dict[str, np.ndarray], sizes: dict[str, int], scalars: dict[str, float]):
    return interp.run(program.source, {n: a.copy() for n, a in arrays.items()}, sizes, scalars)


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Equal bits, or both NaN."""
    bits = a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")
    if a.dtype.kind in "iu":
        return bits
    return bits | (np.isnan(a.astype(np.float32)) & np.isnan(b.astype(np.float32)))


def bits_of(c: Case) -> list[bool]:
    """Kernels with 8-bit floats are emitted in two ways."""
    s = c.schedule()
    return [False, True] if any(b.dtype.startswith("f8") for b in s.program.buffers) else [False]


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
def test_exact_sums_give_the_reference_bit_for_bit(c: Case, process: subprocess.Popen[str]) -> None:
    s = c.schedule()
    sizes, scalars = dict(c.odd), dict(c.scalars)
    arrays = inputs(s.program, sizes, 1, exact=True)
    want = reference(s.program, arrays, sizes, scalars)
    for bits in bits_of(c):
        got = triton_run.interpreted(emit(s.program, Options(bytes_for_f8=bits)), arrays, sizes, scalars, process)
        assert set(got) == set(written(s.program.source))
        for name, array in got.items():
            differing = int((~same(array, want[name])).sum())
            assert differing == 0, f"{name}: {differing} of {array.size} differ (bytes_for_f8={bits})"
            assert np.any(array.astype(np.float32) != 0)


@pytest.mark.parametrize("name", ["act_chain", "act_chain_i8", "act_chain_separate", "transpose"])
def test_without_sums_random_inputs_too(name: str, process: subprocess.Popen[str]) -> None:
    c = case(name)
    s = c.schedule()
    sizes, scalars = dict(c.odd), dict(c.scalars)
    arrays = inputs(s.program, sizes, 2, exact=False)
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-40], dtype=np.float32)
    for b in s.program.source.buffers:
        if b.role == "param" and b.name not in written(s.program.source):
            arrays[b.name].reshape(-1)[:8] = to_storage(b.dtype, special)
    want = reference(s.program, arrays, sizes, scalars)
    for bits in bits_of(c):
        got = triton_run.interpreted(emit(s.program, Options(bytes_for_f8=bits)), arrays, sizes, scalars, process)
        for array_name, array in got.items():
            assert same(array, want[array_name]).all()


@pytest.mark.parametrize("name", ["gemm", "swiglu", "softmax", "rmsnorm", "conv2d", "rowquant_gemm_fused"])
def test_random_sums_differ_by_reordering_only(name: str, process: subprocess.Popen[str]) -> None:
    """At most two units in the last place of the output type, and few of them: a sum near a rounding boundary may fall aside."""
    c = case(name)
    s = c.schedule()
    sizes, scalars = dict(c.odd), dict(c.scalars)
    arrays = inputs(s.program, sizes, 3, exact=False)
    want = reference(s.program, arrays, sizes, scalars)
    got = triton_run.interpreted(emit(s.program), arrays, sizes, scalars, process)
    for array_name, array in got.items():
        a, b = array.astype(np.float64), want[array_name].astype(np.float64)
        scale = np.maximum(np.abs(b), np.abs(b).mean() / 8)  # cancellation: relative to the size of the terms
        assert (np.abs(a - b) <= 2.0**-6 * scale).all()
        assert (~same(array, want[array_name])).mean() < 0.02


def test_a_wrong_kernel_is_seen(process: subprocess.Popen[str]) -> None:
    """The comparison above sees a kernel without its masks of the summed axis."""
    c = case("gemm")
    s = c.schedule()
    sizes = dict(c.odd)
    arrays = inputs(s.program, sizes, 1, exact=True)
    made = emit(s.program)
    wrong = made.text.replace(" & (k[None, :] < K)", " & (k[None, :] < K - 1)")
    assert wrong != made.text
    got = triton_run.interpreted(type(made)(**{**made.__dict__, "text": wrong}), arrays, sizes, {}, process)
    assert not same(got["C"], reference(s.program, arrays, sizes, {})["C"]).all()


def test_a_slice_in_anothers_place_is_seen(process: subprocess.Popen[str]) -> None:
    c = case("gemm_silu")
    s = c.schedule()
    sizes = dict(c.odd)
    arrays = inputs(s.program, sizes, 1, exact=True)
    made = emit(s.program)
    wrong = made.text.replace("acc_0_32, acc_32_64 = tl.split(", "acc_32_64, acc_0_32 = tl.split(")
    assert wrong != made.text
    got = triton_run.interpreted(replace(made, text=wrong), arrays, sizes, {}, process)
    assert not same(got["Y"], reference(s.program, arrays, sizes, {})["Y"]).all()
