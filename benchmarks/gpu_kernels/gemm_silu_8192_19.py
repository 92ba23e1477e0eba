# Emitted by `python -m benchmarks.gpu_report.emit`.
"""gemm_silu(A: bf16[8192, 8192], W: bf16[8192, 8192], Y: bf16[8192, 8192])

Sum acc in tiles of 32 × 256 × 16 (bf16, summed in f32): tile after tile in order,
    inside a tile as tl.dot adds.
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
def _silu(x):
    """silu in f32: at most 3.5 ulp for every argument."""
    t0 = x < -120.0
    t1 = tl.where(t0, -120.0, x)
    t2 = tl.abs(x)
    t3 = t2 * -1.0
    t4 = t3 < -120.0
    t5 = tl.where(t4, -120.0, t3)
    t6 = t5 > 89.0
    t7 = tl.where(t6, 89.0, t5)
    t8 = t7 * 1.4426950216293335
    t9 = t8 + 12582912.0
    t10 = t9 - 12582912.0
    t11 = t10 * 0.693145751953125
    t12 = t7 - t11
    t13 = t10 * 1.428606765330187e-06
    t14 = t12 - t13
    t15 = t14 * t14
    t16 = t14 * 0.0013951717410236597
    t17 = t16 + 0.008369598537683487
    t18 = t17 * t14
    t19 = t18 + 0.0416661873459816
    t20 = t19 * t14
    t21 = t20 + 0.16666512191295624
    t22 = t21 * t14
    t23 = t22 + 0.5
    t24 = t15 * t23
    t25 = t24 + t14
    t26 = t25 + 1.0
    t27 = t10 == t10
    t28 = tl.where(t27, t10, 0.0)
    t29 = t28.to(tl.int32)
    t30 = t29 >> 1
    t31 = t29 - t30
    t32 = t30 + 127
    t33 = t32 << 23
    t34 = t33.to(tl.float32, bitcast=True)
    t35 = t31 + 127
    t36 = t35 << 23
    t37 = t36.to(tl.float32, bitcast=True)
    t38 = t26 * t34
    t39 = x < 0.0
    t40 = t1 * t38
    t41 = tl.where(t39, t40, t1)
    t42 = t38 * t37
    t43 = t42 + 1.0
    t44 = tl.div_rn(t41, t43)
    t45 = tl.where(t39, t37, 1.0)
    t46 = t44 * t45
    return t46


@triton.jit
def gemm_silu_0(A, A_0, A_1, W, W_0, W_1, C, C_0, C_1):
    pid = tl.program_id(0)
    # 8 rows of tiles side by side share what they read
    first = pid // (8 * 256) * 8
    rows = tl.minimum(32 - first, 8)
    jo = first + pid % (8 * 256) % rows
    io = pid % (8 * 256) // rows
    acc = tl.full((32, 256), 0.0, tl.float32)
    i = 32 * io + tl.arange(0, 32)
    j = 256 * jo + tl.arange(0, 256)
    for ko in tl.range(0, 512, num_stages=4):
        k = 16 * ko + tl.arange(0, 16)
        A_shared = tl.load(A + _at(i[:, None], A_0) + _at(k[None, :], A_1))
        W_shared = tl.load(W + _at(k[:, None], W_0) + _at(j[None, :], W_1))
        acc = tl.dot(A_shared, W_shared, acc)
    tl.store(C + _at(i[:, None], C_0) + _at(j[None, :], C_1), acc.to(tl.bfloat16))


@triton.jit
def gemm_silu_1(Y, Y_0, Y_1, C, C_0, C_1):
    pid = tl.program_id(0)
    # 8 rows of tiles side by side share what they read
    first = pid // (8 * 256) * 8
    rows = tl.minimum(32 - first, 8)
    jo2 = first + pid % (8 * 256) % rows
    io2 = pid % (8 * 256) // rows
    i = 32 * io2 + tl.arange(0, 32)
    j = 256 * jo2 + tl.arange(0, 256)
    C_tile = tl.load(C + _at(i[:, None], C_0) + _at(j[None, :], C_1))
    Y_tile = _silu(C_tile.to(tl.float32)).to(tl.bfloat16)
    tl.store(Y + _at(i[:, None], Y_0) + _at(j[None, :], Y_1), Y_tile)


def _check(name, tensor, dtype, shape):
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{name} is {found}, not {dtype} {shape}")


def gemm_silu(A, W, Y=None):
    """gemm_silu(A: bf16[8192, 8192], W: bf16[8192, 8192], Y: bf16[8192, 8192])"""
    _check("A", A, torch.bfloat16, (8192, 8192))
    _check("W", W, torch.bfloat16, (8192, 8192))
    if Y is None:
        Y = torch.empty((8192, 8192), dtype=torch.bfloat16, device=A.device)
    _check("Y", Y, torch.bfloat16, (8192, 8192))
    C = torch.empty((8192, 8192), dtype=torch.bfloat16, device=A.device)
    blocks = 8192
    gemm_silu_0[(blocks,)](
        A,
        *A.stride(),
        W,
        *W.stride(),
        C,
        *C.stride(),
        num_warps=8,
        num_stages=4,
        enable_fp_fusion=False,
    )
    blocks = 8192
    gemm_silu_1[(blocks,)](
        Y,
        *Y.stride(),
        C,
        *C.stride(),
        num_warps=8,
        num_stages=4,
        enable_fp_fusion=False,
    )
    return Y
