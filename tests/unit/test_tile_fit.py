"""What a block of tile operations needs, against machine code that Triton 3.9 made (tests/data/triton_resources.csv)."""

from __future__ import annotations

import csv
import json
import re
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu_report.schedules import case
from tilec.codegen.triton import Options, emit, options_for
from tilec.cost.tile_fit import Needs, Operand, Product, Stored, TileBlock, needs
from tilec.lower.slices import slices
from tilec.runtime.triton_jobs import capability
from tilec.search.gpu import block_of, misfit, predicted, resident
from tilec.targets import load

DATA = Path(__file__).resolve().parent.parent / "data" / "triton_resources.csv"


def rows() -> list[dict[str, str]]:
    with DATA.open(encoding="utf-8") as file:
        return list(csv.DictReader(line for line in file if not line.startswith("#")))


def block(r: dict[str, str]) -> TileBlock:
    """As emitted: one product, or for swiglu two that share their left operand."""
    m, n, k, stages, warps = (int(r[x]) for x in ("BM", "BN", "BK", "stages", "warps"))
    eight = r["kernel"] == "rowquant_gemm"
    width = 1 if eight else 2
    names = ("Wg", "Wu") if r["kernel"] == "swiglu" else ("W",)
    left = Operand("A", m, k, width)
    products = tuple(Product(m, n, k, left, Operand(w, k, n, width), stages) for w in names)
    functions = 1 if r["kernel"] in ("gemm_silu", "swiglu") else 0
    cut = int(slices(m * n // (32 * warps), n)) if functions else 1
    return TileBlock(warps, products, (Stored(m, n, 2, cut),), functions, eight and int(r["capability"]) < 89)


def test_shared_bytes_are_equal() -> None:
    wrong = [(r, needs(block(r), int(r["capability"])).shared) for r in rows()]
    assert [(r, got) for r, got in wrong if got != int(r["shared"])] == []
    assert len(wrong) == 285


def test_registers_and_spilling() -> None:
    found = [(needs(block(r), int(r["capability"])), int(r["registers"]), int(r["spills"])) for r in rows()]
    errors = [abs((n.registers or 0) - real) / real for n, real, _ in found]
    assert statistics.median(errors) < 0.05
    hits = sum(n.spills == (spills > 0) for n, _, spills in found)
    assert hits / len(found) > 0.9
    assert sum(n.spills and not spills for n, _, spills in found) <= 6


def test_a_wrong_rule_would_be_seen() -> None:
    """One buffer more or less per pipeline is not what the compiler does."""
    some = [r for r in rows() if int(r["stages"]) == 3]
    other = [{**r, "stages": "4"} for r in some]
    assert (
        sum(needs(block(r), int(r["capability"])).shared == int(s["shared"]) for r, s in zip(other, some, strict=True))
        < len(some) / 10
    )


def test_the_block_of_an_emitted_kernel() -> None:
    made = emit(case("swiglu").schedule().program, Options(num_warps=4))
    b = block_of(made.kernels[0], made)
    assert [(p.rows, p.columns, p.depth, p.stages) for p in b.products] == [(64, 64, 32, 3)] * 2
    assert {o.name for p in b.products for o in (p.left, p.right)} == {"X_shared", "Wg_shared", "Wu_shared"}
    assert b.stored == (Stored(64, 64, 2, slices=2),) and b.functions == 1 and not b.widened
    assert needs(b, 100) == Needs(3 * 12288 + 32, needs(b, 100).wanted, 64)


def test_the_report_shows_the_rules_of_today() -> None:
    """docs/gpu.json was predicted by the rules as they are: of its products the bytes, registers and spills."""
    triples = json.loads((DATA.parents[2] / "docs" / "gpu.json").read_text(encoding="utf-8"))["triples"]
    mine = [t for t in triples if t["kernel"] in ("gemm_0", "gemm_silu_0")]
    for t in mine:
        found = re.fullmatch(r"(\d+)×(\d+)×(\d+), (\d+) stages", t["tile"])
        assert found is not None
        tile = dict(zip(("BM", "BN", "BK", "stages"), found.groups(), strict=True))
        number = capability(load(t["target"]))
        n = needs(block({**tile, "warps": t["warps"], "kernel": t["kernel"][:-2], "capability": str(number)}), number)
        assert (n.shared, n.registers, n.spills) == tuple(t[f"{x}_predicted"] for x in ("shared", "registers", "spills"))
    assert len(mine) > 100


def test_misfits_name_the_limit() -> None:
    h100 = load("h100-sxm")
    assert misfit(Needs(232_449, 64, 0), h100, 4) == "needs 232,449 B of shared memory per block; h100-sxm allows 232,448 B"
    assert misfit(Needs(1024, 300, 0), h100, 4) == "wants 300 registers per thread and spills; h100-sxm allows 255"
    assert misfit(Needs(1024, 64, 1024), load("b200"), 4) == "needs 1024 columns of tensor memory; b200 has 512"
    assert "1,024 threads × 200 registers" in (misfit(Needs(1024, 200, 0), h100, 32) or "")
    assert misfit(Needs(1024, 64, 0), h100, 4) is None


def test_blocks_share_tensor_memory() -> None:
    b200 = load("b200")
    two = resident(Needs(1024, 64, 256), b200, 4)
    assert (two.blocks, two.warps, two.limiters) == (2, 8, ("tensor memory",))
    assert two.fraction == 8 / 64
    assert resident(Needs(1024, 64, 0), b200, 4).blocks > 2 and resident(Needs(100_000, 64, 64), b200, 4).limiters == ("shared",)


@pytest.mark.parametrize("target", ["a100-sxm", "b200"])
def test_every_kernel_has_needs(target: str) -> None:
    machine = load(target)
    for name in ("gemm", "act_chain", "softmax"):
        c = case(name)
        made = emit(c.schedule().program, options_for(machine))
        (n,) = predicted(made, machine, c.real)
        assert misfit(n, machine, made.num_warps) is None
        assert (n.registers is not None) == (name != "softmax")


def test_more_of_everything_needs_more() -> None:
    one = TileBlock(4, (Product(64, 64, 32, Operand("A", 64, 32, 2), Operand("W", 32, 64, 2), 3),), (Stored(64, 64, 2),))
    deeper = replace(one, products=(replace(one.products[0], stages=4),))
    for n in (80, 89, 90, 100, 120):
        assert needs(deeper, n).shared > needs(one, n).shared
        assert (needs(replace(one, functions=1), n).wanted or 0) >= (needs(one, n).wanted or 0)
