"""The options of `tune`, checked before anything is done: what would be ignored, or could not be meant, is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tilec.cost.occupancy import check_launch
from tilec.errors import ResourceError, ScheduleError
from tilec.runtime.checks import check_whole, shown
from tilec.search.measure import Measure
from tilec.targets import Target
from tilec.targets.detect import cpus, detect

Measuring = Measure | Callable[..., Any] | None


def check_threads(machine: Target, threads: int | None, registers: int | None) -> None:
    """ResourceError for threads and registers that the machine has not: per block and per thread of a GPU, threads of a CPU."""
    check_launch("tune", threads, registers)
    limits = machine.limits
    if machine.kind == "cpu":
        if registers is not None:
            raise ResourceError(f"tune(registers={registers}): registers per thread of a GPU; {machine.name} is a CPU")
        here = machine.machine is not None and machine.machine == detect().key
        most = max(machine.cores, cpus()) if here else machine.cores
        if threads is not None and threads > most:
            raise ResourceError(f"tune(threads={threads}): {machine.name} runs at most {most} at once")
    elif limits is not None:
        if threads is not None and threads > limits.threads_per_block:
            raise ResourceError(f"tune(threads={threads}): {machine.name} allows {limits.threads_per_block:,} threads per block")
        if registers is not None and registers > limits.registers_per_thread:
            most = limits.registers_per_thread
            raise ResourceError(f"tune(registers={registers}): {machine.name} allows {most:,} registers per thread")


def check_counts(machine: Target, seed: Any, priced: Any, budget: Any, measured: bool) -> None:
    """ScheduleError for what is no number of candidates, or counts what there is none of."""
    for name, value in (("priced", priced), ("budget", budget)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise ScheduleError(f"tune({name}={shown(value)}): a whole number of candidates, at least 1")
    check_whole("tune", "seed", seed, 0)
    if priced is not None and machine.kind != "cpu":
        raise ScheduleError(f"tune(priced={priced}): candidates priced on a CPU; on {machine.name} all are")
    if budget is not None and not measured:
        raise ScheduleError(f"tune(budget={budget}): candidates that are measured: give measure=True or a tilec.Measure")


def check_database(database: Any, measured: bool) -> str | None:
    """The path of a file; ScheduleError for what is none, and where nothing is measured."""
    if database is None:
        return None
    if not isinstance(database, str | os.PathLike) or not (path := os.fspath(database)) or not isinstance(path, str):
        raise ScheduleError(f"tune(database={shown(database)}): the path of an SQLite file")
    if not measured:
        raise ScheduleError(f"tune(database={path!r}): it keeps measurements: give measure=True or a tilec.Measure")
    return path


def check_measure(measure: Any, machine: Target) -> Measuring:
    """How candidates are measured, None where they are not. ScheduleError for anything else, and for times of another kind of
    machine."""
    if measure is None or measure is False:
        return None
    how = Measure() if measure is True else measure
    if not isinstance(how, Measure) and not callable(how):
        raise ScheduleError(f"tune(measure={shown(measure)}): True, a tilec.Measure, or a function from schedule to seconds")
    if isinstance(how, Measure) and machine.kind != "cpu" and ":" not in how.backend:
        raise ScheduleError(
            f"tune(target={machine.name!r}, measure=…): the backend {how.backend!r} runs on a CPU: target='host', a backend of "
            "your own (package.module:function), or a function from schedule to seconds"
        )
    return how


def same_threads(how: Measuring, threads: int | None) -> tuple[Measuring, int | None]:
    """On a CPU candidates are ranked for the threads they are measured with: the number may stand in either place."""
    if not isinstance(how, Measure) or how.executor is not None:
        return how, threads
    if threads is not None and how.threads is not None and threads != how.threads:
        raise ScheduleError(f"tune(threads={threads}): measured with threads={how.threads}. Give one number")
    if threads is not None and how.threads is None:
        how = replace(how, threads=threads)
    return how, how.threads


def check_progress(progress: Any) -> None:
    """ScheduleError unless it can be called."""
    if progress is not None and not callable(progress):
        raise ScheduleError(f"tune(progress={shown(progress)}): a function of a stage, how much is done, and of how much")
