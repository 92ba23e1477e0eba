"""The time of a cost in words: every level with its formula, numbers and share, what is left out, what it was checked on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.cost.checked import SEEN, likely, unchecked, untimed
from tilec.cost.cpu import SPILL, CpuTime
from tilec.cost.kernel_time import SHARED_BYTES_PER_CYCLE, KernelTime, l2_bandwidth
from tilec.cost.units import CONTENTION, L2_BYTES_PER_CYCLE, paths
from tilec.ir.closed_text import pretty_bytes
from tilec.targets import Target

if TYPE_CHECKING:
    from tilec.cost.cost import Cost, LaunchCost


def time_lines(c: Cost) -> list[str]:
    """The lines of `explain()` that are about time; none without a target."""
    time = c.estimate
    if c.target is None:
        return []
    if time is None:
        return [f"  time unknown: {no_time(c)}"]
    by_level = any(_detail(one) or isinstance(one.estimate, CpuTime) for one in c.launch)
    rule = "level by level" if by_level else "by roofline"
    head = f"  time about {us(time.seconds)}, bound by {time.bound} (estimate {rule}; from {us(time.low)} to {us(time.high)})"
    lines = [head]
    within = likely(c)
    if within is not None:
        seen = f"{SEEN.held:.0%} of {SEEN.rows:,} measured kernels took {SEEN.low:g} to {SEEN.high:g} times their estimate"
        lines.append(f"    likely {us(within[0])} to {us(within[1])}: {seen}")
    elif reason := untimed(c):
        lines.append(f"    how likely is not known: {reason}")
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
                f"    {one.name}: {waves.blocks:,} blocks in {waves.waves} wave{'s' * (waves.waves != 1)} of {waves.resident:,} "
                f"({float(waves.efficiency):.1%})"
            )
    if time.left_out:
        lines.append(f"    left out: {', '.join(time.left_out)}")
    lines += [f"    not checked: {reason}" for reason in unchecked(c)]
    return lines


def no_time(c: Cost) -> str:
    """Why a cost on a target has no time, and what would give it one."""
    assert c.target is not None
    if not c.target.figures:
        return f"{c.target.name} has limits only, no rates: name a machine, or give a file with its figures"
    if c.program is not None and (open_ := [n for n in c.program.sizes if n not in c.sizes]):
        return f"it depends on {', '.join(open_)}: give cost({', '.join(f'{n}=…' for n in open_)})"
    return "the program is empty"


def _levels(one: LaunchCost, machine: Target) -> list[str]:
    """One line per level of a launch: seconds, share of the launch, formula with its numbers."""
    estimate = one.estimate
    assert estimate is not None
    detail = _detail(one)
    if detail is not None:
        words = formulas(one, machine)
    else:
        words = _cpu(estimate) if isinstance(estimate, CpuTime) else _roofline(one, machine)
    width = max(len(us(t)) for _, t in estimate.terms)
    wide = max(8, *(len(name) + 1 for name, _ in estimate.terms))
    out = []
    for name, seconds in estimate.terms:
        if seconds or name in ("compute", "global"):
            share = f"{seconds / estimate.seconds:.0%}" if estimate.seconds else "-"
            out.append(f"{name:<{wide}}{us(seconds):>{width}} {share:>5}  {words.get(name, '')}".rstrip())
    if isinstance(estimate, CpuTime):
        out.append(f"whole: the highest of core and bytes, {SPILL:.0%} of the others, and the overhead (cost/cpu.py)")
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
    compute_cycles, shared_cycles = (float(t.levels[name]) / q * clock for name in ("compute", "shared"))
    shared = f"{pretty_bytes(round(shared_cycles * SHARED_BYTES_PER_CYCLE))} ÷ {SHARED_BYTES_PER_CYCLE} B per cycle"
    l2 = l2_bandwidth(machine)
    cover = float(t.cover)
    reached = f"{machine.bandwidth / 1e9:,.0f} GB/s" + (
        f" · {cover:.0%} in flight of what hides the latency" if cover < 1 else ""
    )
    l2_bytes, dram = pretty_bytes(round(float(t.l2_bytes))), pretty_bytes(round(float(t.dram_bytes)))
    sum_of_units = f"(compute^{CONTENTION} + shared^{CONTENTION})^(1/{CONTENTION})"
    if t.by_thread:
        unit = f"{compute_cycles:,.0f} cycles of arithmetic and issue a block at {clock / 1e9:.4g} GHz"
        shared = f"{shared_cycles:,.0f} turns of shared memory's banks and of L1's lines a block"
        sum_of_units += ", phase by phase"
    others = f"{int(t.resident)} resident blocks cover the rest" if int(t.resident) > 1 else "no other block is there to cover it"
    return {
        "compute": f"= {q} blocks on the busiest of {sms} SMs · {unit}",
        "shared": f"= {q} blocks · {shared} at {clock / 1e9:.4g} GHz",
        "l2": f"= {l2_bytes} ÷ {l2 / 1e9:,.0f} GB/s, or what one SM's {L2_BYTES_PER_CYCLE} B per cycle pass",
        "global": f"= {dram} past L2 ÷ {reached}",
        "latency": f"= the SM's {us(float(t.sm))} less its work, {sum_of_units}; {others}",
        "launch": "",
    }


def _roofline(one: LaunchCost, machine: Target) -> dict[str, str]:
    moved = one.traffic.total("global")
    return {
        "compute": f"= {one.flops:,} flops ÷ the peaks of their units",
        "global": f"= {pretty_bytes(moved)} ÷ {machine.bandwidth / 1e9:,.0f} GB/s",
    }


def _cpu(estimate: CpuTime) -> dict[str, str]:
    return {
        "compute": "= operations, loads and stores at the core's rates, or sums that wait for themselves",
        "l2": "= bytes between the first two caches ÷ their rate",
        "l3": "= bytes behind the second cache ÷ its rate",
        "global": f"= {pretty_bytes(round(estimate.moved))} to and from memory ÷ its rate",
        "overhead": "= the call, parallel regions, barriers",
    }


def _detail(one: LaunchCost) -> KernelTime | None:
    return None if one.estimate is None else one.estimate.detail


def us(seconds: float) -> str:
    """`176.2 us`."""
    value = seconds * 1e6
    return f"{value:,.0f} us" if value >= 1e4 else f"{value:.4g} us"
