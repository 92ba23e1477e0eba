"""`price`: what a program costs, as counts (exact) and estimates (by a stated rule) on a machine."""

from __future__ import annotations

from collections.abc import Mapping

from tilec.cost.amounts import Held, Traffic, number
from tilec.cost.blockterms import block_terms, in_turn
from tilec.cost.cost import Cost, LaunchCost
from tilec.cost.counting import Runs, barriers, flows, work
from tilec.cost.cpu import cpu_time
from tilec.cost.fit import misfits
from tilec.cost.kernel_time import Kernel
from tilec.cost.launches import Launch, launches
from tilec.cost.occupancy import Launch as AskedFor
from tilec.cost.occupancy import Occupancy, check_launch, launch_occupancy
from tilec.cost.registers import Demand, demand
from tilec.cost.separable import Markers
from tilec.cost.storage import block_footprint, first_is_read, touched, working_set
from tilec.cost.term import Num, Term
from tilec.cost.term import evaluate as value
from tilec.cost.threadwork import full_work
from tilec.cost.time import gpu_time, roofline_time
from tilec.ir.closed import Closed
from tilec.ir.program import BLOCK_KINDS, Program
from tilec.ir.sizes import check_numbers
from tilec.ir.tree import Site, addresses, sites, without_hints
from tilec.poly.count import Counter, NotClosed
from tilec.targets import Target, load


def price(
    program: Program,
    target: str | Target | None = None,
    sizes: Mapping[str, int] | None = None,
    threads: int | None = None,
    registers: int | None = None,
) -> Cost:
    """The cost of a program. Counts need no target; occupancy and time do.

    sizes: numbers for sizes still open; without them the formulas are there and numbers that need them are refused. threads (per
    block) and registers (per thread) are used where the program does not bind thread loops, or says nothing.
    Raises TargetError (unknown machine), ScheduleError (sizes that don't fit the program), CountError (beyond the budget).
    """
    machine = None if target is None else load(target)
    program = without_hints(program)
    given = check_numbers(program, sizes or {}, "cost")
    check_launch("cost", threads, registers)
    runs = Runs(program, given)
    steps = launches(program)
    known = not [n for n in program.sizes if n not in given]
    traffic = Traffic(flows(program, steps, runs), given)
    every = list(sites(program.body))
    touched_by: dict[str, list] = {}
    for s in every:
        for a, _, _ in addresses(s.action, program):
            touched_by.setdefault(a.buffer, []).append(s)
    least = compulsory(program, runs.counter)
    try:
        distinct = touched(program, runs.counter, touched_by)
    except NotClosed as e:
        raise runs.distinct_failed("global buffers", e) from None
    costs: list[LaunchCost] = []
    for n, step in enumerate(steps):
        costs.append(_launch(program, machine, step, n, runs, traffic, given, threads, registers, known, least))
    largest = max(costs, key=_size, default=None)
    parts = list(largest.footprint.parts) if largest is not None else []
    parts += [("global", name, c) for name, c in distinct.items()]
    return Cost(
        name=program.name,
        target=machine,
        sizes=given | dict(program.bound),
        traffic=traffic,
        footprint=Held(tuple(parts), given, largest.footprint.marks if largest is not None else ()),
        working_set=working_set(program, steps, given),
        compulsory=least,
        launch=tuple(costs),
        largest=costs.index(largest) if largest is not None else None,
        notes=tuple(runs.notes),
        problems=tuple(p for c in costs for p in c.problems),
        program=program,
    )


def _launch(
    program: Program,
    machine: Target | None,
    step: Launch,
    n: int,
    runs: Runs,
    traffic: Traffic,
    given: Mapping[str, int],
    threads: int | None,
    registers: int | None,
    known: bool,
    least: Mapping[tuple[str, str], Closed],
) -> LaunchCost:
    extents = step.threads(given)
    bound = None
    if extents:
        bound = 1
        for e in extents.values():
            bound *= e
    per_block = bound if bound is not None else threads if step.collective else None
    parts, marks = block_footprint(program, step, given, per_block)
    footprint = Held(tuple(parts), given, tuple(marks))
    mine = traffic.launch(step.number)
    done = work(program, step, runs)
    names, conditions = step.block_domain
    blocks = runs.points(names, conditions, f"the blocks of {step.name}") if names else Closed.of(1)
    shared = footprint.known("shared")
    gridded = any(loop.kind in BLOCK_KINDS for loop in step.loops)

    def total(site: Site) -> Term:
        return Num(number(runs.of(site), given, "runs"))

    terms = of_thread = None
    if machine is not None and machine.kind == "gpu" and gridded and known:
        terms = block_terms(program, step, Markers(()), total)
        of_thread = full_work(program, step, Markers(()))
    resident: Occupancy | None = None
    held = Demand(0, 0, 0, "")
    if machine is not None and machine.limits is not None and shared is not None:
        kept = footprint.known("register") or 0
        if registers is not None:
            held = Demand(registers, 0, 0, "")
        elif terms is not None:
            held = demand(machine, terms, of_thread, given, kept, per_block or 0, lambda t: value(t, given))
        elif per_block is not None and kept:
            held = Demand(min(-(-kept // 4), machine.limits.registers_per_thread), 0, 0, "kept")
        per_thread = registers if per_block is None or not held.rule else int(held.registers)
        asked = AskedFor(per_block, per_thread, shared, None, 1, int(held.kept))
        resident = launch_occupancy(machine.name, machine.limits, asked, held.words)
    time = None
    if machine is not None and machine.figures and known:
        touched_here = {f.buffer for f in mine.flows}
        fewest = sum(number(c, given, "least bytes") for (b, _), c in least.items() if b in touched_here)
        operations = {k: number(c, given, "operations") for k, c in done.items()}
        if machine.kind == "cpu" and machine.threads:
            time = cpu_time(program, program.body[step.number], machine, given, threads, first=n == 0)
        elif terms is not None and resident is not None:
            buffers = dict.fromkeys(f.buffer for f in mine.flows if f.memory == "global")
            moved = {(b, d): number(mine.formula("global", d, b), given, "bytes") for b in buffers for d in ("read", "write")}
            inner = of_thread if in_turn(step) else None
            grid = number(blocks, given, "blocks")
            kernel = Kernel(terms, grid, per_block or 0, held, footprint["shared"], moved, inner, given, registers)
            time = gpu_time(machine, kernel, lambda t: value(t, given), mine.total("global"), fewest, operations)
        else:
            time = roofline_time(machine, mine.total("global"), fewest, operations)
    return LaunchCost(
        number=n,
        name=step.name,
        is_bound=step.bound,
        is_nest=any(s.loops for s in step.sites),
        blocks_formula=blocks,
        threads=per_block,
        traffic=mine,
        footprint=footprint,
        work=tuple(done.items()),
        barriers_formula=barriers(step, runs),
        occupancy=resident,
        estimate=time,
        sizes=given,
        problems=misfits(program, step, machine, footprint, resident, per_block),
    )


def _size(c: LaunchCost) -> tuple[int, int]:
    """Larger means more shared memory, then more registers."""
    held = {m: c.footprint.known(m) or 0 for m in ("shared", "scratch", "register")}
    return held["shared"] + held["scratch"], held["register"]


def compulsory(program: Program, counter: Counter) -> dict[tuple[str, str], Closed]:
    """(parameter, direction) → bytes that cross global memory's edge in any schedule: inputs read once, outputs written once.

    A written parameter counts as read only where its first access reads it and no other statement writes it: a valid lower bound.
    """
    source = program.source
    every = list(sites(source.body))
    out: dict[tuple[str, str], Closed] = {}
    for b in source.buffers:
        if b.role != "param":
            continue
        mine = [s for s in every if any(a.buffer == b.name for a, _, _ in addresses(s.action, source))]
        writers = [s for s in mine if any(a.buffer == b.name and w for a, _, w in addresses(s.action, source))]
        if not mine:
            continue
        try:
            if not writers or (len(writers) == 1 and first_is_read(source, mine, b.name)):
                out[b.name, "read"] = touched(source, counter, {b.name: mine}, reads_only=True)[b.name]
            if writers:
                out[b.name, "write"] = touched(source, counter, {b.name: writers})[b.name]
        except NotClosed:
            continue  # leaving a buffer out keeps the bound valid
    return out
