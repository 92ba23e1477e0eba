"""Matrix product, SiLU, then quantisation with a given scale.

A [M, K], W [K, N] bf16, scale f32 -> Q [M, N] f8e4m3; C = bf16(A·W), T = bf16(silu(C)), Q = f8e4m3(T / scale).
"""

from __future__ import annotations

from tilec.lang import bf16, f8e4m3, f32, kernel, silu, sizes

M, N, K = sizes("M N K")


@kernel
def gemm_silu_quantize(A: bf16[M, K], W: bf16[K, N], scale: f32, Q: f8e4m3[M, N]):
    C: bf16[M, N]
    T: bf16[M, N]
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc
    for i in range(M):
        for j in range(N):
            T[i, j] = silu(C[i, j])
    for i in range(M):
        for j in range(N):
            Q[i, j] = T[i, j] / scale
