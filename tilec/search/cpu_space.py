"""The space of a search on a CPU: tilec's own pick, and the same structures with other blocks and chunks around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Program
from tilec.schedule.schedule import Schedule
from tilec.search.cpu import group_nests, scheduled
from tilec.search.cpu_blocks import block_group, blocked_rows
from tilec.search.cpu_core import Core
from tilec.search.cpu_gemm import choose, contraction_group
from tilec.search.cpu_operands import Blocks, extents
from tilec.search.cpu_rows import chain_group, row_group, whole_sum
from tilec.search.nests import Group, nests
from tilec.search.recipes import Choice, Recipe
from tilec.search.rows import by_rows
from tilec.targets import Target

ROWS = (1, 2, 4, 6, 8, 10, 12, 14)
VECTORS = (1, 2, 3, 4)
DEPTHS = (0, 64, 128, 256, 512, 1024)  # of a block of the sum; 0: all of it
PIECES = (1, 2, 4, 8, 16, 32)  # micro-tiles in a piece of columns
STRIPS = (4, 8, 16, 32, 64, 128)
SPARE = 2  # registers beside the accumulators


def cpu_recipes(bound: Program, machine: Target) -> list[Recipe]:
    """Recipes at numbers for all sizes, the picked one first. A contraction is varied in micro-tile, pieces, blocks of its sum
    and packing; chains with something before them in the height of a strip."""
    core = Core.of(machine)
    pick = Recipe("picked", {"partition": "picked"}, {}, lambda s, knobs: scheduled(s, core)[0], "tilec's own pick for this CPU")
    prefix, found = nests(bound.source)
    if prefix:
        return [pick]
    groups = group_nests(bound, found)
    out = [pick]
    sums = [g for g in groups if any(nest.kind == "contraction" for nest in g) and not blocked_rows(g)]
    if sums:
        main = max(sums, key=lambda g: _work(bound, g))
        for packed in (True, False):
            out.append(_blocked(bound, groups, main, core, packed))
    elif any(_strips(bound, g) for g in groups):
        out.append(_in_strips(groups, core))
    return out


def _work(program: Program, group: Group) -> int:
    total = 0
    for nest in group:
        if nest.kind == "contraction":
            product = 1
            for n in extents(program, nest).values():
                product *= max(1, n)
            total += product
    return total


def _strips(program: Program, group: Group) -> bool:
    """Is it a chain of several nests?"""
    return len(group) > 1 and all(nest.kind == "elementwise" for nest in group)


def _blocked(program: Program, groups: Sequence[Group], main: Group, core: Core, packed: bool) -> Recipe:
    nest = [n for n in main if n.kind == "contraction"][-1]
    dtype = program.buffer[program.statement[nest.leading].target.buffer].dtype
    lanes = core.vector // DTYPES[DTYPES[dtype].arithmetic].bytes
    chosen = choose(program, main, core)
    size = extents(program, nest)
    depth = 1
    for v in nest.sums:
        depth *= max(1, size.get(v, 1))
    widest = max(size.values(), default=0)
    rows = sorted({*ROWS, chosen.MR})
    columns = sorted({*(v * lanes for v in VECTORS), chosen.NR})
    blocks = sorted({*(d for d in DEPTHS if d < depth), chosen.KC})
    pieces = sorted({*(p for p in PIECES if p * columns[0] <= widest or p == 1), max(1, chosen.NC // chosen.NR)})
    most = core.registers - SPARE

    def apply(s: Schedule, knobs: Mapping[str, Any]) -> Schedule:
        b = Blocks(knobs["MR"], knobs["NR"], knobs["NR"] * knobs["PIECES"], knobs["KC"], chosen.across, chosen.MC, packed)
        if b.across == "rows":
            b = replace(b, MC=max(b.MR, chosen.MC // b.MR * b.MR))
        return _all(s, groups, core, {main: b})

    choices: dict[str, Choice] = {
        "partition": "+".join(n.name for n in main),
        "right operand": "packed" if packed else "in place",
    }
    space = {"MR": tuple(rows), "NR": tuple(columns), "PIECES": tuple(pieces), "KC": tuple(blocks)}
    return Recipe(
        f"{choices['partition']}; right operand {choices['right operand']}",
        choices,
        space,
        apply,
        f"micro-tiles in registers, {chosen.across} on the cores, the right operand {choices['right operand']}",
        lambda knobs: knobs["MR"] * -(-knobs["NR"] // lanes) <= most,
    )


def _in_strips(groups: Sequence[Group], core: Core) -> Recipe:
    def apply(s: Schedule, knobs: Mapping[str, Any]) -> Schedule:
        return _all(s, groups, core, {}, knobs["STRIP"])

    name = " | ".join("+".join(n.name for n in g) for g in groups)
    return Recipe(name, {"partition": name}, {"STRIP": STRIPS}, apply, "chains in strips of rows")


def _all(s: Schedule, groups: Sequence[Group], core: Core, blocks: Mapping[Group, Blocks], strip: int = 32) -> Schedule:
    """Every group by its structure, without proofs in between: what is kept is proved by the search."""
    for group in groups:
        if blocked_rows(group):
            s = block_group(s, group, core)
        elif any(nest.kind == "contraction" for nest in group):
            s = contraction_group(s, group, blocks.get(group) or choose(s.program, group, core), core)
        elif by_rows(group):
            s = row_group(s, group, core)
        elif all(nest.kind == "elementwise" for nest in group):
            s = chain_group(s, group, core, strip)
        elif len(group) == 1 and group[0].kind == "sum":
            s = whole_sum(s, group, core)
    return s
