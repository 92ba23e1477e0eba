"""The kernels and step lists that are timed."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.lang import f32, kernel, sizes
from tilec.schedule.schedule import Schedule, start
from tilec.schedule.trace import Step
from tilec.workloads import get

N = sizes("N")


@kernel
def lu(A: f32[N, N]):
    for k in range(N):
        for i in range(k + 1, N):
            A[i, k] = A[i, k] / A[k, k]
        for i in range(k + 1, N):
            for j in range(k + 1, N):
                A[i, j] = A[i, j] - A[i, k] * A[k, j]


@dataclass(frozen=True)
class Case:
    """A kernel by name, and the steps that schedule it."""

    kernel: str
    steps: tuple[Step, ...]

    def start(self) -> Schedule:
        return start(lu if self.kernel == "lu" else get(self.kernel))


def _step(name: str, *args: object, **kwargs: object) -> Step:
    return Step.of(name, args, kwargs)


# One block per output tile, tiles fetched ahead; nothing is said of threads.
CHAIN = Case(
    "gemm_silu_quantize",
    (
        _step("compute_inline", "T"),
        _step("split", "Q.i", 64, into=("io", "ii")),
        _step("split", "Q.j", 64, into=("jo", "ji")),
        _step("reorder", "io", "jo", "ii", "ji"),
        _step("compute_at", "C", "jo"),
        _step("split", "acc.k", 32, into=("ko", "ki")),
        _step("reorder", "ko", "S1.i", "S1.j", "ki"),
        _step("cache_read", "A", at="ko", memory="shared"),
        _step("cache_read", "W", at="ko", memory="shared"),
        _step("split", "S1.i", 8, into=("i8", "i1")),
        _step("split", "S1.j", 8, into=("j8", "j1")),
        _step("split", "ki", 8, into=("k8", "k1")),
        _step("reorder", "i8", "j8", "k8", "i1", "j1", "k1"),
        _step("cache_read", "A_shared", at="k8", memory="register", into="A_near"),
        _step("cache_read", "W_shared", at="k8", memory="register", into="W_near"),
        _step("place", "C", "shared"),
        _step("place", "acc", "shared"),
        _step("bind", "io", "block.y"),
        _step("bind", "jo", "block.x"),
        _step("pipeline", "ko", stages=2),
    ),
)

# The same tile spread over the threads of its block: every phase bound, barriers derived, copies by thread 0.
CHAIN_ON_THREADS = Case(
    "gemm_silu_quantize",
    (
        *CHAIN.steps[:9],
        _step("split", "S0.i", 8, into=("iw0", "ir0")),
        _step("split", "S1.i", 8, into=("iw1", "ir1")),
        _step("split", "S2.i", 8, into=("iw2", "ir2")),
        _step("split", "Q.ii", 8, into=("iw", "ir")),
        *CHAIN.steps[15:19],
        _step("bind", ("iw0", "iw1", "iw2", "iw"), "thread.y"),
        _step("bind", ("S0.j", "S1.j", "S2.j", "Q.ji"), "thread.x"),
        _step("pipeline", "ko", stages=2),
    ),
)

# Two relaxations fused under a time skew, then tiled in time and space.
JACOBI = Case(
    "jacobi2d",
    (
        _step("skew", "S0.i", by="t", factor=2),
        _step("skew", "S0.j", by="t", factor=2),
        _step("skew", "S1.i", by="t", factor=2),
        _step("skew", "S1.j", by="t", factor=2),
        _step("shift", "S1.i", 1),
        _step("shift", "S1.j", 1),
        _step("fuse_siblings", "S0.i", "S1.i"),
        _step("split", "t", 4, into=("to", "ti")),
        _step("split", "i", 32, into=("io", "ii")),
        _step("reorder", "io", "ti"),
        _step("split", "S0.j", 16, into=("jo", "ji")),
        _step("vectorize", "ji"),
    ),
)

# Blocked updates of the trailing matrix, its rows in parallel.
LU = Case(
    "lu",
    (
        _step("split", "S0.i", 16, into=("p", "q")),
        _step("split", "S1.i", 16, into=("io", "ii")),
        _step("split", "S1.j", 32, into=("jo", "ji")),
        _step("reorder", "io", "jo", "ii", "ji"),
        _step("reorder", "ji", "ii"),
        _step("split", "ji", 4, into=("jm", "jn")),
        _step("reorder", "ii", "jn"),
        _step("skew", "ii", by="jm"),
        _step("parallel", "io"),
        _step("vectorize", "jn"),
    ),
)
