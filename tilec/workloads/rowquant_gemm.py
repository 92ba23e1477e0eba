"""Row-wise quantisation of A, then the product of quantised operands, scaled back.

A [M, K] f16, W [K, N] f8e4m3 -> Y [M, N] f16; S[i] = max_k |A[i, k]| / 448 (448 is the largest E4M3FN), Q = f8e4m3(A / S),
Y[i, j] = f16((Σ_k Q[i, k]·W[k, j])·S[i]), summed in f32 in the order of k.
"""

from __future__ import annotations

from tilec.lang import f8e4m3, f16, f32, kernel, sizes

M, N, K = sizes("M N K")


@kernel
def rowquant_gemm(A: f16[M, K], W: f8e4m3[K, N], Y: f16[M, N]):
    S: f32[M]
    Q: f8e4m3[M, K]
    for i in range(M):
        m: f32 = 0
        for k in range(K):
            m = max(m, abs(A[i, k]))
        S[i] = m / 448
    for i in range(M):
        for k in range(K):
            Q[i, k] = A[i, k] / S[i]
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += Q[i, k] * W[k, j]
            Y[i, j] = acc * S[i]
