"""Binding sizes: numbers for names, everywhere in a program, the original included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace

from tilec.ir.affine import Aff, AffLike
from tilec.ir.expr import Binary, Call, Cast, Compare, Expr, Index, Select, Unary
from tilec.ir.program import Access, Program, Statement
from tilec.ir.tree import subs


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
        bound=(*program.bound, *((n, sizes[n]) for n in program.sizes if n in sizes)),
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
