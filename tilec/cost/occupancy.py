"""How many blocks an SM holds at once, what caps it, and the cheapest change that gains one block.

Rules (CUDA programming guide, "Hardware multithreading" and the compute capability tables; tests hold all 2,000 cases of NVIDIA's
own calculator equal):
- a block has ceil(threads / 32) warps; registers are allocated to a warp in multiples of 256 inside one of the four
  sub-partitions, which share the SM's registers equally; a launch also needs registers for its warps rounded up to four;
- shared memory per block is static + dynamic + the system's reserve, rounded up to the allocation unit; the SM offers the
  smallest configuration that holds the carveout (in percent; None: all of it), or the block if that needs more;
- named barriers come out of a fixed number of slots from compute capability 9.0 on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from numbers import Integral, Real

from tilec.errors import ResourceError, TargetError
from tilec.targets import Limits, Target, load

KEPT = "kept in registers"
NAMES = ("threads", "registers", "shared", "blocks", "barriers")


@dataclass(frozen=True)
class Change:
    """A change of the launch that makes room for one more block: (what, from, to) each, and its share of what is used now."""

    steps: tuple[tuple[str, int, int], ...]
    share: float

    def __str__(self) -> str:
        units = {"registers": " per thread", KEPT: " B", "shared": " B", "carveout": " %", "threads": "", "barriers": ""}
        return " and ".join(f"{what} {a:,} → {b:,}{units[what]}" for what, a, b in self.steps)


@dataclass(frozen=True)
class Launch:
    """What a launch asks for, per block; registers per thread, shared in bytes, carveout in percent. kept: bytes that a block of
    unknown threads keeps in registers, a floor of what it is given."""

    threads: int | None
    registers: int | None
    shared: int
    carveout: int | None
    barriers: int
    kept: int = 0


@dataclass(frozen=True)
class Occupancy:
    """Per SM: resident blocks and warps, the share of the warp slots, each limit in blocks (None: no limit), the limiters.

    `limiters` names every cap of the lowest limit among threads, registers, shared and blocks, and barriers where they cap at
    least as low (NVIDIA's convention); `binding` only those whose own limit equals `blocks`. `unknown` names limits left out
    because their input wasn't given. `problems` says why no block fits. warps and fraction are None while threads are unknown.
    """

    target: str
    blocks: int
    warps: int | None
    fraction: float | None
    limiters: tuple[str, ...]
    limits: dict[str, int | None]
    allocated_registers: int | None
    allocated_shared: int
    shared_per_sm: int
    unknown: tuple[str, ...] = ()
    assumed: str = ""  # what stands for a number of registers that was not given, and by which rule
    problems: tuple[str, ...] = ()
    machine: Limits = field(repr=False, kw_only=True)
    launch: Launch = field(repr=False, kw_only=True)

    @cached_property
    def gain(self) -> Change | None:
        """The cheapest change (least share of what is used now) that lets one more block reside; None where nothing does."""
        return _gain(self.machine, self.launch, self.blocks)

    @property
    def binding(self) -> tuple[str, ...]:
        """The limits equal to the result; `limiters` may name more (docs/decisions.md, 20)."""
        return tuple(n for n in NAMES if self.limits.get(n) == self.blocks)

    def require(self, name: str = "the block") -> Occupancy:
        """This occupancy if a block fits; else ResourceError."""
        if self.problems:
            raise ResourceError(f"{name} {self.problems[0]}" + "".join(f"\n  and {p}" for p in self.problems[1:]))
        return self

    def __str__(self) -> str:
        text = f"{self.blocks} block{'s' if self.blocks != 1 else ''} per SM"
        if self.warps is not None and self.fraction is not None:
            text += f", {self.warps} warps ({self.fraction:.1%})"
        text += f", limited by {' and '.join(self.limiters) or 'nothing known'}"
        if self.assumed:
            text += f" ({self.assumed})"
        if self.unknown:
            text += f" ({' and '.join(self.unknown)} unknown, left out)"
        if self.gain is not None:
            text += f"; one more block: {self.gain}"
        return text


def occupancy(
    target: str | Target,
    threads: int | None = None,
    registers: int | None = None,
    shared_bytes: int = 0,
    *,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    carveout: int | None = None,
    barriers: int = 1,
) -> Occupancy:
    """Occupancy of a launch on `target` (a machine's name or a compute capability such as "8.6").

    threads: per block; registers: per thread; shared memory per block in bytes, given whole or as static and dynamic parts;
    carveout: percent of the SM's largest shared memory (None: all); barriers: named barriers per block. Raises TargetError where
    the target has no SM limits, ResourceError for arguments that no launch can have (zero threads, negative bytes).
    """
    machine = load(target)
    limits = machine.limits
    if limits is None:
        raise TargetError(f"target {machine.name!r} ({machine.kind}) has no occupancy: it has capacities per core")
    check_launch("occupancy", threads, registers)
    for what, value in (
        ("shared bytes", shared_bytes),
        ("static shared bytes", static_shared),
        ("dynamic shared bytes", dynamic_shared),
        ("barriers", barriers),
    ):
        _check_number("occupancy", what, value, 0)
    if carveout is not None and (isinstance(carveout, bool) or not isinstance(carveout, Real) or not 0 <= carveout <= 100):
        raise ResourceError(f"occupancy: carveout is a percentage from 0 to 100, got {carveout}")
    shared = shared_bytes + static_shared + dynamic_shared
    return launch_occupancy(machine.name, limits, Launch(threads, registers, shared, carveout, barriers))


def check_launch(call: str, threads: int | None, registers: int | None) -> None:
    """ResourceError unless threads per block and registers per thread are whole numbers (or unknown)."""
    for what, value, least in (("threads", threads, 1), ("registers", registers, 0)):
        if value is not None:
            _check_number(call, what, value, least)


def _check_number(call: str, what: str, value: int, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ResourceError(f"{call}: {what} must be a whole number, got {value!r}")
    if value < least:
        raise ResourceError(f"{call}: {what} must be at least {least}, got {value}")


def block_limits(limits: Limits, launch: Launch) -> dict[str, int | None]:
    """Blocks per SM allowed by each resource alone; None: not limited; resources whose input is unknown are absent."""
    out: dict[str, int | None] = {}
    warps = None if launch.threads is None else -(-launch.threads // limits.warp)
    if warps is not None and launch.threads is not None:
        out["threads"] = 0 if launch.threads > limits.threads_per_block else limits.warps_per_sm // warps
        if launch.registers is not None:
            per_warp = _up(launch.registers * limits.warp, limits.register_unit)
            assumed = per_warp * _up(warps, limits.sub_partitions)
            if _too_many(limits, launch.registers) or assumed > limits.registers_per_block:
                out["registers"] = 0
            elif per_warp == 0:
                out["registers"] = None
            else:
                per_partition = limits.registers_per_sm // limits.sub_partitions // per_warp
                out["registers"] = per_partition * limits.sub_partitions // warps
    elif launch.kept:
        out["registers"] = 0 if launch.kept > 4 * limits.registers_per_block else 4 * limits.registers_per_sm // launch.kept
    bytes_, available = _shared(limits, launch)
    if bytes_ > limits.shared_per_block + limits.shared_reserved:
        out["shared"] = 0
    else:
        out["shared"] = available // bytes_ if bytes_ else None
    out["blocks"] = limits.blocks_per_sm
    if limits.barrier_slots and launch.barriers:
        out["barriers"] = limits.barrier_slots // launch.barriers
    return out


def _shared(limits: Limits, launch: Launch) -> tuple[int, int]:
    """(bytes allocated per block, bytes of the SM's configuration)."""
    bytes_ = _up(launch.shared + limits.shared_reserved, limits.shared_unit)
    wanted = limits.shared_per_sm * (100 if launch.carveout is None else launch.carveout) // 100
    preferred = next(c for c in limits.shared_configs if c >= wanted)
    if preferred >= bytes_:
        return bytes_, preferred
    return bytes_, next((c for c in limits.shared_configs if c >= bytes_), limits.shared_per_sm)


def launch_occupancy(name: str, limits: Limits, launch: Launch, assumed: str = "") -> Occupancy:
    """The same for a launch on a machine of that name, without checks. assumed: see Occupancy."""
    table = block_limits(limits, launch)
    first = min(v for k, v in table.items() if v is not None and k != "barriers")
    limiters = [n for n in NAMES if n != "barriers" and table.get(n) == first]
    barrier = table.get("barriers")
    blocks = first if barrier is None else min(first, barrier)
    if barrier is not None and barrier == blocks:
        limiters.append("barriers")
    unknown = tuple(n for n in ("threads", "registers") if n not in table)
    warps = None if launch.threads is None else blocks * -(-launch.threads // limits.warp)
    allocated, available = _shared(limits, launch)
    registers = None
    if launch.threads is not None and launch.registers is not None:
        registers = _up(launch.registers * limits.warp, limits.register_unit) * -(-launch.threads // limits.warp)
    return Occupancy(
        target=name,
        blocks=blocks,
        warps=warps,
        fraction=None if warps is None else warps / limits.warps_per_sm,
        limiters=tuple(limiters),
        limits=table,
        allocated_registers=registers,
        allocated_shared=allocated,
        shared_per_sm=available,
        unknown=unknown,
        assumed=assumed,
        problems=_problems(name, limits, launch, table) if blocks == 0 else (),
        machine=limits,
        launch=launch,
    )


def _problems(name: str, limits: Limits, launch: Launch, table: dict[str, int | None]) -> tuple[str, ...]:
    out = []
    if table.get("threads") == 0:
        out.append(f"has {launch.threads:,} threads; {name} allows {limits.threads_per_block:,} per block")
    if table.get("registers") == 0:
        if launch.threads is None:
            out.append(f"keeps {launch.kept:,} B in registers per block; {name} allows {4 * limits.registers_per_block:,} B")
        elif launch.registers is not None and _too_many(limits, launch.registers):
            out.append(f"needs {launch.registers:,} registers per thread; {name} allows {limits.registers_per_thread:,}")
        else:
            out.append(
                f"needs {launch.threads:,} threads × {launch.registers:,} registers (units of {limits.register_unit} per warp, "
                f"warps in fours); {name} allows {limits.registers_per_block:,} per block"
            )
    if table.get("shared") == 0:
        out.append(f"needs {launch.shared:,} B of shared memory per block; {name} allows {limits.shared_per_block:,} B")
    if table.get("barriers") == 0:
        out.append(f"needs {launch.barriers} barriers per block; {name} has {limits.barrier_slots}")
    return tuple(out)


def _gain(limits: Limits, launch: Launch, blocks: int) -> Change | None:
    """The change with the least summed share that reaches blocks + 1, of: each limiting resource by itself, or fewer threads."""
    if blocks >= limits.blocks_per_sm:
        return None
    candidates = [_relieve(limits, launch, blocks + 1)]
    if launch.threads is not None:
        top = -(-launch.threads // limits.warp) * limits.warp
        fitting = limits.threads_per_block // limits.warp * limits.warp  # more never fit
        for threads in range(min(top - limits.warp, fitting), 0, -limits.warp):
            smaller = replace(launch, threads=threads)
            table = block_limits(limits, smaller)
            if all(v is None or v > blocks for k, v in table.items() if k in ("threads", "registers")):
                rest = _relieve(limits, smaller, blocks + 1)
                if rest is not None:
                    step = ("threads", launch.threads, threads)
                    candidates.append(Change((step, *rest.steps), rest.share + 1 - threads / launch.threads))
                break
    found = [c for c in candidates if c is not None and c.steps]
    return min(found, key=lambda c: c.share, default=None)


def _relieve(limits: Limits, launch: Launch, want: int) -> Change | None:
    """The smallest reduction of registers, shared memory and barriers that lets `want` blocks reside at unchanged threads."""
    table = block_limits(limits, launch)
    steps: list[tuple[str, int, int]] = []
    share = 0.0

    def note(what: str, now: int, then: int) -> None:
        nonlocal share
        steps.append((what, now, then))
        share += abs(1 - then / now) if now else 1.0

    for name, limit in table.items():
        if limit is None or limit >= want:
            continue
        if name == "registers" and launch.registers is not None:
            fitting = _up(limits.registers_per_thread * limits.warp, limits.register_unit) // limits.warp  # more never fit
            for registers in range(min(launch.registers - 1, fitting), 0, -1):
                fewer = replace(launch, registers=registers)
                value = block_limits(limits, fewer)["registers"]
                if value is None or value >= want:
                    note("registers", launch.registers, registers)
                    break
            else:
                return None
        elif name == "registers":
            note(KEPT, launch.kept, 4 * limits.registers_per_sm // want)
        elif name == "shared":
            room = max((c // want // limits.shared_unit * limits.shared_unit for c in limits.shared_configs), default=0)
            wider = replace(launch, carveout=100)
            value = block_limits(limits, wider)["shared"]
            if launch.carveout is not None and (value is None or value >= want):
                note("carveout", launch.carveout, _least_carveout(limits, launch, want))
                continue
            room = min(room - limits.shared_reserved, limits.shared_per_block)
            if room < 0:
                return None
            less = replace(launch, shared=room)
            value = block_limits(limits, less)["shared"]
            if value is not None and value < want:  # a small carveout: it has to grow as well
                note("carveout", launch.carveout or 0, 100)
            note("shared", launch.shared, room)
        elif name == "barriers":
            fewer_barriers = limits.barrier_slots // want
            if fewer_barriers < 1:
                return None
            note("barriers", launch.barriers, fewer_barriers)
        else:
            return None
    return Change(tuple(steps), share)


def _least_carveout(limits: Limits, launch: Launch, want: int) -> int:
    for percent in range(int(launch.carveout or 0) + 1, 101):
        wider = replace(launch, carveout=percent)
        value = block_limits(limits, wider)["shared"]
        if value is None or value >= want:
            return percent
    return 100


def _too_many(limits: Limits, registers: int) -> bool:
    """255 registers are allocated like 256, and NVIDIA's calculator accepts both."""
    return _up(registers * limits.warp, limits.register_unit) > _up(
        limits.registers_per_thread * limits.warp, limits.register_unit
    )


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
