"""What the arithmetic units of a core take for an operation: slots of the vector unit, granules and paths of the matrix unit.

A slot is one lane of the vector unit for one cycle; a machine's f32 (f64) rate counts a multiply-add as two operations, so it has
half as many slots a second. An add or a multiply takes a slot of its own unless the program allows contraction. Elementary
functions take the slots of their fixed sequence (ir/functions.py). Division and square root take DIVISION slots, conversions
CONVERSION: the instruction throughput table of the CUDA programming guide, rounded up to the slowest of compute capabilities 8.0
to 9.0; they are the same for every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.errors import InternalError
from tilec.ir.functions import FUNCTIONS
from tilec.targets import Target

DIVISION = 8
CONVERSION = 2
L2_BYTES_PER_CYCLE = 64  # between L2 and one SM (NVIDIA A100 and V100 whitepapers, L2 cache)
CONTENTION = 4  # exponent of the sum over the units of an SM: the busiest hides most of the others
_SLOTS = {
    "add": 1,
    "sub": 1,
    "mul": 1,
    "div": DIVISION,
    "sqrt": DIVISION,
    "compare": 1,
    "minmax": 1,
    "select": 1,
    "convert": CONVERSION,
    "sign": 1,
    "logic": 1,
    "integer": 1,
}


def slots(kind: str) -> int:
    """Lane slots of one operation; InternalError for a kind without a rule, so that nothing is free by accident."""
    if kind in _SLOTS:
        return _SLOTS[kind]
    if kind in FUNCTIONS:
        return sum(slots(k) * n for k, n in FUNCTIONS[kind].counts.items())
    raise InternalError(f"no cost rule for the operation {kind!r}")


def slot_rate(machine: Target, dtype: str) -> float | None:
    """Slots per second of the vector unit in an arithmetic type; None where the machine has no rate at all for it."""
    found = machine.peak("vector", dtype) or machine.peak("vector", "f32")
    if found is None and machine.matrix_peaks:
        return None
    return None if found is None else found[0] / 2


@dataclass(frozen=True)
class Path:
    """A way to use the matrix unit. rows, columns: the granule of an output tile, either way round; k_bytes: of the sum, in bytes
    of one operand's row; warps: that issue one instruction together; share: of the unit's peak that the path reaches.
    operands: "fragments" (every warp reads its rows and columns from shared memory into registers) or "shared" (the unit reads
    shared memory itself)."""

    name: str
    rows: int
    columns: int
    k_bytes: int
    warps: int
    share: float
    operands: str


MMA = ("mma.sync", 16, 8, 32, 1, "fragments")
WGMMA = ("wgmma", 64, 8, 32, 4, "shared")
TCGEN05 = ("tcgen05", 128, 16, 32, 4, "shared")
_PATHS = {7: (MMA,), 8: (MMA,), 9: (MMA, WGMMA), 10: (MMA, TCGEN05), 12: (MMA,)}


def paths(machine: Target) -> tuple[Path, ...]:
    """The paths of a GPU's compute capability, the narrowest granule first; of another machine one without granules."""
    if machine.limits is None:
        return (Path("matrix", 1, 1, 1, 1, 1.0, "shared"),)
    found = _PATHS.get(int(machine.limits.compute_capability.split(".")[0]), (MMA,))
    return tuple(Path(name, r, c, k, warps, machine.path_share(name), how) for name, r, c, k, warps, how in found)


def up(value: Any, unit: int) -> Any:
    """The next multiple of `unit`, for numbers and arrays."""
    return np.ceil(value / unit) * unit


def granular(path: Path, m: Any, n: Any, k: Any, operand_bytes: int) -> Any:
    """Multiply-adds that instructions of the path execute for a tile of m × n with sums of k elements, over those asked for."""
    depth = max(1, path.k_bytes // operand_bytes)
    one = up(m, path.rows) * up(n, path.columns)
    other = up(n, path.rows) * up(m, path.columns)
    return np.minimum(one, other) / (m * n) * (up(k, depth) / k)


def usable(path: Path, m: Any, n: Any, warps: Any) -> Any:
    """Is the tile at least one granule, and are there the warps that issue it? warps 0: unknown, taken as enough."""
    return (np.maximum(m, n) >= path.rows) & ((warps == 0) | (warps >= path.warps))


def operand_values(path: Path, m: Any, n: Any, warps: Any) -> Any:
    """Operand values read from shared memory per step of k for an m × n tile.

    Fragments: the warps stand as square as the tile allows, each reads its rows and columns once: 2·sqrt(m·n·warps), between
    m + n (one warp) and what warps of one granule read. Shared: the columns are read once for every granule of rows.
    """
    if path.operands == "shared":
        long, short = np.maximum(m, n), np.minimum(m, n)
        return long + short * np.ceil(long / max(path.rows, 1)) if path.rows > 1 else m + n
    w = np.minimum(np.maximum(warps, 1), np.maximum(1.0, np.ceil(m / path.rows) * np.ceil(n / path.columns)))
    return np.maximum(m + n, 2 * np.sqrt(m * n * w))


def vector_values(m: Any, n: Any, warps: Any) -> Any:
    """The same for multiply-adds on the vector unit: warps as square as possible, a value read once per warp."""
    w = np.minimum(np.maximum(warps, 1), np.maximum(1.0, m * n / 32))
    return np.maximum(m + n, 2 * np.sqrt(m * n * w))
