"""`python -m benchmarks.model.report`: the cost model against what others measured, as docs/model.md and docs/model.json.

`--only NAME` prints the section in that file of benchmarks/model and writes nothing. The plots need the extra `plot`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.model import bounds, caches, cublas, feasibility, ladder, ranges, rate, spaces
from benchmarks.model.section import Plot, Section, merged

# In the order of the page. A key of docs/model.json belongs to one section.
SECTIONS: tuple[Callable[[], Section], ...] = (
    spaces.section,
    cublas.section,
    ranges.section,
    feasibility.section,
    ladder.section,
    caches.section,
    bounds.section,
    rate.section,
)

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
HEAD = """# The cost model against measurements

Written by `make model-report`; the same figures are in `model.json`. Nothing here was measured for this page except the last
section: the measurements were published by others (sources and licences: `benchmarks/data/README.md`). What the model assumes
is in [cost.md](cost.md). `python -m benchmarks.model --space FILE.csv --target NAME` ranks another file of the same columns.
"""


def page(sections: Sequence[Section]) -> str:
    """The Markdown of the page."""
    parts = [HEAD]
    for s in sections:
        pictures = [f"![{p.caption}](model/{p.name}.svg)\n\n*{p.caption}*\n" for p in s.plots]
        parts += [f"## {s.title}\n", s.text.strip() + "\n", *pictures]
    return "\n".join(parts)


def draw(plot: Plot, folder: Path) -> None:
    """One SVG, the same bytes for the same numbers."""
    with mpl.rc_context({"svg.hashsalt": plot.name, "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(plot.width, plot.height), layout="constrained")
        plot.draw(figure.add_subplot())
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"{plot.name}.svg", metadata={"Date": None, "Creator": None})


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.model.report", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="print one section (its file in benchmarks/model), write nothing")
    options = parser.parse_args(argv)
    sections: list[Section] = []
    for make in SECTIONS:
        name = make.__module__.rpartition(".")[2]
        if options.only in (None, name):
            print(f"{name} …", file=sys.stderr)
            sections.append(make())
    if not sections:
        names = ", ".join(m.__module__.rpartition(".")[2] for m in SECTIONS)
        parser.error(f"no section {options.only!r}; sections: {names}")
    figures = json.dumps(merged(sections), indent=1) + "\n"
    if options.only is not None:
        print(page(sections), figures, sep="\n")
        return 0
    (DOCS / "model.md").write_text(page(sections))
    (DOCS / "model.json").write_text(figures)
    for s in sections:
        for plot in s.plots:
            draw(plot, DOCS / "model")
    return 0


if __name__ == "__main__":
    sys.exit(main())
