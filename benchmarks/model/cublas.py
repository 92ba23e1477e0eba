"""Absolute time: what cuBLAS took for f32 GEMMs on an A100, against the same tiles and grids as tilec schedules.

The measurements are of calls from PyTorch: a call puts one kernel (batched), two (a linear layer: bias, then GEMM) or three (a
split sum) into the stream, and the host needs its time for each. `HOST_US` is that time from a public source, for the prediction
without any fitted constant; the fitted one chooses two constants on half of the rows: the host's time before each launch, and
after the last until the call is timed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from benchmarks.model.library_gemm import Tile, batched, bmm, layer, linear, parted, split_sum
from benchmarks.model.section import Section, markdown, rows
from tilec.cost.bulk import Formulas, formulas, launch_seconds
from tilec.cost.separable import Markers
from tilec.ir.program import Program
from tilec.schedule.schedule import Schedule, start
from tilec.search.unproved import unproved
from tilec.targets import Target, load

TARGET = "a100-pcie-40gb"
FILE = "cublas_fp32_a100_40gb.csv.gz"
# Per launch. J. Huang Lin, GPU kernel serving, lesson 18 (From PyTorch op to kernel launch): the layers above a launch take 5 to
# 25 us together; their typical costs, listed one by one, add up to about 10.
HOST_US = 10.0


@dataclass(frozen=True)
class Calls:
    """Rows of the file with one kernel: measured and predicted seconds of each."""

    kernel: str
    index: np.ndarray
    measured: np.ndarray
    launches: tuple[np.ndarray, ...]  # seconds of each kernel of a call, in order


def predicted(table: Sequence[Mapping[str, str]], machine: Target) -> list[Calls]:
    """Every row, through the formulas of one tilec program per kernel name."""
    out: list[Calls] = []
    column = {c: np.array([int(r[c]) for r in table]) for c in ("batch", "m", "n", "k", "grid_z", "tile_m", "tile_n", "block")}
    measured = np.array([float(r["latency_ms"]) * 1e-3 for r in table])
    split = np.array([r["op"] == "linear" for r in table]) & (column["grid_z"] > 1)
    names = np.array([f"{r['op']} {r['kernel']}" for r in table])
    for name in sorted(set(names)):
        for in_parts in (False, True):
            found = np.flatnonzero((names == name) & (split == in_parts))
            if not len(found):
                continue
            row = {c: v[found] for c, v in column.items()}
            tile = Tile.of(int(row["tile_m"][0]), int(row["tile_n"][0]), int(row["block"][0]), "sliced" in name)
            op = "split" if in_parts else name.split()[0]
            sizes = {"M": row["m"], "N": row["n"], "K": row["k"]}
            if op == "bmm":
                sizes["B"] = row["batch"]
            elif in_parts:  # whole steps, as even as they go
                sizes |= {"Z": row["grid_z"], "K": -(-row["k"] // (row["grid_z"] * tile.step)) * tile.step}
            out.append(Calls(name, found, measured[found], launch_seconds(program(op, tile), machine, sizes)))
    return out


def scheduled(row: Mapping[str, str], machine: Target) -> tuple[Program, Target, dict[str, int]]:
    """A row of the file as a program with its sizes, for an exact price."""
    tile = Tile.of(int(row["tile_m"]), int(row["tile_n"]), int(row["block"]), "sliced" in row["kernel"])
    parts = int(row["grid_z"]) if row["op"] == "linear" else 1
    sizes = {"M": int(row["m"]), "N": int(row["n"]), "K": int(row["k"])}
    if row["op"] == "bmm":
        sizes["B"] = int(row["batch"])
    elif parts > 1:
        sizes |= {"Z": parts, "K": -(-sizes["K"] // (parts * tile.step)) * tile.step}
    source, schedule = KERNELS["split" if parts > 1 else row["op"]]
    return schedule(unproved(start(source, {}, contract=True), {}), tile).program, machine, sizes


KERNELS: Mapping[str, tuple[Program, Callable[[Schedule, Tile], Schedule]]] = {
    "bmm": (bmm.program, batched),
    "linear": (linear.program, layer),
    "split": (parted.program, split_sum),
}


@cache
def program(op: str, tile: Tile) -> Formulas:
    """The formulas of the schedule in its sizes."""
    source, schedule = KERNELS[op]
    made = schedule(unproved(start(source, {}, contract=True), {}), tile)
    return formulas(made.program, Markers.of([]))


def call_seconds(launches: Sequence[np.ndarray], before: float, after: float) -> np.ndarray:
    """A call's time: the host takes `before` for each launch, one after another, and `after` until it is timed; kernels run in
    order, each once it is launched."""
    done = np.zeros_like(launches[0])
    for n, seconds in enumerate(launches):
        done = np.maximum(done, (n + 1) * before) + seconds
    return np.maximum(done, len(launches) * before + after)


def error(predicted: np.ndarray, measured: np.ndarray) -> float:
    """Mean absolute percentage error, as a share."""
    return float(np.mean(np.abs(predicted - measured) / measured))


def whole(calls: Sequence[Calls], before: float, after: float) -> tuple[np.ndarray, np.ndarray]:
    """(predicted, measured) of every row, in the order of the file."""
    index = np.concatenate([c.index for c in calls])
    order = np.argsort(index)
    found = np.concatenate([call_seconds(c.launches, before, after) for c in calls])
    return found[order], np.concatenate([c.measured for c in calls])[order]


def fitted(calls: Sequence[Calls]) -> tuple[float, float, float]:
    """(before, after, error): the host times in whole microseconds that fit the even rows best; the error on the odd rows."""

    def half(before: float, after: float, first: int) -> float:
        p, y = whole(calls, before, after)
        return error(p[first::2], y[first::2])

    best = min((half(b * 1e-6, a * 1e-6, 0), b, a) for b in range(5, 31) for a in range(0, 31, 2))
    before, after = best[1] * 1e-6, best[2] * 1e-6
    return before, after, half(before, after, 1)


def section() -> Section:
    """The rows of the file with a known tile and grid: all of them."""
    table, machine = rows(FILE), load(TARGET)
    calls = predicted(table, machine)
    before, after, on_half = fitted(calls)
    p, y = whole(calls, HOST_US * 1e-6, 0.0)
    plain = error(_roofline(table, machine), y)
    figures = {TARGET: {"mape": error(p, y), "mape_fitted": on_half, "mape_roofline": plain, "rows": len(y)}}
    lines = []
    for c in sorted(calls, key=lambda c: -len(c.index)):
        with_host = call_seconds(c.launches, HOST_US * 1e-6, 0.0)
        both = call_seconds(c.launches, before, after)
        lines.append(
            (
                c.kernel,
                len(c.launches),
                len(c.index),
                f"{error(with_host, c.measured):.1%}",
                f"{float(np.median(with_host / c.measured)):.2f}",
                f"{error(both, c.measured):.1%}",
                f"{float(np.median(both / c.measured)):.2f}",
            )
        )
    columns = ("kernel", "launches", "rows", "error", "median of predicted ÷ measured", "error, fitted", "median, fitted")
    text = f"""
{len(y):,} f32 GEMMs of cuBLAS on an {machine.title}, each priced as a tilec schedule with the tile, threads and grid of its
kernel (`benchmarks/model/library_gemm.py`), for all rows at once. Mean absolute percentage error: **{error(p, y):.1%}** without a
fitted constant (the host takes {HOST_US:g} us per launch, a public figure for calls from PyTorch), **{on_half:.1%}** on one
half of the rows with two constants fitted on the other half (the host takes {before * 1e6:.0f} us before each launch and
{after * 1e6:.0f} us after the last). A plain roofline has {plain:.1%}.

{markdown(columns, lines)}
"""
    return Section("cublas", "Absolute time: cuBLAS in f32", text, figures)


def _roofline(table: Sequence[Mapping[str, str]], machine: Target) -> np.ndarray:
    b, m, n, k = (np.array([float(r[c]) for r in table]) for c in ("batch", "m", "n", "k"))
    peak = machine.peak("vector", "f32")
    assert peak is not None
    return np.maximum(2 * b * m * n * k / peak[0], 4 * b * (m * k + k * n + m * n) / machine.bandwidth)
