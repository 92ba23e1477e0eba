"""`tilec tune --measure` and `tilec target host --measure`: answers, keys, mistakes, and what Ctrl-C leaves."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tilec import cli, cli_commands
from tilec.report.progress import Bar
from tilec.runtime import compiler
from tilec.targets.load import unmeasured

ROOT = Path(__file__).resolve().parents[2]
TUNE = ["tune", "act_chain", "M=16", "N=64", "--target", "host"]
FAST = ["--measure", "--backend", "numpy", "--candidates", "2", "--repeats", "2", "--limit", "10"]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_measured_tuning_and_its_keys(capsys: pytest.CaptureFixture[str], cache: Path):
    assert cli.main([*TUNE, *FAST, "--json", "--top", "2"]) == 0
    data = json.loads(capsys.readouterr().out)
    m = data["measurement"]
    assert set(m) == {"measured", "known", "tried", "ties", "regret", "seconds", "environment", "unwritten", "interrupted"}
    assert set(m["regret"]) == {"candidates", "correlation", "top1", "top8", "error"}
    assert m["measured"] >= 1 and m["known"] == 0 and m["unwritten"] is None and m["interrupted"] is False
    assert data["database"] == str(cache / "measured.sqlite") and Path(data["database"]).exists()
    assert {"measured", "spread", "tie"} <= set(data["table"][0]) and data["best"]["measured"] > 0
    assert cli.main([*TUNE, *FAST, "--top", "2"]) == 0  # it is known now
    assert "known from the database" in capsys.readouterr().out


def test_a_tuning_without_measuring_has_no_measurement(capsys: pytest.CaptureFixture[str]):
    assert cli.main([*TUNE, "--json", "--top", "1"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["measurement"] is None and data["database"] is None


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        (["--candidates", "3"], 2, "ScheduleError: tune: --candidates is for --measure"),
        (["--no-verify"], 2, "ScheduleError: tune: --no-verify is for --measure"),
        (["--measure", "--backend", "fortran"], 2, "MeasureError: no backend 'fortran' to measure with"),
        (["--measure", "--compiler", "nocc"], 2, "MeasureError: no C compiler 'nocc'"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], words: list[str], status: int, says: str):
    assert cli.main([*TUNE, *words]) == status
    assert says in capsys.readouterr().err


def test_only_this_computer_is_measured(capsys: pytest.CaptureFixture[str]):
    assert cli.main(["tune", "act_chain", "M=16", "N=64", "--target", "h200", "--measure"]) == 2
    assert "this computer is the target 'host', not h200" in capsys.readouterr().err
    assert cli.main(["target", "h200", "--measure"]) == 2
    assert "only this computer can be measured" in capsys.readouterr().err
    assert cli.main(["target", "host", "--compiler", "gcc"]) == 2
    with pytest.raises(SystemExit):
        cli.main([*TUNE, "--measure", "--seconds", "0"])


def test_a_database_that_is_none(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    bad = tmp_path / "bad"
    bad.write_text("no database, but long enough to be read as one" * 100)
    assert cli.main([*TUNE, *FAST, "--database", str(bad)]) == 2
    assert "remove the file if it is no tilec database" in capsys.readouterr().err
    assert cli.main([*TUNE, *FAST, "--database", str(bad / "below" / "x")]) == 2
    assert "Name a file with --database" in capsys.readouterr().err


@pytest.mark.skipif(not any(map(shutil.which, compiler.NAMES)), reason="no C compiler")
def test_the_target_is_measured(capsys: pytest.CaptureFixture[str], cache: Path, monkeypatch: pytest.MonkeyPatch):
    real = cli_commands.measure_host
    monkeypatch.setattr(cli_commands, "measure_host", lambda c, say: real(c, seconds=0.002, say=say))
    assert cli.main(["target", "host", "--measure", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["measured"] is True and Path(data["kept"]).parent == cache and data["threads"]["1"]["fma_f32"]["value"] > 0
    assert cli.main(["target", "host"]) == 0
    assert "fma_f32 (1 thread)" in capsys.readouterr().out


def test_without_a_compiler(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert cli.main(["target", "host", "--measure"]) == 2
    assert "no C compiler" in capsys.readouterr().err
    assert cli.main(["target", "host", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["measured"] is False and "estimates" in data["note"] and data["figures"]["cores"]["value"] == unmeasured().cores
    assert cli.main([*TUNE, "--measure"]) == 2
    assert "no C compiler" in capsys.readouterr().err


def test_ctrl_c_says_what_is_kept_and_leaves_130(tmp_path: Path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TILEC_TEST_NOTES": str(tmp_path)}
    slow = ["--measure", "--backend", "tests.unit.bad_backends:slow", "--repeats", "100", "--candidates", "3"]
    store = tmp_path / "kept.sqlite"
    words = [sys.executable, "-m", "tilec", *TUNE, *slow, "--database", str(store)]
    process = subprocess.Popen(words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    until = time.monotonic() + 120
    while time.monotonic() < until and len(list(tmp_path.glob("worker-*"))) < 2:
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and out == ""
    assert "interrupted: " in err and f"finished measurements are kept in {store}" in err and "Traceback" not in err


def test_the_bar_shows_on_a_terminal_only():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal, file = Terminal(), io.StringIO()
    for stream in (terminal, file):
        with Bar(stream, title="a kernel") as bar:
            bar("timing", 1, 3)
    assert "a kernel: timing" in terminal.getvalue() and file.getvalue() == ""
    quiet = Terminal()
    with Bar(quiet, quiet=True) as bar:
        bar("timing", 1, 3)
    assert quiet.getvalue() == ""
