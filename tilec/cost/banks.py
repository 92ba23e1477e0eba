"""How a warp's access splits: rounds over the banks of shared memory, and sectors and lines of global memory.

Shared memory (CUDA C++ Programming Guide, shared memory of compute capability 5.0 and later): 32 banks, successive 4-byte words
in successive banks. Lanes that want different words of one bank take turns; lanes that want the same word are served together.
Lanes of 8 or 16 bytes go in halves or quarters of the warp, 128 bytes at a time. Global memory moves in 32-byte sectors, four
to a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice

from tilec.cost.calls import whole
from tilec.errors import ResourceError

BANKS, WORD, SECTOR, LINE = 32, 4, 32, 128
WIDTHS = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class SharedTile:
    """A `rows` × `columns` tile of `element_bytes` each in shared memory, its rows `columns + padding` elements apart.

    swizzle: 0 for none; else a power of two: the column is XORed with (row mod swizzle) · vector, which permutes the groups of
    `vector` elements within each run of `swizzle` groups and costs no bytes. ResourceError where the XOR would leave the row.
    """

    rows: int
    columns: int
    element_bytes: int = 4
    padding: int = 0
    swizzle: int = 0
    vector: int = 1

    def __post_init__(self) -> None:
        for what in ("rows", "columns", "element_bytes", "vector"):
            whole("SharedTile", what, getattr(self, what), 1)
        for what in ("padding", "swizzle"):
            whole("SharedTile", what, getattr(self, what), 0)
        if self.swizzle & (self.swizzle - 1) or (self.swizzle and self.vector & (self.vector - 1)):
            raise ResourceError(f"SharedTile: swizzle and vector must be powers of two, got {self.swizzle} and {self.vector}")
        if self.swizzle and self.columns % (self.swizzle * self.vector):
            raise ResourceError(
                f"SharedTile: an XOR of {self.swizzle} groups of {self.vector} would leave a row of {self.columns} columns.\n"
                "  The columns must be a multiple of swizzle · vector."
            )

    @property
    def pitch(self) -> int:
        """Elements from one row to the next."""
        return self.columns + self.padding

    @property
    def bytes(self) -> int:
        """Allocated, the padding included."""
        return self.rows * self.pitch * self.element_bytes

    def address(self, row: int, column: int) -> int:
        """Byte offset of an element."""
        if not (0 <= row < self.rows and 0 <= column < self.columns):
            raise ResourceError(f"SharedTile: ({row}, {column}) is not within {self.rows} × {self.columns}")
        if self.swizzle:
            column ^= row % self.swizzle * self.vector
        return (row * self.pitch + column) * self.element_bytes


def bank_rounds(addresses: Iterable[int], bytes_per_lane: int = 4) -> int:
    """Rounds that shared memory needs for one warp access; 0 without active lanes.

    addresses: byte address per active lane in lane order. Per phase of 128 ÷ bytes_per_lane lanes (at most 32):
    the largest number of distinct words in one bank; the phases follow each other.
    """
    lanes = _lanes("bank_rounds", addresses, bytes_per_lane)
    phase = min(BANKS, BANKS * WORD // bytes_per_lane)
    return sum(_rounds(lanes[i : i + phase], bytes_per_lane) for i in range(0, len(lanes), phase))


def _rounds(lanes: Sequence[int], width: int) -> int:
    words = {word for a in lanes for word in range(a // WORD, (a + width - 1) // WORD + 1)}
    per_bank = [0] * BANKS
    for word in words:
        per_bank[word % BANKS] += 1
    return max(per_bank)


@dataclass(frozen=True)
class Sectors:
    """What one warp access of global memory touches: 32-byte sectors, 128-byte lines, and the distinct bytes asked for."""

    sectors: int
    lines: int
    asked: int

    @property
    def moved(self) -> int:
        """Bytes of the sectors."""
        return self.sectors * SECTOR

    @property
    def efficiency(self) -> Fraction:
        """Bytes asked for ÷ bytes moved; 1 for an access that touches nothing."""
        return Fraction(self.asked, self.moved) if self.sectors else Fraction(1)


def global_sectors(addresses: Iterable[int], bytes_per_lane: int = 4) -> Sectors:
    """Sectors and lines under one warp access. addresses: byte address per active lane, a multiple of bytes_per_lane."""
    lanes = _lanes("global_sectors", addresses, bytes_per_lane)
    distinct = set(lanes)  # aligned accesses of one width coincide or are disjoint
    return Sectors(len({a // SECTOR for a in distinct}), len({a // LINE for a in distinct}), len(distinct) * bytes_per_lane)


def _lanes(where: str, addresses: Iterable[int], width: int) -> list[int]:
    if width not in WIDTHS:
        raise ResourceError(f"{where}: a lane moves {', '.join(map(str, WIDTHS))} bytes, got {width!r}")
    if not isinstance(addresses, Iterable) or isinstance(addresses, str | bytes):
        raise ResourceError(f"{where}: addresses are one number per lane, got {addresses!r}")
    lanes = list(islice(addresses, BANKS + 1))
    if len(lanes) > BANKS:
        raise ResourceError(f"{where}: a warp has {BANKS} lanes, got more addresses")
    for a in lanes:
        whole(where, "an address", a, 0)
        if a % width:
            raise ResourceError(f"{where}: address {a} is not a multiple of the {width} bytes that a lane moves")
    return lanes
