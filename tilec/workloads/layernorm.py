"""Layer normalisation of rows, the variance in a second pass.

X [M, K], G [K], B [K] bf16, eps f32 -> Y [M, K] bf16; μ = Σ X/K, v = Σ (X − μ)²/K, Y = bf16((X − μ)·rsqrt(v + eps)·G + B).
"""

from __future__ import annotations

from tilec.lang import bf16, f32, kernel, rsqrt, sizes

M, K = sizes("M K")


@kernel
def layernorm(X: bf16[M, K], G: bf16[K], B: bf16[K], eps: f32, Y: bf16[M, K]):
    for i in range(M):
        total: f32 = 0
        for k in range(K):
            total += X[i, k]
        mean: f32 = total / K
        ss: f32 = 0
        for k in range(K):
            ss += (X[i, k] - mean) * (X[i, k] - mean)
        r: f32 = rsqrt(ss / K + eps)
        for k in range(K):
            Y[i, k] = (X[i, k] - mean) * r * G[k] + B[k]
