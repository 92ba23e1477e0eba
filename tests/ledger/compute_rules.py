"""Rows that state a rule in words: each word stands for a fact that tilec finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tilec
from tests.ledger.kernels import CHAPTER, QUANTIZED, K, M, N, blocked, gemm, gemm_cost, mib, quantized
from tilec import f32, f64
from tilec.api import Schedule
from tilec.cost.events import EventStep, pipeline_steps, run_events
from tilec.errors import LegalityError, ResourceError
from tilec.ir.program import Copy, Leaf
from tilec.ir.tree import sites


@tilec.kernel
def row_sums(x: f32[M, K], y: f32[M]):
    for i in range(M):
        acc: f32 = 0
        for k in range(K):
            acc += x[i, k]
        y[i] = acc


@tilec.kernel
def one_sum(x: f32[N], y: f32[1]):
    acc: f32 = 0
    for i in range(N):
        acc += x[i]
    y[0] = acc


@tilec.kernel
def scale_of(total: f64[N], scale: f64[N]):
    """1 / sqrt(mean of 4096 squares)."""
    for n in range(N):
        scale[n] = 1 / tilec.sqrt(total[n] / 4096)


def last_users() -> dict[str, Any]:
    """A batch in through two buffers, out through two; without the event of a buffer's last user the next action never starts."""
    batches = range(3)
    agents = {
        "CPU write": [EventStep(f"{n}", 1, (("copy-read in", n),), ("source written",)) for n in batches],
        "copy in": [
            EventStep(f"{n}", 1, (("source written", n + 1), ("kernel-read", n)), ("copy-read in", "copied in")) for n in batches
        ],
        "GPU write": [
            EventStep(f"{n}", 1, (("copied in", n + 1), ("copy-read out", n)), ("kernel-read", "computed")) for n in batches
        ],
        "copy out": [EventStep(f"{n}", 1, (("computed", n + 1),), ("copy-read out", "copy-write")) for n in batches],
        "CPU read": [EventStep(f"{n}", 1, (("copy-write", n + 1),)) for n in batches],
    }
    assert run_events(agents).time == 5 + 2 * (len(batches) - 1)  # one buffer each: filling and emptying take turns
    order = []
    for event in ("copy-read in", "kernel-read", "copy-read out", "copy-write"):
        without = {
            a: [replace(s, signals=tuple(e for e in s.signals if e != event)) for s in steps] for a, steps in agents.items()
        }
        with pytest.raises(ResourceError) as stuck:
            run_events(without)
        (waits,) = re.findall(rf"  (.+) waits at '\d' for '{event}'", str(stuck.value))
        waits = "copy write" if waits == "copy in" else waits
        order.append(f"{event.removesuffix(' in').removesuffix(' out')}→{waits}")
    return {"order": order}


def barriers() -> dict[str, Any]:
    return {"barriers": len(run_events(pipeline_steps(1, 1, 8, slots=2)).events)}


def scale_moved() -> dict[str, Any]:
    """166 units in the last place of a sum of eight segments of 254.75, as units of the scale in [1, 2)."""
    total = 8 * 254.75
    moved = 166 * float(np.spacing(np.float32(total)))
    step = 2.0**-10
    low, at, high = scale_of(np.array([total - step, total, total + step]))
    assert 1 <= at < 2
    return {"scale ulps (est.)": float((low - high) / (2 * step) * moved / np.spacing(np.float32(at)))}


def in_segments(count: int, length: int) -> Schedule:
    s = row_sums.schedule(reassociate="acc").split("k", length // count, into=("ko", "ki"))
    return s.split_reduction("acc", "ko")


def variant_in_the_batch() -> dict[str, Any]:
    """One row alone and in a batch: equal with the same segments, not with another number of them."""
    rows = np.random.default_rng(0).standard_normal((16, 512)).astype(np.float32)
    eight = in_segments(8, 512).run(rows)
    alone = np.concatenate([in_segments(8, 512).run(rows[n : n + 1]) for n in range(16)])
    fixed = eight.tobytes() == alone.tobytes()
    other = in_segments(2, 512).run(rows).tobytes() != eight.tobytes()
    stated = any("two runs give the same bits, other loop factors may not" in n for n in in_segments(8, 512).check().notes)
    assert fixed and stated
    return {"verdict": f"batch-{'variant' if other else 'invariant'} unless #segments and merge order fixed"}


def arrival_or_order() -> dict[str, Any]:
    """Adding into one cell as threads arrive, and partial sums merged in order."""
    s = one_sum.schedule(reassociate="acc")
    with pytest.raises(LegalityError) as race:
        s.parallel("i")
    assert race.value.witness is not None and race.value.witness.kind == "race"
    rows = np.random.default_rng(1).standard_normal(512).astype(np.float32)
    differs = s.run(rows).tobytes() != s.reverse("i").run(rows).tobytes()
    ordered = s.split("i", 64, into=("io", "ii")).split_reduction("acc", "io")
    ordered = ordered.cache_write("acc_part", at="io", memory="register")
    same = len({ordered.run(rows).tobytes() for _ in range(4)}) == 1 and "two runs give the same bits" in ordered.check().notes[0]
    moved = ordered.cost(N=512).traffic.by_buffer("global")["acc_part"]
    each = (moved.write // (4 * 8), moved.read // (4 * 8))
    segments = {f"segment {n}": t for n, t in enumerate((1, 1, 5, 1))}
    path = tilec.critical_path({**segments, "merge": 1}, {"merge": list(segments)})
    waits = path.total_us == 6 and path.path == ("segment 2", "merge")
    words = (
        f"atomic: {'non-deterministic' if differs else 'deterministic'}",
        f"ordered: {'deterministic' if same else 'non-deterministic'}, +{each[0]} write/read"
        f"{', waits for slowest' if waits else ''}",
    )
    assert each == (1, 1)
    return {"verdict": words}


def selection() -> dict[str, Any]:
    """A reordered sum is refused whatever its size; what is too large is not estimated; the best estimates are measured."""
    measured: list[int] = []

    def schedule(s: Schedule, reversed_: str, BN: int) -> Schedule:
        s = s.split("i", BN, into=("io", "ii")).cache_read("x", at="io", memory="shared")
        return s.reverse("io") if reversed_ == "yes" else s

    def measure(s: Schedule) -> float:
        measured.append(s.cost().footprint["shared"])
        return 1.0

    space = {"reversed_": ["no", "yes"], "BN": [64, 128, 256, 1 << 20]}
    found = tilec.tune(one_sum, {"N": 1 << 21}, "h100-sxm", space, schedule, measure, budget=2)
    counts = {reason: r.count for reason, r in found.rejected.items()}
    illegal, large = counts["illegal"], counts["does not fit"]
    assert (illegal, large) == (4, 1)  # the illegal ones are refused in all sizes, before any size is looked at
    assert sorted(r.cost.footprint["shared"] for r in found.top(2)) == sorted(measured)
    assert len(measured) == 2 < 8 - illegal - large  # estimates chose what is measured
    return {"order": "legality < capacity < estimate < measure"}


def pitfalls() -> dict[str, Any]:
    stored = blocked(tilec.workload("rowquant_gemm").schedule(**QUANTIZED), "Y", 128, 128, 32)
    stored = stored.cache_read("Q", at="ko", memory="shared").cache_read("W", at="ko", memory="shared")
    stored = stored.cache_read("S", at="jo", memory="shared").place("acc", "shared").cost()
    recomputed = quantized(False).cost()
    fewer_kernels_cost_more = recomputed.launches < stored.launches and recomputed.traffic.total() > stored.traffic.total()
    large, small = (tilec.tiles((1536, 1536), (size, size)) for size in (128, 96))
    waves = [tilec.waves("h100-sxm", t.count, 1).waves * size**2 for t, size in ((large, 128), (small, 96))]
    traffic = [Fraction(2, size) for size in (128, 96)]
    least_traffic_slower = traffic[0] < traffic[1] and waves[0] > waves[1]
    no_throughput = tilec.pipeline_time(1, 3, 100, 4).time == tilec.pipeline_time(1, 3, 100, 2).time
    programs = [tilec.CallProgram("generic", 0, 10), tilec.CallProgram("tuned", 1000, 1)]
    steady_not_total = tilec.choose_program(programs).best(50) == "generic"
    return {"n": sum((fewer_kernels_cost_more, least_traffic_slower, no_throughput, steady_not_total))}


def flow_of_a_tile() -> dict[str, Any]:
    """Tiles are copied to shared memory, the product reads only those, and every element of C is stored once."""
    s = gemm(128, 128)
    steps: list[str] = []
    for site in sites(s.program.body):
        match site.action:
            case Copy(dst=d) if s.program.buffer[d.buffer].memory == "shared":
                steps.append("load tiles")
            case Leaf(statement="S1", reads=reads):
                assert {s.program.buffer[r.buffer].memory for r in reads} == {"shared"}
                steps.append("reuse in SMEM")
            case Leaf(target=t) if t.buffer == "C":
                steps.append("write C once")
    c = gemm_cost(128, 128).traffic.by_buffer("global")["C"]
    assert mib(c.write) == Fraction(2 * CHAPTER["M"] * CHAPTER["N"], 2**20) and c.read == 0
    return {"order": " → ".join(dict.fromkeys(steps))}


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "C5-S5.1.3-b": last_users,
    "C5-S5.1.5-p": barriers,
    "C5-S5.2.4-i": scale_moved,
    "C5-S5.2.4-n": variant_in_the_batch,
    "C5-S5.2.4-o": arrival_or_order,
    "C5-S5.4.5-d": selection,
    "C5-MIS-a": pitfalls,
    "D3-TILE-a": flow_of_a_tile,
}
