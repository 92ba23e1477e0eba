"""README and docs/ say what the program does: every code block runs, every shown output is the real one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.pages import ROOT, blocks, primitives_page, run
from tilec.runtime import compiler

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RUNNABLE = [p for p in PAGES if p.exists() and any(b.kind in ("python", "console") for b in blocks(p.read_text()))]


@pytest.mark.parametrize("page", RUNNABLE, ids=[p.stem for p in RUNNABLE])
def test_the_page_is_true(page: Path) -> None:
    if 'build("c")' in page.read_text() and not any(shutil.which(n) for n in compiler.NAMES):
        pytest.skip("no C compiler")
    for outcome in run(page):
        shown = "\n".join(outcome.expected)
        printed = "\n".join(outcome.actual)
        assert printed == shown, f"{page.name}:{outcome.line}: run `make docs` and look at the difference"


def test_the_pages_are_there() -> None:
    assert {p.stem for p in RUNNABLE} >= {"README", "tutorial", "proof", "cost", "cli", "numerics"}


def test_primitives_page_is_generated() -> None:
    assert (ROOT / "docs" / "primitives.md").read_text() == primitives_page()


def test_a_wrong_page_is_caught(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    (outcome,) = run(page)
    assert (outcome.expected, outcome.actual) == (["3"], ["2"])
    page.write_text("```python\nprint('unseen')\n```\n")
    (outcome,) = run(page)
    assert (outcome.expected, outcome.actual) == ([], ["unseen"])
