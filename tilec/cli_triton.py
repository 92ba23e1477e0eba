"""tilec emit --backend triton --compile: what the kernels of a schedule need on a target, without a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path

from tilec import api
from tilec.cli_answer import Answer, Progress
from tilec.cli_files import written
from tilec.codegen.triton import emit, options_for
from tilec.errors import ScheduleError
from tilec.report.compiled import compiled_data, compiled_text
from tilec.runtime.triton_jobs import capability, compile_all, jobs
from tilec.search.gpu import predicted


def compile_triton(s: api.Schedule, o: argparse.Namespace, progress: Progress) -> Answer:
    """The table of resources; the text into -o FILE, where it is given."""
    data = {"command": "emit", "kernel": s.program.name, "backend": "triton", "target": o.target, "sizes": dict(s.program.bound)}
    if o.target is None:
        raise ScheduleError("emit --compile: name the machine to compile for: --target h100-sxm")
    if s.program.sizes:
        first = s.program.sizes[0]
        raise ScheduleError(f"emit --compile: the sizes {', '.join(s.program.sizes)} are open: add {first}=1024")
    machine = api.target(o.target)
    number = capability(machine)
    made = emit(s.program, options_for(machine, o.warps, o.group or 8), lambda threads: s.notes(machine, threads))
    lines = []
    if o.output is not None:
        lines.append(written(Path(o.output), made.text))
        data["files"] = [o.output]
    progress.now("compiling")
    found = compile_all(
        jobs(made, {}, number),
        o.workers,
        lambda done, total: progress.now(f"compiling for {machine.name}: {done} of {total} kernels"),
    )
    progress.end()
    products = [bool(k.products) for k in made.kernels]
    kernels = compiled_data(found, predicted(made, machine, {}), products, machine, made.num_warps)
    wrong = any(k["error"] is not None or k["problem"] for k in kernels)
    text = "\n".join([*lines, compiled_text(kernels, machine, number)])
    return Answer(text, {**data, "num_warps": made.num_warps, "kernels": kernels}, 1 if wrong else 0)
