"""Into how many slices of columns the values of an output tile are cut that an elementary function makes of sums of products.

An elementary function keeps values beside its argument; behind a product it is evaluated for some columns after the others, so
that they occupy registers for one slice only. Triton's emitter cuts by this rule, the cost model counts by it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.ir.functions import FUNCTIONS

AT_ONCE = 16  # outputs of a thread that are computed at once
NARROW = 16  # columns of a slice at least: a sector of 32 bytes where an output has 2
SHORT = 8  # an elementary function of so few steps keeps nothing beside its argument


def keeps_values(function: str) -> bool:
    """Is it an elementary function that keeps values of its own while it is evaluated?"""
    return function in FUNCTIONS and len(FUNCTIONS[function].steps) > SHORT


def slices(outputs: Any, columns: Any) -> Any:
    """For so many outputs per thread of a tile with so many columns (powers of two, numbers or arrays)."""
    return np.maximum(1, np.minimum(np.asarray(outputs) // AT_ONCE, np.asarray(columns) // NARROW)).astype(int)[()]
