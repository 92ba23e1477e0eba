"""Inner product.

x [N], y [N] -> out [1], f32; out[0] = Σ_i x[i]·y[i], in the order of i.
"""

from __future__ import annotations

from tilec.lang import f32, kernel, sizes

N = sizes("N")


@kernel
def dot(x: f32[N], y: f32[N], out: f32[1]):
    acc: f32 = 0
    for i in range(N):
        acc += x[i] * y[i]
    out[0] = acc
