"""What stands around kernels: launches, graph replay, persistent kernels, Amdahl's law and the critical path of dependent work.

Source of the formulas: public lecture material, recomputed in this project's ledger (tests/ledger).
Numbers may be ints, floats or Fractions; ints and Fractions stay exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import networkx as nx

from tilec.cost.calls import divide, number, whole
from tilec.errors import ResourceError


@dataclass(frozen=True)
class LaunchCounts:
    """`submissions`: calls by the host; `kernels`: kernels that the device runs."""

    submissions: int
    kernels: int


def launch_counts(kernels: int, runs: int, graph: bool = False) -> LaunchCounts:
    """`runs` runs of a chain of `kernels` kernels. A graph is submitted once per run, its kernels all run still."""
    whole("launch_counts", "kernels", kernels, 1)
    whole("launch_counts", "runs", runs, 1)
    return LaunchCounts(runs if graph else runs * kernels, runs * kernels)


@dataclass(frozen=True)
class HostBound:
    """Microseconds of a chain of kernels that the host launches one by one while the device runs.

    busy_us: the device's work and the gaps between kernels; host_us: the launches; threshold_us: a launch may take that long
    before the device waits.
    """

    busy_us: Any
    host_us: Any
    threshold_us: Any

    @property
    def step_us(self) -> Any:
        """The longer of the two."""
        return max(self.busy_us, self.host_us)

    @property
    def bound(self) -> str:
        """ "host" or "device"."""
        return "host" if self.host_us > self.busy_us else "device"


def host_bound(kernels: int, device_us: Any, launch_us: Any, gap_us: Any = 0) -> HostBound:
    """`kernels` launches of launch_us each (0: one graph replay) beside device_us of work and a gap_us per kernel.

    busy = device + kernels·gap; threshold = busy / kernels. The first launch, which nothing hides, is left out.
    """
    whole("host_bound", "kernels", kernels, 1)
    for what, value in (("device_us", device_us), ("launch_us", launch_us), ("gap_us", gap_us)):
        number("host_bound", what, value)
    busy = device_us + kernels * gap_us
    return HostBound(busy, kernels * launch_us, divide(busy, kernels))


@dataclass(frozen=True)
class CallTiming:
    """Microseconds of one asynchronous call by three clocks: around the submission, by device events, to the result."""

    submit_us: Any
    device_us: Any

    @property
    def result_us(self) -> Any:
        """Submission and device work, one after the other."""
        return self.submit_us + self.device_us


def call_timing(submit_us: Any, device_us: Sequence[Any]) -> CallTiming:
    """A submission, then the device's pieces (copies, kernels) in turn."""
    number("call_timing", "submit_us", submit_us)
    return CallTiming(submit_us, sum(number("call_timing", "device_us", t) for t in device_us))


@dataclass(frozen=True)
class GraphReplay:
    """Microseconds of a call. plain_us: launched kernel by kernel; copy_us: inputs copied to where the graph reads them;
    graph_us: the replay with that copy. break_even_bytes: below that many bytes of inputs the replay is faster (0: never)."""

    plain_us: Any
    graph_us: Any
    copy_us: Any
    break_even_bytes: Any

    @property
    def saved_us(self) -> Any:
        """plain - graph; negative where the copy costs more than the launches."""
        return self.plain_us - self.graph_us

    @property
    def speedup(self) -> Any:
        """plain / graph."""
        return divide(self.plain_us, self.graph_us)


def graph_replay(
    launch_us: Any, graph_launch_us: Any, device_us: Any, copied_bytes: Any = 0, bandwidth_gb_per_s: Any | None = None
) -> GraphReplay:
    """A graph replay (graph_launch_us + device_us + copy) against plain launches (launch_us + device_us).

    copied_bytes: inputs that must first be copied to the addresses the graph was captured with; the copy reads and writes
    each byte once: 2·bytes / (bandwidth·1000) microseconds. 0 where the producer writes there itself. break_even_bytes is then
    (launch - graph launch)·bandwidth·1000 / 2. ResourceError for bytes without a bandwidth.
    """
    for what, value in (("launch_us", launch_us), ("graph_launch_us", graph_launch_us), ("copied_bytes", copied_bytes)):
        number("graph_replay", what, value)
    number("graph_replay", "device_us", device_us, positive=True)
    copy, even = 0, None
    if bandwidth_gb_per_s is not None:
        per_us = number("graph_replay", "bandwidth_gb_per_s", bandwidth_gb_per_s, positive=True) * 1000
        copy = divide(2 * copied_bytes, per_us)
        even = divide(max(0, launch_us - graph_launch_us) * per_us, 2)
    elif copied_bytes:
        raise ResourceError(f"graph_replay: copying {copied_bytes} bytes takes a bandwidth_gb_per_s")
    return GraphReplay(launch_us + device_us, graph_launch_us + device_us + copy, copy, even)


@dataclass(frozen=True)
class Persistent:
    """Microseconds. separate_us: one launch per phase, phases in turn; persistent_us: one launch, blocks flow through the phases.

    saved_us = launches_us (launches not made) + hidden_us (work that overlaps) - overhead_us (of tasks, where not hidden).
    """

    separate_us: Any
    persistent_us: Any
    launches_us: Any
    hidden_us: Any
    overhead_us: Any
    task_us: tuple[Any, ...]  # a block's time in each phase, with its overhead

    @property
    def saved_us(self) -> Any:
        """separate - persistent; negative where the overhead is more than what is gained."""
        return self.separate_us - self.persistent_us

    @property
    def speedup(self) -> Any:
        """separate / persistent."""
        return divide(self.separate_us, self.persistent_us)


def persistent_kernel(phase_us: Sequence[Any], blocks: int, launch_us: Any, overhead_us: Any = 0) -> Persistent:
    """One persistent kernel against a launch per phase, where the phases use different units.

    phase_us: the time of one block in each phase. Separate launches don't overlap: phases·launch + blocks·Σ phase. Persistent: a
    block's task starts when the block has left the phase before and the phase's unit is free; overhead_us (queue, flags) is
    added to each task: launch + Σ task + (blocks - 1)·max task.
    """
    if not phase_us:
        raise ResourceError("persistent_kernel: needs at least one phase")
    for value in phase_us:
        number("persistent_kernel", "phase_us", value)
    number("persistent_kernel", "launch_us", launch_us)
    number("persistent_kernel", "overhead_us", overhead_us)
    whole("persistent_kernel", "blocks", blocks, 1)

    def flow(times: Sequence[Any]) -> Any:
        return sum(times) + (blocks - 1) * max(times)

    tasks = tuple(t + overhead_us for t in phase_us)
    work, overlapped = blocks * sum(phase_us), flow(phase_us)
    return Persistent(
        len(phase_us) * launch_us + work,
        launch_us + flow(tasks),
        (len(phase_us) - 1) * launch_us,
        work - overlapped,
        flow(tasks) - overlapped,
        tasks,
    )


@dataclass(frozen=True)
class Amdahl:
    """time: of the whole, as a share of the time before; speedup: its inverse; ceiling: speedup if the part took no time at all
    (None: without bound)."""

    time: Any
    speedup: Any
    ceiling: Any


def amdahl(share: Any, speedup: Any) -> Amdahl:
    """Amdahl's law: a part that takes `share` (0 to 1) of the time gets `speedup` times faster: time = 1 - f + f / s."""
    number("amdahl", "share", share)
    number("amdahl", "speedup", speedup, positive=True)
    if share > 1:
        raise ResourceError(f"amdahl: share is between 0 and 1, got {share!r}")
    time = 1 - share + divide(share, speedup)
    return Amdahl(time, divide(1, time), divide(1, 1 - share) if share < 1 else None)


@dataclass(frozen=True)
class CriticalPath:
    """`total_us`: from the first start to the last end. `path`: tasks of one longest chain. slack_us: how much longer a task may
    take before the total grows. floor_us: shortening a task below this no longer shortens the total (0: every bit helps;
    for a task off every longest chain: its present time)."""

    total_us: Any
    path: tuple[str, ...]
    slack_us: Mapping[str, Any]
    floor_us: Mapping[str, Any]


def critical_path(tasks_us: Mapping[str, Any], after: Mapping[str, Sequence[str]] | None = None) -> CriticalPath:
    """The longest chain through dependent tasks, each of which starts when all it waits for have ended.

    tasks_us: task → microseconds. after: task → the tasks it waits for. ResourceError for a cycle or an unknown task.
    """
    if not tasks_us:
        raise ResourceError("critical_path: needs at least one task")
    for task, value in tasks_us.items():
        number("critical_path", f"the time of {task!r}", value)
    graph = nx.DiGraph()
    graph.add_nodes_from(tasks_us)
    for task, earlier in (after or {}).items():
        if isinstance(earlier, str):
            raise ResourceError(f"critical_path: what {task!r} waits for is a list of tasks, got {earlier!r}")
        for name in (task, *earlier):
            if name not in tasks_us:
                raise ResourceError(f"critical_path: no task {name!r}; tasks: {', '.join(tasks_us)}")
        graph.add_edges_from((e, task) for e in earlier)
    try:
        order = list(nx.lexicographical_topological_sort(graph, key=list(tasks_us).index))
    except nx.NetworkXUnfeasible:
        cycle = " → ".join(a for a, _ in nx.find_cycle(graph))
        raise ResourceError(f"critical_path: the tasks {cycle} wait for each other") from None

    head: dict[str, Any] = {}  # the longest chain that ends before a task starts
    for task in order:
        head[task] = max((head[e] + tasks_us[e] for e in graph.predecessors(task)), default=0)
    tail: dict[str, Any] = {}  # the longest chain that starts after a task ends
    for task in reversed(order):
        tail[task] = max((tasks_us[n] + tail[n] for n in graph.successors(task)), default=0)
    through = {t: head[t] + tasks_us[t] + tail[t] for t in order}
    total = max(through.values())

    path = [max((t for t in order if graph.in_degree(t) == 0), key=lambda t: through[t])]
    while graph.out_degree(path[-1]):
        path.append(max(graph.successors(path[-1]), key=lambda t: tasks_us[t] + tail[t]))
    floor: dict[str, Any] = {}
    for task in order:
        without = _longest_without(graph, order, tasks_us, task)
        floor[task] = min(tasks_us[task], max(0, without - head[task] - tail[task]))
    return CriticalPath(total, tuple(path), {t: total - through[t] for t in order}, floor)


def _longest_without(graph: Any, order: Sequence[str], tasks_us: Mapping[str, Any], left_out: str) -> Any:
    ends: dict[str, Any] = {}
    for task in order:
        if task != left_out:
            ends[task] = tasks_us[task] + max((ends[e] for e in graph.predecessors(task) if e != left_out), default=0)
    return max(ends.values(), default=0)


@dataclass(frozen=True)
class PairedChange:
    """Milliseconds saved. of_medians: median before - median after; median_of: the median of the differences of the pairs.

    The two differ in general: a change is judged by the pairs.
    """

    of_medians_ms: Any
    median_of_ms: Any


def paired_change(before_ms: Sequence[Any], after_ms: Sequence[Any]) -> PairedChange:
    """Two series measured in pairs (run n before, run n after)."""
    if not before_ms or len(before_ms) != len(after_ms):
        raise ResourceError(f"paired_change: needs pairs, got {len(before_ms)} times before and {len(after_ms)} after")
    for value in (*before_ms, *after_ms):
        number("paired_change", "a time", value)
    pairs = zip(before_ms, after_ms, strict=True)
    return PairedChange(median(before_ms) - median(after_ms), median(b - a for b, a in pairs))


def limit_by_doubling(time_us: Any, doubled_us: Any, peak_share: Any, near: float = 0.7, same: float = 0.1) -> str:
    """What limits a call, from its time at a problem size and at twice the size: "overhead", "compute" or "memory".

    peak_share: reached share of the peak operations per second. Overhead: the time stays within `same` (10 %). Else compute
    where `peak_share` is at least `near` (70 %, what large products reach). Else memory. A rule of thumb, not a proof.
    """
    number("limit_by_doubling", "time_us", time_us, positive=True)
    number("limit_by_doubling", "doubled_us", doubled_us, positive=True)
    if number("limit_by_doubling", "peak_share", peak_share) > 1:
        raise ResourceError(f"limit_by_doubling: peak_share is between 0 and 1, got {peak_share!r}")
    if doubled_us <= time_us * (1 + same):
        return "overhead"
    return "compute" if peak_share >= near else "memory"
