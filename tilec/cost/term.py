"""Formulas whose tile factors are names too: what a count is over a whole array of candidates.

    term ::= Num | Name | Sum(terms) | Product(terms) | Ceil(term, term) | Floor(term, term) | Least(terms) | Most(terms)

`ir/closed.py` has constants as divisors, as a scheduled program has; here `ceil(M/BM)` divides by a knob. Values are exact for
Python integers; where arrays are int64 the caller keeps them in range (as `bulk.evaluate` does).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, Union

import numpy as np


@dataclass(frozen=True)
class Num:
    value: int


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Sum:
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Product:
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Ceil:
    num: Term
    den: Term


@dataclass(frozen=True)
class Floor:
    num: Term
    den: Term


@dataclass(frozen=True)
class Least:
    terms: tuple[Term, ...]


@dataclass(frozen=True)
class Most:
    terms: tuple[Term, ...]


Term: TypeAlias = Union[Num, Name, Sum, Product, Ceil, Floor, Least, Most]
ZERO, ONE = Num(0), Num(1)


def add(terms: Iterable[Term]) -> Term:
    """The sum, numbers gathered and equal terms counted."""
    constant = 0
    parts: dict[Term, int] = {}
    for t in _flat(terms, Sum):
        factor, rest = _coefficient(t)
        if rest is None:
            constant += factor
        else:
            parts[rest] = parts.get(rest, 0) + factor
    out = [multiply((Num(c), t)) for t, c in parts.items() if c]
    if constant or not out:
        out.append(Num(constant))
    return out[0] if len(out) == 1 else Sum(tuple(out))


def multiply(terms: Iterable[Term]) -> Term:
    constant = 1
    parts: list[Term] = []
    for t in _flat(terms, Product):
        if isinstance(t, Num):
            constant *= t.value
        else:
            parts.append(t)
    if constant == 0:
        return ZERO
    parts.sort(key=str)
    out = ([Num(constant)] if constant != 1 or not parts else []) + parts
    return out[0] if len(out) == 1 else Product(tuple(out))


def least(terms: Iterable[Term]) -> Term:
    kept = tuple(dict.fromkeys(terms))
    if all(isinstance(t, Num) for t in kept):
        return Num(min(t.value for t in kept if isinstance(t, Num)))
    return kept[0] if len(kept) == 1 else Least(kept)


def most(terms: Iterable[Term]) -> Term:
    kept = tuple(dict.fromkeys(terms))
    if all(isinstance(t, Num) for t in kept):
        return Num(max(t.value for t in kept if isinstance(t, Num)))
    return kept[0] if len(kept) == 1 else Most(kept)


def ceil(num: Term, den: Term) -> Term:
    if isinstance(den, Num):
        if den.value == 1:
            return num
        if isinstance(num, Num):
            return Num(-(-num.value // den.value))
    return Ceil(num, den)


def floor(num: Term, den: Term) -> Term:
    if isinstance(den, Num):
        if den.value == 1:
            return num
        if isinstance(num, Num):
            return Num(num.value // den.value)
    return Floor(num, den)


def evaluate(t: Term, env: Mapping[str, Any]) -> Any:
    """The value at numbers, or element by element over arrays of numbers."""
    match t:
        case Num(value=v):
            return v
        case Name(name=n):
            return env[n]
        case Sum(terms=ts):
            total = evaluate(ts[0], env)
            for u in ts[1:]:
                total = total + evaluate(u, env)
            return total
        case Product(terms=ts):
            total = evaluate(ts[0], env)
            for u in ts[1:]:
                total = total * evaluate(u, env)
            return total
        case Ceil(num=a, den=b):
            return -(-evaluate(a, env) // evaluate(b, env))
        case Floor(num=a, den=b):
            return evaluate(a, env) // evaluate(b, env)
        case Least(terms=ts) | Most(terms=ts):
            pick = (np.minimum, min) if isinstance(t, Least) else (np.maximum, max)
            values = [evaluate(u, env) for u in ts]
            total = values[0]
            for v in values[1:]:
                total = pick[0](total, v) if isinstance(total, np.ndarray) or isinstance(v, np.ndarray) else pick[1](total, v)
            return total


def names(t: Term) -> frozenset[str]:
    """Every name in the formula."""
    match t:
        case Num():
            return frozenset()
        case Name(name=n):
            return frozenset((n,))
        case Sum(terms=ts) | Product(terms=ts) | Least(terms=ts) | Most(terms=ts):
            return frozenset().union(*map(names, ts))
        case Ceil(num=a, den=b) | Floor(num=a, den=b):
            return names(a) | names(b)


def text(t: Term, level: int = 0) -> str:
    """`2*M*K*ceil(N/BN) + 2*K*N*ceil(M/BM)`."""
    match t:
        case Num(value=v):
            return str(v)
        case Name(name=n):
            return n
        case Sum(terms=ts):
            body = " + ".join(text(u, 1) for u in ts).replace("+ -", "- ")
            return f"({body})" if level else body
        case Product(terms=ts):
            if ts[0] == Num(-1):
                return "-" + "*".join(text(u, 2) for u in ts[1:])
            return "*".join(text(u, 2) for u in ts)
        case Ceil(num=a, den=b):
            return f"ceil({text(a, 2)}/{text(b, 2)})"
        case Floor(num=a, den=b):
            return f"floor({text(a, 2)}/{text(b, 2)})"
        case Least(terms=ts):
            return f"min({', '.join(map(text, ts))})"
        case Most(terms=ts):
            return f"max({', '.join(map(text, ts))})"


def _flat(terms: Iterable[Term], kind: type[Sum] | type[Product]) -> Iterable[Term]:
    for t in terms:
        if isinstance(t, kind):
            yield from t.terms
        else:
            yield t


def _coefficient(t: Term) -> tuple[int, Term | None]:
    if isinstance(t, Num):
        return t.value, None
    if isinstance(t, Product) and isinstance(t.terms[0], Num):
        rest = t.terms[1:]
        return t.terms[0].value, rest[0] if len(rest) == 1 else Product(rest)
    return 1, t
