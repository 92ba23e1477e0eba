"""Every row of the reference ledger, computed through tilec."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from tests.ledger import (
    compute_calls,
    compute_chains,
    compute_formats,
    compute_layers,
    compute_legality,
    compute_levels,
    compute_memory,
    compute_occupancy,
    compute_quantize,
    compute_rooflines,
    compute_rules,
    compute_tiles,
)
from tests.ledger.expected import Row, agrees, parse, rows

PARTS = (
    *(compute_tiles, compute_memory, compute_occupancy, compute_chains, compute_quantize, compute_legality, compute_formats),
    *(compute_calls, compute_levels, compute_rooflines, compute_layers, compute_rules),
)
COMPUTATIONS = {id_: compute for part in PARTS for id_, compute in part.ROWS.items()}
ROWS = rows()


@pytest.mark.parametrize("row", ROWS, ids=[r.id for r in ROWS])
def test_row(row: Row) -> None:
    got = COMPUTATIONS[row.id]()
    assert got.keys() == row.expected.keys()
    for name, expected in row.expected.items():
        assert agrees(expected, got[name], row.tolerance), f"{name}: got {got[name]!r}, expected {expected!r} ({row.inputs})"


def test_rows_and_computations_are_the_same_set() -> None:
    assert len({r.id for r in ROWS}) == len(ROWS)
    assert sum(len(part.ROWS) for part in PARTS) == len(COMPUTATIONS)
    assert {r.id for r in ROWS} == COMPUTATIONS.keys()


def test_expected_values_are_read_as_written() -> None:
    assert parse("occ=1/4=0.25; KiB=8; k=32 KiB=80") == {"occ": Fraction(1, 4), "KiB": 8, "k=32 KiB": 80}
    assert parse("<1e-3=True; x=(2, ['smem'], Fraction(1, 8))") == {"<1e-3": True, "x": (2, ["smem"], Fraction(1, 8))}
    assert parse("bits=0011; verdict=legal only here; never there") == {"bits": "0011", "verdict": "legal only here; never there"}


def test_what_counts_as_equal() -> None:
    usual = "recomputed value: integers/fractions exact, floats rel 1e-6"
    assert agrees(3096, 3096.0, usual) and not agrees(3096, 3096.001, usual)
    assert agrees(0.5, 0.5000004, usual) and not agrees(0.5, 0.500001, usual)
    assert agrees(Fraction(1, 4), 0.25, usual) and not agrees(Fraction(224, 5), 44.8, usual)
    assert not agrees(True, 1, usual) and not agrees(1, True, usual)
    assert agrees((1, ["a"]), (1, ["a"]), usual) and not agrees((1, ["a"]), (1, ["a", "b"]), usual)
    assert agrees("illegal (why)", "illegal", "verdict must match") and not agrees("illegal", "legal", "verdict must match")
    assert agrees(1e-14, 9e-13, "≤1e-12 abs") and not agrees(1e-14, 2e-12, "≤1e-12 abs")


def test_the_page_says_where_the_source_is_wrong() -> None:
    """docs/ledger.md has a line for each such row, with the figures that tilec computes."""
    page = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    lines = {line.split(" | ")[0].removeprefix("| "): line for line in page.splitlines() if line.startswith("| ")}
    wrong = [r for r in ROWS if r.status.startswith("MISMATCH")]
    assert len(wrong) == 4
    for row in wrong:
        for value in row.expected.values():
            if isinstance(value, float | int) and not isinstance(value, bool) and value != 2147483648:
                assert str(value) in lines[row.id], f"{row.id}: {value}"
