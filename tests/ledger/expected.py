"""Reading the ledger: `name=value; name=value` into values, and what "equal within its tolerance" means."""

from __future__ import annotations

import csv
import re
from ast import literal_eval
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

LEDGER = Path(__file__).parent / "ledger.tsv"
RELATIVE = 1e-6
_FRACTION = re.compile(r"^-?\d+/\d+$")
_INSIDE = re.compile(r"Fraction\((-?\d+), (\d+)\)")


@dataclass(frozen=True)
class Row:
    id: str
    area: str
    inputs: str
    expected: Mapping[str, Any]
    tolerance: str
    status: str


def rows() -> list[Row]:
    with open(LEDGER, encoding="utf-8") as f:
        lines = (line for line in f if not line.startswith("#"))
        table = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [Row(r["id"], r["area"], r["inputs"], parse(r["exact_recomputed"]), r["tolerance"], r["status"]) for r in table]


def parse(text: str) -> dict[str, Any]:
    """`a=1; b=1/4=0.25; verdict=illegal; more words` as {"a": 1, "b": Fraction(1, 4), "verdict": "illegal; more words"}.

    The value stands after the last `=`; names may hold `=` themselves. A piece without `=` goes on with the piece before.
    """
    pieces: list[str] = []
    for piece in text.split("; "):
        if "=" in piece:
            pieces.append(piece)
        else:
            pieces[-1] += "; " + piece
    out: dict[str, Any] = {}
    for piece in pieces:
        name, value = piece.rsplit("=", 1)
        before, _, fraction = name.rpartition("=")
        if _FRACTION.match(fraction):
            name, value = before, fraction
        assert name and name not in out, text
        out[name] = _value(value)
    return out


def _value(text: str) -> Any:
    if _FRACTION.match(text):
        return Fraction(text)
    try:
        return _fractions(literal_eval(_INSIDE.sub(r"('Fraction', \1, \2)", text)))
    except (ValueError, SyntaxError):
        return text


def _fractions(value: Any) -> Any:
    match value:
        case ("Fraction", int(n), int(d)):
            return Fraction(n, d)
        case tuple():
            return tuple(map(_fractions, value))
        case _:
            return value


def agrees(expected: Any, got: Any, tolerance: str) -> bool:
    """Is `got` the expected value? Integers, fractions, texts and truth values exactly, floats to 1e-6 relative.

    tolerance: the row's own words; "≤1e-12 abs" asks for an absolute difference of floats instead. A text in parentheses after a
    verdict says why, and isn't compared.
    """
    match expected:
        case bool() | str():
            return type(got) is type(expected) and got == (
                expected.split(" (")[0] if "verdict" in tolerance and isinstance(expected, str) else expected
            )
        case tuple() | list():
            return (
                type(got) is type(expected)
                and len(got) == len(expected)
                and all(agrees(a, b, tolerance) for a, b in zip(expected, got, strict=True))
            )
        case float():
            if tolerance == "≤1e-12 abs":
                return abs(got - expected) <= 1e-12
            assert "floats rel 1e-6" in tolerance, tolerance
            return abs(got - expected) <= RELATIVE * abs(expected)
        case _:
            return not isinstance(got, bool) and got == expected
