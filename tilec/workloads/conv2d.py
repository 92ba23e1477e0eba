"""Convolution of images with filters (as in deep learning: no flip), valid positions only, stride 1.

X [B, C, P+R-1, Q+S-1], F [K, C, R, S] -> Y [B, K, P, Q], all bf16;
Y[b, k, p, q] = bf16(Σ_c Σ_r Σ_s X[b, c, p+r, q+s]·F[k, c, r, s]), summed in f32.
"""

from __future__ import annotations

from tilec.lang import bf16, f32, kernel, sizes

B, K, C, P, Q, R, S = sizes("B K C P Q R S")


@kernel
def conv2d(X: bf16[B, C, P + R - 1, Q + S - 1], F: bf16[K, C, R, S], Y: bf16[B, K, P, Q]):
    for b in range(B):
        for k in range(K):
            for p in range(P):
                for q in range(Q):
                    acc: f32 = 0
                    for c in range(C):
                        for r in range(R):
                            for s in range(S):
                                acc += X[b, c, p + r, q + s] * F[k, c, r, s]
                    Y[b, k, p, q] = acc
