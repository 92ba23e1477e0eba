"""What Triton's compiler will need for a block of tile operations: shared bytes by rule, registers by a fitted line, spilling.

Shared memory (rules read off machine code of Triton 3.9, which hold to the byte for the kernels of docs/gpu.md):
- tiles loaded for tl.dot in a pipelined loop of S stages lie in S - 1 buffers each (mma: sm_80, sm_89, sm_120, and outputs of
  fewer than 64 rows anywhere) or S (wgmma: sm_90; tensor memory: sm_100, with two barriers of 8 bytes per product beside them);
- of an 8-bit product on sm_90, the second operand lies in one more buffer for its transposition instead;
- where an operand is computed in the loop, what it is computed from lies in S - 1 buffers like the other one, and it in one;
- without a pipeline the two operands of one product, the largest pair (sm_100: and one barrier);
- behind the loop, what of the output tile (of a slice of it) changes its owner before the store: the tile, halved for every
  register dimension that both layouts have in common beyond those a wide access takes (3 of 2-byte elements on sm_80 and sm_89,
  1 later); and half of its sums where slices are cut across warps (wgmma). It uses the same bytes again: the largest counts.
Registers: constant + accumulators + a share of the operands in flight per thread, fitted per kind of matrix unit to 285 compiled
GEMM-like kernels (median error 5 %); and what elementwise work keeps per output element: three or four values for each elementary
function, four for each division. More than 255 spill.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2
from typing import Any

import numpy as np

from tilec.lower.slices import slices

MMA, WGMMA, TMEM = "mma", "wgmma", "tensor memory"
MOST = 255
LEAST_ROWS = 64  # of a product by wgmma or into tensor memory
TENSOR_COLUMNS, TENSOR_ROWS = 512, 128
KEPT = 3.25  # values of an elementary function per output
# per unit and architecture: constant, per accumulator register, per operand register in flight, per accumulator of 8-bit products
_LINES: Mapping[tuple[str, bool], tuple[float, float, float, float]] = {
    (MMA, False): (57.3, 1.45, 0.17, 0.23),
    (MMA, True): (47.5, 1.22, 0.60, -0.05),
    (WGMMA, True): (26.8, 1.07, 0.53, 1.08),
    (TMEM, True): (10.6, 1.18, 0.13, -0.05),
}


@dataclass(frozen=True)
class Operand:
    """A tile that a product reads: rows and columns, bytes per element. loaded: from global memory in the loop itself."""

    name: str
    rows: int
    columns: int
    width: int
    loaded: bool = True

    @property
    def bytes(self) -> int:
        """Of one copy."""
        return self.rows * self.columns * self.width


@dataclass(frozen=True)
class Product:
    """A tl.dot: rows × columns, summed over depth, in a loop of `stages`."""

    rows: int
    columns: int
    depth: int
    left: Operand
    right: Operand
    stages: int


@dataclass(frozen=True)
class Stored:
    """A tile stored behind the products: rows, columns, bytes per element; slices: of columns, computed one after the other."""

    rows: int
    columns: int
    width: int
    slices: int = 1


@dataclass(frozen=True)
class TileBlock:
    """One block of a kernel.

    functions, divisions: elementary functions and correctly rounded divisions evaluated per output element. widened: 8-bit
    operands travel as bytes and are converted in registers. reduced: it reduces across warps. fed: bytes of the tiles that the
    pipelined loop loads for operands that it computes.
    """

    warps: int
    products: tuple[Product, ...]
    stored: tuple[Stored, ...]
    functions: int = 0
    widened: bool = False
    reduced: bool = False
    fed: int = 0
    divisions: int = 0


@dataclass(frozen=True)
class Needs:
    """Predicted: shared bytes per block, registers per thread (before the limit of 255; None where no rule says), columns of
    tensor memory."""

    shared: int
    wanted: int | None
    columns: int

    @property
    def registers(self) -> int | None:
        """What the compiler can give."""
        return None if self.wanted is None else min(self.wanted, MOST)

    @property
    def spills(self) -> bool:
        """Does it want more?"""
        return self.wanted is not None and self.wanted > MOST


def unit(capability: int, product: Product) -> str:
    """What multiplies: the tensor cores through registers (mma), from shared memory (wgmma), or into tensor memory."""
    return MMA if product.rows < LEAST_ROWS else matrix_unit(capability)


def matrix_unit(capability: int) -> str:
    """The same for tiles that are tall enough for any unit."""
    return {90: WGMMA, 100: TMEM, 103: TMEM}.get(capability, MMA)


def needs(block: TileBlock, capability: int) -> Needs:
    """What a block needs on a machine of that compute capability (90 for 9.0)."""
    loops = _loops(block, capability)
    epilogue = max((_moved(block, s, capability) for s in block.stored), default=0) if block.products else _rows(block)
    return Needs(max(loops, epilogue), _registers(block, capability), _columns(block, capability))


def _columns(block: TileBlock, capability: int) -> int:
    """Of tensor memory: a power of two of at least 32; a column holds 128 rows of an output, or of two with 64 each."""
    mine = [p for p in block.products if unit(capability, p) == TMEM]
    if not mine:
        return 0
    wide = max(max(p.columns * -(-p.rows // 128) for p in mine), sum(p.rows * p.columns for p in mine) // 128)
    return max(32, 1 << (wide - 1).bit_length())


def _rows(block: TileBlock) -> int:
    """Without products: a word per warp for reductions; a tile that is turned round before it is stored."""
    return 4 * block.warps if block.reduced else 0


def _loops(block: TileBlock, capability: int) -> int:
    groups: dict[int, list[Product]] = {}
    for p in block.products:
        groups.setdefault(p.stages, []).append(p)
    return max((_loop(block, mine, stages, capability) for stages, mine in groups.items()), default=0)


def _loop(block: TileBlock, products: Sequence[Product], stages: int, capability: int) -> int:
    kind = unit(capability, products[0])
    if stages == 1:
        if block.widened:
            return max(max(p.left.bytes, p.right.bytes) for p in products)
        return max(p.left.bytes + p.right.bytes for p in products) + (8 if kind == TMEM else 0)
    distinct = {o.name: o for p in products for o in (p.left, p.right)}
    loaded = sum(o.bytes for o in distinct.values() if o.loaded)
    made = sum(o.bytes * (2 if block.widened else 1) for o in distinct.values() if not o.loaded)
    if block.fed:  # an operand is computed from loads, which then are all fetched ahead into place
        turned = sum(o.bytes for o in distinct.values() if o.loaded and o.width == 1) if kind == WGMMA else 0
        ahead = (stages - 1) * (loaded - turned + block.fed) + turned
        return ahead + made + (16 * len(products) if kind == TMEM else 0)
    if kind == MMA:
        return (stages - 1) * loaded + made
    if kind == WGMMA:
        turned = {p.right.name: p.right for p in products if p.right.width == 1 and p.right.loaded}
        single = sum(o.bytes for o in turned.values())
        return stages * (loaded - single) + single + made
    return stages * loaded + made + 16 * len(products)


def _moved(block: TileBlock, s: Stored, capability: int) -> int:
    """Bytes through which the output tile changes from the layout of the products to that of the stores."""
    p = block.products[-1]
    kind = unit(capability, p)
    if kind == TMEM:
        return 0
    row_warps, column_warps = _warps(p, block.warps, kind)
    halved = 2 * s.rows * s.columns if s.slices > 1 and kind == WGMMA and column_warps > 1 else 0
    return max(halved, _turned(block, replace(s, columns=s.columns // s.slices), kind, row_warps, column_warps, capability))


def _turned(block: TileBlock, s: Stored, kind: str, row_warps: int, column_warps: int, capability: int) -> int:
    """Of one slice."""
    m, n, warps = int(log2(s.rows)), int(log2(s.columns)), int(log2(block.warps))
    a, b = int(log2(row_warps)), int(log2(column_warps))
    mine = {("n", 0), ("m", 3)} if kind == MMA or m > 3 else {("n", 0)}
    mine |= {("n", k) for k in range(3 + (b if kind == MMA else 0), n - (b if kind == WGMMA else 0))}
    mine |= {("m", k) for k in range(4 + a, m)}
    per = min(int(log2(16 // s.width)), max(0, m + n - 5 - warps))
    along = min(5, n - per)
    down = 5 - along
    theirs = {("n", k) for k in range(per)} | {("m", k) for k in range(down + warps, m)}
    common = len(mine & theirs)
    wide = int(log2(16 // s.width)) if capability < 90 or s.width != 2 else 1
    if ("m", 3) in mine & theirs and s.rows * s.columns >= 128 * 32 * block.warps:
        wide = 1  # as seen: less than the loop takes in every kernel of 128 outputs per thread
    return s.rows * s.columns * s.width >> max(0, common - wide)


def _warps(p: Product, warps: int, kind: str) -> tuple[int, int]:
    """How the warps of a block share an output tile: rows × columns."""
    if kind == WGMMA:
        rows = min(warps, p.rows // 16)
        return rows, warps // rows
    left, right = max(1, p.rows // 16), max(1, p.columns // 8)
    rows, columns = 1, 1
    while rows * columns < warps:
        if left >= right:
            rows *= 2
            left = max(1, left // 2)
        else:
            columns *= 2
            right = max(1, right // 2)
    return rows, columns


def _registers(block: TileBlock, capability: int) -> int | None:
    threads = 32 * block.warps
    tile = max(block.stored, key=lambda s: s.rows * s.columns, default=Stored(0, 0, 0))
    outputs = tile.rows * tile.columns / threads
    first = block.products[0] if block.products else None
    apart = first is not None and unit(capability, first) == TMEM and first.rows == TENSOR_ROWS
    epilogue = epilogue_registers(len(block.products), block.functions, block.divisions, outputs, tile.columns, apart)
    if first is None:
        return round(epilogue) if epilogue else None
    sums = sum(p.rows * p.columns for p in block.products) / threads / (tile.slices if apart else 1)
    distinct = {o.name: o for p in block.products for o in (p.left, p.right)}
    operands = sum(o.bytes for o in distinct.values()) / 4 / threads
    eight = any(p.left.width == 1 for p in block.products)
    return round(max(loop_registers(unit(capability, first), capability, sums, operands, eight), epilogue))


def loop_registers(kind: str, capability: int, sums: Any, operands: Any, eight: bool) -> Any:
    """Registers per thread in a loop of products, before rounding: by the fitted line. sums: accumulators of a thread; operands:
    its share of one step's operands, in words of 4 bytes; eight: of 8-bit operands. Numbers or arrays."""
    constant, per_sum, per_operand, narrow = _LINES[kind, capability >= 90 and not (kind == MMA and capability < 120)]
    return constant + (per_sum + (narrow if eight else 0.0)) * sums + per_operand * operands


def epilogue_registers(products: int, functions: int, divisions: int, outputs: Any, columns: Any = 0, apart: Any = False) -> Any:
    """Registers per thread where elementary functions are evaluated, before rounding; 0 where none are. outputs: of one thread;
    columns: of the output tile. Numbers or arrays.

    Behind products, slice after slice (lower/slices.py): the sums of the slices to come, unless they lie `apart` (in tensor
    memory, a row per thread), and for each output of the slice what the functions keep and the other sums.
    """
    if not functions:
        return 0.0
    if not products:
        return np.where(outputs > 0, 28.0 + (1 + KEPT * functions + 4 * divisions) * outputs, 0.0)[()]
    at_once = outputs / slices(outputs, columns)
    waiting = np.where(apart, 0.0, products * (outputs - at_once))
    return np.where(outputs > 0, 28.0 + waiting + (products - 1 + KEPT * functions) * at_once, 0.0)[()]
