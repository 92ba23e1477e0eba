"""Published ladders of GEMM kernels on one GPU, each as a tilec schedule as far as its description goes: does the model's order
equal the measured one?

Kernels of threads (f32): blocks of BM × BN × BK, outputs of one thread in rows × columns of pieces. Kernels on the matrix unit:
blocks are collective, the backend spreads them over their warps. What a row does not say is taken as plain as it can be.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from benchmarks.model.section import Section, markdown, rows
from tilec.cost.price import price
from tilec.ir.program import Program
from tilec.lang import bf16, f32, i8, i32, kernel, sizes
from tilec.schedule.schedule import Schedule, start
from tilec.search.unproved import unproved
from tilec.targets import Target, load

FILE = "published_gemm_tables.csv"
M, N, K = sizes("M N K")


@kernel
def gemm_f32(A: f32[M, K], W: f32[K, N], C: f32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc


@kernel
def gemm_bf16(A: bf16[M, K], W: bf16[N, K], C: bf16[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[j, k]
            C[i, j] = acc


@kernel
def gemm_i8(A: i8[M, K], W: i8[N, K], C: i32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: i32 = 0
            for k in range(K):
                acc += A[i, k] * W[j, k]
            C[i, j] = acc


def untiled(s: Schedule, coalesced: bool) -> Schedule:
    """One output per thread, blocks of 32 × 32, everything from global memory; neighbouring threads along rows or columns."""
    s = s.split("i", 32, into=("io", "ii")).split("j", 32, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
    x, y = ("ji", "ii") if coalesced else ("ii", "ji")
    return s.bind("io", "block.y").bind("jo", "block.x").bind(y, "thread.y").bind(x, "thread.x")


@dataclass(frozen=True)
class Threads:
    """BM × BN × BK per block; rows × columns outputs of a thread, `pieces` times along the columns; width of vector accesses."""

    bm: int
    bn: int
    bk: int
    rows: int
    columns: int
    width: int = 1
    stages: int = 1

    def __call__(self, s: Schedule) -> Schedule:
        across, along = self.bm // self.rows, self.bn // self.columns
        threads = across * along
        s = s.split("i", self.bm, into=("io", "ti")).split("j", self.bn, into=("jo", "tj"))
        s = s.split("ti", self.rows, into=("ty", "ir"))
        if self.width > 1:  # a thread's columns in vectors, neighbouring threads side by side
            s = s.split("tj", self.width, into=("tq", "jv")).split("tq", along, into=("jr", "tx"))
            s = s.reorder("io", "jo", "ty", "tx", "ir", "jr", "jv")
            inner = ("ir", "jr", "jv")
        else:
            s = s.split("tj", self.columns, into=("tx", "jr")).reorder("io", "jo", "ty", "tx", "ir", "jr")
            inner = ("ir", "jr")
        s = s.split("acc.k", self.bk, into=("ko", "ki")).reorder("ko", "ty", "tx", "ki", *inner)
        s = s.place("acc", "register", at="jo")
        for name, columns in (("A", self.bk), ("W", self.bn)):
            s = s.cache_read(name, at="ko", memory="shared", into=f"{name}_t")
            s = s.fuse(f"{name}_t.0", f"{name}_t.1", into=f"{name}_f")
            width = min(self.width, columns)
            if width > 1:
                s = s.split(f"{name}_f", width, into=(f"{name}_f", f"{name}_v"))
            s = s.split(f"{name}_f", threads, into=(f"{name}_n", f"{name}_thread"))
            s = s.reorder(f"{name}_thread", f"{name}_n") if width == 1 else s.reorder(f"{name}_thread", f"{name}_n", f"{name}_v")
            s = s.unroll(f"{name}_n")
            if width > 1:
                s = s.vectorize(f"{name}_v")
        if self.stages > 1:  # what asynchronous copies feed is read into registers once per k
            for name in ("A", "W"):
                s = s.cache_read(f"{name}_t", at="ki", memory="register", into=f"{name}_near")
        phases = ("S0", "S1", "S2")
        for phase in phases:
            s = s.fuse(f"{phase}.ty", f"{phase}.tx", into=f"thread_{phase}")
        s = s.bind("io", "block.y").bind("jo", "block.x")
        s = s.bind((*(f"thread_{phase}" for phase in phases), "A_thread", "W_thread"), "thread.x")
        s = s.unroll(tuple(f"{phase}.{v}" for phase in phases for v in inner if v != "jv"))
        if self.width > 1:
            s = s.vectorize(tuple(f"{phase}.jv" for phase in phases))
        return s.pipeline("ko", stages=self.stages) if self.stages > 1 else s


@dataclass(frozen=True)
class Warps:
    """A collective block of BM × BN × BK with sums in registers."""

    bm: int
    bn: int
    bk: int
    stages: int = 1

    def __call__(self, s: Schedule) -> Schedule:
        s = s.split("i", self.bm, into=("io", "ii")).split("j", self.bn, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
        s = s.split("acc.k", self.bk, into=("ko", "ki")).reorder("ko", "S1.ii", "S1.ji", "ki").place("acc", "register")
        s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared")
        s = s.bind("io", "block.y").bind("jo", "block.x")
        return s.pipeline("ko", stages=self.stages) if self.stages > 1 else s


@dataclass(frozen=True)
class Rung:
    """How a row of the file is expressed. threads: per block of a collective schedule."""

    group: str
    kernel: str
    source: Program
    schedule: Callable[[Schedule], Schedule]
    threads: int | None = None
    old_path: bool = False  # uses the matrix instructions of compute capability 8.0
    note: str = ""


F, H = gemm_f32.program, gemm_bf16.program
RUNGS = (
    Rung("RTX A6000", "1 naive", F, lambda s: untiled(s, False)),
    Rung("RTX A6000", "2 gmem coalescing", F, lambda s: untiled(s, True)),
    Rung("RTX A6000", "3 smem caching", F, Threads(32, 32, 32, 1, 1)),
    Rung("RTX A6000", "4 1D blocktiling (TM=8)", F, Threads(64, 64, 8, 8, 1)),
    Rung("RTX A6000", "5 2D blocktiling (8x8)", F, Threads(128, 128, 8, 8, 8)),
    Rung("RTX A6000", "6 vectorised", F, Threads(128, 128, 8, 8, 8, 4)),
    Rung("RTX A6000", "9 autotuned (8x8)", F, Threads(128, 128, 16, 8, 8, 4)),
    Rung("RTX A6000", "10 warptiling (WM64 WN64 TM8 TN4 WNITER4)", F, Threads(128, 128, 16, 8, 16, 4)),
    Rung("RTX A6000", "11 double buffering", F, Threads(128, 256, 16, 16, 8, 1, 2)),
    Rung("RTX 3090", "V02 2D block tiling", F, Threads(32, 32, 32, 1, 1)),
    Rung("RTX 3090", "V03 +1D thread tiling (TM=8)", F, Threads(64, 64, 8, 8, 1)),
    Rung("RTX 3090", "V04 +2D thread tiling (8x8)", F, Threads(128, 128, 16, 8, 8)),
    Rung("RTX 3090", "V06 vectorised warp tiling (warp 32x64; thread 8x8)", F, Threads(128, 128, 16, 8, 8, 4)),
    Rung("A100-SXM4-40GB", "v3 padded smem", H, Warps(128, 128, 64), 128),
    Rung("A100-SXM4-40GB", "v6 2-stage", H, Warps(128, 128, 64, 2), 128),
    Rung("RTX 5090 @400W", "v4 swizzled smem", H, Warps(128, 128, 64), 128),
    Rung("RTX 5090 @400W", "v6 2-stage", H, Warps(128, 128, 64, 2), 128),
    Rung("RTX 5090 @400W", "v2 TMA+warp spec", H, Warps(256, 128, 64, 2), 256),
    Rung("RTX 5090 @400W", "v2", gemm_i8.program, Warps(256, 128, 128, 2), 256),
    Rung("B200 (Modal)", "v0 sm80 mma", H, Warps(128, 128, 64, 2), 128, old_path=True),
    Rung("B200 (Modal)", "v7c persistent 2-SM MMA", H, Warps(128, 192, 64, 4), 128),
)
MACHINES = {
    "RTX A6000": "rtx-a6000",
    "RTX 3090": "rtx-3090",
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "RTX 5090 @400W": "rtx-5090",
    "B200 (Modal)": "b200",
}


REASONS = {
    "11 double buffering": "its two buffers are priced as asynchronous copies that hide every wait; how the "
    "author's are filled the row does not say",
}


@dataclass(frozen=True)
class Placed:
    """A rung at one size: measured and predicted operations per second."""

    rung: Rung
    size: int
    measured: float
    predicted: float


def seconds(rung: Rung, size: int) -> float:
    """Predicted for M = N = K = size."""
    machine: Target = load(MACHINES[rung.group])
    if rung.old_path:
        machine = replace(machine, limits=replace(load("8.0").sm_limits, shared_per_block=machine.sm_limits.shared_per_block))
    bound = start(rung.source, {"M": size, "N": size, "K": size}, contract=True)
    return price(rung.schedule(unproved(bound, {})).program, machine, {}, rung.threads).time


def placed(group: str | None = None) -> list[Placed]:
    """Every row of the file (of one GPU) that a rung expresses."""
    unit = {"GFLOP/s": 1e9, "TFLOP/s": 1e12}
    known = {(r.group, r.kernel): r for r in RUNGS}
    out = []
    for row in rows(FILE):
        rung = known.get((row["gpu"], row["kernel"]))
        if rung is not None and group in (None, rung.group):
            size = int(row["M=N=K"])
            out.append(Placed(rung, size, float(row["value"]) * unit[row["unit"]], 2 * size**3 / seconds(rung, size)))
    return out


def exceptions(ladder: list[Placed]) -> list[tuple[Placed, Placed]]:
    """Pairs of neighbours in the measured order whose predicted order is the other one."""
    order = sorted(ladder, key=lambda p: p.measured)
    return [(a, b) for a, b in pairwise(order) if a.predicted >= b.predicted]


def section() -> Section:
    """One table per GPU, in the measured order."""
    found = placed()
    parts: list[str] = []
    wrong: list[str] = []
    groups = list(dict.fromkeys(p.rung.group for p in found))
    in_order = 0
    for group in groups:
        mine = sorted((p for p in found if p.rung.group == group), key=lambda p: p.measured)
        out_of_order = exceptions(mine)
        in_order += not out_of_order
        lines = [(p.rung.kernel, p.size, f"{p.measured / 1e12:.2f}", f"{p.predicted / 1e12:.2f}") for p in mine]
        parts.append(f"{group}:\n\n" + markdown(("kernel", "M=N=K", "measured TFLOP/s", "predicted TFLOP/s"), lines) + "\n")
        for a, b in out_of_order:
            names = [p.rung.kernel for p in (a, b)]
            reason = next((REASONS[n] for n in names if n in REASONS), "the model does not tell them apart")
            wrong.append(f"{group}: {names[0]} is predicted above {names[1]} ({reason})")
    left = [r for r in rows(FILE) if (r["gpu"], r["kernel"]) not in {(p.rung.group, p.rung.kernel) for p in found}]
    names = ", ".join(sorted({f"{r['gpu']} {r['kernel']}" for r in left}))
    text = f"""
{len(found)} of {len(found) + len(left)} rows say enough to be expressed. The predicted order equals the measured one on
{in_order} of {len(groups)} GPUs. Exceptions: {"; ".join(wrong) or "none"}.

{chr(10).join(parts)}
Not expressed, as their tiles are not given, or no other kernel of their GPU is described: {names}.
"""
    figures = {"rungs": len(found), "groups": len(groups), "in_order": in_order, "exceptions": wrong}
    return Section("ladder", "Published ladders of kernels", text, figures)
