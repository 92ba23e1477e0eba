"""The main job's figures, through the face as a user calls it: a product, SiLU behind it, the activation chain, row scales."""

from __future__ import annotations

from functools import cache
from itertools import product

import pytest

import tilec
from tilec.api import Schedule
from tilec.errors import TargetError

KIB, MIB = 2**10, 2**20
BIG = {"M": 1024, "K": 4096, "N": 12288}
CHAIN = {"M": 1024, "N": 12288}
ROWS = {"M": 4096, "K": 4096, "N": 1536}


def in_blocks(s: Schedule, out: str, tile: int, depth: int) -> Schedule:
    s = s.split(f"{out}.i", tile, into=("io", "ii")).split(f"{out}.j", tile, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
    return s.split("acc.k", depth, into=("ko", "ki")).reorder("io", "jo", "ko", "ii", "ji", "ki")


def operands(s: Schedule) -> Schedule:
    return s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", "shared")


@cache
def gemm(tile: int, depth: int = 32, stages: int = 1) -> Schedule:
    s = operands(in_blocks(tilec.workload("gemm").schedule(), "C", tile, depth))
    return s.bind("io", "block.y").bind("jo", "block.x").pipeline("ko", stages=stages)


@cache
def with_silu(at_the_tile: bool) -> Schedule:
    """C stored and read again by SiLU, or SiLU at the output tile; tiles of 64 × 64."""
    s = tilec.workload("gemm_silu").schedule()
    if not at_the_tile:
        return operands(in_blocks(s, "C", 64, 32)).bind(("io", "Y.i"), "block.y").bind("jo", "block.x")
    s = s.compute_inline("C").split("Y.i", 64, into=("io", "ii")).split("Y.j", 64, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ii", "ji").compute_at("acc", "jo").split("acc.k", 32, into=("ko", "ki"))
    return operands(s.reorder("ko", "acc.i", "acc.j", "ki")).bind("io", "block.y").bind("jo", "block.x")


def row_quantised(s: Schedule, operand: str, tile: int) -> Schedule:
    """rowquant_gemm with its quantised operand "stored", from a row of A that is kept, or "recomputed" in every column block."""
    if operand == "stored":
        s = s.fuse_siblings("S.i", "Q.i").cache_read("A", at="Q.i", memory="shared")
        s = s.cache_write("S", at="Q.i", memory="register")
        s = in_blocks(s, "Y", tile, 32).cache_read("Q", at="ko", memory="shared")
    else:
        s = in_blocks(s, "Y", tile, 32).compute_at("Q", "ko").place("Q", "shared")
    return s.cache_read("W", at="ko", memory="shared").cache_read("S", at="jo", memory="shared").place("acc", "shared")


@cache
def quantised(operand: str) -> Schedule:
    return row_quantised(tilec.workload("rowquant_gemm").schedule(), operand, 128)


def enumerated(tile: int, depth: int, m: int, n: int, k: int) -> int:
    """Bytes of a tiled product in bf16: every tile of A and W as it is loaded, every tile of C as it is stored."""
    moved = 0
    for i, j in product(range(0, m, tile), range(0, n, tile)):
        rows, columns = min(tile, m - i), min(tile, n - j)
        moved += 2 * rows * columns
        for p in range(0, k, depth):
            moved += 2 * (rows + columns) * min(depth, k - p)
    return moved


@pytest.mark.parametrize(
    ("tile", "kib", "mib", "intensity"), [(32, 8, 6168, 15.94), (64, 24, 3096, 31.75), (128, 80, 1560, 63.02)]
)
def test_the_product_at_three_tiles(tile: int, kib: int, mib: int, intensity: float) -> None:
    s = gemm(tile)
    cost = s.cost("rtx-pro-6000", **BIG)
    assert cost.footprint["shared"] == kib * KIB
    assert cost.traffic.total("global") == mib * MIB
    assert round(cost.intensity("global"), 2) == intensity
    assert cost.flops == 2 * BIG["M"] * BIG["N"] * BIG["K"]
    assert cost.lower_bound("global") == cost.footprint["global"] == 128 * MIB
    assert cost.traffic.by_buffer("global")["C"] == cost.traffic.by_buffer("global")["C"].write == 24 * MIB
    assert s.check().status == "legal"


@pytest.mark.parametrize("tile", [32, 64, 128])
@pytest.mark.parametrize("stages", [1, 2])
def test_partial_tiles_at_odd_sizes(tile: int, stages: int) -> None:
    cost = gemm(tile, stages=stages).cost(M=1000, K=1001, N=1003)
    assert cost.traffic.total("global") == enumerated(tile, 32, 1000, 1003, 1001)
    assert cost.flops == 2 * 1000 * 1001 * 1003
    # a tile that does not fill its buffers still has them whole
    assert cost.footprint["shared"] == 4 * tile * tile + stages * 2 * 2 * 32 * tile


@pytest.mark.parametrize(("tile", "stages", "kib", "blocks"), [(64, 1, 24, 4), (128, 1, 80, 1), (64, 2, 32, 3), (128, 2, 96, 1)])
def test_blocks_on_an_sm_of_rtx_pro_6000(tile: int, stages: int, kib: int, blocks: int) -> None:
    cost = gemm(tile, stages=stages).cost("rtx-pro-6000", **BIG)
    assert cost.footprint["shared"] == kib * KIB
    found = cost.occupancy
    assert found is not None and (found.blocks, found.limiters, found.shared_per_sm) == (blocks, ("shared",), 102_400)
    assert found.allocated_shared == (kib + 1) * KIB


def test_two_limiters_on_h100() -> None:
    found = gemm(128, depth=64).cost("h100-sxm", threads=256, registers=128, **BIG).occupancy
    assert found is not None and found == tilec.occupancy("h100-sxm", threads=256, registers=128, shared_bytes=96 * KIB)
    assert (found.blocks, found.warps, found.fraction, found.limiters) == (2, 16, 0.25, ("registers", "shared"))


def test_a_compute_capability_is_a_target_for_occupancy() -> None:
    s = gemm(64)
    found = s.cost("8.6", threads=256, registers=128, **BIG).occupancy
    assert found is not None and found == tilec.occupancy("8.6", threads=256, registers=128, shared_bytes=24 * KIB)
    assert found.limits == tilec.occupancy("rtx-3090", threads=256, registers=128, shared_bytes=24 * KIB).limits
    # 48 warps, 65,536 registers and 102,400 B of shared memory per SM
    assert (found.blocks, found.warps, found.limiters, found.limits["shared"]) == (2, 16, ("registers",), 4)
    assert found.fraction == 16 / 48
    with pytest.raises(TargetError):
        _ = s.cost("8.6", **BIG).time
    for capability in ("7.5", "10.3"):
        assert tilec.occupancy(capability, threads=32, registers=32).blocks > 0


def test_the_product_and_silu_behind_it() -> None:
    apart, fused = with_silu(False), with_silu(True)
    moved = [s.cost(**BIG).traffic for s in (apart, fused)]
    assert [t.total("global") for t in moved] == [3144 * MIB, 3096 * MIB]
    c = moved[0].by_buffer("global")["C"]
    assert (c.read, c.write) == (24 * MIB, 24 * MIB) and "C" not in moved[1].by_buffer("global")
    assert [s.cost(**BIG).launches for s in (apart, fused)] == [2, 1]
    assert apart.check().status == fused.check().status == "legal"


def test_the_fused_text_rounds_before_silu_and_keeps_the_accumulator_over_ko() -> None:
    s = with_silu(True)
    assert s.program.buffer["acc"].owner == "jo"
    lines = str(s).splitlines()
    (store,) = (line for line in lines if line.strip().startswith("Y["))
    assert "bf16(silu(bf16(acc[" in store
    acc, ko = (next(n for n, line in enumerate(lines) if line.strip().startswith(head)) for head in ("acc: f32", "for ko in"))
    assert "for jo in" in lines[acc - 1] and acc < ko < lines.index(store)
    assert lines[acc].index("acc") == lines[ko].index("for")  # declared beside the loop, not in it
    tile = s.emit("tile")
    assert "store_tile(Y, bf16(silu(bf16(acc)))" in tile
    assert tile.index("acc: f32") < tile.index("for ko in") < tile.index("store_tile(Y")


@pytest.mark.parametrize(
    ("inlined", "traffic", "peak"), [((), 156, 72), (("T",), 108, None), (("Z",), 108, None), (("T", "Z"), 60, 60)]
)
def test_the_chain_in_its_four_partitions(inlined: tuple[str, ...], traffic: int, peak: int | None) -> None:
    s = tilec.workload("act_chain").schedule()
    for buffer in inlined:
        s = s.compute_inline(buffer)
    cost = s.cost("h200", **CHAIN)
    assert cost.traffic.total("global") == traffic * MIB and cost.launches == 3 - len(inlined)
    assert s.check().status == "legal"
    if peak is not None:
        assert cost.working_set["global"] == peak * MIB


def test_row_quantisation_stored_and_recomputed() -> None:
    costs = {operand: quantised(operand).cost("h200", **ROWS) for operand in ("stored", "recomputed")}
    by = {operand: cost.traffic.by_buffer("global") for operand, cost in costs.items()}
    total = {operand: sum(v for b, v in moved.items() if b in ("A", "Q", "W", "Y")) for operand, moved in by.items()}
    assert total == {"stored": 444 * MIB, "recomputed": 620 * MIB}
    for operand, moved in by.items():  # the scales stand apart: a few hundred KiB
        assert set(moved) - {"A", "Q", "W", "Y"} == {"S"} and moved["S"].write == 4 * 4096
        assert 0 < moved["S"] < 512 * KIB
        assert total[operand] + moved["S"] == costs[operand].traffic.total("global")
    stored, recomputed = by["stored"], by["recomputed"]
    assert (stored["Q"].write, stored["Q"].read, stored["A"].read) == (16 * MIB, 192 * MIB, 32 * MIB)
    assert recomputed["A"].read == (32 + 12 * 32) * MIB and "Q" not in recomputed
    assert costs["stored"].launch[0].footprint.by_buffer("shared") == {"A_shared": 8 * KIB}
    verdicts = [quantised(operand).check() for operand in ("stored", "recomputed")]
    assert [v.status for v in verdicts] == ["legal", "legal"]
    assert not verdicts[0].recomputed and verdicts[1].recomputed


def test_tune_says_stored_or_recomputed_and_why() -> None:
    """Two structures at the tiles of the text. Those that tune derives by itself are shown by the demo (test_examples.py)."""
    found = tilec.tune(
        tilec.workload("rowquant_gemm"),
        sizes=ROWS,
        target="h200",
        space={"operand": ["recomputed", "stored"], "tile": [128]},
        schedule=lambda s, operand, tile: row_quantised(s, operand, tile),
    )
    first, second = found.top(2)
    assert (first.knobs["operand"], second.knobs["operand"]) == ("stored", "recomputed")
    assert [c.cost.traffic.total("global") // MIB for c in (first, second)] == [444, 620]
    assert first.cost.bound == second.cost.bound == "global" and first.cost.time < second.cost.time
    why = found.why()
    assert "bound by global: 444." in why and "operand=recomputed" in why and "620." in why
