"""How many GEMM candidates per second the closed forms price on one core."""

from __future__ import annotations

import platform
import statistics
import time
from functools import partial

import numpy as np

from benchmarks.model.section import Section
from benchmarks.other import SIZES, space, tiled
from tilec.cost.bulk import evaluate
from tilec.schedule.schedule import Schedule, start
from tilec.search.space import Space
from tilec.search.structure import Knobs, judge, split_structures
from tilec.targets import load
from tilec.workloads import get

CANDIDATES = 200_000
REPEATS = 7
TARGET = "h100-sxm"


def _apply(s: Schedule, knobs: Knobs) -> Schedule:
    return tiled(s, **knobs)


def rate(candidates: int = CANDIDATES, repeats: int = REPEATS) -> float:
    """Candidates per second of process time, the median of the repeats; deriving the formulas (once per structure) is not
    in it."""
    fresh = start(get("gemm_silu").program, {})
    axes = Space(tuple((k, tuple(v)) for k, v in space(1).items()))
    structure = split_structures("tiled", axes, _apply, fresh, {})[1]
    judged = judge(structure, fresh, {})
    assert judged.formulas is not None, judged.apart
    rng = np.random.default_rng(0)
    knobs = {k: rng.choice(np.array(values), candidates) for k, values in structure.space.axes}
    run = partial(evaluate, judged.formulas, load(TARGET), SIZES, knobs, 256)
    run()
    seconds: list[float] = []
    for _ in range(repeats):
        before = time.process_time()
        run()
        seconds.append(time.process_time() - before)
    return candidates / statistics.median(seconds)


def section() -> Section:
    found = round(rate(), -3)
    at = ", ".join(f"{k}={v}" for k, v in SIZES.items())
    text = (
        f"{found:,.0f} candidates of GEMM+SiLU ({at} on {TARGET}; tile, k block and stages open) per second of process time "
        f"on one core ({platform.machine()}), from formulas derived once for the structure: traffic, footprints, flops, time, "
        f"in batches of {CANDIDATES:,}. That the formulas equal exact pricing is a property test."
    )
    return Section("candidates_per_second", "Candidates per second", text, int(found))
