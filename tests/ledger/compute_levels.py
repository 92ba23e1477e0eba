"""Levels and latency: bank rounds, what hides a latency, L2 sharing, waves, the copy pipeline, choices of a search."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import tilec
from tests.ledger.kernels import gemm, gemm_cost, kib, mib, rmsnorm_segments, trips
from tilec import f32
from tilec.cost.banks import SharedTile, bank_rounds
from tilec.cost.latency import Flight, blocks_needed, bytes_in_flight, issue, loads_needed, tiles, warps_needed, waves
from tilec.cost.pipeline import Pipeline, pipeline_time
from tilec.cost.raster import operand_sharing
from tilec.cost.roofline import ridge, roofline
from tilec.ir.dtypes import DTYPES
from tilec.lang.kernel import from_source
from tilec.targets import Figure, Target

H100, A100, B200, H200, RTX = "h100-sxm", "a100-sxm", "b200", "h200", "rtx-pro-6000"
ROUNDED = str(Path(__file__).parent / "h100_rounded.toml")  # 989 and 67 TFLOP/s, 3.35 TB/s


def at(bandwidth: float, name: str = H100) -> Target:
    """The machine with the bandwidth (bytes per second) that the row's inputs give."""
    machine = tilec.target(name)
    figures = machine.figure | {"bandwidth": Figure(bandwidth, f"{bandwidth:g} B/s", "the row's inputs")}
    return replace(machine, figures=tuple(figures.items()))


def peak(machine: str, dtype: str = "bf16", unit: str = "matrix") -> float:
    found = tilec.target(machine).peak(unit, dtype)
    assert found is not None
    return found[0]


# Bank rounds


def words() -> dict[str, Any]:
    tile = SharedTile(32, 32)
    return {"row": along_row(tile, 0), "col": along_column(tile, 0)}


def along_row(tile: SharedTile, row: int) -> int:
    return bank_rounds([tile.address(row, c) for c in range(32)], tile.element_bytes)


def along_column(tile: SharedTile, column: int) -> int:
    return bank_rounds([tile.address(r, column) for r in range(32)], tile.element_bytes)


def padded() -> dict[str, Any]:
    plain, tile = SharedTile(32, 32), SharedTile(32, 32, padding=1)
    return {
        "col": along_column(tile, 0),
        "bytes": (plain.bytes, tile.bytes),
        "pct": float(100 * Fraction(tile.bytes - plain.bytes, plain.bytes)),
    }


def swizzled() -> dict[str, Any]:
    tile = SharedTile(32, 32, swizzle=32)
    return {
        "all cols": max(along_column(tile, c) for c in range(32)),
        "all rows": max(along_row(tile, r) for r in range(32)),
        "bytes": tile.bytes,
    }


def broadcast() -> dict[str, Any]:
    return {"distinct-word rule": bank_rounds([SharedTile(32, 32).address(5, 7)] * 32)}


# Latency


def needed() -> dict[str, Any]:
    flight = bytes_in_flight(H100, 1, latency=600e-9)
    return {"MB": flight.needed / 1e6, "KB": flight.needed_per_sm / 1e3}


def wide(warps: int, loads: int = 4, latency: float = 600e-9) -> Flight:
    return bytes_in_flight(H100, warps, loads, 16, latency)


def sixteen_warps() -> dict[str, Any]:
    return {
        "per instr": int(wide(1, 1).had_per_sm),
        "KiB": kib(int(wide(16).had_per_sm)),
        "cover": wide(16).cover,
        "8 warps cover": wide(8).cover,
        "8 warps enough": warps_needed(H100, 4, 16, 600e-9) <= 8,
    }


def slower_memory() -> dict[str, Any]:
    flight = wide(16, 2, 1000e-9)
    o = gemm_cost(128, 128, 64, target=H100, threads=256, registers=128).occupancy
    assert o is not None and o.warps is not None
    return {
        "KB": flight.needed_per_sm / 1e3,
        "KiB": kib(int(flight.had_per_sm)),
        "cover": flight.cover,
        "warps": warps_needed(H100, 2, 16, 1000e-9),
        "blocks": blocks_needed(H100, o.warps // o.blocks, 2, 16, 1000e-9),
        "allowed": o.blocks,
    }


def more_warps() -> dict[str, Any]:
    return {"16 warps": wide(16).cover, "32 warps": wide(32).cover, "covered": min(wide(16).cover, wide(32).cover) >= 1}


def resident_warps(machine: str) -> int:
    found = tilec.target(machine).limits
    assert found is not None
    return found.warps_per_sm


def warp_loads() -> dict[str, Any]:
    flight = bytes_in_flight(H100, resident_warps(H100), 1, 4, 2.7e-7)
    each = flight.had_per_sm / resident_warps(H100)
    return {
        "MB": flight.needed / 1e6,
        "loads": flight.needed / each,
        "warps": tilec.target(H100).cores * resident_warps(H100),
    }


def more_loads() -> dict[str, Any]:
    flight = bytes_in_flight(H200, resident_warps(H200), 1, 4, 600e-9)
    loads = flight.needed / (flight.had_per_sm / resident_warps(H200))
    assert abs(loads - round(loads)) < 1e-6
    return {
        "MB": flight.needed / 1e6,
        "loads": round(loads),
        "per warp": 1 / flight.cover,
        "loads per warp needed": loads_needed(H200, resident_warps(H200), 4, 600e-9),
    }


def stalls() -> dict[str, Any]:
    found = issue(20, 500)
    return {"util": float(found.utilisation), "warps": found.needed}


def cycles() -> dict[str, Any]:
    return {"ns": 500 / tilec.target(H100).clock * 1e9}


def moved(tile: int) -> int:
    return gemm_cost(tile, tile).traffic.total("global")


def larger_tile() -> dict[str, Any]:
    """Time at full bandwidth, and where the larger tile reaches two fifths of the other's."""
    small = roofline(H100, 0, moved(64)).memory
    return {
        "eq": roofline(H100, 0, moved(128)).memory / small,
        "0.4": roofline(H100, 0, moved(128), efficiency=0.4).memory / small,
    }


def break_even() -> dict[str, Any]:
    least = Fraction(moved(128), moved(64))
    assert abs(roofline(H100, 0, moved(128), efficiency=float(least)).memory / roofline(H100, 0, moved(64)).memory - 1) < 1e-12
    return {"B128/B64 >": float(least)}


def wide_tile() -> dict[str, Any]:
    other = gemm_cost(64, 128, target=RTX)
    assert other.occupancy is not None
    return {"min bw ratio": Fraction(other.traffic.total("global"), moved(64)), "RTX blocks/SM": other.occupancy.blocks}


# L2, tiles and waves


def co_resident() -> dict[str, Any]:
    shared = operand_sharing(12, 11, 1, tilec.target(H100).cores)
    found = shared.intensity(128, 256)
    return {
        "region": shared.region(128, 256),
        "AI HBM": float(found),
        ">295": found > ridge(ROUNDED),
        "AI L2→SM": float(operand_sharing(12, 11, 1, 1).intensity(128, 256)),
    }


def one_more_column() -> dict[str, Any]:
    one, two = (tiles((2304, n), (256, 128)) for n in (1536, 1544))
    runs = [waves(A100, t.count) for t in (one, two)]
    return {
        "n1": one.count,
        "n2": two.count,
        "waves": tuple(w.waves for w in runs),
        "extra": runs[1].last,
        "FLOP/s ratio": float(Fraction(1544, 1536) * Fraction(runs[0].waves, runs[1].waves)),
    }


def one_more_row() -> dict[str, Any]:
    cut = [tiles((m, 28672), (128, 128)).count for m in (128, 129)]
    return {"tiles": tuple(cut), "waves": tuple(waves(H100, n).waves for n in cut)}


# Pipeline


def link() -> dict[str, Any]:
    whole = copied(8192)
    return {"MiB": mib(whole), "ms": roofline(at(64e9), 0, whole).memory * 1e3}


def copied(rows: int) -> int:
    return tilec.workload("softmax").schedule().cost(M=rows, N=4096).footprint.by_buffer("global")["X"]


def two_copies() -> dict[str, Any]:
    half = copied(4096)
    run = pipeline_time(roofline(at(64e9), 0, half).memory, 0, 2)
    return {
        "ms": (run.copies[1][1] - run.copies[1][0]) * 1e3,
        "total": run.copy_busy == roofline(at(64e9), 0, copied(8192)).memory,
    }


def in_turn() -> dict[str, Any]:
    """The submission, then the copy in; the kernel, then the copy out: nothing overlaps."""
    return {"us": pipeline_time(3 + 8, 20 + 4, 1, 1).time}


def k_block() -> tuple[int, int]:
    """Bytes of the two input tiles, and operations, of one block of the sum in the chapter's product, tiles 128 × 128 × 64."""
    cost, s = gemm_cost(128, 128, 64), gemm(128, 128, 64)
    by = cost.footprint.by_buffer("shared")
    return by["A_shared"] + by["W_shared"], cost.flops // trips(s, "io", "jo", "ko", M=1024, K=4096, N=12288)


def k_times() -> tuple[float, float]:
    """Seconds to copy and to compute one such block with an SM's share of the chip."""
    count, flops = k_block()
    chip = roofline(H100, flops, count, "bf16")
    sms = tilec.target(H100).cores
    return chip.memory * sms, chip.compute * sms


def shares() -> dict[str, Any]:
    machine, (copy, compute) = tilec.target(H100), k_times()
    return {
        "GB/s": machine.bandwidth / machine.cores / 1e9,
        "TFLOP/s": peak(H100) / machine.cores / 1e12,
        "tm us": copy * 1e6,
        "tc us": compute * 1e6,
        "ratio": copy / compute,
    }


def k_intensity() -> dict[str, Any]:
    count, flops = k_block()
    return {"AI": Fraction(flops, count), "ridge": ridge(H100)}


def run_blocks(slots: int, faster: int = 1) -> Pipeline:
    """Four such blocks, in microseconds."""
    copy, compute = k_times()
    return pipeline_time(copy * 1e6, compute * 1e6 / faster, 4, slots)


def two_slots() -> dict[str, Any]:
    run = run_blocks(2)
    return {"blk0 done": run.computes[0][1], "copy2 start": run.copies[2][0]}


def printed(slots: int) -> Pipeline:
    return pipeline_time(1.29, 0.28, 4, slots)


def serial() -> dict[str, Any]:
    return {"us": printed(1).time, "unrounded": run_blocks(1).time}


def overlapped() -> dict[str, Any]:
    run = printed(2)
    return {
        "us": run.time,
        "unrounded": run_blocks(2).time,
        "saved pct": 100 * (1 - run.time / printed(1).time),
        "copy busy": run.copy_busy,
        "util": run.compute_busy / run.time,
    }


def third_slot() -> dict[str, Any]:
    return {"3 slots": run_blocks(3).time, "1 slot": run_blocks(1).time, "fast compute": run_blocks(2, faster=2).time}


def waiting() -> dict[str, Any]:
    start, end = run_blocks(2).idle[0]
    return {"idle from": start, "to": end}


def host_and_device() -> dict[str, Any]:
    return {"serial": pipeline_time(20, 20, 100, 1).time, "pipe": pipeline_time(20, 20, 100, 2).time}


# Search: choices, and tuning that pays; splitting a sum


def steps(count: int) -> tilec.Kernel:
    """An elementwise chain: each step reads the one before."""
    names = ["X", *(f"T{n}" for n in range(1, count)), "Y"]
    stored = "".join(f"    {name}: f32[256]\n" for name in names[1:-1])
    body = "".join(f"    for i in range(256):\n        {b}[i] = {a}[i] + 1\n" for a, b in pairwise(names))
    return tilec.Kernel(from_source(f"def chain(X: f32[256], Y: f32[256]):\n{stored}{body}", {"f32": f32}))


def boundaries(count: int) -> int:
    """Ways to cut the chain: each boundary may stay or go, where the others stay, and where those before it have gone."""
    s = merged = steps(count).schedule()
    inner = [f"T{n}" for n in range(1, count)]
    assert s.cost().launches == count and all(s.compute_inline(name).cost().launches == count - 1 for name in inner)
    ways = 1
    for name in inner:
        before, merged = merged, merged.compute_inline(name)
        ways *= len({before.cost().launches, merged.cost().launches})
    assert merged.cost().launches == 1
    return ways


def cuts() -> dict[str, Any]:
    return {str(n): boundaries(n) for n in (3, 10)}


def calls_that_pay() -> dict[str, Any]:
    """Ten minutes of search against 5 microseconds per call; hours and days at ten thousand and a hundred calls per second."""
    calls = tilec.amortise_calls(spent_ms=600_000, before_us=10, after_us=5)
    assert calls is not None
    return {"calls": calls, "h": calls / 10_000 / 3600, "d": calls / 100 / 86400}


def segments() -> dict[str, Any]:
    by = rmsnorm_segments.schedule().cost(M=1024).footprint.by_buffer("global")
    return {"tasks": by["P"] // DTYPES["f32"].bytes, "KiB": kib(by["P"]), "scale KiB": kib(by["R"])}


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "C5-S5.2.3-a": words,
    "C5-S5.2.3-b": padded,
    "C5-S5.2.3-c": swizzled,
    "C5-S5.2.3-e": broadcast,
    "C5-S5.1.5-g": needed,
    "C5-S5.1.5-h": sixteen_warps,
    "C5-S5.1.5-i": slower_memory,
    "C5-PR5.1-d": more_warps,
    "P1-S2.2-a": warp_loads,
    "P1-E2-a": more_loads,
    "P1-S3.4-b": stalls,
    "P1-S2.2-b": cycles,
    "C5-EX5.3-j": larger_tile,
    "C5-EX5.3-k": break_even,
    "C5-LAB5.1-c": wide_tile,
    "P1-S4.4-a": co_resident,
    "P1-S3.6-a": one_more_column,
    "P1-S3.6-b": one_more_row,
    "C5-EX5.1-a": link,
    "C5-EX5.1-b": two_copies,
    "C5-EX5.2-a": in_turn,
    "C5-S5.1.5-l": shares,
    "C5-S5.1.5-m": k_intensity,
    "C5-S5.1.5-n": two_slots,
    "C5-EX5.5-a": serial,
    "C5-EX5.5-b": overlapped,
    "C5-EX5.5-c": third_slot,
    "C5-EX5.5-f": waiting,
    "C5-EX5.10-a": host_and_device,
    "C5-S5.2.4-a": segments,
    "C5-S5.4.1-a": cuts,
    "C5-S5.5.3-a": calls_that_pay,
}
