"""Python text of emitted Triton: affine expressions, and calls laid out as ruff lays them out (88 columns)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilec.ir.affine import Aff, Div
from tilec.ir.printer import Scope

WIDTH = 88
INDENT = "    "


def call(head: str, args: list[str], tail: str = ")", depth: int = 1) -> list[str]:
    """`head(args)tail` on one line, else with the arguments on a line of their own, else one argument a line."""
    pad = INDENT * depth
    one = f"{pad}{head}{', '.join(args)}{tail}"
    if len(one) <= WIDTH:
        return [one]
    middle = f"{pad}{INDENT}{', '.join(args)}"
    if len(middle) <= WIDTH:
        return [pad + head, middle, pad + tail]
    return [pad + head, *(f"{pad}{INDENT}{a}," for a in args), pad + tail]


def joined(name: str, parts: list[str], op: str, depth: int) -> list[str]:
    """`name = a + b + c` on one line, in parentheses on one line, or a part a line."""
    pad = INDENT * depth
    one = f"{pad}{name} = {op.join(parts)}"
    if len(one) <= WIDTH:
        return [one]
    middle = f"{pad}{INDENT}{op.join(parts)}"
    if len(middle) <= WIDTH:
        return [f"{pad}{name} = (", middle, f"{pad})"]
    rest = [f"{pad}{INDENT}{op.strip()} {part}" for part in parts[1:]]
    return [f"{pad}{name} = (", f"{pad}{INDENT}{parts[0]}", *rest, f"{pad})"]


def fits(text: str, depth: int) -> bool:
    """Does it fit as an argument on a line of its own?"""
    return len(INDENT) * (depth + 1) + len(text) + 1 <= WIDTH


@dataclass(frozen=True)
class TritonScope(Scope):
    """Affine text in a kernel (`device`) or in its launcher; `names` gives identifiers."""

    names: Mapping[str, str]
    device: bool = True

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def _division(self, atom: Div) -> str:
        tl = "tl" if self.device else "triton"
        if atom.num.const == atom.den - 1 and atom.num.terms:
            return f"{tl}.cdiv({self.aff(atom.num - atom.num.const)}, {atom.den})"
        return f"({self._closed(atom.num)} // {atom.den})"

    def aff(self, aff: Aff) -> str:
        body = super().aff(aff)
        return body.replace("*", " * ")

    def bound(self, which: str, bounds: tuple[Aff, ...]) -> str:
        """min or max of bounds."""
        texts = [self.aff(e) for e in bounds]
        out = texts[0]
        for t in texts[1:]:
            out = f"tl.{which}imum({out}, {t})" if self.device else f"{which}({out}, {t})"
        return out


def divisions(e: Aff) -> list[Div]:
    """Every division in an expression, outermost first."""
    out: list[Div] = []
    for atom, _ in e.terms:
        if isinstance(atom, Div):
            out += [atom, *divisions(atom.num)]
    return out


def may_be_negative(e: Aff) -> bool:
    """May it be negative, as far as its form says? Loop variables and sizes are not."""
    return e.const < 0 or any(c < 0 for _, c in e.terms) or any(may_be_negative(d.num) for d in divisions(e))
