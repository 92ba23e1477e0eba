"""Schedules that tilec chooses: its own for a CPU, the best of a search, one for a mix of shapes."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

from tilec.api.kernel import Kernel, Schedule
from tilec.errors import ScheduleError, TargetError
from tilec.runtime.c_callable import Compiled
from tilec.runtime.c_run import check_threads
from tilec.schedule import schedule as base
from tilec.search import cpu
from tilec.search.measure import Measure
from tilec.search.mix import Mixed, check_mix, combine
from tilec.search.result import Tuned
from tilec.search.tune import tune as search_tune
from tilec.targets import Target
from tilec.targets import load as load_target


def pick(
    kernel: Kernel,
    target: str | Target = "host",
    *,
    reassociate: str | Iterable[str] | None = None,
    contract: bool = False,
    hardware_rounding: bool = False,
    ahead: str | Iterable[str] = (),
    threads: int | None = None,
    **sizes: int,
) -> Schedule:
    """tilec's own schedule of `kernel` for a CPU at these sizes, without measuring: structure (panels, micro-tiles, packing, what
    runs on the cores, where an epilogue runs) and sizes from the program and the machine's figures. Proved.

    ahead: arguments (weights) that a caller may pack once for many calls: `f.pack(W=W)` of the built function. The permissions
    are those of `schedule`; what is not permitted is not used. threads: what it will run on (default: all cores). Its primitives
    go on from there. ScheduleError for sizes that do not fit, for an `ahead` that nothing packs and for what is no number of
    threads, TargetError for a target that is no CPU.
    """
    _check_kernel("pick", kernel)
    machine = load_target(target)
    if machine.kind != "cpu":
        raise TargetError(f'pick(target="{machine.name}"): {machine.name} is no CPU. `tilec.tune` chooses schedules for it')
    allowed: dict[str, Any] = {"reassociate": reassociate, "contract": contract, "hardware_rounding": hardware_rounding}
    names = (ahead,) if isinstance(ahead, str) else ahead
    used = None if threads is None else check_threads(threads)
    s = cpu.pick(kernel.program, machine, ahead=names, threads=used, sizes=sizes, **allowed).schedule
    return Schedule(s.program, s.trace, s.proof_budget, s.proved, kernel)


def compile(
    kernel: Kernel,
    target: str | Target = "host",
    *,
    reassociate: str | Iterable[str] | None = None,
    contract: bool = False,
    hardware_rounding: bool = False,
    ahead: str | Iterable[str] = (),
    threads: int | None = None,
    compiler: str | None = None,
    **sizes: int,
) -> Compiled:
    """`kernel` by tilec's own schedule for this CPU (`pick`), as C, compiled: a function called like the kernel, on NumPy arrays.

    threads: how many its parallel loops use (default: OMP_NUM_THREADS, else all cores). Its `.schedule` says how it runs and
    which permissions it has. MeasureError without a C compiler (`schedule.build("numpy")` needs none).
    """
    s = pick(
        kernel,
        target,
        reassociate=reassociate,
        contract=contract,
        hardware_rounding=hardware_rounding,
        ahead=ahead,
        threads=threads,
        **sizes,
    )
    made = s.build("c", threads=threads, compiler=compiler)
    assert isinstance(made, Compiled)
    made.schedule = s
    return made


def _check_kernel(what: str, kernel: Any) -> None:
    if not isinstance(kernel, Kernel):
        raise ScheduleError(f"{what}({kernel!r}): the first argument is a kernel, as from @tilec.kernel or tilec.workload(name)")


def tune(
    kernel: Kernel,
    sizes: Mapping[str, int] | None = None,
    target: str | Target = "h100-sxm",
    space: Mapping[str, Sequence[Any]] | None = None,
    schedule: Callable[..., base.Schedule] | None = None,
    measure: Callable[[Schedule], float] | Measure | bool | None = None,
    budget: int | None = None,
    seed: int = 0,
    database: str | os.PathLike[str] | None = None,
    **options: Any,
) -> Tuned:
    """Choose a schedule of `kernel` for numbers of all its `sizes` on `target`: `.best.knobs/.schedule/.cost`, `.table()`,
    `.rejected[reason]` (count, example), `.pareto(x, y)`, `.why()`.

    space={"BM": [32, 64], …} and schedule=lambda s, BM, …: s.… search knobs of your own; without them the structures and tile
    sizes derived from the program are searched. measure: True or a `Measure`: the best `budget` candidates of the model are
    compiled, verified and timed on this machine; or a function that runs a schedule and returns seconds. `.measurement` tells how
    it went. database: an SQLite file that keeps measurements. options: threads, registers, reassociate, contract,
    hardware_rounding, progress as in `tilec.search.tune.tune`. Deterministic for a seed. What is shown is proved in full.
    """

    _check_kernel("tune", kernel)
    known = [n for n in inspect.signature(search_tune).parameters if n not in ("kernel", "face")]
    for name in options:
        if name not in known:
            raise ScheduleError(f"tune({name}=…): no option '{name}'. Options: {', '.join(known)}")

    def face(s: base.Schedule) -> Schedule:
        return Schedule(s.program, s.trace, s.proof_budget, s.proved, kernel)

    if measure is None or isinstance(measure, bool | Measure) or not callable(measure):
        how = measure
    else:
        own = measure
        how = wraps(own)(lambda s: own(face(s)))
    return search_tune(kernel, sizes, target, space, schedule, how, budget, seed, database, face=face, **options)


def tune_mix(
    kernel: Kernel,
    shapes: Sequence[tuple[Mapping[str, int], float]],
    target: str | Target = "h100-sxm",
    **options: Any,
) -> Mixed:
    """One schedule for a mix of shapes: `[({"M": 64}, 3), ({"M": 1}, 97)]` are sizes with frequencies.

    Every shape is searched as by `tune`, whose options these are; of the candidates that fit all shapes, the one of the least
    expected time is `.best`; `.candidate(n)` is it in full at the n-th shape, `.price` what one schedule for all costs over one
    for each. With `measure=`, measured times count where every shape has them.
    """
    pairs = check_mix(shapes)
    if "sizes" in options:
        raise ScheduleError("tune_mix(sizes=…): the shapes name the sizes, as in [({'M': 64}, 3), ({'M': 1}, 97)]")
    return combine(pairs, [tune(kernel, sizes, target, **options) for sizes, _ in pairs])
