"""Pictures of an SM and its blocks: what fills it, the waves over the chip, the pipeline with its slots."""

from __future__ import annotations

from typing import Any

from tilec.cost.latency import Waves
from tilec.cost.occupancy import Occupancy
from tilec.cost.pipeline import Pipeline
from tilec.errors import ResourceError
from tilec.report.canvas import GRID, INK, SERIES, Panel, Picture

MOST_DRAWN = 400  # bars of one picture


def occupancy_plot(o: Occupancy) -> Picture:
    """Per resource of an SM what its resident blocks take, one segment a block, the rest free; what limits is marked."""
    rows = _resources(o)

    def draw(axes: Any) -> None:
        for n, (name, used, whole, text) in enumerate(reversed(rows)):
            axes.barh(n, 1, color=GRID, height=0.62)
            for block in range(o.blocks):
                left = block * used / whole
                axes.barh(n, used / whole, left=left, color=SERIES[0], height=0.62, edgecolor="white", linewidth=0.8, alpha=0.9)
            mark = name in o.limiters
            axes.text(1.015, n, text, va="center", color=SERIES[3] if mark else INK, weight="bold" if mark else "normal")
        axes.set_yticks(range(len(rows)), [r[0] for r in reversed(rows)])
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "25 %", "50 %", "75 %", "100 %"])
        axes.tick_params(length=0)
        axes.spines["left"].set_visible(False)
        limits = f"limited by {' and '.join(o.limiters) or 'nothing known'} (bold)"
        axes.set_xlabel(limits if o.gain is None else f"{limits}\none more block: {o.gain}")

    plural = "s" if o.blocks != 1 else ""
    return Picture(
        (
            Panel(
                f"one SM of {o.target} with {o.blocks} resident block{plural}",
                0.45 * len(rows) + (0.55 if o.gain is None else 0.75),
                draw,
            ),
        )
    )


def _resources(o: Occupancy) -> list[tuple[str, float, float, str]]:
    """(name, of one block, of the SM, in words)."""
    m, launch = o.machine, o.launch
    out: list[tuple[str, float, float, str]] = []
    if launch.threads is not None:
        warps = -(-launch.threads // m.warp)
        out.append(("threads", warps, m.warps_per_sm, f"{o.blocks * warps} of {m.warps_per_sm} warps"))
    if o.allocated_registers is not None:
        used = o.blocks * o.allocated_registers
        out.append(("registers", o.allocated_registers, m.registers_per_sm, f"{used:,} of {m.registers_per_sm:,}"))
    if launch.shared or o.allocated_shared:
        used = o.blocks * o.allocated_shared
        out.append(("shared", o.allocated_shared, o.shared_per_sm, f"{used / 1024:,.1f} of {o.shared_per_sm / 1024:,.0f} KiB"))
    out.append(("blocks", 1, m.blocks_per_sm, f"{o.blocks} of {m.blocks_per_sm}"))
    return out


def waves_plot(w: Waves) -> Picture:
    """The blocks of a grid over time, one column a wave: what is resident, and what stays empty in the last."""
    count = min(w.waves, MOST_DRAWN)

    def draw(axes: Any) -> None:
        full = [w.resident] * count
        last = w.last
        if count == w.waves:
            full[-1] = last
        axes.bar(range(count), [w.resident] * count, color=GRID, width=0.92)
        axes.bar(range(count), full, color=SERIES[0], width=0.92, alpha=0.9)
        axes.set(xlabel="wave", ylabel="blocks at once", xlim=(-0.6, count - 0.4), ylim=(0, w.resident * 1.12))
        axes.set_xticks(range(count) if count <= 12 else range(0, count, max(1, count // 10)))

    title = f"{w.blocks:,} blocks in {w.waves:,} wave{'s' * (w.waves != 1)} of {w.resident:,}, {w.last:,} in the last: "
    title += f"{float(w.efficiency):.1%} of the places filled"
    return Picture((Panel(title, 1.9, draw),))


def pipeline_plot(p: Pipeline, slots: int, unit: str = "us") -> Picture:
    """When blocks are copied and computed, and when each slot is held: from the start of its copy to the end of its use."""
    if len(p.copies) > MOST_DRAWN:
        raise ResourceError(f"pipeline_plot: {len(p.copies)} blocks are too many to draw; at most {MOST_DRAWN}")

    def draw(axes: Any) -> None:
        lanes = ["compute", "copy", *(f"slot {n}" for n in range(slots))]
        at = {name: len(lanes) - 1 - n for n, name in enumerate(lanes)}
        for n, (copy, compute) in enumerate(zip(p.copies, p.computes, strict=True)):
            color = SERIES[n % len(SERIES)]
            for lane, (a, b) in (("copy", copy), ("compute", compute)):
                axes.barh(at[lane], float(b - a), left=float(a), color=color, height=0.6, edgecolor="white", linewidth=0.8)
                axes.text(float(a + b) / 2, at[lane], str(n), ha="center", va="center", color="white", fontsize=7.5)
            start, end = float(copy[0]), float(compute[1])
            axes.barh(at[f"slot {n % slots}"], end - start, left=start, color=color, height=0.6, alpha=0.45, edgecolor="white")
        for a, b in p.idle:
            axes.barh(at["compute"], float(b - a), left=float(a), color="none", edgecolor=SERIES[3], height=0.6, hatch="////")
        axes.set_yticks(list(at.values()), list(at))
        axes.tick_params(axis="y", length=0)
        axes.set(xlabel=f"time, {unit}" + ("; hatched: the compute unit waits" if p.idle else ""), xlim=(0, float(p.time)))

    title = f"{len(p.copies)} blocks over {slots} slot{'s' if slots != 1 else ''}: {float(p.time):.4g} {unit}"
    return Picture((Panel(title, 0.36 * (slots + 2) + 0.6, draw),))
