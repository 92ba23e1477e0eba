"""The Schedule: a program and the steps that made it. An immutable value; every primitive returns a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tilec.errors import ScheduleError
from tilec.ir.printer import text
from tilec.ir.program import Program
from tilec.ir.sizes import check_numbers
from tilec.poly.isl import Memory
from tilec.poly.prove import prove
from tilec.poly.verdict import Verdict
from tilec.poly.wellformed import check as check_wellformed
from tilec.schedule import core
from tilec.schedule.names import loop_names
from tilec.schedule.sizes import bind
from tilec.schedule.trace import Step, Trace


class HasProgram(Protocol):
    """What a kernel definition must have to be scheduled."""

    @property
    def program(self) -> Program: ...


@dataclass(frozen=True, repr=False)
class Schedule:
    """How a kernel runs. The primitives are methods: each checks, rewrites, proves and returns a new Schedule.

    program: the scheduled program (pseudocode: `print(schedule)`). trace: the steps so far, replayable.
    proof_budget: isl operations that one proof may take (None: the default).
    A step raises ScheduleError (arguments, preconditions) or LegalityError (not proved equal); this schedule stays as it is.
    """

    program: Program
    trace: Trace = field(default_factory=Trace)
    proof_budget: int | None = None
    proved: Verdict | None = field(default=None, compare=False)
    memory: Memory = field(
        default_factory=Memory, compare=False, kw_only=True
    )  # what the proofs of the steps so far found, for the next

    def apply(self, name: str, /, *args: Any, **kwargs: Any) -> Schedule:
        """The primitive `name` with these arguments: the same as the method of that name."""
        program, verdict = core.apply(self.program, name, args, kwargs, self.proof_budget, self.memory)
        return replace(self, program=program, trace=self.trace.then(Step.of(name, args, kwargs)), proved=verdict)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        known = core.primitives()
        if name not in known:
            try:
                core.find(name)
            except ScheduleError as e:
                raise AttributeError(f"{type(self).__name__}: {e}") from None

        def step(*args: Any, **kwargs: Any) -> Any:
            return self.apply(name, *args, **kwargs)

        step.__name__ = step.__qualname__ = name
        step.__doc__ = known[name].doc
        step.__signature__ = known[name].signature  # type: ignore[attr-defined]
        return step

    def __dir__(self) -> Iterable[str]:
        return sorted({*super().__dir__(), *core.primitives()})

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k != "memory"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, memory=Memory())

    @property
    def loops(self) -> tuple[str, ...]:
        """The loops, outermost first, each by its shortest unambiguous name."""
        return tuple(loop_names(self.program))

    @property
    def buffers(self) -> tuple[str, ...]:
        """The names of all buffers, copies and partial results included."""
        return tuple(self.program.buffer)

    @property
    def statements(self) -> tuple[str, ...]:
        """The names of the original statements, in source order."""
        return tuple(self.program.statement)

    @property
    def verdict(self) -> Verdict:
        """The proof of the last step (of the default placement, before the first)."""
        return self.proved if self.proved is not None else self.check()

    def check(self) -> Verdict:
        """The complete proof again, of the program as it stands against the original."""
        return prove(self.program.source, self.program, self.proof_budget)

    def __str__(self) -> str:
        return text(self.program)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.program.name}, {len(self.trace)} steps>"


def start(
    definition: HasProgram | Program,
    sizes: Mapping[str, Any] | None = None,
    reassociate: str | Iterable[str] | None = None,
    contract: bool = False,
    proof_budget: int | None = None,
    hardware_rounding: bool = False,
) -> Schedule:
    """A fresh schedule of a kernel: sizes bound, permissions given, temporaries in their default places.

    sizes: numbers for some or all of the kernel's sizes (1 ≤ size < 2^31); the rest stay symbolic.
    reassociate: buffers whose float sums may change their order. contract: multiply-add may round once. hardware_rounding: an
    instruction may flush denormals and round in its own order.
    ScheduleError: an unknown size or buffer, a number out of range, a violated assumption. LanguageError: the kernel reads out
    of bounds or what is never written.
    """
    program = definition if isinstance(definition, Program) else definition.program
    program = bind(program, check_numbers(program, sizes or {}, "schedule"))
    if program.original is None:
        check_wellformed(program)
        program = replace(program, original=program)
    if not isinstance(reassociate, str | Iterable | None):
        raise ScheduleError(f"schedule(reassociate={reassociate!r}): give the name of a buffer, or several")
    named = (reassociate,) if isinstance(reassociate, str) else tuple(reassociate or ())
    for name in named:
        _check_reassociate(program, name)
    for permission, value in (("contract", contract), ("hardware_rounding", hardware_rounding)):
        if not isinstance(value, bool):
            raise ScheduleError(f"schedule({permission}={value!r}): {permission} must be True or False")
    if proof_budget is not None and (isinstance(proof_budget, bool) or not isinstance(proof_budget, int) or proof_budget < 1):
        raise ScheduleError(f"schedule(proof_budget={proof_budget!r}): the budget must be a positive number of isl operations")
    program = replace(
        program,
        reassociate=program.reassociate | frozenset(named),
        contract=program.contract or contract,
        hardware_rounding=program.hardware_rounding or hardware_rounding,
    )
    memory = Memory()
    return Schedule(core.finish(program, memory=memory), Trace(), proof_budget, memory=memory)


def _check_reassociate(program: Program, name: Any) -> None:
    """A permission names a buffer that is updated by a sum or product."""
    updated = [b for b in program.source.buffer if any(s.op != "=" and s.target.buffer == b for s in program.statements)]
    useful = ", ".join(f"'{b}'" for b in updated) or "none: no statement updates its target"
    given = f"schedule(reassociate={core.argument_text(name) if isinstance(name, str) else repr(name)})"
    if not isinstance(name, str) or name not in program.source.buffer:
        raise ScheduleError(f"{given}: no buffer {name!r}. Possible: {useful}")
    if name not in updated:
        raise ScheduleError(f"{given}: '{name}' is no reduction. Possible: {useful}")


__all__ = ["HasProgram", "Schedule", "start"]
