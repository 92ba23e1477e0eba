"""Number formats: their values, their roundings, and sums in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

import tilec
from tilec import bf16, f16, f32, i8, sizes
from tilec.ir.dtypes import DTYPES, round_through, to_arithmetic, to_storage
from tilec.ir.program import Access, Program
from tilec.lang.kernel import from_source

N = sizes("N")


@tilec.kernel
def three(x: f32[3], left: f32[1], right: f32[1]):
    left[0] = (x[0] + x[1]) + x[2]
    right[0] = x[0] + (x[1] + x[2])


@tilec.kernel
def sum_f32(x: f32[N], y: f32[1]):
    for i in range(N):
        y[0] += x[i]


@tilec.kernel
def sum_f16(x: f16[N], y: f16[1]):
    for i in range(N):
        y[0] += x[i]


@tilec.kernel
def sum_bf16(x: bf16[N], y: bf16[1]):
    for i in range(N):
        y[0] += x[i]


@tilec.kernel
def to_i8(x: f32[N], Q: i8[N], step: f32[1]):
    """The largest magnitude becomes 127."""
    m: f32 = 0
    for i in range(N):
        m = max(m, abs(x[i]))
    step[0] = m / 127
    for i in range(N):
        Q[i] = x[i] / (m / 127)


def associations() -> dict[str, Any]:
    left, right = three(np.array([1, 2**-24, 2**-24], np.float32))
    ulps = int(right.view(np.int32)[0] - left.view(np.int32)[0])
    return {"left": float(left[0]), "right": float(right[0]), "ulps": ulps}


def through(dtype: str, value: float) -> float:
    return float(round_through(dtype, np.array([value], np.float32))[0])


def tenth() -> dict[str, Any]:
    stored = to_storage("bf16", np.array([0.1], np.float32))
    return {"val": float(to_arithmetic("bf16", stored)[0]), "bits": f"{int(stored.view(np.uint16)[0]):016b}"}


def seventy_thousand() -> dict[str, Any]:
    value = through("bf16", 70000)
    return {"v": value, "pct": 100 * (value - 70000) / 70000}


def largest() -> dict[str, Any]:
    """E2M1 and the E4M3 with infinities are no formats of tilec; ml_dtypes has them."""
    return {
        **{name: DTYPES[d].largest for name, d in (("fp16", "f16"), ("bf16", "bf16"), ("e4m3fn", "f8e4m3"), ("e5m2", "f8e5m2"))},
        "e4m3 IEEE": float(ml_dtypes.finfo(ml_dtypes.float8_e4m3).max),
        "e2m1": float(ml_dtypes.finfo(ml_dtypes.float4_e2m1fn).max),
    }


def four_bits() -> dict[str, Any]:
    values = np.arange(16, dtype=np.uint8).view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    return {"vals": sorted(float(v) for v in values if v > 0)}


def spacing(value: float) -> float:
    """From a bf16 value to the next one."""
    stored = to_storage("bf16", np.array([value], np.float32))
    following = (stored.view(np.uint16) + np.uint16(1)).view(stored.dtype)
    return float(to_arithmetic("bf16", following)[0] - to_arithmetic("bf16", stored)[0])


def spacings() -> dict[str, Any]:
    return {"100": spacing(100), "10000": spacing(10000), "1001": through("bf16", 1001)}


def eight_bit_step() -> dict[str, Any]:
    stored, step = to_i8(np.array([100, -100, 0], np.float32))
    assert stored.tolist() == [DTYPES["i8"].largest, -DTYPES["i8"].largest, 0]
    return {"step": float(step[0])}


def running_sums() -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, dtype, kernel in (("fp32", "f32", sum_f32), ("fp16", "f16", sum_f16), ("bf16", "bf16", sum_bf16)):
        total = np.zeros(1, DTYPES[dtype].numpy)
        kernel(to_storage(dtype, np.full(10_000, 0.01, np.float32)), total)
        out[name] = float(total[0])
    return out


def halving(count: int) -> str:
    """The text of a kernel that adds neighbours until one value is left."""
    lines, have, source = [], count, "x"
    while have > 1:
        have //= 2
        name = f"t{have}" if have > 1 else "y"
        if have > 1:
            lines.append(f"    {name}: f32[{have}]")
        lines += [f"    for i in range({have}):", f"        {name}[i] = {source}[2 * i] + {source}[2 * i + 1]"]
        source = name
    return f"def halving(x: f32[{count}], y: f32[1]):\n" + "\n".join(lines) + "\n"


def roundings(program: Program, read: Access) -> int:
    """The longest chain of statements, each of which rounds once, behind a value that is read."""
    writer = next((s for s in program.statements if s.target.buffer == read.buffer), None)
    return 0 if writer is None else 1 + max(roundings(program, r) for r in writer.reads)


def tree_sum() -> dict[str, Any]:
    definition = from_source(halving(4096), {"f32": f32})
    kernel = tilec.Kernel(definition)
    assert kernel(np.full(4096, 0.25, np.float32))[0] == 4096 / 4
    assert kernel.schedule().cost().flops == 4095  # one addition, one rounding per statement instance
    return {"log2": roundings(kernel.program, Access("y", ()))}


def consecutive(dtype: str) -> int:
    """The last integer before the first that the format does not hold."""
    integers = np.arange(1 << 13, dtype=np.float32)
    return int(np.flatnonzero(round_through(dtype, integers) != integers)[0]) - 1


def consecutive_integers() -> dict[str, Any]:
    return {"bf16": consecutive("bf16"), "fp16": consecutive("f16")}


def integers() -> dict[str, Any]:
    return {str(n): through("bf16", n) for n in (1001, 257)}


ROWS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "C5-S5.2.4-f": associations,
    "P1-S7.1-a": tenth,
    "P1-S7.1-b": seventy_thousand,
    "P1-S7.2-a": largest,
    "P1-S7.2-b": four_bits,
    "P1-S7.3-a": spacings,
    "P1-S7.3-b": eight_bit_step,
    "P1-S7.4-a": running_sums,
    "P1-S7.4-b": tree_sum,
    "P1-E6-a": consecutive_integers,
    "P1-E6-b": integers,
}
