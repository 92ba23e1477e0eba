"""How a measuring tuner ends: by signals, beside compilers that hang or fail, on a full disk. Real processes of `tilec tune`:
finished measurements stay, no process and no temporary folder does."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tilec.runtime import compiler
from tilec.runtime.process import Janitor, kill_group, start, workplace
from tilec.search.database import Database

ROOT = Path(__file__).resolve().parents[2]
TUNE = ["tune", "act_chain", "M=16", "N=64", "--target", "host", "--measure"]
SEVERAL = ["tune", "gemm", "M=16", "N=32", "K=64", "--target", "host", "--measure"]
needs_compiler = pytest.mark.skipif(not any(map(shutil.which, compiler.NAMES)), reason="no C compiler")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Everything that is made, temporarily or not, lies below here; no process that noted itself is left, and no folder."""
    for name in ("temp", "notes", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temp"))
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TILEC_TEST_NOTES", str(tmp_path / "notes"))
    yield tmp_path
    kept = ("tilec-timing-",)
    assert eventually(lambda: [p.name for p in (tmp_path / "temp").iterdir() if not p.name.startswith(kept)] == [])
    assert [p.name for p in tmp_path.rglob("*") if p.name.endswith(".part")] == []
    for pid in noted(tmp_path):
        assert eventually(lambda pid=pid: not alive(pid)), pid


def eventually(holds: Callable[[], bool], seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.02)
    return holds()


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def noted(place: Path, kind: str = "") -> list[int]:
    return [int(p.name.split("-")[1]) for p in (place / "notes").iterdir() if p.name.startswith(kind)]


def begin(*words: str, code: str | None = None) -> subprocess.Popen[str]:
    argv = [sys.executable, *(["-c", code] if code else ["-m", "tilec"]), *words]
    return subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def fake_compiler(place: Path, does: str) -> str:
    """Answers what tilec asks a compiler about itself; compiling notes its processes and does something else."""
    path = place / "fakecc"
    path.write_text(
        "#!/bin/sh\n"
        f'case " $* " in *" -dM "*|*" --version "*) exec "{compiler.find().path}" "$@";; esac\n'
        f'touch "{place}/notes/compiler-$$"\n{does}\n'
    )
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


HANGS = 'sleep 3600 & touch "$TILEC_TEST_NOTES/child-$!"; touch half.s; wait'


@needs_compiler
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_while_compilers_hang(how: signal.Signals, place: Path):
    process = begin(*TUNE, "--compiler", fake_compiler(place, HANGS))
    assert eventually(lambda: bool(noted(place, "child")))
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert out == "" and "Traceback" not in err
    if how == signal.SIGKILL:
        assert process.returncode == -9
    else:
        assert process.returncode == 128 + how
        assert f"interrupted: finished measurements are kept in {place / 'cache' / 'measured.sqlite'}" in err


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_measuring_keeps_what_is_finished(how: signal.Signals, place: Path):
    store = place / "kept.sqlite"
    slow = ["--backend", "tests.unit.bad_backends:slow", "--repeats", "100", "--candidates", "3", "--database", str(store)]
    process = begin(*SEVERAL, *slow)
    assert eventually(lambda: finished(store) >= 2)
    process.send_signal(how)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + how and out == "" and "Traceback" not in err
    assert f"finished measurements are kept in {store}; the same command goes on from there" in err
    kept = finished(store)
    again = begin(*SEVERAL, *slow, "--repeats", "3")
    out, err = again.communicate(timeout=120)
    assert again.returncode == 0, err
    assert f"3 of 3 candidates measured, {kept} of them known from the database" in out


def finished(store: Path) -> int:
    if not store.exists():
        return 0
    try:
        with Database(str(store), wait=0.1) as database:
            assert database.connection is not None
            return database.connection.execute("select count(*) from results where samples >= 3").fetchone()[0]
    except Exception:  # just being made, or written
        return 0


@needs_compiler
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_killing_a_program_that_compiles(how: signal.Signals, place: Path):
    """A person's own, which handles no signals."""
    code = "import sys, tilec; tilec.compile(tilec.workload('act_chain'), compiler=sys.argv[1], M=16, N=64)"
    process = begin(fake_compiler(place, HANGS), code=code)
    assert eventually(lambda: bool(noted(place, "child")))
    process.send_signal(how)
    process.communicate(timeout=60)
    assert process.returncode == -how
    assert list((place / "cache" / "c").iterdir()) == []


@needs_compiler
@pytest.mark.parametrize(
    ("does", "reason", "says", "again"),
    [
        (HANGS, "timed out", "fakecc timed out after 0.5 s, compiling", False),
        ("echo 'x.c:1: error: no such thing' >&2; exit 1", "does not compile", "error: no such thing", False),
        ("echo 'x.c: fatal error: No space left on device' >&2; exit 1", "system", "No space left on device", True),
        ("kill -9 $$", "system", "failed (killed by SIGKILL)", True),
    ],
)
def test_a_compiler_that_hangs_or_fails_is_counted(does: str, reason: str, says: str, again: bool, place: Path):
    words = [*TUNE, "--compiler", fake_compiler(place, does), "--compile-limit", "0.5", "--candidates", "1"]
    for n in range(2):
        process = begin(*words)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0 and "Traceback" not in err, err
        assert f"1 {reason}" in out and says in out and "0 of 1 candidates measured" in out
        tried = len(noted(place, "compiler"))
        assert tried == (2 if again and n else 1)  # what a second try would repeat is known
    assert not list((place / "cache" / "c").iterdir())


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execv(sys.executable, [sys.executable, "-m", "tilec", *sys.argv[2:]])
"""


@pytest.mark.parametrize(
    ("most", "code", "says"),
    [
        (0, 2, "measured.sqlite: "),  # not even the database
        (13 * 1024, 0, "system"),  # the database, but no candidate
    ],
)
def test_no_room_for_files(most: int, code: int, says: str, place: Path):
    process = begin(str(most), *TUNE, "--candidates", "1", code=LIMITED)
    out, err = process.communicate(timeout=120)
    assert process.returncode == code and "Traceback" not in err and says in out + err


def test_no_room_for_the_inputs(place: Path):
    process = begin("20000", "tune", "act_chain", "M=64", "N=256", *TUNE[4:], "--backend", "numpy", code=LIMITED)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2 and out == ""
    assert "MeasureError: the inputs can't be written to " in err and "TMPDIR names another place" in err


# -- the janitor -------------------------------------------------------------------------------------------------------------


def test_a_janitor_kills_what_it_watches_and_leaves_what_it_does_not():
    watched, forgotten = start(["sleep", "600"]), start(["sleep", "600"])
    janitor = Janitor()
    for process in (watched, forgotten):
        janitor.watch(process)
    janitor.forget(forgotten)
    janitor.close()
    assert eventually(lambda: watched.poll() == -9) and forgotten.poll() is None
    kill_group(forgotten)


def test_a_workplace_ends_although_a_forked_process_holds_its_pipe():
    with workplace() as here:
        (here.folder / "file").write_text("")
        child = os.fork()
        if child == 0:
            time.sleep(600)
            os._exit(0)
    assert not here.folder.exists()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
