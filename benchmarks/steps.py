"""One primitive with its proof, and a whole schedule replayed from its trace."""

from __future__ import annotations

import statistics
from dataclasses import fields

from benchmarks.measure import Figure, Time, forget, fresh, p95, quantile, timed
from benchmarks.measure import median as median_of
from benchmarks.schedules import CHAIN, CHAIN_ON_THREADS, JACOBI, LU, Case
from tilec.schedule.trace import Trace


def typical_of(times: list[Time]) -> Time:
    """The median of each kind of time."""
    return Time(*(statistics.median(getattr(t, f.name) for t in times) for f in fields(Time)))


def step_times(case: Case, repeats: int) -> list[tuple[str, Time]]:
    """Every step of every repeat: `name(…)` and its time. A repeat starts with empty caches."""
    out: list[tuple[str, Time]] = []
    for _ in range(repeats):
        forget()
        s = case.start()
        for step in case.steps:
            made = []
            time = timed(lambda s=s, step=step, made=made: made.append(s.apply(step.name, *step.args, **dict(step.kwargs))))
            out.append((str(step), time))
            (s,) = made
    return out


def primitives(repeats: int) -> list[Figure]:
    """p95 of one step over all steps and repeats; beside it the p95 over the steps, each by the median of its repeats."""
    out: list[Figure] = []
    for name, case, target, aim in (
        ("a step of the chain, collective blocks", CHAIN, 0.060, 0.030),
        ("a step of the chain, bound to threads", CHAIN_ON_THREADS, 0.060, 0.030),
        ("a step of jacobi2d", JACOBI, 0.150, None),
        ("a step of lu", LU, 0.150, None),
    ):
        times = step_times(case, repeats)
        slowest, worst = max(times, key=lambda t: t[1].process)
        middle = median_of("", [t for _, t in times]).process
        # one time of one step also holds what others did to a shared machine just then: the repeats' median does not
        count = len(case.steps)
        typical = [typical_of([t for _, t in times[k::count]]) for k in range(count)]
        detail = f"{count} steps; p95 of their medians {1e3 * quantile([t.process for t in typical], 0.95):.0f} ms; "
        detail += f"median {1e3 * middle:.0f} ms; slowest {slowest}: {1e3 * worst.process:.0f} ms"
        out.append(p95(name, [t for _, t in times], target, aim, detail))
    return out


def replay(repeats: int) -> list[Figure]:
    """A 20-step schedule from its trace as JSON, every step proved."""
    out: list[Figure] = []
    for name, case in (("replay, collective blocks", CHAIN), ("replay, bound to threads", CHAIN_ON_THREADS)):
        text = Trace(case.steps).to_json()
        times = fresh(repeats, lambda case=case, text=text: Trace.from_json(text).apply(case.start()))
        out.append(median_of(name, times, 1.0, 0.5, f"{len(case.steps)} steps"))
    return out
