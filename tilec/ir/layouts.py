"""Layouts: where a buffer's cells lie inside its allocation, as a bijection of indices onto addresses counted in elements.

none                 row-major
pad(dim, n)          row-major in extents grown by n in dimension dim: rows start in other banks
xor(row, column)     row-major with column index j replaced by j ^ (i mod columns), i the row index; columns a power of two
panels(dim, width)   [i_dim // width][the other dimensions in order][i_dim mod width]: packed panels, the last one padded
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tilec.ir.program import Layout

ARGUMENTS = {"pad": ("dim", "n"), "xor": ("row", "column"), "panels": ("dim", "width")}


def allocated(layout: Layout | None, extents: Sequence[int]) -> int:
    """Elements that the buffer takes."""
    if layout is not None and layout.name == "pad":
        dim, n = layout.args
        return prod(e + n * (d == dim) for d, e in enumerate(extents))
    if layout is not None and layout.name == "panels":
        dim, width = layout.args
        return prod(-(-e // width) * width if d == dim else e for d, e in enumerate(extents))
    return prod(extents)


def address(layout: Layout | None, extents: Sequence[int], index: Sequence[Any]) -> Any:
    """The element address of a cell; integers or NumPy integer arrays."""
    place, sizes = list(index), list(extents)
    if layout is not None and layout.name == "pad":
        dim, n = layout.args
        sizes[dim] += n
    elif layout is not None and layout.name == "xor":
        row, column = layout.args
        place[column] = place[column] ^ (place[row] % sizes[column])
    elif layout is not None:
        dim, width = layout.args
        i, e = place.pop(dim), sizes.pop(dim)
        place, sizes = [i // width, *place, i % width], [-(-e // width), *sizes, width]
    out: Any = 0
    for i, e in zip(place, sizes, strict=True):
        out = out * e + i
    return out
