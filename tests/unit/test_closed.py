"""Closed forms: normal form, exact evaluation of numbers and arrays, text."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tilec.ir.affine import Aff, Constraint, ceil_div
from tilec.ir.closed import Closed, Sum, atom, bracket, maximum, minimum, positive, total
from tilec.ir.closed_text import pretty_bytes
from tilec.ir.power_sum import power_sum

M, N, K = (Closed.of(n) for n in "MNK")


def test_normal_form_is_structural_equality():
    assert (M + N) * (M - N) == M * M - N**2
    assert ((M + 1) * 2 - M - M).constant == 2
    assert Closed.of(Aff.of("N") * 3 + 1) == 3 * N + 1
    assert minimum([32, K]) + positive(K - 32) == K
    assert maximum([M, N]) + minimum([M, N]) == M + N
    assert Closed.of((Aff.of("N") * -1) // 64) == -Closed.of(ceil_div("N", 64))  # floor(-n/d) has one spelling
    assert (M * N).constant is None and (M - M).constant == 0
    assert (3 * N + 1).affine == Aff.of("N") * 3 + 1 and (M * N).affine is None
    at_least = bracket([Constraint.ge("N", 4)])
    assert at_least * at_least == at_least


def test_text():
    tiles = Closed.of(ceil_div("N", 64))
    assert str(2 * (M * K * tiles + M * N)) == "2*M*(K*ceil(N/64) + N)"
    assert str(power_sum(1, N - 1)) == "N*(N - 1)/2"
    assert str(-M - N) == "-(M + N)" and str(Closed()) == "0" and str(Closed.of(7)) == "7"
    assert str(N * Fraction(1, 2) + N**2 * Fraction(1, 2)) == "N*(N + 1)/2"
    assert str(positive(N - 3)) == "max(0, N - 3)"
    assert str(M - N) == "M - N"
    assert pretty_bytes(3096 * 2**20) == "3096 MiB" and pretty_bytes(1536) == "1.5 KiB" and pretty_bytes(17) == "17 B"


def test_values():
    e = 2 * M * N + positive(N - 5) - minimum([M, 7]) + bracket([Constraint.ge("M", 3)])
    for m in range(1, 12):
        for n in range(1, 12):
            assert e.eval({"M": m, "N": n}) == 2 * m * n + max(0, n - 5) - min(m, 7) + (m >= 3)
    ms, ns = np.arange(1, 12)[:, None], np.arange(1, 12)[None, :]
    assert e.eval({"M": ms, "N": ns}).dtype == np.int64
    assert (e.eval({"M": ms, "N": ns}) == 2 * ms * ns + np.maximum(0, ns - 5) - np.minimum(ms, 7) + (ms >= 3)).all()


def test_arrays_beyond_64_bits_become_python_integers():
    big = 3_000_000_000
    got = (M * N * K).eval({"M": np.array([2, big]), "N": np.array([3, big]), "K": big})
    assert got.dtype == object and list(got) == [6 * big, big**3]
    halves = (M * (M + 1) * Fraction(1, 2)).eval({"M": np.array([3, 2**33])})
    assert list(halves) == [6, 2**33 * (2**33 + 1) // 2]


@pytest.mark.parametrize("p", range(6))
def test_power_sums(p):
    s = power_sum(p, N)
    assert all(s.eval({"N": n}) == sum(x**p for x in range(n + 1)) for n in range(9))
    assert power_sum(p, Closed.of(-1)) == Closed()
    difference = power_sum(p, Closed.of(5)) - power_sum(p, Closed.of(-4))  # right across zero too
    assert difference.constant == sum(x**p for x in range(-3, 6))


def test_substitution_and_sums():
    e = M * N + positive(N - 5)
    assert e.subs({"N": Aff.of("M") + 5}) == M * M + 5 * M + positive(M)
    assert e.subs({"M": 2, "N": 9}).constant == 22
    s = atom(Sum("x", Closed.of(0), N - 1, Closed.of("x") * Closed.of("M")))
    assert s.eval({"N": 5, "M": 3}) == 30 and s.eval({"N": 0, "M": 3}) == 0
    assert list(s.eval({"N": np.array([1, 2, 5]), "M": 3})) == [0, 3, 30]
    assert s.names == {"N", "M"} and str(s) == "sum(M*x for x in 0..N)"
    assert s.subs({"M": 2}).eval({"N": 4}) == 12
    assert total([M, N, M]) == 2 * M + N
