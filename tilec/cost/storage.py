"""Where bytes live: what a block allocates, what a thread keeps, what a program touches, what is alive at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from tilec.cost.amounts import WorkingSet
from tilec.cost.launches import Launch
from tilec.ir.affine import Aff, Constraint, ceil_div
from tilec.ir.closed import Closed
from tilec.ir.dtypes import DTYPES
from tilec.ir.layouts import padded
from tilec.ir.program import ORDERED_KINDS, THREAD_KINDS, Buffer, Program
from tilec.ir.tree import Site, addresses, owning_loops, updates
from tilec.lower.nests import constant_extent
from tilec.poly.count import Counter, Image

COORDINATE = {"thread.x": "t.x", "thread.y": "t.y", "thread.z": "t.z"}


def allocated_bytes(b: Buffer) -> Closed:
    """Bytes of one allocation, slots and padding included."""
    out = Closed.of(DTYPES[b.dtype].bytes)
    for e in padded(b.layout, b.shape):
        out = out * Closed.of(e)
    return out


def block_footprint(
    program: Program, launch: Launch, sizes: Mapping[str, int], threads: int | None
) -> tuple[list[tuple[str, str, Closed]], list[str]]:
    """(memory, buffer, bytes) of what one block of the launch allocates outside global memory (per thread for registers)."""
    parts: list[tuple[str, str, Closed]] = []
    marks: list[str] = []
    for name, found in launch.buffers(program).items():
        b = program.buffer[name]
        if b.memory == "global":
            continue
        if b.memory == "register":
            cells, per_thread = register_cells(program, launch, b, found, sizes)
            if not per_thread:
                if threads is None:
                    marks.append(f"{name}: registers of the whole block, as the number of threads is unknown")
                else:
                    number = cells.constant
                    cells = Closed.of(-(-number // threads)) if number is not None else _shared_out(cells, threads)
            parts.append((b.memory, name, cells * DTYPES[b.dtype].bytes))
        else:
            parts.append((b.memory, name, allocated_bytes(b) * vector_copies(b, found[0], sizes)))
    return parts, marks


def _shared_out(cells: Closed, threads: int) -> Closed:
    affine = cells.affine
    return Closed.of(ceil_div(affine, threads)) if affine is not None else cells


def vector_copies(b: Buffer, site: Site, sizes: Mapping[str, int]) -> int:
    """How many lanes have cells of their own: the vector loops at or above the owner."""
    copies = 1
    for loop in owning_loops(b, site.loops):
        if loop.kind == "vector":
            copies *= constant_extent(loop, sizes) or 1
    return copies


def register_cells(
    program: Program, launch: Launch, b: Buffer, found: list[Site], sizes: Mapping[str, int]
) -> tuple[Closed, bool]:
    """(cells, are they one thread's): of a register buffer, the most that one thread accesses.

    The cells are those that one thread reaches over all iterations and all sizes, counted for each thread and the largest taken;
    in a block without thread loops, the whole allocation.
    """
    whole = Closed.of(vector_copies(b, found[0], sizes))
    for e in b.shape:
        whole = whole * Closed.of(e)
    if launch.collective:
        return whole, False
    extents = launch.threads(sizes)
    if extents is None or whole.constant in (1, None):  # one cell, or a shape that grows with the sizes: the whole of it
        return whole, True
    axes = [a for a in THREAD_KINDS if a in extents]
    parameters = {a: COORDINATE[a] for a in axes}
    counter = Counter(tuple(parameters.values()))
    images = []
    for s in found:
        conditions: list[Constraint] = [*s.conditions, *program.where, *(Constraint.ge(n, 1) for n in program.sizes)]
        at = {loop.kind: Aff.of(loop.var) - loop.lower[0] for loop in s.loops if loop.kind in THREAD_KINDS}
        for a in axes:  # a coordinate counts from 1, as sizes do
            conditions.append(Constraint.eq(Aff.of(parameters[a]) - 1, at.get(a, Aff(0))))
        lanes = tuple(Aff.of(loop.var) for loop in owning_loops(b, s.loops) if loop.kind == "vector")
        for address, _, _ in addresses(s.action, program):
            if address.buffer == b.name:
                variables = (*program.sizes, *(loop.var for loop in s.loops))
                images.append(Image(variables, tuple(conditions), (*lanes, *address.index)))
    count = counter.distinct(images)
    if count.constant is not None:
        return count, True
    best = 0
    for point in product(*(range(1, extents[a] + 1) for a in axes)):
        best = max(best, int(count.eval(dict(zip(parameters.values(), point, strict=True)))))
    return Closed.of(best), True


def touched(
    program: Program, counter: Counter, found: Mapping[str, Iterable[Site]], reads_only: bool = False
) -> dict[str, Closed]:
    """Distinct bytes per global buffer over the given sites."""
    out: dict[str, Closed] = {}
    for name, where in found.items():
        b = program.buffer[name]
        if b.memory != "global":
            continue
        images: dict[Image, None] = {}
        for s in where:
            for address, _, is_write in addresses(s.action, program):
                if address.buffer == name and not (reads_only and is_write and not updates(s.action, program)):
                    own = tuple(Aff.of(loop.var) for loop in owning_loops(b, s.loops) if loop.kind not in ORDERED_KINDS)
                    images[Image(tuple(loop.var for loop in s.loops), s.conditions, (*own, *address.index))] = None
        out[name] = counter.distinct(list(images)) * DTYPES[b.dtype].bytes
    return out


def first_is_read(program: Program, sites: Iterable[Site], name: str) -> bool:
    """Is the first access of the buffer, in the order of the text, a read (or an update)?"""
    for s in sites:
        for address, _, is_write in addresses(s.action, program):
            if address.buffer == name:
                return not is_write or updates(s.action, program)
    return False


def working_set(program: Program, steps: tuple[Launch, ...], sizes: Mapping[str, int]) -> WorkingSet:
    """Live ranges over the steps: inputs live from the start, an output is allocated before its first write and stays to the end,
    everything is freed after its last use."""
    uses = [step.buffers(program) for step in steps]
    every = [s for step in steps for s in step.sites]
    written = {a.buffer for s in every for a, _, is_write in addresses(s.action, program) if is_write}
    ranges: dict[str, tuple[int, int]] = {}
    for b in program.buffers:
        at = [n for n, names in enumerate(uses) if b.name in names]
        if b.memory != "global" or not at:
            continue
        start, stop = at[0], at[-1]
        if b.role == "param":
            if b.name not in written or first_is_read(program, every, b.name):
                start = 0
            if b.name in written:
                stop = len(steps) - 1
        ranges[b.name] = (start, stop)
    live = tuple(tuple(n for n, (a, z) in ranges.items() if a <= step <= z) for step in range(len(steps)))
    return WorkingSet(live, {n: allocated_bytes(program.buffer[n]) for n in ranges}, sizes)
