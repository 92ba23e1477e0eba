# Emitted by `python -m benchmarks.gpu_report.emit`.
"""softmax(X: bf16[M, N], Y: bf16[M, N])

Sum total in pieces of BLOCK_N: piece after piece in order, inside a piece as tl.sum
    adds.
Every other operation rounds as written.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _at(index, stride):
    """An offset in elements; 64 bits, since an array may have more than 2^31."""
    return tl.cast(index, tl.int64) * stride


@triton.jit
def _maximum(a, b):
    """NaN wins."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _exp(x):
    """exp in f32: at most 1.5 ulp for every argument."""
    t0 = x < -120.0
    t1 = tl.where(t0, -120.0, x)
    t2 = t1 > 89.0
    t3 = tl.where(t2, 89.0, t1)
    t4 = t3 * 1.4426950216293335
    t5 = t4 + 12582912.0
    t6 = t5 - 12582912.0
    t7 = t6 * 0.693145751953125
    t8 = t3 - t7
    t9 = t6 * 1.428606765330187e-06
    t10 = t8 - t9
    t11 = t10 * t10
    t12 = t10 * 0.0013951717410236597
    t13 = t12 + 0.008369598537683487
    t14 = t13 * t10
    t15 = t14 + 0.0416661873459816
    t16 = t15 * t10
    t17 = t16 + 0.16666512191295624
    t18 = t17 * t10
    t19 = t18 + 0.5
    t20 = t11 * t19
    t21 = t20 + t10
    t22 = t21 + 1.0
    t23 = t6 == t6
    t24 = tl.where(t23, t6, 0.0)
    t25 = t24.to(tl.int32)
    t26 = t25 >> 1
    t27 = t25 - t26
    t28 = t26 + 127
    t29 = t28 << 23
    t30 = t29.to(tl.float32, bitcast=True)
    t31 = t27 + 127
    t32 = t31 << 23
    t33 = t32.to(tl.float32, bitcast=True)
    t34 = t22 * t30
    t35 = t34 * t33
    return t35


@triton.jit
def softmax_0(X, X_0, X_1, Y, Y_0, Y_1, e, e_0, e_1, N, BLOCK_N: tl.constexpr):
    i = tl.program_id(0)
    m = tl.full((), float("-inf"), tl.float32)
    j = tl.arange(0, BLOCK_N)
    X_tile = tl.load(X + _at(i, X_0) + _at(j, X_1), mask=j < N, other=0.0)
    term = tl.where(j < N, X_tile.to(tl.float32), float("-inf"))
    m = _maximum(m, tl.reduce(term, 0, _maximum))
    total = tl.full((), 0.0, tl.float32)
    e_tile = _exp(X_tile.to(tl.float32) - m)
    tl.store(e + _at(i, e_0) + _at(j, e_1), e_tile, mask=j < N)
    tl.debug_barrier()  # what other warps stored is read
    e_tile2 = tl.load(e + _at(i, e_0) + _at(j, e_1), mask=j < N, other=0.0)
    term2 = tl.where(j < N, e_tile2, 0.0)
    total = total + tl.sum(term2, axis=0)
    e_tile3 = tl.load(e + _at(i, e_0) + _at(j, e_1), mask=j < N, other=0.0)
    Y_tile = tl.div_rn(e_tile3, total).to(tl.bfloat16)
    tl.store(Y + _at(i, Y_0) + _at(j, Y_1), Y_tile, mask=j < N)


def _check(name, tensor, dtype, shape):
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{name} is {found}, not {dtype} {shape}")


def softmax(X, Y=None):
    """softmax(X: bf16[M, N], Y: bf16[M, N])"""
    M = X.shape[0]
    N = X.shape[1]
    _check("X", X, torch.bfloat16, (M, N))
    if Y is None:
        Y = torch.empty((M, N), dtype=torch.bfloat16, device=X.device)
    _check("Y", Y, torch.bfloat16, (M, N))
    e = torch.empty((M, N), dtype=torch.float32, device=X.device)
    blocks = M
    softmax_0[(blocks,)](
        X,
        *X.stride(),
        Y,
        *Y.stride(),
        e,
        *e.stride(),
        N,
        BLOCK_N=triton.next_power_of_2(N),
        num_warps=4,
        num_stages=1,
        enable_fp_fusion=False,
    )
    return Y
