"""Which rewrites keep the result, at symbolic sizes, and what the wrong ones would compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

import tilec
from tests.ledger.kernels import K, M, N, blocked
from tilec import bf16, f32
from tilec.api import Schedule
from tilec.errors import LegalityError
from tilec.ir.dtypes import round_through, to_storage


@tilec.kernel
def silu_of_parts(x: f32[2], after: f32[1], before: f32[1]):
    """SiLU of a sum, and the sum of SiLU of its parts."""
    after[0] = tilec.silu(x[0] + x[1])
    before[0] = tilec.silu(x[0]) + tilec.silu(x[1])


@tilec.kernel
def product(A: bf16[M, K], W: bf16[K, N], C: f32[M, N]):
    """A matrix product that keeps every bit of its sums."""
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc


@tilec.kernel
def rounded(A: f32[M, K], W: f32[K, N], C: bf16[M, N], Y: f32[M, N]):
    """SiLU of the product as bf16 holds it."""
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc
    for i in range(M):
        for j in range(N):
            Y[i, j] = tilec.silu(C[i, j])


@tilec.kernel
def unrounded(A: f32[M, K], W: f32[K, N], Y: f32[M, N]):
    """SiLU of the f32 sum."""
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            Y[i, j] = tilec.silu(acc)


def verdict(step: Callable[[], Schedule]) -> str:
    """The status of a step: accepted and proved, refused with a witness, or refused without one."""
    try:
        return step().check().status
    except LegalityError as e:
        return "illegal" if e.witness is not None else "unknown"


@cache
def operands() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, w = (to_storage("bf16", rng.standard_normal(shape).astype(np.float32)) for shape in ((13, 150), (150, 11)))
    return a, w


def bits(s: Schedule) -> bytes:
    return s.run(*operands(), backend="interpreter").tobytes()


def orders_of_other_loops() -> dict[str, Any]:
    """i-k-j and blocks of k keep every sum's order: legal as it stands, same bits. A split sum, a parallel k are refused."""
    s = product.schedule()
    kept = [s.reorder("i", "k", "j"), s.split("k", 32, into=("ko", "ki")), blocked(s, "C", 4, 8, 32)]
    other = [lambda: s.split("k", 32, into=("ko", "ki")).split_reduction("acc", "ko"), lambda: s.parallel("k")]
    assert [verdict(step) for step in other] == ["illegal", "illegal"]
    return {"bit-identical": all(t.check().status == "legal" and bits(t) == bits(s) for t in kept)}


def silu_before_and_after() -> dict[str, Any]:
    after, before = silu_of_parts(np.array([1, -1], np.float32))
    return {"after": float(after[0]), "before": float(before[0])}


def silu_inside_the_sum() -> dict[str, Any]:
    """SiLU runs in each block of k, on a sum that is not complete."""
    s = tilec.workload("gemm_silu").schedule().compute_inline("C").split("acc.k", 32, into=("ko", "ki"))
    return {"verdict": verdict(lambda: s.reverse_compute_at("Y", "ko"))}


def without_the_rounding() -> dict[str, Any]:
    """acc = 1 + 2**-9, which f32 holds and bf16 does not. Fusing keeps the rounding, whatever is fused."""
    acc, one = np.full((1, 1), 1 + 2**-9, np.float32), np.ones((1, 1), np.float32)
    c, kept = rounded(acc, one)
    dropped = unrounded(acc, one)
    s = rounded.schedule().fuse_siblings("C.i", "Y.i").fuse_siblings("C.j", "Y.j")
    assert s.run(acc, one, backend="interpreter")[1].tobytes() == kept.tobytes()
    as_bf16 = [round_through("bf16", y)[0, 0] for y in (kept, dropped)]
    return {
        "bf16(acc)": float(c[0, 0]),
        "with rounding": float(kept[0, 0]),
        "without": float(dropped[0, 0]),
        "BF16 outputs differ": bool(as_bf16[0] != as_bf16[1]),
    }


def quantised_too_early() -> dict[str, Any]:
    """A block of the row is quantised before the maximum has seen the later blocks."""
    s = tilec.workload("rowquant_gemm").schedule().compute_inline("S").fuse_siblings("m.i", "Q.i")
    s = s.split("m.k", 128, into=("ko", "ki")).split("Q.k", 128, into=("qo", "qi"))
    return {"verdict": verdict(lambda: s.fuse_siblings("ko", "qo"))}


def other_order_of_the_sum() -> dict[str, Any]:
    """Reversed, and with its blocks reversed: refused as it stands, legal under the permission, and then other bits."""

    def backwards(s: Schedule) -> Schedule:
        return s.reverse("k")

    def blocks_backwards(s: Schedule) -> Schedule:
        return s.split("k", 32, into=("ko", "ki")).reverse("ko")

    steps = (backwards, blocks_backwards)
    refused = all(verdict(lambda step=step: step(product.schedule())) == "illegal" for step in steps)
    allowed = [step(product.schedule(reassociate="acc")) for step in steps]
    legal = all(s.check().status == "legal" and s.check().permissions for s in allowed)
    exact = [bits(s) == bits(product.schedule()) for s in allowed]
    words = "dependence-legal only under an explicit reassociation permission" if refused and legal else f"{refused}, {legal}"
    return {"verdict": f"{words}; {'never bit-exact in general' if not any(exact) else exact}"}


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "C5-S5.4.2-g": orders_of_other_loops,
    "C5-S5.4.3-a": silu_before_and_after,
    "C5-S5.4.3-b": silu_inside_the_sum,
    "C5-S5.4.3-d": without_the_rounding,
    "C5-EX5.7-d": quantised_too_early,
    "C5-S5.4.3-i": other_order_of_the_sum,
}
