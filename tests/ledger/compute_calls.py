"""Decisions over calls: programs, shapes, launches, graphs, persistent kernels, Amdahl and critical paths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import tilec
from tests.ledger.compute_layers import Model, forward, total
from tests.ledger.kernels import mib
from tilec.cost.calls import CallChoice, CallProgram
from tilec.cost.graph import CriticalPath, HostBound, Persistent
from tilec.ir.dtypes import DTYPES

HIDDEN, WIDE = 4096, 12288
PER_ROW = 6 * HIDDEN * WIDE  # three products of a gated feed-forward step, 2 flops per multiply-add
RATES = {"g": 100, "b": 200, "s": 250}  # TFLOP/s reached by the generic, bucketed and specialised programs
PREPARE = {"g": 100, "b": 400, "s": 900}  # ms
PEAK, BANDWIDTH = Fraction("503.8"), 1792  # TFLOP/s, GB/s
BF16 = DTYPES["bf16"].bytes


def once_then_often() -> dict[str, Any]:
    p = CallProgram("compiled", 100, 1)
    return {"1": p.total_ms(1), "100": p.total_ms(100), "avg": p.average_ms(100)}


def average_below() -> dict[str, Any]:
    return {"r >=": CallProgram("compiled", 100, 1).calls_to_average(Fraction("1.01"))}


def mix(small: Any, large: Any) -> dict[str, Any]:
    """Totals of the old and the new program, us."""
    times = {"old": {"small": 10, "large": 10}, "new": {"small": 5, "large": 20}}
    return dict(tilec.shape_mix({"small": small, "large": large}, times).single_us)


def two_mixes() -> dict[str, Any]:
    even, skewed = mix(1, 1), mix(100, 1)
    return {
        "1:1": (even["old"], even["new"]),
        "pct": even["new"] / even["old"] - 1,
        "100:1": (skewed["old"], skewed["new"]),
        "x": skewed["old"] / skewed["new"],
    }


def even_share() -> dict[str, Any]:
    return {"p": tilec.break_even_share((10, 10), (5, 20))}


def shares() -> dict[str, Any]:
    found = [mix(p, 1 - p) for p in (Fraction(1, 2), Fraction(2, 3), Fraction(9, 10))]
    (old,) = {m["old"] for m in found}
    return {"new": tuple(m["new"] for m in found), "old": old}


def faster_device_then_host() -> dict[str, Any]:
    """100 kernels, submitted in 20 us each; the device runs while the host submits the next."""
    before, device, both = (tilec.pipeline_time(host, dev, 100).time for host, dev in ((20, 20), (20, 5), (5, 5)))
    return {"dev5": device, "less": before - device, "both5": both}


def feed_forward_launches() -> dict[str, Any]:
    def counts(kernels: int, graph: bool) -> tuple[int, int]:
        c = tilec.launch_counts(kernels, 3, graph)
        return c.submissions, c.kernels

    return {"plain": counts(6, False), "graph": counts(6, True), "fused": counts(5, False), "both": counts(5, True)}


def replay(rows: int | None) -> Any:
    """rows of bf16 activations copied before the replay; None: the producer writes where the graph reads."""
    return tilec.graph_replay(20, 5, 20, copied_bytes=(rows or 0) * HIDDEN * BF16, bandwidth_gb_per_s=BANDWIDTH)


def replay_small() -> dict[str, Any]:
    r = replay(256)
    return {
        "MiB": mib(256 * HIDDEN * BF16),
        "copy": float(r.copy_us),
        "total": float(r.graph_us),
        "less": float(r.saved_us),
    }


def replay_large() -> dict[str, Any]:
    r = replay(2048)
    return {"copy": float(r.copy_us), "total": float(r.graph_us)}


def replay_limit() -> dict[str, Any]:
    return {"MiB": float(replay(256).break_even_bytes / 2**20)}


def replay_in_place() -> dict[str, Any]:
    r = replay(None)
    return {"graph us": r.graph_us, "plain us": r.plain_us, "x": float(r.speedup)}


def served(small_calls: int = 8) -> Any:
    return tilec.pad_to_buckets({256: small_calls, 1536: 1, 2048: 1}, (512, 2048))


def padding() -> dict[str, Any]:
    b = served()
    return {"rows": b.rows, "bucket": b.padded_rows, "pct": float(100 * b.extra)}


def group(rates: Mapping[str, Any] = RATES, prepare: Mapping[str, Any] = PREPARE, small_calls: int = 8) -> CallChoice:
    """A "call" is the whole mix: the bucketed program computes padded rows."""
    b = served(small_calls)
    rows = {"g": b.rows, "b": b.padded_rows, "s": b.rows}
    return tilec.choose_program([CallProgram(n, prepare[n], tilec.work_ms(PER_ROW * rows[n], rates[n])) for n in ("g", "b", "s")])


def group_times() -> dict[str, Any]:
    return {p.name: float(p.call_ms) for p in group().programs}


def crossovers() -> dict[str, Any]:
    choice = group()
    generic, bucket, special = choice.ranges
    assert (generic.name, bucket.name, special.name) == ("g", "b", "s")
    g, b, s = (p.call_ms for p in choice.programs)
    shares = {n: PEAK * percent / 100 for n, percent in (("g", 20), ("b", 40), ("s", 50))}
    return {
        "b-g": float(choice.crossover_calls("g", "b")),
        "first r bucket": bucket.first,
        "first r special": special.first,
        "save": float(g - b),
        "save2": float(b - s),
        "with 20/40/50% of 503.8": tuple(r.first for r in group(shares).ranges[1:]),
    }


def seventy() -> dict[str, Any]:
    return {name: float(ms / 1000) for name, ms in group().totals_ms(70).items()}


def all_cached() -> dict[str, Any]:
    (only,) = group(prepare=dict.fromkeys(PREPARE, 0)).ranges
    return {"argmin": only.name}


def buckets_cached() -> dict[str, Any]:
    out = {}
    for small_calls in (4, 8):
        first = group(prepare={**PREPARE, "b": 0}, small_calls=small_calls).ranges[0]
        assert (first.name, first.first) == ("b", 1)
        out[f"{small_calls} calls: bucket 1.."] = first.last
    return out


def tokens(overhead: Fraction = Fraction(0)) -> Persistent:
    """8 blocks of 64 tokens: a projection on the matrix unit, then an activation that reads and writes bf16."""
    projection = tilec.work_ms(2 * 64 * HIDDEN * WIDE, PEAK) * 1000
    activation = Fraction(2 * 64 * WIDE * BF16, BANDWIDTH * 1000)
    return tilec.persistent_kernel((projection, activation), blocks=8, launch_us=5, overhead_us=overhead)


def token_block() -> dict[str, Any]:
    projection, activation = tokens().task_us
    return {"G": float(projection * PEAK / 1000), "proj": float(projection), "act": float(activation)}


def token_launches() -> dict[str, Any]:
    return {"us": float(tokens().separate_us)}


def token_queue() -> dict[str, Any]:
    p = tokens(Fraction("0.5") + Fraction("0.2"))
    projection, activation = p.task_us
    assert p.saved_us == p.launches_us + p.hidden_us - p.overhead_us
    return {
        "p": float(projection),
        "a": float(activation),
        "us": float(p.persistent_us),
        "x": float(p.speedup),
        "saved": float(p.saved_us),
        "hidden": float(p.hidden_us),
        "overhead": float(p.overhead_us),
    }


def fifth() -> dict[str, Any]:
    two, ten = (tilec.amdahl(Fraction(1, 5), s) for s in (2, 10))
    return {"t2": float(two.time), "S2": float(two.speedup), "t10": float(ten.time), "Sinf": float(two.ceiling)}


def request(a: int = 60, b: int = 40) -> CriticalPath:
    """10 us, then A beside B, then 10 us."""
    return tilec.critical_path({"in": 10, "A": a, "B": b, "out": 10}, {"A": ["in"], "B": ["in"], "out": ["A", "B"]})


def shorter_branch() -> dict[str, Any]:
    before, after = request(60), request(15)
    return {
        "T0": before.total_us,
        "T1": after.total_us,
        "A": 60 - 15,
        "req": before.total_us - after.total_us,
        "A*": before.floor_us["A"],
    }


def contended() -> dict[str, Any]:
    return {"T": request(15, 90).total_us}


def until_it_stops() -> dict[str, Any]:
    return {"us": request().floor_us["A"]}


def generation() -> dict[str, Any]:
    g = tilec.generation_calls(layers=36, tokens_in=7239, tokens_out=32)
    return {"calls": g.calls, "decode": g.decode_calls, "rows": g.prefill_rows, "x": g.ratio}


def medians() -> dict[str, Any]:
    """Only the two medians are in the source, not the pairs: they stand for their series."""
    return {"1.343 vs": tilec.paired_change([816.640], [815.406]).of_medians_ms}


def one_call(kernel: int = 20) -> Any:
    return tilec.call_timing(3, [8, kernel, 4])


def faster_kernel() -> dict[str, Any]:
    before, after = one_call(20), one_call(5)
    return {
        "us": after.result_us,
        "speedup": before.result_us / after.result_us,
        "kernel x": Fraction(20, 5),
        "rest": one_call(0).result_us,
    }


def three_clocks() -> dict[str, Any]:
    c = one_call()
    return {"host clock around async call us": c.submit_us, "device events us": c.device_us, "to result us": c.result_us}


def token(model: Model, fused: bool, launch_us: int) -> tuple[int, HostBound]:
    """One token at a context of 1024, with 1 us between kernels: (kernels, the host beside the device)."""
    kernels = forward(model, requests=1, tokens=1, keys=1024 + 1, fused=fused)
    return len(kernels), tilec.host_bound(len(kernels), total(kernels) * 1e6, launch_us, gap_us=1)


def launches_of_1b() -> dict[str, Any]:
    """Kernel by kernel at 20 us each, against a graph of the fused kernels."""
    model = Model(layers=16, width=2048, heads=32, kv_heads=8, hidden=8192, vocabulary=128256)
    kernels, plain = token(model, False, 20)
    _, graph = token(model, True, 0)
    assert (plain.bound, graph.bound) == ("host", "device")
    return {"kernels": kernels, "ms": plain.step_us / 1000, "x": plain.step_us / graph.step_us}


def launches_of_half_b() -> dict[str, Any]:
    model = Model(layers=24, width=896, heads=14, kv_heads=2, hidden=4864, vocabulary=151936)
    kernels, found = token(model, True, 0)
    return {"kernels": kernels, "ms": (found.busy_us - kernels) / 1000, "us": found.threshold_us}


def doubling() -> dict[str, Any]:
    """Twice the size: the same time; twice the time far from the peak; near the peak."""
    found = (tilec.limit_by_doubling(100, t, share) for t, share in ((100, 0.01), (200, 0.1), (200, 0.9)))
    return {"verdict": tuple(found)}


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "C5-EX5.2-b": faster_kernel,
    "C5-S5.1.4-a": once_then_often,
    "C5-S5.1.4-b": average_below,
    "C5-EX5.9-a": two_mixes,
    "C5-EX5.9-b": even_share,
    "C5-LAB5.6-a": shares,
    "C5-EX5.10-b": faster_device_then_host,
    "C5-S5.5.2-a": feed_forward_launches,
    "C5-EX5.11-a": replay_small,
    "C5-EX5.11-b": replay_large,
    "C5-EX5.11-c": replay_limit,
    "C5-LAB5.8-b": replay_in_place,
    "C5-EX5.12-a": padding,
    "C5-EX5.12-b": group_times,
    "C5-EX5.12-c": crossovers,
    "C5-EX5.12-d": seventy,
    "C5-EX5.12-e": all_cached,
    "C5-LAB5.7-b": buckets_cached,
    "C5-S5.5.4-a": token_block,
    "C5-S5.5.4-b": token_launches,
    "C5-S5.5.4-c": token_queue,
    "C5-S5.6.1-a": fifth,
    "C5-S5.6.2-a": shorter_branch,
    "C5-S5.6.2-b": contended,
    "C5-S5.6.3-a": generation,
    "C5-LAB5.9-a": medians,
    "C5-LAB5.9-c": until_it_stops,
    "C5-EX5.2-c": three_clocks,
    "P1-S6.2-a": launches_of_1b,
    "P1-S6.3-a": doubling,
    "P1-E5-a": launches_of_half_b,
}
