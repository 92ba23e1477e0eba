"""The time of a nest on a CPU: arithmetic and loads in the core, bytes between caches, memory, and what a parallel region costs.

A model for ranking schedules, from the tree and the rates of the target (`Target.rate`), in a few milliseconds:

core        every operation of a leaf takes its share of the multiply-add or multiply-and-add rate: one vector where a vector loop
            (or a plain innermost loop that a compiler can turn into vectors) carries it, one lane else. Elementary functions
            count by their steps. Loads and stores of what is not in registers take their share of the first cache's rate. A sum
            that the innermost loop carries waits four cycles for each of its terms, divided among independent sums.
l2, l3,     bytes over the edge of each cache: of a nest that fits, its footprint once; of a loop whose body fits, the union of
its global      iterations; of another one, its body's bytes for each iteration. A store that does not pass the caches reads
first. overhead    a call, a parallel region for each entry, barriers of a team.

The terms overlap, but not wholly: the highest counts fully, the others by `SPILL`. Extents that change with outer loops are taken
at sampled outer iterations. Everything is an estimate; the rates are measured where the target is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, Union

import numpy as np

from tilec.cost.operations import operations
from tilec.cost.time import Time
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES
from tilec.ir.functions import FUNCTIONS
from tilec.ir.program import APART_KINDS, Action, Address, Copy, Guard, Inline, Leaf, Loop, Node, Program, Read
from tilec.targets import Target

POINTS = 16  # sampled iterations of outer loops
SPILL = 0.15  # of the terms below the highest one
LATENCY = 4.0  # cycles until a sum can be added to again
# operations that one rounding to a storage type takes, about (the sequences of the C backend)
CONVERT = {"bf16": 6.0, "f16": 2.0, "f8e4m3": 14.0, "f8e5m2": 14.0, "i8": 5.0, "i32": 4.0, "f32": 1.0, "f64": 1.0}
COSTLY = {"div": 5.0, "sqrt": 6.0, "minmax": 4.0, "convert": 4.0}
PARALLEL = tuple(k for k in APART_KINDS if k != "vector")

Values: TypeAlias = "np.ndarray"
Tree: TypeAlias = Union["_Nest", "_Act"]


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


@dataclass
class _Act:
    """An action: how often one execution of the loop around it runs it (1), and what it touches."""

    action: Action
    loops: tuple[_Nest, ...]
    touched: tuple[tuple[Address, bool, bool], ...]  # address, is it written, past the caches


@dataclass
class _Nest:
    """A loop with its extent at each sampled iteration of the loops around it."""

    var: str
    kind: str
    extent: Values
    children: list[Tree] = field(default_factory=list)
    acts: list[_Act] = field(default_factory=list)  # every action inside, with the loops below this one's parent


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
        self.depth = 0

    def _dtypes(self) -> dict[str, str]:
        return {b.name: b.dtype for b in self.program.buffers}

    def time(self, node: Node) -> CpuTime:
        env: dict[str, Any] = {n: np.full(POINTS, float(v)) for n, v in self.sizes.items()}
        top = _Nest("", "serial", np.ones(POINTS))
        self._build((node,), env, top, (top,))
        shares, used, regions, barriers = self._parallel(top)
        rates = _Rates(self.machine, used)
        core = float(np.mean(self._core(top, np.ones(POINTS), rates))) * shares
        terms = {"compute": core}
        figure = self.machine.figure
        levels = [("l2", "l1", "read_l2"), ("l3", "l2", "read_l3")] if "l3" in figure else [("l2", "l1", "read_l2")]
        last = "l3" if "l3" in figure else "l2"
        for name, cache, rate in levels:
            if cache in figure:
                read, written, _ = self._traffic(top, figure[cache].value)
                terms[name] = float(np.mean(read + written)) * shares * rates.byte(rate)
        capacity = figure[last].value * (1.0 if last == "l2" else 0.9)
        share = capacity if last == "l2" or used == 1 else capacity / used
        read, written, past = self._traffic(top, share)
        seconds = (read - written) * rates.byte("read") + written * rates.stored(False) + past * rates.stored(True)
        terms["global"] = float(np.mean(seconds)) * shares
        overhead = regions * self.machine.rate("region", used) if used > 1 else 0.0
        overhead += barriers * self.machine.rate("barrier", used) if used > 1 and self.machine.has_rate("barrier") else 0.0
        ordered = (*sorted(terms.items(), key=lambda t: -t[1]), ("overhead", overhead))
        low, high = max(terms.values()), sum(terms.values()) + overhead
        return CpuTime(combined(dict(ordered)), ordered, low, high, moved=float(np.mean(read + written + past)))

    # -- the tree --------------------------------------------------------------------------------------------------------------

    def _build(self, nodes: Iterable[Node], env: dict[str, Any], parent: _Nest, path: tuple[_Nest, ...]) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                low = np.max([np.broadcast_to(e.eval(env), POINTS) for e in node.lower], axis=0)
                high = np.min([np.broadcast_to(e.eval(env), POINTS) for e in node.upper], axis=0)
                extent = np.maximum(high - low, 0.0)
                nest = _Nest(node.var, node.kind, extent)
                parent.children.append(nest)
                place = (np.arange(POINTS) * (0.618034 + 0.1 * (len(path) % 5)) + 0.37 * len(path)) % 1.0
                inner = {**env, node.var: low + np.floor(place * np.maximum(extent, 1.0))}
                self._build(node.body, inner, nest, (*path, nest))
            elif isinstance(node, Guard):
                self._build(node.body, env, parent, path)
            else:
                touched = tuple(self._touched(node))
                act = _Act(node, path, touched)
                parent.children.append(act)
                for nest in path:
                    nest.acts.append(act)

    def _touched(self, action: Action) -> Iterable[tuple[Address, bool, bool]]:
        """Addresses in memory (not in registers)."""
        past = getattr(action, "streaming", False)

        def reads(found: tuple[Read, ...]) -> Iterable[Address]:
            for r in found:
                if isinstance(r, Inline):
                    yield from reads(r.reads)
                else:
                    yield r

        out: list[tuple[Address, bool, bool]] = []
        if isinstance(action, Leaf):
            out += [(r, False, False) for r in reads(action.reads)]
            out.append((action.target, True, past))
        elif isinstance(action, Copy):
            out += [(action.src, False, False), (action.dst, True, past)]
        else:
            for name in ("src", "dst"):
                if isinstance(found := getattr(action, name, None), Address):
                    out.append((found, name == "dst", False))
        return [t for t in out if self.program.buffer[t[0].buffer].memory != "register"]

    def _parallel(self, top: _Nest) -> tuple[float, int, float, float]:
        """(the share of the work that the busiest thread has, threads used, regions entered, barriers)."""
        best = 1.0
        width = 1.0
        regions = barriers = 0.0

        def go(nest: _Nest, entries: Values, team: bool) -> None:
            nonlocal best, width, regions, barriers
            for child in nest.children:
                if not isinstance(child, _Nest):
                    continue
                if child.kind in PARALLEL:
                    extent, inner = child.extent, child
                    while (
                        len(inner.children) == 1 and isinstance(inner.children[0], _Nest) and inner.children[0].kind in PARALLEL
                    ):
                        inner = inner.children[0]
                        extent = extent * inner.extent
                    n = max(float(np.mean(extent)), 1.0)
                    used = min(self.threads, n)
                    width = max(width, used)
                    best = min(best, float(np.ceil(n / used)) / n)
                    entered = float(np.mean(entries))
                    regions, barriers = (regions, barriers + entered) if team else (regions + entered, barriers)
                else:
                    go(child, entries * child.extent, team or child.kind == "team")

        go(top, np.ones(POINTS), False)
        return best, max(1, int(width)), regions, barriers

    # -- in the core -----------------------------------------------------------------------------------------------------------

    def _core(self, nest: _Nest, entries: Values, rates: _Rates) -> Values:
        total = np.zeros(POINTS)
        for child in nest.children:
            if isinstance(child, _Nest):
                total = total + self._core(child, entries * child.extent, rates)
            else:
                total = total + entries * self._act(child, rates)
        return total

    def _act(self, act: _Act, rates: _Rates) -> Values:
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
        byte = rates.byte("read_l1")
        for address, write, _ in act.touched:
            size = DTYPES[self.program.buffer[address.buffer].dtype].bytes
            wide = self.machine.vector_bytes if lanes > 1 and self._moves(act, address) else size
            loads += max(wide, self.machine.vector_bytes) * byte * (2.0 if write else 1.0)
        seconds = np.full(POINTS, max(work, loads) / lanes * (1.0 if exact else 1.3))
        return np.maximum(seconds, self._waits(act, lanes))

    def _lanes(self, act: _Act) -> tuple[float, bool]:
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

    def _width(self, act: _Act) -> float:
        """Lanes of a vector of the widest arithmetic in the action."""
        names = [a.buffer for a, _, _ in act.touched]
        return float(min((self.lanes_of[n] for n in names), default=self.machine.vector_bytes // 4))

    def _plain(self, act: _Act, var: str) -> bool:
        """Could a compiler run this loop in vectors: every access along the last dimension by one, or not at all; no sum over
        it?"""
        for address, write, _ in act.touched:
            *rest, last = address.index or (Aff(0),)
            if any(var in e.names for e in rest) or last.coefficient(var) not in (0, 1):
                return False
            if write and last.coefficient(var) == 0:
                return False
        return bool(act.touched)

    def _moves(self, act: _Act, address: Address) -> bool:
        """Does the vector loop step through the buffer (else one element is spread over the lanes)?"""
        var = next((n.var for n in reversed(act.loops) if n.kind == "vector"), act.loops[-1].var)
        return any(var in e.names for e in address.index)

    def _waits(self, act: _Act, lanes: float) -> Values:
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

    # -- between the caches ----------------------------------------------------------------------------------------------------

    def _traffic(self, nest: _Nest, capacity: float) -> tuple[Values, Values, Values]:
        """(bytes fetched, of them written back, bytes stored past the caches) for one execution of a loop's whole range."""
        whole = self._footprint(nest, inside=False)
        if nest.var == "":
            return self._children(nest, capacity)
        if float(np.max(sum((r for r, _, _ in whole.values()), np.zeros(POINTS)))) <= capacity:
            return _summed(whole)
        body = self._footprint(nest, inside=True)
        if float(np.max(sum((r for r, _, _ in body.values()), np.zeros(POINTS)))) <= capacity:
            return _summed(whole)  # what iterations share stays from one to the next
        once = self._children(nest, capacity)
        return once[0] * nest.extent, once[1] * nest.extent, once[2] * nest.extent

    def _children(self, nest: _Nest, capacity: float) -> tuple[Values, Values, Values]:
        total = [np.zeros(POINTS) for _ in range(3)]
        loose = [c for c in nest.children if isinstance(c, _Act)]
        parts = [self._traffic(c, capacity) for c in nest.children if isinstance(c, _Nest)]
        if loose:
            parts.append(_summed(self._boxes(loose, nest)))
        for part in parts:
            total = [a + b for a, b in zip(total, part, strict=True)]
        return total[0], total[1], total[2]

    def _footprint(self, nest: _Nest, *, inside: bool) -> dict[str, tuple[Values, Values, Values]]:
        return self._boxes(nest.acts, nest, inside)

    def _boxes(self, acts: list[_Act], nest: _Nest, inside: bool = True) -> dict[str, tuple[Values, Values, Values]]:
        """buffer -> (bytes fetched, written back, stored past the caches) of the cells that one iteration of the loop touches, or
        (not inside) all of its range."""
        out: dict[str, list[Values]] = {}
        for act in acts:
            depth = next((n for n, x in enumerate(act.loops) if x is nest), -1)
            inner = act.loops[depth + 1 :] if inside else act.loops[depth:]
            extents = {x.var: x.extent for x in inner}
            for address, write, past in act.touched:
                size = self._bytes(address, extents)
                kept = out.setdefault(address.buffer, [np.zeros(POINTS) for _ in range(3)])
                if past:
                    kept[2] = np.maximum(kept[2], size)
                else:
                    kept[0] = np.maximum(kept[0], size)
                    if write:
                        kept[1] = np.maximum(kept[1], size)
        return {n: (k[0], k[1], k[2]) for n, k in out.items()}

    def _bytes(self, address: Address, extents: Mapping[str, Values]) -> Values:
        """Lines of the box of cells, in bytes."""
        b = self.program.buffer[address.buffer]
        size = DTYPES[b.dtype].bytes
        cells = np.ones(POINTS)
        run = np.ones(POINTS)
        for n, e in enumerate(address.index):
            reach = np.ones(POINTS)
            for atom, c in e.terms:
                names = [atom] if isinstance(atom, str) else sorted(atom.num.names)
                for name in names:
                    if name in extents:
                        step = abs(c) if isinstance(atom, str) else abs(c) * abs(atom.num.coefficient(name)) / atom.den
                        reach = reach + step * np.maximum(extents[name] - 1, 0.0)
            if n == len(address.index) - 1:
                run = reach
            else:
                cells = cells * reach
        row = self._row(b.shape)
        whole = run * size >= row * size if row else np.zeros(POINTS, bool)
        lines = np.where(whole, run * size, np.ceil(run * size / self.line) * self.line)
        return cells * lines

    def _row(self, shape: tuple[Aff, ...]) -> float:
        """Elements of a buffer's last dimension: where all are touched, rows follow each other without gaps."""
        return float(shape[-1].eval(self.sizes)) if shape else 0.0


def _summed(parts: Mapping[str, tuple[Values, Values, Values]]) -> tuple[Values, Values, Values]:
    zero = np.zeros(POINTS)
    return (
        sum((p[0] for p in parts.values()), zero),
        sum((p[1] for p in parts.values()), zero),
        sum((p[2] for p in parts.values()), zero),
    )
