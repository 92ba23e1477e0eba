"""Timing: process time (what tilec itself computes) and wall time, over several repeats that start with empty caches."""

from __future__ import annotations

import gc
import math
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import _lru_cache_wrapper


@dataclass(frozen=True)
class Time:
    """Seconds of one run."""

    process: float
    wall: float


@dataclass(frozen=True)
class Figure:
    """One line of the table: what was measured, how often, the figure that is judged and what it should be (seconds)."""

    name: str
    statistic: str  # "median" or "p95"
    process: float
    wall: float
    samples: int
    target: float | None = None
    aim: float | None = None
    detail: str = ""

    @property
    def verdict(self) -> str:
        """Judged by process time: a shared machine lengthens wall time by what others do."""
        if self.target is None:
            return ""
        if self.process > self.target:
            return "above target"
        return "within aim" if self.aim is not None and self.process <= self.aim else "within target"


def timed(f: Callable[[], object]) -> Time:
    process, wall = time.process_time(), time.perf_counter()
    f()
    return Time(time.process_time() - process, time.perf_counter() - wall)


def forget() -> None:
    """Empty every cache of tilec and collect what the last repeat left, so that a repeat does the work of a fresh session.

    Without the collection one repeat pays for freeing the other's isl contexts (50 ms in a step of 10): 100 steps in five new
    processes show no such pause.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "tilec" and module is not None:
            for value in list(vars(module).values()):
                if isinstance(value, _lru_cache_wrapper):
                    value.cache_clear()
    gc.collect()


def quantile(values: Sequence[float], q: float) -> float:
    """The nearest-rank quantile: a value that was measured, at least a share q of them being no larger."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def median(name: str, times: Sequence[Time], target: float | None = None, aim: float | None = None, detail: str = "") -> Figure:
    process, wall = (statistics.median(getattr(t, k) for t in times) for k in ("process", "wall"))
    return Figure(name, "median", process, wall, len(times), target, aim, detail)


def p95(name: str, times: Sequence[Time], target: float | None = None, aim: float | None = None, detail: str = "") -> Figure:
    process, wall = (quantile([getattr(t, k) for t in times], 0.95) for k in ("process", "wall"))
    return Figure(name, "p95", process, wall, len(times), target, aim, detail)


def fresh(repeats: int, f: Callable[[], object]) -> list[Time]:
    """`f` timed that often, each time with empty caches."""
    out: list[Time] = []
    for _ in range(repeats):
        forget()
        out.append(timed(f))
    return out
