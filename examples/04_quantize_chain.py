"""A quantize chain: T = SiLU(G), Z = T·U, Q = quantize(Z). What each fusion moves, and that fusing never moves a rounding."""

import ml_dtypes
import numpy as np

import tilec

chain = tilec.workload("act_chain")
print(chain, end="\n\n")

separate = chain.schedule()
first = separate.compute_inline("T")  # SiLU inside the product; T is never stored
last = separate.compute_inline("Z")  # the product inside the quantisation
fused = first.compute_inline("Z")

MiB = 2**20
print("partition                 global traffic   working set")
for name, s in (("separate", separate), ("SiLU+product", first), ("product+quantize", last), ("all three", fused)):
    cost = s.cost("h200", M=1024, N=12288)
    print(f"{name:24} {cost.traffic.total('global') / MiB:10.0f} MiB {cost.working_set['global'] / MiB:9.0f} MiB")

print("\n" + str(fused), end="\n\n")
print("verdict:", fused.check())

rng = np.random.default_rng(0)
G, U = (rng.standard_normal((33, 65)).astype(ml_dtypes.bfloat16) for _ in range(2))
reference = chain(G, U, scale=0.25)
print("same bits:", bool((fused.run(G, U, scale=0.25).view(np.uint8) == reference.view(np.uint8)).all()))
