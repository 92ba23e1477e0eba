"""How closed forms read (`4*M*N*(K + 1)`, `N*(N + 1)/2`), and bytes in binary units."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

Terms = Iterable[tuple[tuple[tuple[Any, int], ...], Fraction]]


def render(terms: Terms) -> str:
    """A polynomial with its common factors in front: numbers first, then atoms that every term holds."""
    listed = list(terms)
    if not listed:
        return "0"
    den = math.lcm(*(c.denominator for _, c in listed))
    whole = [(m, c.numerator * (den // c.denominator)) for m, c in listed]
    if len(whole) == 1:
        return _sum(whole) + (f"/{den}" if den != 1 else "")
    common = math.gcd(*(c for _, c in whole))
    if all(c < 0 for _, c in whole):
        common = -common
    shared = _shared([m for m, _ in whole])
    front = [] if common == 1 else [str(common)]
    front += [str(a) if p == 1 else f"{a}**{p}" for a, p in shared]
    inner = _sum([(_without(m, shared), c // common) for m, c in whole])
    if not front and den == 1:
        return inner
    text = "*".join([*front, f"({inner})"])
    return text.replace("-1*", "-", 1) + (f"/{den}" if den != 1 else "")


def _shared(monomials: Sequence[tuple[tuple[Any, int], ...]]) -> list[tuple[Any, int]]:
    """The atoms in every monomial, with their least power."""
    tables = [dict(m) for m in monomials]
    return [(a, min(t[a] for t in tables)) for a, _ in monomials[0] if all(a in t for t in tables)]


def _without(monomial: tuple[tuple[Any, int], ...], shared: list[tuple[Any, int]]) -> tuple[tuple[Any, int], ...]:
    taken = dict(shared)
    return tuple((a, p - taken.get(a, 0)) for a, p in monomial if p > taken.get(a, 0))


def _sum(terms: Sequence[tuple[tuple[tuple[Any, int], ...], int]]) -> str:
    out = ""
    for m, c in sorted(terms, key=lambda t: t[1] < 0):
        parts = [] if abs(c) == 1 and m else [str(abs(c))]
        for a, p in m:
            parts.append(str(a) if p == 1 else f"{a}**{p}")
        body = "*".join(parts)
        out += (" - " if c < 0 else " + ") + body if out else ("-" if c < 0 else "") + body
    return out


def pretty_bytes(n: int) -> str:
    """1,234,567 B with the binary unit people read: `3096 MiB`, `1.5 KiB`."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(n) >= size * (4 if unit == "GiB" else 1):
            text = f"{n / size:.2f}"
            return re.sub(r"\.?0+$", "", text) + f" {unit}" if "." in text else f"{text} {unit}"
    return f"{n} B"
