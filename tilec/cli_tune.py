"""`tilec tune`: the search, with measuring where it is asked for, and what an interruption leaves."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tilec import api
from tilec.cli_answer import Answer, Progress
from tilec.cli_load import load_kernel, parse_sizes
from tilec.errors import MeasureError, ScheduleError
from tilec.report.progress import Bar
from tilec.report.tune import rejected_text, tune_data, tune_text
from tilec.search.measure import Measure
from tilec.search.result import Tuned
from tilec.targets.host import cache_folder

_MEASURING = (
    "candidates",
    "seconds",
    "repeats",
    "limit",
    "compile_limit",
    "cpus",
    "backend",
    "compiler",
    "database",
    "no_verify",
)


def tune(o: argparse.Namespace, progress: Progress) -> tuple[Answer, Tuned | None]:
    """The answer, and the result that pictures are made of (None where nothing fits)."""
    kernel = load_kernel(o.kernel)
    if isinstance(kernel, api.Schedule):
        raise ScheduleError(f"tune: '{o.kernel}' is a schedule already: name its kernel")
    sizes = parse_sizes(o.sizes)
    missing = [n for n in kernel.program.sizes if n not in sizes]
    if missing:
        raise ScheduleError(f"tune: the sizes {', '.join(missing)} are open: add {missing[0]}=1024")
    measure = measure_of(o)
    database = database_of(o) if measure else None
    permissions = {"reassociate": tuple(o.reassociate) if o.reassociate else None, "contract": o.contract}
    permissions["hardware_rounding"] = o.hardware_rounding
    with Bar(sys.stderr, o.quiet, f"{kernel.name} on {o.target}") as bar:

        def say(stage: str, done: int, total: int) -> None:
            progress.doing(f"searching schedules of {kernel.name} for {o.target}: {stage} {done} of {total}")
            bar(stage, done, total)

        say("structures", 0, 1)
        try:
            result = api.tune(
                kernel,
                sizes,
                o.target,
                seed=o.seed,
                threads=o.threads,
                measure=measure,
                database=database,
                progress=say,
                **permissions,
            )
        except KeyboardInterrupt:
            if database is not None:
                progress.finished(f"finished measurements are kept in {database}; the same command goes on from there")
            raise
        progress.finished(f"{result.considered} candidates were ranked")
        if not result.top(1):
            reasons = rejected_text(result)
            data = {"kernel": kernel.name, "target": o.target, "sizes": sizes, "considered": result.considered, "best": None}
            return Answer(f"no candidate is legal and fits on {o.target}\n\n{reasons}", {"command": "tune", **data}, 1), None
        say(f"proving the best {o.top} in full", 0, 1)
        text, data = tune_text(result, o.top), tune_data(result, o.top)
    return Answer(text, {"command": "tune", **data, "database": database}), result


def measure_of(o: argparse.Namespace) -> Measure | None:
    """The settings that the options name; ScheduleError for one of them without --measure."""
    given = [n for n in _MEASURING if getattr(o, n) not in (None, False)]
    if not o.measure:
        if given:
            raise ScheduleError(f"tune: --{given[0].replace('_', '-')} is for --measure")
        return None
    if o.target != "host":
        raise ScheduleError(f"tune --measure: this computer is the target 'host', not {o.target}")
    names = {"candidates": "candidates", "seconds": "seconds", "repeats": "repeats", "limit": "limit", "cpus": "threads"}
    names["compile_limit"] = "compile_limit"
    names |= {"backend": "backend", "compiler": "compiler"}
    settings = {names[n]: getattr(o, n) for n in names if getattr(o, n) is not None}
    return Measure(verify=not o.no_verify, **settings)


def database_of(o: argparse.Namespace) -> str:
    """The file of --database, or one in the cache folder."""
    if o.database == "":
        raise ScheduleError("tune: --database '' names no file")
    path = Path(o.database) if o.database else cache_folder() / "measured.sqlite"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        raise MeasureError(f"no folder {path.parent} for the database: {e.strerror or e}. Name a file with --database") from None
    return str(path)
