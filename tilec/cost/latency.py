"""Latency hiding and waves: bytes that must be in flight to keep the memory busy, and the tail that a partial wave wastes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod

from tilec.cost.calls import number, whole
from tilec.errors import ResourceError
from tilec.targets import Target, load


@dataclass(frozen=True)
class Flight:
    """Bytes. `needed`: bandwidth × latency (Little's law), for the chip and per SM; `had` per SM; cover = had ÷ needed."""

    needed: float
    needed_per_sm: float
    had_per_sm: float

    @property
    def cover(self) -> float:
        """Share of the needed bytes that is in flight; 1 and more hides the latency."""
        return self.had_per_sm / self.needed_per_sm

    @property
    def effective(self) -> float:
        """Share of the bandwidth that is reached: cover, at most 1."""
        return min(1.0, self.cover)


def bytes_in_flight(
    target: str | Target,
    warps: int,
    loads: int = 1,
    bytes_per_lane: int = 4,
    latency: float | None = None,
    lanes: int = 32,
) -> Flight:
    """What `warps` resident warps per SM keep in flight with `loads` independent loads of `bytes_per_lane` each.

    latency: seconds; None: the target's DRAM latency.
    """
    machine = load(target)
    seconds = machine.dram_latency if latency is None else latency
    for name, value in {"warps": warps, "loads": loads, "bytes_per_lane": bytes_per_lane, "lanes": lanes}.items():
        number("bytes_in_flight", name, value)
    number("bytes_in_flight", "latency", seconds, positive=True)
    needed = machine.bandwidth * seconds
    return Flight(needed, needed / machine.cores, float(warps * loads * lanes * bytes_per_lane))


def warps_needed(
    target: str | Target, loads: int = 1, bytes_per_lane: int = 4, latency: float | None = None, lanes: int = 32
) -> int:
    """The fewest resident warps per SM that cover the latency."""
    flight = bytes_in_flight(target, 1, loads, bytes_per_lane, latency, lanes)
    if flight.had_per_sm == 0:
        raise ResourceError("warps_needed: nothing is in flight with no loads or no bytes")
    return ceil(flight.needed_per_sm / flight.had_per_sm)


def blocks_needed(
    target: str | Target,
    warps_per_block: int,
    loads: int = 1,
    bytes_per_lane: int = 4,
    latency: float | None = None,
    lanes: int = 32,
) -> int:
    """The fewest resident blocks per SM of `warps_per_block` warps each that cover the latency."""
    whole("blocks_needed", "warps_per_block", warps_per_block, 1)
    return -(-warps_needed(target, loads, bytes_per_lane, latency, lanes) // warps_per_block)


def loads_needed(target: str | Target, warps: int, bytes_per_lane: int = 4, latency: float | None = None, lanes: int = 32) -> int:
    """The fewest independent loads per warp with which `warps` resident warps per SM cover the latency."""
    flight = bytes_in_flight(target, warps, 1, bytes_per_lane, latency, lanes)
    if flight.had_per_sm == 0:
        raise ResourceError("loads_needed: nothing is in flight with no warps or no bytes")
    return ceil(flight.needed_per_sm / flight.had_per_sm)


def effective_bandwidth(
    target: str | Target,
    warps: int,
    loads: int = 1,
    bytes_per_lane: int = 4,
    latency: float | None = None,
    lanes: int = 32,
) -> float:
    """Bytes per second that the chip reaches with that much in flight: bandwidth · min(1, cover)."""
    return load(target).bandwidth * bytes_in_flight(target, warps, loads, bytes_per_lane, latency, lanes).effective


@dataclass(frozen=True)
class Issue:
    """A scheduler's warps that each work `work` cycles, then wait `wait`. `needed`: the fewest warps that keep it busy."""

    utilisation: Fraction
    needed: int


def issue(work: int, wait: int, warps: int = 1) -> Issue:
    """Share of the cycles in which one of `warps` warps issues: min(1, warps · work ÷ (work + wait)). All in cycles."""
    for what, value, least in (("work", work, 1), ("wait", wait, 0), ("warps", warps, 1)):
        whole("issue", what, value, least)
    return Issue(min(Fraction(1), Fraction(warps * work, work + wait)), -(-(work + wait) // work))


@dataclass(frozen=True)
class Waves:
    """`waves`: rounds of resident blocks, the last one maybe partial; efficiency = blocks ÷ (waves × resident blocks)."""

    blocks: int
    resident: int  # on the whole chip
    waves: int

    @property
    def efficiency(self) -> Fraction:
        """Blocks ÷ block slots of all waves."""
        return Fraction(self.blocks, self.waves * self.resident)

    @property
    def last(self) -> int:
        """Blocks in the last wave."""
        return self.blocks - (self.waves - 1) * self.resident


def waves(target: str | Target | int, blocks: int, blocks_per_sm: int = 1) -> Waves:
    """How `blocks` blocks fill a chip (a target, or a number of SMs) with `blocks_per_sm` resident on each."""
    sms = target if isinstance(target, int) else load(target).cores
    blocks, blocks_per_sm = whole("waves", "blocks", blocks, 1), whole("waves", "blocks_per_sm", blocks_per_sm, 1)
    sms = whole("waves", "the number of SMs", sms, 1)
    resident = sms * blocks_per_sm
    return Waves(blocks, resident, -(-blocks // resident))


@dataclass(frozen=True)
class Tiles:
    """A shape cut into tiles: per dimension the tiles, their number, and the share of the tiles' elements that is wanted."""

    grid: tuple[int, ...]
    count: int
    efficiency: Fraction


def tiles(shape: Sequence[int], tile: Sequence[int]) -> Tiles:
    """Tile quantisation: ceil(size ÷ tile) tiles per dimension, the last ones computed in full whatever they hold."""
    listed = isinstance(shape, Sequence) and isinstance(tile, Sequence)
    if not listed or len(shape) != len(tile) or not shape:
        raise ResourceError(f"tiles: needs sizes and as many tile sizes, got {shape!r} and {tile!r}")
    shape, tile = [whole("tiles", "a size", n, 1) for n in shape], [whole("tiles", "a tile size", n, 1) for n in tile]
    grid = tuple(-(-n // t) for n, t in zip(shape, tile, strict=True))
    return Tiles(grid, prod(grid), Fraction(prod(shape), prod(grid) * prod(tile)))
