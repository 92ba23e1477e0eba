"""A run next to its reference, as a table and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilec.ir.program import Program
from tilec.report.tables import table
from tilec.runtime.compare import Difference


def run_data(program: Program, backend: str, seed: int, sizes: Mapping[str, int], rows: Sequence[Difference]) -> dict[str, Any]:
    """command, kernel, backend, seed, sizes, identical, outputs: name, dtype, shape, elements, different, absolute, relative."""
    return {
        "command": "run",
        "kernel": program.name,
        "backend": backend,
        "seed": seed,
        "sizes": dict(sizes),
        "identical": all(r.identical for r in rows),
        "outputs": [
            {
                "name": r.name,
                "dtype": r.dtype,
                "shape": list(r.shape),
                "elements": r.elements,
                "different": r.different,
                "absolute": r.absolute,
                "relative": r.relative,
            }
            for r in rows
        ],
    }


def run_text(program: Program, backend: str, seed: int, sizes: Mapping[str, int], rows: Sequence[Difference]) -> str:
    given = ", ".join(f"{k}={v}" for k, v in sizes.items())
    head = f"{program.name}({given}) by {backend} against the reference, random inputs from seed {seed}"
    cells = [
        (r.name, f"{r.dtype}[{', '.join(map(str, r.shape))}]", r.elements, r.different, f"{r.absolute:.3g}", f"{r.relative:.3g}")
        for r in rows
    ]
    body = table(("output", "type", "elements", "different", "largest difference", "relative"), cells)
    same = all(r.identical for r in rows)
    permissions = [f"reassociate {', '.join(sorted(program.reassociate))}"] if program.reassociate else []
    permissions += ["contract"] * program.contract + ["hardware_rounding"] * program.hardware_rounding
    if same:
        last = "bit-identical"
    elif permissions:
        last = f"not bit-identical; the schedule was permitted to: {'; '.join(permissions)}"
    else:
        last = "NOT bit-identical, and no permission allows a difference"
    return f"{head}\n\n{body}\n\n{last}"
