# Emitted by `python -m benchmarks.gpu_report.emit`.
"""act_chain_i8(G: bf16[M, N], U: bf16[M, N], scale: f32, Q: i8[M, N])

Every operation rounds as written.
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
def _i8(x):
    """f32 to i8, nearest even, saturating; NaN becomes 0."""
    x = tl.where(x == x, x, 0.0)
    x = tl.where(x > 127.0, 127.0, tl.where(x < -128.0, -128.0, x))
    return ((x + 12582912.0) - 12582912.0).to(tl.int8)


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
def act_chain_i8_0(G, G_0, G_1, U, U_0, U_1, Q, Q_0, Q_1, M, N, scale):
    pid = tl.program_id(0)
    io_count = tl.cdiv(M, 32)
    jo_count = tl.cdiv(N, 64)
    # 8 rows of tiles side by side share what they read
    first = pid // (8 * jo_count) * 8
    rows = tl.minimum(io_count - first, 8)
    io = first + pid % (8 * jo_count) % rows
    jo = pid % (8 * jo_count) // rows
    i = 32 * io + tl.arange(0, 32)
    j = 64 * jo + tl.arange(0, 64)
    G_tile = tl.load(
        G + _at(i[:, None], G_0) + _at(j[None, :], G_1),
        mask=(i[:, None] < M) & (j[None, :] < N),
        other=0.0,
    )
    T = _silu(G_tile.to(tl.float32)).to(tl.bfloat16).to(tl.float32)
    U_tile = tl.load(
        U + _at(i[:, None], U_0) + _at(j[None, :], U_1),
        mask=(i[:, None] < M) & (j[None, :] < N),
        other=0.0,
    )
    Z = (T * U_tile.to(tl.float32)).to(tl.bfloat16).to(tl.float32)
    tl.store(
        Q + _at(i[:, None], Q_0) + _at(j[None, :], Q_1),
        _i8(tl.div_rn(Z, scale)),
        mask=(i[:, None] < M) & (j[None, :] < N),
    )


def _check(name, tensor, dtype, shape):
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{name} is {found}, not {dtype} {shape}")


def act_chain_i8(G, U, scale, Q=None):
    """act_chain_i8(G: bf16[M, N], U: bf16[M, N], scale: f32, Q: i8[M, N])"""
    M = G.shape[0]
    N = G.shape[1]
    _check("G", G, torch.bfloat16, (M, N))
    _check("U", U, torch.bfloat16, (M, N))
    if Q is None:
        Q = torch.empty((M, N), dtype=torch.int8, device=G.device)
    _check("Q", Q, torch.int8, (M, N))
    blocks = triton.cdiv(M, 32) * triton.cdiv(N, 64)
    act_chain_i8_0[(blocks,)](
        G,
        *G.stride(),
        U,
        *U.stride(),
        Q,
        *Q.stride(),
        M,
        N,
        scale,
        num_warps=4,
        num_stages=1,
        enable_fp_fusion=False,
    )
    return Q
