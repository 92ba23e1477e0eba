"""tune: space → legality once per structure → capacity → rank by cost → measure the best few → prove in full what is shown."""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isclose
from typing import Any

import numpy as np

from tilec.cost.bulk import Columns, evaluate
from tilec.cost.cost import Cost
from tilec.cost.cpu import program_time
from tilec.cost.fit import register_misfit
from tilec.cost.price import price
from tilec.errors import LegalityError, ResourceError, ScheduleError, TilecError
from tilec.ir.program import Program
from tilec.schedule.refusal import refuse
from tilec.schedule.schedule import HasProgram, Schedule, start
from tilec.search.cpu_space import cpu_recipes
from tilec.search.measure import Measure
from tilec.search.measured import measure_with
from tilec.search.options import check_counts, check_database, check_measure, check_progress, check_threads, same_threads
from tilec.search.recipes import derive
from tilec.search.result import Candidate, Rejections, Row, Tuned
from tilec.search.space import Knobs, Space
from tilec.search.structure import Judged, Structure, candidate, judge, split_structures, unproved_schedule
from tilec.search.unproved import Memo
from tilec.targets import Target, load

APART = 12  # candidates priced one by one in a structure without formulas
THREADS = 256  # per block of a GPU, where neither the caller nor the schedule says
CPU_CANDIDATES = 96  # priced on a CPU, over all structures, unless told otherwise
MOST_CANDIDATES = 1_000_000  # of a space given by the person: all are priced and kept

Progress = Callable[[str, int, int], None]


def tune(
    kernel: HasProgram | Program,
    sizes: Mapping[str, int] | None = None,
    target: str | Target = "h100-sxm",
    space: Mapping[str, Sequence[Any]] | None = None,
    schedule: Callable[..., Schedule] | None = None,
    measure: Callable[[Schedule], float] | Measure | bool | None = None,
    budget: int | None = None,
    seed: int = 0,
    database: str | os.PathLike[str] | None = None,
    threads: int | None = None,
    registers: int | None = None,
    reassociate: str | Iterable[str] | None = None,
    contract: bool = False,
    hardware_rounding: bool = False,
    priced: int | None = None,
    progress: Progress | None = None,
    face: Callable[[Schedule], Schedule] = lambda s: s,
) -> Tuned:
    """Choose a schedule of `kernel` for numbers of all its `sizes` on `target`.

    space and schedule: knobs with their values, and `lambda s, BM, …: s.…` that gets a fresh Schedule and returns one. Without
    them the structures and tile sizes that recipes derive from the program are searched.
    measure: True or a Measure: the best by the model are compiled, verified and timed on this machine (search/measure.py); or a
    function that runs a schedule and returns seconds. budget: how many candidates at most (default: 16; 8 for a function).
    database: a SQLite file that keeps measurements. seed: which candidates are sampled where not all can be priced. threads,
    registers: per block (256 on a GPU) and per thread, where the schedule does not say; on a CPU `threads` are its threads, also
    of what is measured.
    priced: about how many candidates are priced on a CPU, drawn from the seed (default 96). progress(stage, done, total) is
    called. Raises ScheduleError (arguments), TargetError; `.best` raises ScheduleError when nothing is legal and fits.
    """
    program = kernel if isinstance(kernel, Program) else kernel.program
    machine = load(target)
    check_threads(machine, threads, registers)
    how = check_measure(measure, machine)
    check_counts(machine, seed, priced, budget, how is not None)
    store = check_database(database, how is not None)
    check_progress(progress)
    if machine.kind == "gpu" and threads is None:
        threads = THREADS
    elif machine.kind == "cpu":
        how, threads = same_threads(how, None if threads is None else int(threads))
        threads = None if threads is None else min(threads, machine.cores)  # the model knows no two threads of one core
    say = progress or (lambda stage, done, total: None)
    permissions: dict[str, Any] = {"reassociate": reassociate, "contract": contract, "hardware_rounding": hardware_rounding}
    given = _sizes(program, sizes)
    bound = start(program, given, **permissions)
    opened = start(program, {}, **permissions)
    memo: Memo = {}
    on_cpu = machine.kind == "cpu" and bool(machine.threads)
    structures = _structures(program, opened, bound, space, schedule, memo, machine if on_cpu else None)
    rejected = Rejections()
    notes: list[str] = []
    parts: list[tuple[Judged, list[Row]]] = []
    considered = 0
    for n, structure in enumerate(structures):
        say("structures", n, len(structures))
        considered += len(structure.space)
        judged = judge(structure, opened, memo)
        if judged.refusal is not None and isinstance(judged.refusal, ScheduleError):
            judged = judge(structure, bound, memo)  # some schedules need numbers: a row kept in shared memory, say
        if judged.refusal is not None:
            rejected.add(_reason(judged.refusal), len(structure.space), f"{structure.name}: {judged.refusal}")
            continue
        if on_cpu:
            rows = _by_cpu_model(
                judged, bound, machine, threads, seed, memo, -(-(priced or CPU_CANDIDATES) // len(structures)), rejected, notes
            )
        elif judged.formulas is not None:
            rows = _in_bulk(judged, machine, given, threads, rejected)
        else:
            rows = _one_by_one(judged, bound, machine, given, threads, registers, seed, memo, rejected, notes)
        parts.append((judged, rows))
    say("structures", len(structures), len(structures))
    order = [
        (row.time if row.time is not None else float("inf"), row.traffic, row.footprint, k, j)
        for k, (_, rows) in enumerate(parts)
        for j, row in enumerate(rows)
    ]
    order.sort()
    by_name = {judged.structure.name: judged for judged, _ in parts}
    ranked = [parts[k][1][j] for *_, k, j in order]

    def build(row: Row) -> Candidate:
        return _build(row, by_name[row.structure], opened, bound, machine, threads, registers, memo, face)

    def draft(row: Row) -> Schedule:
        judged = by_name[row.structure]
        return candidate(judged, opened, bound, {n: row.knobs[n] for n in judged.structure.space.names}, memo)

    def drop(row: Row, e: TilecError) -> None:
        rejected.add(_reason(e), 1, f"{row.structure}, {row.knobs}: {e}")

    result = Tuned(
        program.name,
        machine.name,
        given,
        ranked,
        rejected.found,
        considered,
        len(structures),
        tuple(notes),
        build,
        drop,
        draft=draft,
    )
    if how is not None:
        measure_with(result, how, program, seed, store, budget, say, lambda reason, example: rejected.add(reason, 1, example))
    return result


def _sizes(program: Program, sizes: Mapping[str, int] | None) -> dict[str, int]:
    if not isinstance(sizes, Mapping | None):
        raise ScheduleError(f"tune(sizes={sizes!r}): sizes are a dict of names and numbers, as in {{'M': 1024}}")
    given = dict(sizes or {})
    missing = [n for n in program.sizes if n not in given]
    if missing:
        raise ScheduleError(
            f"tune(sizes={given}): no number for {', '.join(missing)}; sizes of {program.name}: {', '.join(program.sizes)}"
        )
    start(program, given)  # its checks: names, ranges, assumptions
    return {n: int(given[n]) for n in program.sizes}


def _structures(
    program: Program,
    opened: Schedule,
    bound: Schedule,
    space: Mapping[str, Sequence[Any]] | None,
    schedule: Callable[..., Schedule] | None,
    memo: Memo,
    cpu: Target | None,
) -> list[Structure]:
    if schedule is None:
        if space is not None:
            raise ScheduleError("tune(space=…): knobs need the function that uses them: give schedule=lambda s, BM, …: s.…")
        found = derive(opened.program) if cpu is None else cpu_recipes(bound.program, cpu)
        return [Structure(r.name, r.choices, Space.of(r.space), r.apply, r.sentence, r.fits) for r in found]
    if not callable(schedule):
        raise ScheduleError(f"tune(schedule={schedule!r}): give a function of a fresh schedule and the knobs")
    axes = Space.of({} if space is None else space)
    if len(axes) > MOST_CANDIDATES:
        raise ScheduleError(f"tune(space=…): {len(axes):,} candidates; at most {MOST_CANDIDATES:,} are priced. List fewer values")
    return split_structures("as given", axes, lambda s, knobs: _call(schedule, s, knobs), opened, memo)


def _call(schedule: Callable[..., Schedule], s: Schedule, knobs: Mapping[str, Any]) -> Schedule:
    try:
        inspect.signature(schedule).bind(s, **knobs)
    except TypeError as e:
        raise ScheduleError(f"tune(schedule=…): the function does not take the knobs {', '.join(knobs)}: {e}") from None
    try:
        return schedule(s, **knobs)
    except TilecError:
        raise
    except Exception as e:
        raise ScheduleError(f"tune(schedule=…): the function raised {type(e).__name__} for {dict(knobs)}: {e}") from e


def _reason(e: TilecError) -> str:
    if isinstance(e, LegalityError):
        return "illegal" if e.witness is not None else "unknown"
    return {"ResourceError": "does not fit", "ScheduleError": "not expressible"}.get(type(e).__name__, type(e).__name__)


def _in_bulk(judged: Judged, machine: Target, sizes: Mapping[str, int], threads: int | None, rejected: Rejections) -> list[Row]:
    structure = judged.structure
    assert judged.formulas is not None
    names, count = structure.space.names, len(structure.space)
    grids = np.meshgrid(*(np.array(v, dtype=np.int64) for _, v in structure.space.axes), indexing="ij")
    knobs = {n: g.ravel() for n, g in zip(names, grids, strict=True)}
    c = evaluate(judged.formulas, machine, sizes, knobs, threads)
    fits = np.ones(count, dtype=bool)
    capacity = machine.shared_capacity
    if capacity is not None:
        over = c.shared > capacity
        if over.any():
            n = int(np.argmax(over))
            text = f"{_label(structure.name, structure.space.at(n))} needs {int(c.shared[n]):,} B of shared memory per block; "
            text += f"{machine.name} allows {capacity:,} B"
            rejected.add("does not fit", int(over.sum()), text)
            fits &= ~over
    if machine.limits is not None:
        limit = machine.limits.threads_per_block
        over = fits & (c.threads > limit)
        if over.any():
            n = int(np.argmax(over))
            text = f"{_label(structure.name, structure.space.at(n))} needs {int(c.threads[n]):,} threads per block; "
            rejected.add("does not fit", int(over.sum()), text + f"{machine.name} allows {limit:,}")
            fits &= ~over
        per_thread = threads is not None or judged.formulas.per_thread
        most = 4 * (machine.limits.registers_per_thread if per_thread else machine.limits.registers_per_block)
        over = fits & (c.register > most)
        if over.any():
            n = int(np.argmax(over))
            what = register_misfit(machine, int(c.register[n]), per_thread=per_thread)
            rejected.add("does not fit", int(over.sum()), f"{_label(structure.name, structure.space.at(n))} {what}")
            fits &= ~over
    return _rows(structure, c, np.flatnonzero(fits))


def _label(structure: str, knobs: Knobs) -> str:
    return f"{structure}, {' '.join(f'{k}={v}' for k, v in knobs.items())}"


def _rows(structure: Structure, c: Columns, which: np.ndarray) -> list[Row]:
    out = []
    axes = structure.space
    traffic, shared, register, flops = (a[which].tolist() for a in (c.traffic, c.shared, c.register, c.flops))
    seconds = c.seconds[which].tolist()
    for k, n in enumerate(which.tolist()):
        s = seconds[k]
        out.append(
            Row(
                structure.name,
                {**structure.choices, **axes.at(n)},
                traffic[k],
                shared[k],
                register[k],
                flops[k],
                None if s != s else s,
            )
        )
    return out


def _one_by_one(
    judged: Judged,
    bound: Schedule,
    machine: Target,
    sizes: Mapping[str, int],
    threads: int | None,
    registers: int | None,
    seed: int,
    memo: Memo,
    rejected: Rejections,
    notes: list[str],
) -> list[Row]:
    structure = judged.structure
    picked = structure.space.sample(APART, seed)
    notes.append(f"{structure.name}: {len(picked)} of {len(structure.space)} candidates priced one by one ({judged.apart})")
    out = []
    for n in picked:
        knobs = structure.space.at(n)
        try:
            made = unproved_schedule(structure.apply, bound, knobs, memo)
            cost = price(made.program, machine, {}, threads, registers)
            if cost.problems:
                raise ResourceError(cost.problems[0])
        except TilecError as e:
            rejected.add(_reason(e), 1, f"{_label(structure.name, knobs)}: {e}")
            continue
        out.append(
            Row(
                structure.name,
                {**structure.choices, **knobs},
                cost.traffic.total("global"),
                cost.footprint["shared"] + cost.footprint["scratch"],
                cost.footprint["register"],
                cost.flops,
                cost.time,
            )
        )
    return out


def _by_cpu_model(
    judged: Judged,
    bound: Schedule,
    machine: Target,
    threads: int | None,
    seed: int,
    memo: Memo,
    most: int,
    rejected: Rejections,
    notes: list[str],
) -> list[Row]:
    """Candidates on a CPU, each by the model of cost/cpu.py: traffic by the model, too; flops are those of the first one
    priced."""
    structure = judged.structure
    fitting = [n for n in range(len(structure.space)) if structure.fits(structure.space.at(n))]
    rejected.add(
        "does not fit",
        len(structure.space) - len(fitting),
        f"{structure.name}: more accumulators than registers",
    )
    picked = fitting
    if len(fitting) > most:
        picked = sorted(random.Random(seed).sample(fitting, most))
        notes.append(f"{structure.name}: {len(picked)} of {len(fitting)} candidates priced, drawn from the seed")
    out: list[Row] = []
    for n in picked:
        knobs = structure.space.at(n)
        try:
            made = unproved_schedule(structure.apply, bound, knobs, memo)
            seconds, bytes_ = program_time(made.program, machine, {}, threads)
        except TilecError as e:
            rejected.add(_reason(e), 1, f"{_label(structure.name, knobs)}: {e}")
            continue
        out.append(Row(structure.name, {**structure.choices, **knobs}, round(bytes_), 0, 0, 0, seconds))
    return out


def _build(
    row: Row,
    judged: Judged,
    opened: Schedule,
    bound: Schedule,
    machine: Target,
    threads: int | None,
    registers: int | None,
    memo: Memo,
    face: Callable[[Schedule], Schedule],
) -> Candidate:
    structure = judged.structure
    knobs = {n: row.knobs[n] for n in structure.space.names}
    made = candidate(judged, opened, bound, knobs, memo)
    verdict = made.check()
    if verdict.status != "legal":
        raise refuse(_label(structure.name, knobs), made.program, verdict)
    proved = Schedule(made.program, made.trace, bound.proof_budget, verdict)
    cost = price(proved.program, machine, {}, threads, registers)
    if judged.formulas is not None and not _agrees(row, cost):
        # numbers cut a tile that is larger than its array; the ranking counts it whole, as kernels for any size run it
        try:
            whole = unproved_schedule(structure.apply, opened, knobs, memo).program
            cost = price(whole, machine, dict(bound.program.bound), threads, registers)
        except ScheduleError:
            pass  # a structure that needs numbers: its formulas are of the program with numbers
    if cost.problems:
        raise ResourceError(cost.problems[0])
    return Candidate(row.structure, structure.sentence, row.knobs, face(proved), cost, row.measured)


def _agrees(row: Row, cost: Cost) -> bool:
    if cost.footprint["shared"] + cost.footprint["scratch"] != row.footprint:
        return False
    return cost.time == row.time or isclose(cost.time or 0.0, row.time or 0.0, rel_tol=1e-9)
