"""Quantisation of each row with a scale of its own, from the row's largest magnitude.

A [M, K] f16 -> S [M] f32, Q [M, K] f8e4m3; S[i] = max_k |A[i, k]| / 448 (448 is the largest E4M3FN), Q = f8e4m3(A / S).
"""

from __future__ import annotations

from tilec.lang import f8e4m3, f16, f32, kernel, sizes

M, K = sizes("M K")


@kernel
def rowquant(A: f16[M, K], S: f32[M], Q: f8e4m3[M, K]):
    for i in range(M):
        m: f32 = 0
        for k in range(K):
            m = max(m, abs(A[i, k]))
        S[i] = m / 448
    for i in range(M):
        for k in range(K):
            Q[i, k] = A[i, k] / S[i]
