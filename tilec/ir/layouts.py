"""Layouts: where a buffer's cells lie inside its allocation, as a bijection of indices onto addresses counted in elements.

none                 row-major
pad(dim, n)          row-major in extents grown by n in dimension dim: rows start in other banks
xor(row, column)     row-major with column index j replaced by j ^ (i mod columns), i the row index; columns a power of two
panels(dim, width)   [i_dim // width][the other dimensions in order][i_dim mod width]: packed panels, the last one padded
digits(dim, divisor, modulus, …)   any order of the parts of the indices: a triple is the digit (i_dim // divisor) mod modulus,
                     outermost first; modulus 0: the leading digit of its dimension, not reduced; a negative modulus -m runs
                     the m values backwards. W[K, N] in panels of 16 columns and pairs of rows: (1,16,0, 0,2,0, 1,1,16, 0,1,2)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

from tilec.ir.affine import Aff
from tilec.ir.program import Layout

E = TypeVar("E", int, Aff)

ARGUMENTS = {"pad": ("dim", "n"), "xor": ("row", "column"), "panels": ("dim", "width"), "digits": ("digits",)}


def triples(args: Sequence[int]) -> list[tuple[int, int, int]]:
    """The digits (dim, divisor, modulus) of a "digits" layout."""
    return [(args[n], args[n + 1], args[n + 2]) for n in range(0, len(args), 3)]


def digits_fault(args: Sequence[int], rank: int) -> str | None:
    """Why these are no digits of `rank` indices, or None: each dimension is cut into digits whose moduli multiply up to its
    leading divisor, so that they tell all its indices apart."""
    if not args or len(args) % 3:
        return "digits are triples (dim, divisor, modulus)"
    for d in range(rank):
        mine = sorted((t[1:] for t in triples(args) if t[0] == d), key=lambda t: t[0])
        if not mine:
            return f"dimension {d} has no digit"
        expected = 1
        for n, (divisor, modulus) in enumerate(mine):
            last = n == len(mine) - 1
            if divisor != expected:
                return f"dimension {d} needs a digit of divisor {expected}, not {divisor}"
            if last and modulus != 0:
                return f"the leading digit of dimension {d} (divisor {divisor}) needs modulus 0, not {modulus}"
            if not last and abs(modulus) < 2:
                return f"the digit of dimension {d} and divisor {divisor} needs a modulus of 2 or more, not {modulus}"
            expected *= abs(modulus) or 1
    other = [t[0] for t in triples(args) if not 0 <= t[0] < rank]
    return f"there is no dimension {other[0]}" if other else None


def padded(layout: Layout | None, extents: Sequence[E]) -> list[E]:
    """The extents with what the layout adds, as numbers or as expressions in the sizes."""
    out = list(extents)
    if layout is not None and layout.name == "pad":
        dim, n = layout.args
        out[dim] = out[dim] + n
    elif layout is not None and layout.name == "panels":
        dim, width = layout.args
        out[dim] = (out[dim] + (width - 1)) // width * width
    elif layout is not None and layout.name == "digits":
        for dim, divisor, modulus in triples(layout.args):
            if modulus == 0 and divisor > 1:
                out[dim] = (out[dim] + (divisor - 1)) // divisor * divisor
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
    elif layout is not None and layout.name == "digits":
        parts = triples(layout.args)
        place = [_digit(index[dim], divisor, modulus) for dim, divisor, modulus in parts]
        sizes = [abs(modulus) or -(-extents[dim] // divisor) for dim, divisor, modulus in parts]
    elif layout is not None:
        dim, width = layout.args
        i, e = place.pop(dim), sizes.pop(dim)
        place, sizes = [i // width, *place, i % width], [-(-e // width), *sizes, width]
    out: Any = 0
    for i, e in zip(place, sizes, strict=True):
        out = out * e + i
    return out


def _digit(i: Any, divisor: int, modulus: int) -> Any:
    if modulus == 0:
        return i // divisor
    digit = i // divisor % abs(modulus)
    return digit if modulus > 0 else -modulus - 1 - digit
