"""Measured tuning: what is timed, what happens to candidates that fail, and that nothing is lost or left behind."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest

import tilec
from tilec import workload
from tilec.errors import MeasureError, ScheduleError
from tilec.runtime import session
from tilec.runtime.job import check_for
from tilec.runtime.session import Failed
from tilec.schedule.schedule import Schedule, start
from tilec.search import database
from tilec.search import measure as measuring
from tilec.search.database import Database, Entry, Key
from tilec.search.measure import Measure, Outcome
from tilec.search.measured import _ranked, simplicity

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"M": 32, "N": 512}
BAD = "tests.unit.bad_backends"
TILES = {"BN": [16, 32, 64, 128, 256]}


def tiled(s: Schedule, BN: int) -> Schedule:
    return s.split("S0.j", BN, into=("jo", "ji"))


def tune(backend: str = "numpy", store: Path | None = None, tiles: dict | None = None, **options):
    settings = {"backend": backend, "repeats": 3, "seconds": 300.0, "limit": 2.0, "noise": 0.0, **options}
    return tilec.tune(
        workload("act_chain"),
        sizes=SIZES,
        target="host",
        space=tiles or TILES,
        schedule=tiled,
        measure=Measure(**settings),
        database=store,
    )


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary files of the tuner go where the test can see that none is left; short samples."""
    temp, notes = tmp_path / "temp", tmp_path / "notes"
    temp.mkdir()
    notes.mkdir()
    monkeypatch.setenv("TMPDIR", str(temp))
    monkeypatch.setattr(tempfile, "tempdir", str(temp))
    monkeypatch.setenv("TILEC_TEST_NOTES", str(notes))
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(measuring, "SAMPLE", 0.001)
    monkeypatch.setattr(session, "SPARE", 3.0)  # what hangs is waited for
    yield tmp_path
    assert eventually(lambda: left_behind(temp) == [])
    for note in notes.iterdir():
        assert eventually(lambda note=note: not alive(int(note.name.split("-")[1]))), note.name


def left_behind(temp: Path) -> list[str]:
    return [p.name for p in temp.iterdir() if not p.name.startswith(("tilec-timing-", "dask"))]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def eventually(holds: Callable[[], bool], seconds: float = 60) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if holds():
            return True
        time.sleep(0.02)
    return holds()


# -- what is measured ------------------------------------------------------------------------------------------------------


def test_the_best_are_timed_and_stand_first():
    r = tune()
    assert r.measurement.measured == r.measurement.tried == 5 and not r.measurement.interrupted
    assert r.rejected == {}
    assert all(row.measured is not None for row in r.rows)
    first = r.best
    assert first.measured == r.rows[0].measured and first.schedule.check().status == "legal"
    slower = [row.measured for row in r.rows[r.measurement.ties :]]
    assert slower == sorted(slower)
    assert r.measurement.environment["backend"] == "numpy"
    assert r.measurement.regret.candidates == 5
    assert "5 of 5 candidates measured in" in str(r.measurement)


def test_nothing_is_measured_twice_and_nothing_of_another_environment_is_used(tmp_path: Path):
    store = tmp_path / "seen.sqlite"
    assert tune(store=store).measurement.known == 0
    again = tune(store=store)
    assert again.measurement.known == 5 and again.measurement.measured == 5
    assert tune(store=store, threads=1).measurement.known == (5 if tilec.target("host").cores == 1 else 0)
    assert tune(store=store, backend=f"{BAD}:good").measurement.known == 0
    assert tune(store=store, verify=False).measurement.known == 0
    rows = sqlite3.connect(store).execute("select kernel, sizes, seconds, samples, environment from results").fetchall()
    assert len(rows) >= 15 and all(r[0] == "act_chain" and r[2] > 0 and r[3] >= 3 for r in rows)


def test_an_entry_of_another_machine_compiler_or_version_is_not_found(tmp_path: Path):
    here = {"machine": "a", "compiler": "gcc 12", "flags": "-O3", "tilec": "0.1.0"}
    key = Key("k", {"M": 4}, here, "text")
    with Database(str(tmp_path / "x.sqlite")) as store:
        store.put(key, Entry(1.0))
        assert store.get(key) == Entry(1.0)
    with Database(str(tmp_path / "x.sqlite")) as store:
        assert store.get(key) == Entry(1.0)
        for name in here:
            assert store.get(Key("k", {"M": 4}, {**here, name: "other"}, "text")) is None
        assert store.get(Key("k", {"M": 5}, here, "text")) is None
        assert store.get(Key("k", {"M": 4}, here, "other text")) is None
        assert store.get(Key("l", {"M": 4}, here, "text")) is None


def test_ties_keep_the_simplest_and_differences_the_fastest():
    r = tune(verify=False)
    candidates = r.top(5)
    plain = min(range(5), key=lambda n: (simplicity(candidates[n]), n))
    noisy = {n: Outcome([1.0, 1.2, 0.9 + n / 100, 1.1]) for n in range(5)}
    assert _ranked(r, candidates, noisy, 0.0) == 5
    assert r.best.knobs == candidates[plain].knobs and r.best.tie
    clear = {n: Outcome([1.0 + n] * 3) for n in range(5)}
    assert _ranked(r, candidates, clear, 0.01) == 1
    assert [c.knobs for c in r.top(5)] == [c.knobs for c in candidates] and not r.best.tie
    far = {n: Outcome([1.0, 1.0, 1.0] if n == 4 else [1.0, 3.0, 50.0]) for n in range(5)}  # what scatters ties nothing far off
    assert _ranked(r, candidates, far, 0.01) == 1
    within = {n: Outcome([1.0 + n / 1000] * 3) for n in range(5)}
    assert _ranked(r, candidates, within, 0.0025) == 3


def test_the_median_and_its_spread():
    o = Outcome([3.0, 1.0, 2.0, 100.0, 2.5])
    assert o.seconds == median([3.0, 1.0, 2.0, 100.0, 2.5]) == 2.5
    assert 0 < o.spread < 1  # one outlier does not matter
    assert Outcome([1.0]).spread == 0.0 and Outcome().seconds is None


def test_the_number_of_candidates_and_the_time_are_budgets():
    assert tune(candidates=2).measurement.tried == 2
    r = tilec.tune(workload("act_chain"), SIZES, "host", TILES, tiled, measure=Measure(repeats=1), budget=3)
    assert r.measurement.tried == 3 and len(r.rows) == 5 and r.rows[4].measured is None
    hurried = tune(seconds=0.001)
    assert 1 <= hurried.measurement.measured <= 5 and hurried.best.measured is not None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"candidates": 0}, r"candidates=0\): an integer >= 1"),
        ({"repeats": True}, "repeats=True"),
        ({"threads": 1.5}, r"threads=1.5\): an integer"),
        ({"seconds": 0}, r"seconds=0\): a number of seconds > 0"),
        ({"limit": float("inf")}, "limit=inf"),
        ({"noise": 2}, "a fraction from 0 to 1"),
        ({"executor": "pool"}, "a concurrent.futures.Executor"),
    ],
)
def test_bad_settings(options: dict, says: str):
    with pytest.raises(ScheduleError, match=says):
        Measure(**options)


def test_bad_arguments():
    with pytest.raises(MeasureError, match=r"no backend 'fortran' to measure with\. Backends: .*numpy"):
        Measure(backend="fortran")
    with pytest.raises(MeasureError, match="No module named"):
        Measure(backend="no.such.module:x")
    with pytest.raises(ScheduleError, match="measure=7"):
        tilec.tune(workload("act_chain"), SIZES, "host", TILES, tiled, measure=7)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match=r"budget=0\): a whole number"):
        tilec.tune(workload("act_chain"), SIZES, "host", TILES, tiled, measure=True, budget=0)


# -- candidates that fail --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "reason", "says"),
    [
        ("hangs", "timed out", "its first run took more than 0.5 s"),
        ("crashes", "crashed", "killed by SIGSEGV"),
        ("leaves", "crashed", "exit status 7"),
        ("raises", "fails", "ZeroDivisionError"),
        ("babbles", "crashed", "the process answered '[1, 2"),
        ("wrong", "wrong result", "elements differ"),
        ("does_not_compile", "does not compile", "expected ';'"),
    ],
)
def test_a_candidate_that_fails_is_counted(backend: str, reason: str, says: str):
    r = tune(f"{BAD}:{backend}", tiles={"BN": [16, 32]}, limit=0.5, repeats=5)
    assert list(r.rejected) == [reason] and r.rejected[reason].count == 2
    assert says in r.rejected[reason].example and "BN=" in r.rejected[reason].example
    assert r.measurement.measured == 0 and r.rows == []
    with pytest.raises(ScheduleError, match=f"no candidate is legal and fits on host. {reason}: 2 candidates"):
        _ = r.best


def test_a_candidate_that_was_given_up_is_no_refuge_from_the_last_check():
    r = tune(f"{BAD}:drifts_apart", tiles={"BN": [16, 32]}, repeats=5)
    assert r.rejected["wrong result"].count == 2 and r.rows == []


def test_outputs_that_change_from_run_to_run_are_wrong():
    r = tune(f"{BAD}:drifts", tiles={"BN": [16]}, repeats=5)
    assert r.rejected["wrong result"].count == 1 and "change from run to run" in r.rejected["wrong result"].example


def test_a_worker_that_somebody_kills_is_counted_and_not_kept(tmp_path: Path):
    """As the system does where memory ends: the others are measured, and a second try is made."""
    killed: list[int] = []

    def say(stage: str, done: int, total: int) -> None:
        if stage.startswith("timing, round 2") and not killed:
            killed.append(notes(tmp_path, "worker")[0])
            os.kill(killed[0], signal.SIGKILL)

    settings = Measure(backend=f"{BAD}:slow", repeats=3, seconds=300.0, verify=False)
    store = tmp_path / "seen.sqlite"
    r = tilec.tune(workload("act_chain"), SIZES, "host", TILES, tiled, measure=settings, database=store, progress=say)
    assert {k: v.count for k, v in r.rejected.items()} == {"killed": 1} and r.measurement.measured == 4
    assert "killed by SIGKILL" in r.rejected["killed"].example
    again = tilec.tune(workload("act_chain"), SIZES, "host", TILES, tiled, measure=settings, database=store)
    assert again.rejected == {} and again.measurement.known == 4 and again.measurement.measured == 5


def test_that_a_candidate_takes_too_long_is_known_for_the_same_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session, "SPARE", 0.05)
    store = tmp_path / "slow.sqlite"
    tiles = {"BN": [16]}
    assert list(tune(f"{BAD}:slow", store, tiles, limit=0.05).rejected) == ["timed out"]
    began = len(notes(tmp_path, "worker"))
    assert list(tune(f"{BAD}:slow", store, tiles, limit=0.05).rejected) == ["timed out"]
    assert len(notes(tmp_path, "worker")) == began  # nothing was run
    monkeypatch.setattr(session, "SPARE", 10.0)
    assert tune(f"{BAD}:slow", store, tiles, limit=5.0).measurement.measured == 1
    assert tune(f"{BAD}:slow", store, tiles, limit=0.05).measurement.known == 1  # it has a time now


def test_where_everything_fails_the_time_ends_too(monkeypatch: pytest.MonkeyPatch):
    now = [0.0]
    monkeypatch.setattr(measuring.clock, "monotonic", lambda: now[0])
    program = workload("act_chain").program
    run = measuring.Run(Measure(backend="numpy", seconds=10.0), program, SIZES, 0, Database(None), lambda *a: None)
    now[0] = 25.0
    assert not run.late  # nothing was tried yet: one candidate always is
    run.outcomes[0] = Outcome(failure="timed out")
    now[0] = 19.0
    assert not run.late
    now[0] = 21.0
    assert run.late
    now[0] = 11.0
    run.outcomes[1] = Outcome([1.0])
    assert run.late


def test_a_hung_compilation_is_killed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(session, "START", 10.0)
    r = tune(f"{BAD}:hangs_while_compiling", tiles={"BN": [16]}, compile_limit=0.2)
    assert "compiling took more than" in r.rejected["timed out"].example


def test_the_others_are_measured_all_the_same(tmp_path: Path):
    store = tmp_path / "mixed.sqlite"
    r = tune(f"{BAD}:mixed", store=store, limit=0.5)
    assert {k: v.count for k, v in r.rejected.items()} == {
        "timed out": 1,
        "crashed": 1,
        "wrong result": 1,
        "does not compile": 1,
    }
    assert r.best.knobs == {"BN": 16} and r.measurement.measured == 1 and r.measurement.tried == 5
    again = tune(f"{BAD}:mixed", store=store, limit=0.5)  # what failed is known too
    assert {k: v.count for k, v in again.rejected.items()} == {k: v.count for k, v in r.rejected.items()}
    assert again.measurement.known == 1 and again.best.knobs == {"BN": 16}


def test_the_check_sees_one_wrong_bit():
    program = workload("act_chain").program
    check = check_for(program, start(program, SIZES).program, SIZES)
    outputs = {n: e.elements.copy() for n, e in check.expected.items()}
    assert check.exact and check.wrong(outputs) is None
    outputs["Q"].view("u1")[-1, -1] ^= 1
    assert "1 of" in (check.wrong(outputs) or "")


# -- interruptions, kills ----------------------------------------------------------------------------------------------------

SCRIPT = """
import sys
sys.path.insert(0, {root!r})
import tilec
from tilec import workload
from tests.unit.test_measure import SIZES, TILES, tiled
from tilec.search.measure import Measure
def say(stage, done, total):
    if stage.startswith({at!r}):
        print("now", flush=True)
tilec.tune(workload("act_chain"), SIZES, "host", TILES, tiled, database={store!r}, progress=say,
           measure=Measure(backend={backend!r}, repeats=50, seconds=600, limit=600, threads=1))
"""


def begin(tmp_path: Path, backend: str, at: str) -> subprocess.Popen[bytes]:
    text = SCRIPT.format(root=str(ROOT), at=at, store=str(tmp_path / "kept.sqlite"), backend=backend)
    said = tmp_path / "said"
    with open(said, "w") as out:
        process = subprocess.Popen([sys.executable, "-c", text], stdout=out, cwd=ROOT)
    assert eventually(lambda: said.read_text().startswith("now"))
    return process


def notes(tmp_path: Path, kind: str) -> list[int]:
    return [int(p.name.split("-")[1]) for p in (tmp_path / "notes").iterdir() if p.name.startswith(kind)]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_keeps_what_it_measured_and_leaves_nothing(tmp_path: Path, how: signal.Signals):
    process = begin(tmp_path, f"{BAD}:slow", "timing, round 5")
    os.kill(process.pid, how)
    assert process.wait(60) != 0
    assert eventually(lambda: left_behind(tmp_path / "temp") == [])
    assert eventually(lambda: not any(map(alive, notes(tmp_path, "worker"))))
    with Database(str(tmp_path / "kept.sqlite")) as store:
        assert store.connection is not None
        kept = store.connection.execute("select count(*) from results where failure is null and samples >= 3").fetchone()[0]
    assert kept >= 1
    r = tune(f"{BAD}:slow", store=tmp_path / "kept.sqlite", threads=1)
    assert r.measurement.known == kept and r.measurement.measured == 5


def test_killing_the_tuner_kills_a_hung_candidate_and_its_children(tmp_path: Path):
    process = begin(tmp_path, f"{BAD}:hangs", "compiling")
    assert eventually(lambda: bool(notes(tmp_path, "child")))
    process.kill()
    process.wait()
    assert eventually(lambda: not any(map(alive, notes(tmp_path, "child") + notes(tmp_path, "worker"))))
    assert eventually(lambda: left_behind(tmp_path / "temp") == [])


def test_an_interruption_inside_python_leaves_a_result(monkeypatch: pytest.MonkeyPatch):
    seen = []

    def say(stage: str, done: int, total: int) -> None:
        seen.append(stage)
        if stage.startswith("timing, round 2"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tilec.tune(workload("act_chain"), SIZES, "host", TILES, tiled, measure=Measure(), progress=say)
    assert any(s.startswith("timing, round 1") for s in seen)


# -- executors -------------------------------------------------------------------------------------------------------------


def test_measuring_over_a_process_pool(tmp_path: Path):
    with ProcessPoolExecutor(2) as pool:
        r = tune(executor=pool, store=tmp_path / "pool.sqlite")
    assert r.measurement.measured == 5 and r.measurement.environment["machine"]
    assert tune(store=tmp_path / "pool.sqlite").measurement.known == 5  # the same machine, the same environment


def test_measuring_over_a_dask_cluster(tmp_path: Path):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, local_directory=str(tmp_path / "dask")
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        processes = list(client.run(os.getpid).values())
        r = tune(executor=client.get_executor(), tiles={"BN": [16, 64]})
        bad = tune(f"{BAD}:crashes", executor=client.get_executor(), tiles={"BN": [16]})
    assert r.measurement.measured == 2 and r.rejected == {} and r.measurement.environment["machine"]
    assert {k: v.count for k, v in bad.rejected.items()} == {"crashed": 1}
    assert len(processes) == 2 and all(eventually(lambda pid=pid: not alive(pid)) for pid in processes)


def test_a_pool_whose_worker_dies_is_counted():
    with ProcessPoolExecutor(1) as pool:
        r = tune(f"{BAD}:dies_in_pool", executor=pool, tiles={"BN": [16, 32]})
    assert r.measurement.measured == 0
    lost = r.rejected.get("worker lost")
    assert (lost is not None and "BrokenProcessPool" in lost.example) or any("BrokenProcessPool" in n for n in r.notes)


def test_failures_elsewhere_are_counted_like_here():
    with ThreadPoolExecutor(2) as pool:
        r = tune(f"{BAD}:mixed", executor=pool, limit=0.5)
    assert {k: v.count for k, v in r.rejected.items()} == {
        "timed out": 1,
        "crashed": 1,
        "wrong result": 1,
        "does not compile": 1,
    }


class Broken(Executor):
    """An executor that is shut down."""

    def submit(self, fn, /, *args, **kwargs):
        raise RuntimeError("cannot schedule new futures after shutdown")


def test_an_executor_that_does_not_work():
    with pytest.raises(MeasureError, match="the executor does not work: RuntimeError"):
        tune(executor=Broken())


def test_a_worker_of_another_machine_is_not_mixed_in(monkeypatch: pytest.MonkeyPatch):
    real = measuring.elsewhere
    monkeypatch.setattr(measuring, "elsewhere", lambda *a: {**real(*a), "machine": "another"})
    with ThreadPoolExecutor(1) as pool:
        r = tune(executor=pool, tiles={"BN": [16]})
    assert r.rejected["another environment"].count == 1 and "another machine" in r.rejected["another environment"].example


# -- the database ----------------------------------------------------------------------------------------------------------


def test_a_database_that_is_corrupt_newer_locked_or_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    corrupt = tmp_path / "corrupt"
    corrupt.write_bytes(b"SQLite format 3\0" + b"garbage" * 1000)
    with pytest.raises(MeasureError, match=r"corrupt: .*remove the file if it is no tilec database"), Database(str(corrupt)):
        pass
    newer = tmp_path / "newer"
    with sqlite3.connect(newer) as c:
        c.execute("pragma user_version = 99")
    with pytest.raises(MeasureError, match=r"made by a newer tilec \(format 99"), Database(str(newer)):
        pass
    with pytest.raises(MeasureError, match="Give another path"), Database(str(tmp_path)):
        pass
    fine = tmp_path / "fine"
    with Database(str(fine)):
        pass
    other = sqlite3.connect(fine, isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(MeasureError, match=r"locked by another process for more than 0\.1 s"), Database(str(fine), wait=0.1):
        pass
    other.execute("rollback")
    other.close()


def test_a_damaged_page_is_seen_when_the_database_is_opened(tmp_path: Path):
    path = tmp_path / "long"
    with Database(str(path)) as store:
        for n in range(200):
            store.put(Key("k", {}, {}, str(n)), Entry(1.0, detail="x" * 500))
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with pytest.raises(MeasureError, match=r"long: .*Give another path, or remove the file"), Database(str(path)):
        pass


def test_a_database_that_goes_bad_loses_no_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Entries that can't be read any more are measured again, and what can't be written is told."""
    with Database(str(tmp_path / "x"), wait=0.05) as store:
        other = sqlite3.connect(tmp_path / "x", isolation_level=None)
        other.execute("begin exclusive")
        key = Key("k", {}, {}, "a")
        assert store.get(key) is None
        store.put(key, Entry(1.0))
        assert store.get(key) == Entry(1.0) and "locked" in (store.unwritten or "")
        other.execute("rollback")
        other.close()
    with Database(str(tmp_path / "x")) as store:
        assert store.get(key) == Entry(1.0)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("seconds", "fast"),
        ("seconds", -1.0),
        ("seconds", b"1"),
        ("seconds", None),
        ("spread", None),
        ("samples", "many"),
        ("detail", None),
    ],
)
def test_an_entry_that_makes_no_sense_is_measured_again(column: str, value: object, tmp_path: Path):
    path, key = str(tmp_path / "d.sqlite"), Key("k", {"M": 1}, {"machine": "m"}, "text")
    with Database(path) as store:
        store.put(key, Entry(1.0, 0.1, 3))
    with Database(path) as store:
        assert store.get(key) == Entry(1.0, 0.1, 3)
    with sqlite3.connect(path) as connection:
        connection.execute(f"update results set {column} = ?", (value,))
    connection.close()
    with Database(path) as store:
        assert store.get(key) is None


def test_a_lock_in_the_middle_loses_nothing(tmp_path: Path):
    path = tmp_path / "x"
    a, b = (Key("k", {}, {}, name) for name in "ab")
    with Database(str(path), wait=0.05) as store:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("begin immediate")
        store.put(a, Entry(1.0))
        assert "1 measurements could not be written" in (store.unwritten or "") and "locked" in (store.unwritten or "")
        assert store.get(a) == Entry(1.0)
        other.execute("rollback")
        other.close()
        store.put(b, Entry(2.0))
        assert store.unwritten is None
    with Database(str(path)) as store:
        assert store.get(a) == Entry(1.0) and store.get(b) == Entry(2.0)


def test_who_interrupts_is_told_what_is_not_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(database, "WAIT", 0.05)
    path = tmp_path / "locked.sqlite"
    others: list[sqlite3.Connection] = []

    def say(stage: str, done: int, total: int) -> None:
        if stage.startswith("compiling") and not others:
            others.append(sqlite3.connect(path, isolation_level=None))
            others[0].execute("begin immediate")
        if stage.startswith("timing, round 3"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        tilec.tune(workload("act_chain"), SIZES, "host", TILES, tiled, measure=Measure(), database=path, progress=say)
    others[0].close()
    (note,) = stopped.value.__notes__
    assert "5 measurements could not be written to " in note and "database is locked" in note


def test_a_full_disk_loses_nothing_and_is_told(tmp_path: Path):
    path = tmp_path / "small"
    with Database(str(path)) as store:
        assert store.connection is not None
        pages = store.connection.execute("pragma page_count").fetchone()[0]
        store.connection.execute(f"pragma max_page_count = {pages}")
        store.put(Key("k", {}, {}, "a"), Entry(1.0, detail="x" * 100_000))
        assert "full" in (store.unwritten or "")
        assert store.get(Key("k", {}, {}, "a")) is not None


def test_a_database_of_the_first_format_is_read_as_empty(tmp_path: Path):
    path = tmp_path / "old"
    with sqlite3.connect(path) as c:
        c.execute("create table measured (key text primary key, seconds real not null, wall real, about text)")
        c.execute("insert into measured values ('k', 1.0, 1.0, '')")
    with Database(str(path)) as store:
        assert store.get(Key("k", {}, {}, "")) is None


def test_inputs_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch):
    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(measuring, "store_inputs", full)
    with pytest.raises(MeasureError, match=r"inputs can't be written to .*No space left on device\. TMPDIR names another place"):
        tune()


def test_a_failure_travels_between_processes():
    e = Failed("crashed", "text")
    kind, args = e.__reduce__()
    assert kind(*args).kind == "crashed" and str(kind(*args)) == "text"
