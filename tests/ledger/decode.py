"""One decoding step of a language model as its kernels, each with its operations and bytes, priced by tilec's roofline.

The reconstruction is the ledger's: bf16, 70 % of the compute peak, 80 % of the bandwidth, every kernel reads and writes its
operands once, softmax 5 operations per score on the vector unit. The new token attends to itself: one key more than the context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import tilec
from tilec.ir.dtypes import DTYPES

COMPUTE, BANDWIDTH = Fraction(7, 10), 0.8
WIDTH = DTYPES["bf16"].bytes


@dataclass(frozen=True)
class Model:
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    wide: int
    words: int


@dataclass(frozen=True)
class Step:
    """`values`: elements read or written."""

    name: str
    values: int
    flops: int = 0
    unit: str = "matrix"


def product(name: str, k: int, n: int) -> Step:
    """One row times a k by n matrix."""
    return Step(name, k + k * n + n, 2 * k * n)


def steps(m: Model, context: int, fused: bool) -> Sequence[Step]:
    """14 kernels per layer, fused 9 (add with norm, rotation with the cache's write, attention in one), and 3 around them."""
    head = m.hidden // m.heads
    keys, query, kv = context + 1, m.hidden, m.kv_heads * head
    scores, cached = m.heads * keys, keys * kv
    norm = Step("norm", 2 * m.hidden)
    if fused:
        before = after = [Step("add + norm", 4 * m.hidden)]
        ending: list[Step] = []
        place = [Step("rope + cache", 2 * (query + 2 * kv))]
        attention = [Step("attention", 2 * query + 2 * cached, 4 * scores * head)]
    else:
        before, after = [norm], [Step("add", 3 * m.hidden), norm]
        ending = [Step("add", 3 * m.hidden)]
        place = [Step("rope", 2 * (query + kv)), Step("cache", 2 * 2 * kv)]
        attention = [
            Step("scores", query + cached + scores, 2 * scores * head),
            Step("softmax", 2 * scores, 5 * scores, "vector"),
            Step("values", scores + cached + query, 2 * scores * head),
        ]
    layer = [
        *before,
        product("qkv", m.hidden, query + 2 * kv),
        *place,
        *attention,
        product("out", query, m.hidden),
        *after,
        product("gate, up", m.hidden, 2 * m.wide),
        Step("activation", 3 * m.wide),
        product("down", m.wide, m.hidden),
        *ending,
    ]
    return [Step("embed", 2 * m.hidden), *(layer * m.layers), norm, product("head", m.hidden, m.words)]


def device_us(found: Sequence[Step], target: str = "h100-sxm") -> float:
    """Kernels in turn. All of them must be bound by memory: of the peaks only that is used."""
    total = 0.0
    for s in found:
        dtype = "bf16" if s.unit == "matrix" else "f32"
        r = tilec.roofline(target, float(s.flops / COMPUTE), s.values * WIDTH, dtype, s.unit, BANDWIDTH)
        assert r.bound == "global", s
        total += r.time * 1e6
    return total
