"""The structural choices that a recipe makes for every group of nests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilec.schedule.schedule import Schedule

BLOCKS = {1: ("block.x",), 2: ("block.y", "block.x"), 3: ("block.z", "block.y", "block.x")}
Knobs = Mapping[str, int]


@dataclass(frozen=True)
class Plan:
    """accumulator: where a tile's sums live, "shared" or "register". order: the tile loop outside, "i" (the first of the two) or
    "j". stages: of each k loop. shared: what a tile or row reads several times goes through shared memory. together: the k loops
    of independent sums in one tile are one. prefix: serial loops around everything, under which nothing can be bound to blocks.
    """

    accumulator: str = "shared"
    order: str = "i"
    stages: int = 1
    shared: bool = False
    together: bool = False
    prefix: tuple[str, ...] = ()


def on_blocks(s: Schedule, loops: list[str], plan: Plan) -> Schedule:
    """Nested loops, outermost first, on blocks; under a serial loop the outermost one in parallel."""
    if plan.prefix:
        return s.parallel(loops[0])
    for name, axis in zip(loops, BLOCKS[min(len(loops), 3)], strict=False):
        s = s.bind(name, axis)
    return s
