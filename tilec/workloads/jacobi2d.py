"""T double steps of a five-point Jacobi relaxation over two arrays (PolyBench's jacobi-2d).

A [N, N], B [N, N] f32, both in/out; each step writes the inner points of one from the other:
0.2·(centre and its four neighbours).
"""

from __future__ import annotations

from tilec.lang import f32, kernel, sizes

T, N = sizes("T N")


@kernel
def jacobi2d(A: f32[N, N], B: f32[N, N]):
    for t in range(T):
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])
        for i in range(1, N - 1):
            for j in range(1, N - 1):
                A[i, j] = 0.2 * (B[i, j] + B[i, j - 1] + B[i, j + 1] + B[i + 1, j] + B[i - 1, j])
