"""How far a permitted result may be from the exact one: values in f64 next to a bound of their error, through the whole kernel.

Running error analysis (Wilkinson; Higham, Accuracy and Stability of Numerical Algorithms, chapter 3). An operation of unit
roundoff u adds u times the largest result it may have had, and passes its operands' errors on. A sum of n terms in any order,
with or without fused multiply-adds, is off by at most n·u·Σ|terms| more than its terms are. A store to a narrower format rounds
both ends of the interval that a value may lie in: rounding is monotone, so what comes out lies between them. A comparison whose
sides overlap may go either way, and a choice by it may be either value. Elementary functions are followed at the ends of the
interval, with twice their stated error. Flushed denormals add the smallest normal number to every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.errors import InternalError
from tilec.ir import evaluate as ev
from tilec.ir import interp
from tilec.ir.affine import Aff
from tilec.ir.arithmetic import Exact
from tilec.ir.dtypes import DTYPES, DType, decode, promote, round_through
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Index, Load, Scalar, Select, Unary
from tilec.ir.functions import FUNCTIONS
from tilec.ir.program import Program

_CELL = np.dtype([("v", np.float64), ("e", np.float64), ("s", np.float64), ("n", np.float64)])
_ROUNDOFF = {"f64": 2.0**-53, "f32": 2.0**-24, "i32": 0.0, "bool": 0.0}
_LEAST = {"f64": 2.0**-1022, "f32": 2.0**-126, "i32": 0.0, "bool": 0.0}
_LARGEST = {"f64": np.inf, "f32": DTYPES["f32"].largest, "i32": np.inf, "bool": np.inf}
SLACK = 1 + 2.0**-10  # for the roundings of this analysis itself


@dataclass(frozen=True)
class Bounded:
    """value: in f64. error: how far the kernel's own may be off. kind: the arithmetic type. total, terms: of a running sum, the
    sum of its magnitudes and how many were added; their rounding is not in `error` yet."""

    value: Any
    error: Any
    kind: str
    total: Any = 0.0
    terms: Any = 0.0

    @property
    def off(self) -> Any:
        """The error, that of a running sum included."""
        with np.errstate(invalid="ignore"):
            return self.error + np.where(np.asarray(self.terms) > 0, self.terms * _ROUNDOFF[self.kind] * self.total, 0.0)


class Analysis(Exact):
    """The interpreter's arithmetic with every value replaced by a Bounded one. Cells hold value, error, magnitudes, terms."""

    def cells(self, d: DType) -> np.dtype:
        return _CELL

    def enter(self, d: DType, raw: np.ndarray) -> np.ndarray:
        out = np.zeros(raw.shape, _CELL)
        out["v"] = decode(d.name, raw)
        out["s"] = np.abs(out["v"])
        return out

    def leave(self, d: DType, cells: np.ndarray) -> np.ndarray:
        out = np.empty(cells.shape, [("value", np.float64), ("error", np.float64)])
        error = self.decode(d.name, cells).off * SLACK
        out["value"], out["error"] = cells["v"], np.where(np.isnan(error), np.inf, error)
        return out

    def decode(self, dtype: str, cells: Any) -> Bounded:
        return Bounded(cells["v"], cells["e"], DTYPES[dtype].arithmetic, cells["s"], cells["n"])

    def encode(self, dtype: str, value: Bounded) -> Any:
        d = DTYPES[dtype]
        stored = value
        if not (d.direct and d.kind == "float" and d.name == value.kind):
            stored = _rounded(dtype, _plain(value), None)
        shape = np.broadcast_shapes(*(np.shape(x) for x in (stored.value, stored.error, stored.total, stored.terms)))
        out = np.empty(shape, _CELL)
        out["v"], out["e"], out["n"] = stored.value, stored.error, stored.terms
        out["s"] = np.where(np.asarray(stored.terms) > 0, stored.total, np.abs(stored.value))
        return out

    def binary(self, op: str, dtype: str, a: Bounded, b: Bounded) -> Bounded:
        return _binary(op, dtype, a, b)

    def update(self, op: str, dtype: str, old: Bounded, value: Bounded) -> Bounded:
        if op != "+" or dtype not in ("f32", "f64") or old.kind != dtype:
            return _binary(op, dtype, old, value)
        term = _converted(value, dtype)
        total = old.total + np.abs(term.value) + term.error
        return Bounded(old.value + term.value, old.error + term.error + _LEAST[dtype], dtype, total, old.terms + 1)

    def accumulate(
        self, op: str, dtype: str, old: Bounded, values: Bounded, shape: tuple[int, ...], rows: tuple[int, ...]
    ) -> Bounded:
        values = _plain(values)
        value, error = (np.broadcast_to(x, rows) for x in (values.value, values.error))
        if op != "+" or dtype not in ("f32", "f64") or old.kind != dtype:
            for k in range(rows[0]):
                old = self.update(op, dtype, old, Bounded(value[k], error[k], values.kind))
            return old
        term = _converted(Bounded(value, error, values.kind), dtype)
        off = term.error.sum(axis=0)
        total = old.total + np.abs(term.value).sum(axis=0) + off
        return Bounded(
            old.value + term.value.sum(axis=0), old.error + off + rows[0] * _LEAST[dtype], dtype, total, old.terms + rows[0]
        )

    def neutral(self, op: str, dtype: str) -> Bounded:
        return Bounded(np.float64(ev.neutral(op, dtype)), 0.0, DTYPES[dtype].arithmetic)

    def evaluate(self, e: Expr, loads: Sequence[Bounded], index: Callable[[Aff], Any], scalars: dict[str, Any]) -> Bounded:
        def go(x: Expr) -> Bounded:
            match x:
                case Load(n=n):
                    return _plain(loads[n])
                case Binary(op=op, a=a, b=b, dtype=dtype):
                    return _binary(op, dtype, go(a), go(b))
                case Const(value=value, dtype=dtype):
                    exact = np.float32(value) if dtype == "f32" else value
                    return Bounded(np.float64(exact), 0.0, dtype)
                case Call(function=name, args=(a,)):
                    return _function(name, _converted(go(a), "f32"))
                case Cast(to=to, x=inner, rule=rule, dtype=dtype):
                    rounded = _rounded(to, go(inner), rule)
                    return Bounded(rounded.value, rounded.error, dtype)
                case Select(cond=c, a=a, b=b, dtype=dtype):
                    return _select(go(c), _converted(go(a), dtype), _converted(go(b), dtype))
                case Compare(op=op, a=a, b=b):
                    return _compare(op, *(_converted(go(y), promote(a.dtype, b.dtype)) for y in (a, b)))
                case Unary(op=op, x=inner, dtype=dtype):
                    return _unary(op, _converted(go(inner), dtype))
                case Index(aff=aff):
                    return Bounded(np.asarray(index(aff), np.float64), 0.0, "i32")
                case Scalar(name=name, dtype=dtype):
                    return Bounded(np.float64(scalars[name]), 0.0, dtype)
            raise InternalError(f"cannot bound {x!r}")

        return go(e)


def bounds(
    source: Program, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], scalars: Mapping[str, Any]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Per written parameter of an original program: values in f64, and how far a result may be from each.

    Holds for any order of its float sums, fused or separate multiply-adds, and flushed denormals. inf: no bound (a division by
    what may be zero, an overflow).
    """
    found = interp.run(source, arrays, sizes, scalars, arithmetic=Analysis())
    return {n: (a["value"], a["error"]) for n, a in found.items()}


def _plain(x: Bounded) -> Bounded:
    """Without a running sum beside it."""
    return Bounded(x.value, x.off, x.kind)


def _operation(value: Any, error: Any, kind: str) -> Bounded:
    """With the rounding of the operation that made it; no bound past the largest number."""
    size = np.abs(value) + error
    out = error + _ROUNDOFF[kind] * size + _LEAST[kind] * (size > 0)
    return Bounded(value, np.where(size <= _LARGEST[kind], out, np.inf), kind)


def _converted(x: Bounded, kind: str) -> Bounded:
    x = _plain(x)
    if x.kind == kind:
        return x
    if kind == "f32" and x.kind == "i32":
        inexact = np.abs(x.value) + x.error > 2**24
        return Bounded(x.value, x.error + np.where(inexact, _ROUNDOFF["f32"] * (np.abs(x.value) + x.error), 0.0), kind)
    return Bounded(x.value, x.error, kind)


def _binary(op: str, kind: str, a: Bounded, b: Bounded) -> Bounded:
    a, b = _converted(a, kind), _converted(b, kind)
    x, y, ex, ey = a.value, b.value, a.error, b.error
    with np.errstate(all="ignore"):
        match op:
            case "+" | "-":
                return _wrapped(_operation(x + y if op == "+" else x - y, ex + ey, kind))
            case "*":
                return _wrapped(_operation(x * y, np.abs(x) * ey + np.abs(y) * ex + ex * ey, kind))
            case "/":
                least = np.abs(y) - ey
                value = x / y
                return _operation(value, np.where(least > 0, (ex + np.abs(value) * ey) / least, np.inf), kind)
            case "max" | "min":
                value = np.maximum(x, y) if op == "max" else np.minimum(x, y)
                return Bounded(value, np.maximum(ex, ey), kind)
            case "//" | "%":
                whole = np.floor_divide(x, y)
                value = np.where(y == 0, 0.0, whole if op == "//" else x - y * whole)
                return Bounded(value, np.where(ex + ey > 0, np.inf, 0.0), kind)
            case "and" | "or":
                value = np.logical_and(x, y) if op == "and" else np.logical_or(x, y)
                return Bounded(value.astype(np.float64), np.maximum(ex, ey), kind)
    raise InternalError(f"no bound for {op!r}")


def _wrapped(x: Bounded) -> Bounded:
    """i32 results modulo 2^32."""
    if x.kind != "i32":
        return x
    return Bounded(np.mod(x.value + 2**31, 2**32) - 2**31, x.error, "i32")


def _rounded(dtype: str, x: Bounded, rule: str | None) -> Bounded:
    """Rounded to a storage type: both ends of the interval."""
    d = DTYPES[dtype]
    x = _plain(x)

    def one(values: Any) -> Any:
        return np.asarray(round_through(dtype, np.asarray(values, np.float64), rule), np.float64)

    with np.errstate(all="ignore"):
        middle = one(x.value)
        low, high = one(x.value - x.error), one(x.value + x.error)
        error = np.maximum(high - middle, middle - low)
        exact = x.error == 0 if rule == "no_saturate" and d.kind == "int" else np.isfinite(x.error)
    return Bounded(
        middle, np.where(np.asarray(x.error) == 0, 0.0, np.where(exact & (error == error), error, np.inf)), d.arithmetic
    )


def _compare(op: str, a: Bounded, b: Bounded) -> Bounded:
    value = np.asarray(ev.compare(op, a.value, b.value))
    unsure = (a.error + b.error > 0) & (np.abs(a.value - b.value) <= a.error + b.error)
    return Bounded(value.astype(np.float64), unsure.astype(np.float64), "bool")


def _select(c: Bounded, a: Bounded, b: Bounded) -> Bounded:
    value = np.where(c.value != 0, a.value, b.value)
    sure = np.where(c.value != 0, a.error, b.error)
    with np.errstate(all="ignore"):
        either = np.maximum(a.error, b.error) + np.abs(a.value - b.value)
    return Bounded(value, np.where(c.error > 0, either, sure), a.kind)


def _unary(op: str, x: Bounded) -> Bounded:
    match op:
        case "-":
            return Bounded(-x.value, x.error, x.kind)
        case "abs":
            return Bounded(np.abs(x.value), x.error, x.kind)
        case "not":
            return Bounded(1.0 - x.value, x.error, x.kind)
        case "sqrt":
            with np.errstate(all="ignore"):
                value = np.sqrt(x.value)
                low, high = np.sqrt(np.maximum(x.value - x.error, 0.0)), np.sqrt(x.value + x.error)
            return _operation(value, np.where(x.error > 0, np.maximum(value - low, high - value), 0.0), x.kind)
    raise InternalError(f"no bound for {op!r}")


def _function(name: str, x: Bounded) -> Bounded:
    function = FUNCTIONS[name]
    x = _plain(x)
    with np.errstate(all="ignore"):
        value, *others = (
            np.asarray(function.evaluate(np.asarray(at, np.float64).astype(np.float32)), np.float64)
            for at in (x.value, x.value - x.error, x.value - x.error / 2, x.value + x.error / 2, x.value + x.error)
        )
        moved = np.max([np.abs(o - value) for o in others], axis=0)
        last = np.spacing(np.abs(value).astype(np.float32)).astype(np.float64)
    error = np.where(x.error > 0, 2 * moved, 0.0) + 2 * (function.max_ulp + 1) * last
    return Bounded(value, np.where(np.isfinite(error), error, np.inf), "f32")
