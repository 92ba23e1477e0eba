"""`make docs`: write generated pages, outputs shown on pages, and examples' printed output again. Look at the diff afterwards."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.pages import ROOT, blocks, primitives_page, run
from tests.test_examples import SCRIPTS, output


def page(path: Path) -> None:
    lines = path.read_text().split("\n")
    for outcome in reversed(run(path)):
        new = outcome.actual
        if lines[outcome.first - 1] == "```":  # a python block that shows nothing yet
            new = ["", "```text", *new, "```"]
        lines[outcome.first : outcome.last] = new
    path.write_text("\n".join(lines))


def main(wanted: list[str]) -> None:
    (ROOT / "docs" / "primitives.md").write_text(primitives_page())
    for script in SCRIPTS:
        if not wanted or script.stem in wanted:
            print("examples/" + script.name)
            script.with_suffix(".out").write_text(output(script))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if (not wanted or path.stem in wanted) and any(b.kind in ("python", "console") for b in blocks(path.read_text())):
            print(path.relative_to(ROOT))
            page(path)


if __name__ == "__main__":
    main(sys.argv[1:])
