"""How many blocks an SM holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import tilec
from tests.ledger.kernels import CHAPTER, KIB, gemm, gemm_cost, kib, limiters, queued
from tilec.api import Occupancy
from tilec.ir.dtypes import DTYPES
from tilec.targets import Limits

H100, RTX = "h100-sxm", "rtx-pro-6000"


def limits(target: str) -> Limits:
    found = tilec.target(target).limits
    assert found is not None
    return found


def resident(tile: int, bk: int, acc: str = "shared", threads: int = 256, registers: int = 128) -> Occupancy:
    """Of the product's square tiles on h100-sxm."""
    found = gemm_cost(tile, tile, bk, acc, target=H100, threads=threads, registers=registers).occupancy
    assert found is not None
    return found


def in_shared() -> dict[str, Any]:
    o = resident(128, 64)
    return {
        "thr": o.limits["threads"],
        "regs": o.limits["registers"],
        "smem": o.limits["shared"],
        "blk": o.limits["blocks"],
        "resident": o.blocks,
        "limiters": limiters(o),
        "warps": o.warps,
        "occ": o.fraction,
    }


def left() -> dict[str, Any]:
    o, machine = resident(128, 64), limits(H100)
    assert o.warps is not None
    return {"KiB left": kib(machine.shared_per_sm - o.blocks * o.allocated_shared), "threads": o.warps * machine.warp}


def in_registers() -> dict[str, Any]:
    """The accumulator moves to registers: what that adds per thread, on top of 64."""
    kept = gemm_cost(128, 128, 64, "register", target=H100, threads=256).footprint["register"]
    extra = Fraction(kept, DTYPES["i32"].bytes)
    o = resident(128, 64, "register", registers=64 + int(extra))
    return {
        "extra regs": extra,
        "smem": o.limits["shared"],
        "regs": o.limits["registers"],
        "resident": o.blocks,
        "limiters": limiters(o),
    }


def exercise_bytes() -> dict[str, Any]:
    o = resident(64, 64)
    return {"KiB": kib(gemm_cost(64, 64, 64).footprint["shared"]), "with reserve KiB": kib(o.allocated_shared)}


def exercise() -> dict[str, Any]:
    o = resident(64, 64)
    return {
        "per": tuple(o.limits[n] for n in ("threads", "registers", "shared", "blocks")),
        "resident": o.blocks,
        "limiter": limiters(o),
        "warps": o.warps,
        "occ": o.fraction,
    }


def by_shared(tile: int, stages: int = 1) -> Occupancy:
    found = gemm_cost(tile, tile, stages=stages, target=RTX).occupancy
    assert found is not None and found.limiters == ("shared",)
    return found


def two_tiles() -> dict[str, Any]:
    small, large = by_shared(64), by_shared(128)
    return {
        f"{kib(small.launch.shared)}": small.blocks,
        f"{kib(large.launch.shared)}": large.blocks,
        "24 exact fit": small.blocks * small.allocated_shared == limits(RTX).shared_per_sm,
    }


def queues() -> dict[str, Any]:
    """Room for a second block: the bytes each may have, and the slots of the queue that go into them."""

    def blocks(slots: int) -> Occupancy:
        found = queued(slots).cost(RTX, M=CHAPTER["M"], N=CHAPTER["N"]).occupancy
        assert found is not None
        return found

    change = blocks(3).gain
    assert change is not None
    ((what, _, to),) = change.steps
    assert what == "shared"
    return {"KiB each": kib(to), "slots": max(n for n in (1, 2, 3) if blocks(n).blocks >= 2)}


def double_buffered() -> dict[str, Any]:
    out: dict[str, Any] = {}
    for tile in (64, 128):
        out[str(tile)] = kib(gemm(tile, tile, stages=2).cost(**CHAPTER).footprint["shared"])
        out[f"n{tile}"] = by_shared(tile, 2).blocks
    return out


def units() -> dict[str, Any]:
    """A sub-partition has a matrix unit, and issues one instruction of a warp in f32 per cycle."""
    machine = limits(H100)
    matrix = tilec.target(H100).cores * machine.sub_partitions
    return {"fp32": matrix * machine.warp, "tc": matrix}


def table() -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, threads, registers, shared in (
        ("256thr/32regs/0", 256, 32, 0),
        ("256/64/0", 256, 64, 0),
        ("256/128/0", 256, 128, 0),
        ("256/255/0", 256, 255, 0),
        ("128/32/100KiB", 128, 32, 100 * KIB),
    ):
        o = tilec.occupancy(H100, threads=threads, registers=registers, shared_bytes=shared)
        assert o.fraction is not None
        out[name] = (o.blocks, limiters(o), o.warps, Fraction(o.fraction))
    return out


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "C5-S5.1.5-b": in_shared,
    "C5-S5.1.5-c": left,
    "C5-S5.1.5-d": in_registers,
    "C5-PR5.1-a": exercise_bytes,
    "C5-PR5.1-b": exercise,
    "C5-EX5.3-i": two_tiles,
    "C5-S5.3.2-c": queues,
    "C5-S5.4.5-a": double_buffered,
    "P1-S2.1-a": units,
    "P1-S3.4-a": table,
}
