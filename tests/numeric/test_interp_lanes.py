"""Lanes change no bit: random trees run one iteration at a time and all at once; and the rule refuses what it must."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.numeric.random_trees import random_program
from tilec.ir import interp
from tilec.ir.affine import Aff, Div
from tilec.ir.lanes import Touch, independent
from tilec.ir.program import Program

SEEDS = range(100)


@cache
def plain(seed: int) -> tuple[Program, dict[str, np.ndarray], dict[str, np.ndarray]]:
    program, arrays = random_program(seed)
    return program, arrays, interp.run(program, arrays, vectorize=False)


def equal(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    """Bit for bit, except that a NaN equals a NaN."""

    def same(x: np.ndarray, y: np.ndarray) -> bool:
        number = f"u{x.dtype.itemsize}"
        nan = np.isnan(x.astype(np.float64)) & np.isnan(y.astype(np.float64))
        return bool(((x.view(number) == y.view(number)) | nan).all())

    return a.keys() == b.keys() and all(same(a[n], b[n]) for n in a)


def disagreements(seeds: range) -> list[int]:
    out = []
    for seed in seeds:
        program, arrays, expected = plain(seed)
        try:
            if not equal(expected, interp.run(program, arrays)):
                out.append(seed)
        except ValueError:  # NumPy cannot store two lanes in one cell
            out.append(seed)
    return out


def test_random_trees() -> None:
    assert disagreements(SEEDS) == []


def test_random_trees_in_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interp, "LANES", 5)
    monkeypatch.setattr(interp, "CELLS", 7)
    assert disagreements(SEEDS) == []


def test_random_trees_notice_a_rule_that_accepts_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interp, "independent", lambda *_: True)
    assert len(disagreements(SEEDS)) > 10


def test_random_trees_notice_a_rule_without_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutation closer to the truth: constants and inner loops are ignored."""

    def blind(var: str, outer: frozenset[str], touches: list[Touch], fresh: frozenset[str]) -> bool:
        def strip(e: Aff) -> Aff:
            kept = [(a, c) for a, c in e.terms if (a.num.names if isinstance(a, Div) else {a}) <= outer | {var}]
            return Aff(0, tuple(kept))

        seen = [Touch(t.buffer, tuple(strip(e) for e in t.index), t.write, t.ranges) for t in touches]
        return independent(var, outer, seen, fresh)

    monkeypatch.setattr(interp, "independent", blind)
    assert disagreements(SEEDS)


def test_random_trees_run_in_lanes_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def watched(*args: object) -> bool:
        seen.append(independent(*args))  # type: ignore[arg-type]
        return seen[-1]

    monkeypatch.setattr(interp, "independent", watched)
    disagreements(SEEDS)
    assert 0.25 < sum(seen) / len(seen) < 0.95


@pytest.mark.parametrize(
    ("index", "ranges", "expected"),
    [
        ([["v"], ["v"]], {}, True),
        ([["v"], [("v", 1)]], {}, False),  # reads the neighbour's cell
        ([["c"], ["c"]], {"c": (0, 3)}, False),
        ([[("32v", "c")], [("32v", "c")]], {"c": (0, 31)}, True),
        ([[("32v", "c")], [("32v", "c")]], {"c": (0, 32)}, False),
        ([[("32v", "c", 1)], [("32v", "c")]], {"c": (0, 31)}, False),
        ([[("v", "o")], [("v", "o")]], {}, True),
        ([[("v", "o")], ["v"]], {}, False),  # another slice at another o
        ([["v//4", "v%4"], ["v//4", "v%4"]], {}, True),
        ([["v//4", "v%2"], ["v//4", "v%2"]], {}, False),
        ([["v%4"], ["v%4"]], {}, False),
    ],
)
def test_rule(index: list[list[object]], ranges: dict[str, tuple[int, int]], expected: bool) -> None:
    v = Aff.of("v")
    atoms = {"v": v, "c": Aff.of("c"), "o": Aff.of("o"), "32v": v * 32, "v//4": v // 4, "v%4": v % 4, "v%2": v % 2, 1: Aff(1)}

    def aff(text: object) -> Aff:
        parts = text if isinstance(text, tuple) else (text,)
        return sum((atoms[p] for p in parts), Aff(0))

    known = {"v": (0, 100), "o": (0, 100), **ranges}
    touches = [Touch("a", tuple(aff(e) for e in es), n == 0, known) for n, es in enumerate(index)]
    assert independent("v", frozenset({"o"}), touches, frozenset()) is expected
    assert independent("v", frozenset({"o"}), touches, frozenset({"a"})) is True, "a buffer of its own per iteration"
