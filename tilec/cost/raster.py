"""Which output blocks run together under a raster order, and the operand blocks they share in L2.

An output block (i, j) of a matrix product reads block row i of A and block column j of B, `depth` blocks each. Outputs that run
together load R·depth + C·depth distinct blocks, R and C being the distinct rows and columns among them. The grouped order is that
of the Triton matrix multiplication tutorial: groups of `group` block rows, each traversed column by column.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from tilec.cost.calls import whole
from tilec.errors import ResourceError

ORDERS = ("row", "column", "grouped")


def raster(rows: int, columns: int, order: str = "row", group: int = 1) -> Iterable[tuple[int, int]]:
    """The output blocks (i, j) of a rows × columns grid in the order they start. group: block rows per group of "grouped"."""
    for what, value in (("rows", rows), ("columns", columns), ("group", group)):
        whole("raster", what, value, 1)
    match order:
        case "row":
            return ((i, j) for i in range(rows) for j in range(columns))
        case "column":
            return ((i, j) for j in range(columns) for i in range(rows))
        case "grouped":
            return ((i, j) for top in range(0, rows, group) for j in range(columns) for i in range(top, min(rows, top + group)))
        case _:
            raise ResourceError(f"raster: order {order!r} is not known; orders: {', '.join(ORDERS)}")


@dataclass(frozen=True)
class Shared:
    """Outputs that run together: how many, the distinct block rows and columns under them, blocks along the sum."""

    outputs: int
    rows: int
    columns: int
    depth: int

    @property
    def loaded(self) -> int:
        """Operand blocks loaded when each is loaded once."""
        return self.depth * (self.rows + self.columns)

    @property
    def unshared(self) -> int:
        """Operand blocks loaded when nothing is shared."""
        return 2 * self.depth * self.outputs

    @property
    def reuse(self) -> Fraction:
        """Loads without sharing ÷ loads with it."""
        return Fraction(self.unshared, self.loaded)

    def region(self, bm: int, bn: int) -> tuple[int, int]:
        """Rows and columns of elements under the outputs, for output blocks of bm × bn."""
        return self.rows * bm, self.columns * bn

    def intensity(self, bm: int, bn: int, bytes_per_element: int = 2) -> Fraction:
        """Operations (2 per multiply-add) ÷ bytes of operands from global memory, the outputs' own store not counted."""
        for what, value in (("bm", bm), ("bn", bn), ("bytes_per_element", bytes_per_element)):
            whole("intensity", what, value, 1)
        m, n = self.region(bm, bn)
        return Fraction(2 * self.outputs * bm * bn, (m + n) * bytes_per_element)


def operand_sharing(
    rows: int, columns: int, depth: int, outputs: int, order: str = "row", group: int = 1, first: int = 0
) -> Shared:
    """What `outputs` co-resident output blocks share, from number `first` of the raster order on.

    rows, columns: of the grid of output blocks; depth: blocks along the sum. Fewer outputs are left at the grid's end.
    """
    for what, value in (("rows", rows), ("columns", columns), ("depth", depth), ("outputs", outputs)):
        whole("operand_sharing", what, value, 1)
    if whole("operand_sharing", "first", first) >= rows * columns:
        raise ResourceError(f"operand_sharing: first must be a block of the {rows} × {columns} grid, got {first!r}")
    last = min(first + outputs, rows * columns)
    blocks = list(islice(raster(rows, columns, order, group), first, last))
    return Shared(len(blocks), len({i for i, _ in blocks}), len({j for _, j in blocks}), depth)
