"""Emitted kernels in Triton's interpreter, with its conversions replaced by exact ones.

Imported by triton_adapter.py only, which has set TRITON_INTERPRET before Triton was imported.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import torch
from triton.runtime import interpreter

from tilec.runtime.triton_load import load

TORCH = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn,
    "f8e5m2": torch.float8_e5m2,
    "i32": torch.int32,
    "i8": torch.int8,
}
RAW = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
FLOATS = {
    "fp64": np.dtype(np.float64),
    "fp32": np.dtype(np.float32),
    "fp16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "fp8e4nv": np.dtype(ml_dtypes.float8_e4m3fn),
    "fp8e5": np.dtype(ml_dtypes.float8_e5m2),
}


def convert(data: np.ndarray, source: str, target: str) -> np.ndarray:
    """Elements (bits in any type of the right width) of one float type in another, rounded once to the nearest even.

    f8 saturates, as the hardware's cvt.rn.satfinite does. The result holds bits where NumPy has no such type.
    """
    a, b = FLOATS[source], FLOATS[target]
    values = np.ascontiguousarray(data).view(a).astype(np.float64)
    with np.errstate(all="ignore"):
        if b.itemsize == 1:
            top = float(ml_dtypes.finfo(b).max)
            values = np.where(np.isnan(values), values, np.clip(values, -top, top))
        out = values.astype(b)
    return out.view(RAW[b.itemsize]) if b.itemsize <= 2 and b != np.dtype(np.float16) else out


def _convert_float(data: Any, source: Any, target: Any, rounding_mode: Any) -> np.ndarray:
    return convert(data, source.name, target.name).view(RAW[FLOATS[target.name].itemsize])


def _create_dot(self: Any, a: Any, b: Any, d: Any, input_precision: Any, max_num_imprecise_acc: Any) -> Any:
    def wide(x: Any) -> np.ndarray:
        name = x.dtype.scalar.name
        if name not in FLOATS:
            return x.data.astype(np.int32)
        return convert(x.data, name, "fp64" if name == "fp64" else "fp32")

    product = np.matmul(wide(a), wide(b), dtype=d.data.dtype)
    return interpreter.TensorHandle(product + d.data, d.dtype.scalar)


def install() -> None:
    """Put the exact conversions in place."""
    interpreter._convert_float = _convert_float
    interpreter.InterpreterBuilder.create_dot = _create_dot


def interpreted(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run the launcher of an emitted file on arrays from an .npz file; the outputs go to another one, as bits."""
    install()
    module = load(request["text"], folder)
    given = np.load(request["data"])
    arguments: dict[str, Any] = {}
    tensors: dict[str, torch.Tensor] = {}
    for parameter, name, dtype in request["arguments"]:
        if dtype is None:
            arguments[parameter] = given[name][()].item()
            continue
        tensors[name] = arguments[parameter] = torch.from_numpy(given[name].copy()).view(TORCH[dtype])
    with np.errstate(all="ignore"):
        getattr(module, request["entry"])(**arguments)
    out = {}
    for name, dtype in request["outputs"]:
        size = torch.empty((), dtype=TORCH[dtype]).element_size()
        kinds = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}
        out[name] = tensors[name].view(kinds[size]).numpy()
    np.savez(request["out"], **out)
    return {}


def answered(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A run on given arrays, or (with `device`: "cpu") a timed one, which shows that the timing itself works."""
    if "device" in request:
        install()
        return importlib.import_module("tilec.runtime.triton_device").timed(request, folder)
    return interpreted(request, folder)
