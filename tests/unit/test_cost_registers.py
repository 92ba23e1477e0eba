"""Registers of a launch where no compiler has said how many: the fitted lines, floors, spilling, and that all prices agree."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.gpu_report.schedules import CASES
from benchmarks.model import cublas
from tests.handbuilt import gemm_silu_tiled
from tilec.codegen.triton import emit, options_for
from tilec.cost.bulk import formulas, launch_seconds
from tilec.cost.occupancy import occupancy
from tilec.cost.price import price
from tilec.cost.residents import residents
from tilec.cost.separable import Markers
from tilec.ir.program import Program
from tilec.schedule.schedule import start
from tilec.search.gpu import predicted
from tilec.search.unproved import unproved
from tilec.targets import load
from tilec.workloads import get

SIZES = {"M": 1024, "K": 4096, "N": 12288}


def tiled(kernel: str, bm: int, bn: int, bk: int, stages: int) -> Program:
    s = unproved(start(get(kernel).program, {}, "acc"), {})
    out, inner = ("", ("S1.ii", "S1.ji"))
    if kernel == "gemm_silu":
        s, out, inner = s.compute_inline("C"), "Y.", ("acc.i", "acc.j")
    s = s.split(f"{out}i", bm, into=("io", "ii")).split(f"{out}j", bn, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
    s = s if kernel == "gemm" else s.compute_at("acc", "jo")
    s = s.split("acc.k", bk, into=("ko", "ki")).reorder("ko", *inner, "ki")
    s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", "register")
    s = s.bind("io", "block.y").bind("jo", "block.x")
    return (s.pipeline("ko", stages=stages) if stages > 1 else s).program


@pytest.mark.parametrize("target", ["a100-sxm", "h100-sxm", "b200", "rtx-pro-6000"])
def test_a_price_has_the_registers_of_the_emitted_kernel(target: str):
    """Where tile_fit.py predicts them from the emitted text, the price predicts the same from the tree."""
    machine, compared = load(target), 0
    for case in CASES:
        s = case.schedule()
        for warps in (4, 8):
            wanted = predicted(emit(s.program, options_for(machine, warps)), machine, case.real)
            launches = [one for one in price(s.program, machine, case.real, 32 * warps).launch if one.is_bound]
            for one, want in zip(launches, wanted, strict=True):
                if want.registers is not None:
                    compared += 1
                    assert one.occupancy is not None and one.occupancy.launch.registers == want.registers, case.name
                    assert one.occupancy.assumed.startswith(f"about {want.registers} registers per thread, as compilers give")
    assert compared >= 20


def test_a_block_of_unknown_threads_has_a_register_limit():
    """A newcomer saw 25 resident blocks with 16 KiB of accumulators each: more than the register file of 256 KiB holds."""
    p = tiled("gemm", 64, 64, 32, 1)
    c = price(p, "h100-sxm", SIZES)
    o = c.occupancy
    assert o is not None and o.blocks == 16 and o.limits["registers"] == 16 and o.limiters == ("registers",)
    assert "at least 16,384 B of registers per block, for what it keeps" in str(o) and o.unknown == ("threads",)
    assert str(o.gain) == "kept in registers 16,384 → 15,420 B"
    assert int(c.launch[0].estimate.detail.resident) == 16  # type: ignore[union-attr]
    limits = load("h100-sxm").limits
    assert limits is not None
    shared = np.array([o.launch.shared])
    none = np.array([0])
    assert residents(limits, none, none, shared, np.array([16384])).tolist() == [16]
    assert residents(limits, none, none, shared).tolist() == [25]  # what it was without the limit
    over = price(tiled("gemm", 256, 512, 16, 1), "h100-sxm", SIZES)
    assert over.occupancy is not None and over.occupancy.blocks == 0
    assert over.problems and over.problems[0].startswith(
        "'gemm' keeps 524,288 B in registers per block; h100-sxm allows 262,144 B"
    )


TILES = [(32, 64, 16), (64, 64, 32), (64, 128, 32), (128, 128, 32), (128, 256, 64), (16, 16, 16), (256, 64, 16)]


@pytest.mark.parametrize(("kernel", "stages"), [("gemm_silu", 3), ("gemm", 1)])
@pytest.mark.parametrize("target", ["h100-sxm", "a100-sxm", "rtx-4090", "v100"])
def test_all_prices_hold_the_same_residents(kernel: str, stages: int, target: str):
    """Exact price, occupancy, time model and whole arrays: one number of resident blocks, one time; threads known or not."""
    machine = load(target)
    markers = Markers.of(["BM", "BN", "BK"])
    f = formulas(tiled(kernel, *(v for _, v in markers.values), stages), markers)
    knobs = {n: np.array([t[k] for t in TILES]) for k, n in enumerate(("BM", "BN", "BK"))}
    values = {n: np.full(len(TILES), v) for n, v in SIZES.items()} | knobs
    seen: set[str] = set()
    for threads in (None, 64, 128, 256, 1024):
        (found,) = launch_seconds(f, machine, values, threads)
        for n, tile in enumerate(TILES):
            one = price(tiled(kernel, *tile, stages), machine, SIZES, threads).launch[0]
            assert one.occupancy is not None and one.estimate is not None and one.estimate.detail is not None
            assert int(one.estimate.detail.resident) == one.occupancy.blocks
            assert float(found[n]) == pytest.approx(one.estimate.seconds, rel=1e-12), (threads, tile)
            seen.add(one.occupancy.assumed.split(" ")[0] + one.occupancy.assumed[-9:])
    assert len(seen) >= 3  # floors of blocks, fitted numbers, spills


def test_threads_that_are_bound_count_fragments_and_addresses():
    """A library's 128 × 128 tile by 256 threads, copies ahead: 64 sums and 16 operands kept, addresses on top, 2 blocks."""
    source, schedule = cublas.KERNELS["bmm"]
    made = schedule(unproved(start(source, {}, contract=True), {}), cublas.Tile.of(128, 128, 256, False))
    c = price(made.program, cublas.TARGET, {"B": 1, "M": 1024, "N": 1024, "K": 1024})
    o = c.occupancy
    assert o is not None and o.launch.registers is not None
    assert o.launch.registers > 80 and o.blocks == 2 and "with fragments and addresses" in o.assumed
    assert int(c.launch[0].estimate.detail.resident) == 2  # type: ignore[union-attr]
    assert occupancy(cublas.TARGET, 256, 80, o.launch.shared).blocks == 3  # by what is kept alone


def test_spilling_costs_time_and_a_compilers_number_does_not():
    """128 × 256 sums of 4 warps want more than a thread can have: spilled, and the bytes go through the SM's load/store unit."""
    p = tiled("gemm", 128, 256, 32, 3)
    wanted, given = price(p, "h100-sxm", SIZES, 128), price(p, "h100-sxm", SIZES, 128, registers=255)
    assert wanted.occupancy is not None and "B of spills per block" in wanted.occupancy.assumed
    assert given.occupancy is not None and given.occupancy.assumed == "" and wanted.time > given.time
    assert dict(wanted.estimate.terms)["shared"] > dict(given.estimate.terms)["shared"]  # type: ignore[union-attr]
    assert "spills" not in str(price(p, "h100-sxm", SIZES, 256).occupancy)


def test_open_sizes_have_a_floor():
    c = price(gemm_silu_tiled(64), "h100-sxm", {}, threads=128)
    assert c.occupancy is not None and c.occupancy.blocks >= 1
    kept = price(tiled("gemm", 64, 64, 32, 1), "h100-sxm", {}, threads=128).occupancy
    assert kept is not None and kept.assumed == "at least 32 registers per thread, for what it keeps"
