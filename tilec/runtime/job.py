"""What one candidate needs to be run, checked and timed in another process, and how its outputs are judged."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tilec.ir import interp
from tilec.ir.arguments import check_scalars, written
from tilec.ir.dtypes import DTYPES, to_arithmetic, to_storage
from tilec.ir.program import Program
from tilec.runtime.backends import Options
from tilec.runtime.bound import bounds
from tilec.runtime.call import pure_outputs, shape_of
from tilec.runtime.compare import random_inputs, random_scalars
from tilec.runtime.sample import Sample, sample

BLOCK = 1_048_573  # a prime: rows of usual lengths then never repeat
WORK = 3e7  # statement instances that the reference of a check may run
WORK_BOUNDED = 3e6  # where an error bound is followed through them


@dataclass(frozen=True)
class Expected:
    """Of one output, at the sampled cells: the reference's elements, or values in f64 with how far a result may be off."""

    elements: np.ndarray | None = None
    values: np.ndarray | None = None
    allowed: np.ndarray | None = None


@dataclass(frozen=True)
class Check:
    """What is compared. exact: bit for bit. part: which cells; expected: what they must hold."""

    exact: bool
    part: Sample
    expected: Mapping[str, Expected]

    def wrong(self, outputs: Mapping[str, np.ndarray]) -> str | None:
        """The first output that is not as it must be, in words; None where all are."""
        for name, want in self.expected.items():
            got = self.part.part(name, outputs[name])
            text = _bits_differ(name, got, want) if self.exact else _values_differ(name, got, want)
            if text is not None:
                return text
        return None


@dataclass(frozen=True)
class Job:
    """program: scheduled, with `sizes` for what it leaves open; source: the kernel's own program, every size open, and `numbers`
    for them. code: the program's text, as the backend writes it. folder: where inputs lie as raw files (then `scalars` holds the
    scalars); None: all are made from the seed. check: None: results are not looked at.
    """

    program: Program
    sizes: Mapping[str, int]
    source: Program
    numbers: Mapping[str, int]
    backend: str
    options: Options
    code: str = ""
    seed: int = 0
    folder: Path | None = None
    scalars: Mapping[str, Any] = field(default_factory=dict)
    check: Check | None = None
    reset: bool = True  # does a run change what the next one reads?


def strict(program: Program) -> bool:
    """Has the program no permission, so that its results are those of the reference to the bit?"""
    return not (program.reassociate or program.contract or program.hardware_rounding)


def check_for(
    source: Program,
    program: Program,
    numbers: Mapping[str, int],
    seed: int = 0,
    work: float | None = None,
    inputs: tuple[Mapping[str, np.ndarray], Mapping[str, Any]] | None = None,
) -> Check:
    """The reference of a scheduled program at those sizes, on the inputs of that seed: computed once for all candidates. Bit for
    bit of a strict program; within an error bound computed in f64 (runtime/bound.py) where it has permissions.

    source: the kernel's program with its sizes open. Where the whole problem takes more than `work` statement instances (default:
    3e7, 3e6 with a bound), cells of its free sizes are sampled. inputs: what `make_inputs` gives, where it is there already.
    """
    exact = strict(program)
    part = sample(source, numbers, work or (WORK if exact else WORK_BOUNDED), seed)
    arrays, scalars = inputs or make_inputs(source, numbers, seed)
    reduced = {n: part.part(n, a) for n, a in arrays.items()}
    values = check_scalars(source, scalars)
    if exact:
        results = interp.run(source, reduced, part.sizes, values)
        return Check(True, part, {n: Expected(elements=results[n]) for n in written(source)})
    found = bounds(source, reduced, part.sizes, values)
    return Check(False, part, {n: Expected(values=v, allowed=e) for n, (v, e) in found.items()})


def make_inputs(source: Program, numbers: Mapping[str, int], seed: int) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Every parameter and scalar, from the seed; what is only written starts at zero. Of a large array, a random block of prime
    length is repeated: making and rounding a hundred million numbers would take longer than running the kernel."""
    parameters = [b for b in source.buffers if b.role == "param"]
    shapes = {b.name: shape_of(b, numbers) for b in parameters}
    if sum(map(prod, shapes.values())) <= 4 * BLOCK:
        arrays, scalars = random_inputs(source, numbers, seed)
    else:
        rng = np.random.default_rng(seed)
        pure = pure_outputs(source)
        arrays = {b.name: _repeated(b.dtype, shapes[b.name], rng) for b in parameters if b.name not in pure}
        scalars = random_scalars(source, rng)
    for b in parameters:
        if b.name not in arrays:
            arrays[b.name] = np.zeros(shapes[b.name], DTYPES[b.dtype].numpy)
    return arrays, scalars


def _repeated(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    d, count = DTYPES[dtype], min(prod(shape), BLOCK)
    if d.kind == "int":
        block = rng.integers(-8, 9, count).astype(d.numpy)
    else:
        block = to_storage(dtype, rng.standard_normal(count).astype(np.float64 if d.arithmetic == "f64" else np.float32))
    return np.resize(block.view(d.raw), shape).view(d.numpy)


def store_inputs(job_folder: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Raw files that several processes read instead of making the same numbers again."""
    for name, array in arrays.items():
        array.tofile(job_folder / f"{name}.raw")


def load_inputs(job: Job) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Arrays of this process's own, and scalars."""
    if job.folder is None:
        return make_inputs(job.source, job.numbers, job.seed)
    arrays = {}
    for b in job.source.buffers:
        if b.role == "param":
            d, shape = DTYPES[b.dtype], shape_of(b, job.numbers)
            arrays[b.name] = np.fromfile(job.folder / f"{b.name}.raw", d.raw).view(d.numpy).reshape(shape)
    return arrays, dict(job.scalars)


def fingerprint(outputs: Mapping[str, np.ndarray]) -> str:
    """A digest of all bits, to compare results of different processes."""
    digest = hashlib.blake2b(digest_size=16)
    for name in sorted(outputs):
        digest.update(np.ascontiguousarray(outputs[name]).view(np.uint8).data)
    return digest.hexdigest()


def _bits_differ(name: str, got: np.ndarray, want: Expected) -> str | None:
    assert want.elements is not None
    raw = np.dtype(f"u{got.dtype.itemsize}")
    different = got.view(raw) != want.elements.view(raw)
    if not different.any():
        return None
    at = tuple(int(x) for x in np.argwhere(different)[0])
    return f"{name}: {int(different.sum()):,} of {got.size:,} elements differ, the first holds {got[at]}, not {want.elements[at]}"


def _values_differ(name: str, got: np.ndarray, want: Expected) -> str | None:
    assert want.values is not None and want.allowed is not None
    values = to_arithmetic(_dtype_of(got), got).astype(np.float64)
    with np.errstate(invalid="ignore"):
        off = np.abs(values - want.values)
        bad = ~(off <= want.allowed) & ~((values == want.values) | (np.isnan(values) & np.isnan(want.values)))
    bad &= ~np.isinf(want.allowed)
    if not bad.any():
        return None
    at = tuple(int(x) for x in np.argwhere(bad)[0])
    return (
        f"{name}: {int(bad.sum()):,} of {got.size:,} elements are too far off, the first holds {values[at]:.9g} "
        f"instead of {want.values[at]:.9g} ± {want.allowed[at]:.3g}"
    )


def _dtype_of(array: np.ndarray) -> str:
    return next(n for n, d in DTYPES.items() if d.numpy == array.dtype)
