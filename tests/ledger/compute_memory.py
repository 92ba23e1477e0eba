"""What stands in which memory, and what other steps than the matrix product move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import tilec
from tests.ledger.kernels import CHAPTER, gemm, gemm_cost, kib, mib, queued, rmsnorm_segments, staged_row
from tilec.ir.dtypes import DTYPES

ROW = {"M": 1024, "K": 4096}  # the activations of the normalisation


def orders() -> dict[str, Any]:
    """Live partial sums of the loop orders i-j-k and i-k-j."""
    written = tilec.workload("gemm").schedule()
    other = written.reorder("i", "k", "j").place("acc", "register")
    size = DTYPES["f32"].bytes
    return {
        "ijk live acc": Fraction(written.cost(**CHAPTER).footprint["register"], size),
        "ikj live acc KiB": kib(other.cost(**CHAPTER).footprint["register"]),
    }


def norm_in_one() -> dict[str, Any]:
    """A row of x is kept; gamma is read by every row."""
    s = tilec.workload("rmsnorm").schedule().cache_read("X", at="i", memory="shared")
    return {"MiB": mib(s.cost(**ROW).traffic.total("global"))}


def norm_in_three() -> dict[str, Any]:
    """The last step reads the scale once per row, or once per segment; what is moved besides x, gamma and y is extra."""
    s = rmsnorm_segments.schedule()
    out: dict[str, Any] = {}
    for name, loop in (("lo", "Y.i"), ("hi", "Y.e")):
        cost = s.cache_read("R", at=loop, memory="register").cost(M=ROW["M"])
        assert cost.launches == 3
        by = cost.traffic.by_buffer("global")
        out[name] = float(mib(cost.traffic.total("global")))
        out[f"extra {name}"] = float(mib(sum(count for b, count in by.items() if b not in ("X", "G", "Y"))))
    return out


def staging() -> dict[str, Any]:
    s = staged_row.schedule(**ROW)
    eighth = s.split("Y.k", ROW["K"] // 8, into=("ko", "ki"))
    return {
        name: kib(s.compute_at("T", loop).place("T", "shared").cost().footprint["shared"])
        for name, s, loop in (("row", s, "Y.i"), ("eighth", eighth, "ko"))
    }


def apart() -> dict[str, Any]:
    """24 MiB of f32 through a transposition of its own."""
    s = tilec.workload("transpose").schedule()
    assert mib(s.cost(M=1024, N=6144).footprint.by_buffer("global")["A"]) == 24
    return {"MiB": mib(s.cost(M=1024, N=6144).traffic.total("global"))}


def in_the_queue() -> dict[str, Any]:
    """Three slots of 16 KiB and the 32 KiB they are laid out in, on a chip that allows a block 99 KB."""
    cost = queued(3).cost("rtx-pro-6000", **{n: CHAPTER[n] for n in ("M", "N")})
    return {"KiB": kib(cost.footprint["shared"]), "fits": cost.fits}


def stages() -> dict[str, Any]:
    return {f"stages={n} KiB (128x128, k=32)": kib(gemm_cost(128, 128, stages=n).footprint["shared"]) for n in (1, 2, 3)}


def key_row() -> dict[str, Any]:
    """One cached row of keys, 128 wide in bf16."""
    s = tilec.workload("attention").schedule().cache_read("K", at="S.j", memory="shared")
    return {"B": s.cost(M=128, N=128, D=128).footprint.by_buffer("shared")["K_shared"]}


@cache
def edge(ridge: int) -> tuple[int, int]:
    """(edge, accumulator bytes) of the smallest square tile whose reads reach `ridge` flops per byte.

    The intensity of a tile grows with its edge; the tile of 64 tells by how much, and the tile found is priced itself.
    """

    def reached(tile: int) -> Fraction:
        cost = gemm(tile, tile).cost(M=2 * tile, N=2 * tile, K=64)
        return Fraction(cost.flops, cost.traffic.total("global", "read"))

    found = -int(-ridge * 64 // reached(64))
    assert reached(found) >= ridge > reached(found - 1)
    return found, gemm(found, found).cost(M=found, N=found, K=64).footprint.by_buffer("shared")["acc"]


def edge_of_h100() -> dict[str, Any]:
    found, acc = edge(int(tilec.target("h100-sxm").ridge("bf16")))
    return {"edge": found, "MiB": float(mib(acc))}


def edge_of_a100() -> dict[str, Any]:
    machine = tilec.target("a100-sxm")
    found, acc = edge(int(machine.ridge("bf16")))
    return {"edge": found, "KB": acc / 1000, "fits": acc <= registers(machine.name)}


def registers(target: str) -> int:
    """Bytes of registers per SM."""
    limits = tilec.target(target).limits
    assert limits is not None
    return limits.registers_per_sm * DTYPES["i32"].bytes


def tiles_in_two_memories() -> dict[str, Any]:
    """Two slots of inputs in shared memory and the accumulator in registers, per block."""
    out: dict[str, Any] = {}
    for bm, bn in ((64, 64), (128, 128), (128, 256), (256, 256)):
        held = gemm_cost(bm, bn, 64, "register", 2).footprint
        assert set(held.by_buffer("shared")) == {"A_shared", "W_shared"}
        out[f"{bm}x{bn} KiB"] = (kib(held["shared"]), kib(held["register"]))
    return {**out, "RF KiB": kib(registers("h100-sxm"))}


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "C5-S5.2.1-c": orders,
    "C5-S5.2.4-b": norm_in_one,
    "C5-S5.2.4-c": norm_in_three,
    "C5-S5.2.4-d": staging,
    "C5-S5.3.2-a": apart,
    "C5-S5.3.2-b": in_the_queue,
    "C5-S5.3.2-d": stages,
    "P1-S3.3-b": key_row,
    "P1-S4.3-b": edge_of_h100,
    "P1-S4.3-c": tiles_in_two_memories,
    "P1-E3-b": edge_of_a100,
}
