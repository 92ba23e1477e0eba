"""Inputs made from a seed, and how two results differ: bit by bit, and by how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilec.ir.dtypes import DTYPES, to_arithmetic, to_storage
from tilec.ir.program import Program
from tilec.runtime.call import pure_outputs, shape_of


@dataclass(frozen=True)
class Difference:
    """Of one output: elements, how many differ in their bits, the largest absolute and relative difference of values."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    elements: int
    different: int
    absolute: float
    relative: float

    @property
    def identical(self) -> bool:
        return self.different == 0


def random_inputs(program: Program, sizes: Mapping[str, int], seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """(arrays, scalars) for every parameter but the pure outputs: normal values (integers: -8 … 8), the same for one seed.

    Sums of a few hundred such values stay finite in every float format; an f8 input is scaled by its own rounding only.
    """
    rng = np.random.default_rng(seed)
    pure = pure_outputs(program)
    arrays: dict[str, np.ndarray] = {}
    for b in program.source.buffers:
        if b.role != "param" or b.name in pure:
            continue
        shape = shape_of(b, sizes)
        dtype = DTYPES[b.dtype]
        if dtype.kind == "int":
            arrays[b.name] = rng.integers(-8, 9, shape).astype(dtype.numpy)
        else:
            arithmetic = np.float64 if dtype.arithmetic == "f64" else np.float32
            arrays[b.name] = to_storage(b.dtype, rng.standard_normal(shape).astype(arithmetic))
    scalars = {n: int(rng.integers(1, 5)) if t.startswith("i") else float(rng.integers(1, 17)) / 8 for n, t in program.scalars}
    return arrays, scalars


def compare(name: str, dtype: str, result: np.ndarray, reference: np.ndarray) -> Difference:
    """Bits and values of `result` against `reference`; two NaNs are no difference of value, but their bits count."""
    raw = DTYPES[dtype].raw
    a, b = np.ascontiguousarray(result), np.ascontiguousarray(reference)
    bits = a.view(_unsigned(raw)) != b.view(_unsigned(raw))
    x, y = (to_arithmetic(dtype, v).astype(np.float64) for v in (a, b))
    with np.errstate(invalid="ignore", divide="ignore"):
        gap = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
        share = np.where(gap == 0, 0.0, gap / np.abs(y))
    largest = (float(gap.max()), float(share.max())) if gap.size else (0.0, 0.0)
    return Difference(name, dtype, a.shape, int(a.size), int(bits.sum()), *largest)


def _unsigned(raw: np.dtype) -> np.dtype:
    return np.dtype(f"u{raw.itemsize}")
