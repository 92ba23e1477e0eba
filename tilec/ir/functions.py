"""Elementary functions as fixed sequences of f32 operations, defined once as data that every backend emits in the same order.

A `Function` is a straight line of `Step`s over the f32 argument "x"; each step rounds once in f32 (nothing fused, denormals
kept) or is exact. That makes the interpreter, NumPy, C and Triton agree bit for bit, up to a NaN's sign and payload, which are
not part of the semantics. `max_ulp` is the stated error bound against the real function, in units in the last place of the exact
result (2^-149 below the normal range); the tests measure it.

    op                                   arguments -> result
    add sub mul div neg abs sqrt         f32 -> f32
    lt gt eq                             f32, f32 -> bool (false for NaN)
    select                               bool, f32, f32 -> f32
    int                                  an integral f32 within i32 -> i32, exact
    float                                i32 below 2^24 -> f32, exact
    bits, from_bits                      f32 -> i32, i32 -> f32: the same 32 bits
    iadd isub iand shl sar               i32, wrapping; shl and sar by a constant, sar keeps the sign
    ieq                                  i32, i32 -> bool

Arguments: an f32 is taken as it is, an i32 is rounded to f32 once; for an f64 there is no sequence and `check_argument` refuses
it: write `exp(f32(x))`. sqrt is not here: it is an IEEE operation, exact in f32 and f64 (Unary "sqrt").
Polynomials are minimax fits (weighted least squares to equal ripple, in f64); log and log2 use FreeBSD's e_logf.c and e_log2f.c.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias, Union

import numpy as np

from tilec.errors import LanguageError

Operand: TypeAlias = Union[str, float, int]  # the name of an earlier step or "x"; an f32 constant; an i32 constant

_RESULT = {"lt": "bool", "gt": "bool", "eq": "bool", "ieq": "bool"} | {
    op: "i32" for op in ("int", "bits", "iadd", "isub", "iand", "shl", "sar")
}
_KIND = {"lt": "compare", "gt": "compare", "eq": "compare", "ieq": "compare", "select": "select", "int": "convert"} | {
    op: "integer" for op in ("iadd", "isub", "iand", "shl", "sar")
}
_KIND |= {"float": "convert", "bits": "convert", "from_bits": "convert", "neg": "sign", "abs": "sign"}

_APPLY: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "lt": np.less,
    "gt": np.greater,
    "eq": np.equal,
    "ieq": np.equal,
    "select": np.where,
    "int": lambda v: v.astype(np.int32),
    "float": lambda v: v.astype(np.float32),
    "bits": lambda v: v.view(np.int32),
    "from_bits": lambda v: v.view(np.float32),
    "iadd": np.add,
    "isub": np.subtract,
    "iand": np.bitwise_and,
    "shl": np.left_shift,
    "sar": np.right_shift,
}


@dataclass(frozen=True)
class Step:
    """name = op(args); `dtype` is the type of the result: "f32", "i32" or "bool"."""

    name: str
    op: str
    args: tuple[Operand, ...]
    dtype: str


@dataclass(frozen=True)
class Function:
    """One elementary function of one f32 argument; `result` names the step (or "x") that is its value."""

    name: str
    steps: tuple[Step, ...]
    result: str
    max_ulp: float
    error_bound: str

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """The value for every element of x (f32, or i32 which is rounded once); f64 is refused with LanguageError."""
        x = np.asarray(x)
        if x.dtype == np.float64:
            check_argument(self.name, "f64")
        values: dict[str, np.ndarray] = {"x": np.atleast_1d(x).astype(np.float32, copy=False)}
        with np.errstate(all="ignore"):
            for step in self.steps:
                values[step.name] = _APPLY[step.op](*(values[a] if isinstance(a, str) else _constant(a) for a in step.args))
        return values[self.result].reshape(x.shape)

    @cached_property
    def counts(self) -> dict[str, int]:
        """Operations of one evaluation by kind: add, sub, mul, div, sqrt, compare, select, convert, integer, sign."""
        return dict(Counter(_KIND.get(step.op, step.op) for step in self.steps))


def check_argument(name: str, dtype: str) -> None:
    """LanguageError for an unknown function and for an argument type it has no sequence for."""
    if name not in FUNCTIONS:
        raise LanguageError(f"no function {name!r}. Functions: {', '.join(sorted(FUNCTIONS))}")
    if dtype not in ("f32", "i32"):
        raise LanguageError(f"{name}: the argument is {dtype}; elementary functions work in f32. Write {name}(f32(x))")


def _constant(value: float | int) -> np.generic:
    return np.float32(value) if isinstance(value, float) else np.int32(value)


class _Value:
    """A step's result while a sequence is written down; operators append steps."""

    def __init__(self, line: _Line, name: Operand):
        self.line, self.name = line, name

    def __add__(self, other: _Operand) -> _Value:
        return self.line("add", self, other)

    def __sub__(self, other: _Operand) -> _Value:
        return self.line("sub", self, other)

    def __mul__(self, other: _Operand) -> _Value:
        return self.line("mul", self, other)

    def __truediv__(self, other: _Operand) -> _Value:
        return self.line("div", self, other)

    def __neg__(self) -> _Value:
        return self.line("neg", self)

    def __lt__(self, other: _Operand) -> _Value:
        return self.line("lt", self, other)

    def __gt__(self, other: _Operand) -> _Value:
        return self.line("gt", self, other)


_Operand: TypeAlias = Union[_Value, float, int]


class _Line:
    def __init__(self) -> None:
        self.steps: list[Step] = []

    def __call__(self, op: str, *args: _Operand) -> _Value:
        # f32 constants are stored as the f32 they are, so that every backend prints the same one
        operands = tuple(a.name if isinstance(a, _Value) else float(np.float32(a)) if isinstance(a, float) else a for a in args)
        step = Step(f"t{len(self.steps)}", op, operands, _RESULT.get(op, "f32"))
        self.steps.append(step)
        return _Value(self, step.name)


def _polynomial(x: _Value, coefficients: tuple[float, ...]) -> _Value:
    """Horner's rule; coefficients in ascending order."""
    value = x * coefficients[-1] + coefficients[-2]
    for c in reversed(coefficients[:-2]):
        value = value * x + c
    return value


def _nearest(x: _Value) -> _Value:
    """The nearest integer, ties to even, for |x| < 2^22: adding 1.5·2^23 leaves no bits for a fraction."""
    return (x + 12582912.0) - 12582912.0


def _two_to(line: _Line, k: _Value) -> tuple[_Value, _Value]:
    """(2^(k>>1), 2^(k - (k>>1))) for an integral f32 k in -250..250; NaN counts as 0. Two factors keep both normal."""
    n = line("int", line("select", line("eq", k, k), k, 0.0))
    low = line("sar", n, 1)
    high = line("isub", n, low)

    def power(e: _Value) -> _Value:
        return line("from_bits", line("shl", line("iadd", e, 127), 23))

    return power(low), power(high)


def _clamped(line: _Line, x: _Value, low: float, high: float) -> _Value:
    """x within [low, high]; NaN stays."""
    x = line("select", x < low, low, x)
    return line("select", x > high, high, x)


_EXP = (0.5, 0.16666512191295624, 0.0416661873459816, 0.008369598537683487, 0.0013951717410236597)
_LN2_HI, _LN2_LO = 0.693145751953125, 1.4286067653e-06  # 15 bits: k·hi is exact


def _exp_parts(line: _Line, x: _Value) -> tuple[_Value, _Value]:
    """(h, s) with exp(x) = h·s, s a power of two: the product rounds only once, in or below the normal range."""
    x = _clamped(line, x, -120.0, 89.0)
    k = _nearest(x * 1.4426950408889634)
    r = (x - k * _LN2_HI) - k * _LN2_LO
    p = (r * r * _polynomial(r, _EXP) + r) + 1.0
    low, high = _two_to(line, k)
    return p * low, high


def _exp(line: _Line, x: _Value) -> _Value:
    h, s = _exp_parts(line, x)
    return h * s


def _exp2(line: _Line, x: _Value) -> _Value:
    x = _clamped(line, x, -160.0, 129.0)
    k = _nearest(x)
    r = x - k
    p = r * _polynomial(r, _EXP2) + 1.0
    low, high = _two_to(line, k)
    return p * low * high


_EXP2 = (0.6931471824645996, 0.24022650718688965, 0.0555032454431057, 0.009618000127375126, 0.0013401590986177325)
_EXP2 = (*_EXP2, 0.00015477347187697887)


def _log_parts(line: _Line, x: _Value) -> tuple[_Value, _Value, _Value, _Value]:
    """x = 2^k·(1+f), 1+f within [√½, √2): (k, f, f²/2, the remainder s·(f²/2 + R))."""
    tiny = x < 2.0**-126
    ix = line("bits", line("select", tiny, x * 2.0**25, x))
    k = line("sar", line("isub", ix, 0x3F3504F3), 23)
    f = line("from_bits", line("isub", ix, line("shl", k, 23))) - 1.0
    k = line("float", k) + line("select", tiny, -25.0, 0.0)
    s = f / (f + 2.0)
    z = s * s
    w = z * z
    r = w * (w * 0.24279078841 + 0.40000972152) + z * (w * 0.28498786688 + 0.66666662693)
    half = f * f * 0.5
    return k, f, half, s * (half + r)


def _log_edges(line: _Line, x: _Value, value: _Value) -> _Value:
    value = line("select", line("lt", x, float("inf")), value, x)  # +inf and NaN stay
    value = line("select", line("eq", x, 0.0), float("-inf"), value)
    return line("select", x < 0.0, float("nan"), value)


def _log(line: _Line, x: _Value) -> _Value:
    k, f, half, rest = _log_parts(line, x)
    return _log_edges(line, x, (((k * _LN2_LO + rest) - half) + f) + k * _LN2_HI)


def _log2(line: _Line, x: _Value) -> _Value:
    k, f, half, rest = _log_parts(line, x)
    high = line("from_bits", line("iand", line("bits", f - half), -4096))  # 12 bits, so that high·hi is exact
    low = ((f - high) - half) + rest
    hi, lo = 1.44287109375, -1.7605285393e-04  # 1/ln 2
    return _log_edges(line, x, (((low + high) * lo + low * hi) + high * hi) + k)


def _weighted_sigmoid(line: _Line, weight: _Value | None, t: _Value) -> _Value:
    """weight·sigmoid(t) through exp(-|t|): one division for both signs of t, and the power of two multiplied in last, so that
    tiny results round once."""
    h, s = _exp_parts(line, -line("abs", t))
    below = t < 0.0
    whole: _Operand = 1.0 if weight is None else weight
    value = line("select", below, h if weight is None else weight * h, whole) / (h * s + 1.0)
    return value * line("select", below, s, 1.0)


def _sigmoid(line: _Line, x: _Value) -> _Value:
    return _weighted_sigmoid(line, None, x)


def _silu(line: _Line, x: _Value) -> _Value:
    return _weighted_sigmoid(line, line("select", x < -120.0, -120.0, x), x)  # silu(-inf) is the limit, -0


def _gelu(line: _Line, x: _Value) -> _Value:
    """x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³))) = x·sigmoid(√(8/π)·(x + 0.044715·x³))."""
    t = x * (x * x * 0.07135481387376785 + 1.5957691669464111)
    return _weighted_sigmoid(line, line("select", x < -30.0, -30.0, x), t)


_TANH = (-0.33333271741867065, 0.13331152498722076, -0.05371410399675369, 0.020551711320877075, -0.00560390530154109)


def _tanh(line: _Line, x: _Value) -> _Value:
    a = line("abs", x)
    s = x * x
    small = x * s * _polynomial(s, _TANH) + x
    large = _Value(line, 1.0) - _Value(line, 2.0) / (_exp(line, a * 2.0) + 1.0)
    value = line("select", a < 0.625, small, line("select", x < 0.0, -large, large))
    return line("select", line("eq", x, 0.0), x, value)  # keeps -0


_ERF = (0.12837915122509003, -0.37612465023994446, 0.11281507462263107, -0.0267554372549057, 0.004976832773536444)
_ERF = (*_ERF, -0.0005907961167395115)
_ERFC = (0.128514364361763, 0.6357182860374451, 0.10526187717914581, -0.022889986634254456, 0.00321496301330626)
_ERFC = (*_ERFC, -0.00021398591343313456)


def _erf(line: _Line, x: _Value) -> _Value:
    a = line("abs", x)
    small = x * _polynomial(x * x, _ERF) + x
    t = line("select", a > 4.0, 4.0, a)  # 1 - erf(4) is below half an ulp of 1
    large = _Value(line, 1.0) - _exp(line, -(t * _polynomial(t, _ERFC) + t))
    return line("select", a < 0.9277, small, line("select", x < 0.0, -large, large))


def _rsqrt(line: _Line, x: _Value) -> _Value:
    return _Value(line, 1.0) / line("sqrt", x)


def _relu(line: _Line, x: _Value) -> _Value:
    return line("select", x > 0.0, x, line("select", line("eq", x, x), 0.0, x))


# π/2 in parts of 7 bits: k·part is exact for |k| < 2^17
_HALF_PI = (
    1.5625,
    0.0081787109375,
    0.00011730194091796875,
    3.129243850708008e-07,
    9.89530235528946e-10,
    2.5633440682570896e-12,
)
_SIN = (-0.16666653752326965, 0.008332083001732826, -0.0001950431615114212)
_COS = (0.04166664555668831, -0.0013887243112549186, 2.4423887225566432e-05)


def _sine(line: _Line, x: _Value, quarter: int) -> _Value:
    """sin(x + quarter·π/2) for |x| <= 2^17, NaN beyond: no digits rather than wrong ones."""
    inside = line("lt", line("abs", x), 131072.015625)  # the f32 after 2^17
    y = line("select", inside, x, 0.0)
    k = _nearest(y * 0.6366197723675814)
    r = y
    for part in _HALF_PI:
        r = r - k * part
    s = r * r
    sin = r * s * _polynomial(s, _SIN) + r
    cos = (s * s * _polynomial(s, _COS) - s * 0.5) + 1.0
    n = line("iadd", line("int", k), quarter)
    value = line("select", line("ieq", line("iand", n, 1), 0), sin, cos)
    value = line("select", line("ieq", line("iand", n, 2), 0), value, -value)
    value = line("select", line("eq", x, 0.0), x, value) if quarter == 0 else value  # keeps -0
    return line("select", inside, value, float("nan"))


def _function(name: str, write: Callable[[_Line, _Value], _Value], max_ulp: float, text: str = "") -> Function:
    line = _Line()
    result = write(line, _Value(line, "x"))
    assert isinstance(result.name, str)
    return Function(name, tuple(line.steps), result.name, max_ulp, text or f"at most {max_ulp:g} ulp for every argument")


FUNCTIONS: dict[str, Function] = {
    f.name: f
    for f in (
        _function("exp", _exp, 1.5),
        _function("exp2", _exp2, 1.5),
        _function("log", _log, 1.5),
        _function("log2", _log2, 1.5),
        _function("sigmoid", _sigmoid, 3),
        _function("silu", _silu, 3.5),
        _function(
            "gelu",
            _gelu,
            200,
            "at most 4 ulp for x > -1, 16 for x > -3, 200 below, where |gelu| < 0.005 (the tanh form, not erf)",
        ),
        _function("tanh", _tanh, 2.5),
        _function("erf", _erf, 2),
        _function("rsqrt", _rsqrt, 1.5),
        _function("relu", _relu, 0, "exact; relu(NaN) is NaN, relu(-0) is +0"),
        _function("sin", lambda line, x: _sine(line, x, 0), 4, "at most 4 ulp for |x| <= 131072; NaN beyond"),
        _function("cos", lambda line, x: _sine(line, x, 1), 4, "at most 4 ulp for |x| <= 131072; NaN beyond"),
    )
}
