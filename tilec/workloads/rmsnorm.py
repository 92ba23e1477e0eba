"""Root-mean-square normalisation of rows.

X [M, K] bf16, G [K] bf16, eps f32 -> Y [M, K] bf16; Y[i, k] = bf16(X[i, k]·rsqrt(Σ_k X[i, k]²/K + eps)·G[k]).
"""

from __future__ import annotations

from tilec.lang import bf16, f32, kernel, rsqrt, sizes

M, K = sizes("M K")


@kernel
def rmsnorm(X: bf16[M, K], G: bf16[K], eps: f32, Y: bf16[M, K]):
    for i in range(M):
        ss: f32 = 0
        for k in range(K):
            ss += X[i, k] * X[i, k]
        r: f32 = rsqrt(ss / K + eps)
        for k in range(K):
            Y[i, k] = X[i, k] * r * G[k]
