"""Sums of powers as polynomials (Faulhaber): what summation over the points of a range rests on."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from tilec.ir.closed import Closed, ClosedLike


def power_sum(p: int, n: ClosedLike) -> Closed:
    """Σ x^p for x = 0 … n as a polynomial in n (Faulhaber); power_sum(p, -1) is 0, and differences are right at every integer."""
    n = Closed.of(n)
    out = Closed()
    for j, c in enumerate(_coefficients(p)):
        if c:
            out = out + n**j * c
    return out


@lru_cache(maxsize=64)
def _coefficients(p: int) -> tuple[Fraction, ...]:
    """Coefficients of Σ_{x=0}^{n} x^p by powers of n: 1/(p+1) · Σ_j C(p+1, j) B⁺_j n^(p+1-j)."""
    bernoulli = [Fraction(1)]
    for m in range(1, p + 1):
        bernoulli.append(-sum((math.comb(m + 1, k) * b for k, b in enumerate(bernoulli)), Fraction(0)) / (m + 1))
    if p >= 1:
        bernoulli[1] = Fraction(1, 2)
    out = [Fraction(0)] * (p + 2)
    for j, b in enumerate(bernoulli):
        out[p + 1 - j] += Fraction(math.comb(p + 1, j)) * b / (p + 1)
    if p == 0:
        out[0] += 1  # x^0 at x = 0 counts
    return tuple(out)
