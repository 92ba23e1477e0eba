"""Softmax of rows, shifted by the row's maximum.

X [M, N] -> Y [M, N], bf16; m = max_j X[i, j], e[j] = exp(X[i, j] − m), Y[i, j] = bf16(e[j] / Σ_j e[j]); e and the sum in f32.
"""

from __future__ import annotations

from math import inf

from tilec.lang import bf16, exp, f32, kernel, sizes

M, N = sizes("M N")


@kernel
def softmax(X: bf16[M, N], Y: bf16[M, N]):
    for i in range(M):
        m: f32 = -inf
        for j in range(N):
            m = max(m, X[i, j])
        e: f32[N]
        total: f32 = 0
        for j in range(N):
            e[j] = exp(X[i, j] - m)
            total += e[j]
        for j in range(N):
            Y[i, j] = e[j] / total
