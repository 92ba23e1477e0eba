"""Time level by level: what each level counts, the raster order's windows, public measurements, and that every term is needed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.model import cublas, feasibility, ladder
from benchmarks.model.library_gemm import batched
from benchmarks.model.section import rows
from tests.handbuilt import gemm_silu_tiled
from tilec.cost import kernel_time, units
from tilec.cost.bulk import formulas, launch_seconds
from tilec.cost.price import price
from tilec.cost.raster import operand_sharing
from tilec.cost.separable import Markers
from tilec.errors import InternalError
from tilec.schedule.schedule import start
from tilec.search.unproved import unproved
from tilec.targets import load
from tilec.workloads import get

ROWS = {"M": 1024, "K": 4096, "N": 12288}


def test_windows_of_a_raster_share_what_the_calculator_counts():
    """9 × 9 blocks, 9 at once: 9 rows or columns of one kind and 1 of the other, or 3 of each in groups of 3 block rows."""
    rows_, columns = frozenset({"block.y"}), frozenset({"block.x"})
    plain = {"block.x": 9.0, "block.y": 9.0}
    found = [kernel_time.distinct_in_window(plain, axes, np.float64(9)) for axes in (rows_, columns)]
    assert (9 * sum(found), operand_sharing(9, 9, 9, 9).loaded) == (90, 90)
    grouped = {"block.x": 3.0, "block.y": 9.0, "block.z": 3.0}  # down a group of 3 rows, over the columns, over the groups
    found = [
        kernel_time.distinct_in_window(grouped, axes, np.float64(9))
        for axes in (frozenset({"block.x", "block.z"}), frozenset({"block.y"}))
    ]
    assert (9 * sum(found), operand_sharing(9, 9, 9, 9, "grouped", 3).loaded) == (54, 54)
    every = frozenset({"block.x", "block.y"})
    assert kernel_time.distinct_in_window(plain, every, np.float64(5)) == 5


@pytest.mark.parametrize(("order", "most"), [("row", 0.9), ("grouped", 0.5)])
def test_dram_bytes_follow_the_raster_order(order: str, most: float):
    """A grid whose operands do not fit L2: grouped block rows need fewer bytes of DRAM than row by row."""
    s = unproved(start(feasibility.gemm8.program, {"M": 65536, "N": 65536, "K": 65536}), {})
    group = 1 if order == "row" else 16
    c = price(feasibility.tiled(s, 128, 128, 64, group, 3).program, "h100-sxm", {}, threads=256)
    detail = c.launch[0].estimate.detail
    assert c.footprint["global"] < detail.dram_bytes < most * c.traffic.total("global")


def test_levels_of_a_tile():
    """64 × 64 tiles on an H100, each level by hand."""
    machine = load("h100-sxm")
    c = price(gemm_silu_tiled(64), machine, ROWS, threads=128, registers=56)
    terms, detail = dict(c.estimate.terms), c.launch[0].estimate.detail
    assert detail.per_sm == 24 and int(detail.resident) == 9  # 3,072 blocks on 132 SMs; 24 KiB + 1 KiB each of 228 KiB
    tile = 2 * 64 * 64 * 4096 / (989.4e12 / 132)  # wgmma: 64 rows, 8 columns and 16 terms are whole granules
    assert terms["compute"] == pytest.approx(24 * tile)
    operands = 128 * (64 + 64) * 32 * 2  # read by the unit, once per granule of rows; as many bytes written by the copies
    kept = 2 * 64 * 64 * 4 + 64 * 64 * 2  # the sums: set to zero, and read by the last step, whose stores no copy stages
    assert terms["shared"] == pytest.approx(24 * (2 * operands + kept) / 128 / machine.clock)
    assert units.paths(machine)[int(detail.path)].name == "wgmma"
    assert c.time >= max(terms.values())


def test_paths_differ():
    """A tile of 16 rows has no wgmma; one warp cannot issue it either."""
    machine = load("h100-sxm")
    mma, wgmma = units.paths(machine)
    assert (mma.share, wgmma.share) == (0.629, 1.0)
    assert not units.usable(wgmma, 16, 32, 4) and not units.usable(wgmma, 64, 64, 1) and units.usable(wgmma, 8, 64, 4)
    assert units.granular(mma, 16, 8, 16, 2) == 1 and units.granular(mma, 17, 8, 16, 2) == pytest.approx(32 / 17)
    assert units.granular(wgmma, 64, 8, 16, 2) == 1 and units.granular(wgmma, 1, 64, 8, 2) == 16
    assert [p.name for p in units.paths(load("b200"))] == ["mma.sync", "tcgen05"]
    with pytest.raises(InternalError, match="no cost rule for the operation 'fft'"):
        units.slots("fft")


def test_stages_hide_the_wait_and_an_unknown_latency_is_named():
    two, one = (price(_pipelined(stages), "h100-sxm", ROWS, threads=256) for stages in (2, 1))
    assert two.time < one.time
    assert dict(two.estimate.terms)["latency"] < dict(one.estimate.terms)["latency"]
    machine = load("h100-sxm")
    figures = tuple((k, f) for k, f in machine.figures if k != "dram_latency")
    blind = replace(machine, figures=figures)
    assert "latency" in price(_pipelined(2), blind, ROWS, threads=256).estimate.left_out


def _pipelined(stages: int):
    s = start(get("gemm").program, {})
    s = s.split("i", 128, into=("io", "ii")).split("j", 128, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
    s = s.split("acc.k", 32, into=("ko", "ki")).reorder("ko", "S1.ii", "S1.ji", "ki").place("acc", "register")
    s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared")
    return s.bind("io", "block.y").bind("jo", "block.x").pipeline("ko", stages=stages).program


def test_threads_in_bulk_equal_the_exact_price():
    """A schedule with bound threads, its formulas at many sizes against one price each."""
    tile = cublas.Tile.of(64, 128, 128, False)
    machine = load(cublas.TARGET)
    f = cublas.program("bmm", tile)
    sizes = {"B": [1, 3, 7], "M": [64, 200, 1000], "N": [300, 128, 90], "K": [64, 100, 33]}
    found = launch_seconds(f, machine, {n: np.array(v) for n, v in sizes.items()})
    source, schedule = cublas.KERNELS["bmm"]
    made = schedule(unproved(start(source, {}, contract=True), {}), tile)
    for n in range(3):
        exact = price(made.program, machine, {k: v[n] for k, v in sizes.items()})
        assert float(found[0][n]) == pytest.approx(exact.time, rel=1e-9)


def test_threads_that_copy_in_turn_in_bulk():
    machine = load("rtx-a6000")
    source, _ = cublas.KERNELS["bmm"]
    made = batched(unproved(start(source, {}, contract=True), {}), cublas.Tile.of(64, 64, 64, False), stages=1)
    f = formulas(made.program, Markers.of([]))
    assert f.launches[0].inner is not None
    sizes = {"B": [1, 2], "M": [512, 1024], "N": [256, 2048], "K": [64, 128]}
    (found,) = launch_seconds(f, machine, {n: np.array(v) for n, v in sizes.items()})
    for n in range(2):
        exact = price(made.program, machine, {k: v[n] for k, v in sizes.items()})
        assert float(found[n]) == pytest.approx(exact.time, rel=1e-9)


@pytest.fixture(scope="module")
def calls():
    """Every fortieth row of the measurements."""
    table = rows(cublas.FILE)[::40]
    return table, cublas.predicted(table, load(cublas.TARGET))


def test_absolute_time_of_a_library(calls):
    table, found = calls
    p, y = cublas.whole(found, cublas.HOST_US * 1e-6, 0.0)
    plain = cublas.error(cublas._roofline(table, load(cublas.TARGET)), y)
    _, _, fitted = cublas.fitted(found)
    assert len(y) == len(table) > 600
    assert cublas.error(p, y) < 0.19 and fitted < 0.11 and plain > 0.4
    assert cublas.error(cublas.whole(found, 0.0, 0.0)[0], y) > cublas.error(p, y) > fitted


@pytest.mark.parametrize("term", ["waves", "contention"])
def test_every_term_is_needed(calls, term: str, monkeypatch: pytest.MonkeyPatch):
    """Without it the predictions get worse (sharing in L2 hardly shows in these: f32 is bound by arithmetic)."""
    table, found = calls
    before, after, _ = cublas.fitted(found)
    whole, y = cublas.whole(found, before, after)
    if term == "waves":  # every SM gets the average number of blocks
        monkeypatch.setattr(kernel_time, "busiest", lambda blocks, sms: np.maximum(1.0, blocks / sms))
    else:  # the busiest unit hides the others altogether
        monkeypatch.setattr(kernel_time, "CONTENTION", 64)
    without, _ = cublas.whole(cublas.predicted(table, load(cublas.TARGET)), before, after)
    assert cublas.error(without, y) > cublas.error(whole, y) + 0.0005


def test_tuned_tiles_fit_and_failed_launches_do_not():
    found = feasibility.tuned(rows(feasibility.TUNED)[::30])
    assert len(found) == 25 and all(t.fits and t.pick_seconds <= t.seconds * 1.0001 for t in found)
    table = rows("convolution_rtx3090_feasible.csv.gz")
    held = feasibility.shared_bytes(*(np.array([int(r[a]) * int(r[b]) for r in table]) for a, b in (("by", "ty"), ("bx", "tx"))))
    assert held.tolist() == [int(r["smem_formula"]) for r in table]
    refused = held > feasibility.STATIC_SHARED
    assert refused.sum() == 1400 and all(r["status"] != "Ok" for r, no in zip(table, refused, strict=True) if no)


@pytest.mark.parametrize("group", ["A100-SXM4-40GB", "RTX 5090 @400W", "B200 (Modal)"])
def test_ladders_in_order(group: str):
    found = ladder.placed(group)
    assert len(found) > 1 and ladder.exceptions(found) == []
