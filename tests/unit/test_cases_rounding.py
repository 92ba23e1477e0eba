"""Known miscompilations of public scheduling compilers, rounding; facts restated.

Where a value is kept, and when it is computed, never moves its rounding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.property.brute import judge
from tests.unit.cases import legal, refused, scheduled
from tilec.ir import interp
from tilec.ir.dtypes import DTYPES, to_arithmetic, to_storage
from tilec.ir.program import Program
from tilec.lang import bf16, f8e4m3, f32, i32, kernel, sigmoid, silu, sizes
from tilec.poly.prove import prove
from tilec.schedule.core import rewrite

M, N, K = sizes("M N K")


@kernel
def gemm_cast(A: f32[M, K], W: f32[K, N], Y: f32[M, N]):
    C: bf16[M, N]
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc
    for i in range(M):
        for j in range(N):
            Y[i, j] = C[i, j] * sigmoid(C[i, j])


@kernel
def gemm_silu_late(A: f32[M, K], W: f32[K, N], Y: f32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            Y[i, j] = silu(acc)


@kernel
def blocks_of_silu(x: f32[K], y: f32[1]):
    acc: f32[1]
    for z in range(1):
        acc[z] = 0
    for k in range(K):
        acc[0] += x[k]
    for z in range(1):
        y[z] = silu(acc[z])


@kernel
def scaled_row(A: f32[256], Q: f8e4m3[256], S: f32[1]):
    m: f32 = 0
    for k in range(256):
        m = max(m, abs(A[k]))
    for q in range(256):
        Q[q] = A[q] / (m / 448)
    S[0] = m / 448


@kernel
def to_f8(x: f32[2], y: f8e4m3[2]):
    for i in range(2):
        y[i] = x[i]


@kernel
def int_to_bf16(x: i32[1], y: bf16[1]):
    for i in range(1):
        y[i] = x[i]


def run(program: Program, **arrays: np.ndarray) -> dict[str, np.ndarray]:
    sizes = {"M": 1, "N": 1, "K": 1}
    written = {s.target.buffer for s in program.statements}
    for b in program.source.buffers:
        if b.role == "param" and b.name not in arrays and b.name in written:
            shape = tuple(e.eval(sizes) for e in b.shape)
            arrays[b.name] = np.zeros(shape, DTYPES[b.dtype].numpy)
    return interp.run(program, arrays, {n: sizes[n] for n in program.sizes})


def test_18_inlining_and_fusing_keep_the_cast() -> None:
    start = scheduled(gemm_cast)
    inlined = legal(start.compute_inline("C"), {"M": 2, "N": 2, "K": 3})
    fused = legal(start.fuse_siblings("C.i", "Y.i").fuse_siblings("C.j", "Y.j").place("C", "register"), {"M": 2, "N": 1, "K": 2})
    acc = np.float32(1 + 2**-9)  # bf16 holds 1 and 1 + 2^-7: the cast makes it 1
    want = None
    for s in (start, inlined, fused):
        y = run(s.program, A=np.array([[acc]], "f4"), W=np.array([[1]], "f4"))["Y"]
        rounded = run(s.program, A=np.array([[1]], "f4"), W=np.array([[1]], "f4"))["Y"]
        assert y.tobytes() == rounded.tobytes()
        want = y if want is None else want
        assert y.tobytes() == want.tobytes()


def test_19_silu_of_a_partial_sum() -> None:
    """SiLU(1) + SiLU(-1) is about 0.4621, SiLU(0) is 0; every execution counts, also one whose result is overwritten."""
    s = scheduled(blocks_of_silu).split("k", 2, into=("ko", "ki"))
    assert refused(s, "reverse_compute_at", "y", "ko").sizes == {"K": 3}
    # the same where running SiLU more than once is declared to be meant
    wrong = replace(rewrite(s.program, "reverse_compute_at", ("y", "ko")), recomputed=frozenset({"S2"}))
    witness = prove(wrong.source, wrong).witness
    assert witness is not None and witness.sizes == {"K": 3}
    assert "S1[1]" in witness.text and "S1[2]" in witness.text  # received the sum up to k=1, needs k=2
    assert not judge(wrong.source, wrong, {"K": 3}).legal and judge(wrong.source, wrong, {"K": 2}).legal
    y = run(scheduled(blocks_of_silu).program, x=np.array([1], "f4"))["y"]
    assert y[0] == pytest.approx(0.7310586, abs=1e-6)


def test_20_quantising_before_the_row_is_complete() -> None:
    s = scheduled(scaled_row).split("k", 128, into=("ko", "ki")).split("q", 128, into=("qo", "qi"))
    witness = refused(s, "fuse_siblings", "ko", "qo")
    assert "S1[128]" in witness.text and "S2[0]" in witness.text  # the second block's maximum is missing
    a = np.zeros(256, "f4")
    a[0], a[128] = 1, 10  # the first elements of the two column blocks
    out = run(scheduled(scaled_row).program, A=a)
    scale = out["S"][0]
    assert np.float32(1) / scale == pytest.approx(44.8, rel=1e-6)
    quantised = to_arithmetic("f8e4m3", out["Q"])
    assert quantised[0] == 44
    assert quantised[0] * scale == pytest.approx(55 / 56, rel=1e-6)


def test_21_f8_rounds_once() -> None:
    """Through f16 the first would tie to 1 and the second to 384."""
    y = run(to_f8.program, x=np.array([1.0625001, 400.1996], "f4"))["y"]
    assert to_arithmetic("f8e4m3", y).tolist() == [1.125, 416]


def test_22_integer_to_bf16_is_nearest_even() -> None:
    y = run(int_to_bf16.program, x=np.array([259], "i4"))["y"]
    assert to_arithmetic("bf16", y).tolist() == [260]


def test_23_saturation_to_i8() -> None:
    assert to_storage("i8", np.array([127.6, -128.7], "f4")).tolist() == [127, -128]


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f8e4m3", "f8e5m2"])
def test_24_nan_stays(dtype: str) -> None:
    assert np.isnan(to_arithmetic(dtype, to_storage(dtype, np.array([np.nan], "f4")))).all()
