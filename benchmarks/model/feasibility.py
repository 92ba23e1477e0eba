"""What fits: tuned tiles of others must, launches that failed for shared memory must not; tilec's picks beside the tuned ones.

The tuned kernels multiply 8-bit floats, sums in f32, with tiles BLOCK_M × BLOCK_N × BLOCK_K, groups of GROUP_M block rows,
warps and stages (Triton). The convolution is 15 × 15 over an image of 4096², its input tile with the halo in shared memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from benchmarks.model.section import Section, markdown, rows
from tilec.cost.bulk import Formulas, evaluate, footprint, formulas
from tilec.cost.launches import launches
from tilec.cost.separable import Markers
from tilec.cost.term import evaluate as value
from tilec.lang import bf16, f8e4m3, f32, kernel, sizes
from tilec.schedule.schedule import Schedule, start
from tilec.search.unproved import unproved
from tilec.targets import Target, load

TUNED = "tuned_block_gemm_h100_h200.csv.gz"
MACHINES = {"NVIDIA_H100_80GB_HBM3": "h100-sxm", "NVIDIA_H200": "h200"}
TILES = {"BM": (16, 32, 64, 128, 256), "BN": (32, 64, 128, 256), "BK": (32, 64, 128), "G": (1, 8, 32)}
STAGES, WARPS = (2, 3, 4, 5), (4, 8)
SHOWN = (1, 64, 512, 4096)
STATIC_SHARED = 48 * 1024  # of a block's arrays declared in the kernel (CUDA programming guide, shared memory)

M, N, K, H, W = sizes("M N K H W")


@kernel
def gemm8(A: f8e4m3[M, K], B: f8e4m3[N, K], C: bf16[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * B[j, k]
            C[i, j] = acc


@kernel
def convolution(image: f32[H + 14, W + 14], weights: f32[15, 15], out: f32[H, W]):
    for y in range(H):
        for x in range(W):
            acc: f32 = 0
            for i in range(15):
                for j in range(15):
                    acc += image[y + i, x + j] * weights[i, j]
            out[y, x] = acc


def tiled(s: Schedule, BM: int, BN: int, BK: int, G: int, stages: int) -> Schedule:
    """A fresh schedule of `gemm8`: block.x runs down the rows of a group, block.y over columns, block.z over groups."""
    s = s.split("i", BM, into=("io", "ii")).split("j", BN, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
    s = s.split("io", G, into=("ig", "ir")).reorder("ig", "jo", "ir")
    s = s.split("acc.k", BK, into=("ko", "ki")).reorder("ko", "S1.ii", "S1.ji", "ki")
    s = s.place("acc", "register")
    s = s.cache_read("A", at="ko", memory="shared").cache_read("B", at="ko", memory="shared")
    s = s.bind("ig", "block.z").bind("jo", "block.y").bind("ir", "block.x")
    return s.pipeline("ko", stages=stages) if stages > 1 else s


def haloed(s: Schedule, height: int, width: int) -> Schedule:
    """A fresh schedule of `convolution`: one block per output tile, its input with the halo in shared memory."""
    s = s.split("y", height, into=("yo", "yi")).split("x", width, into=("xo", "xi")).reorder("yo", "xo", "yi", "xi")
    return s.cache_read("image", at="xo", memory="shared").bind("yo", "block.y").bind("xo", "block.x")


@dataclass(frozen=True)
class Tuned:
    """One row: predicted seconds of its knobs, whether tilec calls it infeasible; tilec's pick for the shape, and its seconds."""

    row: Mapping[str, str]
    seconds: float
    fits: bool
    pick: tuple[int, int, int, int, int, int]  # BM, BN, BK, G, warps, stages
    pick_seconds: float


def tuned(table: Sequence[Mapping[str, str]]) -> list[Tuned]:
    """Every row of the file, and the best of TILES × STAGES × WARPS for its shape."""
    markers = Markers.of(list(TILES))
    shapes = sorted({(r["device"], int(r["M"]), int(r["N"]), int(r["K"])) for r in table})
    where = {s: n for n, s in enumerate(shapes)}
    space = np.array(list(product(*TILES.values())))
    best = np.full(len(shapes), np.inf)
    pick: list[tuple[int, ...]] = [()] * len(shapes)
    own = np.full(len(table), np.inf)
    fits = np.zeros(len(table), dtype=bool)
    for stages in STAGES:
        made = tiled(unproved(start(gemm8.program, {}), {}), **dict(markers.values), stages=stages)
        f = formulas(made.program, markers)
        for warps in WARPS:
            for device, name in MACHINES.items():
                machine = load(name)
                mine = [s for s in shapes if s[0] == device]
                values = _values(np.repeat(np.array([s[1:] for s in mine]), len(space), 0), np.tile(space, (len(mine), 1)))
                seconds, ok = _priced(f, machine, values, warps)
                grid = np.where(ok, seconds, np.inf).reshape(len(mine), len(space))
                for s, line in zip(mine, grid, strict=True):
                    n = int(np.argmin(line))
                    if line[n] < best[where[s]]:
                        best[where[s]] = line[n]
                        pick[where[s]] = (*(int(v) for v in space[n]), warps, stages)
                at = [
                    n
                    for n, r in enumerate(table)
                    if r["device"] == device and int(r["num_warps"]) == warps and int(r["num_stages"]) == stages
                ]
                if at:
                    sizes_ = np.array([[int(table[n][c]) for c in ("M", "N", "K")] for n in at])
                    knobs = np.array([[int(table[n][c]) for c in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")] for n in at])
                    own[at], fits[at] = _priced(f, machine, _values(sizes_, knobs), warps)
    out = []
    for n, r in enumerate(table):
        s = where[r["device"], int(r["M"]), int(r["N"]), int(r["K"])]
        p = pick[s]
        out.append(Tuned(r, float(own[n]), bool(fits[n]), (p[0], p[1], p[2], p[3], p[4], p[5]), float(best[s])))
    return out


def _values(sizes_: np.ndarray, knobs: np.ndarray) -> dict[str, np.ndarray]:
    return dict(zip(("M", "N", "K"), sizes_.T, strict=True)) | dict(zip(TILES, knobs.T, strict=True))


def _priced(f: Formulas, machine: Target, values: dict[str, np.ndarray], warps: int) -> tuple[np.ndarray, np.ndarray]:
    """(seconds, does it fit) by the rules that the search uses."""
    c = evaluate(f, machine, {}, values, threads=32 * warps)
    assert machine.shared_capacity is not None and machine.limits is not None
    fits = (c.shared <= machine.shared_capacity) & (c.register <= 4 * machine.limits.registers_per_thread)
    return c.seconds, fits


def shared_bytes(heights: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Bytes of shared memory per block of the convolution's schedules, from the tree."""
    markers = Markers.of(["TH", "TW"])
    made = haloed(unproved(start(convolution.program, {}), {}), *(v for _, v in markers.values))
    (launch,) = launches(made.program)
    shared, _, _ = footprint(made.program, launch, markers)
    return value(shared, {"TH": heights, "TW": widths})


def section() -> Section:
    """The three files."""
    found = tuned(rows(TUNED))
    infeasible = [t for t in found if not t.fits]
    ratio = np.array([t.seconds / t.pick_seconds for t in found])
    feasible, compiled = rows("convolution_rtx3090_feasible.csv.gz"), rows("convolution_rtx3090_registers.csv.gz")
    predicted = shared_bytes(*(np.array([int(r[a]) * int(r[b]) for r in feasible]) for a, b in (("by", "ty"), ("bx", "tx"))))
    names = (("BLOCK_SIZE_Y", "TILE_SIZE_Y"), ("BLOCK_SIZE_X", "TILE_SIZE_X"))
    held = shared_bytes(*(np.array([int(r[a]) * int(r[b]) for r in compiled]) for a, b in names))
    equal = int(np.sum(predicted == np.array([int(r["smem_formula"]) for r in feasible])))
    equal += int(np.sum(held == np.array([int(r["smem"]) for r in compiled])))
    failed = np.array([r["status"] != "Ok" for r in feasible])
    over = np.array([int(r["smem_formula"]) > STATIC_SHARED for r in feasible])  # by the file's own bytes
    refused = predicted > STATIC_SHARED
    figures = {
        "tuned_rows": len(found),
        "tuned_infeasible": len(infeasible),
        "tuned_over_pick_median": float(np.median(ratio)),
        "convolution_rows": len(feasible) + len(compiled),
        "convolution_shared_equal": equal,
        "failed_for_shared": int(np.sum(failed & over)),
        "failed_for_shared_predicted": int(np.sum(failed & over & refused)),
        "ran_but_refused": int(np.sum(~failed & refused)),
        "failed_otherwise": int(np.sum(failed & ~refused)),
    }
    lines = []
    for t in found:
        if int(t.row["M"]) in SHOWN:
            r = t.row
            mine = "×".join(r[c] for c in ("BLOCK_M", "BLOCK_N", "BLOCK_K"))
            lines.append(
                (
                    MACHINES[r["device"]],
                    f"{r['M']}×{r['N']}×{r['K']}",
                    f"{mine} g{r['GROUP_M']} w{r['num_warps']} s{r['num_stages']}",
                    f"{t.seconds * 1e6:.1f}",
                    "×".join(map(str, t.pick[:3])) + f" g{t.pick[3]} w{t.pick[4]} s{t.pick[5]}",
                    f"{t.pick_seconds * 1e6:.1f}",
                    f"{t.seconds / t.pick_seconds:.2f}",
                )
            )
    columns = ("machine", "M×N×K", "tuned tile, group, warps, stages", "us", "tilec's pick", "us", "ratio")
    text = f"""
Tuned tiles of 8-bit GEMMs on H100 and H200: {len(infeasible)} of {len(found)} are called infeasible. By the model's own time the
tuned tile takes {float(np.median(ratio)):.2f} times what tilec's pick takes (median; at the 90th percentile
{float(np.percentile(ratio, 90)):.2f}); neither was run here.

Convolution: the shared bytes of {equal:,} of {len(feasible) + len(compiled):,} rows equal the tree's. {int(np.sum(refused)):,}
sets ask for more than the 48 KiB that arrays declared in a kernel may take: {int(np.sum(failed & refused)):,} of them failed,
{int(np.sum(~failed & refused)):,} ran. {int(np.sum(failed & ~refused)):,} further sets failed for another reason.

{markdown(columns, lines)}
"""
    return Section("feasibility", "What fits, and picks beside tuned tiles", text, figures)
