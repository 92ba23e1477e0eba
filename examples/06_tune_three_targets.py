"""The same kernel tuned for three machines: which schedule is picked, why, and what was rejected."""

import tilec

gemm_silu = tilec.workload("gemm_silu")

for target in ("rtx-pro-6000", "h200", "a100-sxm"):
    result = tilec.tune(gemm_silu, sizes={"M": 1024, "K": 4096, "N": 12288}, target=target)
    best = result.best
    print(f"{target}: {best.knobs}")
    print(f"  bound by {best.cost.bound}, {best.cost.time * 1e6:.0f} µs estimated")
    for reason, rejected in result.rejected.items():
        print(f"  rejected: {rejected.count} by {reason}, for example {rejected.example}")
