"""One function per command: options in, Answer out. Arguments are parsed in cli.py, text is made in report/."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from tilec import api, workloads
from tilec.cli_answer import Answer, Progress
from tilec.cli_emit import emit
from tilec.cli_load import load_kernel, load_schedule, parse_sizes
from tilec.cli_tune import tune
from tilec.errors import LegalityError, ScheduleError, TargetError
from tilec.report.canvas import Picture
from tilec.report.cost import cost_data, cost_text
from tilec.report.machine import occupancy_data, occupancy_text, target_data, target_text
from tilec.report.plots import cost_plot, occupancy_plot, tune_plot
from tilec.report.run import run_data, run_text
from tilec.report.tables import table
from tilec.report.verdict import error_data, verdict_data
from tilec.runtime.compare import compare, random_inputs
from tilec.runtime.host import keep, measure_host
from tilec.runtime.job import strict
from tilec.targets import names as target_names


def _scheduled(o: argparse.Namespace, progress: Progress, bind: bool = True) -> tuple[api.Schedule, dict[str, int]]:
    """The schedule that the options name, its sizes bound unless told otherwise; and the sizes that it does not bind."""
    progress.now(f"reading {o.kernel}")
    kernel = load_kernel(o.kernel)
    sizes = parse_sizes(o.sizes)
    program = kernel.program
    bound = dict(program.bound)
    for name, value in sizes.items():
        if name not in program.sizes and bound.get(name) != value:
            if name in bound:
                raise ScheduleError(f"{name}={value}: the schedule binds {name}={bound[name]}")
            raise ScheduleError(
                f"{name}={value}: no size '{name}'. Sizes of {program.name}: {', '.join(program.sizes) or 'none'}"
            )
    progress.now("proving the schedule")
    s = load_schedule(
        kernel,
        o.schedule,
        sizes if bind else {},
        reassociate=tuple(o.reassociate) if o.reassociate else None,
        contract=o.contract,
        hardware_rounding=o.hardware_rounding,
        proof_budget=o.proof_budget,
    )
    progress.finished("the schedule was proved")
    progress.end()
    return s, {n: v for n, v in sizes.items() if n in s.program.sizes}


def _pictured(answer: Answer, o: argparse.Namespace, draw: Callable[[], Picture]) -> Answer:
    """The answer with the picture that `--plot` asks for drawn, and where it is."""
    if o.plot is None:
        return answer
    path = draw().save(o.plot)
    return Answer(f"{answer.text}\n\npicture in {path}", {**answer.data, "plot": str(path)}, answer.code)


def command_list(o: argparse.Namespace, progress: Progress) -> Answer:
    library = [api.workload(n) for n in workloads.names()]
    kernels = [{"name": k.name, "signature": k.signature, "summary": k.summary} for k in library]
    targets = [{"name": t.name, "title": t.title, "kind": t.kind} for t in map(api.target, target_names())]
    primitives = [
        {"name": p.name, "family": p.family, "summary": p.doc.splitlines()[0] if p.doc else ""}
        for p in sorted(api.primitives().values(), key=lambda p: (p.family, p.name))
    ]
    data = {"kernels": kernels, "targets": targets, "primitives": primitives}
    wanted = [o.what] if o.what else list(data)
    parts = [table(list(data[w][0]), [list(row.values()) for row in data[w]], f"{w}:") for w in wanted if data[w]]
    return Answer("\n\n".join(parts), {"command": "list", **{w: data[w] for w in wanted}})


def command_show(o: argparse.Namespace, progress: Progress) -> Answer:
    s, _ = _scheduled(o, progress)
    text = str(s.trace) or "# no steps" if o.trace else str(s) if o.form == "element" else s.emit(o.form)
    data = {
        "command": "show",
        "kernel": s.program.name,
        "form": "trace" if o.trace else o.form,
        "text": text,
        "sizes": list(s.program.sizes),
        "bound": dict(s.program.bound),
        "loops": list(s.loops),
        "buffers": list(s.buffers),
        "statements": list(s.statements),
        "trace": [str(step) for step in s.trace],
    }
    return Answer(text.rstrip("\n"), data)


def command_emit(o: argparse.Namespace, progress: Progress) -> Answer:
    s, _ = _scheduled(o, progress)
    return emit(s, o, progress)


def command_check(o: argparse.Namespace, progress: Progress) -> Answer:
    try:
        s, _ = _scheduled(o, progress)
    except LegalityError as e:
        progress.end()
        status = "illegal" if e.witness is not None else "unknown"
        verdict = verdict_data(e.verdict) if e.verdict is not None else {"status": status, "reason": e.reason}
        text = "\n  ".join([f"{status}: {e}", *getattr(e, "__notes__", [])])
        return Answer(text, {"command": "check", "verdict": verdict, "error": error_data(e)}, 1)
    verdict = s.check()
    data = {
        "command": "check",
        "kernel": s.program.name,
        "steps": len(s.trace),
        "verdict": verdict_data(verdict),
        "error": None,
    }
    return Answer(str(verdict), data, 0 if verdict.status == "legal" else 1)


def command_cost(o: argparse.Namespace, progress: Progress) -> Answer:
    s, sizes = _scheduled(o, progress, bind=False)  # open sizes give closed forms next to the numbers
    missing = [n for n in s.program.sizes if n not in sizes]
    if missing:
        raise ScheduleError(f"cost: the sizes {', '.join(missing)} are open: add {missing[0]}=1024")
    progress.now("counting")
    cost = s.cost(o.target, threads=o.threads, registers=o.registers, **sizes)
    progress.end()
    data = {"command": "cost", "kernel": s.program.name, "target": o.target, "cost": cost_data(cost)}
    return _pictured(Answer(cost_text(cost), data), o, lambda: cost_plot(cost))


def command_tune(o: argparse.Namespace, progress: Progress) -> Answer:
    answer, result = tune(o, progress)
    return answer if result is None else _pictured(answer, o, lambda: tune_plot(result))


def command_run(o: argparse.Namespace, progress: Progress) -> Answer:
    s, open_sizes = _scheduled(o, progress)
    sizes = {**dict(s.program.bound), **open_sizes}
    missing = [n for n in s.program.sizes if n not in sizes]
    if missing:
        raise ScheduleError(f"run: the sizes {', '.join(missing)} are open: add {missing[0]}=64")
    arrays, scalars = random_inputs(s.program, sizes, o.seed)
    progress.now("running the reference")
    reference = s.outputs(arrays, "reference", **scalars, **open_sizes)
    progress.finished("the reference was run")
    progress.now("running the schedule")
    result = s.outputs(arrays, o.backend, **scalars, **open_sizes)
    progress.end()
    buffers = s.program.source.buffer
    rows = [compare(n, buffers[n].dtype, result[n], reference[n]) for n in result]
    identical = all(r.identical for r in rows)
    data = run_data(s.program, o.backend, o.seed, sizes, rows)
    return Answer(run_text(s.program, o.backend, o.seed, sizes, rows), data, 0 if identical or not strict(s.program) else 1)


def command_occupancy(o: argparse.Namespace, progress: Progress) -> Answer:
    found = api.occupancy(
        o.target, threads=o.threads, registers=o.registers, shared_bytes=o.shared, carveout=o.carveout, barriers=o.barriers
    )
    answer = Answer(occupancy_text(found), {"command": "occupancy", **occupancy_data(found)}, 0 if found.blocks else 1)
    return _pictured(answer, o, lambda: occupancy_plot(found))


def command_target(o: argparse.Namespace, progress: Progress) -> Answer:
    if not o.measure:
        if o.compiler:
            raise TargetError("target: --compiler is for --measure")
        found = api.target(o.target)
        return Answer(target_text(found), {"command": "target", **target_data(found), "kept": None})
    if o.target != "host":
        raise TargetError(f"target {o.target} --measure: only this computer can be measured: target host --measure")
    measured = measure_host(o.compiler, say=progress.now)
    kept = keep(measured)
    progress.end()
    return Answer(f"{target_text(measured)}\n\nkept in {kept}", {"command": "target", **target_data(measured), "kept": str(kept)})
