"""Threads that exchange values through shared memory need a barrier between the phases: tilec inserts it, and keeps it there."""

import numpy as np

import tilec
from tilec import f32, sizes

M, N = sizes("M N")


@tilec.kernel
def neighbours(x: f32[M, N], y: f32[M, N]):
    for r in range(M):
        t: f32[N]  # one row, private to each r
        for i in range(N):
            t[i] = 2 * x[r, i]
        for j in range(1, N):
            y[r, j] = t[j - 1] + t[j]


s = neighbours.schedule(N=256).place("t", "shared").bind("r", "block.x").bind(("i", "j"), "thread.x")
print(s, end="\n\n")
print("verdict:", s.check(), end="\n\n")

try:
    s.barrier("i", remove=True)
except tilec.errors.LegalityError as error:
    print(error.render())

x = np.arange(3 * 256, dtype=np.float32).reshape(3, 256)
print("\nsame bits:", bool((s.run(x) == neighbours(x)).all()))
