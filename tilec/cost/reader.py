"""How the numbers and expressions of a program become terms (cost/term.py)."""

from __future__ import annotations

from tilec.cost.term import ZERO, Name, Num, Term, add, ceil, floor, multiply
from tilec.ir.affine import Aff, Div


class Reader:
    """This one: a number is that number, a name itself. Others read numbers as knobs and differ in `number` alone."""

    def number(self, value: int) -> Term:
        """The term of a number in the tree."""
        return Num(value)

    def term(self, e: Aff) -> Term:
        """The term of an expression."""
        parts: list[Term] = [self.number(e.const)] if e.const else []
        for atom, c in e.terms:
            base = Name(atom) if isinstance(atom, str) else self._division(atom)
            parts.append(multiply((self.number(c), base)))
        return add(parts) if parts else ZERO

    def _division(self, d: Div) -> Term:
        den = self.number(d.den)
        if d.num.const == d.den - 1:
            return ceil(self.term(d.num - d.num.const), den)
        return floor(self.term(d.num), den)
