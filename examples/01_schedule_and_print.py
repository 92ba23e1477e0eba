"""GEMM+SiLU from plain loops to a tiled, cached, double-buffered schedule: each step is proved, the result is pseudocode."""

import tilec
from tilec import bf16, f32, silu, sizes

M, N, K = sizes("M N K")


@tilec.kernel
def gemm_silu(A: bf16[M, K], W: bf16[K, N], Y: bf16[M, N]):
    C: bf16[M, N]
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc
    for i in range(M):
        for j in range(N):
            Y[i, j] = silu(C[i, j])


s = (
    gemm_silu.schedule()
    .compute_inline("C")  # Y = silu(bf16(acc)): the rounding stays
    .split("Y.i", 64, into=("io", "ii"))
    .split("Y.j", 64, into=("jo", "ji"))
    .reorder("io", "jo", "ii", "ji")
    .compute_at("acc", "jo")  # the producer's loops shrink to the region this tile needs
    .split("acc.k", 32, into=("ko", "ki"))
    .reorder("ko", "acc.i", "acc.j", "ki")  # statements outside k become siblings before and after
    .cache_read("A", at="ko", memory="shared")
    .cache_read("W", at="ko", memory="shared")
    .place("acc", "shared")
    .bind("io", "block.y")
    .bind("jo", "block.x")
    .pipeline("ko", stages=2)
)
print(s)
print()
print("verdict:", s.check())
print("loops:", ", ".join(s.loops))
print("steps:")
print(s.trace)
