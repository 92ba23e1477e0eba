"""The ranking of public tuning spaces: how good it is, what it does not hang on, and that bulk equals the program itself."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from benchmarks.model.__main__ import main
from benchmarks.model.rank import Space, Structures, agreement, predict, read
from benchmarks.model.xgemm import KNOBS, SWITCHES, fresh, scheduled
from tilec.cost.block import CONSTANTS, TERMS, block_figures
from tilec.cost.launches import launches
from tilec.cost.price import price
from tilec.cost.reader import Reader
from tilec.cost.threadwork import thread_work
from tilec.search.unproved import unproved
from tilec.targets import load

RTX, A100 = ("gemm_space_rtx3090.csv.gz", "rtx-3090"), ("gemm_space_a100_cuda.csv.gz", "a100-pcie-40gb")


@pytest.fixture(scope="module")
def structures() -> Structures:
    return Structures()


@pytest.fixture(scope="module")
def rtx() -> Space:
    return read(RTX[0])


def switched(space: Space, **values: int) -> Space:
    """The rows with these switches."""
    return space.take(np.flatnonzero(np.all([space.knobs[k] == v for k, v in values.items()], axis=0)))


def test_the_whole_space_of_a_gpu(rtx: Space, structures: Structures):
    found = agreement(predict(rtx, RTX[1], structures) * 1e3, rtx.measured)
    assert rtx.count == 17_956
    assert found.spearman >= 0.945 and found.recall >= 0.85
    assert found.first_pick <= 1.05 and found.best_of_ten <= 1.02
    assert 0.9 <= found.scale <= 1.1  # no scale was fitted


def test_a_gpu_of_another_kind(structures: Structures):
    space = read(A100[0])
    plain = switched(space, STRM=0, STRN=0)
    assert agreement(predict(plain, A100[1], structures) * 1e3, plain.measured).spearman >= 0.92
    best = switched(space, STRM=1, STRN=1, SA=1, SB=1)
    found = agreement(predict(best, A100[1], structures) * 1e3, best.measured)
    assert best.measured.min() == space.measured.min()
    assert found.first_pick <= 1.05 and found.best_of_ten <= 1.02


def test_each_term_counts(rtx: Space, structures: Structures):
    """Taking a term out changes predictions, and the ones that the spaces test lose agreement."""
    few = rtx.take(np.arange(0, rtx.count, 7))
    whole = predict(few, RTX[1], structures)
    base = agreement(whole, few.measured).spearman
    lost = {}
    for term in TERMS:
        without = predict(few, RTX[1], structures, without=frozenset((term,)))
        lost[term] = base - agreement(without, few.measured).spearman
        assert term == "capacity" or not np.allclose(without, whole), term
    assert lost["banks"] > 0.05 and lost["spills"] > 0.05 and lost["lines"] > 0.03 and lost["overlap"] > 0.01


def test_no_constant_decides(rtx: Space, structures: Structures):
    few = rtx.take(np.union1d(np.arange(0, rtx.count, 5), np.argsort(rtx.measured)[:200]))
    for f in fields(CONSTANTS):
        for factor in (0.75, 1.25):
            value = getattr(CONSTANTS, f.name) * factor
            moved = replace(CONSTANTS, **{f.name: round(value) if isinstance(getattr(CONSTANTS, f.name), int) else value})
            found = agreement(predict(few, RTX[1], structures, moved), few.measured)
            assert found.spearman > 0.93 and found.first_pick <= 1.15 and found.best_of_ten <= 1.02, (f.name, factor)


def test_bulk_equals_the_program_of_each_row(structures: Structures):
    """Formulas read once per structure against the scheduled program of single rows."""
    rng = np.random.default_rng(4)
    for file, target in (RTX, A100):
        space = read(file)
        plain = switched(space, STRM=0, STRN=0)
        rows = plain.take(rng.choice(plain.count, 2, replace=False))
        bulk = predict(rows, target, structures)
        for n in range(rows.count):
            knobs = {k: int(rows.knobs[k][n]) for k in KNOBS}
            program = scheduled(unproved(fresh(), {}), knobs).program
            work = thread_work(program, launches(program)[0], Reader())
            assert work is not None
            assert block_figures(work, load(target), {}, rows.front).seconds[0] == pytest.approx(bulk[n], rel=1e-12), knobs


def test_one_row_is_legal_and_counts_agree():
    """The schedule is proved in full, and the thread's work adds up to the exact counts of the program."""
    knobs = dict(zip(KNOBS, (64, 32, 16, 8, 8, 16, 8, 2, 4, 2, 1, 0, 1, 1), strict=True))
    s = scheduled(unproved(fresh(128, 64, 32), {}), knobs)
    assert s.check().status == "legal"
    cost = price(s.program, "rtx-3090")
    work = thread_work(s.program, launches(s.program)[0], Reader())
    assert work is not None
    figures = block_figures(work, load("rtx-3090"), {})
    assert figures.shared[0] == cost.footprint["shared"] == 4 * 16 * (64 + 32)
    assert figures.blocks[0] == cost.launch[0].blocks == 4 and figures.threads[0] == 64
    assert set(SWITCHES) < set(KNOBS)


def test_command_line(tmp_path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "few.csv"
    lines = [",".join((*KNOBS, "time_ms"))]
    lines += ["64,64,32,8,8,8,8,2,4,4,0,0,1,1,1.0", "16,16,32,8,8,8,8,2,1,1,0,0,1,1,9.0"]
    path.write_text("\n".join(lines))
    assert main(["--space", str(path), "--target", "rtx-3090"]) == 0
    out = capsys.readouterr().out
    assert "rank correlation (Spearman)               1.0000" in out and "first pick ÷ best                         1.000" in out
    assert main(["--space", str(path), "--target", "rtx-3090", "--size", "100"]) == 2
    assert "size 100 is no multiple of MWG=64" in capsys.readouterr().err
    for target, problem in (("tpu-v5e", "has no SMs"), ("8.6", "no vector rate for 'f32'")):
        assert main(["--space", str(path), "--target", target]) == 2
        assert problem in capsys.readouterr().err
    assert main(["--space", str(path), "--target", "rtx-3091"]) == 2
    assert "unknown target 'rtx-3091'" in capsys.readouterr().err
    path.write_text("MWG,time_ms\n1,2\n")
    assert main(["--space", str(path), "--target", "rtx-3090"]) == 2
    assert "no column 'NWG'" in capsys.readouterr().err
    path.write_text("\n".join((lines[0], lines[1].replace(",0,0,1,1,", ",0,2,1,1,"))))
    assert main(["--space", str(path), "--target", "rtx-3090"]) == 2
    assert "row 1 has STRN=2: a switch is 0 or 1" in capsys.readouterr().err
    path.write_text("\n".join((lines[0], lines[1].replace("64,64,32,8,", "64,64,32,16,", 1).replace(",4,4,", ",8,4,"))))
    assert main(["--space", str(path), "--target", "rtx-3090"]) == 2
    assert "row 1: MWG=64 is no multiple of MDIMC·VWM=128" in capsys.readouterr().err
    assert main(["--space", str(tmp_path / "none.csv"), "--target", "rtx-3090"]) == 2
