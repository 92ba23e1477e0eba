# Emitted by `python -m benchmarks.gpu_report.emit`.
"""rmsnorm(X: bf16[M, K], G: bf16[K], eps: f32, Y: bf16[M, K])

Sum ss in pieces of BLOCK_K: piece after piece in order, inside a piece as tl.sum adds.
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
def _rsqrt(x):
    """rsqrt in f32: at most 1.5 ulp for every argument."""
    t0 = tl.sqrt_rn(x)
    t1 = tl.div_rn(1.0, t0)
    return t1


@triton.jit
def rmsnorm_0(X, X_0, X_1, G, G_0, Y, Y_0, Y_1, K, eps, BLOCK_K: tl.constexpr):
    i = tl.program_id(0)
    ss = tl.full((), 0.0, tl.float32)
    k = tl.arange(0, BLOCK_K)
    X_shared = tl.load(X + _at(i, X_0) + _at(k, X_1), mask=k < K, other=0.0)
    term = tl.where(k < K, X_shared.to(tl.float32) * X_shared.to(tl.float32), 0.0)
    ss = ss + tl.sum(term, axis=0)
    r = _rsqrt(tl.div_rn(ss, K.to(tl.float32)) + eps)
    G_tile = tl.load(G + _at(k, G_0), mask=k < K, other=0.0)
    Y_tile = (X_shared.to(tl.float32) * r * G_tile.to(tl.float32)).to(tl.bfloat16)
    tl.store(Y + _at(i, Y_0) + _at(k, Y_1), Y_tile, mask=k < K)


def _check(name, tensor, dtype, shape):
    if tensor.dtype != dtype or tuple(tensor.shape) != shape:
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise ValueError(f"{name} is {found}, not {dtype} {shape}")


def rmsnorm(X, G, eps, Y=None):
    """rmsnorm(X: bf16[M, K], G: bf16[K], eps: f32, Y: bf16[M, K])"""
    M = X.shape[0]
    K = X.shape[1]
    _check("X", X, torch.bfloat16, (M, K))
    _check("G", G, torch.bfloat16, (K,))
    if Y is None:
        Y = torch.empty((M, K), dtype=torch.bfloat16, device=X.device)
    _check("Y", Y, torch.bfloat16, (M, K))
    blocks = M
    rmsnorm_0[(blocks,)](
        X,
        *X.stride(),
        G,
        *G.stride(),
        Y,
        *Y.stride(),
        K,
        eps,
        BLOCK_K=triton.next_power_of_2(K),
        num_warps=4,
        num_stages=1,
        enable_fp_fusion=False,
    )
    return Y
