"""Importing, searching, pricing and interpreting."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

from benchmarks.measure import Figure, Time, fresh
from benchmarks.measure import median as median_of
from benchmarks.schedules import CHAIN, CHAIN_ON_THREADS
from tilec.cost.price import price
from tilec.ir import interp
from tilec.schedule.schedule import Schedule
from tilec.schedule.trace import Trace
from tilec.search.tune import tune
from tilec.workloads import get

ROOT = Path(__file__).resolve().parent.parent
IMPORT = (
    "import time; p, w = time.process_time(), time.perf_counter(); import tilec; "
    "print(time.process_time() - p, time.perf_counter() - w)"
)
SIZES = {"M": 1024, "N": 12288, "K": 4096}


def imports(repeats: int) -> list[Figure]:
    """`import tilec` in a fresh process; the time inside the statement, Python's own start left out."""
    times: list[Time] = []
    for _ in range(repeats):
        run = subprocess.run([sys.executable, "-c", IMPORT], cwd=ROOT, capture_output=True, text=True, check=True)
        process, wall = map(float, run.stdout.split())
        times.append(Time(process, wall))
    return [median_of("import tilec", times, 0.2)]


def tiled(s: Schedule, BM: int, BN: int, BK: int, stages: int) -> Schedule:
    """A person's schedule of gemm_silu with four knobs."""
    s = s.compute_inline("C")
    s = s.split("Y.i", BM, into=("io", "ii")).split("Y.j", BN, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
    s = s.compute_at("acc", "jo").split("acc.k", BK, into=("ko", "ki")).reorder("ko", "acc.i", "acc.j", "ki")
    s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", "shared")
    return s.bind("io", "block.y").bind("jo", "block.x").pipeline("ko", stages=stages)


def space(count: int) -> dict[str, list[int]]:
    """Knob values; `count` of each of BM, BN and BK by 25 : 10 : 10, and four stages: 10,000 candidates for count = 1."""
    return {
        "BM": [16 * k for k in range(1, 25 // count + 1)],
        "BN": [16 * k for k in range(1, 10 // count + 1)],
        "BK": [8 * k for k in range(1, 10 // count + 1)],
        "stages": [1, 2, 3, 4][: max(1, 4 // count)],
    }


def search(repeats: int, share: int = 1) -> list[Figure]:
    knobs = space(share)
    count = int(np.prod([len(v) for v in knobs.values()]))
    found: list[int] = []

    def once() -> None:
        tuned = tune(get("gemm_silu"), SIZES, "h100-sxm", knobs, tiled)
        found.append(len(tuned.rows))
        assert tuned.best.knobs

    times = fresh(repeats, once)
    detail = f"gemm_silu, knobs BM, BN, BK, stages; {found[-1]:,} legal and fitting; the best built and proved in full"
    return [median_of(f"tune over {count:,} candidates", times, 2.0, None, detail)]


def prices(repeats: int) -> list[Figure]:
    """price() of the scheduled chain with numbers for all sizes."""
    out: list[Figure] = []
    for name, case in (("price, collective blocks", CHAIN), ("price, bound to threads", CHAIN_ON_THREADS)):
        program = Trace(case.steps).apply(case.start()).program
        times = fresh(repeats, lambda program=program: price(program, "h100-sxm", SIZES))
        out.append(median_of(name, times, detail="no target set"))
    return out


def interpreter(repeats: int, n: int = 256) -> list[Figure]:
    """The written order of gemm, n × n × n, bf16, on NumPy arrays."""
    program = get("gemm").program
    rng = np.random.default_rng(0)
    sizes = {s: n for s in program.sizes}
    shapes = {b.name: tuple(e.eval(sizes) for e in b.shape) for b in program.buffers if b.role == "param"}
    arrays = {k: rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for k, shape in shapes.items()}
    times = fresh(repeats, lambda: interp.run(program, arrays, sizes, {}))
    return [median_of(f"interpret gemm {n}³", times, 1.0)]
