"""What a program costs: exact counts with their formulas, and estimates on a machine by named rules."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tilec.cost.amounts import Held, Traffic, WorkingSet, number
from tilec.cost.calls import whole
from tilec.cost.checked import likely
from tilec.cost.explain import compare, data, explain
from tilec.cost.explain_time import no_time
from tilec.cost.latency import Waves, waves
from tilec.cost.lower_bound import Bounds, CapacityBound, fast_memory
from tilec.cost.occupancy import Occupancy
from tilec.cost.operations import FLOPS, Key
from tilec.cost.time import Time, in_sequence
from tilec.errors import ResourceError, TargetError
from tilec.ir.closed import Closed, total
from tilec.ir.program import Program
from tilec.targets import Target


@dataclass(frozen=True)
class LaunchCost:
    """One top-level nest. Names as in Cost; `blocks` is the size of its grid (1 without block loops); `is_bound`: it has block or
    thread loops; `is_nest`: it is a loop, not a lone statement."""

    number: int
    name: str
    is_bound: bool
    is_nest: bool
    blocks_formula: Closed
    threads: int | None
    traffic: Traffic
    footprint: Held
    work: tuple[tuple[Key, Closed], ...]
    barriers_formula: Closed
    occupancy: Occupancy | None
    estimate: Time | None
    sizes: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def blocks(self) -> int:
        """Blocks of the grid."""
        return number(self.blocks_formula, self.sizes, "the number of blocks")

    @property
    def flops(self) -> int:
        """+ − × ÷ of the launch."""
        return number(self.flops_formula, self.sizes, "flops")

    @property
    def flops_formula(self) -> Closed:
        """The same in the sizes."""
        return total(c for k, c in self.work if k.kind in FLOPS)

    @property
    def barriers(self) -> int:
        """Barrier executions, summed over the blocks."""
        return number(self.barriers_formula, self.sizes, "barriers")

    @property
    def time(self) -> float | None:
        """Seconds, an estimate; None without a target that has rates or while sizes are open."""
        return None if self.estimate is None else self.estimate.seconds

    @property
    def bound(self) -> str | None:
        """The roof that binds, "global" or "compute"; None as for `time`."""
        return None if self.estimate is None else self.estimate.bound

    def waves(self, target: Target) -> Waves | None:
        """Rounds of resident blocks on the chip, where blocks and occupancy are known."""
        if self.occupancy is None or self.occupancy.blocks < 1 or target.kind != "gpu":
            return None
        return waves(target, self.blocks, self.occupancy.blocks)


@dataclass(frozen=True)
class Cost:
    """The cost of a program (DESIGN 6). Counts are exact integers; every one has a formula in the sizes that are open.

    traffic: bytes crossing each memory's edge. footprint: bytes allocated per block (shared, scratch), per thread (register),
    distinct bytes (global). working_set: peak of live bytes. flops: + − × ÷. occupancy, time, bound, range: on `target` (None
    without one, or where it has no such thing); time is an estimate by the rule in cost/time.py. launch[i]: the same per launch;
    `largest` is the launch whose footprint and occupancy stand here. problems: why it does not fit on the target.
    """

    name: str
    target: Target | None
    sizes: Mapping[str, int]
    traffic: Traffic
    footprint: Held
    working_set: WorkingSet
    compulsory: Mapping[tuple[str, str], Closed]
    launch: tuple[LaunchCost, ...]
    largest: int | None
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    program: Program | None = field(default=None, repr=False, compare=False)

    def __hash__(self) -> int:
        return hash((self.name, self.traffic.flows, self.footprint))

    @property
    def flops(self) -> int:
        """+ − × ÷ of all launches; ResourceError while a size that counts is open."""
        return number(self.flops_formula, self.sizes, "flops")

    @property
    def flops_formula(self) -> Closed:
        """The same in the sizes."""
        return total(one.flops_formula for one in self.launch)

    @property
    def flops_by_kind(self) -> dict[str, int]:
        """Executions by kind of operation: add, mul, div, compare, minmax, select, convert, sign, logic, integer, functions."""
        return {k: number(c, self.sizes, k) for k, c in self.flops_by_kind_formula.items()}

    @property
    def flops_by_kind_formula(self) -> dict[str, Closed]:
        """The same in the sizes."""
        sums: dict[str, list[Closed]] = {}
        for one in self.launch:
            for k, c in one.work:
                sums.setdefault(k.kind, []).append(c)
        return {k: total(sums[k]) for k in sorted(sums, key=lambda k: (k not in FLOPS, k))}

    @property
    def launches(self) -> int:
        """Kernel launches: top-level nests with bound loops; in a program without any, every top-level nest is a step."""
        return sum(one.is_bound for one in self.launch) or sum(one.is_nest for one in self.launch)

    @property
    def barriers(self) -> int:
        """Barrier executions, summed over blocks and launches."""
        return number(total(one.barriers_formula for one in self.launch), self.sizes, "barriers")

    @property
    def occupancy(self) -> Occupancy | None:
        """That of the largest launch; None without a target that has SM limits, or with an open shared footprint."""
        return None if self.largest is None else self.launch[self.largest].occupancy

    def intensity(self, memory: str = "global") -> float:
        """Flops per byte crossing that memory's edge; inf where nothing does."""
        moved = self.traffic.total(memory)
        return self.flops / moved if moved else float("inf")

    def reuse(self, memory: str = "global") -> float:
        """Traffic ÷ footprint: how often a byte held in that memory crosses its edge; 0 where it holds nothing."""
        held = self.footprint[memory]
        return self.traffic.total(memory) / held if held else 0.0

    def lower_bound(self, memory: str = "global", capacity_bytes: int | None = None) -> int:
        """Bytes that any schedule of this kernel moves: inputs read once, outputs written once; with a capacity, the larger of
        that and what any schedule moves that keeps at most `capacity_bytes` near the arithmetic (`capacity_bound`)."""
        least = number(self.lower_bound_formula(memory), self.sizes, "the lower bound")
        return least if capacity_bytes is None else max(least, self.capacity_bound(capacity_bytes).capacity)

    def capacity_bound(self, capacity_bytes: int | None = None) -> CapacityBound:
        """The bounds for a fast memory of that capacity next to this traffic (cost/lower_bound.py): `.bytes`, `.gap` (a ratio),
        `.same_as`, `.compulsory_from`, `.formula`.

        Without a capacity: the shared memory and registers of one SM of the target, or the memory of its core. ResourceError
        where neither is known, or a size is open.
        """
        least = self.lower_bound("global")
        if capacity_bytes is None:
            found = None if self.target is None else fast_memory(self.target)
            if found is None:
                raise ResourceError("capacity_bound: give capacity_bytes, or a target with the capacity of its cores")
            capacity_bytes = found[0]
        whole("capacity_bound", "capacity_bytes", capacity_bytes, 1)
        bounds = self._bounds
        bytes_, parts = bounds.capacity(capacity_bytes)
        moved = self.traffic.total("global")
        return CapacityBound(
            capacity_bytes, least, math.floor(bytes_), moved, parts, bounds.smallest(least), bounds.smallest(moved)
        )

    @cached_property
    def _bounds(self) -> Bounds:
        assert self.program is not None, "a cost made by price() has its program"
        found = Bounds(self.program, self.sizes)
        number(total(b.instances for b in found.sums), self.sizes, "the capacity bound")
        return found

    def lower_bound_formula(self, memory: str = "global") -> Closed:
        """The same in the sizes; ResourceError for another memory than global."""
        if memory != "global":
            raise ResourceError(f"lower_bound({memory!r}): there is a bound for global memory only")
        return total(self.compulsory.values())

    @property
    def estimate(self) -> Time | None:
        """All launches one after another, by the rule of cost/time.py; None where one of them has no time."""
        times = tuple(one.estimate for one in self.launch)
        if not times or any(t is None for t in times):
            return None
        return in_sequence(tuple(t for t in times if t is not None))

    @property
    def time(self) -> float:
        """Seconds, an estimate; TargetError without a target that has rates, ResourceError while sizes are open."""
        return self._time.seconds

    @property
    def bound(self) -> str:
        """The roof that binds: "global" or "compute"."""
        return self._time.bound

    @property
    def range(self) -> tuple[float, float]:
        """Seconds between which the time lies if the machine reaches its figures: see cost/time.py."""
        return self._time.low, self._time.high

    @property
    def likely(self) -> tuple[float, float] | None:
        """The narrower range that held 93 % of the measured kernels (cost/checked.py); None where none is comparable."""
        return likely(self)

    @property
    def _time(self) -> Time:
        found = self.estimate
        if found is None:
            if self.target is None:
                raise TargetError("time: the cost was asked for no target: name a machine with rates")
            why = f"time: {no_time(self)}"
            raise ResourceError(why) if self.target.figures else TargetError(why)
        return found

    @property
    def fits(self) -> bool:
        """Does every launch fit on the target? `problems` says why not."""
        return not self.problems

    def require(self) -> Cost:
        """This cost if the program fits on its target; else ResourceError."""
        if self.problems:
            raise ResourceError("\n".join(self.problems))
        return self

    def explain(self, other: Cost | None = None) -> str:
        """The terms of this cost in words; with another cost, both term by term."""
        return explain(self) if other is None else compare(self, other)

    def data(self) -> dict[str, Any]:
        """Plain data with stable keys (docs/cost.md)."""
        return data(self)

    def to_json(self) -> str:
        """`data()` as text."""
        return json.dumps(self.data(), indent=2)

    def __str__(self) -> str:
        return self.explain()
