"""Attention of one head, step by step: scores, softmax of rows, weighted sum.

Q [M, D], K [N, D], V [N, D] bf16, scale f32 -> O [M, D] bf16; S = scale·(Q·Kᵀ) in f32, P = bf16(softmax of the rows of S),
O = bf16(P·V); sums in f32.
"""

from __future__ import annotations

from math import inf

from tilec.lang import bf16, exp, f32, kernel, sizes

M, N, D = sizes("M N D")


@kernel
def attention(Q: bf16[M, D], K: bf16[N, D], V: bf16[N, D], scale: f32, O: bf16[M, D]):
    S: f32[M, N]
    E: f32[M, N]
    P: bf16[M, N]
    for i in range(M):
        for j in range(N):
            s: f32 = 0
            for d in range(D):
                s += Q[i, d] * K[j, d]
            S[i, j] = s * scale
    for i in range(M):
        m: f32 = -inf
        for j in range(N):
            m = max(m, S[i, j])
        total: f32 = 0
        for j in range(N):
            E[i, j] = exp(S[i, j] - m)
            total += E[i, j]
        for j in range(N):
            P[i, j] = E[i, j] / total
    for i in range(M):
        for d in range(D):
            o: f32 = 0
            for j in range(N):
                o += P[i, j] * V[j, d]
            O[i, d] = o
