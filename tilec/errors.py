"""Every exception class. The first line is `Class: action(args): what`; then the facts, a witness, what is possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class TilecError(Exception):
    """Base class. `str(error)` is the whole text that a person reads, without the class name."""

    def render(self) -> str:
        """`LegalityError: reorder("j", "i"): …`, as the command line prints it."""
        return f"{type(self).__name__}: {self}"


class LanguageError(TilecError):
    """The kernel as written is not in the language, or reads what it must not; carries file, line, column (1-based)."""

    def __init__(self, text: str, file: str | None = None, line: int | None = None, column: int | None = None):
        place = ":".join(str(x) for x in (file, line, column) if x is not None) + ": " if file is not None else ""
        super().__init__(place + text)
        self.file, self.line, self.column = file, line, column


class ScheduleError(TilecError):
    """A primitive's precondition does not hold, or its arguments name nothing in this schedule."""


class LegalityError(TilecError):
    """The rewritten program is not proved equal: `witness` shows it differs, or `reason` says why it is unknown."""

    def __init__(self, text: str, witness: Witness | None = None, reason: str | None = None, verdict: Any = None):
        super().__init__(text)
        self.witness, self.reason, self.verdict = witness, reason, verdict


class ResourceError(TilecError):
    """A schedule does not fit on a target."""


class CountError(TilecError):
    """A cost asked of a program that can't be counted exactly within the budget: the quantity, the loops and the reason."""


class TargetError(TilecError):
    """An unknown machine, or a machine file with a wrong figure."""


class MeasureError(TilecError):
    """Compiling, running or timing failed outside tilec. kind: how a tuner counts it, where that is not what it was doing: "timed
    out", or "system" (a full disk, say), which a second try may mend."""

    def __init__(self, text: str, kind: str | None = None):
        super().__init__(text)
        self.kind = kind


class InternalError(TilecError):
    """A fault of tilec itself: please report it with the program that shows it."""


@dataclass(frozen=True)
class Witness:
    """Two statement instances that break a program, at the smallest sizes that show it.

    source, sink: "S0[0,1]"; for a conflict the first and the second in the *original* order.
    element: "a[0,1]". kind: flow, anti, output, race, lost value, wrong source, out of bounds.
    sizes: {"N": 2}. received/needed: what the sink got and what it needs, for value differences.
    """

    source: str
    sink: str
    element: str
    kind: str
    sizes: dict[str, int]
    text: str
    received: str | None = None
    needed: str | None = None

    def __str__(self) -> str:
        return self.text
