"""tilec's own pick, compiled: no schedule is written here. With the argument `packed`, weights packed ahead of the call."""

import sys

import ml_dtypes
import numpy as np
from serve import Missing, serve

import tilec
from benchmarks.cpu.kernels import KERNELS


def make(row, x, threads):
    kernel, allowed = KERNELS[row["kernel"]]
    sizes = {n: row[n] for n in kernel.program.sizes}
    packed = "packed" in sys.argv
    if packed and row["kind"] != "gemm_silu":
        raise Missing("it has no weights")
    f = tilec.compile(kernel, "host", threads=threads, ahead="W" if packed else (), **allowed, **sizes)
    arrays = {n: a.view(ml_dtypes.bfloat16) if a.dtype == np.uint16 else a for n, a in x.items()}
    order = [p for p in kernel.parameters if p in arrays]
    inputs = [arrays[p] for p in order]
    scalars = {n: row[n] for n, _ in kernel.program.scalars}
    first = f(*inputs, **scalars)
    outputs = first if isinstance(first, tuple) else (first,)
    names = [p for p in kernel.parameters if p not in arrays and p not in scalars]
    known = {**dict(zip(order, inputs, strict=True)), **dict(zip(names, outputs, strict=True))}
    if packed:
        ready = f.pack(W=arrays["W"])
        return (lambda: f(arrays["A"], ready, outputs[0])), lambda: np.asarray(outputs[0]).astype(np.float32)
    run = f.raw(known, {}, scalars, threads)
    return run, lambda: np.asarray(outputs[0]).astype(np.float32)


if __name__ == "__main__":
    serve(make)
