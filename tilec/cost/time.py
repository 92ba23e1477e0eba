"""The time of a launch by the roofline rule: the larger of bytes ÷ bandwidth and operations ÷ peak.

Multiply-accumulates of two loaded values run on the matrix unit where the target has a rate for their dtype, everything else on
the vector unit in its arithmetic type; comparisons, selects, conversions and elementary functions are left out. The range: from
the compulsory bytes with perfect overlap to all traffic, no matrix unit and no overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilec.cost.operations import FLOPS, Key
from tilec.targets import Target


@dataclass(frozen=True)
class Time:
    """Seconds. `terms` are the roofs by name; `bound` names the highest."""

    terms: tuple[tuple[str, float], ...]
    low: float
    high: float
    left_out: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The highest roof."""
        return max(t for _, t in self.terms)

    @property
    def bound(self) -> str:
        """The name of the highest roof."""
        return max(self.terms, key=lambda t: t[1])[0]


def rates(machine: Target, key: Key) -> tuple[float, float] | None:
    """Operations per second of the unit that does them, and of the slower one that could; None where the machine has no rate."""
    matrix = machine.peak("matrix", key.matrix) if key.matrix else None
    vector = machine.peak("vector", key.dtype) or machine.peak("vector", "f32")
    found = [peak for peak, _ in filter(None, (matrix, vector))]
    return (found[0], min(found)) if found else None


def estimate(machine: Target, global_bytes: int, least_bytes: int, work: Mapping[Key, int]) -> Time:
    """Time of one launch from its exact counts."""
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
    memory = global_bytes / machine.bandwidth
    least = min(least_bytes, global_bytes) / machine.bandwidth
    return Time(
        terms=(("compute", mixed), ("global", memory)) if mixed > memory else (("global", memory), ("compute", mixed)),
        low=max(least, mixed),
        high=memory + vector,
        left_out=tuple(left_out),
    )


def in_sequence(times: tuple[Time, ...]) -> Time:
    """Launches one after another: seconds and ranges add up; the bound is that of the most seconds."""
    by_bound: dict[str, float] = {}
    for t in times:
        by_bound[t.bound] = by_bound.get(t.bound, 0.0) + t.seconds
    return _Sequence(
        terms=tuple(sorted(by_bound.items(), key=lambda t: -t[1])) or (("global", 0.0),),
        low=sum(t.low for t in times),
        high=sum(t.high for t in times),
        left_out=tuple(dict.fromkeys(k for t in times for k in t.left_out)),
    )


@dataclass(frozen=True)
class _Sequence(Time):
    @property
    def seconds(self) -> float:
        return sum(t for _, t in self.terms)
