"""Matrix product, rounded to bf16 at the store.

A [M, K], W [K, N] -> C [M, N], all bf16; C[i, j] = bf16(Σ_k A[i, k]·W[k, j]), summed in f32 in the order of k.
"""

from __future__ import annotations

from tilec.lang import bf16, f32, kernel, sizes

M, N, K = sizes("M N K")


@kernel
def gemm(A: bf16[M, K], W: bf16[K, N], C: bf16[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc
