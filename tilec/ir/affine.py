"""Quasi-affine integer expressions: the only arithmetic that bounds, guards and subscripts are made of.

    aff  ::= const + Σ coefficient · atom
    atom ::= name                      a loop variable or a size
           | floor(aff / positive int)

`e % c` is `e - c * (e // c)`. Expressions are kept in one normal form, so equality is structural.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import TypeAlias, Union


@dataclass(frozen=True)
class Div:
    """floor(num / den), den > 1."""

    num: Aff
    den: int

    def __str__(self) -> str:
        # ceil(e/c) is how a person writes floor((e + c - 1) / c)
        if self.num.const == self.den - 1 and self.num.terms:
            return f"ceil({_div_text(self.num - self.num.const, self.den)})"
        return f"floor({_div_text(self.num, self.den)})"


def _div_text(num: Aff, den: int) -> str:
    text = str(num)
    return f"{text}/{den}" if re.fullmatch(r"\w+", text) else f"({text})/{den}"


Atom: TypeAlias = Union[str, Div]


def _key(atom: Atom) -> tuple[int, str]:
    return (0, atom) if isinstance(atom, str) else (1, str(atom))


@dataclass(frozen=True)
class Aff:
    """const + Σ coefficient · atom, terms sorted and without zeros."""

    const: int
    terms: tuple[tuple[Atom, int], ...] = ()

    @staticmethod
    def of(value: AffLike) -> Aff:
        if isinstance(value, Aff):
            return value
        return Aff(0, ((value, 1),)) if isinstance(value, str) else Aff(int(value))

    def __add__(self, other: AffLike) -> Aff:
        other = Aff.of(other)
        if not other.terms:
            return Aff(self.const + other.const, self.terms)
        coefficients = dict(self.terms)
        for atom, c in other.terms:
            coefficients[atom] = coefficients.get(atom, 0) + c
        return _normal(self.const + other.const, coefficients)

    def __neg__(self) -> Aff:
        return Aff(-self.const, tuple((a, -c) for a, c in self.terms))

    def __sub__(self, other: AffLike) -> Aff:
        return self + (-Aff.of(other))

    def __rsub__(self, other: AffLike) -> Aff:
        return Aff.of(other) - self

    def __mul__(self, factor: int) -> Aff:
        if factor == 0:
            return Aff(0)
        return Aff(self.const * factor, tuple((a, c * factor) for a, c in self.terms))

    __radd__ = __add__
    __rmul__ = __mul__

    def __floordiv__(self, den: int) -> Aff:
        if den <= 0:
            raise ValueError(f"division by {den}: the divisor must be a positive constant")
        if den == 1:
            return self
        whole = _normal(self.const // den, {a: c // den for a, c in self.terms if c % den == 0})
        rest = Aff(self.const % den, tuple((a, c) for a, c in self.terms if c % den))
        if not rest.terms:
            return whole
        common = gcd(den, *(c for _, c in rest.terms))
        if common > 1:  # floor((g·e + r) / (g·d)) = floor((e + floor(r/g)) / d)
            rest = Aff(rest.const // common, tuple((a, c // common) for a, c in rest.terms))
            den //= common
            if den == 1:
                return whole + rest
        if len(rest.terms) == 1 and isinstance(rest.terms[0][0], Div) and rest.terms[0][1] == 1:
            inner = rest.terms[0][0]  # floor((floor(e/a) + k) / b) = floor((e + a·k) / (a·b))
            return whole + (inner.num + inner.den * rest.const) // (inner.den * den)
        return whole + Aff(0, ((Div(rest, den), 1),))

    def __mod__(self, den: int) -> Aff:
        return self - (self // den) * den

    @cached_property
    def names(self) -> frozenset[str]:
        """Every variable and size that occurs, also inside divisions."""
        out: set[str] = set()
        for atom, _ in self.terms:
            if isinstance(atom, str):
                out.add(atom)
            else:
                out |= atom.num.names
        return frozenset(out)

    @property
    def is_const(self) -> bool:
        return not self.terms

    def coefficient(self, name: str) -> int:
        """The coefficient of `name` outside divisions."""
        return dict(self.terms).get(name, 0)

    @property
    def single(self) -> str | None:
        """The name, when the whole expression is one variable."""
        if self.const == 0 and len(self.terms) == 1 and self.terms[0][1] == 1 and isinstance(self.terms[0][0], str):
            return self.terms[0][0]
        return None

    def subs(self, values: Mapping[str, AffLike]) -> Aff:
        """Replace names by expressions, simultaneously."""
        if self.names.isdisjoint(values):
            return self
        out = Aff(self.const)
        for atom, c in self.terms:
            if isinstance(atom, str):
                out = out + (Aff.of(values[atom]) if atom in values else Aff.of(atom)) * c
            else:
                out = out + (atom.num.subs(values) // atom.den) * c
        return out

    def eval(self, env: Mapping[str, int]) -> int:
        """The value at `env`; NumPy integer arrays are accepted as values (int64, the caller's range)."""
        total = self.const
        for atom, c in self.terms:
            value = env[atom] if isinstance(atom, str) else atom.num.eval(env) // atom.den
            total = total + c * value
        return total

    def __str__(self) -> str:
        return _text(self)

    def __repr__(self) -> str:
        return f"Aff({_text(self)})"


AffLike: TypeAlias = Union[Aff, int, str]


def _normal(const: int, coefficients: dict[Atom, int]) -> Aff:
    terms = [(a, c) for a, c in coefficients.items() if c]
    if len(terms) > 1:
        terms.sort(key=lambda t: _key(t[0]))
    return Aff(const, tuple(terms))


def _text(aff: Aff) -> str:
    """`64*io + ii - 1`; e - c*floor(e/c) prints as e % c."""
    terms = dict(aff.terms)
    parts: list[str] = []
    rest = aff
    for atom in [a for a, _ in aff.terms if isinstance(a, Div)]:
        c = terms[atom]
        if c % atom.den == 0 and c < 0:
            factor = -c // atom.den  # factor·(num mod den) needs factor·num in the sum
            scaled = atom.num * factor
            have = dict(rest.terms)
            if all(have.get(a, 0) == k for a, k in scaled.terms):
                rest = rest - scaled + Aff(0, ((atom, -c),))
                inner = str(atom.num)
                inner = inner if re.fullmatch(r"\w+", inner) else f"({inner})"
                parts.append(f"{inner} % {atom.den}" if factor == 1 else f"{factor}*({inner} % {atom.den})")
    single: list[tuple[str, int]] = [(str(a), c) for a, c in rest.terms]
    single.sort(key=lambda t: (t[1] < 0,))
    leading = rest.const if rest.const > 0 and single and all(c < 0 for _, c in single) and not parts else 0
    text = str(leading) if leading else ""  # 1000 - 64*io, not -64*io + 1000
    for name, c in single:
        body = name if abs(c) == 1 else f"{abs(c)}*{name}"
        text += (" - " if c < 0 else " + ") + body if text else ("-" if c < 0 else "") + body
    for part in parts:
        text += f" + {part}" if text else part
    const = rest.const - leading
    if const or not text:
        text += f" {'-' if const < 0 else '+'} {abs(const)}" if text else str(const)
    return text


@dataclass(frozen=True)
class Constraint:
    """expr >= 0, or expr == 0 when `equal`."""

    expr: Aff
    equal: bool = False

    @staticmethod
    def ge(a: AffLike, b: AffLike) -> Constraint:
        return Constraint(Aff.of(a) - Aff.of(b))

    @staticmethod
    def lt(a: AffLike, b: AffLike) -> Constraint:
        return Constraint(Aff.of(b) - Aff.of(a) - 1)

    @staticmethod
    def eq(a: AffLike, b: AffLike) -> Constraint:
        return Constraint(Aff.of(a) - Aff.of(b), True)

    def subs(self, values: Mapping[str, AffLike]) -> Constraint:
        return Constraint(self.expr.subs(values), self.equal)

    @property
    def names(self) -> frozenset[str]:
        return self.expr.names

    def holds(self, env: Mapping[str, int]) -> bool:
        value = self.expr.eval(env)
        return value == 0 if self.equal else value >= 0

    def __str__(self) -> str:
        positive = Aff(max(self.expr.const, 0), tuple((a, c) for a, c in self.expr.terms if c > 0))
        negative = positive - self.expr
        if self.equal:
            return f"{positive} == {negative}"
        if not negative.terms:
            return f"{positive} >= {negative}"
        if negative.const >= 1:  # a + 1 <= b reads better as a < b
            return f"{negative - 1} < {positive}"
        return f"{negative} <= {positive}"


def ceil_div(value: AffLike, den: int) -> Aff:
    """ceil(value / den)."""
    return (Aff.of(value) + (den - 1)) // den
