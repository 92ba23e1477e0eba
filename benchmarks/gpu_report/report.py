"""`make gpu-report`: what the compiler makes of emitted kernels on five architectures, beside what the model says; docs/gpu.md.

    python -m benchmarks.gpu_report                compile what is not cached, write docs/gpu.json and docs/gpu.md
    python -m benchmarks.gpu_report --resume       go on where an interrupted run stopped
    python -m benchmarks.gpu_report --part page    docs/gpu.md again from docs/gpu.json
    python -m benchmarks.gpu_report --part timing  how long emitting and compiling take, onto the page

No GPU is needed: kernels are compiled for an architecture, and the machine code is read.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_report.page import rendered
from benchmarks.gpu_report.schedules import CASES, case
from tilec import api, workloads
from tilec.codegen.triton import emit, options_for
from tilec.runtime.triton_jobs import Compiled, Job, capability, compile_all, jobs
from tilec.search.gpu import Built, Needs, emitted_candidates, misfit, predicted, ranked, resident
from tilec.search.result import Rejection, Tuned
from tilec.targets import load

ROOT = Path(__file__).resolve().parent.parent.parent
TARGETS = ("a100-sxm", "rtx-4090", "h100-sxm", "b200", "rtx-pro-6000")
SIZES = {"M": 1024, "N": 12288, "K": 4096}
SEARCHED = {"gemm_silu": ("acc",), "rowquant_gemm": ("acc",), "gemm": ("acc",)}
EACH = 14  # candidates per kernel and target: 14 · 3 · 5 = 210
CHAIN = ("rtx-pro-6000", "h100-sxm", "b200")
TABLE = (  # fixed tiles of every kind of kernel: case, knobs, warps
    ("gemm", {"BM": 128, "BN": 128, "BK": 64}, 8),
    ("gemm", {"BM": 64, "BN": 128, "BK": 32}, 4),
    ("gemm_silu", {"BM": 64, "BN": 64, "BK": 32}, 4),
    ("gemm_silu", {"BM": 64, "BN": 128, "BK": 64}, 8),
    ("gemm_silu_quantize", {"BM": 64, "BN": 64, "BK": 64}, 4),
    ("swiglu", {"BM": 64, "BN": 64, "BK": 32}, 4),
    ("rowquant_gemm_stored", {"BM": 64, "BN": 128, "BK": 64}, 4),
    ("rowquant_gemm_fused", {"BM": 64, "BN": 64, "BK": 32}, 4),
    ("conv2d", None, 4),
    ("rmsnorm", None, 4),
)


@dataclass(frozen=True)
class Line:
    """One kernel of one candidate on one target: what was predicted, and the job that tells."""

    kernel: str
    tile: str
    warps: int
    target: str
    origin: str  # "table" or "search"
    needs: Needs
    job: Job


def searched(kernel: str, target: str) -> Tuned:
    """The search whose candidates are compiled."""
    return api.tune(api.Kernel(workloads.get(kernel)), SIZES, target, reassociate=SEARCHED[kernel])


def tile_text(knobs: dict[str, Any]) -> str:
    """128×128×64, 3 stages; the structure where it is not the usual one."""
    tile = "×".join(str(knobs[n]) for n in ("BM", "BN", "BK") if n in knobs)
    return tile + (f", {knobs['stages']} stages" if "stages" in knobs else "")


def lines_of_table() -> list[Line]:
    """The fixed tiles."""
    out = []
    for name, knobs, warps in TABLE:
        c = case(name)
        program = c.schedule(knobs).program
        for target in TARGETS:
            machine = load(target)
            made = emit(program, options_for(machine, warps))
            for n, job in zip(predicted(made, machine, c.real), jobs(made, c.real, capability(machine)), strict=True):
                tile = tile_text({**(knobs or c.knobs), "stages": made.num_stages}) if "BM" in (knobs or c.knobs) else "rows"
                out.append(Line(job.kernel, "64×64×32, 3 stages" if name == "conv2d" else tile, warps, target, "table", n, job))
    return out


def lines_of(found: Sequence[Built], target: str) -> list[Line]:
    """The candidates of a search."""
    out = []
    for b in found:
        for n, job in zip(b.needs, jobs(b.emitted, SIZES, capability(load(target))), strict=True):
            out.append(Line(job.kernel, tile_text(b.candidate.knobs), b.emitted.num_warps, target, "search", n, job))
    return out


def triple(line: Line, c: Compiled) -> dict[str, Any]:
    """One row of the table."""
    machine = load(line.target)
    n = line.needs
    out: dict[str, Any] = {
        "kernel": line.kernel,
        "tile": line.tile,
        "warps": line.warps,
        "target": line.target,
        "origin": line.origin,
        "shared_predicted": n.shared,
        "shared_compiled": c.shared,
        "registers_predicted": n.registers,
        "registers_compiled": c.registers,
        "spills_predicted": n.spills,
        "spills_compiled": c.spills,
        "stack_compiled": c.stack,
        "tensor_memory_predicted": n.columns,
        "tensor_memory_compiled": c.tensor_memory,
        "matrix": dict(c.matrix),
        "instructions": c.instructions,
        "error": c.error,
    }
    if c.error is None:
        has = Needs(c.shared, c.registers, c.tensor_memory)
        out["blocks_compiled"] = resident(has, machine, line.warps).blocks
        out["blocks_predicted"] = resident(n, machine, line.warps).blocks
        out["fits"] = misfit(has, machine, line.warps) is None
    return out


def pick(tuned: Tuned, found: Sequence[Built], rejected: Mapping[str, Rejection], workers: int) -> dict[str, Any] | None:
    """The best candidate with real registers, and why it was picked."""
    result = ranked(found, tuned.sizes, load(tuned.target), rejected, workers)
    if not result.best:
        return None
    best = result.best[0]
    assert best.cost is not None
    return {
        "target": tuned.target,
        "structure": best.candidate.structure,
        "knobs": dict(best.candidate.knobs),
        "warps": best.emitted.num_warps,
        "seconds": best.cost.time,
        "bound": best.cost.bound,
        "traffic": best.cost.traffic.total("global"),
        "registers": [c.registers for c in best.compiled],
        "shared": [c.shared for c in best.compiled],
        "blocks": [o.blocks for o in best.occupancies()],
        "limiters": [list(o.limiters) for o in best.occupancies()],
        "matrix": [dict(c.matrix) for c in best.compiled],
        "first": {"knobs": tuned.rows[0].knobs, "seconds": tuned.rows[0].time, "traffic": tuned.rows[0].traffic},
        "model": tuned.why(),
        "fell": {k: {"count": r.count, "example": r.example.splitlines()[0]} for k, r in result.rejected.items()},
    }


def fuse_or_store(tuned: Tuned) -> dict[str, Any]:
    """The best candidate of each decision about the quantised operand."""
    out: dict[str, Any] = {"target": tuned.target}
    for choice in ("stored", "recomputed"):
        row = next((r for r in tuned.rows if r.knobs.get("quantised operand") == choice), None)
        if row is not None:
            out[choice] = {"structure": row.structure, "knobs": row.knobs, "seconds": row.time, "traffic": row.traffic}
    return out


def main(argv: Sequence[str] | None = None) -> int:
    """Compile, write, render."""
    parser = argparse.ArgumentParser(
        description="Hold the model against Triton's compiler; writes docs/gpu.json and docs/gpu.md."
    )
    text = "page: docs/gpu.md from docs/gpu.json, nothing is compiled; timing: how long emitting and compiling take (a minute)"
    parser.add_argument("--part", choices=("page", "timing"), help=text)
    parser.add_argument("--resume", action="store_true", help="keep what docs/gpu.json holds, and add the searches it lacks")
    parser.add_argument("--workers", type=int, default=2, help="compilers at once (default 2)")
    o = parser.parse_args(argv)
    data_file, page = ROOT / "docs" / "gpu.json", ROOT / "docs" / "gpu.md"
    known = json.loads(data_file.read_text(encoding="utf-8")) if o.part or o.resume else None
    if known is not None and o.part == "timing":
        known["timing"] = timed(o.workers)
    steps = [known] if known is not None and o.part else collected(o.workers, known)
    for data in steps:  # written after each search, so that an interrupted run leaves what it found
        data_file.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        page.write_text(rendered(page.read_text(encoding="utf-8"), data), encoding="utf-8")
    return 0


def timed(workers: int, target: str = "h100-sxm", count: int = 20, repeats: int = 9) -> dict[str, Any]:
    """Seconds: of emitting gemm_silu and the slowest case, and of compiling that many candidates, with a cache that is empty and
    then full."""

    def seconds(work: Callable[[], object]) -> float:
        began = time.perf_counter()
        work()
        return time.perf_counter() - began

    slowest = 0.0
    for c in CASES:
        s = c.schedule()
        slowest = max(slowest, statistics.median(seconds(lambda s=s: emit(s.program, options_for(target))) for _ in range(3)))
    program = case("gemm_silu").schedule().program
    emitting = statistics.median(seconds(lambda: emit(program, options_for(target))) for _ in range(repeats))
    found = emitted_candidates(searched("gemm_silu", target), count)[0]
    wanted = [job for b in found for job in jobs(b.emitted, SIZES, capability(load(target)))]
    with tempfile.TemporaryDirectory() as folder:
        cold, cached = (seconds(lambda: compile_all(wanted, workers, cache=Path(folder))) for _ in range(2))
    return {
        "kernel": "gemm_silu",
        "target": target,
        "cases": len(CASES),
        "repeats": repeats,
        "emit": emitting,
        "slowest": slowest,
        "count": len(found),
        "cpus": workers,
        "cold": cold,
        "cached": cached,
    }


def collected(workers: int, known: dict[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Everything that the page shows, as it grows; from what an earlier run left, where it is given."""

    def say(done: int, total: int) -> None:
        print(f"\r{done} of {total} kernels compiled", end="", file=sys.stderr, flush=True)

    data: dict[str, Any] = known or {
        "sizes": SIZES,
        "triples": [],
        "rejected": {},
        "chain": {"gemm_silu": [], "rowquant_gemm": []},
    }
    if known is None:
        lines = lines_of_table()
        data["triples"] = [triple(x, c) for x, c in zip(lines, compile_all([x.job for x in lines], workers, say), strict=True)]
    yield data
    order = sorted(((k, t) for k in SEARCHED for t in TARGETS), key=lambda x: (x[0] == "gemm", x[1] not in CHAIN))
    for kernel, target in order:
        if f"{kernel} on {target}" in data["rejected"]:
            continue
        tuned = searched(kernel, target)
        found, rejected = emitted_candidates(tuned, EACH)
        data["rejected"][f"{kernel} on {target}"] = {reason: r.count for reason, r in rejected.items()}
        mine = lines_of(found, target)
        data["triples"] += [triple(x, c) for x, c in zip(mine, compile_all([x.job for x in mine], workers, say), strict=True)]
        if target in CHAIN and kernel == "gemm_silu" and (chosen := pick(tuned, found, rejected, workers)) is not None:
            data["chain"]["gemm_silu"].append(chosen)
        if target in CHAIN and kernel == "rowquant_gemm":
            data["chain"]["rowquant_gemm"].append(fuse_or_store(tuned))
        yield data
    if "timing" not in data:
        data["timing"] = timed(workers)
        yield data
