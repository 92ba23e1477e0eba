"""Kernels, schedules and small helpers that the ledger's computations share. What is scheduled once is kept."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import prod

import tilec
from tilec import bf16, f32, rsqrt, sizes
from tilec.api import Cost, Schedule
from tilec.ir.tree import loops

M, N, K = sizes("M N K")
KIB, MIB = 2**10, 2**20
CHAPTER = {"M": 1024, "K": 4096, "N": 12288}  # the matrix product of the chapter
QUANTIZED = {"M": 4096, "K": 4096, "N": 1536}
SHORT = {"threads": "threads", "registers": "regs", "shared": "smem", "blocks": "blocks", "barriers": "barriers"}


def kib(count: int) -> Fraction:
    return Fraction(count, KIB)


def mib(count: int) -> Fraction:
    return Fraction(count, MIB)


def limiters(cost_or_occupancy: Cost | tilec.api.Occupancy) -> list[str]:
    """The ledger's words for what caps the occupancy, in alphabetical order."""
    found = cost_or_occupancy.occupancy if isinstance(cost_or_occupancy, Cost) else cost_or_occupancy
    assert found is not None
    return sorted(SHORT[n] for n in found.limiters)


def trips(s: Schedule, *names: str, **given: int) -> int:
    """Iterations of loops whose bounds hold sizes only, multiplied."""
    found = {loop.var: loop for _, loop in loops(s.program.body)}

    def extent(name: str) -> int:
        loop = found[name]
        return min(e.eval(given) for e in loop.upper) - max(e.eval(given) for e in loop.lower)

    return prod(map(extent, names))


def blocked(s: Schedule, out: str, bm: int, bn: int, bk: int) -> Schedule:
    """Tiles bm × bn of the product written to `out`, its sum in blocks of bk: loops io, jo, ko, ii, ji, ki."""
    s = s.split(f"{out}.i", bm, into=("io", "ii")).split(f"{out}.j", bn, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
    return s.split("acc.k", bk, into=("ko", "ki")).reorder("io", "jo", "ko", "ii", "ji", "ki")


@cache
def gemm(bm: int, bn: int, bk: int = 32, acc: str = "shared", stages: int = 1) -> Schedule:
    """The product with tiles of A and W in shared memory, the accumulator there or in registers, one block per output tile."""
    s = blocked(tilec.workload("gemm").schedule(), "C", bm, bn, bk)
    s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", acc)
    return s.bind("io", "block.y").bind("jo", "block.x").pipeline("ko", stages=stages)


@cache
def gemm_cost(
    bm: int,
    bn: int,
    bk: int = 32,
    acc: str = "shared",
    stages: int = 1,
    target: str | None = None,
    threads: int | None = None,
    registers: int | None = None,
) -> Cost:
    return gemm(bm, bn, bk, acc, stages).cost(target, threads, registers, **CHAPTER)


@cache
def chain(*inlined: str) -> Cost:
    """T = SiLU(G), Z = T·U, Q = quantize(Z) on [1024, 12288], with the named steps inside their readers."""
    s = tilec.workload("act_chain").schedule()
    for buffer in inlined:
        s = s.compute_inline(buffer)
    return s.cost(M=1024, N=12288)


@cache
def quantized(stored: bool, columns: int = 128) -> Schedule:
    """rowquant_gemm with tiles 128 × columns: the quantised operand stored, or recomputed inside the column-block loop."""
    s = tilec.workload("rowquant_gemm").schedule(**QUANTIZED)
    if stored:
        s = s.fuse_siblings("S.i", "Q.i").cache_read("A", at="S.i", memory="shared")
        s = s.cache_write("S", at="S.i", memory="register")
        s = blocked(s, "Y", 128, columns, 32).cache_read("Q", at="ko", memory="shared")
    else:
        s = blocked(s, "Y", 128, columns, 32).compute_at("Q", "ko").place("Q", "shared")
    return s.cache_read("W", at="ko", memory="shared").cache_read("S", at="jo", memory="shared").place("acc", "shared")


@tilec.kernel
def relayout(A: bf16[M, N], B: bf16[N, M]):
    """A tile on its way into another layout."""
    T: bf16[M, N]
    for i in range(M):
        for j in range(N):
            T[i, j] = A[i, j]
    for j in range(N):
        for i in range(M):
            B[j, i] = T[i, j]


@cache
def queued(stages: int) -> Schedule:
    """Output tiles of 128 × 128 (32 KiB in bf16), fed by copies of 128 × 64 (16 KiB) through a queue of `stages` slots."""
    s = relayout.schedule().split("B.i", 128, into=("io", "ii")).split("B.j", 128, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ji", "ii").compute_at("T", "jo").place("T", "shared")
    s = s.split("T.j", 64, into=("qo", "qi")).reorder("qo", "T.i", "qi").cache_read("A", at="qo", memory="shared")
    return s.bind("io", "block.y").bind("jo", "block.x").pipeline("qo", stages=stages)


@tilec.kernel
def rmsnorm_segments(X: bf16[M, 4096], G: bf16[4096], eps: f32, Y: bf16[M, 4096]):
    """rmsnorm in three steps: partial sums of eight segments of a row, the row's scale, the scaled row."""
    P: f32[M, 8]
    R: f32[M]
    for i in range(M):
        for e in range(8):
            p: f32 = 0
            for k in range(512):
                p += X[i, 512 * e + k] * X[i, 512 * e + k]
            P[i, e] = p
    for i in range(M):
        ss: f32 = 0
        for e in range(8):
            ss += P[i, e]
        R[i] = rsqrt(ss / 4096 + eps)
    for i in range(M):
        for e in range(8):
            for k in range(512):
                Y[i, 512 * e + k] = X[i, 512 * e + k] * R[i] * G[512 * e + k]


@tilec.kernel
def staged_row(X: bf16[M, K], G: bf16[K], Y: bf16[M, K]):
    """A row staged in f32 on its way."""
    T: f32[M, K]
    for i in range(M):
        for k in range(K):
            T[i, k] = X[i, k]
    for i in range(M):
        for k in range(K):
            Y[i, k] = T[i, k] * G[k]


@tilec.kernel
def add_rmsnorm(X: bf16[M, K], R: bf16[M, K], G: bf16[K], eps: f32, H: bf16[M, K], Y: bf16[M, K]):
    """H = X + R is the next layer's residual and the input of the norm."""
    for i in range(M):
        for k in range(K):
            H[i, k] = X[i, k] + R[i, k]
    for i in range(M):
        ss: f32 = 0
        for k in range(K):
            ss += H[i, k] * H[i, k]
        r: f32 = rsqrt(ss / K + eps)
        for k in range(K):
            Y[i, k] = H[i, k] * r * G[k]


@tilec.kernel
def twice(X: bf16[N], Y: bf16[N]):
    """An elementwise function of an elementwise function."""
    T: bf16[N]
    for i in range(N):
        T[i] = tilec.exp(X[i])
    for i in range(N):
        Y[i] = tilec.exp(T[i])
