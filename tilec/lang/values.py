"""Typed value expressions with the reads they need: the arithmetic rules of the language, shared by both front ends.

Promotion is f64 > f32 > i32; an i32 that meets a float is rounded once by an explicit Cast; integer literals are folded into the
type they meet. Affine i32 values (loop variables, sizes, their sums and products with constants) are kept as one Index.
Two reads of the same element in one statement are one read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias, Union

from tilec.errors import LanguageError
from tilec.ir import expr as ir
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES, promote
from tilec.ir.expr import Expr
from tilec.ir.functions import FUNCTIONS
from tilec.ir.program import Access
from tilec.lang.types import Elementary, Size


@dataclass(frozen=True, eq=False)
class Value:
    """An expression and the accesses its Load(n) stand for; the operators of Python build larger ones."""

    expr: Expr
    reads: tuple[Access, ...] = ()

    @property
    def dtype(self) -> str:
        return self.expr.dtype

    def __add__(self, other: ValueLike) -> Value:
        return binary("+", self, other)

    def __radd__(self, other: ValueLike) -> Value:
        return binary("+", other, self)

    def __sub__(self, other: ValueLike) -> Value:
        return binary("-", self, other)

    def __rsub__(self, other: ValueLike) -> Value:
        return binary("-", other, self)

    def __mul__(self, other: ValueLike) -> Value:
        return binary("*", self, other)

    def __rmul__(self, other: ValueLike) -> Value:
        return binary("*", other, self)

    def __truediv__(self, other: ValueLike) -> Value:
        return binary("/", self, other)

    def __rtruediv__(self, other: ValueLike) -> Value:
        return binary("/", other, self)

    def __floordiv__(self, other: ValueLike) -> Value:
        return binary("//", self, other)

    def __mod__(self, other: ValueLike) -> Value:
        return binary("%", self, other)

    def __neg__(self) -> Value:
        return negative(self)

    def __lt__(self, other: ValueLike) -> Value:
        return compare("<", self, other)

    def __le__(self, other: ValueLike) -> Value:
        return compare("<=", self, other)

    def __gt__(self, other: ValueLike) -> Value:
        return compare(">", self, other)

    def __ge__(self, other: ValueLike) -> Value:
        return compare(">=", self, other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return compare("==", self, other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return compare("!=", self, other)  # type: ignore[arg-type]

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise LanguageError("a value is only known when the kernel runs; write select(c, a, b) to choose by it.")


ValueLike: TypeAlias = Union[Value, Aff, Size, int, float]


def lift(x: ValueLike) -> Value:
    """A number, a size, an affine expression or a value as a value."""
    if isinstance(x, Value):
        return x
    if isinstance(x, Size):
        return Value(ir.Index(x.aff))
    if isinstance(x, Aff):
        return _affine(x)
    if isinstance(x, bool) or not isinstance(x, int | float):
        raise LanguageError(f"{x!r} is no number; values are int (i32), float (f32), elements, loop variables and sizes.")
    return _affine(Aff(x)) if isinstance(x, int) else Value(ir.Const(x, "f32"))


def _affine(e: Aff) -> Value:
    if not e.is_const:
        return Value(ir.Index(e))
    if not -(1 << 31) <= e.const < 1 << 31:
        raise LanguageError(f"the integer {e.const} does not fit i32; write it as a float: {e.const}.0")
    return Value(ir.Const(e.const, "i32"))


def load(access: Access, dtype: str) -> Value:
    """The element at `access` of a buffer of storage type `dtype`."""
    return Value(ir.Load(0, DTYPES[dtype].arithmetic), (access,))


def renumber(e: Expr, new: tuple[int, ...]) -> Expr:
    """Load(n) becomes Load(new[n])."""
    match e:
        case ir.Load(n=n, dtype=dtype):
            return ir.Load(new[n], dtype)
        case ir.Unary():
            return ir.Unary(e.op, renumber(e.x, new), e.dtype)
        case ir.Binary():
            return ir.Binary(e.op, renumber(e.a, new), renumber(e.b, new), e.dtype)
        case ir.Compare():
            return ir.Compare(e.op, renumber(e.a, new), renumber(e.b, new))
        case ir.Select():
            return ir.Select(renumber(e.cond, new), renumber(e.a, new), renumber(e.b, new), e.dtype)
        case ir.Call():
            return ir.Call(e.function, tuple(renumber(a, new) for a in e.args), e.dtype)
        case ir.Cast():
            return ir.Cast(e.to, renumber(e.x, new), e.dtype, e.rule)
    return e


def _join(*values: Value) -> tuple[list[Expr], tuple[Access, ...]]:
    """The expressions over one common list of reads, in order of first appearance."""
    reads: list[Access] = []
    exprs: list[Expr] = []
    for v in values:
        new: list[int] = []
        for access in v.reads:
            if access not in reads:
                reads.append(access)
            new.append(reads.index(access))
        exprs.append(renumber(v.expr, tuple(new)) if new != list(range(len(new))) else v.expr)
    return exprs, tuple(reads)


def convert(x: Value, dtype: str) -> Value:
    """`x` in the arithmetic type `dtype`, at least as wide as its own."""
    if x.dtype == dtype:
        return x
    if x.dtype == "bool":
        raise LanguageError("a comparison is no number; write `1.0 if c else 0.0`.")
    if isinstance(x.expr, ir.Const) and x.dtype == "i32":
        return Value(ir.Const(float(x.expr.value), dtype))
    return Value(ir.Cast(dtype, x.expr, dtype), x.reads)


def _common(a: Value, b: Value) -> tuple[Value, Value, str]:
    for x in (a, b):
        if x.dtype == "bool":
            convert(x, "f32")
    dtype = promote(a.dtype, b.dtype)
    return convert(a, dtype), convert(b, dtype), dtype


def _as_affine(x: Value) -> Aff | None:
    match x.expr:
        case ir.Index(aff=e):
            return e
        case ir.Const(value=int() as v, dtype="i32"):
            return Aff(v)
    return None


def binary(op: str, a: ValueLike, b: ValueLike) -> Value:
    """+ - * / // % max min in the promoted type; // and % need i32, / needs a float."""
    x, y = lift(a), lift(b)
    e, f = _as_affine(x), _as_affine(y)
    if e is not None and f is not None:
        if op in ("+", "-"):
            return _affine(e + f if op == "+" else e - f)
        if op == "*" and (e.is_const or f.is_const):
            return _affine(e * f.const if f.is_const else f * e.const)
        if op in ("//", "%") and f.is_const and f.const > 0:
            return _affine(e // f.const if op == "//" else e % f.const)
    x, y, dtype = _common(x, y)
    if op == "/" and dtype == "i32":
        raise LanguageError("/ of two i32 values: write // for the floor, or make one side a float, as in f32(a) / b.")
    if op in ("//", "%") and dtype != "i32":
        raise LanguageError(f"{op} of {dtype} values: // and % are for i32; write / for floats.")
    (p, q), reads = _join(x, y)
    return Value(ir.Binary(op, p, q, dtype), reads)


def negative(a: ValueLike) -> Value:
    """-a, exact (i32 wraps)."""
    x = lift(a)
    e = _as_affine(x)
    if e is not None:
        return _affine(-e)
    if x.dtype == "bool":
        convert(x, "f32")
    if isinstance(x.expr, ir.Const):
        return Value(ir.Const(-x.expr.value, x.dtype))
    return Value(ir.Unary("-", x.expr, x.dtype), x.reads)


def compare(op: str, a: ValueLike, b: ValueLike) -> Value:
    """a op b as bool, op one of < <= > >= == !=."""
    x, y, _ = _common(lift(a), lift(b))
    (p, q), reads = _join(x, y)
    return Value(ir.Compare(op, p, q), reads)


def logical(op: str, *values: Value) -> Value:
    """and, or, not of bools."""
    for v in values:
        if v.dtype != "bool":
            raise LanguageError(f"`{op}` joins comparisons; a value of type {v.dtype} is none (write x != 0).")
    if op == "not":
        return Value(ir.Unary("not", values[0].expr, "bool"), values[0].reads)
    out = values[0]
    for v in values[1:]:
        (p, q), reads = _join(out, v)
        out = Value(ir.Binary(op, p, q, "bool"), reads)
    return out


def select(cond: Value, a: ValueLike, b: ValueLike) -> Value:
    """a if cond else b; both are read."""
    if cond.dtype != "bool":
        raise LanguageError(f"the condition of a conditional expression is a comparison; a value of type {cond.dtype} is none.")
    x, y, dtype = _common(lift(a), lift(b))
    (c, p, q), reads = _join(cond, x, y)
    return Value(ir.Select(c, p, q, dtype), reads)


def maximum(a: ValueLike, b: ValueLike, *more: ValueLike) -> Value:
    """IEEE 754-2019 maximum, from left to right."""
    return _fold("max", a, b, *more)


def minimum(a: ValueLike, b: ValueLike, *more: ValueLike) -> Value:
    """IEEE 754-2019 minimum, from left to right."""
    return _fold("min", a, b, *more)


def _fold(op: str, *values: ValueLike) -> Value:
    out = lift(values[0])
    for v in values[1:]:
        out = binary(op, out, v)
    return out


def absolute(a: ValueLike) -> Value:
    x = lift(a)
    if x.dtype == "bool":
        convert(x, "f32")
    return Value(ir.Unary("abs", x.expr, x.dtype), x.reads)


def call(function: Elementary | str, a: ValueLike) -> Value:
    """An elementary function, in f32, or sqrt, in the type of its argument; an i32 argument is rounded to f32 first."""
    name = function.name if isinstance(function, Elementary) else function
    x = lift(a)
    if name == "sqrt":
        x = convert(x, "f32") if x.dtype in ("i32", "bool") else x
        return Value(ir.Unary("sqrt", x.expr, x.dtype), x.reads)
    if name not in FUNCTIONS:
        raise LanguageError(f"no function '{name}'. {functions_text()}")
    if x.dtype == "f64":
        raise LanguageError(f"{name} is a sequence of f32 operations; write {name}(f32(x)) for an f64 value.")
    x = convert(x, "f32")
    return Value(ir.Call(name, (x.expr,), "f32"), x.reads)


def functions_text() -> str:
    return "Functions: abs, min, max, sqrt, " + ", ".join(sorted(FUNCTIONS)) + "; casts: " + ", ".join(DTYPES) + "."


def cast(dtype: str, a: ValueLike, rule: str | None = None) -> Value:
    """`a` rounded to `dtype`, by the dtype's own rule or by the named one."""
    x = lift(a)
    if x.dtype == "bool":
        convert(x, "f32")
    arithmetic = DTYPES[dtype].arithmetic
    if x.dtype == dtype and rule is None:
        return x
    return Value(ir.Cast(dtype, x.expr, arithmetic, rule), x.reads)
