"""The time of a cost in words: every level with its formula, numbers and share, what is left out, what it was checked on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.cost.checked import unchecked
from tilec.cost.kernel_time import CONTENTION, L2_BYTES_PER_CYCLE, SHARED_BYTES_PER_CYCLE, KernelTime
from tilec.cost.levels import l2_bandwidth
from tilec.cost.units import paths
from tilec.ir.closed_text import pretty_bytes
from tilec.targets import Target

if TYPE_CHECKING:
    from tilec.cost.cost import Cost, LaunchCost


def time_lines(c: Cost) -> list[str]:
    """The lines of `explain()` that are about time; none without a time."""
    time = c.estimate
    if time is None or c.target is None:
        return []
    rule = "level by level" if any(_detail(one) for one in c.launch) else "by roofline"
    head = f"  time about {us(time.seconds)}, bound by {time.bound} (estimate {rule}; from {us(time.low)} to {us(time.high)})"
    lines = [head]
    for one in c.launch:
        if one.estimate is None:
            continue
        if len(c.launch) > 1:
            share = f"{one.estimate.seconds / time.seconds:.0%} of the time" if time.seconds else ""
            lines.append(f"    launch {one.name}: {us(one.estimate.seconds)}, {share}, bound by {one.bound}")
        lines += [f"    {line}" for line in _levels(one, c.target)]
        waves = one.waves(c.target) if one.is_bound else None
        if waves is not None:
            lines.append(
                f"    {one.name}: {waves.blocks:,} blocks in {waves.waves} waves of {waves.resident:,} "
                f"({float(waves.efficiency):.1%})"
            )
    if time.left_out:
        lines.append(f"    left out: {', '.join(time.left_out)}")
    lines += [f"    not checked: {reason}" for reason in unchecked(c)]
    return lines


def _levels(one: LaunchCost, machine: Target) -> list[str]:
    """One line per level of a launch: seconds, share of the launch, formula with its numbers."""
    estimate = one.estimate
    assert estimate is not None
    detail = _detail(one)
    words = formulas(one, machine) if detail is not None else _roofline(one, machine)
    width = max(len(us(t)) for _, t in estimate.terms)
    out = []
    for name, seconds in estimate.terms:
        if seconds or name in ("compute", "global"):
            share = f"{seconds / estimate.seconds:.0%}" if estimate.seconds else "-"
            out.append(f"{name:<8}{us(seconds):>{width}} {share:>5}  {words[name]}".rstrip())
    if detail is not None:
        fill, sm = us(float(detail.fill)), us(float(detail.sm))
        out.append(f"whole: launch + max(SM {sm}, fill {fill} + max(l2, global))")
    return out


def formulas(one: LaunchCost, machine: Target) -> dict[str, str]:
    """Level → its formula with numbers, of a GPU launch (the derivation is in cost/kernel_time.py)."""
    t = _detail(one)
    assert t is not None
    q, clock, sms = int(t.per_sm), machine.clock, machine.cores
    matrix, vector, path = float(t.matrix), float(t.vector), int(t.path)
    if matrix >= vector:
        unit = f"{paths(machine)[path].name} {us(matrix)} a block" if path >= 0 else f"matrix unit {us(matrix)} a block"
    else:
        unit = f"vector unit {us(vector)} a block"
    shared_bytes = float(t.levels["shared"]) / q * clock * SHARED_BYTES_PER_CYCLE
    l2 = l2_bandwidth(machine)
    cover = float(t.cover)
    reached = f"{machine.bandwidth / 1e9:,.0f} GB/s" + (
        f" · {cover:.0%} in flight of what hides the latency" if cover < 1 else ""
    )
    l2_bytes, dram = pretty_bytes(round(float(t.l2_bytes))), pretty_bytes(round(float(t.dram_bytes)))
    sum_of_units = f"(compute^{CONTENTION} + shared^{CONTENTION})^(1/{CONTENTION})"
    resident = f"{int(t.resident)} resident block{'s' if int(t.resident) != 1 else ''}"
    return {
        "compute": f"= {q} blocks on the busiest of {sms} SMs · {unit}",
        "shared": f"= {q} blocks · {pretty_bytes(round(shared_bytes))} ÷ {SHARED_BYTES_PER_CYCLE} B per cycle "
        f"at {clock / 1e9:.4g} GHz",
        "l2": f"= {l2_bytes} ÷ {l2 / 1e9:,.0f} GB/s, or what one SM's {L2_BYTES_PER_CYCLE} B per cycle pass",
        "global": f"= {dram} past L2 ÷ {reached}",
        "latency": f"= the SM's {us(float(t.sm))} less its work, {sum_of_units}; {resident} cover the rest",
        "launch": "",
    }


def _roofline(one: LaunchCost, machine: Target) -> dict[str, str]:
    moved = one.traffic.total("global")
    return {
        "compute": f"= {one.flops:,} flops ÷ the peaks of their units",
        "global": f"= {pretty_bytes(moved)} ÷ {machine.bandwidth / 1e9:,.0f} GB/s",
    }


def _detail(one: LaunchCost) -> KernelTime | None:
    return None if one.estimate is None else one.estimate.detail


def us(seconds: float) -> str:
    """`176.2 us`."""
    return f"{seconds * 1e6:.4g} us"
