"""The main job: tilec picks the schedule of GEMM+SiLU and of two quantize chains on two GPUs; proves, prints, prices, runs."""

import tilec
from tilec.runtime.compare import random_inputs


def bits(array):
    return array.view(f"u{array.dtype.itemsize}")


def show(kernel, sizes, small, target):
    given = ", ".join(f"{k}={v}" for k, v in sizes.items())
    print(f"=== {kernel.name} ({given}) on {target}\n")
    result = tilec.tune(kernel, sizes=sizes, target=target)
    best = result.best
    print(f"chosen: {', '.join(f'{k}={v}' for k, v in best.knobs.items())}")
    print("verdict:", best.schedule.check())
    print("\nwhy:", result.why())
    print("\ncosts:\n")
    print(best.cost.explain())
    print("\npseudocode:\n")
    print(best.schedule.emit("tile"))
    print("\nthe best candidates:\n")
    print(result.table(5))
    print("\nrejected:" if result.rejected else "\nnothing was rejected")
    for reason, rejected in result.rejected.items():
        print(f"  {rejected.count}, {reason}, for example {rejected.example.splitlines()[0]}")

    # the same steps at sizes that no tile divides
    replayed = best.schedule.trace.apply(kernel.schedule(**small))
    arrays, scalars = random_inputs(kernel.program, small)
    reference = kernel(**arrays, **scalars)
    same = (bits(replayed.run(**arrays, **scalars)) == bits(reference)).all()
    print(f"\nexecuted at {', '.join(f'{k}={v}' for k, v in small.items())} against the reference:", end=" ")
    print("bit-identical\n" if same else "DIFFERENT\n")
    assert same


BOTH = ("rtx-pro-6000", "h200")
JOBS = (
    ("gemm_silu", BOTH, {"M": 1024, "K": 4096, "N": 12288}, {"M": 67, "K": 45, "N": 131}),
    ("act_chain", BOTH, {"M": 1024, "N": 12288}, {"M": 67, "N": 131}),
    ("rowquant_gemm", ("h200",), {"M": 4096, "K": 4096, "N": 1536}, {"M": 67, "K": 45, "N": 131}),
)

for name, targets, sizes, small in JOBS:
    kernel = tilec.workload(name)
    print(kernel, end="\n\n")
    for target in targets:
        show(kernel, sizes, small, target)
