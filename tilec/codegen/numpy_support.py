"""What generated NumPy code imports: conversions, extremes, elementary functions, axes, ordered sums.

Arrays and scalars hold *arithmetic* values (f32 for bf16, i32 for i8): `bf16(x)` is what a store to bf16 and a load give. Every
function takes and returns NumPy scalars or arrays. The functions of ir/functions.py are attributes of this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.ir import evaluate
from tilec.ir.dtypes import ARITHMETIC_NUMPY, DTYPES, round_through, to_arithmetic, to_storage
from tilec.ir.functions import FUNCTIONS

Value = Any  # a NumPy scalar or array

inf, nan = np.inf, np.nan
sqrt, logical_and, logical_or, logical_not = np.sqrt, np.logical_and, np.logical_or, np.logical_not


def _scalar(x: Value) -> Value:
    """An array without dimensions as a scalar, which no later update changes in place."""
    return x[()]


def _rounding(dtype: str) -> Callable[..., Value]:
    def convert(x: Value, rule: str | None = None) -> Value:
        return _scalar(round_through(dtype, x, rule))

    convert.__name__ = dtype
    convert.__doc__ = f"Round to {dtype}."
    return convert


f16, bf16, f8e4m3, f8e5m2, i8 = map(_rounding, ("f16", "bf16", "f8e4m3", "f8e5m2", "i8"))


def f32(x: Value, rule: str | None = None) -> Value:
    return np.float32(x) if rule is None else _scalar(round_through("f32", x, rule))


def f64(x: Value, rule: str | None = None) -> Value:
    return np.float64(x) if rule is None else _scalar(round_through("f64", x, rule))


def i32(x: Value, rule: str | None = None) -> Value:
    return np.int32(x) if isinstance(x, int) else _scalar(round_through("i32", x, rule))


def index(x: Value) -> Value:
    """A loop variable, a size or an expression of them as an i32 value."""
    return _scalar(np.asarray(x).astype(np.int32))


def where(condition: Value, a: Value, b: Value) -> Value:
    return _scalar(np.where(condition, a, b))


def maximum(a: Value, b: Value) -> Value:
    """IEEE 754-2019 maximum."""
    return _scalar(evaluate.maximum(a, b))


def minimum(a: Value, b: Value) -> Value:
    """IEEE 754-2019 minimum."""
    return _scalar(evaluate.minimum(a, b))


def values(array: np.ndarray, dtype: str) -> np.ndarray:
    """A parameter's elements as arithmetic values."""
    return to_arithmetic(dtype, array)


def stored(array: np.ndarray, dtype: str) -> np.ndarray:
    """Arithmetic values as elements of `dtype`; exact, they were rounded where they were stored."""
    return to_storage(dtype, array)


def undefined(shape: tuple[int, ...], dtype: str) -> Value:
    """Fresh storage: NaN in floats, 0xA5 in every byte of an integer, as in the interpreter: a read before a write shows."""
    d = DTYPES[dtype]
    poison = np.nan if d.kind == "float" else np.frombuffer(b"\xa5" * d.bytes, d.raw)[0]
    return np.full(shape, poison, ARITHMETIC_NUMPY[d.arithmetic])[()]


def axis(r: range) -> np.ndarray:
    return np.arange(r.start, r.stop)


def axes(*ranges: range) -> tuple[np.ndarray, ...]:
    """Index arrays, one per range, that broadcast against each other."""
    return np.ix_(*map(axis, ranges))


def add_in_order(start: Value, terms: Value, count: int) -> Value:
    """((start + t0) + t1) + …, each sum rounded; `terms` are `count` values, or one for all."""
    return _in_order(np.add, start, terms, count)


def multiply_in_order(start: Value, terms: Value, count: int) -> Value:
    """((start · t0) · t1) · …, each product rounded."""
    return _in_order(np.multiply, start, terms, count)


def maximum_over(start: Value, terms: Value, count: int) -> Value:
    return _halving(evaluate.maximum, start, terms, count)


def minimum_over(start: Value, terms: Value, count: int) -> Value:
    return _halving(evaluate.minimum, start, terms, count)


def _in_order(operation: np.ufunc, start: Value, terms: Value, count: int) -> Value:
    # accumulate keeps every partial result, so NumPy cannot sum pairwise as `sum` does
    sequence = np.empty(count + 1, start.dtype)
    sequence[0], sequence[1:] = start, terms
    return operation.accumulate(sequence, dtype=start.dtype)[-1]


def _halving(operation: Callable[[Value, Value], Value], start: Value, terms: Value, count: int) -> Value:
    rest = np.empty(count + 1, start.dtype)
    rest[0], rest[1:] = start, terms
    while rest.size > 1:  # any order gives the same extreme
        half = rest.size // 2
        joined = operation(rest[:half], rest[half : 2 * half])
        rest = np.concatenate((joined, rest[2 * half :]))
    return rest[0]


def __getattr__(name: str) -> Callable[[Value], Value]:
    if name not in FUNCTIONS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    evaluate_ = FUNCTIONS[name].evaluate
    return lambda x: _scalar(evaluate_(np.asarray(x)))
