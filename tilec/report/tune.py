"""The result of a search for a person and as data."""

from __future__ import annotations

from typing import Any

from tilec.report.tables import table
from tilec.search.measured import Measurement
from tilec.search.result import Tuned


def rejected_text(result: Tuned) -> str:
    """Reasons with counts and one example each (its first line)."""
    rows = [(reason, r.count, r.example.splitlines()[0]) for reason, r in result.rejected.items()]
    return table(("rejected", "candidates", "for example"), rows) if rows else "nothing was rejected"


def tune_text(result: Tuned, top: int = 10) -> str:
    """The ranking, why the first was picked, what was rejected, its pseudocode and its steps."""
    best = result.best
    parts = [
        result.table(top),
        *([str(result.measurement)] if result.measurement is not None else []),
        result.why(),
        rejected_text(result),
        str(best.schedule).rstrip("\n"),
        f"steps:\n{best.schedule.trace}",
    ]
    return "\n\n".join([*parts, *(f"note: {n}" for n in result.notes)])


def tune_data(result: Tuned, top: int = 10) -> dict[str, Any]:
    """What `Tuned.to_json` holds, and why; the first `top` candidates; the front of footprint against traffic."""
    rows = [
        {
            "structure": c.structure,
            "knobs": c.knobs,
            "time": c.cost.time,
            "bound": c.cost.bound,
            "traffic": c.cost.traffic.total("global"),
            "footprint": c.cost.footprint["shared"],
            "measured": c.measured,
            "spread": c.spread,
            "tie": c.tie,
        }
        for c in result.top(top)
    ]
    front = [
        {"structure": r.structure, "knobs": r.knobs, "footprint": r.footprint, "traffic": r.traffic} for r in result.pareto()
    ]
    return {
        **result.to_json(),
        "why": result.why(),
        "table": rows,
        "pareto": front,
        "measurement": measurement_data(result.measurement),
    }


def measurement_data(m: Measurement | None) -> dict[str, Any] | None:
    """The fields of Measurement; NaN figures of the regret as None."""
    if m is None:
        return None
    figures = {n: getattr(m.regret, n) for n in m.regret.__dataclass_fields__}
    return {
        **{n: getattr(m, n) for n in m.__dataclass_fields__ if n != "regret"},
        "environment": dict(m.environment),
        "regret": {n: None if v != v else v for n, v in figures.items()},
    }
