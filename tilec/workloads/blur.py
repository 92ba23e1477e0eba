"""A 3×3 box blur in two stages: along rows, then along columns.

X [M+2, N+2] -> Y [M, N], f32; H[i, j] = (X[i, j] + X[i, j+1] + X[i, j+2])/3, Y[i, j] = (H[i, j] + H[i+1, j] + H[i+2, j])/3.
"""

from __future__ import annotations

from tilec.lang import f32, kernel, sizes

M, N = sizes("M N")


@kernel
def blur(X: f32[M + 2, N + 2], Y: f32[M, N]):
    H: f32[M + 2, N]
    for i in range(M + 2):
        for j in range(N):
            H[i, j] = (X[i, j] + X[i, j + 1] + X[i, j + 2]) / 3
    for i in range(M):
        for j in range(N):
            Y[i, j] = (H[i, j] + H[i + 1, j] + H[i + 2, j]) / 3
