# Emitted by `python -m benchmarks.gpu_report.emit`.
"""rowquant_gemm(A: f16[M, K], W: f8e4m3[K, N], Y: f16[M, N])

Sum acc in tiles of 64 × 64 × 32 (f8e4m3, summed in f32): tile after tile in order,
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
def _maximum(a, b):
    """NaN wins."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def rowquant_gemm_0(A, A_0, A_1, S, S_0, K, BLOCK_K: tl.constexpr):
    i = tl.program_id(0)
    m = tl.full((), 0.0, tl.float32)
    k = tl.arange(0, BLOCK_K)
    A_tile = tl.load(A + _at(i, A_0) + _at(k, A_1), mask=k < K, other=0.0)
    term = tl.where(k < K, tl.abs(A_tile.to(tl.float32)), float("-inf"))
    m = _maximum(m, tl.reduce(term, 0, _maximum))
    tl.store(S + _at(i, S_0), tl.div_rn(m, 448.0))


@triton.jit
def rowquant_gemm_1(A, A_0, A_1, W, W_0, W_1, Y, Y_0, Y_1, S, S_0, M, N, K):
    pid = tl.program_id(0)
    io_count = tl.cdiv(M, 64)
    jo_count = tl.cdiv(N, 64)
    # 8 rows of tiles side by side share what they read
    first = pid // (8 * jo_count) * 8
    rows = tl.minimum(io_count - first, 8)
    io = first + pid % (8 * jo_count) % rows
    jo = pid % (8 * jo_count) // rows
    acc = tl.full((64, 64), 0.0, tl.float32)
    i2 = 64 * io + tl.arange(0, 64)
    S_shared = tl.load(S + _at(i2, S_0), mask=i2 < M, other=0.0)
    j = 64 * jo + tl.arange(0, 64)
    for ko in tl.range(0, tl.cdiv(K, 32), num_stages=3):
        k = 32 * ko + tl.arange(0, 32)
        W_shared = tl.load(
            W + _at(k[:, None], W_0) + _at(j[None, :], W_1),
            mask=(k[:, None] < K) & (j[None, :] < N),
            other=0.0,
        )
        A_tile = tl.load(
            A + _at(i2[:, None], A_0) + _at(k[None, :], A_1),
            mask=(i2[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        t = tl.div_rn(A_tile.to(tl.float32), S_shared[:, None])
        Q = t.to(tl.float8e4nv)
        Q_inside = tl.where(k[None, :] < K, Q, 0.0)
        acc = tl.dot(Q_inside, W_shared, acc, max_num_imprecise_acc=32)
    Y_tile = (acc * S_shared[:, None]).to(tl.float16)
    tl.store(
        Y + _at(i2[:, None], Y_0) + _at(j[None, :], Y_1),
        Y_tile,
        mask=(i2[:, None] < M) & (j[None, :] < N),
    )


def _check(name, tensor, dtype, shape):
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{name} is {found}, not {dtype} {shape}")


def rowquant_gemm(A, W, Y=None):
    """rowquant_gemm(A: f16[M, K], W: f8e4m3[K, N], Y: f16[M, N])"""
    M = A.shape[0]
    K = A.shape[1]
    N = W.shape[1]
    _check("A", A, torch.float16, (M, K))
    _check("W", W, torch.float8_e4m3fn, (K, N))
    if Y is None:
        Y = torch.empty((M, N), dtype=torch.float16, device=A.device)
    _check("Y", Y, torch.float16, (M, N))
    S = torch.empty((M,), dtype=torch.float32, device=A.device)
    blocks = M
    rowquant_gemm_0[(blocks,)](
        A,
        *A.stride(),
        S,
        *S.stride(),
        K,
        BLOCK_K=triton.next_power_of_2(K),
        num_warps=4,
        num_stages=3,
        enable_fp_fusion=False,
    )
    blocks = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    rowquant_gemm_1[(blocks,)](
        A,
        *A.stride(),
        W,
        *W.stride(),
        Y,
        *Y.stride(),
        S,
        *S.stride(),
        M,
        N,
        K,
        num_warps=4,
        num_stages=3,
        enable_fp_fusion=False,
    )
    return Y
