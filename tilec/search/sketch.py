"""A schedule whose steps are not proved one by one: for trying structures, of which the result is proved as a whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilec.errors import LegalityError
from tilec.poly.prove import prove
from tilec.poly.verdict import Verdict
from tilec.schedule import core
from tilec.schedule.schedule import Schedule
from tilec.schedule.trace import Step


@dataclass(frozen=True, repr=False)
class Sketch(Schedule):
    """A Schedule whose primitives rewrite without a proof. Nothing of it may be shown or run before `proof()`."""

    @staticmethod
    def of(s: Schedule) -> Sketch:
        return Sketch(s.program, s.trace, s.proof_budget)

    def apply(self, name: str, *args: Any, **kwargs: Any) -> Sketch:
        program = core.rewrite(self.program, name, args, kwargs)
        return replace(self, program=program, trace=self.trace.then(Step.of(name, args, kwargs)), proved=None)

    def proof(self) -> Verdict:
        """The verdict of the program as it stands. LegalityError: it is not legal, or not decided."""
        verdict = prove(self.program.source, self.program, self.proof_budget)
        if verdict.status != "legal":
            detail = str(verdict.witness) if verdict.witness is not None else str(verdict.reason)
            raise LegalityError(f"the schedule is {verdict.status}: {detail}", verdict.witness, verdict.reason, verdict)
        return verdict
