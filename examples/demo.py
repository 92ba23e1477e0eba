"""The main job: tilec picks the schedule of GEMM+SiLU and of a quantize chain on two GPUs, proves, prints, prices and runs it."""

import numpy as np

import tilec

TARGETS = ("rtx-pro-6000", "h200")


def bits(array):
    return array.view(f"u{array.dtype.itemsize}")


def show(kernel, sizes, small, scalars, arrays, target):
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
    print(result.table())
    print("\nrejected:")
    for reason, rejected in result.rejected.items():
        print(f"  {rejected.count}, {reason}, for example {rejected.example.splitlines()[0]}")

    # the same steps on open sizes, run where no tile divides
    replayed = best.schedule.trace.apply(kernel.schedule())
    reference = kernel(**arrays, **scalars)
    same = (bits(replayed.run(**arrays, **scalars)) == bits(reference)).all()
    print(f"\nexecuted at {', '.join(f'{k}={v}' for k, v in small.items())} against the reference:", end=" ")
    print("bit-identical\n" if same else "DIFFERENT\n")
    assert same


def random_arrays(kernel, sizes):
    rng = np.random.default_rng(0)
    shapes = {b.name: (b.dtype, [e.eval(sizes) for e in b.shape]) for b in kernel.program.buffers if b.role == "param"}
    dtypes = tilec.ir.dtypes.DTYPES
    return {
        n: rng.standard_normal(shape).astype(np.float32).astype(dtypes[t].numpy)
        for n, (t, shape) in shapes.items()
        if n in tilec.ir.arguments.required(kernel.program)
    }


JOBS = (
    ("gemm_silu", {"M": 1024, "K": 4096, "N": 12288}, {"M": 67, "K": 45, "N": 131}, {}),
    ("act_chain", {"M": 1024, "N": 12288}, {"M": 67, "N": 131}, {"scale": 0.25}),
)

for name, sizes, small, scalars in JOBS:
    kernel = tilec.workload(name)
    print(kernel, end="\n\n")
    for target in TARGETS:
        show(kernel, sizes, small, scalars, random_arrays(kernel, small), target)
