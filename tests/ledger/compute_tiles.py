"""The chapter's matrix product: its operations, its tiles, what they move and where they stand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

import tilec
from tests.ledger.kernels import CHAPTER, K, M, N, blocked, gemm, gemm_cost, kib, mib, trips
from tilec import f64
from tilec.api import Schedule
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Leaf, Loop, Node, Program
from tilec.ir.tree import addresses, sites

GIB = 2**30


@tilec.kernel
def product64(A: f64[M, K], W: f64[K, N], C: f64[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f64 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc


def operations() -> dict[str, Any]:
    flops = tilec.workload("gemm").schedule().cost(**CHAPTER).flops
    return {"F": flops, "GFLOPs": flops / 1e9}


def matrices() -> dict[str, Any]:
    held = tilec.workload("gemm").schedule().cost(**CHAPTER).footprint
    by = held.by_buffer("global")
    return {"X": mib(by["A"]), "W": mib(by["W"]), "C": mib(by["C"]), "sum MiB": mib(held["global"])}


def twice_the_tile() -> dict[str, Any]:
    small, large = gemm_cost(64, 64), gemm_cost(128, 128)
    moved = [c.traffic.total("global") for c in (small, large)]
    return {
        "GiB": moved[0] / GIB,
        "ratio": moved[1] / moved[0],
        "KiB64": kib(small.footprint["shared"]),
        "KiB128": kib(large.footprint["shared"]),
    }


def tile_of_64_deep() -> dict[str, Any]:
    held = gemm_cost(128, 128, 64).footprint
    by = held.by_buffer("shared")
    return {"A": kib(by["A_shared"]), "W": kib(by["W_shared"]), "acc": kib(by["acc"]), "sum": kib(held["shared"])}


def instructions() -> dict[str, Any]:
    """Matrix instructions of 16 × 8 × 16 in a tile of 128 × 128 × 64 on 256 threads."""
    tile = {"M": 128, "N": 128, "K": 64}
    kernel = tilec.workload("gemm").schedule()
    cut = blocked(kernel, "C", 16, 8, 16)
    each, count = kernel.cost(M=16, N=8, K=16).flops, trips(cut, "io", "jo", "ko", **tile)
    limits = tilec.target("h100-sxm").limits
    assert limits is not None
    warps = 256 // limits.warp
    pieces = trips(cut, "io", "jo", **tile)
    return {
        "flop/mma": each,
        "mma": count,
        "flops": kernel.cost(**tile).flops,
        "check": each * count,
        "per warp": Fraction(count, warps),
        "tiles": pieces,
        "tiles/warp": Fraction(pieces, warps),
    }


def once() -> dict[str, Any]:
    return {"MiB": mib(gemm_cost(64, 64).lower_bound("global"))}


def tile_bytes(tile: int) -> dict[str, Any]:
    return {"KiB": kib(gemm_cost(tile, tile).footprint["shared"])}


def tile_traffic(tile: int) -> dict[str, Any]:
    return {"MiB": mib(gemm_cost(tile, tile).traffic.total("global"))}


def blocks_and_traffic() -> dict[str, Any]:
    s, traffic = gemm(64, 64), gemm_cost(64, 64).traffic
    by = traffic.by_buffer("global")
    return {
        "rows": trips(s, "io", **CHAPTER),
        "cols": trips(s, "jo", **CHAPTER),
        "A": mib(by["A"]),
        "W": mib(by["W"]),
        "V": mib(traffic.total("global")),
    }


def large_tile_traffic() -> dict[str, Any]:
    by = gemm_cost(128, 128).traffic.by_buffer("global")
    return {"V": sum(map(mib, by.values()))}


class Nest:
    """One loop (or action), run by itself. It shares nothing with tilec's counting: bounds are evaluated as they are met.

    Tile loops run iteration by iteration. What a nest below them moves is its extents times what one pass moves, kept for the
    values of the variables that its bounds mention.
    """

    def __init__(self, program: Program, node: Node, tiles: tuple[str, ...], given: Mapping[str, int]):
        self.given, self.loop = given, node if isinstance(node, Loop) else None
        self.is_tile = self.loop is not None and self.loop.var in tiles
        children = [Nest(program, child, tiles, given) for child in self.loop.body] if self.loop else []
        self.body = [child for child in children if child.each or child.body]  # the others stay in nearer memories
        bounds = (*self.loop.lower, *self.loop.upper) if self.loop else ()
        self.names = sorted({n for e in bounds for n in e.names}.union(*(child.names for child in self.body)) - set(given))
        self.each = 0 if self.loop else self.bytes(program, node)
        self.kept: dict[tuple[int | None, ...], int] = {}

    def bytes(self, program: Program, node: Node) -> int:
        """What one run of an action moves between global memory and anywhere else; no statement of a product updates it."""
        moved = 0
        for site in sites((node,)):
            for address, _, write in addresses(site.action, program):
                buffer = program.buffer[address.buffer]
                if buffer.memory == "global":
                    assert not (write and isinstance(site.action, Leaf)) or program.statement[site.action.statement].op == "="
                    moved += DTYPES[buffer.dtype].bytes
        return moved

    def run(self, at: dict[str, int]) -> int:
        if self.loop is None:
            return self.each
        if not self.is_tile:
            key = tuple(at.get(n) for n in self.names)
            if key not in self.kept:
                self.kept[key] = len(self.range(at)) * sum(child.run(at) for child in self.body)
            return self.kept[key]
        moved = 0
        for x in self.range(at):
            at[self.loop.var] = x
            for child in self.body:
                moved += child.run(at)
        del at[self.loop.var]
        return moved

    def range(self, at: Mapping[str, int]) -> range:
        assert self.loop is not None
        env = {**self.given, **at}
        return range(max(e.eval(env) for e in self.loop.lower), min(e.eval(env) for e in self.loop.upper))


def traced() -> dict[str, Any]:
    """Every tile that is loaded or stored, in the order of io, jo, ko; and the same from the closed formula."""
    program = gemm(64, 64).program
    moved = sum(Nest(program, node, ("io", "jo", "ko"), CHAPTER).run({}) for node in program.body)
    return {"MiB": mib(moved), "formula": mib(int(gemm_cost(64, 64).traffic.formula("global").eval(CHAPTER)))}


def oblong() -> dict[str, Any]:
    held = gemm_cost(64, 128).footprint
    by = held.by_buffer("shared")
    return {"A KiB": kib(by["A_shared"]), "W KiB": kib(by["W_shared"]), "acc KiB": kib(by["acc"]), "KiB": kib(held["shared"])}


def extents() -> dict[str, Any]:
    s = gemm(64, 64)
    return {name: trips(s, loop, **CHAPTER) for name, loop in (("i", "io"), ("j", "jo"), ("k", "ko"))}


def owned() -> dict[str, Any]:
    """Bytes per tile buffer, and the loop that owns each: A and W are new in every ko, the accumulator lives over all of them."""
    program, by = gemm(64, 64).program, gemm_cost(64, 64).footprint.by_buffer("shared")
    assert {b: program.buffer[b].owner for b in by} == {"acc": "jo", "A_shared": "ko", "W_shared": "ko"}
    assert by["A_shared"] == by["W_shared"]
    return {"A": kib(by["A_shared"]), "acc": kib(by["acc"]), "acc elems": by["acc"] // DTYPES["f32"].bytes}


def fused() -> dict[str, Any]:
    """io and jo as one loop: how many iterations, and how many different tiles they name."""
    s = tilec.workload("gemm").schedule(**CHAPTER)
    s = s.tile(("i", "j"), (64, 64), into=(("io", "ii"), ("jo", "ji"))).fuse("io", "jo", into="tile")
    leaf = next(site.action for site in sites(s.program.body) if isinstance(site.action, Leaf))
    count = trips(s, "tile")
    seen = {tuple(e.eval({"tile": t, "ii": 0, "ji": 0}) for e in leaf.instance) for t in range(count)}
    return {"n": count, "bijection": len(seen)}


def plain_product() -> dict[str, Any]:
    """A[N, M] · B[M, K], in the letters of that source."""
    return {"1024,512,2048": tilec.workload("gemm").schedule().cost(M=1024, K=512, N=2048).flops}


def as_dots() -> dict[str, Any]:
    """A 3 × 5 matrix times a 5 × 7 one is 3 · 7 inner products of length 5; both ways must count the same."""
    product = tilec.workload("gemm").schedule().cost(M=3, K=5, N=7).flops
    dots = 3 * 7 * tilec.workload("dot").schedule().cost(N=5).flops
    return {"ok": product if product == dots else (product, dots)}


def naive_intensity() -> dict[str, Any]:
    cost = tilec.workload("gemm").schedule().cost(M=128, N=128, K=128)
    return {"AI reads only": cost.flops / cost.traffic.total("global", "read"), "with C write": cost.intensity("global")}


def tiled_products() -> dict[str, Any]:
    """Products of 128 × 128 matrices in f64, tiled by 16, 32 and 64, against one product."""
    rng = np.random.default_rng(0)
    a, w = (rng.standard_normal((128, 128)) for _ in range(2))
    one = a @ w

    def run(tile: int) -> np.ndarray:
        s: Schedule = product64.schedule()
        return blocked(s, "C", tile, tile, tile).run(a, w, backend="interpreter")

    most = max(float(np.abs(run(tile) - one).max()) for tile in (16, 32, 64))
    return {"max abs diff": most, "<1e-12": int(most < 1e-12)}


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "C5-INTRO-a": operations,
    "C5-INTRO-b": matrices,
    "C5-INTRO-c": twice_the_tile,
    "C5-S5.1.5-a": tile_of_64_deep,
    "C5-S5.1.5-k": instructions,
    "C5-S5.2.1-a": once,
    **{f"C5-EX5.3-t{tile}-mem": partial(tile_bytes, tile) for tile in (32, 64, 128)},
    **{f"C5-EX5.3-t{tile}-traffic": partial(tile_traffic, tile) for tile in (32, 64, 128)},
    "C5-EX5.3-g": blocks_and_traffic,
    "C5-EX5.3-h": large_tile_traffic,
    "C5-S5.2.2-a": traced,
    "C5-LAB5.1-a": oblong,
    "C5-S5.4.2-a": extents,
    "C5-S5.4.2-b": owned,
    "C5-S5.4.2-d": fused,
    "D3-GEMM-a": plain_product,
    "D3-DOT-a": as_dots,
    "P1-S4.1-b": naive_intensity,
    "P1-S4.2-b": tiled_products,
}
