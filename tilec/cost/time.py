"""The time of a launch: on a GPU level by level (kernel_time.py), elsewhere by the roofline rule.

Roofline: the larger of bytes ÷ bandwidth and operations ÷ peak. Multiply-accumulates of two loaded values run on the matrix unit
where the target has a rate for their dtype, everything else on the vector unit in its arithmetic type; comparisons, selects,
conversions and elementary functions are left out.

The range of a launch's time: from the compulsory bytes with perfect overlap at the peak rates, to every level after the other,
with all traffic at the bandwidth of DRAM.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tilec.cost.kernel_time import Kernel, KernelTime, Value, kernel_time
from tilec.cost.operations import FLOPS, Key
from tilec.targets import Target


@dataclass(frozen=True)
class Time:
    """Seconds. `terms` are the levels by name, the binding one first; `bound` names it. detail: what they are made of (GPU)."""

    seconds: float
    terms: tuple[tuple[str, float], ...]
    low: float
    high: float
    left_out: tuple[str, ...] = ()
    detail: KernelTime | None = field(default=None, compare=False)

    @property
    def bound(self) -> str:
        """The name of the level that binds: compute, global, l2, shared, latency or launch."""
        return self.terms[0][0]


def rates(machine: Target, key: Key) -> tuple[float, float] | None:
    """Operations per second of the unit that does them, and of the slower one that could; None where the machine has no rate."""
    matrix = machine.peak("matrix", key.matrix) if key.matrix else None
    vector = machine.peak("vector", key.dtype) or machine.peak("vector", "f32")
    found = [peak for peak, _ in filter(None, (matrix, vector))]
    return (found[0], min(found)) if found else None


def peaks(machine: Target, work: Mapping[Key, int]) -> tuple[float, float, tuple[str, ...]]:
    """(seconds at the peak of the unit that does the work, of the slower one, what has no rate)."""
    mixed = vector = 0.0
    left_out: dict[str, None] = {}
    for key, n in work.items():
        if key.kind not in FLOPS:
            if n:
                left_out[key.kind] = None
            continue
        found = rates(machine, key)
        if found is None:
            left_out[f"{key.kind} in {key.dtype}"] = None
            continue
        mixed += n / found[0]
        vector += n / found[1]
    return mixed, vector, tuple(left_out)


def roofline_time(machine: Target, global_bytes: int, least_bytes: int, work: Mapping[Key, int]) -> Time:
    """Time of one launch from its exact counts, by the roofline rule."""
    mixed, vector, left_out = peaks(machine, work)
    memory = global_bytes / machine.bandwidth
    least = min(least_bytes, global_bytes) / machine.bandwidth
    return Time(
        seconds=max(mixed, memory),
        terms=(("compute", mixed), ("global", memory)) if mixed > memory else (("global", memory), ("compute", mixed)),
        low=max(least, mixed),
        high=memory + vector,
        left_out=left_out,
    )


def gpu_time(machine: Target, kernel: Kernel, value: Value, global_bytes: int, least_bytes: int, work: Mapping[Key, int]) -> Time:
    """Time of one launch with block loops on a GPU. least_bytes: compulsory; work: exact operations, for the range."""
    t = kernel_time(machine, kernel, value)
    levels = {name: float(seconds) for name, seconds in t.levels.items()}
    whole, fill = float(t.seconds), float(t.fill)
    launch = levels["launch"]
    # the SM's time is named after its waits where they are most of it, else after its busier unit
    inside = max(("compute", "shared"), key=lambda n: levels[n])
    inside = "latency" if levels["latency"] > levels[inside] else inside
    reach = levels | {"l2": levels["l2"] + fill, "global": levels["global"] + fill, inside: float(t.sm)}
    order = sorted(levels, key=lambda n: (-reach[n], n))
    mixed, _, _ = peaks(machine, work)
    least = min(least_bytes, global_bytes) / machine.bandwidth
    in_turn = sum(levels[n] for n in ("compute", "shared", "l2", "latency")) + global_bytes / machine.bandwidth
    return Time(
        seconds=whole,
        terms=tuple((n, levels[n]) for n in order),
        low=min(whole, max(least, mixed)),
        high=max(whole, launch + fill + in_turn),
        left_out=t.left_out,
        detail=t,
    )


def in_sequence(times: tuple[Time, ...]) -> Time:
    """Launches one after another: seconds, levels and ranges add up; the bound is that of the most seconds."""
    if len(times) == 1:
        return times[0]
    by_bound: dict[str, float] = {}
    levels: dict[str, float] = {}
    for t in times:
        by_bound[t.bound] = by_bound.get(t.bound, 0.0) + t.seconds
        for name, seconds in t.terms:
            levels[name] = levels.get(name, 0.0) + seconds
    first = max(by_bound, key=lambda n: by_bound[n], default="global")
    rest = sorted((t for t in levels.items() if t[0] != first), key=lambda t: -t[1])
    return Time(
        seconds=sum(t.seconds for t in times),
        terms=((first, levels.get(first, 0.0)), *rest),
        low=sum(t.low for t in times),
        high=sum(t.high for t in times),
        left_out=tuple(dict.fromkeys(k for t in times for k in t.left_out)),
    )
