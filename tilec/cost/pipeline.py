"""A copy engine and a compute unit that share `slots` buffers: when each block is copied and computed.

Block n's copy starts when the engine is free and block n - slots has been computed; its computation starts when it has been
copied and block n - 1 has been computed. Times are in any one unit (ints, floats, Fractions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from tilec.errors import ResourceError

MOST_BLOCKS = 1_000_000
INFINITE = float("inf")


@dataclass(frozen=True)
class Pipeline:
    """`time`: until the last block is computed. copies, computes: (start, end) of each block."""

    time: Any
    copies: tuple[tuple[Any, Any], ...]
    computes: tuple[tuple[Any, Any], ...]

    @property
    def copy_busy(self) -> Any:
        """The time the copy engine works."""
        return sum((b - a for a, b in self.copies), 0)

    @property
    def compute_busy(self) -> Any:
        """The time the compute unit works."""
        return sum((b - a for a, b in self.computes), 0)

    @property
    def idle(self) -> tuple[tuple[Any, Any], ...]:
        """When the compute unit waits between two blocks."""
        pairs = zip(self.computes, self.computes[1:], strict=False)
        return tuple((a[1], b[0]) for a, b in pairs if b[0] > a[1])


def pipeline_time(copy: Any, compute: Any, blocks: int, slots: int = 2) -> Pipeline:
    """Simulate `blocks` blocks over `slots` slots. copy, compute: one duration for all blocks, or a sequence of them.

    With equal blocks the time is `pipeline_formula(...)`. ResourceError for no blocks, no slots or negative durations.
    """
    for what, value in (("blocks", blocks), ("slots", slots)):
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise ResourceError(f"pipeline_time: {what} must be a whole number, got {value!r}")
    if blocks > MOST_BLOCKS:
        raise ResourceError(f"pipeline_time: at most {MOST_BLOCKS:,} blocks are simulated one by one, got {blocks:,}")
    if blocks < 1 or slots < 1:
        raise ResourceError(f"pipeline_time: blocks and slots must be at least 1, got {blocks} and {slots}")
    copy_times, compute_times = _each("copy", copy, blocks), _each("compute", compute, blocks)
    copies: list[tuple[Any, Any]] = []
    computes: list[tuple[Any, Any]] = []
    for n in range(blocks):
        start = copies[-1][1] if copies else 0
        if n >= slots:
            start = max(start, computes[n - slots][1])
        copies.append((start, start + copy_times[n]))
        ready = max(copies[-1][1], computes[-1][1]) if computes else copies[-1][1]
        computes.append((ready, ready + compute_times[n]))
    return Pipeline(computes[-1][1], tuple(copies), tuple(computes))


def pipeline_formula(copy: Any, compute: Any, blocks: int, slots: int = 2) -> Any:
    """The time of equal blocks: all in turn with one slot, else fill + (blocks - 1)·(the slower of the two) + drain."""
    if slots == 1:
        return blocks * (copy + compute)
    return copy + (blocks - 1) * max(copy, compute) + compute


def _each(what: str, value: Any, blocks: int) -> list[Any]:
    if isinstance(value, str):
        raise ResourceError(f"pipeline_time: a {what} duration is a number, got {value!r}")
    out = list(value) if isinstance(value, Sequence) else [value] * blocks
    if len(out) != blocks:
        raise ResourceError(f"pipeline_time: {len(out)} {what} durations for {blocks} blocks")
    if not all(isinstance(t, Real) and not isinstance(t, bool) and t == t and t not in (INFINITE, -INFINITE) for t in out):
        raise ResourceError(f"pipeline_time: every {what} duration must be a finite number")
    if any(t < 0 for t in out):
        raise ResourceError(f"pipeline_time: a {what} duration is negative")
    if sum(out) == INFINITE:
        raise ResourceError(f"pipeline_time: the {what} durations are too large to be added up")
    return out
