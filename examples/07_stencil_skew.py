"""Time tiling of a stencil: the time loop and the space loop cannot be tiled as they stand; after a skew they can."""

import numpy as np

import tilec
from tilec import f32, sizes

T, N = sizes("T N")


@tilec.kernel
def heat(a: f32[T + 1, N + 2]):
    for t in range(T):
        for i in range(1, N + 1):
            a[t + 1, i] = 0.25 * (a[t, i - 1] + 2 * a[t, i] + a[t, i + 1])


s = heat.schedule()
try:
    s.tile(("t", "i"), (8, 32))
except tilec.errors.LegalityError as error:
    print(error.render(), end="\n\n")

tiled = s.skew("i", by="t").tile(("t", "i"), (8, 32))
print(tiled, end="\n\n")
print("verdict:", tiled.check())
print("steps:")
print(tiled.trace)

rng = np.random.default_rng(0)
a = rng.random((21, 102), dtype=np.float32)
b = a.copy()
heat(a)  # the written order, in place
tiled.run(b)
print("\nsame bits after 20 steps of 100 points:", bool((a == b).all()))
