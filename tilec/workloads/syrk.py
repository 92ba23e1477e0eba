"""Symmetric rank update of the lower triangle.

A [N, N] -> C [N, N] in/out, f32; C[i, j] += Σ_k A[i, k]·A[j, k] for j ≤ i, summed into C in the order of k.
"""

from __future__ import annotations

from tilec.lang import f32, kernel, sizes

N = sizes("N")


@kernel
def syrk(A: f32[N, N], C: f32[N, N]):
    for i in range(N):
        for j in range(i + 1):
            for k in range(N):
                C[i, j] += A[i, k] * A[j, k]
