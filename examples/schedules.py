"""Kernels and schedules for the command line: `tilec check examples/schedules.py:heat --schedule examples/schedules.py:skewed`"""

import tilec
from tilec import f32, sizes

T, N = sizes("T N")


@tilec.kernel
def heat(a: f32[T + 1, N + 2]):
    for t in range(T):
        for i in range(1, N + 1):
            a[t + 1, i] = 0.25 * (a[t, i - 1] + 2 * a[t, i] + a[t, i + 1])


def swapped(s):
    """Space outside time: illegal."""
    return s.reorder("i", "t")


def skewed(s):
    """The same after a skew: legal."""
    return s.skew("i", by="t").reorder("i", "t")


def tiled(s):
    """For gemm_silu: SiLU at the output tile, accumulator and tiles of A and W in shared memory."""
    s = s.compute_inline("C")
    s = s.split("Y.i", 64, into=("io", "ii")).split("Y.j", 64, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
    s = s.compute_at("acc", "jo").split("acc.k", 32, into=("ko", "ki")).reorder("ko", "acc.i", "acc.j", "ki")
    s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", "shared")
    return s.bind("io", "block.y").bind("jo", "block.x").pipeline("ko", stages=2)
