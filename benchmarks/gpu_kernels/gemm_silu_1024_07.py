# Emitted by `python -m benchmarks.gpu_report.emit`.
"""gemm_silu(A: bf16[1024, 4096], W: bf16[4096, 12288], Y: bf16[1024, 12288])

Sum acc in tiles of 128 × 128 × 32 (bf16, summed in f32): tile after tile in order,
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
def gemm_silu_0(A, A_0, A_1, W, W_0, W_1, Y, Y_0, Y_1):
    pid = tl.program_id(0)
    # 8 rows of tiles side by side share what they read
    first = pid // (8 * 8) * 8
    rows = tl.minimum(96 - first, 8)
    jo = first + pid % (8 * 8) % rows
    io = pid % (8 * 8) // rows
    acc = tl.full((128, 128), 0.0, tl.float32)
    i = 128 * io + tl.arange(0, 128)
    j = 128 * jo + tl.arange(0, 128)
    for ko in tl.range(0, 128, num_stages=2):
        k = 32 * ko + tl.arange(0, 32)
        A_shared = tl.load(A + _at(i[:, None], A_0) + _at(k[None, :], A_1))
        W_shared = tl.load(W + _at(k[:, None], W_0) + _at(j[None, :], W_1))
        acc = tl.dot(A_shared, W_shared, acc)
    acc_0_64, acc_64_128 = tl.split(
        tl.permute(tl.reshape(acc, (128, 2, 64)), (0, 2, 1))
    )
    acc_0_32, acc_32_64 = tl.split(
        tl.permute(tl.reshape(acc_0_64, (128, 2, 32)), (0, 2, 1))
    )
    acc_64_96, acc_96_128 = tl.split(
        tl.permute(tl.reshape(acc_64_128, (128, 2, 32)), (0, 2, 1))
    )
    C = acc_0_32.to(tl.bfloat16).to(tl.float32)
    j2 = 128 * jo + tl.arange(0, 32)
    tl.store(Y + _at(i[:, None], Y_0) + _at(j2[None, :], Y_1), _silu(C).to(tl.bfloat16))
    j3 = 128 * jo + 32 + tl.arange(0, 32)
    if 128 * jo + 32 < 12288:
        C2 = acc_32_64.to(tl.bfloat16).to(tl.float32)
        tl.store(
            Y + _at(i[:, None], Y_0) + _at(j3[None, :], Y_1), _silu(C2).to(tl.bfloat16)
        )
    j4 = 128 * jo + 64 + tl.arange(0, 32)
    if 128 * jo + 64 < 12288:
        C3 = acc_64_96.to(tl.bfloat16).to(tl.float32)
        tl.store(
            Y + _at(i[:, None], Y_0) + _at(j4[None, :], Y_1), _silu(C3).to(tl.bfloat16)
        )
    j5 = 128 * jo + 96 + tl.arange(0, 32)
    if 128 * jo + 96 < 12288:
        C4 = acc_96_128.to(tl.bfloat16).to(tl.float32)
        tl.store(
            Y + _at(i[:, None], Y_0) + _at(j5[None, :], Y_1), _silu(C4).to(tl.bfloat16)
        )


def _check(name, tensor, dtype, shape):
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{name} is {found}, not {dtype} {shape}")


def gemm_silu(A, W, Y=None):
    """gemm_silu(A: bf16[1024, 4096], W: bf16[4096, 12288], Y: bf16[1024, 12288])"""
    _check("A", A, torch.bfloat16, (1024, 4096))
    _check("W", W, torch.bfloat16, (4096, 12288))
    if Y is None:
        Y = torch.empty((1024, 12288), dtype=torch.bfloat16, device=A.device)
    _check("Y", Y, torch.bfloat16, (1024, 12288))
    blocks = 768
    gemm_silu_0[(blocks,)](
        A,
        *A.stride(),
        W,
        *W.stride(),
        Y,
        *Y.stride(),
        num_warps=8,
        num_stages=2,
        enable_fp_fusion=False,
    )
    return Y
