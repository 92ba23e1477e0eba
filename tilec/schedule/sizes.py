"""Binding sizes: numbers for names, everywhere in a program, the original included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from operator import index
from typing import Any

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff, AffLike, Constraint
from tilec.ir.expr import Binary, Call, Cast, Compare, Expr, Index, Select, Unary
from tilec.ir.program import Access, Program, Statement
from tilec.ir.tree import subs
from tilec.schedule.core import SIZE_LIMIT


def check_sizes(program: Program, sizes: Mapping[str, Any]) -> dict[str, int]:
    """The sizes to bind as ints; ScheduleError for unknown names, bad numbers and violated assumptions."""
    already = dict(program.bound)
    out: dict[str, int] = {}
    for name, value in sizes.items():
        if name not in program.sizes and name not in already:
            known = ", ".join((*program.sizes, *already)) or "none"
            raise ScheduleError(f"schedule({name}={value!r}): no size '{name}'. Sizes of {program.name}: {known}.")
        try:
            number = None if isinstance(value, bool) else index(value)
        except TypeError:
            number = None
        if number is None:
            raise ScheduleError(f"schedule({name}={value!r}): a size must be an integer, not {type(value).__name__}")
        if not 1 <= number <= SIZE_LIMIT:
            raise ScheduleError(f"schedule({name}={number}): a size must be between 1 and 2^31")
        if name in already:
            if already[name] != number:
                raise ScheduleError(f"schedule({name}={number}): the size {name} is already bound to {already[name]}")
            continue
        out[name] = number
    for c in program.where:
        if c.subs(out).expr.is_const and not c.subs(out).holds({}):
            given = ", ".join(f"{n}={out[n]}" for n in sorted(c.names) if n in out)
            raise ScheduleError(f"schedule({given}): the kernel assumes {where_text(c)}")
    return out


def where_text(c: Constraint) -> str:
    """`M % 64 == 0` for an equality that is a remainder, else the plain constraint."""
    text = str(c.expr)
    return f"{text} == 0" if c.equal and "%" in text else str(c)


def bind(program: Program, sizes: Mapping[str, int]) -> Program:
    """Substitute sizes everywhere and record them in `bound`."""
    if not sizes:
        return program
    values: dict[str, AffLike] = dict(sizes)
    where = tuple(c for c in (c.subs(values) for c in program.where) if not c.expr.is_const)
    return replace(
        program,
        sizes=tuple(s for s in program.sizes if s not in sizes),
        where=where,
        buffers=tuple(replace(b, shape=tuple(e.subs(values) for e in b.shape)) for b in program.buffers),
        statements=tuple(_bind_statement(s, values) for s in program.statements),
        body=subs(program.body, values),
        bound=(*program.bound, *sorted(sizes.items())),
        original=None if program.original is None else bind(program.original, sizes),
    )


def _bind_statement(s: Statement, values: Mapping[str, AffLike]) -> Statement:
    def access(a: Access) -> Access:
        return Access(a.buffer, tuple(e.subs(values) for e in a.index))

    return replace(
        s,
        domain=tuple(c.subs(values) for c in s.domain),
        target=access(s.target),
        reads=tuple(map(access, s.reads)),
        value=_bind_value(s.value, values),
    )


def _bind_value(e: Expr, values: Mapping[str, AffLike]) -> Expr:
    if isinstance(e, Index):
        return Index(Aff.of(e.aff).subs(values), e.dtype)
    if isinstance(e, Call):
        return replace(e, args=tuple(_bind_value(a, values) for a in e.args))
    if isinstance(e, Unary | Binary | Compare | Select | Cast):
        parts = {f.name: _bind_value(v, values) for f in fields(e) if not isinstance(v := getattr(e, f.name), str | None)}
        return replace(e, **parts)
    return e
