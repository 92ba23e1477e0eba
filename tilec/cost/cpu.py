"""The time of a nest on a CPU: arithmetic and loads in the core, bytes between caches, memory, and what a parallel region costs.

A model for ranking schedules, from the tree and the rates of the target (`Target.rate`), in a few milliseconds:

core        every operation of a leaf takes its share of the multiply-add or multiply-and-add rate: one vector where a vector loop
            (or a plain innermost loop that a compiler can turn into vectors) carries it, one lane else. Elementary functions
            count by their steps. Loads and stores of what is not in registers take their share of the first cache's rate, two
            loads a cycle at most; in the loops over a tile in registers, which are written out, what does not move with one of
            them is loaded once. A sum that the innermost loop carries waits four cycles for each of its terms, divided among
            independent sums.
l2, l3,     bytes over the edge of each cache (`cpu_traffic`). A store that does not pass the caches reads first. Short runs of
global      neighbouring lines of memory wait where they start.
overhead    a call, a parallel region for each entry, barriers of a team.

The terms overlap, but not wholly: the highest counts fully, the others by `SPILL`. Extents that change with outer loops are taken
at sampled outer iterations. Everything is an estimate; the rates are measured where the target is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tilec.cost.cpu_traffic import ALIGNED, Cache, Traffic
from tilec.cost.cpu_tree import POINTS, Act, Builder, Nest, Values
from tilec.cost.operations import operations
from tilec.cost.time import Time
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES
from tilec.ir.functions import FUNCTIONS
from tilec.ir.program import APART_KINDS, Address, Guard, Leaf, Loop, Node, Program
from tilec.targets import Target

SPILL = 0.15  # of the terms below the highest one
LATENCY = 4.0  # cycles until a sum can be added to again
LOADS = 2.0  # a cycle, whatever their width (Zen 2 and later, Intel since Sandy Bridge)
MISSES = 24  # lines that a core waits for at a time (Zen 3 and 4: AMD, Hot Chips 33)
STARTED = 0.5  # of the latency of memory is not hidden where a run of neighbouring lines starts: fitted to Zen 4
NARROW = 0.7  # of a full vector's time for a narrower one, where full ones are two halves in the core: fitted to Zen 4
# operations that one rounding to a storage type takes, about (the sequences of the C backend)
CONVERT = {"bf16": 6.0, "f16": 2.0, "f8e4m3": 14.0, "f8e5m2": 14.0, "i8": 5.0, "i32": 4.0, "f32": 1.0, "f64": 1.0}
COSTLY = {"div": 5.0, "sqrt": 6.0, "minmax": 4.0, "convert": 4.0}
PARALLEL = tuple(k for k in APART_KINDS if k != "vector")


@dataclass(frozen=True)
class CpuTime(Time):
    """Terms in seconds by name; they overlap but for a share. moved: bytes to and from memory."""

    moved: float = 0.0


def combined(terms: Mapping[str, float]) -> float:
    """Seconds: the highest term, a share of the others, and the overhead whole."""
    named = dict(terms)
    overhead = named.pop("overhead", 0.0)
    highest = max(named.values(), default=0.0)
    return highest + SPILL * (sum(named.values()) - highest) + overhead


@dataclass(frozen=True)
class _Rates:
    """Seconds of one vector's operation, of moving a byte over each edge, and of the rest; for one thread of `threads`."""

    machine: Target
    threads: int

    def operation(self, dtype: str, fused: bool) -> float:
        """One vector operation of the arithmetic type (half a multiply-add)."""
        kind = "f64" if dtype == "f64" else "f32"
        lanes = self.machine.vector_bytes // (8 if kind == "f64" else 4)
        name = f"fma_{kind}" if fused or not self.machine.has_rate(f"mul_add_{kind}") else f"mul_add_{kind}"
        return lanes * self.threads / self.machine.rate(name, self.threads)

    def byte(self, level: str) -> float:
        """Seconds a byte of one thread takes from that level, while all threads ask."""
        return self.threads / self.machine.rate(level, self.threads)

    def stored(self, streaming: bool) -> float:
        """Seconds of a written byte to memory, from a copy's rate less its read."""
        name = "copy_stream" if streaming and self.machine.has_rate("copy_stream") else "copy"
        read = 1 / self.machine.rate("read", self.threads)
        return self.threads * max(2 / self.machine.rate(name, self.threads) - read, 0.2 * read)


def cpu_time(
    program: Program, nest: Node, machine: Target, sizes: Mapping[str, int], threads: int | None = None, *, first: bool = True
) -> CpuTime:
    """One top-level nest at numbers for all sizes, on so many threads (default: the cores of the target). first: count the
    call."""
    model = _Model(program, machine, sizes, threads or machine.cores)
    found = model.time(nest)
    if not first or not machine.has_rate("call"):
        return found
    call = machine.rate("call")
    terms = tuple((n, t + call if n == "overhead" else t) for n, t in found.terms)
    return replace(found, seconds=found.seconds + call, terms=terms, high=found.high + call)


def program_time(program: Program, machine: Target, sizes: Mapping[str, int], threads: int | None = None) -> tuple[float, float]:
    """(seconds, bytes to and from memory) of all nests one after the other."""
    times = [
        cpu_time(program, node, machine, sizes, threads, first=n == 0)
        for n, node in enumerate(program.body)
        if isinstance(node, Loop | Guard)
    ]
    return sum(t.seconds for t in times), sum(t.moved for t in times)


class _Model:
    def __init__(self, program: Program, machine: Target, sizes: Mapping[str, int], threads: int) -> None:
        self.program, self.machine, self.sizes, self.threads = program, machine, dict(sizes), threads
        self.line = machine.figure["line"].integer if "line" in machine.figure else 64
        self.lanes_of = {n: machine.vector_bytes // DTYPES[DTYPES[d].arithmetic].bytes for n, d in self._dtypes().items()}

    def _dtypes(self) -> dict[str, str]:
        return {b.name: b.dtype for b in self.program.buffers}

    def time(self, node: Node) -> CpuTime:
        top = Builder(self.program, self.sizes).tree(node)
        traffic = Traffic(self.program, self.sizes, self.line)
        count, used, regions, barriers = self._parallel(top)
        rates = _Rates(self.machine, used)
        work = self._core(top, np.ones(POINTS), rates)
        shares = _busiest(count, used, float(np.max(work)) / max(float(np.mean(work)), 1e-30))
        terms = {"compute": float(np.mean(work)) * shares}
        figure = self.machine.figure
        levels = [("l2", "l1", "read_l2"), ("l3", "l2", "read_l3")] if "l3" in figure else [("l2", "l1", "read_l2")]
        last = "l3" if "l3" in figure else "l2"
        for name, cache, rate in levels:
            if cache in figure:
                read, written, _ = traffic.of(top, Cache(figure[cache].value, self._ways(cache)))
                terms[name] = float(np.mean(read + written)) * shares * rates.byte(rate)
        capacity = figure[last].value * (1.0 if last == "l2" else 0.9)
        share = capacity if last == "l2" or used == 1 else capacity / used
        start = self._latency() * self.machine.rate("read", used) / used
        far = Cache(share, start=STARTED * start, slowest=max(1.0, start / (self.line * MISSES / STARTED)))
        read, written, past = traffic.of(top, far)
        seconds = (read - written) * rates.byte("read") + written * rates.stored(False) + past * rates.stored(True)
        terms["global"] = float(np.mean(seconds)) * shares
        overhead = regions * self.machine.rate("region", used) if used > 1 else 0.0
        overhead += barriers * self.machine.rate("barrier", used) if used > 1 and self.machine.has_rate("barrier") else 0.0
        ordered = (*sorted(terms.items(), key=lambda t: -t[1]), ("overhead", overhead))
        low, high = max(terms.values()), sum(terms.values()) + overhead
        return CpuTime(combined(dict(ordered)), ordered, low, high, moved=float(np.mean(read + written + past)))

    def _latency(self) -> float:
        return self.machine.figure["dram_latency"].value if "dram_latency" in self.machine.figure else 0.0

    def _ways(self, cache: str) -> float:
        found = self.machine.figure.get(f"{cache}_ways")
        return found.value if found is not None else float("inf")

    def _parallel(self, top: Nest) -> tuple[float, int, float, float]:
        """(iterations that the threads share, threads used, regions entered, barriers)."""
        count = width = 1.0
        regions = barriers = 0.0

        def go(nest: Nest, entries: Values, team: bool) -> None:
            nonlocal count, width, regions, barriers
            for child in nest.children:
                if not isinstance(child, Nest):
                    continue
                if child.kind in PARALLEL:
                    extent, inner = child.extent, child
                    while len(inner.children) == 1 and isinstance(inner.children[0], Nest) and inner.children[0].kind in PARALLEL:
                        inner = inner.children[0]
                        extent = extent * inner.extent
                    n = max(float(np.mean(extent)), 1.0)
                    used = min(self.threads, n)
                    width = max(width, used)
                    count = max(count, n)
                    entered = float(np.mean(entries))
                    regions, barriers = (regions, barriers + entered) if team else (regions + entered, barriers)
                else:
                    go(child, entries * child.extent, team or child.kind == "team")

        go(top, np.ones(POINTS), False)
        return count, max(1, int(width)), regions, barriers

    # -- in the core -----------------------------------------------------------------------------------------------------------

    def _core(self, nest: Nest, entries: Values, rates: _Rates) -> Values:
        total = np.zeros(POINTS)
        for child in nest.children:
            if isinstance(child, Nest):
                total = total + self._core(child, entries * child.extent, rates)
            else:
                total = total + entries * self._act(child, rates)
        return total

    def _act(self, act: Act, rates: _Rates) -> Values:
        """Seconds of one execution of an action: of one lane where it runs in vectors."""
        lanes, exact = self._lanes(act)
        work = loads = 0.0
        action = act.action
        fused = self.program.contract
        for key, n in operations(self.program, action).items():
            cost = rates.operation(key.dtype, fused and key.kind in ("add", "mul"))
            if key.kind in FUNCTIONS:
                steps = FUNCTIONS[key.kind].counts
                work += n * cost * sum(c * COSTLY.get(kind, 1.0) for kind, c in steps.items())
            elif key.kind == "convert" and isinstance(action, Leaf):
                target = self.program.source.buffer[self.program.statement[action.statement].target.buffer].dtype
                work += n * cost * CONVERT[target]
            else:
                work += n * cost * COSTLY.get(key.kind, 1.0)
        if lanes <= self._width(act) / 2:
            work *= self._narrow()
        byte, slot = rates.byte("read_l1"), 1 / (LOADS * self.machine.figure["clock"].value)
        tile = self._written_out(act)
        for address, write, past in act.touched:
            b = self.program.buffer[address.buffer]
            vector = lanes > 1 and self._moves(act, address)
            wide = self.machine.vector_bytes if vector else DTYPES[b.dtype].bytes
            lines = 1.0 + wide / self.line if vector and b.role == "param" else 1.0
            names = frozenset[str]().union(*(e.names for e in address.index))
            again = 1.0
            for nest in tile:
                if nest.var not in names:
                    again *= float(np.max(nest.extent)) / (lanes if nest.kind == "vector" else 1.0)
            if past and b.role == "param" and wide > ALIGNED:  # in pieces: each is taken out of the vector and stored
                work += wide / ALIGNED * (rates.operation("f32", True) + 1 / self.machine.figure["clock"].value)
            loads += lines * max(wide * byte, slot) * (2.0 if write else 1.0) / max(again, 1.0)
        seconds = np.full(POINTS, max(work, loads) / lanes * (1.0 if exact else 1.3))
        return np.maximum(seconds, self._waits(act, lanes))

    def _written_out(self, act: Act) -> list[Nest]:
        """The inner loops over a tile in registers, each iteration of which has instructions of its own."""
        if not isinstance(act.action, Leaf) or self.program.buffer[act.action.target.buffer].memory != "register":
            return []
        names = frozenset[str]().union(*(e.names for e in act.action.target.index))
        out: list[Nest] = []
        for nest in reversed(act.loops):
            if nest.var not in names:
                break
            out.append(nest)
        return out

    def _lanes(self, act: Act) -> tuple[float, bool]:
        """(how many executions one vector does, is that what the schedule says)."""
        widest = self._width(act)
        for nest in reversed(act.loops):
            if nest.kind == "vector":
                extent = max(float(np.max(nest.extent)), 1.0)
                return min(extent, extent / np.ceil(extent / widest)), True
        inner = act.loops[-1]
        if inner.kind in ("serial", "unrolled", *PARALLEL) and self._plain(act, inner.var):
            extent = max(float(np.max(inner.extent)), 1.0)
            return min(float(widest), extent), False
        return 1.0, True

    def _narrow(self) -> float:
        """Of a full vector's time, for one of half the width or less."""
        full = self.machine.rate("fma_f32", 1) / (2 * self.machine.vector_bytes // 4) / self.machine.figure["clock"].value
        return NARROW if full < 1.5 else 1.0

    def _width(self, act: Act) -> float:
        """Lanes of a vector of the widest arithmetic in the action."""
        names = [a.buffer for a, _, _ in act.touched]
        return float(min((self.lanes_of[n] for n in names), default=self.machine.vector_bytes // 4))

    def _plain(self, act: Act, var: str) -> bool:
        """Could a compiler run this loop in vectors: every access along the last dimension by one, or not at all; no sum over
        it?"""
        for address, write, _ in act.touched:
            *rest, last = address.index or (Aff(0),)
            if any(var in e.names for e in rest) or last.coefficient(var) not in (0, 1):
                return False
            if write and last.coefficient(var) == 0:
                return False
        return bool(act.touched)

    def _moves(self, act: Act, address: Address) -> bool:
        """Does the vector loop step through the buffer (else one element is spread over the lanes)?"""
        var = next((n.var for n in reversed(act.loops) if n.kind == "vector"), act.loops[-1].var)
        return any(var in e.names for e in address.index)

    def _waits(self, act: Act, lanes: float) -> Values:
        """Seconds that a term of a sum waits for the one before, shared among the sums that are independent of it."""
        action = act.action
        if not isinstance(action, Leaf) or self.program.statement[action.statement].op == "=":
            return np.zeros(POINTS)
        names = frozenset[str]().union(*(e.names for e in action.target.index))
        independent = np.ones(POINTS)
        for nest in reversed(act.loops):
            if nest.var not in names and nest.kind not in PARALLEL:
                break
            independent = independent * np.maximum(nest.extent, 1.0)
        return LATENCY / self.machine.figure["clock"].value / np.maximum(independent, 1.0)


def _busiest(count: float, threads: int, longest: float) -> float:
    """The share of the work that the busiest thread has, of `count` iterations; longest: of them, relative to the mean. In equal
    chunks one thread may have the longest iterations only; given out one by one, it has one more than its part."""
    if threads == 1:
        return 1.0
    chunks = float(np.ceil(count / threads)) / count * longest
    single = 1 / threads + (1 - 1 / threads) * longest / count
    return min(chunks, single, 1.0) if longest > 1 else float(np.ceil(count / threads)) / count
