"""What crosses each level of a machine, and how fast it may: the points and roofs of a roofline.

On a GPU where the time is known level by level (cost/kernel_time.py): DRAM behind L2, L2 behind the SMs, and what passes shared
memory. Elsewhere the traffic of global memory, at the machine's bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.cost.kernel_time import SHARED_BYTES_PER_CYCLE, l2_bandwidth
from tilec.cost.operations import FLOPS
from tilec.targets import Target

if TYPE_CHECKING:
    from tilec.cost.cost import Cost


@dataclass(frozen=True)
class Level:
    """A level of memory: bytes that cross it in one run, and bytes per second that may."""

    name: str
    bytes: float
    bandwidth: float

    def intensity(self, flops: int) -> float:
        """Operations per byte."""
        return flops / self.bytes


@dataclass(frozen=True)
class Roof:
    """A unit's peak: "matrix bf16", operations per second."""

    name: str
    rate: float


def shared_bandwidth(machine: Target) -> float:
    """Bytes per second of all SMs' shared memory."""
    return machine.cores * machine.clock * SHARED_BYTES_PER_CYCLE


def levels(cost: Cost) -> tuple[Level, ...]:
    """The levels with a rate that the program moves bytes across, the far one first. Sizes must be known."""
    machine = cost.target
    if machine is None or not machine.figures:
        return ()
    times = [one.estimate for one in cost.launch]
    details = [t.detail for t in times if t is not None and t.detail is not None]
    if not details or len(details) < len(times):
        out = [Level("global", cost.traffic.total("global"), machine.bandwidth)]
        return tuple(x for x in out if x.bytes)
    dram, l2 = (sum(float(getattr(t, name)) for t in details) for name in ("dram_bytes", "l2_bytes"))
    # the busiest SM's seconds, over all blocks
    shared = 0.0
    for one, t in zip(cost.launch, details, strict=True):
        shared += float(t.levels["shared"]) / float(t.per_sm) * one.blocks * machine.clock * SHARED_BYTES_PER_CYCLE
    out = [
        Level("global", dram, machine.bandwidth),
        Level("l2", l2, l2_bandwidth(machine)),
        Level("shared", shared, shared_bandwidth(machine)),
    ]
    return tuple(x for x in out if x.bytes)


def roofs(cost: Cost) -> Sequence[Roof]:
    """The peaks of the units that the program's operations may run on, highest first."""
    machine: Target | None = cost.target
    found: dict[str, float] = {}
    for launch in cost.launch:
        for key, _ in launch.work:
            if machine is None or key.kind not in FLOPS:
                continue
            matrix = machine.peak("matrix", key.matrix) if key.matrix else None
            vector = machine.peak("vector", key.dtype) or machine.peak("vector", "f32")
            for unit, peak in (("matrix", matrix), ("vector", vector)):
                if peak is not None:
                    found[f"{unit} {peak[1]}"] = peak[0]
    return [Roof(n, r) for n, r in sorted(found.items(), key=lambda f: -f[1])]
