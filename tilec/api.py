"""The face: Kernel, Schedule, tune and the calculators. Thin wrappers over the pure packages; no idea lives only here."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import Any, TypeVar

import numpy as np

from tilec import workloads
from tilec.codegen import c_source, numpy_source, tile, triton
from tilec.cost.banks import SharedTile, bank_rounds, global_sectors
from tilec.cost.caches import CacheMisses, cache_misses
from tilec.cost.calls import (
    CallProgram,
    amortise_calls,
    break_even_share,
    choose_program,
    generation_calls,
    pad_to_buckets,
    shape_mix,
    work_ms,
)
from tilec.cost.cost import Cost
from tilec.cost.graph import (
    amdahl,
    call_timing,
    critical_path,
    graph_replay,
    host_bound,
    launch_counts,
    limit_by_doubling,
    paired_change,
    persistent_kernel,
)
from tilec.cost.latency import blocks_needed, bytes_in_flight, effective_bandwidth, loads_needed, tiles, warps_needed, waves
from tilec.cost.occupancy import Occupancy, occupancy
from tilec.cost.pipeline import pipeline_time
from tilec.cost.price import price
from tilec.cost.raster import operand_sharing
from tilec.cost.roofline import roofline
from tilec.errors import CountError, LanguageError, ResourceError, ScheduleError, TargetError
from tilec.ir import interp
from tilec.ir.arguments import signature
from tilec.ir.printer import text
from tilec.ir.program import Program
from tilec.lang.kernel import Definition, define
from tilec.poly.wellformed import check as check_wellformed
from tilec.runtime import c_callable, c_run, numpy_run, triton_run
from tilec.runtime.c_callable import Compiled
from tilec.runtime.c_load import load
from tilec.runtime.call import bind
from tilec.schedule import schedule as base
from tilec.schedule.core import Primitive, primitives
from tilec.search import cpu
from tilec.search.measure import Measure
from tilec.search.mix import Mixed, check_mix, combine
from tilec.search.result import Tuned
from tilec.search.tune import tune as search_tune
from tilec.targets import Target
from tilec.targets import load as load_target
from tilec.targets import load as target

T = TypeVar("T")
Runner = Callable[[dict[str, np.ndarray], dict[str, int], dict[str, float | int]], Mapping[str, np.ndarray]]


def _interpreter(program: Program) -> Runner:
    return lambda arrays, sizes, scalars: interp.run(program, arrays, sizes, scalars)


# What a backend's name means: text of a program, and a way to run it.
# An emitter's and a builder's keywords are the options of emit and build; a runner is for one run of all written parameters.
EMITTERS: Mapping[str, Callable[..., str]] = {
    "pseudocode": text,
    "tile": tile.text,
    "numpy": numpy_source.emit,
    "c": c_source.emit,
    "triton": triton.source,
}
RUNNERS: Mapping[str, Callable[[Program], Runner]] = {
    "numpy": numpy_run.runner,
    "interpreter": _interpreter,
    "c": c_run.runner,
    "triton": triton_run.runner,
}
BUILDERS: Mapping[str, Callable[..., Callable[..., Any]]] = {"c": c_callable.build}


def _options(function: Callable[..., Any], options: Mapping[str, Any], what: str) -> None:
    """ScheduleError for an option that the backend has not."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    known = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in ("about", "comments")]
    wrong = [n for n in options if n not in known]
    if wrong:
        raise ScheduleError(f"{what}: no option '{wrong[0]}'. Options: {', '.join(known) or 'none'}")


def _choose(table: Mapping[str, T], name: str, what: str) -> T:
    if not isinstance(name, str) or name not in table:
        raise ScheduleError(f'{what}("{name}"): no such backend. Backends: {", ".join(table)}')
    return table[name]


class Kernel:
    """A kernel as written: callable on NumPy arrays, and the start of every schedule.

    `definition` is what the front end read; `program` its original program. A call or a schedule is refused with LanguageError
    when an access is out of bounds or a read finds a cell that was never written; the error shows the smallest sizes.
    """

    def __init__(self, definition: Definition, file_doc: str | None = None):
        self.definition, self._file_doc = definition, file_doc

    @property
    def name(self) -> str:
        """As in the text of the kernel."""
        return self.definition.name

    @property
    def program(self) -> Program:
        """The original program."""
        return self.definition.program

    @property
    def parameters(self) -> tuple[str, ...]:
        """Arrays and scalars, in the order of the call."""
        return self.definition.parameters

    @property
    def signature(self) -> str:
        """`gemm(A: bf16[M, K], W: bf16[K, N], Y: bf16[M, N])`."""
        return signature(self.program)

    @property
    def summary(self) -> str:
        """The first line of its docstring, or of its file's where the kernel has none of its own."""
        doc = self.definition.doc or self._file_doc or ""
        return doc.strip().split("\n")[0]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        hint = f"; primitives belong to a schedule: {self.name}.schedule().{name}(…)" if name in primitives() else ""
        raise AttributeError(f"Kernel has no attribute {name!r}{hint}")

    @cached_property
    def _checked(self) -> bool:
        check_wellformed(self.program, self.definition.file)
        return True

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the loops in the written order on NumPy arrays: the reference of every schedule.

        Arguments by position or name; parameters that are only written may be omitted. Sizes come from the shapes, or by name.
        Written arrays that were passed are updated in place. Returns the only-written parameters: one array, a tuple, or None.
        """
        assert self._checked
        call = bind(self.program, args, kwargs)
        return call.finish(interp.run(self.program, call.arrays, call.sizes, call.scalars))

    def schedule(
        self,
        *,
        reassociate: str | Iterable[str] | None = None,
        contract: bool = False,
        hardware_rounding: bool = False,
        proof_budget: int | None = None,
        **sizes: int,
    ) -> Schedule:
        """A fresh schedule in the written order; sizes given here are bound, the others stay symbolic.

        reassociate: buffers whose float sums may change their order. contract: a multiply-add may round once.
        hardware_rounding: an instruction may flush denormals and round in its own order.
        proof_budget: isl operations that each proof may take.
        """
        try:
            s = base.start(self.program, sizes, reassociate, contract, proof_budget, hardware_rounding)
        except LanguageError as e:
            if e.file is None and self.definition.file is not None:  # the kernel's fault, at a line of its text
                raise LanguageError(str(e), self.definition.file, e.line) from None
            raise
        return Schedule(s.program, s.trace, s.proof_budget, s.proved, self)

    def __str__(self) -> str:
        return text(self.program)

    def __repr__(self) -> str:
        return f"<tilec.Kernel {self.signature}>"


@dataclass(frozen=True, repr=False)
class Schedule(base.Schedule):
    """How a kernel runs, with its cost and its code. The primitives are methods (docs/primitives.md)."""

    kernel: Kernel | None = field(default=None, compare=False)

    def cost(
        self, target: str | Target | None = None, threads: int | None = None, registers: int | None = None, **sizes: int
    ) -> Cost:
        """What it costs on `target`; every size that the schedule does not bind is given here.

        threads per block and registers per thread are used where the schedule does not fix them.
        """
        return price(self.program, target, sizes, threads, registers)

    def cache_misses(self, capacity_bytes: int, line_bytes: int = 64, **sizes: int) -> CacheMisses:
        """Lines fetched into a fully associative cache of that size by one pass, loops in the order of the tree (cost/caches.py).

        `reuse_profile` of tilec.cost.caches answers for many capacities at once.
        """
        return cache_misses(self.program, capacity_bytes, line_bytes, sizes)

    def emit(self, backend: str, **options: Any) -> str:
        """The code as text: "pseudocode", "tile", "numpy", "c" (vector_bytes=32: the registers its vectors are shaped for) or
        "triton" (target=, num_warps=, group=: docs/gpu.md).

        ScheduleError lists the backends for another name, and the options for another option.
        """
        emitter = _choose(EMITTERS, backend, "emit")
        _options(emitter, options, f'emit("{backend}")')
        if "comments" in inspect.signature(emitter).parameters:
            options["comments"] = lambda threads: self.notes(options.get("target"), threads)
        return emitter(self.program, **options)

    def notes(self, target: str | Target | None = None, threads: int | None = None) -> tuple[str, ...]:
        """The steps of the schedule, and what it costs (on a target, with so many threads per block): lines of text."""
        steps = str(self.trace).splitlines() or ["as written"]
        try:
            costs = self.cost(target, threads=threads).explain().splitlines()
        except (CountError, ScheduleError, ResourceError) as e:
            costs = [f"cost: {e}"]
        return ("Schedule:", *(f"    {line}" for line in steps), "", *costs)

    def build(self, backend: str = "numpy", **options: Any) -> Callable[..., Any]:
        """A function called like the kernel that runs this schedule: by generated NumPy code, by compiled "c", or by the
        "interpreter"; "triton" runs in Triton's interpreter.

        Of "c": compiler=, threads=, flags=, vector_bytes=, timeout= (docs/c.md); MeasureError without a compiler.
        """
        make = _choose(RUNNERS, backend, "build")
        if backend in BUILDERS:
            _options(BUILDERS[backend], options, f'build("{backend}")')
            return BUILDERS[backend](self.program, **options, about=self._about)
        _options(make, options, f'build("{backend}")')
        runner = make(self.program)

        def call(*args: Any, **kwargs: Any) -> Any:
            bound = bind(self.program, args, kwargs)
            return bound.finish(runner(bound.arrays, bound.sizes, bound.scalars))

        call.__name__ = call.__qualname__ = self.program.name
        call.__doc__ = f"{signature(self.program)}, scheduled, by {backend}"
        return call

    def _about(self) -> dict[str, Any]:
        """What a saved schedule says about itself: its steps, permissions, pseudocode and costs."""
        p = self.program
        try:
            cost: Any = json.loads(self.cost().to_json())
        except (CountError, ScheduleError) as e:
            cost = {"refused": str(e)}
        return {
            "schedule": json.loads(self.trace.to_json()),
            "reassociate": sorted(p.reassociate),
            "contract": p.contract,
            "hardware_rounding": p.hardware_rounding,
            "pseudocode": text(p),
            "cost": cost,
        }

    def run(self, /, *args: Any, backend: str = "numpy", **kwargs: Any) -> Any:
        """Build and call once: arguments and results as those of the kernel."""
        return self.build(backend)(*args, **kwargs)

    def outputs(self, arrays: Mapping[str, np.ndarray], backend: str = "numpy", **rest: float) -> dict[str, np.ndarray]:
        """Every written parameter by name; the arrays stay as they are. `rest` holds scalars and sizes.

        backend: also "reference", the original program interpreted.
        """
        runner = _interpreter(self.program.source) if backend == "reference" else _choose(RUNNERS, backend, "run")(self.program)
        bound = bind(self.program, (), {**{n: a.copy() for n, a in arrays.items()}, **rest})
        results = runner(bound.arrays, bound.sizes, bound.scalars)
        return {n: results[n] for n in bound.written}


def kernel(function: Callable[..., object]) -> Kernel:
    """Decorator: read a function of plain loops as a kernel.

    LanguageError at file, line and column for what the language has not.
    """
    return Kernel(define(function, sys._getframe(1).f_locals))


def workload(name: str) -> Kernel:
    """A kernel of the library by name; LanguageError lists the names."""
    return Kernel(workloads.get(name), sys.modules[f"{workloads.__name__}.{name}"].__doc__)


def pick(
    kernel: Kernel,
    target: str | Target = "host",
    *,
    reassociate: str | Iterable[str] | None = None,
    contract: bool = False,
    hardware_rounding: bool = False,
    ahead: str | Iterable[str] = (),
    **sizes: int,
) -> Schedule:
    """tilec's own schedule of `kernel` for a CPU at these sizes, without measuring: structure (panels, micro-tiles, packing, what
    runs on the cores, where an epilogue runs) and sizes from the program and the machine's figures. Proved.

    ahead: arguments (weights) that a caller may pack once for many calls: `f.pack(W=W)` of the built function. The permissions
    are those of `schedule`; what is not permitted is not used. Its primitives go on from there. ScheduleError for sizes that do
    not fit and for an `ahead` that nothing packs, TargetError for a target that is no CPU.
    """
    _check_kernel("pick", kernel)
    machine = load_target(target)
    if machine.kind != "cpu":
        raise TargetError(f'pick(target="{machine.name}"): {machine.name} is no CPU. `tilec.tune` chooses schedules for it')
    allowed: dict[str, Any] = {"reassociate": reassociate, "contract": contract, "hardware_rounding": hardware_rounding}
    s = cpu.pick(kernel.program, machine, ahead=(ahead,) if isinstance(ahead, str) else ahead, sizes=sizes, **allowed).schedule
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
        kernel, target, reassociate=reassociate, contract=contract, hardware_rounding=hardware_rounding, ahead=ahead, **sizes
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
    database: str | None = None,
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
    return combine(pairs, [tune(kernel, sizes, target, **options) for sizes, _ in pairs])


__all__ = [
    "CallProgram",
    "Compiled",
    "Cost",
    "Kernel",
    "Measure",
    "Occupancy",
    "Primitive",
    "Program",
    "Schedule",
    "SharedTile",
    "Tuned",
    "amdahl",
    "amortise_calls",
    "bank_rounds",
    "blocks_needed",
    "break_even_share",
    "bytes_in_flight",
    "call_timing",
    "choose_program",
    "compile",
    "critical_path",
    "effective_bandwidth",
    "generation_calls",
    "global_sectors",
    "graph_replay",
    "host_bound",
    "kernel",
    "launch_counts",
    "limit_by_doubling",
    "load",
    "loads_needed",
    "occupancy",
    "operand_sharing",
    "pad_to_buckets",
    "paired_change",
    "persistent_kernel",
    "pick",
    "pipeline_time",
    "primitives",
    "roofline",
    "shape_mix",
    "target",
    "tiles",
    "tune",
    "tune_mix",
    "warps_needed",
    "waves",
    "work_ms",
    "workload",
]
