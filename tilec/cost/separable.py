"""Counts of loop nests as formulas in sizes *and* tile factors, for nests that are products of split loops.

The program comes from a schedule whose knobs were set to marker numbers (`Markers`): large numbers, each a multiple of a prime of
its own, so that every number in the tree tells which knob it came from. A split pair

    for io in 0..ceil(u/T): for ii in 0..min(T, u - T·io)

runs ii u times in all, whatever T is; joining such pairs from the inside leaves a product of extents that depend on each
other no more. What does not join is NotSeparable, and is priced candidate by candidate instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from tilec.cost.reader import Reader
from tilec.cost.term import ONE, ZERO, Ceil, Name, Num, Term, add, floor, least, most, multiply
from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import Guard, Loop

BASE = 5040  # divisible by every small divisor a schedule function may apply to a knob
_PRIMES = (1009, 1013, 1019, 1021, 1031, 1033, 1039, 1049, 1051, 1061, 1063, 1069, 1087, 1091, 1093, 1097)
_NEAR = 2000  # smaller numbers are constants
_OFFSET = 64  # how far from a multiple a number may be: halos, the -1 of a ceiling


class NotSeparable(Exception):
    """The nest is no product of split loops, or a number in it comes from no knob in a known way; str() says which."""


@dataclass(frozen=True)
class Markers(Reader):
    """The numbers that stand for knobs, and how to read them back; NotSeparable where a number cannot be read."""

    values: tuple[tuple[str, int], ...]

    @staticmethod
    def of(knobs: Iterable[str]) -> Markers:
        """A marker for each knob; NotSeparable for more knobs than there are markers."""
        names = tuple(knobs)
        if len(names) > len(_PRIMES):
            raise NotSeparable(f"{len(names)} knobs are more than the {len(_PRIMES)} that formulas are derived for")
        return Markers(tuple((k, BASE * p) for k, p in zip(names, _PRIMES, strict=False)))

    def number(self, value: int) -> Term:
        """A number of the tree as a formula in knobs: a constant, a multiple of one knob or of a product, plus an offset."""
        if abs(value) <= _NEAR:
            return Num(value)
        readings: list[tuple[int, int, int, str, Fraction, int]] = []
        for name, marker in self.values:
            for offset in range(-_OFFSET, _OFFSET + 1):
                if (value - offset) % (marker // BASE) == 0:
                    ratio = Fraction(value - offset, marker)
                    if ratio.denominator <= 16 and abs(ratio) <= 64:
                        readings.append((ratio.denominator, abs(offset), abs(ratio.numerator), name, ratio, offset))
        if readings:  # the plainest one: a whole multiple before a part, a small offset before a large one
            *_, name, ratio, offset = min(readings)
            return add((_scaled(Name(name), ratio), Num(offset)))
        for n, (a, va) in enumerate(self.values):
            for b, vb in self.values[n:]:
                ratio = Fraction(value, va * vb)
                if ratio.denominator <= 16 and abs(ratio) <= 64:
                    return _scaled(multiply((Name(a), Name(b))), ratio)
        if any(value % (marker // BASE) == 0 for _, marker in self.values):
            raise NotSeparable(f"the number {value} mixes knobs in a way no formula is derived for")
        return Num(value)


def _scaled(t: Term, ratio: Fraction) -> Term:
    out = multiply((Num(ratio.numerator), t))
    return out if ratio.denominator == 1 else floor(out, Num(ratio.denominator))


@dataclass(frozen=True)
class Extent:
    """One loop of a nest: 0 <= var < min(upper), all uppers affine in the variables before it."""

    var: str
    upper: tuple[Aff, ...]


def count(path: Sequence[Loop | Guard], markers: Markers) -> Term:
    """How often the body of a nest runs. Raises NotSeparable."""
    extents = [e for node in path if isinstance(node, Loop) and (e := _extent(node))]
    factors: list[Term] = []
    for node in path:
        if isinstance(node, Guard):
            for c in node.conditions:
                extents, bracket = _guarded(extents, c, markers)
                factors.append(bracket)
    while extents:
        inner = extents.pop()
        names = frozenset(e.var for e in extents)
        mentioned = [e for e in inner.upper if e.names & names]
        if not mentioned:
            factors.append(positive(least(markers.term(u) for u in inner.upper)))
            continue
        extents = _join(extents, inner, names)
    return multiply(factors)


def positive(t: Term) -> Term:
    """max(0, t), without the max where t is a plain positive product."""
    if isinstance(t, Name) or (isinstance(t, Num) and t.value >= 0):
        return t
    if isinstance(t, Ceil) and isinstance(t.num, Name):
        return t
    return most((ZERO, t))


def _extent(loop: Loop) -> Extent:
    if loop.lower != (Aff(0),):
        raise NotSeparable(f"loop {loop.var} does not start at 0")
    return Extent(loop.var, loop.upper)


def _guarded(extents: list[Extent], c: Constraint, markers: Markers) -> tuple[list[Extent], Term]:
    """A guard as one more upper bound of the loop it bounds, or as a factor 0 or 1 when it bounds none."""
    inside = [e for e in extents if e.var in c.names]
    if c.equal:
        raise NotSeparable(f"the guard {c} is an equation")
    if not inside:
        # a condition on sizes and knobs: 1 where expr >= 0
        value = markers.term(c.expr)
        return extents, least((ONE, most((ZERO, add((value, ONE))))))
    if len(inside) == 1:
        var = inside[0].var
        k = c.expr.coefficient(var)
        if k < 0:
            rest = c.expr - Aff.of(var) * k
            return [replace(e, upper=(*e.upper, rest // -k + 1)) if e.var == var else e for e in extents], ONE
    last = extents[-1]
    if c.expr.coefficient(last.var) == -1:  # a bound of the innermost loop by outer ones
        upper = c.expr + Aff.of(last.var) + 1
        return [*extents[:-1], replace(last, upper=(*last.upper, upper))], ONE
    raise NotSeparable(f"the guard {c} bounds no single loop")


def _join(extents: list[Extent], inner: Extent, names: frozenset[str]) -> list[Extent]:
    """Replace a pair (o, inner) that counts u in all by one loop of extent u."""
    for n in reversed(range(len(extents))):
        outer = extents[n]
        whole = _whole(outer, inner)
        if whole is not None:
            later = extents[n + 1 :]
            if any(outer.var in u.names for e in later for u in e.upper):
                raise NotSeparable(f"loop {inner.var} depends on {outer.var}, and so does another loop")
            return [*extents[:n], Extent(outer.var, whole), *later]
    raise NotSeparable(f"the bounds of loop {inner.var} are no tile of an outer loop")


def _whole(outer: Extent, inner: Extent) -> tuple[Aff, ...] | None:
    """u such that outer runs ceil(u/T) times and inner min(T, u - T·outer) times; None where the pair is no such split."""
    mine = [u for u in inner.upper if outer.var in u.names]
    free = [u for u in inner.upper if outer.var not in u.names]
    steps = {-u.coefficient(outer.var) for u in mine}
    if len(steps) != 1 or free != [Aff(next(iter(steps)))]:
        return None
    step = steps.pop()
    wholes = tuple(u + Aff.of(outer.var) * step for u in mine)
    if step <= 0 or any(outer.var in u.names for u in wholes):
        return None
    ceilings, given = _tight((u + (step - 1)) // step for u in wholes), _tight(outer.upper)
    if not ceilings <= given:
        return None
    return (*wholes, *(e * step for e in given - ceilings))  # stopping after e blocks counts at most e·T


def _tight(upper: Iterable[Aff]) -> frozenset[Aff]:
    """Without bounds that another one undercuts by a constant."""
    kept = list(dict.fromkeys(upper))
    return frozenset(u for u in kept if not any((u - v).is_const and (u - v).const > 0 for v in kept))
