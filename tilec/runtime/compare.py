"""A result against the reference: random inputs from a seed, and how outputs differ, bit by bit and by how much."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from tilec.errors import ScheduleError
from tilec.ir import interp
from tilec.ir.arguments import check_scalars, written
from tilec.ir.dtypes import DTYPES, to_arithmetic, to_storage
from tilec.ir.program import Program
from tilec.runtime.call import pure_outputs, shape_of
from tilec.runtime.numpy_run import Runner, runner

LARGEST_RUN = 4 * 2**30  # bytes of arrays that are made up for a comparison


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
        """Equal to the bit."""
        return self.different == 0


def random_inputs(program: Program, sizes: Mapping[str, int], seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """(arrays, scalars) for every parameter but the pure outputs: normal values (integers: -8 … 8), the same for one seed.

    Sums of a few hundred such values stay finite in every float format; an f8 input is scaled by its own rounding only.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ScheduleError(f"run: the seed must be an integer >= 0, not {seed!r}")
    rng = np.random.default_rng(seed)
    pure = pure_outputs(program)
    total = sum(prod(shape_of(b, sizes)) * DTYPES[b.dtype].bytes for b in program.source.buffers)
    if total > LARGEST_RUN:
        raise ScheduleError(f"run: the arrays take {total:,} bytes; at most {LARGEST_RUN:,} are made up. Choose smaller sizes")
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
    return arrays, random_scalars(program, rng)


def random_scalars(program: Program, rng: np.random.Generator) -> dict[str, float]:
    """Small positive ones: integers 1 … 4, others eighths up to 2."""
    return {n: int(rng.integers(1, 5)) if t.startswith("i") else float(rng.integers(1, 17)) / 8 for n, t in program.scalars}


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


def _unsigned(raw: np.dtype) -> np.dtype:
    return np.dtype(f"u{raw.itemsize}")
