"""Every kernel of the library against plain NumPy at small odd sizes: in float64, and bit for bit where NumPy's f32 is exact."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from tilec import workloads
from tilec.errors import LanguageError
from tilec.ir.dtypes import DTYPES, round_through, to_arithmetic, to_storage
from tilec.ir.functions import FUNCTIONS
from tilec.ir.interp import run
from tilec.ir.verify import verify

Arrays = dict[str, np.ndarray]

SIZES = {
    "act_chain": {"M": 5, "N": 7},
    "act_chain_i8": {"M": 5, "N": 7},
    "attention": {"M": 5, "N": 7, "D": 3},
    "blur": {"M": 5, "N": 7},
    "conv2d": {"B": 2, "K": 3, "C": 2, "P": 3, "Q": 5, "R": 3, "S": 2},
    "dot": {"N": 11},
    "gemm": {"M": 5, "N": 7, "K": 9},
    "gemm_silu": {"M": 5, "N": 7, "K": 9},
    "gemm_silu_quantize": {"M": 5, "N": 7, "K": 9},
    "jacobi2d": {"T": 3, "N": 7},
    "layernorm": {"M": 3, "K": 11},
    "rmsnorm": {"M": 3, "K": 11},
    "rowquant": {"M": 5, "K": 9},
    "rowquant_gemm": {"M": 5, "N": 7, "K": 9},
    "softmax": {"M": 3, "N": 11},
    "swiglu": {"M": 5, "N": 7, "K": 9},
    "syrk": {"N": 7},
    "transpose": {"M": 5, "N": 7},
}
SCALARS = {"scale": 0.25, "eps": 1e-5}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def bf16(x: np.ndarray) -> np.ndarray:
    return round_through("bf16", x)


def f8(x: np.ndarray) -> np.ndarray:
    return round_through("f8e4m3", x)


def silu64(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def normalised(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def conv64(x: np.ndarray, f: np.ndarray) -> np.ndarray:
    r, s = f.shape[2:]
    windows = np.lib.stride_tricks.sliding_window_view(x, (r, s), axis=(2, 3))
    return np.einsum("bcpqrs,kcrs->bkpq", windows, f)


def blur64(x: np.ndarray) -> np.ndarray:
    h = (x[:, :-2] + x[:, 1:-1] + x[:, 2:]) / 3
    return (h[:-2] + h[1:-1] + h[2:]) / 3


def jacobi64(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = a.copy(), b.copy()
    for _ in range(SIZES["jacobi2d"]["T"]):
        for src, dst in ((a, b), (b, a)):
            inner = src[1:-1, 1:-1] + src[1:-1, :-2] + src[1:-1, 2:] + src[2:, 1:-1] + src[:-2, 1:-1]
            dst[1:-1, 1:-1] = inner / 5
    return a, b


def layernorm64(x: np.ndarray, g: np.ndarray, b: np.ndarray, eps: float) -> np.ndarray:
    d = x - x.mean(1, keepdims=True)
    return d / np.sqrt((d * d).mean(1, keepdims=True) + eps) * g + b


# float64 values of the arguments (and scalars) to the written arrays, rounded where the kernel's storage rounds
REFERENCE: dict[str, Callable[[Arrays], Arrays]] = {
    "act_chain": lambda a: {"Q": f8(bf16(bf16(silu64(a["G"])) * a["U"]) / 0.25)},
    "act_chain_i8": lambda a: {"Q": np.rint(bf16(bf16(silu64(a["G"])) * a["U"]) / 0.25).clip(-128, 127)},
    "attention": lambda a: {"O": bf16(normalised(a["Q"] @ a["K"].T * 0.25)) @ a["V"]},
    "blur": lambda a: {"Y": blur64(a["X"])},
    "conv2d": lambda a: {"Y": conv64(a["X"], a["F"])},
    "dot": lambda a: {"out": np.array([a["x"] @ a["y"]])},
    "gemm": lambda a: {"C": a["A"] @ a["W"]},
    "gemm_silu": lambda a: {"Y": silu64(bf16(a["A"] @ a["W"]))},
    "gemm_silu_quantize": lambda a: {"Q": f8(bf16(silu64(bf16(a["A"] @ a["W"]))) / 0.25)},
    "jacobi2d": lambda a: dict(zip("AB", jacobi64(a["A"], a["B"]), strict=True)),
    "layernorm": lambda a: {"Y": layernorm64(a["X"], a["G"], a["B"], 1e-5)},
    "rmsnorm": lambda a: {"Y": a["X"] / np.sqrt((a["X"] ** 2).mean(1, keepdims=True) + 1e-5) * a["G"]},
    "rowquant": lambda a: {
        "S": np.abs(a["A"]).max(1) / 448,
        "Q": f8(a["A"] / (np.abs(a["A"]).max(1, keepdims=True) / 448)),
    },
    "rowquant_gemm": lambda a: {
        "Y": f8(a["A"] / (np.abs(a["A"]).max(1, keepdims=True) / 448)) @ a["W"] * (np.abs(a["A"]).max(1, keepdims=True) / 448)
    },
    "softmax": lambda a: {"Y": normalised(a["X"])},
    "swiglu": lambda a: {"Y": silu64(bf16(a["X"] @ a["Wg"])) * bf16(a["X"] @ a["Wu"])},
    "syrk": lambda a: {"C": a["C"] + np.tril(a["A"] @ a["A"].T)},
    "transpose": lambda a: {"B": a["A"].T},
}
# relative to the largest value: half a place of the format, doubled, plus what f32 sums lose
TOLERANCE = {"f32": 2e-6, "f16": 1e-3, "bf16": 8e-3, "f8e4m3": 7e-2, "i8": 1 / 127}


def arguments(name: str, seed: int) -> Arrays:
    """Random contents for every array parameter; written-only ones included, so that stale contents would show."""
    rng = np.random.default_rng(seed)
    program = workloads.get(name).program
    out: Arrays = {}
    for b in program.buffers:
        if b.role == "param":
            shape = [e.eval(SIZES[name]) for e in b.shape]
            out[b.name] = to_storage(b.dtype, rng.standard_normal(shape))
    return out


def result(name: str, arrays: Arrays) -> Arrays:
    program = workloads.get(name).program
    scalars = {s: SCALARS[s] for s, _ in program.scalars}
    return run(program, arrays, SIZES[name], scalars)


def test_names_are_the_files() -> None:
    assert workloads.names() == sorted(SIZES) == sorted(REFERENCE)
    for name in workloads.names():
        d = workloads.get(name)
        assert d.name == name and (d.file or "").endswith(f"{name}.py")


def test_unknown_name() -> None:
    with pytest.raises(LanguageError) as e:
        workloads.get("gem")
    assert str(e.value) == f"no kernel 'gem' in the library. Kernels: {', '.join(workloads.names())}. Did you mean 'gemm'?"


@pytest.mark.parametrize("name", workloads.names())
def test_tree(name: str) -> None:
    verify(workloads.get(name).program)


@pytest.mark.parametrize(("name", "seed"), list(product(workloads.names(), range(2))))
def test_against_float64(name: str, seed: int) -> None:
    arrays = arguments(name, seed)
    buffers = workloads.get(name).program.buffer
    wide = {k: to_arithmetic(buffers[k].dtype, v).astype(np.float64) for k, v in arrays.items()}
    expected, got = REFERENCE[name](wide), result(name, arrays)
    assert sorted(got) == sorted(expected)
    for key, value in expected.items():
        dtype = buffers[key].dtype
        assert got[key].dtype == DTYPES[dtype].numpy
        error = np.abs(to_arithmetic(dtype, got[key]).astype(np.float64) - value)
        assert error.max() <= TOLERANCE[dtype] * np.abs(value).max()


# bit for bit, in f32 as written


def product32(a: np.ndarray, w: np.ndarray) -> np.ndarray:
    acc = np.zeros((a.shape[0], w.shape[1]), np.float32)
    for k in range(a.shape[1]):
        acc = acc + a[:, k, None] * w[None, k]
    return acc


def silu32(x: np.ndarray) -> np.ndarray:
    return FUNCTIONS["silu"].evaluate(x)


def rowquant32(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    s = np.abs(a).max(1) / np.float32(448)
    return s, f8(a / s[:, None])


def rmsnorm32(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    ss = np.zeros(len(x), np.float32)
    for k in range(x.shape[1]):
        ss = ss + x[:, k] * x[:, k]
    r = FUNCTIONS["rsqrt"].evaluate(ss / np.float32(x.shape[1]) + np.float32(1e-5))
    return x * r[:, None] * g


def softmax32(x: np.ndarray) -> np.ndarray:
    e = FUNCTIONS["exp"].evaluate(x - x.max(1, keepdims=True))
    total = np.zeros(len(x), np.float32)
    for j in range(x.shape[1]):
        total = total + e[:, j]
    return e / total[:, None]


QUARTER = np.float32(0.25)
EXACT: dict[str, Callable[[Arrays], Arrays]] = {
    "act_chain": lambda a: {"Q": bf16(bf16(silu32(a["G"])) * a["U"]) / QUARTER},
    "act_chain_i8": lambda a: {"Q": bf16(bf16(silu32(a["G"])) * a["U"]) / QUARTER},
    "gemm": lambda a: {"C": product32(a["A"], a["W"])},
    "gemm_silu": lambda a: {"Y": silu32(bf16(product32(a["A"], a["W"])))},
    "gemm_silu_quantize": lambda a: {"Q": bf16(silu32(bf16(product32(a["A"], a["W"])))) / QUARTER},
    "rmsnorm": lambda a: {"Y": rmsnorm32(a["X"], a["G"])},
    "rowquant": lambda a: dict(zip("SQ", rowquant32(a["A"]), strict=True)),
    "rowquant_gemm": lambda a: {"Y": product32(rowquant32(a["A"])[1], a["W"]) * rowquant32(a["A"])[0][:, None]},
    "softmax": lambda a: {"Y": softmax32(a["X"])},
    "swiglu": lambda a: {"Y": silu32(bf16(product32(a["X"], a["Wg"]))) * bf16(product32(a["X"], a["Wu"]))},
}


@pytest.mark.parametrize(("name", "seed"), list(product(EXACT, range(3))))
def test_bit_for_bit(name: str, seed: int) -> None:
    arrays = arguments(name, seed)
    buffers = workloads.get(name).program.buffer
    expected = EXACT[name]({k: to_arithmetic(buffers[k].dtype, v) for k, v in arrays.items()})
    got = result(name, arrays)
    for key, value in expected.items():
        assert got[key].tobytes() == to_storage(buffers[key].dtype, value).tobytes()


def test_row_scale_of_the_whole_row() -> None:
    """Maximum 10 in the second half of the row: 1 becomes 44.8, then 44 in E4M3FN, and 55/56 when scaled back."""
    a = np.zeros((1, 256), np.float16)
    a[0, 0], a[0, 128] = 1, 10
    out = run(workloads.get("rowquant").program, {"A": a}, {"M": 1, "K": 256})
    assert to_arithmetic("f8e4m3", out["Q"])[0, 0] == 44
    assert to_arithmetic("f8e4m3", out["Q"])[0, 0] * out["S"][0] == pytest.approx(55 / 56, rel=1e-6)
