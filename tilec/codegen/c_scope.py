"""Affine expressions, bounds and addresses as C text, at one place of the tree."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf, prod

from tilec.codegen import c_arithmetic
from tilec.codegen.c_helpers import Helpers
from tilec.ir.affine import Aff, Constraint, Div, ceil_div
from tilec.ir.layouts import triples
from tilec.ir.printer import Scope
from tilec.ir.program import Buffer

LANE = "@lane"  # the position inside a vector, 0 … lanes - 1
Range = tuple[float, float]  # both ends included, possibly infinite

_WORDS = """auto break case char const continue default do double else enum extern float for goto if inline int long register
restrict return short signed sizeof static struct switch typedef union unsigned void volatile while _Bool _Complex main
asm typeof linux unix NULL NAN INFINITY scratch threads thread i8 u8 i16 u16 i32 u32 i64 u64 f32 f64
exp exp2 log log2 sqrt sin cos tanh erf fma abs labs floor ceil rint trunc round pow min max malloc free
j0 j1 jn y0 y1 yn gamma index time signal div remainder at memcpy memset"""


# how helpers and the variables that the text makes up are called
_HELPER = re.compile(
    r"_[fiu](8|16|32|64)(x\d+)?(_at)?$|_from_|_of_|_as_|_spread_|_bits$|^(min|max|floor)_i$|^(round|part)_|_(bytes|at)$|_\d+$|^tilec_"
    r"|^omp_|^u?int\d+_t$|^(M|FP|HUGE|MATH|U?INT(\d+|MAX|PTR)?|SIZE|FLT|DBL)_"
)


def identifiers(names: Iterable[str]) -> dict[str, str]:
    """A C identifier for each name, distinct, none of them a word of C or of its headers."""
    taken: set[str] = {*_WORDS.split()}
    out: dict[str, str] = {}
    for name in dict.fromkeys(names):
        base = re.sub(r"\W", "_", name)
        base = base if re.match(r"[A-Za-z]", base) else f"v{base}"
        while base in taken or _HELPER.search(base):
            longer = f"{base}_"  # names with a part of a helper's stay one of those however long they get
            base = f"v{base.replace('_', '')}" if _HELPER.search(longer) else longer
        taken.add(base)
        out[name] = base
    return out


def bounds(e: Aff, ranges: Mapping[str, Range]) -> Range:
    """An interval around the values of `e`."""
    low = high = float(e.const)
    for atom, c in e.terms:
        if isinstance(atom, str):
            a, b = ranges.get(atom, (-inf, inf))
        else:
            a, b = bounds(atom.num, ranges)
            a, b = (x if x in (-inf, inf) else x // atom.den for x in (a, b))
        low += c * (a if c > 0 else b)
        high += c * (b if c > 0 else a)
    return low, high


def simplified(e: Aff, ranges: Mapping[str, Range]) -> Aff:
    """Divisions whose value is the same for all values of the names become that value."""
    if not any(isinstance(a, Div) for a, _ in e.terms):
        return e
    out = Aff(e.const)
    for atom, c in e.terms:
        if isinstance(atom, str):
            out = out + Aff.of(atom) * c
            continue
        num = simplified(atom.num, ranges)
        low, high = bounds(num, ranges)
        if low != -inf and high != inf and low // atom.den == high // atom.den:
            out = out + int(low // atom.den) * c
        else:
            out = out + (num // atom.den) * c
    return out


@dataclass(frozen=True)
class CScope(Scope):
    """C text of index arithmetic, in i64."""

    names: Mapping[str, str]
    ranges: Mapping[str, Range]
    helpers: Helpers

    def name(self, name: str) -> str:
        return self.names.get(name, name)

    def _items(self, aff: Aff) -> tuple[list[tuple[int, str]], int]:
        if all(bounds(a.num, self.ranges)[0] >= 0 for a, _ in aff.terms if isinstance(a, Div)):
            return super()._items(aff)  # C's % is the floor's
        items = [(c, self.name(a) if isinstance(a, str) else self._division(a)) for a, c in aff.terms]
        items.sort(key=lambda t: t[0] < 0)
        return items, aff.const

    def _division(self, atom: Div) -> str:
        if bounds(atom.num, self.ranges)[0] >= 0:
            return f"({self._closed(atom.num)} / {atom.den})"
        return f"{c_arithmetic.index(self.helpers, 'floor_i')}({self.aff(atom.num)}, {atom.den})"

    def lower(self, loop) -> str:
        return self._extreme("max_i", loop.lower)

    def upper(self, loop) -> str:
        return self._extreme("min_i", loop.upper)

    def _extreme(self, function: str, es: tuple[Aff, ...]) -> str:
        first, *rest = es
        if rest:
            c_arithmetic.index(self.helpers, function)
        body = self._bare(first)
        for e in rest:
            body = f"{function}({body}, {self._bare(e)})"
        return body

    def _bare(self, e: Aff) -> str:
        """A division that stands alone needs no parentheses."""
        text = self.aff(e)
        alone = e.const == 0 and len(e.terms) == 1 and e.terms[0][1] == 1 and text.startswith("(")
        return text[1:-1] if alone else text

    def conditions(self, cs: Iterable[Constraint]) -> str:
        return " && ".join(map(self.constraint, cs))

    # flat addresses -------------------------------------------------------------------------------------------------

    def product(self, extents: Iterable[Aff]) -> str:
        """Σ-free product of extents, as text."""
        es = list(extents)
        constant = prod(e.const for e in es if e.is_const)
        rest = [self._closed(e) for e in es if not e.is_const]
        parts = rest if constant == 1 and rest else [*rest, str(constant)]
        return " * ".join(parts)

    def flat(self, index: list[Aff], extents: list[Aff]) -> str:
        """Row-major address in elements: constant strides fold into one affine expression, symbolic ones are factors."""
        parts: list[str] = []
        for factors, e in by_strides(index, extents):
            if e == Aff(0):
                continue
            if not factors:
                text = self.aff(e)
                parts.append(f"- {text[1:]}" if parts and text.startswith("-") else text)
            else:
                strides = "*".join(self._closed(x) for x in factors)
                parts.append(strides if e == Aff(1) else f"{self._closed(e)}*{strides}")
        out = ""
        for p in parts:
            out = p if not out else f"{out} {p}" if p.startswith("- ") else f"{out} + {p}"
        return out or "0"


def by_strides(index: list[Aff], extents: list[Aff]) -> list[tuple[tuple[Aff, ...], Aff]]:
    """A row-major address as a sum for each product of symbolic strides, that of none last."""
    groups: dict[tuple[Aff, ...], Aff] = {}
    for d, e in enumerate(index):
        behind = extents[d + 1 :]
        factors = tuple(x for x in behind if not x.is_const)
        groups[factors] = groups.get(factors, Aff(0)) + e * prod(x.const for x in behind if x.is_const)
    return sorted(groups.items(), key=lambda t: -len(t[0]))


@dataclass(frozen=True)
class Plan:
    """Where a layout puts a cell: the digits of its address with their extents, and an XOR on one of them."""

    index: list[Aff]
    extents: list[Aff]
    xor: tuple[int, Aff, int] | None = None  # digit, the row, columns


def arranged(b: Buffer, index: list[Aff], extents: list[Aff], ranges: Mapping[str, Range]) -> Plan:
    """The digits of a cell's address under the buffer's layout (ir/layouts.py is the reference)."""
    layout = b.layout
    place, sizes = list(index), list(extents)
    if layout is None:
        return Plan(place, sizes)
    shift = len(index) - len(b.shape)  # thread coordinates stand in front
    if layout.name == "pad":
        dim, n = layout.args
        sizes[dim + shift] = sizes[dim + shift] + n
    elif layout.name == "xor":
        row, column = (d + shift for d in layout.args)
        return Plan(place, sizes, (column, place[row], sizes[column].const))
    elif layout.name == "digits":
        parts = triples(layout.args)
        front = place[:shift], sizes[:shift]
        place = [_digit(index[dim + shift], divisor, modulus, ranges) for dim, divisor, modulus in parts]
        sizes = [Aff(abs(m)) if m else ceil_div(extents[dim + shift], divisor) for dim, divisor, m in parts]
        return Plan([*front[0], *place], [*front[1], *sizes])
    else:
        dim, width = layout.args
        i, e = place.pop(dim + shift), sizes.pop(dim + shift)
        high = simplified(i // width, ranges)
        place.insert(shift, high)
        sizes.insert(shift, (e + (width - 1)) // width)
        place.append(i - high * width)
        sizes.append(Aff(width))
    return Plan(place, sizes)


def _digit(i: Aff, divisor: int, modulus: int, ranges: Mapping[str, Range]) -> Aff:
    whole = simplified(i // divisor, ranges)
    if modulus == 0:
        return whole
    digit = whole - simplified(whole // abs(modulus), ranges) * abs(modulus)
    return digit if modulus > 0 else -digit + (-modulus - 1)
