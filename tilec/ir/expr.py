"""What a statement computes: a tree of scalar operations over loaded values.

    expr ::= Const(value) | Load(n) | Index(aff) | Scalar(name)
           | Unary("-" | "not" | "abs" | "sqrt", e)
           | Binary("+" | "-" | "*" | "/" | "//" | "%" | "max" | "min" | "and" | "or", a, b)
           | Compare("<" | "<=" | ">" | ">=" | "==" | "!=", a, b) | Select(c, a, b)
           | Call(function, args)                      an elementary function of ir/functions.py
           | Cast(dtype, e, rule)                      rounds; rule None is the dtype's own (see ir/dtypes.py)

`dtype` of a node is the arithmetic type of its value: "f64", "f32", "i32" or "bool"; a Cast keeps its value exactly in the
arithmetic type that holds the storage type. `Load(n)` is the n-th read of the statement: an access in the original program, an
address or an inlined statement in a scheduled one. Every operation rounds once in its dtype (DESIGN 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, Union

from tilec.ir.affine import Aff


@dataclass(frozen=True)
class Const:
    value: float | int | bool
    dtype: str


@dataclass(frozen=True)
class Load:
    n: int
    dtype: str


@dataclass(frozen=True)
class Index:
    """A loop variable, a size or an affine expression of them, as an i32 value."""

    aff: Aff
    dtype: str = "i32"


@dataclass(frozen=True)
class Scalar:
    """A scalar parameter of the kernel."""

    name: str
    dtype: str


@dataclass(frozen=True)
class Unary:
    op: str
    x: Expr
    dtype: str


@dataclass(frozen=True)
class Binary:
    op: str
    a: Expr
    b: Expr
    dtype: str


@dataclass(frozen=True)
class Compare:
    op: str
    a: Expr
    b: Expr
    dtype: str = "bool"


@dataclass(frozen=True)
class Select:
    cond: Expr
    a: Expr
    b: Expr
    dtype: str


@dataclass(frozen=True)
class Call:
    function: str
    args: tuple[Expr, ...]
    dtype: str


@dataclass(frozen=True)
class Cast:
    """Round to `to` (a storage or arithmetic type); `dtype` is the arithmetic type that holds the result exactly."""

    to: str
    x: Expr
    dtype: str
    rule: str | None = None


Expr: TypeAlias = Union[Const, Load, Index, Scalar, Unary, Binary, Compare, Select, Call, Cast]


def children(e: Expr) -> tuple[Expr, ...]:
    match e:
        case Unary(x=x) | Cast(x=x):
            return (x,)
        case Binary(a=a, b=b) | Compare(a=a, b=b):
            return (a, b)
        case Select(cond=c, a=a, b=b):
            return (c, a, b)
        case Call(args=args):
            return args
        case _:
            return ()


def walk(e: Expr) -> Iterator[Expr]:
    """Every node, children before parents."""
    for child in children(e):
        yield from walk(child)
    yield e


def text(e: Expr, load: Callable[[int], str], index: Callable[[Aff], str] = str, level: int = 0) -> str:
    """Readable form; `load(n)` gives the text of the n-th read, `index` that of an affine value."""

    def go(x: Expr, outer: int = 0) -> str:
        return text(x, load, index, outer)

    def wrap(body: str, mine: int) -> str:
        return f"({body})" if mine < level else body

    match e:
        case Const(value=v):
            return repr(v) if not isinstance(v, float) or v != int(v if abs(v) < 1e15 else 0) else f"{v:g}"
        case Load(n=n):
            return load(n)
        case Index(aff=a):
            body = index(a)
            return body if body.replace("_", "").isalnum() else wrap(body, 6 if body[:1] == "(" else 4)
        case Scalar(name=name):
            return name
        case Unary(op="-", x=x):
            return wrap(f"-{go(x, 7)}", 7)
        case Unary(op="not", x=x):
            return wrap(f"not {go(x, 3)}", 2)
        case Unary(op=op, x=x):
            return f"{op}({go(x)})"
        case Binary(op=("max" | "min") as op, a=a, b=b):
            return f"{op}({go(a)}, {go(b)})"
        case Binary(op=op, a=a, b=b):
            mine = {"or": 1, "and": 2, "+": 5, "-": 5}.get(op, 6)
            return wrap(f"{go(a, mine)} {op} {go(b, mine + 1)}", mine)
        case Compare(op=op, a=a, b=b):
            return wrap(f"{go(a, 4)} {op} {go(b, 4)}", 3)
        case Select(cond=c, a=a, b=b):
            return f"({go(a, 1)} if {go(c, 1)} else {go(b)})"
        case Call(function=f, args=args):
            return f"{f}({', '.join(go(a) for a in args)})"
        case Cast(to=to, x=x, rule=rule):
            return f"{to}({go(x)}" + (f", {rule!r})" if rule else ")")
    raise TypeError(e)
