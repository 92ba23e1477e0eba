# Emitted by `python -m benchmarks.gpu_report.emit`.
"""conv2d(X: bf16[B, C, P + R - 1, Q + S - 1], F: bf16[K, C, R, S], Y: bf16[B, K, P, Q])

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
def conv2d_0(
    X,
    X_0,
    X_1,
    X_2,
    X_3,
    F,
    F_0,
    F_1,
    F_2,
    F_3,
    Y,
    Y_0,
    Y_1,
    Y_2,
    Y_3,
    B,
    K,
    C,
    P,
    Q,
    R,
    S,
):
    pid = tl.program_id(0)
    ko_count = tl.cdiv(K, 64)
    # 8 rows of tiles side by side share what they read
    first = pid // (8 * ko_count) * 8
    rows = tl.minimum(B - first, 8)
    b = first + pid % (8 * ko_count) % rows
    ko = pid % (8 * ko_count) // rows
    k = 64 * ko + tl.arange(0, 64)
    for p in tl.range(0, P, num_stages=1):
        for qo in tl.range(0, tl.cdiv(Q, 64), num_stages=1):
            acc = tl.full((64, 64), 0.0, tl.float32)
            for r in tl.range(0, R, num_stages=1):
                for s in tl.range(0, S, num_stages=1):
                    X_index = 64 * qo + s + tl.arange(0, 64)
                    for co in tl.range(0, tl.cdiv(C, 32), num_stages=3):
                        c = 32 * co + tl.arange(0, 32)
                        X_at = (
                            X
                            + _at(b, X_0)
                            + _at(c[:, None], X_1)
                            + _at(p + r, X_2)
                            + _at(X_index[None, :], X_3)
                        )
                        X_shared = tl.load(
                            X_at,
                            mask=(c[:, None] < C) & (X_index[None, :] < Q + s),
                            other=0.0,
                        )
                        F_at = (
                            F
                            + _at(k[:, None], F_0)
                            + _at(c[None, :], F_1)
                            + _at(r, F_2)
                            + _at(s, F_3)
                        )
                        F_shared = tl.load(
                            F_at, mask=(k[:, None] < K) & (c[None, :] < C), other=0.0
                        )
                        acc = tl.dot(F_shared, X_shared, acc)
            q = 64 * qo + tl.arange(0, 64)
            Y_at = (
                Y
                + _at(b, Y_0)
                + _at(k[:, None], Y_1)
                + _at(p, Y_2)
                + _at(q[None, :], Y_3)
            )
            tl.store(
                Y_at, acc.to(tl.bfloat16), mask=(k[:, None] < K) & (q[None, :] < Q)
            )


def _check(name, tensor, dtype, shape):
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{name} is {found}, not {dtype} {shape}")


def conv2d(X, F, Y=None):
    """conv2d; outputs that are omitted are made."""
    B = X.shape[0]
    C = X.shape[1]
    K = F.shape[0]
    R = F.shape[2]
    P = X.shape[2] + 1 - R
    S = F.shape[3]
    Q = X.shape[3] + 1 - S
    _check("X", X, torch.bfloat16, (B, C, P + R - 1, Q + S - 1))
    _check("F", F, torch.bfloat16, (K, C, R, S))
    if Y is None:
        Y = torch.empty((B, K, P, Q), dtype=torch.bfloat16, device=X.device)
    _check("Y", Y, torch.bfloat16, (B, K, P, Q))
    blocks = B * triton.cdiv(K, 64)
    conv2d_0[(blocks,)](
        X,
        *X.stride(),
        F,
        *F.stride(),
        Y,
        *Y.stride(),
        B,
        K,
        C,
        P,
        Q,
        R,
        S,
        num_warps=4,
        num_stages=3,
        enable_fp_fusion=False,
    )
    return Y
