"""Every script in examples/ runs as a user would run it and prints what its .out file shows."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tilec.runtime import compiler

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = [*sorted((ROOT / "examples").glob("[0-9]*.py")), ROOT / "examples" / "demo.py"]


def output(script: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    done = subprocess.run([sys.executable, str(script)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=[s.stem for s in SCRIPTS])
def test_example(script: Path) -> None:
    if "gcc or clang" in script.read_text() and not any(shutil.which(n) for n in compiler.NAMES):
        pytest.skip("no C compiler")
    assert output(script) == script.with_suffix(".out").read_text()


def test_there_are_enough() -> None:
    assert len(SCRIPTS) >= 8
    for script in SCRIPTS:
        assert script.read_text().startswith('"""'), f"{script.name} does not say what it shows"
