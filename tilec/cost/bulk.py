"""Costs of whole arrays of candidates: the counts of `price` as formulas in sizes and tile factors, evaluated at once.

`formulas` reads one program of a structure whose knobs stand as marker numbers (`separable.Markers`); `evaluate` puts arrays of
knob values in. The rules are those of counting.py, storage.py and time.py; tests hold the two equal on random candidates, and
every candidate that is shown is priced exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.cost.blockterms import BlockTerms, block_terms, bounds, in_turn
from tilec.cost.counting import moves
from tilec.cost.kernel_time import Kernel, kernel_time
from tilec.cost.launches import Launch, launches
from tilec.cost.operations import FLOPS, Key, operations
from tilec.cost.registers import demand
from tilec.cost.separable import Markers, NotSeparable, count
from tilec.cost.term import ONE, Num, Term, add, ceil, least, most, multiply
from tilec.cost.term import evaluate as value
from tilec.cost.threadwork import ThreadWork, full_work
from tilec.cost.time import rates
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import BLOCK_KINDS, THREAD_KINDS, Barrier, Buffer, Guard, Loop, Program
from tilec.ir.tree import Site, addresses, owning_loops, without_hints
from tilec.targets import Target

LIMIT = 2.0**61  # int64 arithmetic is used while every total stays below


@dataclass(frozen=True)
class LaunchFormulas:
    """One top-level nest."""

    traffic: Mapping[str, Term]  # bytes by memory
    work: Mapping[Key, Term]
    shared: Term  # bytes per block, scratch included
    registers: tuple[tuple[Term, int], ...]  # (cells of a block, bytes of one) of each register buffer
    per_thread: bool  # the cells are one thread's already
    threads: Term | None
    barriers: Term
    blocks: Term
    block: BlockTerms | None  # of a launch with block loops
    moved: Mapping[tuple[str, str], Term]  # bytes of global memory by buffer and direction
    inner: ThreadWork | None  # of a launch with block and thread loops
    in_turn: bool  # do its threads copy and compute in turn?


@dataclass(frozen=True)
class Formulas:
    launches: tuple[LaunchFormulas, ...]
    markers: Markers

    def traffic(self, memory: str = "global") -> Term:
        """Bytes of all launches: `2*M*K*ceil(N/BN) + …`."""
        return add(f.traffic[memory] for f in self.launches if memory in f.traffic)

    @property
    def per_thread(self) -> bool:
        """Every launch that keeps cells in registers has thread loops, so that they are one thread's."""
        return all(f.per_thread for f in self.launches if f.registers)

    def flops(self) -> Term:
        """+ − × ÷ of all launches."""
        return add(t for f in self.launches for k, t in f.work.items() if k.kind in FLOPS)


@dataclass(frozen=True)
class Columns:
    """One array per figure, one entry per candidate. Bytes, bytes per block, bytes per thread, flops, seconds."""

    traffic: np.ndarray
    shared: np.ndarray
    register: np.ndarray
    flops: np.ndarray
    threads: np.ndarray  # per block, 0 where unknown
    seconds: np.ndarray  # NaN without a target

    def figure(self, name: str) -> np.ndarray:
        """By the names that tables and fronts use."""
        return {
            "traffic": self.traffic,
            "footprint": self.shared,
            "shared": self.shared,
            "register": self.register,
            "flops": self.flops,
            "time": self.seconds,
        }[name]


FIGURES = ("traffic", "footprint", "shared", "register", "flops", "time")


def formulas(program: Program, markers: Markers) -> Formulas:
    """Raises NotSeparable where some nest is no product of split loops."""
    program = without_hints(program)
    return Formulas(tuple(_launch(program, step, markers) for step in launches(program)), markers)


def _launch(program: Program, step: Launch, markers: Markers) -> LaunchFormulas:
    traffic: dict[str, list[Term]] = {}
    moved: dict[tuple[str, str], list[Term]] = {}
    work: dict[Key, list[Term]] = {}
    barriers: list[Term] = []
    for site in step.sites:
        found = moves(program, site.action)
        if not found and not isinstance(site.action, Barrier):
            continue
        runs = count(site.path, markers)
        if isinstance(site.action, Barrier):
            barriers.append(runs)
            continue
        for m in found:
            if not m.fill:
                bytes_ = multiply((Num(m.bytes), runs))
                traffic.setdefault(m.buffer.memory, []).append(bytes_)
                if m.buffer.memory == "global":
                    moved.setdefault((m.buffer.name, m.direction), []).append(bytes_)
        for key, n in operations(program, site.action).items():
            work.setdefault(key, []).append(multiply((Num(n), runs)))
    shared, registers, per_thread = footprint(program, step, markers)
    prefix = _grid(step)
    block = block_terms(program, step, markers, lambda site: count(site.path, markers)) if prefix else None
    return LaunchFormulas(
        {m: add(ts) for m, ts in traffic.items()},
        {k: add(ts) for k, ts in work.items()},
        shared,
        registers,
        per_thread,
        _threads(step, markers),
        add(barriers),
        count(prefix, markers) if prefix else ONE,
        block,
        {key: add(ts) for key, ts in moved.items()},
        full_work(program, step, markers) if prefix else None,
        in_turn(step),
    )


def _grid(step: Launch) -> tuple[Loop | Guard, ...]:
    """The path down to the innermost block loop of the first action that has one."""
    for site in step.sites:
        last = max((n for n, node in enumerate(site.path) if isinstance(node, Loop) and node.kind in BLOCK_KINDS), default=-1)
        if last >= 0:
            return site.path[: last + 1]
    return ()


def footprint(program: Program, step: Launch, markers: Markers) -> tuple[Term, tuple[tuple[Term, int], ...], bool]:
    """(shared bytes per block, (cells, bytes of one) of each register buffer, are the cells one thread's), as in storage.py."""
    shared: list[Term] = []
    registers: list[tuple[Term, int]] = []
    for name, found in step.buffers(program).items():
        b = program.buffer[name]
        if b.memory == "global":
            continue
        if b.layout is not None or any(loop.kind == "vector" for loop in owning_loops(b, found[0].loops)):
            raise NotSeparable(f"{name} has a layout or vector lanes")
        cells = _cells(b, markers)
        if b.memory == "register":
            inside = any(loop.kind in THREAD_KINDS for s in found for loop in s.loops[len(owning_loops(b, s.loops)) :])
            if inside and cells != ONE:
                cells = _of_a_thread(b, found, program, markers)
            registers.append((cells, DTYPES[b.dtype].bytes))
        else:
            shared.append(multiply((Num(DTYPES[b.dtype].bytes), cells)))
    return add(shared), tuple(registers), not step.collective


def _of_a_thread(b: Buffer, found: list[Site], program: Program, markers: Markers) -> Term:
    """Cells of a register buffer that one thread accesses: in each dimension the extent of the one loop, not bound to threads, in
    its index. NotSeparable where an index is more than that, or differs from access to access."""
    shapes: set[tuple[Term, ...]] = set()
    for site in found:
        below = site.loops[len(owning_loops(b, site.loops)) :]
        for a, _, _ in addresses(site.action, program):
            if a.buffer != b.name:
                continue
            shape: list[Term] = []
            for e in a.index:
                own = [x for x in below if x.var in e.names and x.kind not in THREAD_KINDS]
                if len(own) > 1 or any(abs(e.coefficient(x.var)) != 1 for x in own):
                    raise NotSeparable(f"{b.name} is shared out among threads by more than one loop of a dimension")
                for loop in own:
                    extent = bounds([loop], site.path)
                    if extent is None:
                        raise NotSeparable(f"{b.name} is shared out among threads by a loop without a constant bound")
                    shape.append(least(markers.term(g) for g in extent[loop.var]))
            shapes.add(tuple(shape))
    if len(shapes) != 1:
        raise NotSeparable(f"{b.name} is shared out among threads in different ways")
    return multiply(next(iter(shapes)))


def _cells(b: Buffer, markers: Markers) -> Term:
    """Cells of one allocation: the whole tile, also where the array is smaller."""
    return multiply(markers.term(e) for e in b.shape)


def _threads(step: Launch, markers: Markers) -> Term | None:
    """Threads per block where loops are bound to them: the product of the largest extents."""
    extents: dict[str, set[Term]] = {}
    for loop in step.loops:
        if loop.kind in THREAD_KINDS:
            gaps = [u - low for u in loop.upper for low in loop.lower]
            constant = [g for g in gaps if g.is_const]
            if not constant:
                raise NotSeparable(f"loop {loop.var} has no constant number of threads")
            extents.setdefault(loop.kind, set()).add(markers.term(min(constant, key=lambda g: g.const)))
    if not extents:
        return None
    return multiply(most(sorted(found, key=str)) for found in extents.values())


def evaluate(
    f: Formulas, machine: Target | None, sizes: Mapping[str, int], knobs: Mapping[str, np.ndarray], threads: int | None = None
) -> Columns:
    """Every figure for every candidate. knobs: int arrays of one length. sizes: numbers for all sizes."""
    n = len(next(iter(knobs.values()))) if knobs else 1
    env = _environment(f, sizes, knobs)

    def column(t: Term) -> np.ndarray:
        v = value(t, env)
        return np.full(n, v) if not isinstance(v, np.ndarray) else v

    traffic, flops = column(f.traffic()), column(f.flops())
    shared = np.maximum.reduce([column(x.shared) for x in f.launches])
    register = np.maximum.reduce([_registers(x, column, threads, n) for x in f.launches])
    per_block = np.maximum.reduce(
        [column(x.threads) if x.threads is not None else np.zeros(n, dtype=np.int64) for x in f.launches]
    )
    seconds = np.full(n, np.nan)
    if machine is not None and machine.figures:
        seconds = sum(_seconds(f, machine, env, column, n, threads), start=np.zeros(n))
    return Columns(traffic, shared, register, flops, per_block, seconds)


def _environment(f: Formulas, sizes: Mapping[str, int], knobs: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """int64 arrays where every total provably fits, Python integers in object arrays where not."""
    rough: dict[str, Any] = {k: float(v) for k, v in sizes.items()} | {k: v.astype(np.float64) for k, v in knobs.items()}
    totals = [f.flops(), *(f.traffic(m) for x in f.launches for m in x.traffic)]
    largest = max(float(np.max(value(t, rough))) for t in totals) if totals else 0.0
    kind = np.int64 if largest < LIMIT else object
    return {k: int(v) for k, v in sizes.items()} | {k: v.astype(kind) for k, v in knobs.items()}


def _registers(x: LaunchFormulas, column: Any, threads: int | None, n: int) -> np.ndarray:
    total = np.zeros(n, dtype=np.int64)
    for cells, size in x.registers:
        if not x.per_thread and threads is not None:
            cells = ceil(cells, Num(threads))
        total = total + column(cells) * size
    return total


def launch_seconds(
    f: Formulas, machine: Target, values: Mapping[str, np.ndarray], threads: int | None = None
) -> tuple[np.ndarray, ...]:
    """Seconds of each launch. values: arrays of one length for sizes and knobs alike."""
    n = len(next(iter(values.values())))
    env = _environment(f, {}, values)

    def column(t: Term) -> np.ndarray:
        v = value(t, env)
        return np.full(n, v) if not isinstance(v, np.ndarray) else v

    return _seconds(f, machine, env, column, n, threads)


def _seconds(
    f: Formulas, machine: Target, env: Mapping[str, Any], column: Any, n: int, threads: int | None
) -> tuple[np.ndarray, ...]:
    """The rules of time.py, launch after launch."""
    out: list[np.ndarray] = []
    for x in f.launches:
        if x.block is None or machine.kind != "gpu" or machine.limits is None:
            out.append(_roofline(x, machine, column, n))
            continue
        per_block = column(x.threads) if x.threads is not None else np.full(n, threads or 0)
        held = demand(machine, x.block, x.inner, env, _registers(x, column, threads, n), per_block, column)
        moved = {key: column(t) for key, t in x.moved.items()}
        inner = x.inner if x.in_turn else None
        kernel = Kernel(x.block, column(x.blocks), per_block, held, column(x.shared), moved, inner, env)
        out.append(kernel_time(machine, kernel, column).seconds)
    return tuple(out)


def _roofline(x: LaunchFormulas, machine: Target, column: Any, n: int) -> np.ndarray:
    compute = np.zeros(n)
    for key, t in x.work.items():
        if key.kind not in FLOPS:
            continue
        found = rates(machine, key)
        if found is not None:
            compute = compute + column(t).astype(np.float64) / found[0]
    memory = column(x.traffic["global"]).astype(np.float64) / machine.bandwidth if "global" in x.traffic else np.zeros(n)
    return np.maximum(compute, memory)
