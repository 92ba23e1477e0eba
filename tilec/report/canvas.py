"""Where pictures are drawn: the one place that knows matplotlib (extra `plot`), which is loaded when the first picture is made.

Text in an SVG stays text, and the same numbers give the same bytes.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tilec.errors import MeasureError

Draw: TypeAlias = Callable[[Any], None]  # gets matplotlib's axes

INK, SOFT, GRID = "#222222", "#8a8a8a", "#e3e3e3"
SERIES = ("#3465a4", "#c17d11", "#4e9a06", "#a40000", "#75507b", "#06989a")
FORMATS = ("svg", "png", "pdf")
STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "tilec",
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": SOFT,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "figure.facecolor": "white",
}


@dataclass(frozen=True)
class Panel:
    """One pair of axes: its title, its height in inches, what draws it."""

    title: str
    height: float
    draw: Draw


@dataclass(frozen=True)
class Picture:
    """Panels below each other. `figure()` is matplotlib's; `save("out.svg")` writes a file, as .svg, .png or .pdf."""

    panels: tuple[Panel, ...]
    width: float = 6.8

    def figure(self) -> Any:
        """A new matplotlib Figure. MeasureError where matplotlib is not installed."""
        mpl, module = _matplotlib()
        heights = [p.height for p in self.panels]
        with mpl.rc_context(STYLE):
            figure = module.Figure(figsize=(self.width, sum(heights) + 0.35 * len(heights)), layout="constrained")
            axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)
            for panel, row in zip(self.panels, axes, strict=True):
                row[0].set_title(panel.title)
                panel.draw(row[0])
        return figure

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture; the ending says how. MeasureError for another ending, or a file that can't be written."""
        target = Path(path)
        kind = target.suffix.lower().removeprefix(".")
        if kind not in FORMATS:
            raise MeasureError(f"plot: {str(target)!r} must end in {', '.join('.' + f for f in FORMATS)}")
        mpl, _ = _matplotlib()
        metadata = {"svg": {"Date": None, "Creator": "tilec"}, "pdf": {"CreationDate": None, "Creator": "tilec"}}.get(kind)
        figure = self.figure()
        try:
            with mpl.rc_context(STYLE):
                figure.savefig(target, metadata=metadata, dpi=150)
        except OSError as e:
            raise MeasureError(f"plot: {str(target)!r} can't be written: {e.strerror}") from None
        return target


def below(pictures: Sequence[Picture]) -> Picture:
    """Several pictures as one."""
    return Picture(tuple(p for picture in pictures for p in picture.panels))


def _matplotlib() -> tuple[Any, Any]:
    try:
        return importlib.import_module("matplotlib"), importlib.import_module("matplotlib.figure")
    except ImportError:
        raise MeasureError('plot: pictures need matplotlib.\n  Install it with the extra: pip install "tilec[plot]"') from None
