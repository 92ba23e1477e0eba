"""What the recipes for contractions share: the sizes they choose, where loops stand, and what the operands are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilec.ir.affine import Aff
from tilec.ir.program import Address, Leaf, Program
from tilec.search.handles import loops_of, path_of, site
from tilec.search.nests import Nest
from tilec.search.tiles import tile_knobs


@dataclass(frozen=True)
class Blocks:
    """MR, NR: the micro-tile. NC: columns of a piece. KC: of a block of the sum, 0 for all of it. across: which loop runs on the
    cores, "columns" or "rows" (pieces of MC rows, the right operand packed by all cores before). packed: is the right operand
    packed? flat: few rows, all in one tile: the left operand is copied column by column, the right one fetched ahead of use.
    ahead: arguments whose packed copy the caller may bring."""

    MR: int
    NR: int
    NC: int
    KC: int = 0
    across: str = "columns"
    MC: int = 0
    packed: bool = True
    flat: bool = False
    ahead: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Place:
    """Loops of the root: around the pieces, over micro-tiles, inside one."""

    outer: Sequence[str]
    tiles: Sequence[str]
    points: Sequence[str]


def extents(program: Program, nest: Nest) -> dict[str, int]:
    """The numbers of iterations of a contraction's loops at the program's sizes; 0 where they are not constant."""
    q = nest.leading
    out = {}
    found = site(program, q)
    for loop in found.loops if found else ():
        e = loop.upper[0] - loop.lower[0]
        out[loop.var] = e.const if e.is_const and len(loop.upper) == 1 else 0
    return out


def right_operands(program: Program, nest: Nest) -> list[str]:
    """Buffers in global memory that the sum reads by one access, with the columns in the index and without the rows."""
    q = nest.update
    assert q is not None
    statement = program.statement[q]
    column = nest.band[-1]
    row = next((v for v, knob in tile_knobs(program, nest).items() if knob == "BM"), None)
    out = []
    for access in statement.reads:
        names = frozenset[str]().union(*(e.names for e in access.index))
        alone = sum(a.buffer == access.buffer for a in statement.reads) == 1
        kept = program.buffer.get(access.buffer)
        if alone and column in names and row is not None and row not in names and kept is not None and kept.memory == "global":
            out.append(access.buffer)
    return out


def squared(program: Program, nest: Nest) -> str | None:
    """The buffer of which both operands of a sum are rows: one matrix by its own transpose; None where they are not."""
    reads = program.statement[nest.update or ""].reads
    row = next((v for v, knob in tile_knobs(program, nest).items() if knob == "BM"), None)
    if row is None or len(reads) != 2 or reads[0].buffer != reads[1].buffer or len(nest.sums) != 1:
        return None
    kept = program.buffer.get(reads[0].buffer)
    exchanged = {row: Aff.of(nest.band[-1]), nest.band[-1]: Aff.of(row)}
    same = tuple(e.subs(exchanged) for e in reads[0].index) == reads[1].index
    return kept.name if same and reads[0].index != reads[1].index and kept is not None and kept.memory == "global" else None


def dimension(program: Program, buffer: str, q: str, lane: str) -> int | None:
    """The dimension of the packed buffer along which the lanes step."""
    found = site(program, q)
    assert found is not None and isinstance(found.action, Leaf)
    for r in found.action.reads:
        if isinstance(r, Address) and r.buffer == buffer:
            return next((d for d, e in enumerate(r.index) if lane in e.names), None)
    return None


def sum_loops(program: Program, q: str, nest: Nest) -> list[str]:
    """The loops that the sum's variables are made of, outermost first."""
    path = path_of(program, q)
    found = {x for v in nest.sums for x in loops_of(program, q, v)}
    return [v for v in path if v in found]
