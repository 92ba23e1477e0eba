"""Two-stage blur: the first stage computed at a tile of the second, with the halo recomputed, counted and priced."""

import numpy as np

import tilec

blur = tilec.workload("blur")
print(blur, end="\n\n")

tiled = blur.schedule().tile(("Y.i", "Y.j"), (16, 32), into=(("io", "ii"), ("jo", "ji")))
local = tiled.compute_at("H", "jo").place("H", "shared")
print(local, end="\n\n")
print("verdict:", local.check(), end="\n\n")

for name, s in (("stored whole", tiled), ("at the tile", local)):
    cost = s.cost("rtx-4090", M=1024, N=1024)
    print(f"{name:13} {cost.flops:>12,} flops   {cost.traffic.total('global'):>12,} B of global traffic")

try:
    tiled.compute_at("H", "H.i")
except tilec.errors.ScheduleError as error:
    print("\n" + error.render())

X = np.random.default_rng(0).random((52, 73), dtype=np.float32)
print("\nsame bits:", bool((local.run(X) == blur(X)).all()))
