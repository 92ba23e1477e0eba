"""The value of an expression on NumPy arrays: each operation rounds once in its arithmetic type (DESIGN, numerics).

Values are NumPy scalars or arrays that broadcast against each other; their NumPy dtype is that of the node's arithmetic type.
i32 wraps; `//` and `%` floor, and by zero give 0. max and min are IEEE 754-2019 maximum and minimum: NaN wins and comes out as
the one quiet NaN, -0 is less than +0. The sign and payload of any other NaN are not part of the semantics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilec.errors import InternalError
from tilec.ir.affine import Aff
from tilec.ir.dtypes import ARITHMETIC_NUMPY, DTYPES, convert, promote, round_through
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Index, Load, Scalar, Select, Unary
from tilec.ir.functions import FUNCTIONS

Value = Any  # a NumPy scalar or array

_ARITHMETIC: dict[str, Callable[[Value, Value], Value]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "and": np.logical_and,
    "or": np.logical_or,
}
_COMPARE: dict[str, Callable[[Value, Value], Value]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def maximum(a: Value, b: Value) -> Value:
    """IEEE 754-2019 maximum for floats, the larger one for integers."""
    return _extreme(a, b, np.maximum, np.bitwise_and)


def minimum(a: Value, b: Value) -> Value:
    """IEEE 754-2019 minimum for floats, the smaller one for integers."""
    return _extreme(a, b, np.minimum, np.bitwise_or)


def _extreme(a: Value, b: Value, pick: np.ufunc, join: np.ufunc) -> Value:
    result = pick(a, b)
    if result.dtype.kind != "f":
        return result
    # equal values have equal bits, except zeros: +0 is the larger (its sign bit is the and), -0 the smaller (the or)
    bits = np.uint32 if result.dtype == np.float32 else np.uint64
    result = np.where(a == b, join(np.asarray(a).view(bits), np.asarray(b).view(bits)).view(result.dtype), result)
    return np.where(result == result, result, result.dtype.type(np.nan))


def binary(op: str, dtype: str, a: Value, b: Value) -> Value:
    """a op b, both converted to the arithmetic type `dtype` first."""
    a, b = convert(a, dtype), convert(b, dtype)
    if op == "max":
        return maximum(a, b)
    if op == "min":
        return minimum(a, b)
    if (op == "/" and dtype == "i32") or (op in ("//", "%") and dtype != "i32") or op not in _ARITHMETIC:
        raise InternalError(f"no operation {op!r} on {dtype} values")
    return _ARITHMETIC[op](a, b)


def compare(op: str, a: Value, b: Value) -> Value:
    """a op b for two values of one type."""
    return _COMPARE[op](a, b)


def neutral(op: str, dtype: str) -> Value:
    """The neutral element of a reduction ("+", "*", "max", "min", or the same with "=") in storage type `dtype`, as an
    arithmetic value: x op neutral is x for every x. That of a float sum is -0: (+0) + (-0) is +0, (-0) + (-0) is -0."""
    d = DTYPES[dtype]
    floats = d.kind == "float"
    value: float | int
    match op.rstrip("="):
        case "+":
            value = -0.0 if floats else 0
        case "*":
            value = 1
        case "max":
            value = -np.inf if floats else int(d.lowest)
        case "min":
            value = np.inf if floats else int(d.largest)
        case _:
            raise InternalError(f"{op!r} has no neutral element")
    return ARITHMETIC_NUMPY[d.arithmetic].type(value)


def evaluate(e: Expr, loads: Sequence[Value], index: Callable[[Aff], Value], scalars: dict[str, Value]) -> Value:
    """The value of `e`; loads[n] is that of Load(n), index(aff) the integer value of an affine expression."""

    def go(x: Expr) -> Value:
        match x:
            case Load(n=n):
                return loads[n]
            case Binary(op=op, a=a, b=b, dtype=dtype):
                return binary(op, dtype, go(a), go(b))
            case Const(value=value, dtype=dtype):
                return ARITHMETIC_NUMPY[dtype].type(value)
            case Call(function=name, args=(a,)):
                return FUNCTIONS[name].evaluate(convert(go(a), "f64" if a.dtype == "f64" else "f32"))
            case Cast(to=to, x=inner, rule=rule):
                return round_through(to, go(inner), rule)
            case Select(cond=c, a=a, b=b, dtype=dtype):
                return np.where(go(c), convert(go(a), dtype), convert(go(b), dtype))
            case Compare(op=op, a=a, b=b):
                common = promote(a.dtype, b.dtype)
                return compare(op, convert(go(a), common), convert(go(b), common))
            case Unary(op=op, x=inner, dtype=dtype):
                return _unary(op, convert(go(inner), dtype))
            case Index(aff=aff):
                return np.asarray(index(aff)).astype(np.int32)
            case Scalar(name=name):
                return scalars[name]
        raise InternalError(f"cannot evaluate {x!r}")

    return go(e)


def _unary(op: str, x: Value) -> Value:
    match op:
        case "-":
            return np.negative(x)
        case "abs":
            return np.abs(x)
        case "sqrt":
            return np.sqrt(x)
        case "not":
            return np.logical_not(x)
    raise InternalError(f"no operation {op!r}")
