# Emitted by `python -m benchmarks.gpu_report.emit`.
"""gemm(A: bf16[M, K], W: bf16[K, N], C: bf16[M, N])

Sum acc in tiles of 64 × 64 × 32 (bf16, summed in f32): tile after tile in order, inside
    a tile as tl.dot adds.
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
def gemm_0(A, A_0, A_1, W, W_0, W_1, C, C_0, C_1, M, N, K):
    pid = tl.program_id(0)
    io_count = tl.cdiv(M, 64)
    jo_count = tl.cdiv(N, 64)
    # 8 rows of tiles side by side share what they read
    first = pid // (8 * jo_count) * 8
    rows = tl.minimum(io_count - first, 8)
    io = first + pid % (8 * jo_count) % rows
    jo = pid % (8 * jo_count) // rows
    acc = tl.full((64, 64), 0.0, tl.float32)
    i = 64 * io + tl.arange(0, 64)
    j = 64 * jo + tl.arange(0, 64)
    for ko in tl.range(0, tl.cdiv(K, 32), num_stages=3):
        k = 32 * ko + tl.arange(0, 32)
        A_shared = tl.load(
            A + _at(i[:, None], A_0) + _at(k[None, :], A_1),
            mask=(i[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        W_shared = tl.load(
            W + _at(k[:, None], W_0) + _at(j[None, :], W_1),
            mask=(k[:, None] < K) & (j[None, :] < N),
            other=0.0,
        )
        acc = tl.dot(A_shared, W_shared, acc)
    tl.store(
        C + _at(i[:, None], C_0) + _at(j[None, :], C_1),
        acc.to(tl.bfloat16),
        mask=(i[:, None] < M) & (j[None, :] < N),
    )


def _check(name, tensor, dtype, shape):
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{name} is {found}, not {dtype} {shape}")


def gemm(A, W, C=None):
    """gemm(A: bf16[M, K], W: bf16[K, N], C: bf16[M, N])"""
    M = A.shape[0]
    K = A.shape[1]
    N = W.shape[1]
    _check("A", A, torch.bfloat16, (M, K))
    _check("W", W, torch.bfloat16, (K, N))
    if C is None:
        C = torch.empty((M, N), dtype=torch.bfloat16, device=A.device)
    _check("C", C, torch.bfloat16, (M, N))
    blocks = triton.cdiv(M, 64) * triton.cdiv(N, 64)
    gemm_0[(blocks,)](
        A,
        *A.stride(),
        W,
        *W.stride(),
        C,
        *C.stride(),
        M,
        N,
        K,
        num_warps=4,
        num_stages=3,
        enable_fp_fusion=False,
    )
    return C
