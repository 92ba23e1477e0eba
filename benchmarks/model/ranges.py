"""The ranges that a cost prints, against what was measured: how many rows lie inside.

The likely range is a multiple of the estimate and is held against every row. The bounds need an exact price, and are held
against rows drawn from a seed. Calls of a library contain the host's time, which no cost of a kernel has: the public figure is
added to the estimate and the upper bound, and apart the one fitted on half of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.model import cublas, xgemm
from benchmarks.model.rank import Space, Structures, predict, read
from benchmarks.model.section import Section, markdown, rows
from benchmarks.model.spaces import SPACES
from tilec.cost.checked import SEEN
from tilec.cost.price import price
from tilec.schedule.schedule import start
from tilec.search.unproved import Memo, unproved
from tilec.targets import load

DRAWN = 60  # rows of a file whose bounds are priced


@dataclass(frozen=True)
class Held:
    """Measured and estimated seconds of rows; of those drawn, measured seconds and bounds."""

    title: str
    measured: np.ndarray
    estimate: np.ndarray
    drawn: np.ndarray
    bounds: np.ndarray  # low, high

    @property
    def likely(self) -> float:
        """Share of the rows inside the likely range."""
        ratio = self.measured / self.estimate
        return float(np.mean((ratio >= SEEN.low) & (ratio <= SEEN.high)))

    @property
    def bounded(self) -> float:
        """Share of those drawn between their bounds."""
        return float(np.mean((self.drawn >= self.bounds[:, 0]) & (self.drawn <= self.bounds[:, 1])))


def draw(count: int, most: int) -> np.ndarray:
    """Row numbers from a seed, in order."""
    return np.sort(np.random.default_rng(0).choice(count, min(most, count), replace=False))


def space_bounds(space: Space, target: str, picked: Sequence[int]) -> np.ndarray:
    """Bounds of rows of a tuning space."""
    machine, memo, out = load(target), Memo(), []
    for n in picked:
        fresh = unproved(start(xgemm.xgemm.program, {"M": 4096, "N": 4096, "K": 4096}, contract=True), memo)
        made = xgemm.scheduled(fresh, {k: int(v[n]) for k, v in space.knobs.items()})
        out.append(price(made.program, machine).range)
    return np.array(out)


def of_spaces(drawn: int = DRAWN) -> list[Held]:
    """The published tuning spaces, rows for which the model has a time."""
    structures, out = Structures(), []
    for file, target, title in SPACES:
        space = read(file)
        estimate = predict(space, target, structures)
        space, estimate = space.take(np.isfinite(estimate)), estimate[np.isfinite(estimate)]
        picked = draw(space.count, drawn)
        measured = space.measured * 1e-3
        out.append(Held(title, measured, estimate, measured[picked], space_bounds(space, target, picked.tolist())))
    return out


def of_library(calls: Sequence[cublas.Calls], before: float, after: float, title: str, drawn: int = DRAWN) -> Held:
    """A library's calls, with the host's time before each launch and after the last."""
    table, machine = rows(cublas.FILE), load(cublas.TARGET)
    estimate, measured = cublas.whole(calls, before, after)
    kernels = np.concatenate([np.full(len(c.index), len(c.launches)) for c in calls])
    kernels = kernels[np.argsort(np.concatenate([c.index for c in calls]))]
    picked, out = draw(len(measured), drawn), []
    for n in picked:
        low, high = price(*cublas.scheduled(table[n], machine)).range
        out.append((low, high + kernels[n] * before + after))
    return Held(title, measured, estimate, measured[picked], np.array(out))


def section() -> Section:
    """Every file."""
    machine = load(cublas.TARGET)
    calls = cublas.predicted(rows(cublas.FILE), machine)
    before, after, _ = cublas.fitted(calls)
    plain = of_library(calls, cublas.HOST_US * 1e-6, 0.0, f"cuBLAS, host {cublas.HOST_US:g} us a launch")
    every = [*of_spaces(), plain]
    host = of_library(calls, before, after, f"cuBLAS, host {before * 1e6:.0f} us a launch and {after * 1e6:.0f} us (fitted)")
    count = sum(len(h.measured) for h in every)
    held = sum(h.likely * len(h.measured) for h in every) / count
    lines = [(h.title, len(h.measured), f"{h.likely:.1%}", f"{h.bounded:.0%} of {len(h.drawn)}") for h in (*every, host)]
    table = markdown(("measurements", "rows", f"{SEEN.low:g} to {SEEN.high:g} times the estimate", "between the bounds"), lines)
    text = f"""
`cost.explain()` prints two ranges: bounds (compulsory bytes with perfect overlap at the peaks, to every level after the
other), and for products in f32 on the GPUs of these files the likely range, {SEEN.low:g} to {SEEN.high:g} times the estimate.
It holds
**{held:.1%}** of the {count:,} rows of three files without any fitted constant. The rows outside are mostly short calls, whose
host time is not the kernel's, and sets of the RTX 3090 that spill. Bounds were priced for rows drawn from a seed.

{table}
"""
    figures = {"likely": {h.title: round(h.likely, 4) for h in (*every, host)}, "held": round(held, 4), "rows": count}
    figures["bounds"] = {h.title: round(h.bounded, 4) for h in (*every, host)}
    return Section("ranges", "The range of a predicted time", text, figures)
