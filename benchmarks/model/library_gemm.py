"""The f32 GEMMs that a BLAS library runs, as tilec kernels and schedules: the tile, threads and grid of a published kernel name.

`ampere_sgemm_128x64_tn` makes tiles of 64 rows × 128 columns of a row-major result (the library's matrices are column-major), in
steps of 8 along k, double-buffered in shared memory; `sliced1x4` gives every fourth of a step of 32 to warps of its own. One
thread makes at most 8 × 8 outputs. A linear layer puts its bias into the output first, in a kernel of its own, and lets the GEMM
add to it; a split sum (grid z > 1) writes partial results and adds them up in a third kernel.

Slices run side by side on the threads of a block; here their four quarters of a step follow each other on a quarter of the
threads, which is the same work per SM.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.lang import f32, kernel, sizes
from tilec.schedule.schedule import Schedule

B, Z, M, N, K = sizes("B Z M N K")


@kernel
def bmm(A: f32[B, M, K], W: f32[B, K, N], C: f32[B, M, N]):
    for b in range(B):
        for i in range(M):
            for j in range(N):
                acc: f32 = 0
                for k in range(K):
                    acc += A[b, i, k] * W[b, k, j]
                C[b, i, j] = acc


@kernel
def linear(A: f32[M, K], W: f32[N, K], bias: f32[N], C: f32[M, N]):
    for i in range(M):
        for j in range(N):
            C[i, j] = bias[j]
    for i in range(M):
        for j in range(N):
            for k in range(K):
                C[i, j] += A[i, k] * W[j, k]


@kernel
def parted(A: f32[Z, M, K], W: f32[Z, N, K], bias: f32[N], C: f32[M, N]):
    part: f32[Z, M, N]
    for i in range(M):
        for j in range(N):
            C[i, j] = bias[j]
    for z in range(Z):
        for i in range(M):
            for j in range(N):
                acc: f32 = 0
                for k in range(K):
                    acc += A[z, i, k] * W[z, j, k]
                part[z, i, j] = acc
    for i in range(M):
        for j in range(N):
            for z in range(Z):
                C[i, j] += part[z, i, j]


@dataclass(frozen=True)
class Tile:
    """rows × columns of the result per block, outputs per thread in each direction, the step along k."""

    rows: int
    columns: int
    thread_rows: int
    thread_columns: int
    step: int

    @staticmethod
    def of(rows: int, columns: int, threads: int, sliced: bool) -> Tile:
        """The thread tile is as square as its size allows: 64 outputs 8 × 8, 32 8 × 4, 16 4 × 4."""
        outputs = rows * columns // (threads // 4 if sliced else threads)
        long = 1
        while long * long < outputs:
            long *= 2
        short = outputs // long
        tall = rows >= columns
        return Tile(rows, columns, long if tall else short, short if tall else long, 32 if sliced else 8)


def _staged(s: Schedule, tile: Tile, sum_first: bool) -> tuple[Schedule, list[str], list[str]]:
    """Operands through shared memory and registers, and the loops of their copies for thread.y and thread.x. sum_first: W is
    stored k by columns."""
    for name in ("A", "W"):
        s = s.cache_read(name, at="ko", memory="shared", into=f"{name}_tile")
    for name in ("A", "W"):
        s = s.cache_read(f"{name}_tile", at="ki", memory="register", into=f"{name}_near")
    across, along = tile.rows // tile.thread_rows, tile.columns // tile.thread_columns
    s = s.split("A_tile.0", tile.thread_rows, into=("A_y", "A_x"))
    if sum_first:
        s = s.split("W_tile.1", tile.thread_columns, into=("W_x", "W_y"))
        return s, ["A_y", *(["W_y"] if tile.thread_columns <= across else [])], ["A_x", "W_x"]
    each = -(-tile.columns // across)
    s = s.split("W_tile.0", each, into=("W_y", "W_x"))
    if each > along:
        s = s.split("W_x", each // along, into=("W_x", "W_r"))
    return s, ["A_y", "W_y"], ["A_x", "W_x"]


def batched(s: Schedule, tile: Tile, stages: int = 2) -> Schedule:
    """A fresh schedule of `bmm`: one block per batch and tile."""
    s, across, along = _tiled(s, tile, "b", ("S0", "S1", "S2"), sum_first=True)
    return s.bind(across, "thread.y").bind(along, "thread.x").pipeline("ko", stages=stages)


def split_sum(s: Schedule, tile: Tile) -> Schedule:
    """A fresh schedule of `parted`: the bias, one block per part and tile, and the sum of the parts."""
    s, across, along = _tiled(s, tile, "S2.z", ("S1", "S2", "S3"), sum_first=False)
    s = s.bind(across, "thread.y").bind(along, "thread.x").pipeline("ko", stages=2)
    return _elementwise(_elementwise(s, "S0.i", "S0.j", "bias"), "S4.i", "S4.j", "sum")


def layer(s: Schedule, tile: Tile) -> Schedule:
    """A fresh schedule of `linear`: the bias, then one block per tile."""
    s = s.split("S1.i", tile.rows, into=("io", "ti")).split("S1.j", tile.columns, into=("jo", "tj"))
    s = s.split("ti", tile.thread_rows, into=("ty", "ir")).split("tj", tile.thread_columns, into=("tx", "jr"))
    s = s.split("S1.k", tile.step, into=("ko", "ki")).reorder("io", "jo", "ko", "ty", "tx", "ki", "ir", "jr")
    s = s.cache_write("C", at="jo", memory="register", into="acc")
    s, across, along = _staged(s, tile, sum_first=False)
    s = _on_threads(_on_threads(s, "C.0", "C.1", "out", tile), "acc.0", "acc.1", "in", tile)
    s = s.bind("io", "block.y").bind("jo", "block.x")
    s = s.bind(("S1.ty", *across, "out_y", "in_y"), "thread.y").bind(("S1.tx", *along, "out_x", "in_x"), "thread.x")
    return _elementwise(s, "S0.i", "S0.j", "bias").pipeline("ko", stages=2)


def _tiled(
    s: Schedule, tile: Tile, batch: str, phases: tuple[str, str, str], sum_first: bool
) -> tuple[Schedule, tuple[str, ...], tuple[str, ...]]:
    """Blocks over `batch` and tiles; the three statements of a tile, and its copies, in loops for thread.y and thread.x."""
    update = phases[1]
    s = s.split(f"{update}.i", tile.rows, into=("io", "ti")).split(f"{update}.j", tile.columns, into=("jo", "tj"))
    s = s.split("ti", tile.thread_rows, into=("ty", "ir")).split("tj", tile.thread_columns, into=("tx", "jr"))
    s = s.reorder(batch, "io", "jo", "ty", "tx", "ir", "jr")
    s = s.split("acc.k", tile.step, into=("ko", "ki")).reorder("ko", "ty", "tx", "ki", "ir", "jr")
    s, across, along = _staged(s.place("acc", "register", at="jo"), tile, sum_first)
    s = s.bind(batch, "block.z").bind("io", "block.y").bind("jo", "block.x")
    return s, (*(f"{p}.ty" for p in phases), *across), (*(f"{p}.tx" for p in phases), *along)


def _on_threads(s: Schedule, rows: str, columns: str, name: str, tile: Tile) -> Schedule:
    """A copy of a whole tile: every thread its own outputs."""
    s = s.split(rows, tile.thread_rows, into=(f"{name}_y", f"{name}_r"))
    s = s.split(columns, tile.thread_columns, into=(f"{name}_x", f"{name}_c"))
    return s.reorder(f"{name}_y", f"{name}_x", f"{name}_r", f"{name}_c")


def _elementwise(s: Schedule, rows: str, columns: str, name: str) -> Schedule:
    """256 columns of 4 rows per block."""
    s = s.split(rows, 4, into=(f"{name}_i", f"{name}_r")).split(columns, 256, into=(f"{name}_j", f"{name}_t"))
    s = s.reorder(f"{name}_i", f"{name}_j", f"{name}_r", f"{name}_t")
    return s.bind(f"{name}_i", "block.y").bind(f"{name}_j", "block.x").bind(f"{name}_t", "thread.x")
