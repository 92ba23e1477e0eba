"""Running a schedule against its original by interpretation, bit for bit."""

from __future__ import annotations

import numpy as np

from tilec.ir import interp
from tilec.ir.dtypes import DTYPES, to_storage
from tilec.ir.program import Program


def arguments(program: Program, sizes: dict[str, int], seed: int = 0) -> dict[str, np.ndarray]:
    """Random values for every parameter, also for outputs (what is not overwritten must stay)."""
    rng = np.random.default_rng(seed)
    out = {}
    for b in program.buffers:
        if b.role == "param":
            shape = tuple(e.eval(sizes) for e in b.shape)
            values = rng.normal(size=shape).astype("f4") if DTYPES[b.dtype].kind == "float" else rng.integers(-9, 9, shape)
            out[b.name] = to_storage(b.dtype, values)
    return out


def same(program: Program, scalars: dict[str, float] | None = None, **sizes: int) -> None:
    """Assert that the scheduled program computes what its original does, to the bit."""
    original = program.source
    given = arguments(original, {**dict(original.bound), **sizes})
    want = interp.run(original, given, sizes, scalars)
    got = interp.run(program, given, sizes, scalars)
    assert want.keys() == got.keys() and want
    for name in want:
        assert want[name].tobytes() == got[name].tobytes(), f"{name} differs at {sizes}"
