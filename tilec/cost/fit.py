"""Does a launch fit on the machine, and if not, what would."""

from __future__ import annotations

from tilec.cost.amounts import Held
from tilec.cost.launches import Launch
from tilec.cost.occupancy import Occupancy
from tilec.ir.affine import Aff
from tilec.ir.program import Program
from tilec.ir.tree import addresses
from tilec.targets import Target


def misfits(
    program: Program, step: Launch, machine: Target | None, footprint: Held, resident: Occupancy | None
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
    for problem in resident.problems if resident is not None else ():
        if "shared memory" not in problem:
            out.append(f"'{program.name}' {problem}")
    return tuple(out)


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
    for site in step.sites:
        for a, _, _ in addresses(site.action, program):
            if a.buffer == name and any((Aff.of(loop.var) + k) % n == a.index[0] for loop in site.loops for k in range(n)):
                return n
    return None
