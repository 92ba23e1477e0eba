"""What crosses each level of a machine, and how fast it may: the points and roofs of a roofline.

global: DRAM at its bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.cost.operations import FLOPS
from tilec.targets import Target

if TYPE_CHECKING:
    from tilec.cost.cost import Cost


@dataclass(frozen=True)
class Level:
    """A level of memory: bytes that cross it in one run, and bytes per second that may."""

    name: str
    bytes: int
    bandwidth: float

    def intensity(self, flops: int) -> float:
        """Operations per byte."""
        return flops / self.bytes


@dataclass(frozen=True)
class Roof:
    """A unit's peak: "matrix bf16", operations per second."""

    name: str
    rate: float


def levels(cost: Cost) -> tuple[Level, ...]:
    """The levels with a rate that the program moves bytes across, the far one first. Sizes must be known."""
    machine = cost.target
    if machine is None or not machine.figures:
        return ()
    out = [Level("global", cost.traffic.total("global"), machine.bandwidth)]
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
