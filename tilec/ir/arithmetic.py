"""What values the interpreter works on: stored elements and exact roundings, or something else in their place.

`Exact` is the semantics of tilec. Another set of the same methods runs the same tree on other values: bounds of errors, for one.
A *cell* is what a buffer holds (NumPy elements of `cells(dtype)`), a *value* what expressions compute with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilec.ir import evaluate as ev
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DType, decode, encode
from tilec.ir.expr import Expr

Value = Any


class Exact:
    """Every operation rounds once, in the written order."""

    def cells(self, d: DType) -> np.dtype:
        """The NumPy type of a cell."""
        return d.raw

    def enter(self, d: DType, raw: np.ndarray) -> np.ndarray:
        """Cells of an argument's elements (as bits)."""
        return raw

    def leave(self, d: DType, cells: np.ndarray) -> np.ndarray:
        """What the caller gets for an output."""
        return cells.view(d.numpy)

    def decode(self, dtype: str, cells: Any) -> Value:
        return decode(dtype, cells)

    def encode(self, dtype: str, value: Value) -> Any:
        return encode(dtype, value)

    def binary(self, op: str, dtype: str, a: Value, b: Value) -> Value:
        return ev.binary(op, dtype, a, b)

    def update(self, op: str, dtype: str, old: Value, value: Value) -> Value:
        """What an update stores: `old op value`."""
        return ev.binary(op, dtype, old, value)

    def accumulate(self, op: str, dtype: str, old: Value, values: Value, shape: tuple[int, ...], rows: tuple[int, ...]) -> Value:
        """`old` (of `shape`) updated by the values (of `rows`, the new axis first), in the order of that axis."""
        values = np.broadcast_to(ev.convert(values, dtype), rows)
        old = np.broadcast_to(old, shape)
        if op in ("+", "*"):
            lines = np.concatenate([old[None], values])
            ufunc = np.add if op == "+" else np.multiply
            return ufunc.accumulate(lines, axis=0, dtype=lines.dtype)[-1]  # one row after the other: the written order
        while len(values) > 1:  # max and min give the same in any order
            half = len(values) // 2
            rest = values[2 * half :]
            values = np.concatenate([ev.binary(op, dtype, values[:half], values[half : 2 * half]), rest])
        return ev.binary(op, dtype, old, values[0])

    def neutral(self, op: str, dtype: str) -> Value:
        return ev.neutral(op, dtype)

    def evaluate(self, e: Expr, loads: Sequence[Value], index: Callable[[Aff], Any], scalars: dict[str, Any]) -> Value:
        return ev.evaluate(e, loads, index, scalars)


EXACT = Exact()
