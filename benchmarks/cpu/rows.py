"""The rows of the benchmark: shapes, inputs, a reference in double precision, and the work that a roof is computed from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

SHAPES = {
    "1024x4096x12288": (1024, 4096, 12288),
    "512": (512,) * 3,
    "1024": (1024,) * 3,
    "2048": (2048,) * 3,
    "1000": (1000,) * 3,
    "127x333x517": (127, 333, 517),
    "m16": (16, 4096, 12288),
    "m1": (1, 4096, 12288),
}
SIZES = {"f32": 4, "bf16": 2, "i8": 1}
MOSTLY_READ = 16  # bytes read for a byte written; with more, the mix is one of reading alone
CHECKED = 16  # rows of a result that are compared


@dataclass(frozen=True)
class Row:
    """name: as in --rows. spec: what a worker is told. flops: multiply-adds count 2. unit: the probe of their peak. written:
    bytes of the result. calls: values that go through silu or exp. tolerance: of the worst element, relative to the largest of
    its row of the reference."""

    name: str
    spec: dict[str, Any]
    flops: float
    unit: str
    written: float
    calls: float
    tolerance: float
    inputs: dict[str, tuple[tuple[int, ...], str]]

    @property
    def read(self) -> float:
        """Bytes of the inputs."""
        return float(sum(SIZES[dtype] * prod(shape) for shape, dtype in self.inputs.values()))

    @property
    def mix(self) -> int:
        """Bytes read for each byte written, a whole number; 0: reading is nearly all."""
        ratio = round(self.read / self.written)
        return 0 if ratio > MOSTLY_READ else max(1, ratio)

    def make(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Inputs; bf16 as the bits."""
        rng = np.random.default_rng(seed)
        out: dict[str, np.ndarray] = {}
        for name, (shape, dtype) in self.inputs.items():
            if dtype == "i8":
                out[name] = rng.integers(-127, 128, shape, dtype=np.int8)
                continue
            values = rng.standard_normal(shape, dtype=np.float32)
            out[name] = values.astype(ml_dtypes.bfloat16).view(np.uint16) if dtype == "bf16" else values
        return out

    def reference(self, inputs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """(indices of the rows compared, their values in double precision)."""
        x = {n: a.view(ml_dtypes.bfloat16).astype("f8") if a.dtype == np.uint16 else a for n, a in inputs.items()}
        first = next(iter(x.values()))
        rows = np.unique(np.linspace(0, len(first) - 1, CHECKED).astype(int))
        return rows, REFERENCES[self.spec["kind"]](x, rows, self.spec)


def _silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def _gemm_silu(x: dict[str, np.ndarray], rows: np.ndarray, spec: dict[str, Any]) -> np.ndarray:
    c = x["A"][rows].astype("f8") @ x["W"].astype("f8")
    if spec["dtype"] == "bf16":
        c = c.astype("f4").astype(ml_dtypes.bfloat16).astype("f8")
    return _silu(c)


def _chain(x: dict[str, np.ndarray], rows: np.ndarray, spec: dict[str, Any]) -> np.ndarray:
    v = _silu(x["G"][rows].astype("f8")) * x["U"][rows] / spec["scale"]
    if spec["kind"] == "chain_i8":
        return np.clip(np.rint(v), -128, 127)
    return np.clip(v, -448, 448)


def _rowquant(x: dict[str, np.ndarray], rows: np.ndarray, spec: dict[str, Any]) -> np.ndarray:
    a = x["A"][rows].astype("f4")
    s = np.abs(a).max(axis=1, keepdims=True) / np.float32(127)
    return (np.rint(a / s).astype("f8") @ x["W"].astype("f8")) * s


def _softmax(v: np.ndarray) -> np.ndarray:
    e = np.exp(v - v.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def _rmsnorm(x: dict[str, np.ndarray], rows: np.ndarray, spec: dict[str, Any]) -> np.ndarray:
    v = x["X"][rows].astype("f8")
    return v / np.sqrt((v * v).mean(axis=1, keepdims=True) + 1e-5) * x["G"]


def _attention(x: dict[str, np.ndarray], rows: np.ndarray, spec: dict[str, Any]) -> np.ndarray:
    return _softmax(x["Q"][rows].astype("f8") @ x["K"].T.astype("f8") * spec["scale"]) @ x["V"].astype("f8")


REFERENCES = {
    "gemm_silu": _gemm_silu,
    "chain_i8": _chain,
    "chain_f8": _chain,
    "int8": lambda x, rows, spec: x["A"][rows].astype("f8") @ x["W"].astype("f8"),
    "rowquant": _rowquant,
    "softmax": lambda x, rows, spec: _softmax(x["X"][rows].astype("f8")),
    "rmsnorm": _rmsnorm,
    "attention": _attention,
}


def rows() -> list[Row]:
    """Every row, in the order of the table."""
    out = [_gemm(dtype, label, *shape) for dtype in ("f32", "bf16") for label, shape in SHAPES.items()]
    m, n = 1024, 12288
    for kind in ("chain_i8", "chain_f8"):
        for dtype in ("f32", "bf16"):
            label = f"{'act_i8' if kind == 'chain_i8' else 'act_e4m3'}_{'fp32' if dtype == 'f32' else 'bf16'}"
            spec = {"kind": kind, "dtype": dtype, "kernel": f"{kind}_{dtype}", "M": m, "N": n, "scale": 0.0625, "inverse": 16.0}
            # a value next to a tie may round either way: one step of i8, one of E4M3's 8 steps to a power of two
            loose = 1.01 / 128 if kind == "chain_i8" else 0.0725
            out.append(Row(label, spec, 2.0 * m * n, "fma", m * n, m * n, loose, {x: ((m, n), dtype) for x in "GU"}))
    m, k, n = 4096, 4096, 1536
    flops, weights = 2.0 * m * k * n, ((k, n), "i8")
    spec = {"kind": "int8", "dtype": "i8", "kernel": "gemm_i8", "M": m, "K": k, "N": n}
    out.append(Row("int8_gemm", spec, flops, "int8", 4 * m * n, 0, 1e-7, {"A": ((m, k), "i8"), "W": weights}))
    spec = {"kind": "rowquant", "dtype": "f32", "kernel": "rowquant_i8", "M": m, "K": k, "N": n}
    out.append(Row("int8_rowquant", spec, flops, "int8", 4 * m * n, 0, 1e-3, {"A": ((m, k), "f32"), "W": weights}))
    m, k = 1024, 4096
    spec = {"kind": "rmsnorm", "dtype": "f32", "kernel": "rmsnorm_f32", "M": m, "K": k, "eps": 1e-5}
    out.append(Row("rmsnorm", spec, 4.0 * m * k, "fma", 4 * m * k, 0, 1e-5, {"X": ((m, k), "f32"), "G": ((k,), "f32")}))
    m = n = 2048
    spec = {"kind": "softmax", "dtype": "f32", "kernel": "softmax_f32", "M": m, "N": n}
    out.append(Row("softmax", spec, 3.0 * m * n, "fma", 4 * m * n, m * n, 1e-5, {"X": ((m, n), "f32")}))
    d = 128
    spec = {"kind": "attention", "dtype": "f32", "kernel": "attention_f32", "M": m, "N": n, "D": d, "scale": d**-0.5}
    inputs = {name: ((n, d), "f32") for name in "QKV"}
    out.append(Row("attention", spec, 4.0 * m * n * d, "fma", 4 * m * d, m * n, 1e-4, inputs))
    return out


def _gemm(dtype: str, label: str, m: int, k: int, n: int) -> Row:
    spec = {"kind": "gemm_silu", "dtype": dtype, "kernel": f"gemm_silu_{dtype}", "M": m, "K": k, "N": n}
    name = f"{'fp32' if dtype == 'f32' else 'bf16'}_{label}"
    unit, loose = ("fma", 2e-5) if dtype == "f32" else ("bf16", 2e-2)
    return Row(
        name, spec, 2.0 * m * k * n, unit, SIZES[dtype] * m * n, m * n, loose, {"A": ((m, k), dtype), "W": ((k, n), dtype)}
    )


def roof_ms(row: Row, rates: Mapping[str, float]) -> float:
    """The least milliseconds: the larger of the bytes at the bandwidth of their mix, and the arithmetic: multiply-adds at the
    peak of their unit (or of f32's, where the CPU has no such unit), then the elementary functions at the pace of silu. rates:
    of the probes, per second: fma, bf16, int8, silu, bytes."""
    core = row.flops / max(rates[row.unit], rates["fma"]) + row.calls / rates["silu"]
    return 1e3 * max(core, (row.read + row.written) / rates["bytes"])
