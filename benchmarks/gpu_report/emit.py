"""Writes benchmarks/gpu_kernels/: the kernels that benchmarks/gpu.py runs on a machine without tilec, and what it compares with.

python -m benchmarks.gpu_report.emit
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu_report.schedules import CASES, Case
from tilec import api, workloads
from tilec.codegen.triton import Options, emit
from tilec.cost.price import price
from tilec.ir import interp
from tilec.ir.arguments import required, written
from tilec.ir.dtypes import DTYPES, to_storage
from tilec.ir.program import Program
from tilec.search.gpu import Built, emitted_candidates

FOLDER = Path(__file__).resolve().parent.parent / "gpu_kernels"
TARGET = "h200"
CANDIDATES = 20
PROFILED = ("gemm", "act_chain", "rmsnorm")
SHAPES = {"1024×12288×4096": {"M": 1024, "N": 12288, "K": 4096}, "8192×8192×8192": {"M": 8192, "N": 8192, "K": 8192}}
HEAD = "# Emitted by `python -m benchmarks.gpu_report.emit`.\n"


def exact_values(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """As in gpu.py, which cannot import this file."""
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 4).astype(np.float32)


def inputs(program: Program, sizes: Mapping[str, int]) -> list[tuple[str, str, list[int]]]:
    """Name, type and shape of every array that a call needs, in order."""
    source = program.source
    needed = set(required(source))
    bound = {**dict(source.bound), **sizes}
    return [(b.name, b.dtype, [e.eval(bound) for e in b.shape]) for b in source.buffers if b.name in needed]


def expected(c: Case, program: Program) -> dict[str, np.ndarray]:
    """The reference's outputs at the odd sizes for exact inputs, as bits."""
    sizes = dict(c.odd)
    arrays: dict[str, np.ndarray] = {}
    for n, (name, dtype, shape) in enumerate(inputs(program, sizes)):
        arrays[name] = to_storage(dtype, exact_values(n, tuple(shape)))
    for b in program.source.buffers:
        if b.role == "param" and b.name not in arrays:
            arrays[b.name] = np.zeros([e.eval(sizes) for e in b.shape], dtype=DTYPES[b.dtype].numpy)
    found = interp.run(program.source, arrays, sizes, dict(c.scalars))
    return {n: found[n].view(f"u{found[n].itemsize}") for n in written(program.source)}


@dataclass(frozen=True)
class Files:
    """What the folder holds: texts by name, the manifest, the expected bits."""

    texts: dict[str, str]
    manifest: dict[str, Any]
    expected: dict[str, np.ndarray]


def cases(profiled: tuple[str, ...] = PROFILED) -> Files:
    """Every kernel at its odd sizes; traffic by the model for those whose bytes are counted."""
    texts: dict[str, str] = {}
    out: dict[str, Any] = {}
    bits: dict[str, np.ndarray] = {}
    for c in CASES:
        program = c.schedule().program
        made = emit(program, Options())
        texts[c.name] = made.text
        row: dict[str, Any] = {
            "entry": made.entry,
            "odd": inputs(program, c.odd),
            "real": inputs(program, c.real),
            "outputs": [n for n in written(program.source) if n not in required(program.source)],
            "scalars": dict(c.scalars),
            "f8": any(b.dtype.startswith("f8") for b in program.buffers),
        }
        if c.name in profiled:
            cost = price(program, TARGET, c.real, 32 * made.num_warps)
            row |= {"traffic": cost.traffic.total("global"), "least": cost.lower_bound("global")}
        out[c.name] = row
        bits |= {f"{c.name}.{n}": a for n, a in expected(c, program).items()}
    return Files(texts, {"cases": out, "profiled": list(profiled)}, bits)


def candidates(sizes: Mapping[str, int], count: int) -> list[Built]:
    """gemm_silu candidates for the device that the script is written for, in the order of the model: some of the best, then
    some from the whole ranking, so that an order can show."""
    tuned = api.tune(api.Kernel(workloads.get("gemm_silu")), sizes, TARGET, reassociate="acc")
    best, rest = tuned.rows[: 5 * count], tuned.rows[5 * count :]
    spread = [
        *best[::10],
        *rest[:: max(1, len(rest) // (3 * count))],
    ]  # neighbours hardly differ: half from the top, half from below
    return list(emitted_candidates(replace(tuned, rows=spread), count, TARGET, (8,))[0])


def main() -> int:
    """Everything, into an emptied folder."""
    found = cases()
    texts, manifest = dict(found.texts), dict(found.manifest)
    manifest["candidates"] = {}
    for size, sizes in SHAPES.items():
        rows = []
        for n, b in enumerate(candidates(sizes, CANDIDATES)):
            file = f"gemm_silu_{sizes['M']}_{n:02}"
            texts[file] = b.emitted.text
            program = b.candidate.schedule.program
            rows.append(
                {
                    "file": file,
                    "entry": b.emitted.entry,
                    "label": b.label,
                    "structure": b.candidate.structure,
                    "knobs": dict(b.candidate.knobs),
                    "warps": b.emitted.num_warps,
                    "predicted": None if b.cost is None else b.cost.time,
                    "sizes": dict(sizes),
                    "real": inputs(program, sizes),
                    "scalars": {},
                }
            )
        manifest["candidates"][size] = rows
    if FOLDER.exists():
        shutil.rmtree(FOLDER)
    FOLDER.mkdir()
    for name, text in texts.items():
        (FOLDER / f"{name}.py").write_text(HEAD + text, encoding="utf-8")
    (FOLDER / "manifest.json").write_text(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    np.savez_compressed(FOLDER / "expected.npz", allow_pickle=False, **found.expected)
    print(f"{FOLDER}: {len(texts)} kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
