"""Matrix transposition.

A [M, N] -> B [N, M], f32; B[j, i] = A[i, j].
"""

from __future__ import annotations

from tilec.lang import f32, kernel, sizes

M, N = sizes("M N")


@kernel
def transpose(A: f32[M, N], B: f32[N, M]):
    for i in range(M):
        for j in range(N):
            B[j, i] = A[i, j]
