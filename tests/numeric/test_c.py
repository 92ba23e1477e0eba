"""Compiled C against the interpreter, bit for bit: the library at random odd sizes, hand-written trees, random schedules."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from random import Random

import pytest

from tests import handbuilt as h
from tests.numeric.compiled import assert_same, function, needs_compiler
from tests.property.generator import random_program, sizes_of
from tests.property.sequences import steps
from tests.unit import schedule_fuzz
from tilec import workloads
from tilec.codegen import c_source
from tilec.errors import InternalError, LegalityError, ScheduleError
from tilec.ir.program import Program
from tilec.poly.prove import prove
from tilec.schedule.schedule import Schedule, start

pytestmark = needs_compiler
LIBRARY = [m.name for m in iter_modules(workloads.__path__)]
LONG = int(os.environ.get("TILEC_PROPERTY_PAIRS", "0")) >= 1000
MOST_WORK = 3e6  # multiplications of all sizes: the interpreter is the slow side


def kernel(name: str) -> Program:
    return getattr(import_module(f"{workloads.__name__}.{name}"), name).program


def odd_sizes(rng: Random, p: Program) -> dict[str, int]:
    """1 … 70 each, most of them odd, the product bounded."""
    most = 70
    while True:
        sizes = {n: min(rng.choice((1, rng.randrange(1, 71, 2), rng.randrange(1, 71))), most) for n in p.sizes}
        work = 1.0
        for n in p.sizes:
            work *= sizes[n]
        if work <= MOST_WORK:
            return sizes
        most -= 1


@pytest.mark.parametrize("name", LIBRARY)
def test_library_at_random_odd_sizes(name: str, tmp_path: Path) -> None:
    """Strict kernels in the default schedule, optimised as users compile them: one compilation, sizes at run time."""
    original = kernel(name)
    program = start(original).program
    compiled = function(program, tmp_path, flags=())
    rng = Random(f"sizes {name}")
    for seed in range(25 if LONG else 6):
        assert_same(program, compiled, odd_sizes(rng, program), seed, reference=original)


def vectorised(s: Schedule, rng: Random) -> Schedule:
    """Whatever of split, vectorize, unroll, parallel, compute_at and place the proof allows, at random."""
    for _ in range(14):
        names = list(s.loops)
        loop = rng.choice(names)
        kind = rng.choice(
            (
                "split",
                "split",
                "vectorize",
                "vectorize",
                "unroll",
                "parallel",
                "place",
                "cache_read",
                "cache_write",
                "at",
                "inline",
            )
        )
        try:
            match kind:
                case "split":
                    s = s.apply("split", loop, rng.choice((3, 4, 6, 8, 16)), tail=rng.choice(("min", "guard", "peel")))
                case "vectorize" | "unroll" | "parallel":
                    s = s.apply(kind, loop)
                case "place":
                    temps = [b.name for b in s.program.buffers if b.role != "param"]
                    s = s.apply("place", rng.choice(temps), rng.choice(("register", "scratch", "shared"))) if temps else s
                case "cache_read" | "cache_write":
                    b = rng.choice([b.name for b in s.program.buffers])
                    s = s.apply(kind, b, loop, rng.choice(("register", "scratch")))
                case "at":
                    temps = [b.name for b in s.program.buffers if b.role == "temp"]
                    s = s.apply("compute_at", rng.choice(temps), loop) if temps else s
                case "inline":
                    temps = [b.name for b in s.program.buffers if b.role == "temp"]
                    s = s.apply("compute_inline", rng.choice(temps)) if temps else s
        except (ScheduleError, LegalityError):
            continue
    return s


@pytest.mark.parametrize("name", LIBRARY)
def test_library_under_random_schedules(name: str, tmp_path: Path) -> None:
    """Vectors, registers, caches, threads, guards: still the bits of the loops as written."""
    original = kernel(name)
    rng = Random(f"schedules {name}")
    for n in range(6 if LONG else 1):
        s = vectorised(start(original, proof_budget=300_000), rng)
        compiled = function(s.program, tmp_path, vector_bytes=rng.choice((16, 32, 32, 64)))
        for seed in range(3):
            assert_same(s.program, compiled, odd_sizes(rng, s.program), seed + 10 * n, reference=original)


@pytest.mark.parametrize("build", [h.gemm_silu, h.gemm_silu_tiled, h.neighbours, h.neighbours_on_threads, h.copied_ahead])
def test_trees_written_by_hand(build: Callable[[], Program], tmp_path: Path) -> None:
    """Block and thread loops run in order, copies at once."""
    program = build()
    compiled = function(program, tmp_path)
    for size in (1, 5, 32, 67):
        sizes = dict(zip(program.sizes, (size, size + 2, 41), strict=False))
        assert_same(program, compiled, sizes, size)


@pytest.mark.parametrize("block", range(10 if LONG else 2))
def test_random_kernels_rewritten_at_random(block: int, tmp_path: Path) -> None:
    """Random kernels under random primitives that the proof accepts."""
    ran = 0
    for seed in range(12 * block, 12 * block + 12):
        rng = Random(f"c {seed}")
        original = random_program(rng)
        program, done = steps(rng, original, rng.choice((2, 3, 4, 5)))
        if not done or prove(original, program, 200_000).status != "legal":
            continue
        compiled = function(program, tmp_path)
        for n, m in ((1, 1), (3, 2), (7, 5)):
            try:
                assert_same(program, compiled, sizes_of(program, {"N": n, "M": m}), seed)
            except InternalError as e:
                assert "leaves" in str(e), e
        ran += 1
    assert ran >= 2  # few of a dozen are rewritten at all, and legal


@pytest.mark.parametrize("name", list(schedule_fuzz.KERNELS))
def test_random_orders_compiled(name: str, tmp_path: Path) -> None:
    """Splits with every tail, skews, shifts, reversals, fusions of kernels whose every order is legal."""
    for seed in range(20 if LONG else 2):
        s, _ = schedule_fuzz.walk(name, seed)
        compiled = function(s.program, tmp_path)
        for sizes in ((1, 1), (5, 3), (17, 9)):
            assert_same(s.program, compiled, dict(zip(s.program.sizes, sizes, strict=False)), seed)


def test_the_text_is_the_same_every_time() -> None:
    program = start(kernel("gemm_silu")).program
    assert c_source.emit(program) == c_source.emit(program)


def test_a_wrong_program_would_be_seen(tmp_path: Path) -> None:
    """The comparison can fail: fused multiply-adds are not the strict product."""
    original = kernel("dot")  # f32: the product of two bf16 is exact
    fused = start(original, contract=True).program
    compiled = function(fused, tmp_path)
    with pytest.raises(AssertionError, match="out differs"):
        for seed in range(20):
            assert_same(fused, compiled, {"N": 65}, seed, reference=original)
