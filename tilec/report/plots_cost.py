"""Pictures of a cost and of a search: the roofline with a point per level, and footprint against traffic with the bound."""

from __future__ import annotations

import math
from typing import Any

from tilec.cost.cost import Cost
from tilec.cost.levels import levels, roofs
from tilec.errors import TargetError
from tilec.report.canvas import GRID, INK, SERIES, SOFT, Panel, Picture, below
from tilec.report.plots_sm import occupancy_plot, waves_plot
from tilec.report.tables import seconds, size
from tilec.search.result import Tuned


def roofline_plot(cost: Cost) -> Picture:
    """Operations per second over operations per byte, both logarithmic: a sloped roof per level of memory, a flat one per unit,
    and the schedule at each level's intensity, at the rate of its estimated time.

    TargetError without a target that has rates, ResourceError while sizes are open.
    """
    found, peaks = levels(cost), roofs(cost)
    if not found or not peaks or not cost.flops:
        raise TargetError(f"plot: {cost.name} has no roofline here: it needs operations, bytes and a target with rates for both")
    rate = cost.flops / cost.time
    points = [(x.name, x.intensity(cost.flops), x.bandwidth) for x in found]
    ridges = [p.rate / b for p in peaks for _, _, b in points]
    low = min(x for _, x, _ in points) / 4
    high = max(*ridges, *(x for _, x, _ in points)) * 4
    top = peaks[0].rate

    def draw(axes: Any) -> None:
        for n, (name, x, bandwidth) in enumerate(points):
            color = SERIES[n]
            axes.plot([low, top / bandwidth], [low * bandwidth, top], color=color, linewidth=1.2)
            axes.plot([x, x], [min(rate, x * bandwidth), min(top, x * bandwidth)], color=color, linewidth=0.8, linestyle=":")
            axes.plot([x], [rate], "o", color=color, label=f"{name}: {x:.3g} flop/B at {bandwidth / 1e9:,.0f} GB/s")
        for p in peaks:
            start = min(p.rate / b for _, _, b in points)
            axes.plot([start, high], [p.rate, p.rate], color=INK, linewidth=1.2)
            axes.text(high, p.rate * 1.07, f"{p.name} {p.rate / 1e12:,.4g} TFLOP/s", ha="right", va="bottom", fontsize=8)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set(xlabel="operations per byte that crosses the level", ylabel="operations per second", xlim=(low, high))
        axes.set_ylim(min(rate, low * min(b for _, _, b in points)) / 2, top * 2.5)
        axes.grid(True, which="major", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.legend(loc="lower right")

    share = f"{rate / 1e12:,.4g} TFLOP/s in {seconds(cost.time)}, bound by {cost.bound} (estimate)"
    where = cost.target.name if cost.target is not None else ""
    return Picture((Panel(f"{cost.name} on {where}\n{share}", 3.1, draw),))


def front_plot(result: Tuned) -> Picture:
    """Every candidate's shared memory per block against its global traffic: the front, the pick, and what any schedule moves that
    keeps only so much (with the registers of an SM on top)."""
    cost = result.best.cost
    front = sorted((r.footprint, r.traffic) for r in result.pareto())
    rows = sorted({(r.footprint, r.traffic) for r in result.rows})
    step = max(1, len(rows) // 2000)
    registers = 4 * cost.target.limits.registers_per_sm if cost.target is not None and cost.target.limits is not None else 0
    pick = cost.footprint["shared"], cost.traffic.total("global")
    widest = max([f for f, _ in rows] + [pick[0], 1024])
    at = [int(widest * n / 24) for n in range(1, 25)]
    bound = [cost.lower_bound("global", x + registers) for x in at]

    def draw(axes: Any) -> None:
        axes.plot([f / 1024 for f, _ in rows[::step]], [t for _, t in rows[::step]], ".", color=SOFT, alpha=0.25, markersize=3)
        axes.step([f / 1024 for f, _ in front], [t for _, t in front], where="post", color=SERIES[0], label="front")
        axes.plot([pick[0] / 1024], [pick[1]], "*", color=SERIES[3], markersize=12, label="picked")
        more = " + registers" if registers else ""
        axes.plot([x / 1024 for x in at], bound, color=SERIES[2], linewidth=1.2, label=f"lower bound with that{more}")
        axes.axhline(
            cost.lower_bound("global"), color=SERIES[2], linewidth=0.8, linestyle=":", label="lower bound: every byte once"
        )
        axes.set_yscale("log")
        low, high = min(cost.lower_bound("global"), *bound), max(t for _, t in [*front, pick])
        axes.set_ylim(low / 1.6, high * 4)
        ticks = [2**k for k in range(math.floor(math.log2(max(1, low / 1.6))), math.ceil(math.log2(high * 4)) + 1, 2)]
        axes.set_yticks(ticks, [size(t) for t in ticks])
        axes.minorticks_off()
        axes.set(xlabel="shared memory per block, KiB", ylabel="global traffic")
        axes.grid(True, which="major", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.legend(loc="upper right")

    title = f"{result.kernel} on {result.target}: {len(result.rows):,} candidates that fit\npicked: {_knobs(result)}"
    return Picture((Panel(title, 3.1, draw),))


def _knobs(result: Tuned) -> str:
    """The tile sizes; the rest of the structure is in the table."""
    numbers = {k: v for k, v in result.best.knobs.items() if isinstance(v, int)}
    return " ".join(f"{k}={v}" for k, v in numbers.items())


def cost_plot(cost: Cost) -> Picture:
    """The roofline, and of a GPU the SM that the largest launch fills and the waves of its grid, as far as they are known."""
    parts = [roofline_plot(cost)]
    if cost.largest is not None and cost.occupancy is not None and cost.target is not None:
        launch = cost.launch[cost.largest]
        parts.append(occupancy_plot(cost.occupancy))
        filled = launch.waves(cost.target) if launch.is_bound else None
        if filled is not None:
            parts.append(waves_plot(filled))
    return below(parts)


def tune_plot(result: Tuned) -> Picture:
    """The front with the pick, and the pick's own cost."""
    return below([front_plot(result), cost_plot(result.best.cost)])
