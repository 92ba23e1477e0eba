"""Raster orders and what their outputs load, against a list of operand blocks."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tilec.cost.latency import blocks_needed, bytes_in_flight, effective_bandwidth, issue, loads_needed, tiles, warps_needed
from tilec.cost.raster import ORDERS, operand_sharing, raster
from tilec.cost.roofline import ridge
from tilec.errors import ResourceError
from tilec.targets import load


def test_nine_outputs_of_nine_by_nine():
    assert operand_sharing(9, 9, 9, 9, "row").loaded == 90
    assert operand_sharing(9, 9, 9, 9, "column").loaded == 90
    assert operand_sharing(9, 9, 9, 9, "grouped", group=3).loaded == 54


def numbered(pid: int, rows: int, columns: int, group: int) -> tuple[int, int]:
    """The block of program `pid`, by the arithmetic of the Triton tutorial."""
    in_group = group * columns
    top = pid // in_group * group
    size = min(rows - top, group)
    return top + pid % in_group % size, pid % in_group // size


@pytest.mark.parametrize(("rows", "columns", "group"), [(9, 9, 3), (7, 5, 3), (1, 4, 8), (6, 2, 1), (5, 3, 5)])
def test_orders(rows: int, columns: int, group: int):
    every = {(i, j) for i in range(rows) for j in range(columns)}
    for order in ORDERS:
        found = list(raster(rows, columns, order, group))
        assert len(found) == rows * columns and set(found) == every
    assert list(raster(rows, columns, "grouped", group)) == [numbered(pid, rows, columns, group) for pid in range(rows * columns)]
    assert list(raster(rows, columns, "grouped", 1)) == list(raster(rows, columns, "row"))
    assert list(raster(rows, columns, "grouped", rows)) == list(raster(rows, columns, "column"))


def test_loads_equal_a_list_of_blocks():
    for order in ORDERS:
        for first in (0, 4, 33):
            for outputs in (1, 6, 11):
                depth = 4
                running = list(raster(7, 5, order, 2))[first : first + outputs]
                a = {(i, k) for i, _ in running for k in range(depth)}
                b = {(k, j) for _, j in running for k in range(depth)}
                found = operand_sharing(7, 5, depth, outputs, order, 2, first)
                assert found.loaded == len(a) + len(b) and found.outputs == len(running)
                assert found.unshared == 2 * depth * len(running) and found.reuse >= 1


def test_the_ridge_of_a_region():
    """132 co-resident tiles: 12 × 11 pass the H100's ridge, 132 × 1 don't."""
    square, tall = (operand_sharing(r, c, 32, 132).intensity(128, 256) for r, c in ((12, 11), (132, 1)))
    assert square == Fraction(2 * 1536 * 2816, 2 * (1536 + 2816))
    assert tall < ridge("h100-sxm", "bf16") < square


def test_closing_the_gap():
    given = {"loads": 2, "bytes_per_lane": 16, "latency": 1e-6}
    warps, blocks = warps_needed("h100-sxm", **given), blocks_needed("h100-sxm", 8, **given)
    assert blocks == -(-warps // 8)
    full, bandwidth = bytes_in_flight("h100-sxm", warps, **given), load("h100-sxm").bandwidth
    assert full.cover >= 1 > bytes_in_flight("h100-sxm", warps - 1, **given).cover
    assert effective_bandwidth("h100-sxm", warps, **given) == bandwidth
    short = bytes_in_flight("h100-sxm", 16, **given)
    assert effective_bandwidth("h100-sxm", 16, **given) == pytest.approx(bandwidth * short.had_per_sm / short.needed_per_sm)
    n = loads_needed("h100-sxm", 16, 16, 1e-6)
    assert bytes_in_flight("h100-sxm", 16, n, 16, 1e-6).cover >= 1 > bytes_in_flight("h100-sxm", 16, n - 1, 16, 1e-6).cover


def test_issue_equals_cycling_through_the_warps():
    for work, wait in ((20, 500), (3, 7), (4, 0), (5, 5)):
        needed = issue(work, wait).needed
        assert issue(work, wait, needed).utilisation == 1
        for warps in range(1, needed):
            period = range(work + wait)  # each warp starts when the one before has done its work
            busy = sum(any(t in range(w * work, w * work + work) for w in range(warps)) for t in period)
            assert issue(work, wait, warps).utilisation == Fraction(busy, work + wait) < 1


def test_tiles():
    found = tiles((129, 256), (128, 128))
    assert (found.grid, found.count, found.efficiency) == ((2, 2), 4, Fraction(129 * 256, 256 * 256))
    covered = {(i // 128, j // 128) for i in range(129) for j in range(256)}
    assert len(covered) == found.count


def test_bad_input():
    for call in (
        lambda: raster(0, 3),
        lambda: raster(3, 3, "hilbert"),
        lambda: raster(3, 3, "grouped", 0),
        lambda: operand_sharing(9, 9, 0, 9),
        lambda: operand_sharing(9, 9, 9, 0),
        lambda: operand_sharing(9, 9, 9, 9, first=81),
        lambda: operand_sharing(9, 9, 9, 9).intensity(0, 1),
        lambda: blocks_needed("h100-sxm", 0),
        lambda: loads_needed("h100-sxm", 0),
        lambda: issue(0, 5),
        lambda: tiles((3,), (2, 2)),
        lambda: tiles((0,), (2,)),
        lambda: tiles((3,), (1.5,)),  # type: ignore[arg-type]
        lambda: operand_sharing(9, 9, 9, 9, first=-1),
        lambda: issue(2.5, 5),  # type: ignore[arg-type]
    ):
        with pytest.raises(ResourceError):
            call()
