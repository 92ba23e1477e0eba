"""Operations of one executed action, by kind.

add mul div                 the flops: + and −, ×, ÷ on values (an update's own + or × included)
compare minmax select       comparisons; max and min; selects
convert                     written casts, and stores that round or convert
sign logic integer          negation and abs; and, or, not; // and %, and arithmetic of loop variables alone
sqrt, exp, silu, …          elementary functions by name, one each: their inner steps are not flops
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tilec.errors import InternalError
from tilec.ir.dtypes import DTYPES
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Index, Load, Scalar, Select, Unary, walk
from tilec.ir.functions import FUNCTIONS
from tilec.ir.program import (
    Action,
    Barrier,
    Commit,
    Copy,
    Identity,
    Inline,
    Leaf,
    Merge,
    Prefetch,
    Program,
    Read,
    Statement,
    Wait,
)

FLOPS = ("add", "mul", "div")
_BINARY = {"+": "add", "-": "add", "*": "mul", "/": "div", "max": "minmax", "min": "minmax", "and": "logic", "or": "logic"}
_INTEGER = ("//", "%")
_UNARY = {"-": "sign", "abs": "sign", "not": "logic", "sqrt": "sqrt"}
_UPDATE = {"+=": "add", "*=": "mul", "max=": "minmax", "min=": "minmax"}


@dataclass(frozen=True)
class Key:
    """A kind of operation in an arithmetic type; `matrix` is the dtype whose matrix unit could do it: a multiply-accumulate of
    two loaded values. None: vector unit."""

    kind: str
    dtype: str
    matrix: str | None = None


def operations(program: Program, action: Action) -> Counter[Key]:
    """What one execution computes; nothing for copies, barriers and identities."""
    out: Counter[Key] = Counter()
    if isinstance(action, Leaf):
        s = program.statement[action.statement]
        matrix = _matrix(program, s)
        out += _value(s.value, matrix)
        _store(program, s, out, matrix)
        _inlined(program, action.reads, out)
    elif isinstance(action, Merge):
        out[Key(_rule(_UPDATE, action.op, "update"), DTYPES[program.buffer[action.dst.buffer].dtype].arithmetic)] += 1
    elif not isinstance(action, Copy | Identity | Barrier | Commit | Wait | Prefetch):
        raise InternalError(f"cost: no rule for an action {type(action).__name__}")
    return out


def _rule(table: Mapping[str, str], op: str, what: str) -> str:
    """The kind of an operation; InternalError for one that no rule prices, never a silent nothing."""
    if op not in table:
        raise InternalError(f"cost: no rule for the {what} {op!r}")
    return table[op]


def _inlined(program: Program, reads: tuple[Read, ...], out: Counter[Key]) -> None:
    for read in reads:
        if isinstance(read, Inline):
            s = program.statement[read.statement]
            out += _value(s.value, None)
            _store(program, s, out, None)
            _inlined(program, read.reads, out)


def _store(program: Program, s: Statement, out: Counter[Key], matrix: str | None) -> None:
    """The update's own operation, and the rounding of a store into another type."""
    target = program.source.buffer[s.target.buffer].dtype
    held = DTYPES[target].arithmetic
    if s.op != "=":
        out[Key(_rule(_UPDATE, s.op, "update"), held, matrix)] += 1
    if target != s.value.dtype and not isinstance(s.value, Const):
        out[Key("convert", held)] += 1


def _value(e: Expr, matrix: str | None) -> Counter[Key]:
    out: Counter[Key] = Counter()
    for node in walk(e):
        match node:
            case Binary(op=op, dtype=dtype):
                kind = "integer" if op in _INTEGER else _rule(_BINARY, op, "operation")
                kind = kind if dtype != "i32" or _loaded(node) else "integer"
                out[Key(kind, dtype, matrix if kind == "mul" else None)] += 1
            case Unary(op=op, dtype=dtype):
                out[Key(_rule(_UNARY, op, "operation"), dtype)] += 1
            case Compare(a=a):
                out[Key("compare", a.dtype)] += 1
            case Select(dtype=dtype):
                out[Key("select", dtype)] += 1
            case Cast(dtype=dtype):
                out[Key("convert", dtype)] += 1
            case Call(function=function, dtype=dtype):
                if function not in FUNCTIONS:
                    raise InternalError(f"cost: no rule for the function {function!r}")
                out[Key(function, dtype)] += 1
            case Const() | Load() | Index() | Scalar():
                pass
            case _:
                raise InternalError(f"cost: no rule for an expression {type(node).__name__}")
    return out


def _loaded(e: Expr) -> bool:
    """Does the value depend on data (else it is arithmetic of indices and constants)?"""
    return any(isinstance(n, Load | Scalar) for n in walk(e)) or not any(isinstance(n, Index) for n in walk(e))


def _matrix(program: Program, s: Statement) -> str | None:
    """The operand dtype of a multiply-accumulate `acc += a * b` of two loads, written down to the narrower operand."""
    if s.op != "+=" or not isinstance(s.value, Binary) or s.value.op != "*":
        return None
    operands = [_bare(s.value.a), _bare(s.value.b)]
    loads = [x for x in operands if isinstance(x, Load)]
    if len(loads) != 2:
        return None
    dtypes = {program.source.buffer[s.reads[x.n].buffer].dtype for x in loads}
    return max(dtypes, key=lambda d: DTYPES[d].bits)


def _bare(e: Expr) -> Expr:
    """Without casts that only widen."""
    while isinstance(e, Cast) and e.to in ("f32", "f64", "i32"):
        e = e.x
    return e
