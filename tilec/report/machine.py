"""A target and an occupancy as tables and as data."""

from __future__ import annotations

from typing import Any

from tilec.cost.occupancy import Occupancy
from tilec.report.tables import table
from tilec.targets import Figure, Target


def target_data(t: Target) -> dict[str, Any]:
    """name, title, kind, note; figures, matrix, vector by name as {value, text, source, estimate}; limits by name. Of a CPU also
    features, machine, measured, and threads: rates of the same form by number of threads."""

    def figures(rows: tuple[tuple[str, Figure], ...]) -> dict[str, Any]:
        return {n: {"value": f.value, "text": f.text, "source": f.source, "estimate": f.estimate} for n, f in rows}

    return {
        "name": t.name,
        "title": t.title,
        "kind": t.kind,
        "note": t.note,
        "figures": figures(t.figures),
        "matrix": figures(t.matrix_peaks),
        "vector": figures(t.vector_peaks),
        "features": list(t.features),
        "threads": {str(n): figures(rates) for n, rates in t.threads},
        "machine": t.machine,
        "measured": t.measured,
        "limits": None if t.limits is None else {k: getattr(t.limits, k) for k in t.limits.__dataclass_fields__},
    }


def target_text(t: Target) -> str:
    rows = [(n, f.text, "estimate" if f.estimate else "", f.source) for n, f in t.figures]
    rows += [(f"matrix {n}", f.text, "estimate" if f.estimate else "", f.source) for n, f in t.matrix_peaks]
    rows += [(f"vector {n}", f.text, "estimate" if f.estimate else "", f.source) for n, f in t.vector_peaks]
    rows += [
        (f"{name} ({n} thread{'s' if n > 1 else ''})", f.text, "estimate" if f.estimate else "", f.source)
        for n, rates in t.threads
        for name, f in rates
    ]
    parts = [f"{t.name}: {t.title} ({t.kind})"]
    if t.features:
        parts.append(f"features: {', '.join(t.features)}")
    if rows:
        parts.append(table(("figure", "value", "", "source"), rows))
    if t.limits is not None:
        limits = [
            (k.replace("_", " "), ", ".join(f"{x:,}" for x in v) if isinstance(v, tuple) else v)
            for k in t.limits.__dataclass_fields__
            if k not in ("source", "compute_capability")
            for v in [getattr(t.limits, k)]
        ]
        parts.append(table(("per SM and block", "value"), limits, f"compute capability {t.limits.compute_capability}"))
        parts.append(f"source of the limits: {t.limits.source}")
    if t.note:
        parts.append(f"note: {t.note}")
    return "\n\n".join(parts)


def occupancy_data(o: Occupancy) -> dict[str, Any]:
    """The fields of Occupancy; `gain` is the cheapest change that gains one block, as text."""
    return {
        "target": o.target,
        "blocks": o.blocks,
        "warps": o.warps,
        "fraction": o.fraction,
        "limiters": list(o.limiters),
        "limits": dict(o.limits),
        "allocated_registers": o.allocated_registers,
        "allocated_shared": o.allocated_shared,
        "shared_per_sm": o.shared_per_sm,
        "unknown": list(o.unknown),
        "problems": list(o.problems),
        "gain": None if o.gain is None else str(o.gain),
    }


def occupancy_text(o: Occupancy) -> str:
    rows = [(name, "no limit" if n is None else n, "limiter" if name in o.limiters else "") for name, n in o.limits.items()]
    parts = [f"{o.target}: {o}", table(("resource", "blocks", ""), rows)]
    return "\n\n".join([*parts, *(f"no block fits: it {p}" for p in o.problems)])
