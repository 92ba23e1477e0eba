"""Layouts: where a buffer's cells lie inside its allocation, as a bijection of indices onto addresses counted in elements.

none                 row-major
pad(dim, n)          row-major in extents grown by n in dimension dim: rows start in other banks
xor(row, column)     row-major with column index j replaced by j ^ (i mod columns), i the row index; columns a power of two
panels(dim, width)   [i_dim // width][the other dimensions in order][i_dim mod width]: packed panels, the last one padded
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

from tilec.ir.affine import Aff
from tilec.ir.program import Layout

E = TypeVar("E", int, Aff)

ARGUMENTS = {"pad": ("dim", "n"), "xor": ("row", "column"), "panels": ("dim", "width")}


def padded(layout: Layout | None, extents: Sequence[E]) -> list[E]:
    """The extents with what the layout adds, as numbers or as expressions in the sizes."""
    out = list(extents)
    if layout is not None and layout.name == "pad":
        dim, n = layout.args
        out[dim] = out[dim] + n
    elif layout is not None and layout.name == "panels":
        dim, width = layout.args
        out[dim] = (out[dim] + (width - 1)) // width * width
    return out


def allocated(layout: Layout | None, extents: Sequence[int]) -> int:
    """Elements that the buffer takes."""
    return prod(padded(layout, extents))


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
