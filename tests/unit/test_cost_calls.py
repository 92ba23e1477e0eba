"""Decisions over calls, launches and dependent work: closed forms against plain enumeration, ties, edges, and what is refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilec
from tilec.cost.calls import CallProgram, choose_program, pad_to_buckets, shape_mix
from tilec.cost.graph import critical_path, graph_replay, persistent_kernel
from tilec.errors import ResourceError

SMALL = st.integers(0, 12)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.tuples(SMALL, SMALL), min_size=1, max_size=4))
def test_ranges_are_the_least_totals(pairs: list[tuple[int, int]]):
    programs = [CallProgram(str(n), *pair) for n, pair in enumerate(pairs)]
    choice = choose_program(programs)
    assert choice.ranges[0].first == 1 and choice.ranges[-1].last is None
    assert all(b.first == (a.last or 0) + 1 for a, b in zip(choice.ranges, choice.ranges[1:], strict=False))
    for r in range(1, 30):
        least = min(p.total_ms(r) for p in programs)
        name = choice.best(r)
        assert choice.totals_ms(r)[name] == least
        tied = [p.prepare_ms for p in programs if p.total_ms(r) == least]
        assert next(p for p in programs if p.name == name).prepare_ms == min(tied)


def test_a_tie_keeps_the_program_with_less_preparation():
    choice = choose_program([CallProgram("a", 0, 2), CallProgram("b", 10, 1)])  # equal at 10 calls
    assert choice.crossover_calls("a", "b") == 10 and choice.best(10) == "a" and choice.best(11) == "b"
    assert choice.crossover_calls("a", "a") is None
    assert choose_program([CallProgram("a", 0, 1), CallProgram("b", 5, 2)]).crossover_calls("a", "b") is None


def test_averages():
    p = CallProgram("p", 100, 1)
    assert p.calls_to_average(Fraction("1.01")) == 10000 and p.calls_to_average(1) is None
    assert p.average_ms(10000) == Fraction("1.01") < p.average_ms(9999)
    assert CallProgram("cached", 0, 1).calls_to_average(1) == 1
    assert tilec.amortise_calls(1, 30, 20) == 100 and tilec.amortise_calls(1, 20, 20) is None
    assert CallProgram("p", 100.0, np.float32(1)).calls_to_average(2) == 100


def test_buckets():
    b = pad_to_buckets({1: 2, 16: 1, 17: 1}, (16, 64))
    assert (b.rows, b.padded_rows, b.calls, b.extra) == (35, 112, {16: 3, 64: 1}, Fraction(112, 35) - 1)


def test_dispatch_pays_only_while_it_is_cheap():
    times = {"old": {"s": 10, "l": 10}, "new": {"s": 5, "l": 20}}
    for dispatch, best in ((0, "dispatch"), (2, "dispatch"), (2.5, "old"), (3, "old")):
        m = shape_mix({"s": 1, "l": 1}, times, dispatch)
        assert (m.dispatched_us, m.best, m.picks) == (15 + 2 * dispatch, best, {"s": "new", "l": "old"})
    p = tilec.break_even_share((10, 10), (5, 20))
    assert len(set(shape_mix({"s": p, "l": 1 - p}, times).single_us.values())) == 1
    assert tilec.break_even_share((10, 10), (5, 9)) is None


def test_replay_breaks_even_at_its_bytes():
    even = graph_replay(20, 5, 20, 0, 1792).break_even_bytes
    assert graph_replay(20, 5, 20, even, 1792).saved_us == 0
    assert graph_replay(20, 5, 20, even + 1, 1792).saved_us < 0
    assert graph_replay(5, 20, 20, 0, 1792).break_even_bytes == 0
    assert graph_replay(20, 5, 20).break_even_bytes is None and graph_replay(20, 5, 20).speedup == Fraction(8, 5)


@pytest.mark.parametrize(("a", "b", "blocks"), list(product((0, 1, 5), (2, 5, 7), (1, 2, 9))))
def test_two_phases_flow_like_a_pipeline_with_a_slot_per_block(a: int, b: int, blocks: int):
    p = persistent_kernel((a, b), blocks, launch_us=3, overhead_us=1)
    assert p.persistent_us == 3 + tilec.pipeline_time(a + 1, b + 1, blocks, blocks).time
    assert p.saved_us == p.launches_us + p.hidden_us - p.overhead_us


def test_amdahl():
    a = tilec.amdahl(Fraction(1, 5), 2)
    assert (a.time, a.speedup, a.ceiling) == (Fraction(9, 10), Fraction(10, 9), Fraction(5, 4))
    assert tilec.amdahl(1, 4).ceiling is None and tilec.amdahl(0, 4).speedup == 1


@st.composite
def work(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, list[str]]]:
    n = draw(st.integers(1, 6))
    tasks = {str(k): draw(SMALL) for k in range(n)}
    return tasks, {str(k): [str(e) for e in range(k) if draw(st.booleans())] for k in range(n)}


@settings(deadline=None, max_examples=100)
@given(work())
def test_slack_and_floor_are_what_they_say(drawn: tuple[dict[str, int], dict[str, list[str]]]):
    tasks, after = drawn
    c = critical_path(tasks, after)

    def total(task: str, us: int) -> int:
        ends: dict[str, int] = {}  # names are in an order in which the tasks can run
        for t, needed in after.items():
            ends[t] = max((ends[e] for e in needed), default=0) + (us if t == task else tasks[t])
        return max(ends.values())

    assert sum(tasks[t] for t in c.path) == c.total_us == total("", 0)
    assert all(a in after[b] for a, b in zip(c.path, c.path[1:], strict=False))
    for t, now in tasks.items():
        assert total(t, now + c.slack_us[t]) == c.total_us < total(t, now + c.slack_us[t] + 1)
        assert total(t, c.floor_us[t]) == total(t, 0)
        if c.floor_us[t] < now:
            assert total(t, c.floor_us[t] + 1) > total(t, c.floor_us[t])


def test_the_host_waits_from_the_threshold_on():
    t = tilec.host_bound(4, 10, 0, gap_us=1).threshold_us
    at, above = tilec.host_bound(4, 10, t, 1), tilec.host_bound(4, 10, t + 1, 1)
    assert (t, at.bound, at.step_us, above.bound, above.step_us) == (Fraction(7, 2), "device", 14, "host", 18)


def test_medians_of_pairs():
    change = tilec.paired_change([10, 12, 20], [9, 13, 17])
    assert (change.of_medians_ms, change.median_of_ms) == (-1, 1)


def test_what_limits():
    limit = tilec.limit_by_doubling
    assert (limit(100, 105, 0.9), limit(100, 200, 0.9), limit(100, 200, 0.2)) == ("overhead", "compute", "memory")


def test_whole_numbers_of_numpy_count():
    assert tilec.generation_calls(np.int64(2), 5, 3).calls == 6
    assert tilec.launch_counts(np.int32(6), 3).submissions == 18


BAD: dict[str, Callable[[], Any]] = {
    "prepare_ms of 'p' must not be negative, got -1": lambda: CallProgram("p", -1, 1),
    "call_ms of 'p' must be a number up to 1e+30, got nan": lambda: CallProgram("p", 1, math.nan),
    "call_ms of 'p' must be a number up to 1e+30, got True": lambda: CallProgram("p", 1, True),
    "calls must be a whole number of at least 1, got 0": lambda: CallProgram("p", 1, 1).average_ms(0),
    "needs programs with different names": lambda: choose_program([CallProgram("p", 1, 1)] * 2),
    "needs programs with different names, got []": lambda: choose_program([]),
    "no program 'q'; programs: p": lambda: choose_program([CallProgram("p", 1, 1)]).crossover_calls("p", "q"),
    "a call of 65 rows fits in no bucket; the largest is 64": lambda: pad_to_buckets({65: 1}, (64,)),
    "at least one call and one bucket": lambda: pad_to_buckets({}, (64,)),
    "the rows of a call must be a whole number of at least 1, got 1.5": lambda: pad_to_buckets({1.5: 1}, (64,)),  # type: ignore
    "tflops_per_s must be above 0, got 0": lambda: tilec.work_ms(1, 0),
    "program 'p' has no time for 'l'": lambda: shape_mix({"s": 1, "l": 1}, {"p": {"s": 1}}),
    "the weight of shape 's' must not be negative": lambda: shape_mix({"s": -1}, {"p": {"s": 1}}),
    "dispatch_us must be a number up to 1e+30, got inf": lambda: shape_mix({"s": 1}, {"p": {"s": 1}}, math.inf),
    "new_us must not be negative": lambda: tilec.break_even_share((1, 1), (1, -1)),
    "spent_ms must be a number up to 1e+30, got 'a'": lambda: tilec.amortise_calls("a", 1, 1),
    "tokens_out must be a whole number of at least 1, got 0": lambda: tilec.generation_calls(1, 1, 0),
    "kernels must be a whole number of at least 1, got 0": lambda: tilec.launch_counts(0, 1),
    "gap_us must not be negative, got -1": lambda: tilec.host_bound(1, 1, 1, -1),
    "submit_us must not be negative": lambda: tilec.call_timing(-3, [1]),
    "copying 8 bytes takes a bandwidth_gb_per_s": lambda: graph_replay(20, 5, 20, 8),
    "bandwidth_gb_per_s must be above 0, got 0": lambda: graph_replay(20, 5, 20, 8, 0),
    "needs at least one phase": lambda: persistent_kernel([], 1, 1),
    "blocks must be a whole number of at least 1, got 0": lambda: persistent_kernel([1, 1], 0, 1),
    "share is between 0 and 1, got 1.5": lambda: tilec.amdahl(1.5, 2),
    "speedup must be above 0, got 0": lambda: tilec.amdahl(0.5, 0),
    "needs at least one task": lambda: critical_path({}),
    "no task 'c'; tasks: a, b": lambda: critical_path({"a": 1, "b": 1}, {"b": ["c"]}),
    "what 'b' waits for is a list of tasks, got 'a'": lambda: critical_path({"a": 1, "b": 1}, {"b": "a"}),
    "the tasks a → b wait for each other": lambda: critical_path({"a": 1, "b": 1}, {"a": ["b"], "b": ["a"]}),
    "the time of 'a' must be a number up to 1e+30, got nan": lambda: critical_path({"a": math.nan}),
    "needs pairs, got 1 times before and 2 after": lambda: tilec.paired_change([1], [1, 2]),
    "time_us must be above 0, got 0": lambda: tilec.limit_by_doubling(0, 1, 0.5),
    "peak_share is between 0 and 1, got 2": lambda: tilec.limit_by_doubling(1, 2, 2),
}


@pytest.mark.parametrize("text", BAD)
def test_bad_input(text: str):
    with pytest.raises(ResourceError) as e:
        BAD[text]()
    assert text in str(e.value)
