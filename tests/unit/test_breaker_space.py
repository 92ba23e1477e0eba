"""Broken tuning spaces: once a foreign traceback, a figure out of a negative time, or a knob silently cut to a whole number."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path

import pytest

from benchmarks.model.__main__ import main
from benchmarks.model.rank import read
from benchmarks.model.section import DATA


@pytest.fixture(scope="module")
def lines() -> list[dict[str, str]]:
    with gzip.open(DATA / "gemm_space_rtx3090.csv.gz", "rt") as file:
        return [row for row, _ in zip(csv.DictReader(file), range(20), strict=False)]


def text(rows: list[dict[str, str]]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("time_ms", "-1", "row 4: time_ms=-1 is no time"),
        ("time_ms", "0", "row 4: time_ms=0 is no time"),
        ("time_ms", "abc", "row 4: time_ms='abc' is no number"),
        ("MWG", "inf", "row 4: MWG='inf' is no number"),
        ("MWG", "16.5", "row 4: MWG='16.5' is no whole number"),
        ("MWG", "1" + "0" * 30, "row 4: MWG=.* is no whole number up to"),
        ("MWG", "-16", "row 4 has MWG=-16: a knob is at least 1"),
    ],
)
def test_an_entry_that_is_none(lines, tmp_path: Path, column, value, words):
    file = tmp_path / "space.csv"
    file.write_text(text([*lines[:3], {**lines[3], column: value}, *lines[4:]]))
    with pytest.raises(ValueError, match=words):
        read(file)


@pytest.mark.parametrize("time", ["NaN", "Infinity", "-inf", ""])
def test_a_time_that_is_not_finite_counts_as_no_time(lines, tmp_path: Path, time):
    file = tmp_path / "space.csv"
    file.write_text(text([*lines[:3], {**lines[3], "time_ms": time}, *lines[4:]]))
    assert read(file).count == len(lines) - 1


def damaged(whole: str) -> dict[str, bytes]:
    packed = gzip.compress(whole.encode())
    return {
        "short.csv": (whole + "1,2\n").encode(),
        "field.csv": (whole + '"' + "a" * 200_000).encode(),
        "text.csv": b"\xff\xfe" + whole.encode(),
        "cut.csv.gz": packed[: len(packed) // 2],
        "bad.csv.gz": packed[:20] + b"\xff" * 40 + packed[60:],
    }


@pytest.mark.parametrize("name", damaged(""))
def test_a_damaged_file_is_a_mistake_of_the_input(lines, tmp_path: Path, name, capsys):
    file = tmp_path / name
    file.write_bytes(damaged(text(lines))[name])
    assert main(["--space", str(file), "--target", "rtx-3090"]) == 2
    assert name in capsys.readouterr().err
