"""Occupancy against NVIDIA's own calculator and the figures of the reference texts."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tilec.cost.occupancy import NAMES, occupancy
from tilec.errors import ResourceError, TargetError

DATA = Path(__file__).parent.parent / "data"
WORDS = {"warps": "threads", "regs": "registers", "smem": "shared", "blocks": "blocks", "barriers": "barriers"}


def _rows() -> list[dict[str, str]]:
    with open(DATA / "occupancy_nvidia.csv", encoding="utf-8") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


def _of(row: dict[str, str]):
    return occupancy(
        f"{row['cc'][:-1]}.{row['cc'][-1]}",
        threads=int(row["threads"]),
        registers=int(row["regs"]),
        static_shared=int(row["static_smem"]),
        dynamic_shared=int(row["dynamic_smem"]),
        carveout=None if row["carveout"] == "-1" else int(row["carveout"]),
        barriers=int(row["barriers"]),
    )


def test_equals_every_case_of_nvidias_calculator():
    rows = _rows()
    assert len(rows) == 2000
    for row in rows:
        o = _of(row)
        assert o.blocks == int(row["blocks"]), row
        assert set(o.limiters) == {WORDS[w] for w in row["limiters"].split("|")}, row
        for column, name in (
            ("warps", "threads"),
            ("regs", "registers"),
            ("smem", "shared"),
            ("blocks", "blocks"),
            ("barriers", "barriers"),
        ):
            want = int(row[f"lim_{column}"])
            got = o.limits.get(name)
            assert (-1 if got is None else got) == want or (column == "regs" and got is None and want > 10**6), (column, row, got)
        assert o.allocated_registers == int(row["alloc_regs"]), row
        assert o.allocated_shared == int(row["alloc_smem"]), row


def test_the_gain_it_names_really_gains_one_block_and_less_does_not():
    rows = _rows()[::7]
    named = 0
    for row in rows:
        o = _of(row)
        if o.gain is None:
            continue
        named += 1
        args = dict(
            threads=int(row["threads"]),
            registers=int(row["regs"]),
            shared_bytes=int(row["static_smem"]) + int(row["dynamic_smem"]),
            carveout=None if row["carveout"] == "-1" else int(row["carveout"]),
            barriers=int(row["barriers"]),
        )
        key = {"shared": "shared_bytes"}
        new = args | {key.get(what, what): to for what, _, to in o.gain.steps}
        target = f"{row['cc'][:-1]}.{row['cc'][-1]}"
        assert occupancy(target, **new).blocks > o.blocks, (row, o.gain)
        for what, _, to in o.gain.steps:  # one unit less of the change isn't enough
            if what in ("registers", "shared", "barriers"):
                weaker = new | {key.get(what, what): to + (1 if what != "shared" else 128)}
                assert occupancy(target, **weaker).blocks <= o.blocks or len(o.gain.steps) > 1, (row, o.gain)
    assert named > 100


def test_reference_cases():
    o = occupancy("h100-sxm", threads=256, registers=128, shared_bytes=96 * 1024)
    assert (o.blocks, o.warps, o.fraction, o.limiters) == (2, 16, 0.25, ("registers", "shared"))
    assert [o.limits[n] for n in ("threads", "registers", "shared", "blocks")] == [8, 2, 2, 32]
    o = occupancy("h100-sxm", threads=256, registers=128, shared_bytes=32 * 1024)
    assert (o.blocks, o.limiters, o.limits["shared"]) == (2, ("registers",), 6)
    for kib, blocks in ((24, 4), (80, 1), (32, 3), (96, 1)):
        assert occupancy("rtx-pro-6000", shared_bytes=kib * 1024).blocks == blocks
    o = occupancy("rtx-pro-6000", shared_bytes=24 * 1024)
    assert o.unknown == ("threads", "registers") and o.limiters == ("shared",) and o.warps is None
    for threads, registers, shared, want in (
        (256, 32, 0, (8, ("threads", "registers"), 64)),
        (256, 64, 0, (4, ("registers",), 32)),
        (256, 255, 0, (1, ("registers",), 8)),
        (128, 32, 100 * 1024, (2, ("shared",), 8)),
    ):
        o = occupancy("h100-sxm", threads=threads, registers=registers, shared_bytes=shared)
        assert (o.blocks, o.limiters, o.warps) == want


def test_a_block_that_does_not_fit_says_why():
    o = occupancy("h200", threads=2048, registers=300, shared_bytes=245760)
    assert o.blocks == 0 and set(o.limiters) == {"threads", "registers", "shared"}
    with pytest.raises(ResourceError) as e:
        o.require("'gemm_silu'")
    assert str(e.value) == (
        "'gemm_silu' has 2,048 threads; h200 allows 1,024 per block\n"
        "  and needs 300 registers per thread; h200 allows 255\n"
        "  and needs 245,760 B of shared memory per block; h200 allows 232,448 B"
    )
    assert occupancy("h200", threads=128, shared_bytes=232448).require().blocks == 1


def test_wrong_arguments():
    with pytest.raises(ResourceError, match="threads must be at least 1, got 0"):
        occupancy("8.6", threads=0)
    with pytest.raises(ResourceError, match="carveout is a percentage"):
        occupancy("8.6", threads=32, carveout=101)
    with pytest.raises(ResourceError, match="shared bytes must be at least 0"):
        occupancy("8.6", threads=32, dynamic_shared=-4)
    with pytest.raises(TargetError, match="capacities per core"):
        occupancy("tpu-v5e", threads=32)
    with pytest.raises(TargetError, match=r"unknown compute capability '6\.1'"):
        occupancy("6.1", threads=32)


def test_barriers_cap_from_hopper_on_and_binding_is_strict():
    o = occupancy("9.0", threads=96, registers=26, barriers=16)
    assert o.blocks == 4 and o.binding == ("barriers",) and "barriers" in o.limiters
    assert set(o.limits) == set(NAMES)
    assert "barriers" not in occupancy("8.6", threads=96, registers=26, barriers=16).limits
