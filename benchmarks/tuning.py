"""`python -m benchmarks.tuning [--count N] [--only gemm|chain] [--write PAGE]`: how well the model of the host ranks.

Compiles and times `count` candidates of one GEMM and one elementwise chain, all of them checked against the reference, and
reports the rank correlation of the model, and what trusting it costs; then what tuning gives in ten and in sixty seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tilec
from tilec import f32, sizes
from tilec.api import Kernel
from tilec.cost.cpu import program_time
from tilec.errors import TilecError
from tilec.schedule.schedule import Schedule, start
from tilec.search.cpu_core import Core
from tilec.search.cpu_space import cpu_recipes
from tilec.search.database import Database
from tilec.search.measure import Measure, Run
from tilec.search.regret import Regret, regret
from tilec.search.space import Space
from tilec.search.structure import unproved_schedule
from tilec.targets import Target, load

M, N, K = sizes("M N K")
MARK = ("<!-- tuning: written by python -m benchmarks.tuning -->", "<!-- end of tuning -->")


@tilec.kernel
def gemm_f32(A: f32[M, K], W: f32[K, N], C: f32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc


@tilec.kernel
def chain(X: f32[M, N], G: f32[M, N], Y: f32[M, N]):
    T: f32[M, N]
    for i in range(M):
        for j in range(N):
            T[i, j] = X[i, j] * tilec.sigmoid(X[i, j])
    for i in range(M):
        for j in range(N):
            Y[i, j] = T[i, j] * G[i, j] + 1.0


@dataclass(frozen=True)
class Made:
    """A candidate as measuring wants it; not proved, but its results are checked."""

    schedule: Schedule
    knobs: Mapping[str, Any]
    predicted: float


@dataclass(frozen=True)
class Result:
    """Of one kernel."""

    kernel: str
    sizes: Mapping[str, int]
    compiled: int
    failed: Mapping[str, int]
    best_ms: float
    worst_ms: float
    regret: Regret
    seconds: float
    tuner_mib: float
    ten: Mapping[str, float]
    sixty: Mapping[str, float]


def chain_schedule(core: Core) -> Callable[[Schedule, Mapping[str, Any]], Schedule]:
    """Knobs of the chain: is the first step stored, which rows go to the cores, columns of a piece, lanes, streaming stores."""

    def apply(s: Schedule, knobs: Mapping[str, Any]) -> Schedule:
        statements = ["S0", "S1"] if knobs["stored"] else ["S1"]
        if not knobs["stored"]:
            s = s.compute_inline("T")
        for name in statements:
            s = s.split(f"{name}.i", knobs["ROWS"], into=(f"io{name}", f"ii{name}"))
            s = s.split(f"{name}.j", knobs["PIECE"], into=(f"jo{name}", f"ji{name}"))
            s = s.split(f"ji{name}", knobs["LANES"], into=(f"jv{name}", f"jl{name}")).vectorize(f"jl{name}")
            if knobs["order"] == "columns":
                s = s.reorder(f"io{name}", f"jo{name}", f"ii{name}")
            s = s.parallel(f"io{name}")
        return s.store("Y") if knobs["past"] else s

    return apply


def gemm_candidates(bound: Schedule, machine: Target, count: int, seed: int) -> list[tuple[Callable, Mapping[str, Any]]]:
    out: list[tuple[Callable, Mapping[str, Any]]] = []
    recipes = cpu_recipes(bound.program, machine)
    for r in recipes:
        space = Space.of(r.space)
        fitting = [space.at(n) for n in range(len(space)) if r.fits(space.at(n))]
        share = -(-count // max(1, len(recipes) - 1))
        out += [(r.apply, k) for k in (fitting if len(fitting) <= share else random.Random(seed).sample(fitting, share))]
    return out


def chain_candidates(bound: Schedule, machine: Target, count: int, seed: int) -> list[tuple[Callable, Mapping[str, Any]]]:
    space = Space.of(
        {
            "stored": [False, True],
            "ROWS": [1, 4, 16, 64, 256],
            "PIECE": [64, 256, 1024, 4096],
            "LANES": [4, 8, 16, 32],
            "order": ["rows", "columns"],
            "past": [False, True],
        }
    )
    apply = chain_schedule(Core.of(machine))
    return [(apply, space.at(n)) for n in space.sample(count, seed)]


def measured(kernel: Kernel, numbers: dict[str, int], made: Callable, o: argparse.Namespace, **permissions: Any) -> Result:
    """Compile and time `count` candidates, then tune as a person would."""
    machine = load("host")
    bound = start(kernel.program, numbers, **permissions)
    candidates: list[Made] = []
    failed: dict[str, int] = {}
    memo: dict = {}
    for apply, knobs in made(bound, machine, o.count, 0):
        try:
            s = unproved_schedule(apply, bound, knobs, memo)
            candidates.append(Made(s, knobs, program_time(s.program, machine, {}, o.threads)[0]))
        except TilecError as e:
            failed[type(e).__name__] = failed.get(type(e).__name__, 0) + 1
    began = time.monotonic()
    with Database(None) as store:
        settings = Measure(candidates=len(candidates), seconds=o.seconds, repeats=5, threads=o.threads)
        run = Run(settings, kernel.program, numbers, 0, store, lambda stage, done, total: print(stage, done, total, flush=True))
        run.measure_all(candidates)  # type: ignore[arg-type]
    good = [(candidates[n].predicted, x.seconds) for n, x in run.outcomes.items() if x.failure is None and x.seconds]
    for x in run.outcomes.values():
        if x.failure is not None:
            failed[x.failure] = failed.get(x.failure, 0) + 1
    print(regret([p for p, _ in good], [s for _, s in good]), flush=True)
    if o.points:
        o.points.mkdir(parents=True, exist_ok=True)
        rows = [[dict(candidates[n].knobs), candidates[n].predicted, x.seconds, x.failure] for n, x in run.outcomes.items()]
        (o.points / f"{kernel.name}.json").write_text(json.dumps(rows))
    took = time.monotonic() - began
    budgets = []
    for budget in (10.0, 60.0):
        began = time.monotonic()
        found = tilec.tune(
            kernel, numbers, "host", measure=Measure(seconds=budget, threads=o.threads), threads=o.threads, **permissions
        )
        best = found.best.measured
        budgets.append(
            {"ms": 1e3 * best if best else float("nan"), "seconds": time.monotonic() - began, "of": found.measurement.measured}
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    times = [s for _, s in good]
    return Result(
        kernel.name,
        numbers,
        len(good),
        failed,
        1e3 * min(times),
        1e3 * max(times),
        regret([p for p, _ in good], times),
        took,
        peak,
        budgets[0],
        budgets[1],
    )


def section(results: list[Result], machine: Target, threads: int) -> str:
    """Markdown."""
    heads = (
        "kernel",
        "candidates",
        "best",
        "worst",
        "rank correlation",
        "top-1 regret",
        "top-8 regret",
        "10 s",
        "60 s",
        "memory",
    )
    lines = [MARK[0], "", "## Tuning on a CPU", ""]
    lines += [
        f"The model of `host` against compiled and checked candidates: {machine.title}, {threads} thread(s). Regret: how much",
        "slower the best of the model's first one and eight is than the best of all that were measured. 10 s, 60 s: what `tune`",
        "finds with that budget for measuring, how many candidates it measured, and how long it took in all. Memory: the tuner's",
        "own peak.",
        "",
        f"| {' | '.join(heads)} |",
        f"|{'---|' * len(heads)}",
    ]
    for r in results:
        shape = ", ".join(f"{k}={v}" for k, v in r.sizes.items())
        failed = "".join(f", {n} {reason}" for reason, n in r.failed.items())
        tuned = [f"{b['ms']:.3g} ms, {b['of']} measured, {b['seconds']:.0f} s" for b in (r.ten, r.sixty)]
        regrets = (f"{r.regret.correlation:.2f}", f"{r.regret.top1:.1%}", f"{r.regret.top8:.1%}")
        cells = (
            f"{r.kernel} ({shape})",
            f"{r.compiled}{failed}",
            f"{r.best_ms:.3g} ms",
            f"{r.worst_ms:.3g} ms",
            *regrets,
            *tuned,
        )
        lines.append(f"| {' | '.join(cells)} | {r.tuner_mib:.0f} MiB |")
    return "\n".join([*lines, "", MARK[1]])


def written(page: str, text: str) -> str:
    """The page with its section replaced, or added at the end."""
    if MARK[0] in page and MARK[1] in page:
        return page[: page.index(MARK[0])] + text + page[page.index(MARK[1]) + len(MARK[1]) :]
    return page.rstrip("\n") + "\n\n" + text + "\n"


def main(argv: list[str] | None = None) -> None:
    p = argparse.ArgumentParser(prog="python -m benchmarks.tuning", description=__doc__)
    p.add_argument("--count", type=int, default=200, help="candidates of each kernel (default 200)")
    p.add_argument("--only", choices=("gemm", "chain"))
    p.add_argument("--seconds", type=float, default=600.0, help="for the candidates of one kernel (default 600)")
    p.add_argument("--threads", type=int, help="of each candidate (default: the cores)")
    p.add_argument("--size", type=int, default=512, help="of the GEMM (default 512)")
    p.add_argument("--write", type=Path, metavar="PAGE")
    p.add_argument("--json", type=Path, metavar="FILE")
    p.add_argument(
        "--points", type=Path, metavar="FOLDER", help="write every candidate with its predicted and measured seconds there"
    )
    o = p.parse_args(argv)
    results = []
    if o.only != "chain":
        cube = {n: o.size for n in ("M", "N", "K")}
        results.append(measured(gemm_f32, cube, gemm_candidates, o, reassociate="acc", contract=True))
    if o.only != "gemm":
        results.append(measured(chain, {"M": 1024, "N": 4096}, chain_candidates, o))
    for r in results:
        print(r.regret)
    text = section(results, load("host"), o.threads or load("host").cores)
    print(text)
    if o.json:
        o.json.write_text(json.dumps([asdict(r) for r in results], indent=2))
    if o.write:
        o.write.write_text(written(o.write.read_text() if o.write.exists() else "", text))


if __name__ == "__main__":
    main()
