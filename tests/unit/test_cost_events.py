"""Agents that wait for events: equal to the closed form of the pipeline, back-pressure, and deadlocks by name."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tilec.cost.events import EventStep, pipeline_steps, run_events
from tilec.cost.pipeline import pipeline_formula, pipeline_time
from tilec.errors import ResourceError


@pytest.mark.parametrize("slots", [1, 2, 3, 5])
@pytest.mark.parametrize(("copy", "compute"), [(3, 7), (7, 3), (5, 5), (0, 4)])
def test_equal_blocks_take_the_closed_form(copy: int, compute: int, slots: int) -> None:
    for blocks in (1, 2, 3, 10):
        found = run_events(pipeline_steps(copy, compute, blocks, slots))
        assert found.time == pipeline_formula(copy, compute, blocks, slots) == pipeline_time(copy, compute, blocks, slots).time


def test_unequal_blocks_are_those_of_the_recurrence() -> None:
    rng = random.Random(0)
    for _ in range(200):
        blocks, slots = rng.randint(1, 12), rng.randint(1, 4)
        copies, computes = ([rng.randint(0, 9) for _ in range(blocks)] for _ in range(2))
        found = run_events(pipeline_steps(copies, computes, blocks, slots))
        other = pipeline_time(copies, computes, blocks, slots)
        assert [(s.start, s.end) for s in found.of("copy")] == list(other.copies)
        assert [(s.start, s.end) for s in found.of("compute")] == list(other.computes)


def test_back_pressure() -> None:
    """A fast copy fills both slots and then waits for each to be emptied: the waits are the copy's, and named."""
    found = run_events(pipeline_steps(1, 10, 5, 2))
    assert [(s.waited, s.on) for s in found.of("copy")] == [
        (0, None),
        (0, None),
        (9, "empty[0]"),
        (9, "empty[1]"),
        (9, "empty[0]"),
    ]
    assert found.waited("compute") == 1  # the first copy
    assert found.events == ("full[0]", "full[1]", "empty[0]", "empty[1]")


def test_a_missing_event_is_a_deadlock() -> None:
    agents = pipeline_steps(1, 1, 4, 2)
    silent = [replace(s, signals=()) if s.name == "compute 1" else s for s in agents["compute"]]
    with pytest.raises(ResourceError) as e:
        run_events({**agents, "compute": silent})
    assert str(e.value) == (
        "run_events: deadlock.\n"
        "  copy waits at 'copy 3' for 'empty[1]', time 1 (it happened 0 times): "
        "the next signal is compute's 'compute 3', which does not run\n"
        "  compute waits at 'compute 3' for 'full[1]', time 2 (it happened 1 times): "
        "the next signal is copy's 'copy 3', which does not run"
    )
    with pytest.raises(ResourceError, match="nothing signals it again"):
        run_events({"a": [EventStep("work", 1, (("never", 1),))]})


def test_three_agents() -> None:
    """Load, compute, store over one slot each: the store of block 0 frees nothing that the load needs."""
    load = [EventStep(f"load {n}", 2, ((("in empty", n),) if n else ()), ("in full",)) for n in range(3)]
    work = [EventStep(f"work {n}", 3, (("in full", n + 1), ("out empty", n)), ("in empty", "out full")) for n in range(3)]
    store = [EventStep(f"store {n}", 4, (("out full", n + 1),), ("out empty",)) for n in range(3)]
    found = run_events({"load": load, "work": work, "store": store})
    assert [s.end for s in found.of("store")] == [9, 16, 23]


def test_durations_are_checked() -> None:
    with pytest.raises(ResourceError, match="the duration of 'copy 0' must not be negative"):
        run_events(pipeline_steps(-1, 1, 2))
    with pytest.raises(ResourceError, match="slots must be a whole number of at least 1"):
        pipeline_steps(1, 1, 2, 0)
