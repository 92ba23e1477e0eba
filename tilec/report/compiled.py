"""What a compiler made of emitted Triton kernels, beside what the model predicts: as text and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilec.cost.occupancy import Occupancy
from tilec.report.tables import table
from tilec.runtime.triton_jobs import Compiled
from tilec.search.gpu import Needs, misfit, resident
from tilec.targets import Target

COLUMNS = ("kernel", "", "registers", "spills", "shared B", "blocks/SM", "warps", "limited by", "matrix instructions")


def compiled_data(
    kernels: Sequence[Compiled], predicted: Sequence[Needs], products: Sequence[bool], machine: Target, warps: int
) -> list[dict[str, Any]]:
    """Plain data per kernel. products: does the kernel multiply matrices, so that matrix instructions are expected?"""
    out = []
    for c, n, multiplies in zip(kernels, predicted, products, strict=True):
        has = Needs(c.shared, c.registers, c.tensor_memory) if c.error is None else None
        real = resident(has, machine, warps) if has is not None else None
        want = resident(n, machine, warps)
        problem = misfit(has, machine, warps) if has is not None else None
        warnings = []
        if c.error is None and multiplies and not c.matrix:
            warnings.append(f"{c.kernel} multiplies matrices, and its machine code has no matrix instruction")
        if c.error is None and c.spills:
            warnings.append(f"{c.kernel} spills registers: {c.spills} loads and stores, {c.stack} B of stack per thread")
        out.append(
            {
                "kernel": c.kernel,
                "error": c.error,
                "compiled": {
                    "registers": c.registers,
                    "spills": c.spills,
                    "stack": c.stack,
                    "shared": c.shared,
                    "tensor_memory": c.tensor_memory,
                    "instructions": c.instructions,
                    "matrix": dict(c.matrix),
                    "occupancy": _occupancy(real),
                },
                "predicted": {
                    "registers": n.registers,
                    "spills": n.spills if n.registers is not None else None,
                    "shared": n.shared,
                    "tensor_memory": n.columns,
                    "occupancy": _occupancy(want),
                },
                "problem": problem,
                "warnings": warnings,
            }
        )
    return out


def _occupancy(o: Occupancy | None) -> dict[str, Any] | None:
    return None if o is None else {"blocks": o.blocks, "warps": o.warps, "limiters": list(o.limiters)}


def compiled_text(data: Sequence[Mapping[str, Any]], machine: Target, capability: int) -> str:
    """Two rows per kernel, compiled and predicted; then what is wrong."""
    rows: list[tuple[Any, ...]] = []
    tail: list[str] = []
    for k in data:
        if k["error"] is not None:
            tail.append(f"{k['kernel']} does not compile: {k['error']}")
        else:
            c = k["compiled"]
            matrix = ", ".join(f"{n} {name}" for name, n in c["matrix"].items()) or "none"
            rows.append((k["kernel"], "compiled", c["registers"], c["spills"], c["shared"], *_cells(c["occupancy"]), matrix))
        p = k["predicted"]
        spills = None if p["spills"] is None else "some" if p["spills"] else 0
        rows.append((k["kernel"], "predicted", p["registers"], spills, p["shared"], *_cells(p["occupancy"]), None))
        tail += [f"{k['kernel']} {k['problem']}"] if k["problem"] else []
        tail += [f"warning: {w}" for w in k["warnings"]]
    title = f"compiled for {machine.name} (sm_{capability})"
    return "\n".join([table(COLUMNS, rows, title), *tail])


def _cells(o: Mapping[str, Any] | None) -> tuple[Any, Any, Any]:
    return (None, None, None) if o is None else (o["blocks"], o["warps"], ", ".join(o["limiters"]))
