"""A transformer's forward pass, operator by operator: kernels, shares of operations and of time; and attention by blocks of rows.

Every operator reads its inputs and writes its output once, in bf16. A product is priced as the library's gemm; an operator that
isn't one takes the vector unit. Reached of the roofs: 7/10 of the arithmetic, 8/10 of the bandwidth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import inf, log
from pathlib import Path
from typing import Any

import numpy as np

import tilec
from tests.ledger.kernels import mib
from tilec import exp, f32, sizes
from tilec.cost.latency import tiles
from tilec.cost.roofline import Roofline, roofline
from tilec.ir.dtypes import DTYPES

ROUNDED = str(Path(__file__).parent / "h100_rounded.toml")
ARITHMETIC, BANDWIDTH = 0.7, 0.8  # shares that are reached
FIXED = 0.5e-3  # seconds per step outside the kernels
BF16, F32 = DTYPES["bf16"].bytes, DTYPES["f32"].bytes
# Operations per element. Only softmax's are given; the others are inferred from the share of operations in P1-S5.3-b
# (so that row's F is a consistency check, not a prediction). No time depends on them: these operators are bound by memory.
NORM, ROPE, ADD, GATE, SOFTMAX = 4, 3, 1, 5, 5


@dataclass(frozen=True)
class Model:
    """Layers, width, heads, heads of keys and values, hidden width, vocabulary."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int

    @property
    def kv(self) -> int:
        return self.kv_heads * self.width // self.heads

    @property
    def matrices(self) -> tuple[tuple[str, int, int], ...]:
        d = self.width
        return ("qkv", d, d + 2 * self.kv), ("o", d, d), ("gate_up", d, 2 * self.hidden), ("down", self.hidden, d)


LLAMA = Model(32, 4096, 32, 8, 14336, 128256)


@dataclass(frozen=True)
class Operator:
    """`kind`: product, attention, or row (elementwise and norms). `activations`: bytes without weights and the cache of keys."""

    name: str
    kind: str
    unit: str
    flops: float
    bytes: int
    activations: int

    @property
    def roof(self) -> Roofline:
        return roofline(ROUNDED, self.flops, self.bytes, "bf16" if self.unit == "matrix" else "f32", self.unit, BANDWIDTH)

    @property
    def compute(self) -> float:
        return self.roof.compute / ARITHMETIC

    @property
    def time(self) -> float:
        return max(self.compute, self.roof.memory)


@cache
def product(name: str, rows: int, k: int, n: int) -> Operator:
    cost = tilec.workload("gemm").schedule().cost(M=rows, K=k, N=n)
    by = cost.footprint.by_buffer("global")
    return Operator(name, "product", "matrix", cost.flops, cost.lower_bound(), by["A"] + by["C"])


def row(name: str, elements: int, operations: int, operands: int) -> Operator:
    """`operands`: arrays of that many elements, read or written."""
    count = BF16 * elements * operands
    return Operator(name, "row", "vector", elements * operations, count, count)


def forward(m: Model, requests: int, tokens: int, keys: int, fused: bool = False) -> list[Operator]:
    """One step: `tokens` new tokens of each request against `keys` keys. Of several new tokens half of the scores are masked."""
    t, d = requests * tokens, m.width
    seen = 1 if tokens == 1 else 0.5
    scores, cached, queries = requests * m.heads * tokens * keys, BF16 * requests * keys * m.kv, BF16 * t * d
    weigh = 2 * scores * (d // m.heads) * seen  # operations of Q·Kᵀ, and of P·V

    def attention(name: str, unit: str, flops: float, activations: int, stored: int) -> Operator:
        return Operator(name, "attention", unit, flops, activations + stored, activations)

    by = {name: product(name, t, k, n) for name, k, n in m.matrices}
    gate = Operator("act", "row", "vector", GATE * t * m.hidden, 3 * BF16 * t * m.hidden, 3 * BF16 * t * m.hidden)
    if fused:
        norm = row("add_norm", t * d, ADD + NORM, 4)
        turn = 2 * BF16 * t * (d + 2 * m.kv)
        layer = [
            *(norm, by["qkv"], Operator("rope_kv", "row", "vector", ROPE * t * (d + m.kv), turn, turn)),
            attention("attention", "matrix", 2 * weigh, 2 * queries, 2 * cached),
            *(by["o"], norm, by["gate_up"], gate, by["down"]),
        ]
    else:
        norm, add = row("norm", t * d, NORM, 2), row("add", t * d, ADD, 3)
        layer = [
            *(norm, by["qkv"], row("rope", t * (d + m.kv), ROPE, 2), row("kv_write", t * 2 * m.kv, 0, 2)),
            attention("scores", "matrix", weigh, queries + BF16 * scores, cached),
            attention("softmax", "vector", SOFTMAX * scores, 2 * BF16 * scores, 0),
            attention("values", "matrix", weigh, queries + BF16 * scores, cached),
            *(by["o"], add, norm, by["gate_up"], gate, by["down"], add),
        ]
    ends = [row("embed", t * d, 0, 2), row("final_norm", t * d, NORM, 2), product("lm_head", requests, d, m.vocabulary)]
    return [*layer * m.layers, *ends]


def total(found: Iterable[Operator]) -> float:
    return sum(op.time for op in found)


def share(found: list[Operator], wanted: Callable[[Operator], bool]) -> tuple[float, float]:
    """Percent of the operations, and of the time."""
    some = [op for op in found if wanted(op)]
    return 100 * sum(op.flops for op in some) / sum(op.flops for op in found), 100 * total(some) / total(found)


def kernels() -> dict[str, Any]:
    return {name: len(forward(LLAMA, 1, 1, 1025, fused)) for name, fused in (("unfused", False), ("fused", True))}


def prefill(*kinds: str) -> tuple[float, float]:
    return share(forward(LLAMA, 1, 2048, 2048), lambda op: op.kind in kinds)


def products() -> dict[str, Any]:
    flops, time = prefill("product")
    return {"F": flops, "T": time}


def rows_of_elements() -> dict[str, Any]:
    flops, time = prefill("row")
    return {"F": flops, "T": time}


def attention_time() -> dict[str, Any]:
    return {"T": prefill("attention")[1]}


def apart_from_products() -> dict[str, Any]:
    flops, time = prefill("row", "attention")
    return {"F": flops, "T": time}


def about_keys(op: Operator) -> bool:
    return op.kind == "attention" or op.name == "kv_write"


def one_request() -> dict[str, Any]:
    """The new token is one of its own keys."""
    found = forward(LLAMA, 1, 1, 1024 + 1)
    return {
        "ms": total(found) * 1e3,
        "mm": share(found, lambda op: op.kind == "product")[1],
        "attn": share(found, about_keys)[1],
        "all memory": all(op.roof.memory > op.compute for op in found),
    }


def many_requests() -> dict[str, Any]:
    found = forward(LLAMA, 64, 1, 1024 + 1)
    return {"ms": total(found) * 1e3, "attn": share(found, about_keys)[1]}


def activations() -> dict[str, Any]:
    return {"GB": sum(op.activations for op in forward(LLAMA, 256, 1, 1024)) / 1e9}


@cache
def simple(requests: int, tokens: int, keys: int) -> tuple[float, int]:
    """Operations of the products and the attention only, and bytes of the weights and of the keys and values."""
    found = [op for op in forward(LLAMA, requests, tokens, keys) if op.unit == "matrix"]
    return sum(op.flops for op in found), sum(op.bytes - op.activations for op in found)


def prefill_time(faster: float = 1) -> float:
    flops, _ = simple(1, 2048, 2048)
    return roofline(ROUNDED, flops, 0, "bf16").compute / ARITHMETIC / faster + FIXED


def decode_time(narrower: int = 1) -> float:
    _, count = simple(1, 1, 1024)
    return roofline(ROUNDED, 0, count / narrower, efficiency=BANDWIDTH).memory + FIXED


def fused_prefill() -> dict[str, Any]:
    fused, hw = total(forward(LLAMA, 1, 2048, 2048, fused=True)), prefill_time()
    return {"fused": fused * 1e3, "hw": hw * 1e3, "pct": 100 * (fused / hw - 1)}


def faster_prefill() -> dict[str, Any]:
    return {"bf16": prefill_time() * 1e3, "fp8": prefill_time(1979 / 989) * 1e3}


def narrower_decode() -> dict[str, Any]:
    return {"x": decode_time() / decode_time(BF16 // DTYPES["f8e4m3"].bytes)}


def used() -> dict[str, Any]:
    flops, count = simple(1, 1, 1024)
    r, time = roofline(ROUNDED, flops, count, "bf16"), decode_time()
    return {"MFU": 100 * r.compute / time, "MBU": 100 * r.memory / time}


# Attention of one head, 8192 rows of 128

LENGTH, HEAD = 8192, 128


def stored_scores() -> dict[str, Any]:
    """Scores and weights in f32, each stored once and read once."""
    cost = tilec.workload("attention").schedule().cost(M=LENGTH, N=LENGTH, D=HEAD)
    by = cost.footprint.by_buffer("global")
    assert by["S"] == by["E"]
    return {
        "Q": mib(by["Q"]),
        "S": mib(by["S"]),
        "once": mib(cost.lower_bound()),
        "SP GiB": 2 * mib(by["S"] + by["E"]) / 1024,
    }


def query_rows(b: int) -> int:
    """The most query rows a whose block fits: Q, K, V and the product in bf16 and f32, the scores, three numbers per row."""
    capacity = tilec.target("rtx-pro-6000").shared_capacity
    assert capacity is not None

    def held(a: int) -> int:
        return BF16 * (a + b) * HEAD + F32 * a * b + F32 * a * HEAD + 3 * F32 * a

    return max(a for a in range(1, LENGTH) if held(a) <= capacity)


def scanned(b: int) -> tuple[int, int, int]:
    """Query blocks (each scans all keys and values once), MiB moved, steps of keys in all."""
    one = tilec.workload("attention").schedule().cost(M=LENGTH, N=LENGTH, D=HEAD).footprint.by_buffer("global")
    scans, steps = tiles((LENGTH, LENGTH), (query_rows(b), b)).grid
    moved = mib(one["Q"] + one["O"] + scans * (one["K"] + one["V"]))
    return scans, int(moved), scans * steps


def blocked_by(b: int) -> Callable[[], dict[str, Any]]:
    def found() -> dict[str, Any]:
        scans, moved, updates = scanned(b)
        return {"a": query_rows(b), "scans": scans, "MiB": moved, "updates": updates}

    return found


def one_key_at_a_time() -> dict[str, Any]:
    (_, wide, few), (_, narrow, many) = scanned(64), scanned(1)
    return {"MiB": wide - narrow, "x": many / few}


N = sizes("N")


@tilec.kernel
def streamed(X: f32[N], V: f32[N], L: f32[N], U: f32[N], Y: f32[N]):
    """Softmax of scores X times values V in one pass: the sum of weights and the weighted sum after each score."""
    m: f32 = -inf
    l: f32 = 0
    u: f32 = 0
    for j in range(N):
        before: f32 = m
        m = max(m, X[j])
        rescale: f32 = exp(before - m)
        p: f32 = exp(X[j] - m)
        l = l * rescale + p
        u = u * rescale + p * V[j]
        L[j] = l
        U[j] = u
        Y[j] = u / l


@tilec.kernel
def at_once(X: f32[N], V: f32[N], Y: f32[1]):
    """The same with all scores there."""
    m: f32 = -inf
    for j in range(N):
        m = max(m, X[j])
    l: f32 = 0
    u: f32 = 0
    for j in range(N):
        l += exp(X[j] - m)
        u += exp(X[j] - m) * V[j]
    Y[0] = u / l


def weighed(*pairs: tuple[float, float]) -> dict[str, float]:
    scores, values = (np.array(column, np.float32) for column in zip(*pairs, strict=True))
    found = zip("luy", streamed(scores, values), strict=True)
    return {name: float(v[-1]) for name, v in found} | {"one shot": float(at_once(scores, values)[0])}


TWO = (0.0, 1.0), (log(2), 3.0)


def online() -> dict[str, Any]:
    return weighed(*TWO)


def one_more_score() -> dict[str, Any]:
    found = weighed(*TWO, (log(4), 5.0))
    return {"state": (found["l"], found["u"]), "y": found["y"], "one shot": found["one shot"]}


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "P1-S5.2-a": kernels,
    "P1-S5.3-a": products,
    "P1-S5.3-b": rows_of_elements,
    "P1-S5.3-c": attention_time,
    "P1-S5.4-a": one_request,
    "P1-S5.4-b": many_requests,
    "P1-S5.5-a": fused_prefill,
    "P1-S6.1-a": activations,
    "P1-S6.4-b": used,
    "P1-S7.6-a": faster_prefill,
    "P1-S7.6-b": narrower_decode,
    "P1-S11-a": apart_from_products,
    "C5-S5.3.3-a": stored_scores,
    "C5-EX5.6-a": online,
    "C5-LAB5.3-a": one_more_score,
    "C5-S5.3.3-b1": blocked_by(1),
    "C5-S5.3.3-b64": blocked_by(64),
    "C5-S5.3.3-b128": blocked_by(128),
    "C5-S5.3.3-c": one_key_at_a_time,
}
