"""How long an SM works on its resident blocks: the execution model of a launch whose thread loops are bound.

What a thread does comes from the program (cost/threadwork.py); the machine gives FMA and load/store lanes, schedulers, L1 and the
limits; the constants below are the same for all NVIDIA GPUs. In cycles of the SM:

1. Ports, per warp and phase: arithmetic (32 ÷ lanes each), issue (one instruction per scheduler), load/store (32 ÷ lanes per
   instruction; turns of the banks for shared memory, lines for L1). Ports delay each other: c = (Σ port⁴)^(1/4).
2. Values that the arithmetic fetches from global memory are awaited once per refill: all resident warps share the ports,
   r · cycle(warps, c ÷ r, L) for r refills, L the L2 latency times 1 + 1/2 + … over the buffers fetched together (the mean of the
   latest of several exponential waits). cost/overlap.py has `cycle`.
3. A phase that only reads shared memory waits for it once per rolled iteration.
4. Blocks overlap each other only: between barriers a block loads, waits one L2 latency and computes; n resident blocks take
   cycle(n, work, wait) for one run of the loops around.
5. Registers: what the thread holds, fragments, values being staged, addresses. What exceeds the limit is spilled: a store and a
   load per refill, through L1 while the resident blocks' spills fit beside the shared memory, else through L2. The same capacity
   decides whether lines that several warps read stay in L1.

Checked on GEMMs in f32 (docs/model.md); other programs are priced by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tilec.cost.banks import BANKS, LINE
from tilec.cost.overlap import cycle
from tilec.cost.requests import OPENCL, Lanes
from tilec.cost.residents import l1_beside, most_registers, residents
from tilec.cost.term import Term, evaluate
from tilec.cost.threadwork import Group, Phase, ThreadWork
from tilec.cost.units import CONTENTION, L2_BYTES_PER_CYCLE
from tilec.targets import Target

TERMS = ("banks", "lines", "capacity", "spills", "registers", "overlap", "latency", "issue", "ports", "waves")


@dataclass(frozen=True)
class Constants:
    """Of all NVIDIA GPUs. Cycles, registers or instruction slots."""

    l2_latency: float = 261.5  # arXiv:2402.13499, table of latencies: A100 261.5, H100 263.0, RTX 4090 273.0
    shared_latency: float = 29.0  # the same: A100 29.0, H100 29.0, RTX 4090 30.1
    barrier: float = 4.0  # per warp and run of a loop with barriers: each warp's arrival takes a turn of its scheduler
    addresses: int = 16  # registers of a thread for addresses, counters and indices
    batch: int = 32  # staged registers that a compiler keeps in flight at once
    loop_slots: float = 11.0  # issue slots per rolled iteration: counter, compare, branch, advancing addresses
    address_slots: float = 5.0  # issue slots per access of global memory: its 64-bit address, and the access
    contention: float = CONTENTION
    l2_bytes: float = L2_BYTES_PER_CYCLE


CONSTANTS = Constants()


@dataclass(frozen=True)
class BlockFigures:
    """One launch on a machine; arrays over candidates, or of one element. `registers` per thread, as demanded."""

    work: ThreadWork
    machine: Target
    environment: Mapping[str, Any]
    threads: np.ndarray
    shared: np.ndarray
    registers: np.ndarray
    spilled: np.ndarray
    resident: np.ndarray  # blocks per SM; 0 where none fits
    blocks: np.ndarray
    parts: tuple[tuple[Group, tuple[PhaseFigures, ...]], ...] = field(repr=False, default=())
    constants: Constants = CONSTANTS
    without: frozenset[str] = frozenset()

    @property
    def warps(self) -> np.ndarray:
        """Per block."""
        return -(-self.threads // BANKS)

    def cycles(self, n: np.ndarray | int) -> np.ndarray:
        """Cycles in which an SM finishes n blocks that start together; 0 for none."""
        n = np.asarray(n)
        some = np.maximum(n, 1)
        total = np.zeros(np.broadcast_shapes(n.shape, self.threads.shape))
        for group, phases in self.parts:
            total = total + self._value(group.runs) * self._group(group, phases, some)
        return np.where(n > 0, total, 0.0)

    def sm_cycles(self, sms: int) -> np.ndarray:
        """Cycles of the SM that gets most blocks: full rounds of resident blocks, then the rest with the SM for itself."""
        mine = -(-self.blocks // sms)
        resident = np.maximum(self.resident, 1)
        if "waves" in self.without:
            return mine / resident * self.cycles(resident)
        return mine // resident * self.cycles(resident) + self.cycles(mine % resident)

    @property
    def seconds(self) -> np.ndarray:
        """Of the launch by the SMs alone (no limit of L2 or DRAM); inf where no block fits."""
        cycles = self.sm_cycles(self.machine.cores) / self.machine.clock
        return np.where(self.resident > 0, cycles, np.inf)

    def plain(self, values: np.ndarray) -> Any:
        """A number where there is one launch, not an array of candidates."""
        return values if any(isinstance(v, np.ndarray) for v in self.environment.values()) else float(values[0])

    def fetched(self, buffer: str) -> np.ndarray:
        """Bytes of a buffer in global memory that the arithmetic of one block reads into L1, each once per refill."""
        total = np.zeros(self.threads.shape)
        for group, phases in self.parts:
            for p in phases:
                if buffer in p.streams:
                    total = total + self._value(group.runs) * p.refills * p.streams[buffer]
        return total

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Cycles for which a resident block keeps busy the arithmetic and issue of the SM, its shared memory and L1, and both
        with what they delay each other."""
        arithmetic, memory, together = (np.zeros(self.threads.shape) for _ in range(3))
        n = np.maximum(self.resident, 1)
        for group, phases in self.parts:
            runs = self._value(group.runs) * self.warps
            for p in phases:
                spilled, refetched = self._outside(p, n)
                more = spilled + refetched
                arithmetic = arithmetic + runs * np.maximum(p.arithmetic, p.issue + more / self._schedulers)
                memory = memory + runs * (p.memory + more)
                together = together + runs * p.port(more, self.constants.contention, self.without)
        return arithmetic, memory, together

    def _value(self, t: Term) -> np.ndarray:
        return np.asarray(evaluate(t, self.environment), dtype=float)

    def _group(self, group: Group, phases: tuple[PhaseFigures, ...], n: np.ndarray) -> np.ndarray:
        work, wait = np.zeros(1), np.zeros(1)
        if "latency" not in self.without:
            if group.fetches:
                wait = wait + self.constants.l2_latency
            if group.barriers:
                wait = wait + self.constants.barrier * self.warps
        for p in phases:
            spilled, refetched = self._outside(p, n)
            shift = spilled + refetched
            port = p.port(shift, self.constants.contention, self.without)
            alone = np.maximum(p.issue, p.arithmetic) * self._schedulers + p.memory + shift  # a warp issues from one scheduler
            if p.waits and "latency" not in self.without:
                latency = self.constants.l2_latency * sum(1 / k for k in range(1, p.waits + 1))
                one = port / p.refills
                round_ = cycle(n * self.warps, one, latency + np.maximum(0.0, alone / p.refills - one))
                work = work + p.refills * round_ / n
            else:
                work = work + port * self.warps
                if "latency" not in self.without:
                    slowest = alone + self.constants.shared_latency * p.rolled
                    wait = wait + np.maximum(0.0, slowest - port * self.warps)
        return n * (work + wait) if "overlap" in self.without else cycle(n, work, wait)

    @property
    def _schedulers(self) -> int:
        return self.machine.sm_limits.sub_partitions

    def _outside(self, p: PhaseFigures, n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Turns of L1 per warp and run of a phase: for spilled registers, and for lines that were evicted before their reuse."""
        limits = self.machine.sm_limits
        free = l1_beside(limits, n * (self.shared + limits.shared_reserved))
        through_l2 = LINE / self.constants.l2_bytes
        spills = np.zeros(1)
        if "spills" not in self.without:
            held = n * self.threads * self.spilled * 4
            spills = p.spill_refills * self.spilled * 2 * np.where(held > free, 1 + through_l2, 1.0)
        refetched = np.zeros(1)
        if "capacity" not in self.without and p.waits:
            # two refills of every block: the one in use and the one on its way
            missing = np.clip(1 - free / np.maximum(1.0, 2 * n * sum(p.streams.values())), 0.0, 1.0)
            refetched = missing * p.looked_up * through_l2
        return spills, refetched


@dataclass(frozen=True)
class PhaseFigures:
    """Cycles of the SM per warp and run of a phase, by port. looked_up: lines of L1; streams: bytes a block fetches
    per refill, by buffer; the latter two of what the arithmetic reads from global memory."""

    arithmetic: np.ndarray
    issue: np.ndarray
    memory: np.ndarray
    rolled: np.ndarray
    refills: np.ndarray
    spill_refills: np.ndarray
    waits: int
    looked_up: np.ndarray
    streams: Mapping[str, np.ndarray]

    def port(self, more: np.ndarray, power: float, without: frozenset[str]) -> np.ndarray:
        """The ports together, the load/store port with `more` turns."""
        ports = [self.arithmetic, self.memory + more]
        if "issue" not in without:
            ports.append(self.issue + more / 4)
        if "ports" in without:
            return np.maximum.reduce(np.broadcast_arrays(*ports))
        if power == 4:  # faster than any power
            return np.sqrt(np.sqrt(sum(np.square(np.square(p)) for p in ports)))
        return sum(p**power for p in ports) ** (1 / power)


def block_figures(
    work: ThreadWork,
    machine: Target,
    environment: Mapping[str, Any],
    front: str = OPENCL,
    constants: Constants = CONSTANTS,
    without: frozenset[str] = frozenset(),
    registers: np.ndarray | int | None = None,
) -> BlockFigures:
    """The figures of a launch. environment: numbers or int arrays of one length for the names in its terms (sizes, knobs).

    front: the language that the kernel is compiled from, OPENCL or CUDA (what becomes of vectors).
    without: names of TERMS to leave out, to see what each is worth. registers: per thread, where a compiler has said so.
    Arithmetic in a dtype for which the machine has no rate is left out. Raises TargetError for a machine without SMs.
    """
    limits = machine.sm_limits
    n = _length(environment)

    def value(t: Term) -> np.ndarray:
        return np.broadcast_to(np.asarray(evaluate(t, environment), dtype=np.int64), (n,))

    threads, shared = value(work.threads), value(work.shared)
    wanted = demanded(work, environment, constants) if registers is None else np.broadcast_to(np.asarray(registers), (n,))
    cap = most_registers(limits, threads)
    given = np.minimum(wanted, cap)
    if "registers" in without:
        given = np.minimum(32, given)
    figures = BlockFigures(
        work=work,
        machine=machine,
        environment=environment,
        threads=threads,
        shared=shared,
        registers=wanted,
        spilled=np.maximum(0, wanted - cap),
        resident=residents(limits, threads, given, shared),
        blocks=value(work.blocks),
        constants=constants,
        without=without,
    )
    lanes = Lanes(work, environment, n, front)
    parts = tuple((g, tuple(_phase(p, figures, lanes, value) for p in g.phases)) for g in work.groups)
    return replace(figures, parts=parts)


def demanded(work: ThreadWork, environment: Mapping[str, Any], constants: Constants = CONSTANTS) -> np.ndarray:
    """Registers per thread that a launch asks for: what the thread holds, the fragments and values on their way of its neediest
    phase, addresses. environment as in `block_figures`."""
    n = _length(environment)

    def value(t: Term) -> np.ndarray:
        return np.broadcast_to(np.asarray(evaluate(t, environment), dtype=np.int64), (n,))

    most = np.zeros(n, dtype=np.int64)
    for group in work.groups:
        for p in group.phases:
            most = np.maximum(most, value(p.fragments) + np.minimum(value(p.staged), constants.batch))
    return value(work.held) + most + constants.addresses


def _length(environment: Mapping[str, Any]) -> int:
    """Of the arrays; 1 for numbers."""
    return max((len(v) for v in environment.values() if isinstance(v, np.ndarray)), default=1)


def _phase(p: Phase, figures: BlockFigures, lanes: Lanes, value: Any) -> PhaseFigures:
    machine, constants, without = figures.machine, figures.constants, figures.without
    limits = machine.sm_limits
    per_access = BANKS / limits.load_store_lanes
    arithmetic, instructions = np.zeros(1), np.zeros(1)
    for dtype, t in p.arithmetic:
        instructions = instructions + value(t)
        if machine.peak("vector", dtype) is not None:
            arithmetic = arithmetic + value(t) * BANKS / machine.lanes(dtype)
    memory, slots, looked_up = np.zeros(1), np.zeros(1), np.zeros(1)
    streams: dict[str, np.ndarray] = {}
    refills = value(p.refills).astype(float)
    for r in p.requests:
        found = lanes.of(r, p)
        accesses = value(r.count) * found.pieces
        if r.memory == "shared":
            turns = found.turns if "banks" not in without else found.least
            slots = slots + accesses
        else:
            turns = found.lines if "lines" not in without else found.least
            slots = slots + accesses * constants.address_slots
            if not r.write and not r.copies:
                looked_up = looked_up + accesses * turns
                fresh = found.different * value(r.count) * value(r.vector) * r.element / refills
                streams[r.buffer] = np.maximum(streams[r.buffer], fresh) if r.buffer in streams else fresh
        memory = memory + accesses * np.maximum(turns, per_access)
    rolled = value(p.rolled).astype(float)
    return PhaseFigures(
        arithmetic=arithmetic,
        issue=(instructions + slots + rolled * constants.loop_slots) / limits.sub_partitions,
        memory=memory,
        rolled=rolled,
        refills=refills,
        spill_refills=refills if p.arithmetic else np.zeros(1),
        waits=p.waits,
        looked_up=looked_up,
        streams=streams,
    )
