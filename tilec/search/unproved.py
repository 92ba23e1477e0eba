"""A schedule that only rewrites: the search builds many and proves what it keeps. Nothing unproved leaves the search."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tilec.ir.program import Program
from tilec.poly.verdict import Verdict
from tilec.schedule import core
from tilec.schedule.schedule import Schedule
from tilec.schedule.trace import Step

Memo = dict[tuple[Program, str], Program]


@dataclass(frozen=True, repr=False)
class Unproved(Schedule):
    """`apply` runs the skeleton up to the proof. Steps already made on an equal program are looked up in `memo`."""

    memo: Memo = field(default_factory=dict, compare=False)

    def apply(self, name: str, *args: Any, **kwargs: Any) -> Unproved:
        key = (self.program, core.call_text(name, args, kwargs))
        if key not in self.memo:
            self.memo[key] = core.rewrite(self.program, name, args, kwargs)
        step = Step.of(name, args, kwargs)
        return Unproved(self.memo[key], self.trace.then(step), self.proof_budget, None, self.memo)

    @property
    def verdict(self) -> Verdict:
        """The complete proof: there is no proof of the last step."""
        return self.check()


def unproved(schedule: Schedule, memo: Memo) -> Unproved:
    """A fresh schedule's program, to be rewritten without proofs."""
    return Unproved(schedule.program, schedule.trace, schedule.proof_budget, None, memo)
