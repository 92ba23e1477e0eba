"""The time of one kernel launch on a GPU, level by level, for numbers or whole arrays of candidates.

    time = launch + max( SM, fill + l2, fill + global )

    q        = ceil(blocks ÷ SMs)                       blocks on the busiest SM: tile and wave quantisation in one
    r        = resident blocks per SM                   from threads, registers and shared memory
    compute  = q · (slots ÷ slot rate, or granules of the matrix path ÷ its rate) of one full block, per SM
    shared   = q · (bytes of shared memory and of unstaged accesses) ÷ (128 B per cycle)
    SM       = floor(q ÷ r) · cycle(r) + cycle(q mod r), cycle(n) the time of n resident blocks that each work s and wait w
               (overlap.py); s = (compute⁴ + shared⁴)^¼ ÷ q, as units delay each other, and s + w is the time of a block alone:
               first copies, steps · (the longest of compute, copy and (latency + copy) ÷ (stages - 1); their sum with one
               stage), store
    latency  = SM - q · s                               the waits that no other block covers
    l2       = max( q · bytes of one block ÷ (64 B per cycle and SM), all bytes ÷ L2 bandwidth )
    global   = bytes from DRAM ÷ (bandwidth · min(1, cover)), cover = bytes in flight ÷ (bandwidth · latency)
    fill     = latency + the first step's copies + the store of one tile: what no other work of the block covers

Where a block's threads are bound, and copy and compute in turn (no copy is asynchronous), compute, shared, s, r and SM are those
of its execution model (block.py), which knows what each thread does; the rest is the same.

DRAM bytes: r·SMs blocks run at once, in the order of the grid, block.x fastest. Those that agree in all block axes of a buffer's
addresses share its bytes in L2; from one such window to the next, a share L2 ÷ (bytes of all buffers) of the rest stays. Never
less than each buffer once (as far as the launch reads it), never more than what crosses L2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.cost.block import BlockFigures, block_figures
from tilec.cost.blockterms import BlockTerms, Count, Stream
from tilec.cost.operations import FLOPS
from tilec.cost.overlap import cycle as cycle_of
from tilec.cost.registers import Demand
from tilec.cost.residents import residents
from tilec.cost.term import Term
from tilec.cost.threadwork import ThreadWork
from tilec.cost.units import (
    CONTENTION,
    L2_BYTES_PER_CYCLE,
    granular,
    operand_values,
    paths,
    slot_rate,
    slots,
    usable,
    vector_values,
)
from tilec.targets import Target

SHARED_BYTES_PER_CYCLE = 128  # 32 banks of 4 bytes (CUDA programming guide, shared memory)
BYTES_IN_FLIGHT = 16  # per thread, of accesses that no copy stages: one vector load

Value = Callable[[Term], Any]


@dataclass(frozen=True)
class Kernel:
    """One launch as numbers or arrays: blocks of the grid, threads per block (0: unknown), its registers (registers.py), shared
    bytes per block, bytes of global memory by stream key (exact, partial tiles included)."""

    terms: BlockTerms
    blocks: Any
    threads: Any
    registers: Demand
    shared: Any
    moved: Mapping[tuple[str, str], Any]  # (buffer, direction) -> bytes
    inner: ThreadWork | None = None  # of a block whose threads are bound
    environment: Mapping[str, Any] = field(default_factory=dict)  # numbers or arrays for the names in its terms
    stated: Any = None  # registers per thread that a compiler gave


@dataclass(frozen=True)
class KernelTime:
    """Seconds by level (arrays or numbers), and what they were made of. `sm` is what the busiest SM takes."""

    seconds: Any
    levels: Mapping[str, Any]
    sm: Any
    fill: Any
    per_sm: Any  # blocks on the busiest SM
    resident: Any
    dram_bytes: Any
    l2_bytes: Any
    cover: Any
    matrix: Any  # seconds of one block on an SM's matrix unit
    vector: Any  # and on its vector unit
    path: Any  # index into units.paths, -1: vector unit
    left_out: tuple[str, ...]
    by_thread: bool  # the threads are bound: compute and shared are what block.py counts per thread


def kernel_time(machine: Target, kernel: Kernel, value: Value) -> KernelTime:
    """`value` turns a term into a number or an array. The machine has the limits and figures of a GPU."""
    assert machine.limits is not None
    t, sms = kernel.terms, machine.cores
    blocks = _float(kernel.blocks)

    def runs(c: Count) -> Any:
        return _float(value(c.full)) if c.full is not None else _float(value(c.total)) / blocks

    threads = _float(kernel.threads)
    warps = np.ceil(threads / machine.limits.warp)
    matrix, vector, values, path, left_out = _arithmetic(machine, t, runs, value, warps)
    shared = values + kernel.registers.spilled + sum((size * runs(c) for size, c in t.shared), start=0.0)
    direct_read = copied = written = crossing = 0.0
    inside = _inside(machine, kernel)
    amounts = {(s.buffer, s.direction): _amounts(s, kernel, blocks, runs, inside) for s in t.streams}
    for s in t.streams:
        moved, distinct = amounts[s.buffer, s.direction]
        shared = shared + (moved if s.staged and s.direction == "read" else 0.0)
        if s.direction == "write":
            written = written + moved
            crossing = crossing + moved
            shared = shared + (0.0 if s.copied else moved)
        elif s.copied:
            copied = copied + moved
            crossing = crossing + moved
        else:
            direct_read = direct_read + distinct
            crossing = crossing + distinct
            shared = shared + (0.0 if _in_contraction(t) else moved)
    held = kernel.registers
    asked = (np.asarray(x, dtype=np.int64) for x in (kernel.threads, held.registers, kernel.shared, held.kept))
    room = residents(machine.limits, *asked) if inside is None else inside.plain(inside.resident)
    r = np.maximum(room, 1)
    per_sm = busiest(blocks, sms)
    cycle = 1 / machine.clock
    known = machine.figure.get("dram_latency")
    latency = known.value if known is not None else 0.0
    left_out = left_out if known is not None else (*left_out, "latency")
    compute = np.maximum(matrix, vector)
    shared = shared * (cycle / SHARED_BYTES_PER_CYCLE)
    port = crossing * (cycle / L2_BYTES_PER_CYCLE)
    steps = np.maximum(_float(value(t.steps)), 1.0)
    both = (compute**CONTENTION + shared**CONTENTION) ** (1 / CONTENTION)
    if inside is not None:
        compute, shared, both = (inside.plain(x) / machine.clock for x in inside.units)
    work, copy = both / steps, copied * (cycle / L2_BYTES_PER_CYCLE) / steps
    store = written * (cycle / L2_BYTES_PER_CYCLE)
    arrive = copy + direct_read * (cycle / L2_BYTES_PER_CYCLE)
    if t.stages > 1:
        each = np.maximum(np.maximum(work, copy), (latency + copy) / (t.stages - 1))
    elif any(s.copied and s.direction == "read" for s in t.streams):
        each = latency + copy + work
    else:
        each = work
    fill = latency + arrive + store
    alone = (fill if t.stages > 1 or not _staged(t) else store) + steps * each
    wait = np.maximum(alone - both, 0.0)
    rest = per_sm % r
    sm = per_sm // r * cycle_of(r, both, wait) + np.where(rest > 0, cycle_of(rest, both, wait), 0.0)
    if inside is not None:
        sm = inside.plain(inside.sm_cycles(sms)) / machine.clock
    together = np.minimum(r, per_sm)
    loads = np.where(threads > 0, np.minimum(direct_read, threads * BYTES_IN_FLIGHT), direct_read)
    flying = np.where(copied > 0, copied / steps * max(1, t.stages - 1), loads)
    active = np.minimum(blocks, sms)
    needed = machine.bandwidth * latency
    # bound threads wait for their loads in the block's own model
    covered = np.asarray(1.0)
    cover = np.where(flying > 0, active * together * flying / needed, 1.0) if inside is None and needed > 0 else covered
    dram, l2 = _bytes(machine, kernel, blocks, r * sms, amounts, value)
    bandwidth = l2_bandwidth(machine)
    levels = {
        "compute": per_sm * compute,
        "shared": per_sm * shared,
        "l2": np.maximum(per_sm * port, l2 / bandwidth),
        "global": dram / (machine.bandwidth * np.minimum(1.0, cover)),
        "latency": np.maximum(0.0, sm - per_sm * both),
        "launch": machine.launch_overhead,
    }
    seconds = np.maximum(sm, fill + np.maximum(levels["l2"], levels["global"])) + machine.launch_overhead
    return KernelTime(
        seconds, levels, sm, fill, per_sm, room, dram, l2, cover, matrix, vector, path, left_out, inside is not None
    )


def busiest(blocks: Any, sms: int) -> Any:
    """Blocks of the SM that gets most: blocks go to the SMs one by one, all as large as a full one."""
    return np.ceil(blocks / sms)


def _float(x: Any) -> Any:
    return x.astype(np.float64) if isinstance(x, np.ndarray) else float(x)


def _inside(machine: Target, kernel: Kernel) -> BlockFigures | None:
    """The execution model of a block whose threads are bound."""
    if kernel.inner is None:
        return None
    return block_figures(kernel.inner, machine, kernel.environment, registers=kernel.stated)


def _staged(t: BlockTerms) -> bool:
    return any(s.copied and s.direction == "read" for s in t.streams)


def _in_contraction(t: BlockTerms) -> bool:
    """Do contractions of a collective block read global memory? Then `_arithmetic` counts their operands, once per warp."""
    return any(not c.staged for c in t.contractions)


def _amounts(
    s: Stream, kernel: Kernel, blocks: Any, runs: Callable[[Count], Any], inside: BlockFigures | None
) -> tuple[Any, Any]:
    """(bytes moved, distinct bytes) of one block, on average; what copies move is taken as distinct."""
    moved = _float(kernel.moved[s.buffer, s.direction]) / blocks
    if s.copied:
        return moved, moved
    parts = [size * runs(c) for size, c in s.distinct]
    most = parts[0]
    for part in parts[1:]:
        most = np.maximum(most, part)
    if inside is not None and s.direction == "read":
        most = np.minimum(most, inside.plain(inside.fetched(s.buffer)))
    return moved, np.minimum(moved, most)


def l2_bandwidth(machine: Target) -> float:
    """Bytes per second between L2 and all SMs: the machine's figure, at most what the SMs' ports pass."""
    ports = machine.cores * machine.clock * L2_BYTES_PER_CYCLE
    found = machine.figure.get("l2_bandwidth")
    return ports if found is None else min(ports, found.value)


def _arithmetic(
    machine: Target, t: BlockTerms, runs: Callable[[Count], Any], value: Value, warps: Any
) -> tuple[Any, Any, Any, Any, tuple[str, ...]]:
    """(seconds of the matrix unit, of the vector unit, bytes of operands through shared memory, path, kinds without a rate)."""
    sms = machine.cores
    matrix: Any = 0.0
    vector: Any = 0.0
    values: Any = 0.0
    chosen: Any = -1
    left_out: dict[str, None] = {}
    # products and sums of one statement share slots where the program allows contraction: of each pair the product is free
    for key, n, count in t.work:
        peak = machine.peak("matrix", key.matrix) if key.matrix else None
        if peak is not None and key.kind in FLOPS:
            matrix = matrix + n * runs(count) / (peak[0] / sms)
            continue
        rate = slot_rate(machine, key.dtype)
        if rate is None:
            left_out[f"{key.kind} in {key.dtype}"] = None
        elif not (t.contract and key.kind == "mul" and _adds(t, count)):
            vector = vector + slots(key.kind) * n * runs(count) / (rate / sms)
    for c in t.contractions:
        m, n, k = (_float(value(x)) for x in (c.m, c.n, c.k))
        each = runs(c.runs)
        peak = machine.peak("matrix", c.matrix) if c.matrix else None
        if peak is None:
            rate = slot_rate(machine, "f32")
            assert rate is not None
            vector = vector + (1 if t.contract else 2) * each / (rate / sms)
            values = values + each / (m * n) * vector_values(m, n, warps) * c.operand_bytes
            continue
        best, best_values = np.full(np.shape(m * each), np.inf), 0.0 * m * each
        for number, path in enumerate(paths(machine)):
            time = 2 * each * granular(path, m, n, k, c.operand_bytes) / (peak[0] * path.share / sms)
            allowed = usable(path, m, n, warps) if number else np.asarray(True)
            better = allowed & (time < best)
            read = each / (m * n) * operand_values(path, m, n, warps) * c.operand_bytes
            best, best_values = np.where(better, time, best), np.where(better, read, best_values)
            chosen = np.where(better, number, chosen)
        matrix, values = matrix + best, values + best_values
    return matrix, vector, values, chosen, tuple(left_out)


def _adds(t: BlockTerms, count: Count) -> bool:
    return any(key.kind == "add" and c is count for key, _, c in t.work)


def _bytes(
    machine: Target, kernel: Kernel, blocks: Any, window: Any, amounts: Mapping[tuple[str, str], tuple[Any, Any]], value: Value
) -> tuple[Any, Any]:
    """(bytes from and to DRAM, bytes through L2) of the launch."""
    extents = {axis: _float(value(e)) for axis, e in kernel.terms.axes}
    at_once = np.minimum(window, blocks)
    windows = blocks / at_once
    found = machine.figure.get("l2")
    wholes = [_float(value(s.whole)) for s in kernel.terms.streams if s.direction == "read"]
    stays = np.minimum(1.0, found.value / np.maximum(sum(wholes, start=0.0), 1.0)) if found is not None and wholes else 0.0
    dram = crossing = 0.0
    for s in kernel.terms.streams:
        moved, distinct = amounts[s.buffer, s.direction]
        through = (moved if s.direction == "write" else distinct) * blocks
        crossing = crossing + through
        once = np.minimum(through, _float(value(s.whole)))
        apart = np.minimum(through, np.maximum(once, distinct * distinct_in_window(extents, s.axes, at_once) * windows))
        dram = dram + once + (apart - once) * (1.0 - stays)
    return dram, crossing


def distinct_in_window(extents: Mapping[str, Any], axes: frozenset[str], window: Any) -> Any:
    """How many different coordinates in `axes` the `window` consecutive blocks of a grid have, block.x fastest.

    A window of whole rows starts at a row, one that divides a row lies in it; any other one meets 1 + (window - 1) ÷ (blocks of a
    row) rows on average.
    """
    out: Any = 1.0
    faster: Any = 1.0
    for axis in ("block.x", "block.y", "block.z"):
        if axis not in extents:
            continue
        if axis in axes:
            spanned = np.where(window % faster == 0, window / faster, 1.0 + (window - 1.0) / faster)
            spanned = np.where((faster > window) & (faster % window == 0), 1.0, spanned)
            out = out * np.minimum(extents[axis], spanned)
        faster = faster * extents[axis]
    return np.minimum(out, window)
