"""Options of `tune` and `Measure`: what makes no sense is refused before anything is done, with what is possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tilec
from tilec import cli, workload
from tilec.errors import ResourceError, ScheduleError, TilecError
from tilec.runtime.checks import shown
from tilec.search.measure import Measure
from tilec.targets.detect import cpus, detect

SIZES = {"M": 16, "N": 64}
MOST = max(cpus(), detect().cores)
FAST = Measure(backend="numpy", repeats=1, candidates=1)


def tiled(s: Any, BN: int) -> Any:
    return s.split("S0.j", BN, into=("jo", "ji"))


def tune(**options: Any) -> Any:
    settings = {"target": "host", "space": {"BN": [16, 32]}, "schedule": tiled, **options}
    return tilec.tune(workload("act_chain"), SIZES, **settings)


@pytest.mark.parametrize(
    ("options", "kind", "says"),
    [
        ({"speed": 9}, ScheduleError, r"tune\(speed=…\): no option 'speed'\. Options: sizes, target, space, .*priced, progress$"),
        ({"face": None}, ScheduleError, r"no option 'face'"),
        ({"registers": 1000}, ResourceError, r"tune\(registers=1000\): registers per thread of a GPU; host is a CPU"),
        ({"registers": 1000, "target": "h200"}, ResourceError, r"registers=1000\): h200 allows 255 registers per thread"),
        ({"threads": 1025, "target": "h200"}, ResourceError, r"threads=1025\): h200 allows 1,024 threads per block"),
        ({"threads": 10**6}, ResourceError, rf"tune\(threads=1000000\): host runs at most {MOST} at once"),
        ({"threads": 1.5}, ResourceError, "threads must be a whole number, got 1.5"),
        ({"priced": 3, "target": "h200"}, ScheduleError, r"tune\(priced=3\): candidates priced on a CPU; on h200 all are"),
        ({"seed": -1}, ScheduleError, r"tune\(seed=-1\): an integer >= 0"),
        ({"seed": 1.0}, ScheduleError, r"tune\(seed=1.0\)"),
        ({"budget": 3}, ScheduleError, r"tune\(budget=3\): candidates that are measured: give measure=True"),
        ({"database": "x.sqlite"}, ScheduleError, r"tune\(database='x.sqlite'\): it keeps measurements: give measure=True"),
        ({"database": 3}, ScheduleError, r"tune\(database=3\): the path of an SQLite file"),
        ({"database": "", "measure": FAST}, ScheduleError, r"tune\(database=''\): the path of an SQLite file"),
        ({"database": b"x", "measure": FAST}, ScheduleError, r"tune\(database=b'x'\): the path of an SQLite file"),
        ({"progress": 1}, ScheduleError, r"tune\(progress=1\): a function of a stage"),
        ({"progress": []}, ScheduleError, r"tune\(progress=\[\]\)"),
        ({"measure": "c"}, ScheduleError, r"tune\(measure='c'\): True, a tilec.Measure, or a function"),
        ({"measure": True, "target": "h200"}, ScheduleError, r"the backend 'c' runs on a CPU: target='host'"),
    ],
)
def test_what_tune_refuses(options: dict[str, Any], kind: type[TilecError], says: str):
    with pytest.raises(kind, match=says):
        tune(**options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"threads": 9999}, rf"Measure\(threads=9999\): an integer from 1 to {MOST}: this process may use {MOST} CPU"),
        ({"threads": 0}, "threads=0"),
        ({"candidates": None}, r"Measure\(candidates=None\): an integer >= 1"),
        ({"repeats": None}, "repeats=None"),
        ({"workers": 10**6}, r"workers=1000000\): an integer from 1 to 4096"),
        ({"limit": 1e30}, r"limit=1e\+30\): a number of seconds > 0, at most 1,000,000"),
        ({"compile_limit": "9"}, "compile_limit='9'"),
        ({"verify": None}, r"Measure\(verify=None\): True or False"),
        ({"noise": False}, "noise=False"),
        ({"flags": "-O2"}, r"Measure\(flags='-O2'\): a list of texts"),
        ({"flags": [""]}, r"flags=\[''\]\): a list of texts"),
        ({"compiler": ""}, r"Measure\(compiler=''\): the name or the path of a C compiler"),
        ({"compiler": 3}, "compiler=3"),
        ({"backend": "numpy", "compiler": "gcc"}, r"compiler='gcc'\): the backend 'numpy' compiles nothing"),
        ({"backend": "numpy", "flags": ("-g",)}, "the backend 'numpy' compiles nothing"),
    ],
)
def test_what_a_measure_refuses(options: dict[str, Any], says: str):
    with pytest.raises(ScheduleError, match=says):
        Measure(**options)


def test_neighbouring_values_are_taken():
    assert Measure(threads=MOST, workers=4096, limit=1e6, flags=["-g"], noise=0).options.flags == ("-g",)
    assert tune(threads=1, priced=1, seed=0).rows
    assert tune(target="h200", threads=1024, registers=255).rows


def test_candidates_are_ranked_for_the_threads_that_they_are_measured_with(tmp_path: Path):
    found = tune(measure=FAST, threads=1, database=tmp_path / "a path")
    assert found.measurement.environment["threads"] == "1" and (tmp_path / "a path").exists()
    one = tune(threads=1).rows[0].time
    assert tune(measure=Measure(backend="numpy", repeats=1, candidates=1, threads=1)).rows[0].time == one
    if MOST > 1:
        with pytest.raises(ScheduleError, match=r"tune\(threads=1\): measured with threads=2\. Give one number"):
            tune(threads=1, measure=Measure(threads=2))


def test_a_mix_names_its_sizes_in_the_shapes():
    with pytest.raises(ScheduleError, match=r"tune_mix\(sizes=…\): the shapes name the sizes"):
        tilec.tune_mix(workload("act_chain"), [(SIZES, 1)], sizes=SIZES)
    with pytest.raises(ScheduleError, match="no option 'speed'"):
        tilec.tune_mix(workload("act_chain"), [(SIZES, 1)], speed=9)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--measure", "--cpus", "9999"], f"Measure(threads=9999): an integer from 1 to {MOST}"),
        (["--threads", "9999"], f"tune(threads=9999): host runs at most {MOST} at once"),
        (["--measure", "--database", ""], "tune: --database '' names no file"),
        (["--database", ""], "--database is for --measure"),
        (["--measure", "--compiler", ""], "Measure(compiler=''): the name or the path of a C compiler"),
        (["--measure", "--limit", "1e9"], "Measure(limit=1000000000.0): a number of seconds > 0, at most 1,000,000"),
        (["--seed", "-1"], "tune(seed=-1): an integer >= 0"),
    ],
)
def test_what_the_command_line_refuses(words: list[str], says: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["tune", "act_chain", "M=16", "N=64", "--target", "host", *words]) == 2
    assert says in capsys.readouterr().err


def test_values_are_shown_short():
    assert shown("x" * 100) == "'" + "x" * 56 + "..." and shown(10**5000) == "a int"
