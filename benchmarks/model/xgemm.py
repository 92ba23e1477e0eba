"""CLBlast's Xgemm (kernel 0) as a tilec kernel and one schedule function, whose knobs are the columns of its published spaces.

C[n, m] = sum over k of A[k, m] · B[k, n]. A block makes an NWG × MWG tile with NDIMC × MDIMC threads, KWG terms at a time. SA and
SB stage the operands in shared memory, where a load is shared out over MDIMA (NDIMB) threads along m (n). VWM and VWN are the
widths of vector accesses; STRM and STRN interleave the threads' vectors instead of giving each thread a piece of its own; KWI
iterations are unrolled. Written from the meaning of the parameters: Nugteren, CLBlast: A Tuned OpenCL BLAS Library, IWOCL 2018.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilec.lang import f32, kernel, sizes
from tilec.schedule.schedule import Schedule, start

M, N, K = sizes("M N K")

KNOBS = ("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "KWI", "VWM", "VWN", "STRM", "STRN", "SA", "SB")
SWITCHES = ("STRM", "STRN", "SA", "SB")  # 0 or 1: each combination is a structure of its own


@kernel
def xgemm(A: f32[K, M], B: f32[K, N], C: f32[N, M]):
    for n in range(N):
        for m in range(M):
            acc: f32 = 0
            for k in range(K):
                acc += A[k, m] * B[k, n]
            C[n, m] = acc


def _thread_tile(
    s: Schedule, loop: str, thread: str, piece: str, lane: str, extent: int, threads: int, vector: int, strided: int
):
    """`loop` over a block's tile: `thread`, its vectors `piece`, and their elements `lane`."""
    if strided:
        return s.split(loop, vector, into=(f"{loop}q", lane)).split(f"{loop}q", threads, into=(piece, thread))
    return s.split(loop, extent // threads, into=(thread, f"{loop}q")).split(f"{loop}q", vector, into=(piece, lane))


def _staged(
    s: Schedule, buffer: str, name: str, extent: int, k: int, threads: int, across: int, vector: int, strided: int
) -> Schedule:
    """The copy of an operand to shared memory: `across` threads along the tile, the others along k, vectors of `vector`."""
    s = s.cache_read(buffer, at="ko", memory="shared", into=name)
    rows, columns = f"{name}.0", f"{name}.1"
    s = s.split(rows, k // (threads // across), into=(f"{name}_tk", f"{name}_k"))
    if strided:
        s = s.split(columns, vector, into=(f"{name}_q", f"{name}_v")).split(f"{name}_q", across, into=(f"{name}_c", f"{name}_t"))
    else:
        s = s.split(columns, extent // across, into=(f"{name}_t", f"{name}_q"))
        s = s.split(f"{name}_q", vector, into=(f"{name}_c", f"{name}_v"))
    s = s.reorder(f"{name}_tk", f"{name}_t", f"{name}_c", f"{name}_k", f"{name}_v")
    s = s.unroll((f"{name}_c", f"{name}_k")).vectorize(f"{name}_v")
    return s.fuse(f"{name}_tk", f"{name}_t", into=f"{name}_thread").bind(f"{name}_thread", "thread.x")


def scheduled(s: Schedule, k: Mapping[str, int]) -> Schedule:
    """The schedule of one row of a space; `s` is a fresh schedule of `xgemm` whose sizes are multiples of the tile."""
    threads = k["MDIMC"] * k["NDIMC"]
    s = s.split("n", k["NWG"], into=("block_n", "tn")).split("m", k["MWG"], into=("block_m", "tm"))
    s = _thread_tile(s, "tn", "ty", "nv", "ne", k["NWG"], k["NDIMC"], k["VWN"], k["STRN"])
    s = _thread_tile(s, "tm", "tx", "mv", "me", k["MWG"], k["MDIMC"], k["VWM"], k["STRM"])
    s = s.reorder("block_n", "block_m", "ty", "tx", "nv", "ne", "mv", "me")
    s = s.split("k", k["KWG"], into=("ko", "kb")).split("kb", k["KWI"], into=("ki", "ku"))
    s = s.reorder("ko", "ty", "tx", "ki", "ku", "nv", "ne", "mv", "me")
    s = s.place("acc", "register", at="block_m")
    for buffer, switch, along in (("A", "SA", ("MWG", "MDIMA", "VWM", "STRM")), ("B", "SB", ("NWG", "NDIMB", "VWN", "STRN"))):
        if k[switch]:
            extent, across, vector, strided = (k[c] for c in along)
            s = _staged(s, buffer, f"{buffer}_tile", extent, k["KWG"], threads, across, vector, strided)
    phases = ("S0", "S1", "C")
    for phase in phases:
        s = s.fuse(f"{phase}.ty", f"{phase}.tx", into=f"thread_{phase}")
    s = s.bind("block_n", "block.y").bind("block_m", "block.x")
    s = s.bind(tuple(f"thread_{phase}" for phase in phases), "thread.x")
    s = s.unroll(("ku", *(f"{phase}.{v}" for phase in phases for v in ("nv", "mv"))))
    return s.vectorize(tuple(f"{phase}.{v}" for phase in phases for v in ("ne", "me")))


def fresh(M: int = 4096, N: int = 4096, K: int = 4096) -> Schedule:
    """An unscheduled `xgemm` of these sizes."""
    return start(xgemm.program, {"M": M, "N": N, "K": K}, contract=True)


# Prime factors that stand for the knobs and sizes while a structure is read (cost/products.py): every division is exact.
FACTORS = {
    "MDIMC": "ab",
    "NDIMC": "cd",
    "MDIMA": "ac",
    "NDIMB": "ad",
    "KWI": "u",
    "VWM": "v",
    "VWN": "w",
    "KWG": "bcdue",
    "MWG": "abcvg",
    "NWG": "acdwh",
    "M": "abcvgm",
    "N": "acdwhn",
    "K": "bcduek",
}
