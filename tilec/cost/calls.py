"""Decisions over calls: specialise, bucket or stay generic; one program or several for a mix of shapes; when preparation pays.

Source of the formulas: public lecture material, recomputed in this project's ledger (tests/ledger).
Numbers may be ints, floats or Fractions; ints and Fractions stay exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from numbers import Integral, Rational, Real
from typing import Any

from tilec.errors import ResourceError

LARGEST = 1e30


def number(where: str, what: str, value: Any, positive: bool = False) -> Any:
    """`value` itself if it is a number up to 1e30, not negative (not 0 where `positive`); else ResourceError naming it."""
    found: Any = value
    if isinstance(value, bool) or not isinstance(value, Real) or not abs(found) <= LARGEST:  # NaN compares as False
        raise ResourceError(f"{where}: {what} must be a number up to {LARGEST:g}, got {value!r}")
    if value < 0 or (positive and value == 0):
        raise ResourceError(f"{where}: {what} must {'be above 0' if positive else 'not be negative'}, got {value!r}")
    return value


def whole(where: str, what: str, value: Any, least: int = 0) -> int:
    """`value` as an int if it is a whole number of at least `least`; else ResourceError naming it."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise ResourceError(f"{where}: {what} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def divide(a: Any, b: Any) -> Any:
    """a / b; exact (a Fraction) where both are."""
    return exact(a) / exact(b) if isinstance(a, Rational) and isinstance(b, Rational) else a / b


def exact(value: Any) -> Fraction:
    """`value` as a Fraction, a float's binary value included."""
    if isinstance(value, Integral):
        return Fraction(int(value))
    return Fraction(value) if isinstance(value, Rational) else Fraction(float(value))


@dataclass(frozen=True)
class CallProgram:
    """One way to serve a call: `prepare_ms` once (0: it is cached), then `call_ms` per call."""

    name: str
    prepare_ms: Any
    call_ms: Any

    def __post_init__(self) -> None:
        number("CallProgram", f"prepare_ms of {self.name!r}", self.prepare_ms)
        number("CallProgram", f"call_ms of {self.name!r}", self.call_ms)

    def total_ms(self, calls: int) -> Any:
        """P + r·T."""
        return self.prepare_ms + whole("total_ms", "calls", calls) * self.call_ms

    def average_ms(self, calls: int) -> Any:
        """(P + r·T) / r."""
        return divide(self.total_ms(whole("average_ms", "calls", calls, 1)), calls)

    def calls_to_average(self, average_ms: Any) -> int | None:
        """The least r with an average of at most `average_ms`: ceil(P / (average - T)); None where no r reaches it."""
        number("calls_to_average", "average_ms", average_ms)
        if self.prepare_ms == 0 and average_ms == self.call_ms:
            return 1
        if average_ms <= self.call_ms:
            return None
        return max(1, ceil(exact(self.prepare_ms) / (exact(average_ms) - exact(self.call_ms))))


@dataclass(frozen=True)
class CallRange:
    """From `first` to `last` calls (None: without end) this program's total is the least."""

    name: str
    first: int
    last: int | None


@dataclass(frozen=True)
class CallChoice:
    """Programs for the same calls, and the ranges of the number of calls over which each one's total is the least."""

    programs: tuple[CallProgram, ...]
    ranges: tuple[CallRange, ...]

    def totals_ms(self, calls: int) -> dict[str, Any]:
        """P + r·T of every program."""
        return {p.name: p.total_ms(calls) for p in self.programs}

    def best(self, calls: int) -> str:
        """The program of the least total; of equal totals the one with the least preparation."""
        whole("best", "calls", calls, 1)
        return next(r.name for r in self.ranges if r.last is None or calls <= r.last)

    def crossover_calls(self, a: str, b: str) -> Any:
        """The r (not rounded) at which a's and b's totals are equal, (Pb - Pa) / (Ta - Tb); None where there is none above 0."""
        found = {p.name: p for p in self.programs}
        for name in (a, b):
            if name not in found:
                raise ResourceError(f"crossover_calls: no program {name!r}; programs: {', '.join(found)}")
        cost, gain = found[b].prepare_ms - found[a].prepare_ms, found[a].call_ms - found[b].call_ms
        return divide(cost, gain) if gain and divide(cost, gain) > 0 else None


def choose_program(programs: Sequence[CallProgram]) -> CallChoice:
    """The least of P + r·T for every whole number of calls r >= 1, as ranges with integer ends.

    Where totals are equal the program with less preparation stays. A program that is already cached has prepare_ms 0.
    ResourceError for no programs or names that repeat.
    """
    if not programs or len({p.name for p in programs}) != len(programs):
        raise ResourceError(f"choose_program: needs programs with different names, got {[p.name for p in programs]}")
    # ties: fewer ms of preparation, then fewer per call, then the order given (min is stable)
    at = min(programs, key=lambda p: (exact(p.prepare_ms) + exact(p.call_ms), p.prepare_ms, p.call_ms))
    first, ranges = 1, []
    while True:
        later = []
        for p in programs:
            gain = exact(at.call_ms) - exact(p.call_ms)
            if gain > 0:
                later.append((floor((exact(p.prepare_ms) - exact(at.prepare_ms)) / gain) + 1, p))
        if not later:
            return CallChoice(tuple(programs), (*ranges, CallRange(at.name, first, None)))
        r = min(n for n, _ in later)  # above `first`, as `at` is the least there
        after = min(
            (p for n, p in later if n <= r),
            key=lambda p: (exact(p.prepare_ms) + r * exact(p.call_ms), p.prepare_ms, p.call_ms),
        )
        ranges.append(CallRange(at.name, first, r - 1))
        at, first = after, r


@dataclass(frozen=True)
class Bucketed:
    """Calls padded to buckets. rows: as asked; padded_rows: as computed; calls: bucket → how many calls it serves."""

    rows: int
    padded_rows: int
    calls: Mapping[int, int]

    @property
    def extra(self) -> Fraction:
        """Padding as a share of the rows asked for: padded / rows - 1."""
        return Fraction(self.padded_rows, self.rows) - 1


def pad_to_buckets(calls: Mapping[int, int], buckets: Sequence[int]) -> Bucketed:
    """Serve each call (rows → how many such calls) by the smallest bucket that holds it.

    ResourceError where a call is larger than every bucket, or there are no calls.
    """
    if not calls or not buckets:
        raise ResourceError("pad_to_buckets: needs at least one call and one bucket")
    for bucket in buckets:
        whole("pad_to_buckets", "a bucket", bucket, 1)
    used: dict[int, int] = {}
    for rows, count in calls.items():
        whole("pad_to_buckets", "the rows of a call", rows, 1)
        whole("pad_to_buckets", f"the number of calls with {rows} rows", count, 1)
        fitting = [b for b in buckets if b >= rows]
        if not fitting:
            raise ResourceError(f"pad_to_buckets: a call of {rows} rows fits in no bucket; the largest is {max(buckets)}")
        used[min(fitting)] = used.get(min(fitting), 0) + count
    return Bucketed(sum(r * n for r, n in calls.items()), sum(b * n for b, n in used.items()), used)


def work_ms(flops: Any, tflops_per_s: Any) -> Any:
    """Milliseconds that `flops` operations take at a reached rate in TFLOP/s: flops / (rate·10^9)."""
    return divide(number("work_ms", "flops", flops), number("work_ms", "tflops_per_s", tflops_per_s, positive=True) * 10**9)


@dataclass(frozen=True)
class ShapeMix:
    """Microseconds of a whole mix. single_us: program → every shape served by it. dispatched_us: each shape by its fastest
    program (`picks`: shape → program), plus the cost of dispatching every call."""

    single_us: Mapping[str, Any]
    dispatched_us: Any
    picks: Mapping[str, str]

    @property
    def best(self) -> str:
        """The program of the least total, or "dispatch" where choosing per call is less than every single program."""
        name = min(self.single_us, key=lambda p: self.single_us[p])
        return "dispatch" if self.dispatched_us < self.single_us[name] else name


def shape_mix(weights: Mapping[str, Any], times_us: Mapping[str, Mapping[str, Any]], dispatch_us: Any = 0) -> ShapeMix:
    """Sum over the shapes of weight × time, per program and with a choice per call.

    weights: shape → number of calls, or share of them. times_us: program → shape → microseconds of a call. dispatch_us: what
    choosing costs, added to every call. ResourceError where a program lacks a shape, or for negative numbers.
    """
    if not weights or not times_us:
        raise ResourceError("shape_mix: needs at least one shape and one program")
    for shape, weight in weights.items():
        number("shape_mix", f"the weight of shape {shape!r}", weight)
    for name, by_shape in times_us.items():
        if missing := [s for s in weights if s not in by_shape]:
            raise ResourceError(f"shape_mix: program {name!r} has no time for {', '.join(map(repr, missing))}")
        for shape in weights:
            number("shape_mix", f"the time of program {name!r} at {shape!r}", by_shape[shape])
    number("shape_mix", "dispatch_us", dispatch_us)
    single = {p: sum(w * times[s] for s, w in weights.items()) for p, times in times_us.items()}
    picks = {s: min(times_us, key=lambda p: times_us[p][s]) for s in weights}
    dispatched = sum(w * (times_us[picks[s]][s] + dispatch_us) for s, w in weights.items())
    return ShapeMix(single, dispatched, picks)


def break_even_share(old_us: tuple[Any, Any], new_us: tuple[Any, Any]) -> Any:
    """The share p of the first of two shapes at which the old and the new program take equally long.

    old_us, new_us: (first shape, second shape).
    p·o1 + (1 - p)·o2 = p·n1 + (1 - p)·n2, so p = (n2 - o2) / ((n2 - o2) + (o1 - n1)).
    None where one program is nowhere slower than the other, so that no share between 0 and 1 balances.
    """
    for what, pair in (("old_us", old_us), ("new_us", new_us)):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ResourceError(f"break_even_share: {what} is a pair (first shape, second shape), got {pair!r}")
        for value in pair:
            number("break_even_share", what, value)
    loss, gain = new_us[1] - old_us[1], old_us[0] - new_us[0]
    return divide(loss, loss + gain) if loss * gain > 0 else None


def amortise_calls(spent_ms: Any, before_us: Any, after_us: Any) -> int | None:
    """How many calls pay for tuning or compiling: ceil(spent / (before - after)); None where a call doesn't get faster."""
    number("amortise_calls", "spent_ms", spent_ms)
    saved = exact(number("amortise_calls", "before_us", before_us)) - exact(number("amortise_calls", "after_us", after_us))
    return ceil(exact(spent_ms) * 1000 / saved) if saved > 0 else None


@dataclass(frozen=True)
class GenerationCalls:
    """Calls of one kernel that stands once in each layer, in a request of a language model: one prefill, then token by token."""

    prefill_calls: int
    decode_calls: int
    prefill_rows: int  # rows over all prefill calls
    decode_rows: int

    @property
    def calls(self) -> int:
        """All calls."""
        return self.prefill_calls + self.decode_calls

    @property
    def ratio(self) -> Fraction:
        """Decode calls per prefill call."""
        return Fraction(self.decode_calls, self.prefill_calls)


def generation_calls(layers: int, tokens_in: int, tokens_out: int) -> GenerationCalls:
    """The prefill reads all input tokens and gives the first output; every further output is a pass of one row per layer."""
    for what, value in (("layers", layers), ("tokens_in", tokens_in), ("tokens_out", tokens_out)):
        whole("generation_calls", what, value, 1)
    decode = layers * (tokens_out - 1)
    return GenerationCalls(layers, decode, layers * tokens_in, decode)
