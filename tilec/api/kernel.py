"""A kernel as written, and a schedule of it with its cost, its code and a way to run it."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tilec import workloads
from tilec.cost.caches import CacheMisses, cache_misses
from tilec.cost.cost import Cost
from tilec.cost.price import price
from tilec.errors import CountError, LanguageError, ResourceError, ScheduleError
from tilec.ir import interp
from tilec.ir.arguments import signature
from tilec.ir.printer import text
from tilec.ir.program import Program
from tilec.lang.kernel import Definition, define
from tilec.poly.wellformed import check as check_wellformed
from tilec.runtime import backends
from tilec.runtime.call import bind
from tilec.runtime.checks import shown
from tilec.schedule import schedule as base
from tilec.schedule.core import primitives
from tilec.targets import Target


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
    def _wellformed(self) -> Program:
        check_wellformed(self.program, self.definition.file)
        return self.program

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Run the loops in the written order on NumPy arrays: the reference of every schedule.

        Arguments by position or name; parameters that are only written may be omitted. Sizes come from the shapes, or by name.
        Written arrays that were passed are updated in place. Returns the only-written parameters: one array, a tuple, or None.
        """
        program = self._wellformed
        call = bind(program, args, kwargs)
        return call.finish(interp.run(program, call.arrays, call.sizes, call.scalars))

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
        emitter = backends.able(backend, "emit", "emit").emit
        assert emitter is not None
        backends.check_options(emitter, options, f'emit("{backend}")')
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
        chosen = backends.able(backend, "run", "build")
        make = chosen.build or chosen.run
        assert make is not None
        backends.check_options(make, options, f'build("{backend}")')
        if chosen.build is not None:
            return chosen.build(self.program, **options, about=self._about)
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
        if not isinstance(arrays, Mapping):
            raise ScheduleError(f"outputs({shown(arrays)}): a dict of arrays by the names of the parameters")
        reference = isinstance(backend, str) and backend == "reference"
        run = backends.interpreter if reference else backends.able(backend, "run", "run").run
        assert run is not None
        runner = run(self.program.source if reference else self.program)
        copies = {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in arrays.items()}
        bound = bind(self.program, (), {**copies, **rest})
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
