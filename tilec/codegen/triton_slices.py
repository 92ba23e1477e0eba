"""Values computed from sums of products, a slice of columns after the other (lower/slices.py).

A slice is made by `tl.split`, which halves a tile; the bits of every value stay. Each slice but the first stands under a test
that its columns are inside the output: nothing is computed for those outside, and the compiler, which would otherwise compute
all slices side by side, keeps them apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tilec.codegen.triton_state import Axis, Block, Output, State
from tilec.codegen.triton_sums import Sum
from tilec.codegen.triton_text import call
from tilec.ir import tree
from tilec.ir.expr import Call, walk
from tilec.ir.program import Address, Leaf, Program, Read
from tilec.lower.instructions import Tile
from tilec.lower.slices import keeps_values, slices


def tile_operation(k: State, op: Tile) -> None:
    """One tile operation as lines of a kernel, in slices where that saves registers."""
    whole = Sum(k, op)
    count = _count(k, whole)
    if count == 1:
        whole.emit()
    else:
        _sliced(k, op, whole, count)


def _count(k: State, whole: Sum) -> int:
    """How many slices: 1 for all that is not computed by an elementary function from the sum of a product and stored."""
    leaf = whole.op.action
    if k.warps is None or whole.op.reduced or whole.rank != 2 or not isinstance(leaf, Leaf):
        return 1
    rows, columns = (a.extent for a in whole.axes)
    target = k.program.buffer[leaf.target.buffer]
    if not isinstance(rows, int) or not isinstance(columns, int) or target.memory != "global" or target.name in k.both:
        return 1
    tiles = _tiles(k, leaf)
    if k.program.statement[leaf.statement].op != "=" or not any(a.buffer in k.summed for a in tiles):
        return 1
    if any(whole.order_of(a) not in ([0, 1], [0], []) for a in tiles) or len(whole.axes[1].loop.lower) != 1:
        return 1
    if not any(keeps_values(f) for f in _functions(k.program, leaf.statement, leaf.reads)):
        return 1
    return int(slices(rows * columns // (32 * k.warps), columns))


def _tiles(k: State, leaf: Leaf) -> list[Address]:
    """What it reads of tiles in registers or shared memory."""
    found = (a for a, _, is_write in tree.addresses(leaf, k.program) if not is_write)
    return [a for a in found if k.program.buffer[a.buffer].memory != "global"]


def _functions(program: Program, statement: str, reads: Sequence[Read]) -> Iterator[str]:
    """The elementary functions of a statement and of those inlined in it."""
    yield from (e.function for e in walk(program.statement[statement].value) if isinstance(e, Call))
    for r in reads:
        if not isinstance(r, Address):
            yield from _functions(program, r.statement, r.reads)


def _sliced(k: State, op: Tile, whole: Sum, count: int) -> None:
    leaf = op.action
    rows, column = whole.axes
    assert isinstance(leaf, Leaf) and isinstance(rows.extent, int) and isinstance(column.extent, int)
    width = column.extent // count
    tiles = {a.buffer: k.values[a.buffer] for a in _tiles(k, leaf) if whole.order_of(a) == [0, 1]}
    pieces = {b: _halved(k, v.name, rows.extent, column.extent, width) for b, v in tiles.items()}
    d, e = next((d, e) for d, e in enumerate(leaf.target.index) if column.loop.var in e.names)
    target = k.program.buffer[leaf.target.buffer]
    stored, used = len(k.outputs), k.used
    for n in range(count):
        low = column.loop.lower[0] + n * width
        part = Axis(replace(column.loop, lower=(low,), upper=(*column.loop.upper, low + width)), width)
        k.values |= {b: replace(v, name=pieces[b][n], extents=(v.extents[0], width)) for b, v in tiles.items()}
        if n == 0:
            Sum(k, op, axes=(rows, part)).emit()
            used = k.used.copy()  # what each slice calls counts once per output
            continue
        test = f"if {k.aff(e.subs({column.loop.var: low}))} < {k.aff(target.shape[d])}:"
        k.blocks.append(Block(k.block.depth + 1, k.block.known))
        Sum(k, op, axes=(rows, part)).emit()
        block = k.blocks.pop()
        k.put(test)
        k.line(*block.lines)
    k.values |= tiles
    k.used = used
    k.outputs[stored:] = [Output((rows.extent, column.extent), target.dtype, count)]


def _halved(k: State, name: str, rows: int, columns: int, width: int) -> list[str]:
    """The variables of a tile's slices, in order; each step halves."""
    pieces = {0: name}
    while columns > width:
        columns //= 2
        halves: dict[int, str] = {}
        for start, piece in pieces.items():
            left, right = (k.fresh(f"{name}_{n}_{n + columns}") for n in (start, start + columns))
            arguments = [f"tl.permute(tl.reshape({piece}, ({rows}, 2, {columns})), (0, 2, 1))"]
            k.line(*call(f"{left}, {right} = tl.split(", arguments, ")", k.block.depth))
            halves |= {start: left, start + columns: right}
        pieces = halves
    return list(pieces.values())
