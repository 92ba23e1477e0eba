"""`--update-golden` rewrites the expected texts of tests/golden instead of comparing with them."""

from __future__ import annotations

from collections.abc import Callable
from difflib import unified_diff
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the expected texts of tests/golden")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): `text` equals the file `<name>.txt` next to the test."""

    def compare(name: str, text: str) -> None:
        file = Path(request.path).parent / f"{name}.txt"
        got = text.rstrip("\n") + "\n"
        if request.config.getoption("--update-golden"):
            file.write_text(got, encoding="utf-8")
        assert file.exists(), f"no expected text {file.name}: run pytest with --update-golden and read the diff"
        want = file.read_text(encoding="utf-8")
        changes = "".join(unified_diff(want.splitlines(True), got.splitlines(True), file.name, "now"))
        assert got == want, f"if this is meant, run pytest with --update-golden\n{changes}"

    return compare
