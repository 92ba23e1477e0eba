"""A schedule for a CPU becomes C and a Python callable: panels, a register tile, vectors, threads; every bit kept.

Needs gcc or clang.
"""

import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np

import tilec

gemm_silu = tilec.workload("gemm_silu")

s = (
    gemm_silu.schedule()
    .compute_inline("C")
    .split("Y.i", 6, into=("io", "ii"))
    .split("Y.j", 16, into=("jo", "ji"))
    .reorder("jo", "io", "ii", "ji")
    .compute_at("acc", "io")
    .reorder("acc.k", "acc.i", "acc.j")  # the sum runs outside the tile
    .place("acc", "register")  # 6 x 16 sums stay in vector registers
    .cache_read("W", at="jo", memory="scratch")  # a panel of 16 columns, packed
    .vectorize(("S0.j", "S1.j", "ji", "W_scratch.1"))
    .unroll(("S0.i", "S1.i", "ii"))
    .parallel("jo")
)
print(s, end="\n\n")

f = s.build("c")  # compiled for this machine, kept in the cache
rng = np.random.default_rng(0)
for m, k, n in ((1, 1, 1), (6, 64, 16), (37, 53, 61)):
    A = rng.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    W = rng.standard_normal((k, n)).astype(ml_dtypes.bfloat16)
    same = f(A, W).view(np.uint16) == gemm_silu(A, W).view(np.uint16)
    print(f"{m}x{k}x{n}: {same.sum()} of {same.size} elements have the bits of the loops as written")

text = s.emit("c")
start = text.index("for (i64 k = 0")
print("\nthe innermost loop of a full tile begins:\n")
print("\n".join(line[16:] for line in text[text.rindex("\n", 0, start) + 1 :].split("\n")[:8]))

with tempfile.TemporaryDirectory() as folder:
    f.save(folder)
    print("\nsaved:", *sorted(p.name for p in Path(folder).iterdir()))
    g = tilec.load(folder)
    print("loaded and equal:", (g(A, W).view(np.uint16) == f(A, W).view(np.uint16)).all())
