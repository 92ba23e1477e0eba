"""Does a launch fit on the machine, and if not, what would."""

from __future__ import annotations

from tilec.cost.amounts import Held
from tilec.cost.launches import Launch
from tilec.cost.occupancy import Occupancy
from tilec.ir.affine import Aff
from tilec.ir.program import Program
from tilec.ir.tree import addresses
from tilec.targets import Target

MOST_SLOTS = 256  # a longer leading dimension is no ring of slots


def misfits(
    program: Program,
    step: Launch,
    machine: Target | None,
    footprint: Held,
    resident: Occupancy | None,
    threads: int | None = None,
) -> tuple[str, ...]:
    """One text per resource that does not fit, in the words of a ResourceError; empty where a block fits."""
    if machine is None:
        return ()
    out: list[str] = []
    capacity = machine.shared_capacity
    for memory in ("shared", "scratch"):
        needed = footprint.known(memory)
        if capacity is None or needed is None or needed <= capacity:
            continue
        parts = footprint.by_buffer(memory)
        text = f"'{program.name}' needs {needed:,} B of {memory} memory per block; {machine.name} allows {capacity:,} B.\n  "
        text += " + ".join(f"{n} {b:,} B" for n, b in parts.items())
        out.append(text + _stages(program, step, parts, capacity))
    registers = footprint.known("register")
    if machine.limits is not None and registers is not None:
        over = register_misfit(machine, registers, per_thread=threads is not None or not step.collective)
        if over:
            out.append(
                f"'{program.name}' {over}\n  " + " + ".join(f"{n} {b:,} B" for n, b in footprint.by_buffer("register").items())
            )
    for problem in resident.problems if resident is not None else ():
        if "shared memory" not in problem:
            out.append(f"'{program.name}' {problem}")
    return tuple(out)


def register_misfit(machine: Target, held: int, *, per_thread: bool) -> str | None:
    """What is wrong with `held` bytes in registers of one thread, or of a whole block whose threads are not known."""
    assert machine.limits is not None
    if per_thread:
        most = 4 * machine.limits.registers_per_thread
        return f"keeps {held:,} B in registers per thread; {machine.name} allows {most:,} B" if held > most else None
    most = 4 * machine.limits.registers_per_block
    return f"keeps {held:,} B in registers per block; {machine.name} allows {most:,} B" if held > most else None


def _stages(program: Program, step: Launch, parts: dict[str, int], capacity: int) -> str:
    """`at 5 stages; the most stages that fit: 4`, where buffers have slots."""
    slots = {n: found for n in parts if (found := slot_count(program, step, n)) is not None}
    if not slots:
        return ""
    stages = max(slots.values())
    fixed = sum(b for n, b in parts.items() if n not in slots)
    per_stage = sum(b // slots[n] for n, b in parts.items() if n in slots)
    most = max(0, (capacity - fixed) // per_stage) if per_stage else 0
    verdict = f"the most stages that fit: {most}" if most >= 1 else "no number of stages fits"
    return f" at {stages} stages; {verdict}"


def slot_count(program: Program, step: Launch, name: str) -> int | None:
    """The number of slots of a pipelined buffer: its leading index is a loop variable modulo that number."""
    shape = program.buffer[name].shape
    if len(shape) < 2 or not shape[0].is_const or shape[0].const < 2:
        return None
    n = shape[0].const
    if n > MOST_SLOTS:
        return None
    for site in step.sites:
        for a, _, _ in addresses(site.action, program):
            if a.buffer == name and any((Aff.of(loop.var) + k) % n == a.index[0] for loop in site.loops for k in range(n)):
                return n
    return None
