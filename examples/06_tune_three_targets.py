"""The same kernel tuned for three machines: which schedule is picked, why, and what was rejected."""

import tilec

gemm_silu = tilec.workload("gemm_silu")

for target in ("rtx-pro-6000", "h200", "a100-sxm"):
    result = tilec.tune(gemm_silu, sizes={"M": 1024, "K": 4096, "N": 12288}, target=target)
    best = result.best
    print(f"{target}: {', '.join(f'{k}={v}' for k, v in best.knobs.items())}")
    print(f"  {result.why()}")
    print(f"  {result.considered} candidates; footprint against traffic, where no other candidate beats both:")
    for row in result.pareto("footprint", "traffic"):
        print(f"    {row.footprint / 2**10:6.0f} KiB per block  {row.traffic / 2**20:6.0f} MiB  {row.knobs}")
    for reason, rejected in result.rejected.items():
        print(f"  rejected: {rejected.count}, {reason}, for example {rejected.example.splitlines()[0]}")
