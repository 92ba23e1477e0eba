"""Chains of steps, separate and fused: what they move and what is alive."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import tilec
from tests.ledger.kernels import CHAPTER, add_rmsnorm, blocked, chain, gemm_cost, mib, twice
from tilec.ir.dtypes import DTYPES

ROUNDED = str(Path(__file__).parent / "h100_rounded.toml")


def moved(*inlined: str) -> Fraction:
    return mib(chain(*inlined).traffic.total("global"))


def two_steps() -> dict[str, Any]:
    """SiLU and the product, apart and as one step."""
    silu, product = (mib(step.traffic.total("global")) for step in chain().launch[:2])
    fused = mib(chain("T").launch[0].traffic.total("global"))
    return {"silu": silu, "mul": product, "sum": silu + product, "fused": fused, "saved": silu + product - fused}


def three_steps() -> dict[str, Any]:
    return {
        "quant": mib(chain().launch[2].traffic.total("global")),
        "separate": moved(),
        "fuse first two": moved("T"),
        "all": moved("T", "Z"),
        "fuse last two (variation)": moved("Z"),
    }


def alive() -> dict[str, Any]:
    apart, fused = (mib(c.working_set["global"]) for c in (chain(), chain("T", "Z")))
    return {"sep": apart, "fused": fused, "traffic": moved() - moved("T", "Z"), "peak": apart - fused}


def alive_by_step() -> dict[str, Any]:
    apart, fused = chain().working_set, chain("T", "Z").working_set
    timeline = tuple(map(mib, apart.timeline))
    return {"sep": mib(apart["global"]), "fused": mib(fused["global"]), "timeline sep": timeline}


@cache
def with_silu(at_the_tile: bool) -> Fraction:
    """MiB of the product and SiLU with 64 × 64 tiles: C stored and read again, or SiLU inside the output tile."""
    s = tilec.workload("gemm_silu").schedule()
    if at_the_tile:
        s = s.compute_inline("C").split("Y.i", 64, into=("io", "ii")).split("Y.j", 64, into=("jo", "ji"))
        s = s.reorder("io", "jo", "ii", "ji").compute_at("acc", "jo").split("acc.k", 32, into=("ko", "ki"))
        s = s.reorder("ko", "acc.i", "acc.j", "ki")
    else:
        s = blocked(s, "C", 64, 64, 32)
    s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", "shared")
    return mib(s.cost(**CHAPTER).traffic.total("global"))


def silu_at_the_tile() -> dict[str, Any]:
    apart, fused = with_silu(False), with_silu(True)
    c = mib(gemm_cost(64, 64).traffic.by_buffer("global")["C"].write)
    assert apart - fused == 2 * c  # written and read again
    return {"MiB": 2 * c, "unfused total": apart, "fused total": fused}


def elementwise_operations() -> dict[str, Any]:
    """Operations per element of bf16 in and out until arithmetic, not memory, is the limit."""
    count = 4096
    cost = twice.schedule().compute_inline("T").cost(N=count)
    each = Fraction(cost.traffic.total("global"), count)
    machine = tilec.target(ROUNDED)
    return {
        "ops (tensor ridge)": float(each) * machine.ridge("bf16"),
        "ops (CUDA-core ridge 67/3.35)": float(each) * machine.ridge("f32", "vector"),
    }


def elementwise_fusion() -> dict[str, Any]:
    s = twice.schedule()
    apart, fused = (t.cost(N=4096).traffic.total("global") for t in (s, s.compute_inline("T")))
    return {"x": Fraction(apart, fused)}


@cache
def add_and_norm(fused: bool, rows: int = 16) -> int:
    """Bytes that the addition and the norm move; the row is kept while it is normalised. G, a weight, is left out."""
    s = add_rmsnorm.schedule()
    if fused:
        s = s.fuse_siblings("H.i", "Y.i").cache_write("H", at="H.i", memory="shared")
    else:
        s = s.cache_read("H", at="Y.i", memory="shared")
    by = s.cost(M=rows, K=4096).traffic.by_buffer("global")
    return sum(count for b, count in by.items() if b != "G")


def add_norm_fusion() -> dict[str, Any]:
    return {"pct": 100 * (1 - Fraction(add_and_norm(True), add_and_norm(False)))}


def weights_against_activations() -> dict[str, Any]:
    """The matrices of one layer of Llama-3-8B (d = 4096, keys and values 1024 wide, 14336 hidden) and one token's norm."""
    d, narrow, hidden = 4096, 1024, 14336
    shapes = [(d, d), (d, narrow), (d, narrow), (d, d), (d, hidden), (d, hidden), (hidden, d)]
    kernel = tilec.workload("gemm").schedule()
    weights = sum(kernel.cost(M=1, K=k, N=n).footprint.by_buffer("global")["W"] for k, n in shapes)
    assert weights == sum(k * n for k, n in shapes) * DTYPES["bf16"].bytes
    share = add_and_norm(False, rows=1) / weights
    return {"MB": weights / 1e6, "share": share, "<1e-3": share < 1e-3}


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "C5-EX5.4-a": two_steps,
    "C5-EX5.4-d": three_steps,
    "C5-EX5.4-e": alive,
    "C5-LAB5.2-b": alive_by_step,
    "C5-S5.4.2-c": silu_at_the_tile,
    "P1-S4.5-a": elementwise_operations,
    "P1-S4.5-b": elementwise_fusion,
    "P1-E4-a": add_norm_fusion,
    "P1-E4-b": weights_against_activations,
}
