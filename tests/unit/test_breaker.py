"""Inputs that once ended in a foreign traceback, a hang, or an answer to another question."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pytest

import tilec
from tilec.cli import main
from tilec.errors import LanguageError, MeasureError, ResourceError, ScheduleError, TargetError
from tilec.lang.kernel import from_source
from tilec.schedule.trace import Trace

SIZES = {"M": 64, "N": 64, "K": 64}


def tiles(s, BM):
    return s.split("i", BM)


@pytest.fixture
def gemm():
    return tilec.workload("gemm")


def copy_kernel(size="N", x="x", y="y", i="i"):
    text = f"def f({x}: f32[{size}], {y}: f32[{size}]):\n    for {i} in range({size}):\n        {y}[{i}] = {x}[{i}]\n"
    return from_source(text, {"f32": tilec.f32, size: tilec.sizes(size)})


def test_a_primitive_argument_called_name_may_be_given_by_name(gemm):
    with pytest.raises(ScheduleError, match="layout"):
        gemm.schedule().layout(name="acc")
    s = gemm.schedule(K=8).split("i", 4, into=("io", "ii")).cache_read("A", "io", "shared")
    assert str(s.layout("A_shared", name="pad", first=1, second=8)) == str(s.layout("A_shared", "pad", 1, 8))


def test_distribute_wants_a_name():
    with pytest.raises(ScheduleError, match="must be the name"):
        tilec.workload("jacobi2d").schedule().distribute("t", np.int64(3))


@pytest.mark.parametrize("names", [None, 5, b"M", ["M"]])
def test_sizes_wants_a_string(names):
    with pytest.raises(LanguageError, match="one string"):
        tilec.sizes(names)


@pytest.mark.parametrize("part", ["x", "y", "i"])
def test_names_are_ascii(part):
    with pytest.raises(LanguageError, match="is no name for a"):
        copy_kernel(**{part: "é"})


@pytest.mark.parametrize("name", ["backend", "threads", "contract", "proof_budget", "target"])
def test_keywords_of_the_calls_are_no_names(name):
    for part in ("size", "x"):
        with pytest.raises(LanguageError, match="as keywords of their own"):
            copy_kernel(**{part: name})
    copy_kernel(i=name)  # a loop is never given at a call


@pytest.mark.parametrize("name", [None, 3, ["gemm"]])
def test_a_workload_or_target_is_a_name(name):
    with pytest.raises(LanguageError, match="Kernels: act_chain"):
        tilec.workload(name)
    with pytest.raises(TargetError, match=r"Targets: .*a100-sxm"):
        tilec.target(name)


def test_a_target_is_no_bytes():
    with pytest.raises(TargetError, match=r"Targets: .*a100-sxm"):
        tilec.target(b"h100-sxm")


@pytest.mark.parametrize("buffers", [3, [["acc"]], [None]])
def test_reassociate_names_buffers(gemm, buffers):
    with pytest.raises(ScheduleError, match="reassociate"):
        gemm.schedule(reassociate=buffers)


def test_a_backend_is_a_name(gemm):
    with pytest.raises(ScheduleError, match="Backends: pseudocode"):
        gemm.schedule().emit([])


@pytest.mark.parametrize("key", ["threads", "registers"])
@pytest.mark.parametrize("value", [-1, 1.5, "32", True])
def test_launch_numbers_are_checked_wherever_they_are_given(gemm, key, value):
    for call in (
        lambda: gemm.schedule().cost("h100-sxm", **{key: value}, **SIZES),
        lambda: tilec.occupancy("h100-sxm", **{key: value}),
        lambda: tilec.tune(gemm, SIZES, "h100-sxm", **{key: value}),
    ):
        with pytest.raises(ResourceError, match=key):
            call()


def test_no_threads(gemm):
    with pytest.raises(ResourceError, match="at least 1"):
        gemm.schedule().cost("h100-sxm", threads=0, **SIZES)


def test_the_way_back_from_very_many_threads_is_short():
    o = tilec.occupancy("h100-sxm", threads=2**40)
    assert o.blocks == 0 and o.gain is not None and o.gain.steps == (("threads", 2**40, 1024),)


@pytest.mark.parametrize("kw", [{"blocks": 2.5}, {"blocks": 10**9}, {"slots": "2"}, {"copy": float("nan")}, {"compute": "a"}])
def test_pipeline_time_refuses(kw):
    with pytest.raises(ResourceError, match="pipeline_time"):
        tilec.pipeline_time(**{"copy": 1, "compute": 1, "blocks": 4, "slots": 2, **kw})


@pytest.mark.parametrize("flops", ["a", float("nan"), 10**400, True])
def test_roofline_refuses(flops):
    with pytest.raises(ResourceError, match="flops must be a number"):
        tilec.roofline("h200", flops=flops, bytes=1)


def test_tune_wants_a_kernel(gemm):
    for given in (None, "gemm", gemm.schedule()):
        with pytest.raises(ScheduleError, match="is a kernel"):
            tilec.tune(given, SIZES)
    with pytest.raises(ScheduleError, match="a dict of names"):
        tilec.tune(gemm, [1])


def test_tune_keeps_to_the_kernel_and_sizes_it_was_asked_for(gemm):
    others = (lambda s, BM: tilec.workload("dot").schedule(), lambda s, BM: gemm.schedule(M=128))
    for schedule in others:
        result = tilec.tune(gemm, SIZES, space={"BM": [1]}, schedule=schedule)
        with pytest.raises(ScheduleError, match="that it did not get"):
            _ = result.best


def test_tune_refuses_a_space_that_it_cannot_hold(gemm):
    with pytest.raises(ScheduleError, match="1,000,000,000,000 candidates"):
        tilec.tune(gemm, SIZES, space={k: range(1000) for k in "abcd"}, schedule=lambda s, **k: s)


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf"), None, "x"])
def test_a_measurement_is_a_time(gemm, seconds):
    with pytest.raises(MeasureError, match="measure"):
        tilec.tune(gemm, SIZES, space={"BM": [1]}, schedule=tiles, measure=lambda s: seconds)


def test_a_database_of_someone_else(gemm, tmp_path: Path):
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as c:
        c.execute("create table measured (a int)")
    for database in (path, str(path), str(tmp_path)):
        with pytest.raises(MeasureError, match="Give another path"):
            tilec.tune(gemm, SIZES, space={"BM": [1]}, schedule=tiles, measure=lambda s: 1.0, database=database)


def command(capsys, *words: str) -> tuple[int, str]:
    code = main(list(words))
    return code, capsys.readouterr().err


def test_the_command_refuses_what_it_cannot_run(capsys):
    code, text = command(capsys, "run", "gemm", "M=3", "N=3", "K=3", "--seed", "-1")
    assert code == 2 and "the seed must be an integer >= 0" in text
    code, text = command(capsys, "run", "gemm", "M=100000", "N=100000", "K=100000")
    assert code == 2 and "Choose smaller sizes" in text


def test_the_command_refuses_a_schedule_of_another_kernel(capsys, tmp_path: Path):
    path = tmp_path / "schedules.py"
    path.write_text(
        "import tilec\nfrom math import prod\n"
        "def other(s): return tilec.workload('gemm').schedule()\n"
        "def same(s): return s.split('i', 4)\n"
        "fixed = tilec.workload('dot').schedule().split('i', 4)\n"
    )
    for name in ("other", "fixed"):
        code, text = command(capsys, "show", "syrk", "--schedule", f"{path}:{name}")
        assert code == 2 and "not of syrk" in text
    assert command(capsys, "show", "syrk", "--schedule", f"{path}:same")[0] == 0
    assert command(capsys, "show", "dot", "--schedule", f"{path}:fixed")[0] == 0
    code, text = command(capsys, "show", "syrk", "--schedule", str(path))
    assert code == 2 and "holds other, same, fixed: write" in text


@pytest.mark.parametrize("text", [None, 3, "[" * 100_000, b"\xff"])
def test_json_of_no_trace(text):
    with pytest.raises(ScheduleError, match="trace"):
        Trace.from_json(text)


@pytest.mark.parametrize("text", [None, 's = s.split("i", 4, **{"into": ("a", "b")})'])
def test_python_of_no_trace(text):
    with pytest.raises(ScheduleError, match="trace"):
        Trace.from_python(text)


def test_a_loop_that_touches_nothing_is_not_asked_for_sizes():
    s = tilec.workload("jacobi2d").schedule(T=1, N=1)
    with pytest.raises(ScheduleError, match="may touch no cell at all") as e:
        s.cache_read("A", "B.i", "shared")
    assert "bind" not in str(e.value)


def test_the_parts_of_a_peeled_loop_can_be_named():
    transpose = tilec.workload("transpose")
    s = transpose.schedule().peel("i", 2)
    assert s.loops == ("i#1", "j#1", "i#2", "j#2")
    with pytest.raises(ScheduleError, match=r"'i' names 2 loops: i#1, i#2[.] Use one of these names[.]"):
        s.split("i", 2)
    for name in ("i#0", "i#3", "i#"):
        with pytest.raises(ScheduleError, match=f"no loop '{name}'"):
            s.split(name, 2)
    t = s.unroll("i#1").tile(("i#2", "j#2"), (4, 3)).reorder("j#1", "i#1")
    assert str(Trace.from_python(t.trace.to_python()).apply(transpose.schedule())) == str(t)
    a = np.arange(35, dtype=np.float32).reshape(7, 5)
    assert (t.run(a) == a.T).all()


@pytest.mark.parametrize("step", ["cache_read", "cache_write"])
def test_partial_results_are_not_copied(step):
    s = tilec.workload("rowquant").schedule().split_reduction("m.k")
    options = {"load": True} if step == "cache_write" else {}
    with pytest.raises(ScheduleError, match="'m_part' holds partial results of 'm'"):
        getattr(s, step)("m_part", "m.i", "global", **options)
