"""Bank rounds and sectors, against a count done bank by bank and byte by byte."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from tilec.cost.banks import SharedTile, bank_rounds, global_sectors
from tilec.errors import ResourceError


def turns(addresses: list[int], width: int) -> int:
    """Serve the lanes' bytes round by round: each round every bank gives one word to all the lanes of the phase that want it."""
    total = 0
    phase = min(32, 128 // width)
    for start in range(0, len(addresses), phase):
        wanted = {byte // 4 for a in addresses[start : start + phase] for byte in range(a, a + width)}
        while wanted:
            served = {word % 32: word for word in sorted(wanted)}
            wanted -= set(served.values())
            total += 1
    return total


def test_rounds_equal_serving_bank_by_bank():
    rng = random.Random(7)
    for _ in range(300):
        width = rng.choice((1, 2, 4, 8, 16))
        lanes = [rng.randrange(0, 4096 // width) * width for _ in range(rng.randrange(0, 33))]
        assert bank_rounds(lanes, width) == turns(lanes, width)


@pytest.mark.parametrize("pitch", range(32, 66))
def test_a_column_of_any_pitch(pitch: int):
    """32 lanes down a column of words: as many rounds as the pitch has factors of two in common with the banks."""
    tile = SharedTile(32, 32, padding=pitch - 32)
    expected = next(f for f in (32, 16, 8, 4, 2, 1) if pitch % f == 0)
    assert {bank_rounds(tile.address(r, c) for r in range(32)) for c in range(32)} == {expected}
    assert {bank_rounds(tile.address(r, c) for c in range(32)) for r in range(32)} == {1}


def test_xor_swizzle_is_a_permutation_without_conflicts():
    tile = SharedTile(32, 32, swizzle=32)
    assert {tile.address(r, c) for r in range(32) for c in range(32)} == set(range(0, tile.bytes, 4))
    for n in range(32):
        assert bank_rounds(tile.address(r, n) for r in range(32)) == 1
        assert bank_rounds(tile.address(n, c) for c in range(32)) == 1
    # 16-byte groups of a bf16 tile of 64 columns, read eight rows at a time as ldmatrix does: 8 rounds plain, 1 swizzled
    plain, swizzled = SharedTile(8, 64, 2), SharedTile(8, 64, 2, swizzle=8, vector=8)
    assert bank_rounds((plain.address(r, 0) for r in range(8)), 16) == 8
    assert bank_rounds((swizzled.address(r, 0) for r in range(8)), 16) == 1


def test_broadcast_and_wide_lanes():
    assert bank_rounds([64] * 32) == 1 and bank_rounds([]) == 0
    assert bank_rounds(range(32), 1) == 1  # bytes of eight words
    assert [bank_rounds(range(0, 32 * w, w), w) for w in (2, 4, 8, 16)] == [1, 1, 2, 4]


def test_sectors_equal_counting_bytes():
    rng = random.Random(8)
    for _ in range(300):
        width = rng.choice((1, 2, 4, 8, 16))
        lanes = [rng.randrange(0, 2048 // width) * width for _ in range(rng.randrange(0, 33))]
        touched = {byte for a in lanes for byte in range(a, a + width)}
        found = global_sectors(lanes, width)
        assert (found.sectors, found.lines) == (len({b // 32 for b in touched}), len({b // 128 for b in touched}))
        assert found.asked == len(touched) and found.moved >= found.asked


def test_coalescing():
    assert global_sectors(range(0, 128, 4)).efficiency == 1
    strided = global_sectors(range(0, 32 * 4096, 4096))
    assert (strided.sectors, strided.lines, strided.efficiency) == (32, 32, Fraction(1, 8))
    shifted = global_sectors(range(4, 132, 4))
    assert (shifted.sectors, shifted.lines, shifted.efficiency) == (5, 2, Fraction(4, 5))


def test_bad_input():
    for call in (
        lambda: bank_rounds([2]),
        lambda: bank_rounds([-4]),
        lambda: bank_rounds([0.0]),  # type: ignore[list-item]
        lambda: bank_rounds([0], 3),
        lambda: bank_rounds([0] * 33),
        lambda: global_sectors([True]),
        lambda: SharedTile(0, 32),
        lambda: SharedTile(32, 32, padding=-1),
        lambda: SharedTile(32, 32, swizzle=3),
        lambda: SharedTile(32, 24, swizzle=16),
        lambda: SharedTile(32, 32).address(0, 32),
    ):
        with pytest.raises(ResourceError):
            call()
