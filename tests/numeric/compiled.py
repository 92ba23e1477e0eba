"""Programs compiled from C against the interpreter: bits, except that a NaN's sign and payload are no part of the semantics."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from tilec.ir import interp
from tilec.ir.arguments import check_scalars, written
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Program
from tilec.runtime import c_build, c_run, compiler
from tilec.runtime.call import shape_of
from tilec.runtime.compare import random_inputs

QUICK = ("-O1",)  # most tests are about the text, not about the optimiser

needs_compiler = pytest.mark.skipif(
    not any(shutil.which(n) for n in compiler.NAMES), reason="no C compiler: none of " + ", ".join(compiler.NAMES)
)


def function(program: Program, folder: Path, flags: Sequence[str] = QUICK, vector_bytes: int | None = None) -> c_run.CFunction:
    """The program's C function, compiled in `folder`."""
    made = c_build.recipe(program, flags=flags, vector_bytes=vector_bytes)
    return c_run.CFunction(c_build.compile_recipe(made, cache=folder), program)


def inputs(program: Program, sizes: Mapping[str, int], seed: int) -> tuple[dict[str, np.ndarray], dict[str, float]]:
    """Random arrays for every parameter, pure outputs included (what is not overwritten must stay), and scalars."""
    known = {**dict(program.source.bound), **sizes}
    arrays, scalars = random_inputs(program.source, known, seed)
    rng = np.random.default_rng(seed + 1)
    for b in program.source.buffers:
        if b.role == "param" and b.name not in arrays:
            raw = rng.integers(0, 100, shape_of(b, known)).astype(np.uint8)
            arrays[b.name] = raw.astype(DTYPES[b.dtype].raw).view(DTYPES[b.dtype].numpy)
    return arrays, scalars


def same_bits(dtype: str, got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Per element: equal bits, or both NaN."""
    unsigned = np.dtype(f"u{got.dtype.itemsize}")
    equal = np.ascontiguousarray(got).view(unsigned) == np.ascontiguousarray(want).view(unsigned)
    if DTYPES[dtype].kind == "int":
        return equal
    with np.errstate(invalid="ignore"):
        return equal | (np.isnan(got.astype(np.float64)) & np.isnan(want.astype(np.float64)))


def assert_same(
    program: Program,
    compiled: c_run.CFunction,
    sizes: Mapping[str, int],
    seed: int = 0,
    threads: int = 2,
    reference: Program | None = None,
) -> None:
    """The compiled program computes what the interpreter computes of `reference` (the program itself)."""
    arrays, scalars = inputs(program, sizes, seed)
    want = interp.run(reference or program, arrays, {**dict(program.source.bound), **sizes}, scalars)
    own = {n: np.array(a, order="C") for n, a in arrays.items()}
    compiled.raw(own, {n: sizes[n] for n in program.sizes}, check_scalars(program.source, scalars), threads)()
    for name in written(program):
        dtype = program.buffer[name].dtype
        equal = same_bits(dtype, own[name], want[name])
        assert equal.all(), f"{name} differs in {(~equal).sum()} of {equal.size} elements at {dict(sizes)}\n{program.name}"
    for name, a in arrays.items():
        if name not in written(program):
            assert a.tobytes() == own[name].tobytes(), f"{name} was changed"
