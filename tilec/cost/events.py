"""Work of several agents that wait for each other's events: when each step runs, who waits for whom, and where all are stuck.

An event is a name and how often it must have happened, as a barrier with phases: `full[0]` once, `full[0]` twice, … A step starts
when the agent's step before has ended and every event that it waits for has happened often enough; it signals when it ends.
The two-agent pipeline over slots has one `full` and one `empty` event per slot: the copy waits for `empty` (back-pressure), the
computation for `full`; its time equals the closed form of cost/pipeline.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilec.cost.calls import number, whole
from tilec.errors import ResourceError

Event: TypeAlias = tuple[str, int]  # (name, the how-manieth time)


@dataclass(frozen=True)
class EventStep:
    """One piece of an agent's work: how long it takes, what it waits for, the names it signals when it ends."""

    name: str
    duration: Any
    waits: tuple[Event, ...] = ()
    signals: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ran:
    """When a step ran; `waited` is how long the agent stood idle before it, `on` the event it waited for last (None: no wait)."""

    agent: str
    step: str
    start: Any
    end: Any
    waited: Any
    on: str | None


@dataclass(frozen=True)
class Timeline:
    """Every step in the order of each agent; time: until the last one ends; events: the names in use."""

    steps: tuple[Ran, ...]
    events: tuple[str, ...]

    @property
    def time(self) -> Any:
        """Until the last step ends."""
        return max((s.end for s in self.steps), default=0)

    def of(self, agent: str) -> tuple[Ran, ...]:
        """The steps of one agent."""
        return tuple(s for s in self.steps if s.agent == agent)

    def waited(self, agent: str) -> Any:
        """How long an agent stood idle for events."""
        return sum((s.waited for s in self.of(agent)), 0)


def run_events(agents: Mapping[str, Sequence[EventStep]]) -> Timeline:
    """Run every agent's steps in order. ResourceError names a deadlock: which agent waits where for which event, how often it has
    happened, and who would have to signal it; also for durations that are no numbers."""
    signalled: dict[str, list[Any]] = {}
    at = dict.fromkeys(agents, 0)
    clock: dict[str, Any] = dict.fromkeys(agents, 0)
    ran: dict[str, list[Ran]] = {a: [] for a in agents}
    for steps in agents.values():
        for s in steps:
            number("run_events", f"the duration of {s.name!r}", s.duration)
    moved = True
    while moved:
        moved = False
        for agent, steps in agents.items():
            while at[agent] < len(steps):
                step = steps[at[agent]]
                if any(len(signalled.get(name, ())) < times for name, times in step.waits):
                    break
                ready = [(signalled[name][times - 1], name) for name, times in step.waits if times > 0]
                start, on = max(ready, key=lambda r: r[0], default=(0, None))
                waited = max(start - clock[agent], 0)
                start = max(start, clock[agent])
                clock[agent] = start + step.duration
                ran[agent].append(Ran(agent, step.name, start, clock[agent], waited, on if waited else None))
                for name in step.signals:
                    signalled.setdefault(name, []).append(clock[agent])
                    signalled[name].sort()
                at[agent] += 1
                moved = True
    if any(at[a] < len(steps) for a, steps in agents.items()):
        raise ResourceError(_stuck(agents, at, signalled))
    names = dict.fromkeys(n for steps in agents.values() for s in steps for n in (*(w for w, _ in s.waits), *s.signals))
    return Timeline(tuple(s for found in ran.values() for s in found), tuple(names))


def _stuck(agents: Mapping[str, Sequence[EventStep]], at: Mapping[str, int], signalled: Mapping[str, list[Any]]) -> str:
    lines = ["run_events: deadlock."]
    for agent, steps in agents.items():
        if at[agent] == len(steps):
            continue
        step = steps[at[agent]]
        for name, times in step.waits:
            have = len(signalled.get(name, ()))
            if have >= times:
                continue
            left = [(a, s.name) for a, rest in agents.items() for s in rest[at[a] :] if name in s.signals]
            who = f"the next signal is {left[0][0]}'s {left[0][1]!r}, which does not run" if left else "nothing signals it again"
            lines.append(f"  {agent} waits at {step.name!r} for {name!r}, time {times} (it happened {have} times): {who}")
    return "\n".join(lines)


def pipeline_steps(copy: Any, compute: Any, blocks: int, slots: int = 2) -> dict[str, list[EventStep]]:
    """A copy engine and a compute unit over `slots` slots: block n fills slot n mod slots when it is empty, and is computed when
    it is full. Durations as of `pipeline_time`, in any one unit."""
    whole("pipeline_steps", "blocks", blocks, 1)
    whole("pipeline_steps", "slots", slots, 1)
    copies: list[EventStep] = []
    computes: list[EventStep] = []
    for n in range(blocks):
        slot, times = n % slots, n // slots
        waits: tuple[Event, ...] = ((f"empty[{slot}]", times),) if times else ()
        copies.append(EventStep(f"copy {n}", _of(copy, n), waits, (f"full[{slot}]",)))
        computes.append(EventStep(f"compute {n}", _of(compute, n), ((f"full[{slot}]", times + 1),), (f"empty[{slot}]",)))
    return {"copy": copies, "compute": computes}


def _of(value: Any, n: int) -> Any:
    return value[n] if isinstance(value, Sequence) else value
