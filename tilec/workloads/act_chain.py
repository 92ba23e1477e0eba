"""Activation, gate and quantisation with a given scale: three elementwise steps; 1-byte output (f8e4m3).

G [M, N], U [M, N] bf16, scale f32 -> Q [M, N] f8e4m3; T = bf16(silu(G)), Z = bf16(T·U), Q = f8e4m3(Z / scale), saturating.
"""

from __future__ import annotations

from tilec.lang import bf16, f8e4m3, f32, kernel, silu, sizes

M, N = sizes("M N")


@kernel
def act_chain(G: bf16[M, N], U: bf16[M, N], scale: f32, Q: f8e4m3[M, N]):
    T: bf16[M, N]
    Z: bf16[M, N]
    for i in range(M):
        for j in range(N):
            T[i, j] = silu(G[i, j])
    for i in range(M):
        for j in range(N):
            Z[i, j] = T[i, j] * U[i, j]
    for i in range(M):
        for j in range(N):
            Q[i, j] = Z[i, j] / scale
