"""Values in emitted Triton: types, roundings, expressions over tiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilec.codegen.triton_support import number
from tilec.errors import InternalError, ScheduleError
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES, promote
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Index, Load, Scalar, Select, Unary

TYPES = {
    "f64": "tl.float64",
    "f32": "tl.float32",
    "f16": "tl.float16",
    "bf16": "tl.bfloat16",
    "f8e4m3": "tl.float8e4nv",
    "f8e5m2": "tl.float8e5",
    "i32": "tl.int32",
    "i8": "tl.int8",
}
F8 = ("f8e4m3", "f8e5m2")
LONG = 52  # a longer value gets a name of its own


@dataclass(frozen=True)
class Number:
    """Text of a value. `axes`: which axes of the operation it has as dimensions; level: as a Python operand (7: an atom)."""

    text: str
    axes: frozenset[int] = frozenset()
    level: int = 7

    def at(self, level: int) -> str:
        return f"({self.text})" if self.level < level else self.text


@dataclass
class Evaluator:
    """Expressions as text. read(n): the n-th load, in the arithmetic type. index(aff): an i32 value. used: support functions.
    keep(text): the text, or the name of a variable that was given its value. bits: f8 as bytes, for machines without the type.
    """

    read: Callable[[int], Number]
    index: Callable[[Aff], Number]
    scalar: Callable[[str], str]
    keep: Callable[[str], str]
    used: Counter[str]
    bits: bool

    def call(self, name: str, *args: Number) -> Number:
        """A support function."""
        self.used[name] += 1
        return self.made(f"_{name}", args)

    def made(self, function: str, args: tuple[Number, ...], *rest: str) -> Number:
        axes = frozenset[int]().union(*(a.axes for a in args))
        return Number(self.keep(f"{function}({', '.join([*(a.text for a in args), *rest])})"), axes)

    def value(self, e: Expr, want: str) -> Number:
        """The value of `e` in the arithmetic type `want`."""
        if e.dtype != want:
            if isinstance(e, Const):
                return _constant(e.value, want)
            x = self.value(e, e.dtype)
            if isinstance(e, Index):  # a size may be a compile-time number
                return Number(f"tl.cast({x.text}, {TYPES[want]})", x.axes)
            return Number(f"{x.at(7)}.to({TYPES[want]})", x.axes)
        match e:
            case Const(value=v):
                return _constant(v, want)
            case Load(n=n):
                return self.read(n)
            case Index(aff=aff):
                return self.index(aff)
            case Scalar(name=name):
                return Number(self.scalar(name))
            case Unary(op="-", x=x):
                v = self.value(x, want)
                return self.infix(v, "*", Number("-1.0"), 6) if want != "i32" else Number(f"-{v.at(7)}", v.axes, 6)
            case Unary(op="not", x=x):
                return self.infix(self.value(x, want), "==", Number("0"), 3)
            case Unary(op="abs", x=x):
                return self.made("tl.abs", (self.value(x, want),))
            case Unary(op="sqrt", x=x):
                return self.made("tl.sqrt_rn" if want == "f32" else "tl.sqrt", (self.value(x, want),))
            case Binary(op=("max" | "min") as op, a=a, b=b):
                name = f"{op}imum"
                args = (self.value(a, want), self.value(b, want))
                return self.made(f"tl.{name}", args) if want == "i32" else self.call(name, *args)
            case Binary(op="/", a=a, b=b):
                args = (self.value(a, want), self.value(b, want))
                self.used["division"] += 1
                return self.made("tl.div_rn", args) if want == "f32" else self.infix(args[0], "/", args[1], 6)
            case Binary(op="//", a=a, b=b):
                return self.call("floordiv", self.value(a, want), self.value(b, want))
            case Binary(op="%", a=a, b=b):
                x, y = self.value(a, want), self.value(b, want)
                return self.infix(x, "-", self.infix(self.call("floordiv", x, y), "*", y, 6), 5)
            case Binary(op=("and" | "or") as op, a=a, b=b):
                return self.infix(self.value(a, want), "&" if op == "and" else "|", self.value(b, want), 4, closed=True)
            case Binary(op=op, a=a, b=b):
                return self.infix(self.value(a, want), op, self.value(b, want), {"+": 5, "-": 5}.get(op, 6))
            case Compare(op=op, a=a, b=b):
                common = promote(a.dtype, b.dtype)
                return self.infix(self.value(a, common), op, self.value(b, common), 3)
            case Select(cond=c, a=a, b=b):
                return self.made("tl.where", (self.value(c, "bool"), self.value(a, want), self.value(b, want)))
            case Call(function=function, args=(x,)):
                return self.call(function, self.value(x, "f32"))
            case Cast(to=to, x=x, rule=rule):
                return self.loaded(self.stored(self.value(x, x.dtype), x.dtype, to, rule), to)
        raise InternalError(f"no Triton text for {e!r}")

    def infix(self, a: Number, op: str, b: Number, level: int, closed: bool = False) -> Number:
        text = f"{a.at(7 if closed else level)} {op} {b.at(7 if closed else level + 1)}"
        kept = self.keep(text)
        return Number(kept, a.axes | b.axes, level if kept == text else 7)

    # storage -----------------------------------------------------------------------------------------------------

    def storage(self, dtype: str) -> str:
        """The Triton type that holds elements."""
        return "tl.uint8" if self.bits and dtype in F8 else TYPES[dtype]

    def loaded(self, x: Number, dtype: str) -> Number:
        """A stored element in its arithmetic type, exactly."""
        d = DTYPES[dtype]
        if d.direct:
            return x
        if self.bits and dtype in F8:
            return self.call(f"of_{dtype}", x)
        return Number(f"{x.at(7)}.to({TYPES[d.arithmetic]})", x.axes)

    def stored(self, x: Number, arithmetic: str, dtype: str, rule: str | None = None) -> Number:
        """What a store of an arithmetic value leaves, in the storage type: one rounding, nearest even."""
        if rule not in (None, "nearest_even"):
            raise ScheduleError(
                f'emit("triton"): {dtype}(x, "{rule}"): the hardware rounds to the nearest, ties to even; use the default rule'
            )
        if arithmetic == dtype or (arithmetic == "i32" and dtype in ("f32", "f64")) or (arithmetic, dtype) == ("f32", "f64"):
            return x if arithmetic == dtype else Number(f"{x.at(7)}.to({TYPES[dtype]})", x.axes)
        if dtype == "i8" and arithmetic == "f32":
            return self.call("i8", x)
        if dtype == "i8" and arithmetic in ("i32", "bool"):
            return self.call("i8_of_i32", x)
        if arithmetic in ("i32", "bool") and dtype != "i32":
            if arithmetic == "i32" and DTYPES[dtype].kind == "float":
                raise ScheduleError(f'emit("triton"): an i32 value rounded to {dtype} at once; write {dtype}(f32(x))')
            return Number(f"{x.at(7)}.to({TYPES[dtype]})", x.axes)
        if arithmetic == "f64" or dtype == "i32":
            raise ScheduleError(
                f'emit("triton"): no exact conversion of {arithmetic} to {dtype} in one instruction; write it via f32'
            )
        if self.bits and dtype in F8:
            return self.call(dtype, x)
        return Number(f"{x.at(7)}.to({TYPES[dtype]})", x.axes)


def _constant(value: float | int | bool, want: str) -> Number:
    if want == "bool":
        return Number(repr(bool(value)))
    if want == "i32":
        return Number(repr(int(value)), level=7 if value >= 0 else 6)
    text = number(float(value))
    return Number(text, level=6 if text.startswith("-") else 7)


def identity_text(op: str, arithmetic: str) -> str:
    """The neutral element of an update."""
    table: Mapping[str, tuple[str, str]] = {
        "+=": ("0.0", "0"),
        "*=": ("1.0", "1"),
        "max=": ('float("-inf")', "-2147483648"),
        "min=": ('float("inf")', "2147483647"),
    }
    return table[op][arithmetic == "i32"]
