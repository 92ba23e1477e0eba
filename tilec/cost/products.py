"""Reading a program back as formulas in its knobs, where the knobs divide each other.

`separable.Markers` sets every knob to a number of its own; but a schedule that needs MWG to be a multiple of MDIMC · VWM must be
given such numbers. Here each knob is a product of primes that the caller chooses so that every division the schedule makes is
exact; a number of the tree is a product of powers of knobs, found by solving for their exponents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod

from tilec.cost.reader import Reader
from tilec.cost.separable import NotSeparable
from tilec.cost.term import Name, Num, Term, add, floor, multiply

_PRIMES = (7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67)  # small ones: factors and sizes stay below 2^31
_LARGEST_CONSTANT = 64  # what remains of a number without these primes; a number below the first prime is one
_OFFSETS = (0, 1, -1)  # of the ceiling's -1


@dataclass(frozen=True)
class Products(Reader):
    """factors: knob → its prime factors as letters, e.g. {"MDIMC": "ab", "MWG": "abv"}; as many letters as knobs, independent."""

    factors: tuple[tuple[str, str], ...]

    @staticmethod
    def of(factors: Mapping[str, str]) -> Products:
        """From a mapping; NotSeparable unless the knobs are independent and as many as the letters."""
        found = Products(tuple(factors.items()))
        if len(found.letters) != len(factors) or len(found.letters) > len(_PRIMES):
            raise NotSeparable(
                f"{len(factors)} knobs are made of {len(found.letters)} letters: give as many, {len(_PRIMES)} at most"
            )
        assert found._inverse
        return found

    @cached_property
    def letters(self) -> tuple[str, ...]:
        """The primes' letters, those in most knobs first: they get the smallest primes."""
        uses = Counter(c for _, text in self.factors for c in text)
        return tuple(sorted(uses, key=lambda c: (-uses[c], c)))

    @cached_property
    def values(self) -> dict[str, int]:
        """The number that stands for each knob."""
        prime = dict(zip(self.letters, _PRIMES, strict=False))
        return {knob: prod(prime[c] for c in text) for knob, text in self.factors}

    @cached_property
    def _inverse(self) -> list[list[Fraction]]:
        """From exponents of primes to exponents of knobs."""
        n = len(self.factors)
        rows = [
            [Fraction(text.count(c)) for _, text in self.factors] + [Fraction(int(k == m)) for m in range(n)]
            for k, c in enumerate(self.letters)
        ]
        for k in range(n):
            pivot = next((m for m in range(k, n) if rows[m][k]), None)
            if pivot is None:
                raise NotSeparable("the knobs' factors are not independent")
            rows[k], rows[pivot] = rows[pivot], rows[k]
            rows[k] = [x / rows[k][k] for x in rows[k]]
            for m in range(n):
                if m != k and rows[m][k]:
                    rows[m] = [x - rows[m][k] * y for x, y in zip(rows[m], rows[k], strict=True)]
        return [row[n:] for row in rows]

    def number(self, value: int) -> Term:
        """A number of the tree as a product of powers of knobs, plus or minus one; NotSeparable where it is none."""
        if abs(value) < _PRIMES[0]:
            return Num(value)
        for offset in _OFFSETS:
            found = self._product(value - offset)
            if found is not None:
                return add((found, Num(offset)))
        raise NotSeparable(f"the number {value} is no product of knobs")

    def _product(self, value: int) -> Term | None:
        rest, exponents = value, []
        for _, prime in zip(self.letters, _PRIMES, strict=False):
            count = 0
            while rest % prime == 0:
                rest, count = rest // prime, count + 1
            exponents.append(count)
        if abs(rest) > _LARGEST_CONSTANT:
            return None
        powers = [sum(a * b for a, b in zip(row, exponents, strict=True)) for row in self._inverse]
        if any(p.denominator != 1 for p in powers):
            return None
        up: list[Term] = [Num(rest)]
        down: list[Term] = []
        for (knob, _), p in zip(self.factors, powers, strict=True):
            (up if p > 0 else down).extend([Name(knob)] * abs(int(p)))
        return floor(multiply(up), multiply(down)) if down else multiply(up)
