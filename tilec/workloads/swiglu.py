"""Two projections of one input, the gate through SiLU times the other.

X [M, K], Wg [K, N], Wu [K, N] -> Y [M, N], all bf16; G = bf16(X·Wg), U = bf16(X·Wu), Y = bf16(silu(G)·U); sums in f32.
"""

from __future__ import annotations

from tilec.lang import bf16, f32, kernel, silu, sizes

M, N, K = sizes("M N K")


@kernel
def swiglu(X: bf16[M, K], Wg: bf16[K, N], Wu: bf16[K, N], Y: bf16[M, N]):
    G: bf16[M, N]
    U: bf16[M, N]
    for i in range(M):
        for j in range(N):
            g: f32 = 0
            for k in range(K):
                g += X[i, k] * Wg[k, j]
            G[i, j] = g
    for i in range(M):
        for j in range(N):
            u: f32 = 0
            for k in range(K):
                u += X[i, k] * Wu[k, j]
            U[i, j] = u
    for i in range(M):
        for j in range(N):
            Y[i, j] = silu(G[i, j]) * U[i, j]
