# Emitted by `python -m benchmarks.gpu_report.emit`.
"""transpose(A: f32[M, N], B: f32[N, M])

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
def transpose_0(A, A_0, A_1, B, B_0, B_1, M, N):
    pid = tl.program_id(0)
    io_count = tl.cdiv(M, 64)
    jo_count = tl.cdiv(N, 32)
    # 8 rows of tiles side by side share what they read
    first = pid // (8 * jo_count) * 8
    rows = tl.minimum(io_count - first, 8)
    io = first + pid % (8 * jo_count) % rows
    jo = pid % (8 * jo_count) // rows
    i = 64 * io + tl.arange(0, 64)
    j = 32 * jo + tl.arange(0, 32)
    A_shared = tl.load(
        A + _at(i[:, None], A_0) + _at(j[None, :], A_1),
        mask=(i[:, None] < M) & (j[None, :] < N),
        other=0.0,
    )
    tl.store(
        B + _at(j[:, None], B_0) + _at(i[None, :], B_1),
        tl.trans(A_shared),
        mask=(j[:, None] < N) & (i[None, :] < M),
    )


def _check(name, tensor, dtype, shape):
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{name} is {found}, not {dtype} {shape}")


def transpose(A, B=None):
    """transpose(A: f32[M, N], B: f32[N, M])"""
    M = A.shape[0]
    N = A.shape[1]
    _check("A", A, torch.float32, (M, N))
    if B is None:
        B = torch.empty((N, M), dtype=torch.float32, device=A.device)
    _check("B", B, torch.float32, (N, M))
    blocks = triton.cdiv(M, 64) * triton.cdiv(N, 32)
    transpose_0[(blocks,)](
        A,
        *A.stride(),
        B,
        *B.stride(),
        M,
        N,
        num_warps=4,
        num_stages=1,
        enable_fp_fusion=False,
    )
    return B
