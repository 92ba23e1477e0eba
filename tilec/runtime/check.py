"""A built program against the reference interpretation of its original, on random inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tilec.ir import interp
from tilec.ir.arguments import check_scalars, written
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Program
from tilec.runtime.call import shape_of
from tilec.runtime.compare import Difference, compare, random_inputs
from tilec.runtime.numpy_run import Runner, runner


def against_reference(
    program: Program, sizes: Mapping[str, int], seed: int = 0, build: Callable[[Program], Runner] = runner
) -> list[Difference]:
    """One Difference per written parameter: `build(program)` next to the original program interpreted in the written order.

    sizes: every free size (bound ones may be repeated). Outputs that the kernel does not read start at zero in both.
    """
    original = program.source
    known = {**dict(original.bound), **sizes}
    arrays, scalars = random_inputs(program, known, seed)
    for b in original.buffers:
        if b.role == "param" and b.name not in arrays:
            arrays[b.name] = np.zeros(shape_of(b, known), DTYPES[b.dtype].numpy)
    values = check_scalars(original, scalars)
    want = interp.run(original, arrays, known, scalars)
    got = build(program)(arrays, {n: known[n] for n in program.sizes}, values)
    return [compare(n, original.buffer[n].dtype, got[n], want[n]) for n in written(original)]
