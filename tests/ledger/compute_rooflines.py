"""Rooflines: intensities, ridges, and shares of the roofs that are reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import tilec
from tests.ledger.compute_levels import A100, B200, H100, ROUNDED, RTX, at, peak
from tests.ledger.kernels import chain, gemm, gemm_cost
from tilec.cost.banks import BANKS, WORD
from tilec.cost.raster import operand_sharing
from tilec.cost.roofline import ridge, roofline
from tilec.ir.dtypes import DTYPES
from tilec.targets import Target


def tile_intensity(tile: int) -> Fraction:
    cost = gemm_cost(tile, tile)
    return Fraction(cost.flops, cost.traffic.total("global"))


def tile_ai(tile: int) -> Callable[[], dict[str, Any]]:
    return lambda: {"AI": float(tile_intensity(tile))}


def tile_mfu(tile: int) -> Callable[[], dict[str, Any]]:
    def found() -> dict[str, Any]:
        cost = gemm_cost(tile, tile)
        return {"pct": 100 * roofline(H100, cost.flops, cost.traffic.total("global"), "bf16").attainable / peak(H100)}

    return found


def chain_bound() -> dict[str, Any]:
    """SiLU and product fused against apart."""
    apart, fused = (
        roofline(H100, 0, sum(x.traffic.total("global") for x in launches)).memory
        for launches in (chain().launch[:2], chain("T").launch[:1])
    )
    return {"ratio": fused / apart, "x": apart / fused}


def ridge_of(machine: str | Target, unit: str = "matrix", dtype: str = "bf16") -> Callable[[], dict[str, Any]]:
    return lambda: {"ridge": ridge(machine, dtype, unit)}


def batch_one() -> dict[str, Any]:
    r = roofline(ROUNDED, 1, 1, "bf16")
    pct = 100 * r.attainable / peak(ROUNDED)
    return {"pct": pct, "<1": pct < 1}


def units() -> dict[str, Any]:
    return {"x": peak(ROUNDED) / peak(ROUNDED, "f32", "vector")}


def shared_rate() -> dict[str, Any]:
    machine = tilec.target(H100)
    rate = BANKS * WORD * machine.cores * machine.clock
    return {"TB/s": rate / 1e12, "x": rate / machine.bandwidth}


def per_clock() -> dict[str, Any]:
    new, old = (peak(n) / tilec.target(n).cores / tilec.target(n).clock for n in (H100, A100))
    return {"x": new / old}


def compulsory(m: int, k: int, n: int) -> tuple[int, int]:
    """Operations of a product in bf16, and the bytes that any schedule of it moves."""
    cost = tilec.workload("gemm").schedule().cost(M=m, K=k, N=n)
    return cost.flops, cost.lower_bound()


def least(m: int, k: int, n: int) -> Fraction:
    flops, count = compulsory(m, k, n)
    return Fraction(flops, count)


def cube() -> dict[str, Any]:
    return {"AI": least(4096, 4096, 4096)}


def cube_in_tiles() -> dict[str, Any]:
    cost = gemm(128, 256).cost(M=4096, K=4096, N=4096)
    by = cost.traffic.by_buffer("global")
    return {
        "with C write": cost.flops / sum(by.values()),
        "reads only": cost.flops / (by["A"] + by["W"]),
    }


def gate_up() -> dict[str, Any]:
    return {name: least(m, 4096, 28672) for name, m in (("M=1 gate_up", 1), ("M=64", 64), ("M=256", 256))}


def crossing(machine: str, k: int, n: int) -> int:
    """The fewest rows at which the product is no longer bound by memory; its intensity grows with the rows."""
    low, high = 0, 2**16
    while high - low > 1:
        middle = (low + high) // 2
        flops, count = compulsory(middle, k, n)
        low, high = (low, middle) if roofline(machine, flops, count, "bf16").bound == "compute" else (middle, high)
    return high


def crossings() -> dict[str, Any]:
    return {
        "gate_up": crossing(A100, 4096, 28672),
        "qkv": crossing(A100, 4096, 6144),
        "H100 gate_up": crossing(ROUNDED, 4096, 28672),
    }


def used_bandwidth() -> dict[str, Any]:
    return {"MBU": roofline(at(2e12), 0, 14e9).memory / 14e-3}


def square_tile() -> dict[str, Any]:
    return {"AI": operand_sharing(1, 1, 1, 1).intensity(64, 64)}


def two_machines() -> dict[str, Any]:
    each = 70.6e9 * DTYPES["f8e4m3"].bytes / 2
    full, reached = roofline(H100, 0, each), roofline(H100, 0, each, efficiency=0.8)
    return {
        "GB": each / 1e9,
        "TB/s": each / 20e-3 / 1e12,
        "MBU": 100 * full.memory / 20e-3,
        "ms": reached.memory * 1e3,
    }


def ridges_fell() -> dict[str, Any]:
    return {"B200": ridge(B200), "B200 < H100": ridge(B200) < ridge(ROUNDED)}


def product_of_notes() -> dict[str, Any]:
    flops, count = compulsory(1024, 512, 2048)
    return {"FLOPs": flops, "bytes": count, "AI": flops / count}


def vector_of_notes() -> dict[str, Any]:
    flops, count = compulsory(1, 512, 2048)
    return {"FLOPs": flops, "bytes": count, "AI": Fraction(flops, count)}


def norm() -> dict[str, Any]:
    """Bytes: a row read and written in bf16; operations as the notes count them."""
    d = 4096
    cost = tilec.workload("layernorm").schedule().cache_read("X", at="i", memory="shared").cost(M=1, K=d)
    by = cost.traffic.by_buffer("global")
    count = by["X"] + by["Y"]
    return {"lo": roofline(H100, 5 * d, count).intensity, "hi": roofline(H100, 8 * d, count).intensity}


def growth() -> dict[str, Any]:
    old = at(2.0e12, A100)
    return {"c": peak(ROUNDED) / peak(A100), "b": tilec.target(ROUNDED).bandwidth / old.bandwidth}


def trend() -> dict[str, Any]:
    compute, memory = peak(B200) / peak(ROUNDED), tilec.target(B200).bandwidth / tilec.target(ROUNDED).bandwidth
    return {"H100→B200 compute": compute, "bw": memory, "bandwidth grew more": memory > compute}


def one_query() -> dict[str, Any]:
    return {"AI": least(1, 128, 8192)}


def larger_tile_wins() -> dict[str, Any]:
    """More resident blocks against less traffic, at two stages: a single one leaves the wait for copies to other blocks."""
    small, large = (gemm_cost(t, t, stages=2, target=RTX) for t in (64, 128))
    assert small.occupancy is not None and large.occupancy is not None
    wins = large.occupancy.blocks < small.occupancy.blocks and large.time < small.time
    return {"verdict": "cost model may prefer lower occupancy with larger tiles" if wins else "occupancy decides"}


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "C5-EX5.3-t32-ai": tile_ai(32),
    "C5-EX5.3-t64-ai": tile_ai(64),
    "C5-EX5.3-t128-ai": tile_ai(128),
    "C5-EX5.3-t32-mfu": tile_mfu(32),
    "C5-EX5.3-t64-mfu": tile_mfu(64),
    "C5-EX5.3-t128-mfu": tile_mfu(128),
    "C5-EX5.4-b": chain_bound,
    "P1-S1-a": ridge_of(ROUNDED),
    "P1-S1-b": batch_one,
    "P1-S2.3-a": units,
    "P1-S2.4-a": shared_rate,
    "P1-S3.5-a": per_clock,
    "P1-S4.1-a": cube,
    "P1-S4.3-a": cube_in_tiles,
    "P1-S4.6-a": gate_up,
    "P1-S5.1-a": ridge_of(ROUNDED, "vector", "f32"),
    "P1-E1-a": ridge_of(A100),
    "P1-E1-b": crossings,
    "P1-S6.4-a": used_bandwidth,
    "P1-E3-a": square_tile,
    "P1-E7-a": two_machines,
    "P1-S11-b": ridges_fell,
    "D3-AI-a": product_of_notes,
    "D3-AI-b": vector_of_notes,
    "D3-LN-a": norm,
    "D3-HW-a": lambda: ridge_of(at(2.0e12, A100))(),
    "D3-HW-b": ridge_of(ROUNDED),
    "D3-HW-c": ridge_of(B200),
    "D3-HW-d": growth,
    "D3-HW-e": trend,
    "D3-BOUND-d": one_query,
    "P1-S3.4-d": larger_tile_wins,
}
