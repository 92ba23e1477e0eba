"""Row-wise quantisation before a matrix product: what is stored, what is recomputed, and the values themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

import tilec
from tests.ledger.kernels import QUANTIZED, K, M, kib, mib, quantized, trips
from tilec import f8e4m3, f16, f32
from tilec.api import Cost
from tilec.ir.dtypes import to_arithmetic


@tilec.kernel
def row_values(A: f16[M, K], X: f32[M, K], Q: f8e4m3[M, K], D: f32[M, K]):
    """A over the row's scale, that rounded to E4M3FN, and that scaled back."""
    S: f32[M]
    for i in range(M):
        m: f32 = 0
        for k in range(K):
            m = max(m, abs(A[i, k]))
        S[i] = m / 448
    for i in range(M):
        for k in range(K):
            X[i, k] = A[i, k] / S[i]
            Q[i, k] = X[i, k]
            D[i, k] = Q[i, k] * S[i]


def exact(value: np.float32) -> Fraction:
    """The fraction of small terms that an f32 result stands for."""
    found = Fraction(float(value)).limit_denominator(1000)
    assert abs(np.float32(float(found)) - value) <= np.spacing(value)
    return found


@cache
def first_element(count: int) -> tuple[Fraction, Fraction, Fraction]:
    """Scaled, rounded and dequantised, of the first element; the scale from the first `count` of the row's 256 elements."""
    row = np.zeros((1, 256), np.float16)
    row[0, 0], row[0, 128] = 1, 10  # the first elements of the two blocks of 128
    scaled, rounded, back = row_values(np.ascontiguousarray(row[:, :count]))
    return exact(scaled[0, 0]), exact(np.float32(to_arithmetic("f8e4m3", rounded)[0, 0])), exact(back[0, 0])


def by_the_whole_row() -> dict[str, Any]:
    scaled, rounded, back = first_element(256)
    return {"scaled": scaled, "rounded": rounded, "dequant": back}


def by_the_first_block() -> dict[str, Any]:
    _, rounded, back = first_element(128)
    diff = back - first_element(256)[2]
    return {"q": rounded, "deq": back, "diff": diff, "pct": float(100 * diff / back)}


@cache
def cost(stored: bool) -> Cost:
    return quantized(stored).cost()


@cache
def traffic(stored: bool) -> dict[str, Fraction]:
    """MiB per buffer of A, Q, W and Y; the row scales are counted apart."""
    by = cost(stored).traffic.by_buffer("global")
    return {b: mib(by[b]) for b in ("A", "Q", "W", "Y") if b in by}


def matrices() -> dict[str, Any]:
    by = {b: mib(count) for b, count in cost(True).footprint.by_buffer("global").items()}
    row = next(
        one.footprint.by_buffer("shared")["A_shared"] for one in cost(True).launch if "A" in one.traffic.by_buffer("global")
    )
    return {
        "A": by["A"],
        "A8": by["Q"],
        "W": by["W"],
        "C": by["Y"],
        "blocks": (trips(quantized(True), "io"), trips(quantized(True), "jo")),
        "row": kib(row),
    }


def stored() -> dict[str, Any]:
    by = traffic(True)
    return {"in": by["A"] + by["Q"], "w+out": by["W"] + by["Y"], "total": sum(by.values())}


def recomputed() -> dict[str, Any]:
    by, total = traffic(False), sum(traffic(False).values())
    assert set(by) == {"A", "W", "Y"}
    return {"in": by["A"], "total": total, "pct": float(100 * (total / sum(traffic(True).values()) - 1))}


def per_column_block() -> dict[str, Any]:
    """What the product reads of its left operand: all of it, and per block of columns."""
    columns = trips(quantized(True), "jo")
    again = (
        mib(cost(True).traffic.by_buffer("global")["Q"].read),
        mib(cost(False).launch[-1].traffic.by_buffer("global")["A"].read),
    )
    return {"sep": again[0] / columns, "fused": again[1] / columns, "reread": again}


def all_columns() -> dict[str, Any]:
    """One block of all columns in place of tiles of 128."""
    wide, narrow = (quantized(False, n).cost().footprint.by_buffer("shared")["acc"] for n in (QUANTIZED["N"], 128))
    return {"x": Fraction(wide, narrow), "acc KiB": kib(wide)}


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "C5-EX5.7-a": by_the_whole_row,
    "C5-EX5.7-b": by_the_first_block,
    "C5-EX5.8-a": matrices,
    "C5-EX5.8-b": stored,
    "C5-EX5.8-c": recomputed,
    "C5-EX5.8-d": per_column_block,
    "C5-EX5.8-e": all_columns,
}
