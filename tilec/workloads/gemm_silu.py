"""Matrix product, then SiLU of the rounded product.

A [M, K], W [K, N] -> Y [M, N], all bf16; C = bf16(A·W) with an f32 sum in the order of k, Y = bf16(silu(C)).
silu(x) = x·sigmoid(x).
"""

from __future__ import annotations

from tilec.lang import bf16, f32, kernel, silu, sizes

M, N, K = sizes("M N K")


@kernel
def gemm_silu(A: bf16[M, K], W: bf16[K, N], Y: bf16[M, N]):
    C: bf16[M, N]
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc
    for i in range(M):
        for j in range(N):
            Y[i, j] = silu(C[i, j])
