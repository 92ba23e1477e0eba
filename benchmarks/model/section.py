"""What one question of the report hands over: text for the page, figures for the JSON file, plots.

A file of this folder has one function `section() -> Section`; `report.SECTIONS` lists them in the order of the page.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent.parent / "data"


@dataclass(frozen=True)
class Plot:
    """A picture next to the page. `draw` gets matplotlib's axes and draws on them; the report makes the figure and saves it."""

    name: str  # the file's name without ending, unique in the report
    caption: str
    draw: Callable[[Any], None]
    width: float = 7.0  # inches
    height: float = 4.0


@dataclass(frozen=True)
class Section:
    """key: where `figures` go in docs/model.json (plain numbers, strings, lists and dicts). text: Markdown without a heading,
    its tables made by `markdown`. plots are shown after the text."""

    key: str
    title: str
    text: str
    figures: Any
    plots: tuple[Plot, ...] = ()


def rows(name: str | Path) -> list[dict[str, str]]:
    """The rows of a CSV file (plain or .gz): a path, or a name in benchmarks/data."""
    path = name if isinstance(name, Path) else DATA / name
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as file:
        return list(csv.DictReader(file))


def markdown(columns: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; numbers as they are, floats with three significant digits."""
    cells = [[f"{v:.3g}" if isinstance(v, float) else f"{v:,}" if isinstance(v, int) else str(v) for v in row] for row in lines]
    table = [list(columns), ["---"] * len(columns), *cells]
    return "\n".join("| " + " | ".join(row) + " |" for row in table)


def merged(sections: Sequence[Section]) -> Mapping[str, Any]:
    """The figures of all sections under their keys; two sections must not claim one key."""
    out: dict[str, Any] = {}
    for s in sections:
        if s.key in out:
            raise ValueError(f"two sections of the model report have the key {s.key!r}")
        out[s.key] = s.figures
    return out
