"""What a search found: the ranking, the best, what was rejected and why, and the front of footprint against traffic."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from tilec.cost.bulk import FIGURES
from tilec.cost.cost import Cost
from tilec.errors import InternalError, ScheduleError, TilecError
from tilec.schedule.schedule import Schedule
from tilec.search.space import Knobs


@dataclass(frozen=True)
class Rejection:
    """How many candidates fell for one reason, and one of them with the whole text."""

    count: int
    example: str


@dataclass
class Rejections:
    """Reasons in the order of first sight, with counts and one example each."""

    found: dict[str, Rejection] = field(default_factory=dict)

    def add(self, reason: str, count: int, example: str) -> None:
        if count:
            old = self.found.get(reason)
            self.found[reason] = Rejection(count + (old.count if old else 0), old.example if old else example)


@dataclass(frozen=True)
class Row:
    """One candidate by the model. traffic, footprint (shared bytes per block), flops: exact; time: seconds, an estimate.

    measured: seconds, where it was run.
    """

    structure: str
    knobs: Knobs
    traffic: int
    footprint: int
    register: int
    flops: int
    time: float | None
    measured: float | None = None


@dataclass(frozen=True)
class Candidate:
    """A candidate in full: its schedule (proved) and its exact cost, in which, as in the ranking, a tile larger than its array
    counts whole (`schedule` has numbers for sizes and cuts it: its own cost can be less).

    measured: seconds, the median of its samples, spread their standard error; tie: within noise of the best."""

    structure: str
    sentence: str
    knobs: Knobs
    schedule: Schedule
    cost: Cost
    measured: float | None = None
    spread: float = 0.0
    tie: bool = False

    def __repr__(self) -> str:
        return f"<Candidate {self.structure}: {' '.join(f'{k}={v}' for k, v in self.knobs.items())}>"


@dataclass
class Tuned:
    """The result of `tune`. Candidates are ranked once; schedules are built, proved and priced exactly when they are shown.

    best: the first candidate whose complete proof says legal. rejected[reason]: count and example. considered: all candidates.
    """

    kernel: str
    target: str
    sizes: dict[str, int]
    rows: list[Row]
    rejected: dict[str, Rejection]
    considered: int
    structures: int
    notes: tuple[str, ...]
    build: Callable[[Row], Candidate] = field(repr=False)
    drop: Callable[[Row, TilecError], None] = field(repr=False)
    measurement: Any = None  # a search.measured.Measurement, where candidates were measured
    draft: Callable[[Row], Schedule] | None = field(default=None, repr=False)  # the schedule of a row, not proved
    _built: dict[int, Candidate] = field(default_factory=dict, repr=False)

    @property
    def best(self) -> Candidate:
        found = self.top(1)
        if not found:
            reasons = "; ".join(
                f"{reason}: {r.count} candidates, e.g. {r.example.splitlines()[0]}" for reason, r in self.rejected.items()
            )
            raise ScheduleError(f"tune({self.kernel}): no candidate is legal and fits on {self.target}. {reasons}")
        return found[0]

    def top(self, count: int) -> list[Candidate]:
        """The first `count` candidates, each proved in full and priced exactly; one that falls is rejected and the next taken."""
        out: list[Candidate] = []
        n = 0
        while n < len(self.rows) and len(out) < count:
            row = self.rows[n]
            if n not in self._built:
                try:
                    self._built[n] = self.build(row)
                except InternalError:
                    raise
                except TilecError as e:  # also what a person's own function raises; anything else is a fault of tilec
                    self.drop(row, e)
                    del self.rows[n]
                    self._built = {k if k < n else k - 1: v for k, v in self._built.items() if k != n}
                    continue
            out.append(self._built[n])
            n += 1
        return out

    def at(self, n: int) -> Candidate:
        """The n-th of the ranking in full, whatever comes of it."""
        if n not in self._built:
            self._built[n] = self.build(self.rows[n])
        return self._built[n]

    def replace_first(self, count: int, rows: Sequence[Row], built: Mapping[int, Candidate]) -> None:
        """New rows, with their candidates by position, in place of the first `count`."""
        rest = {k - count + len(rows): c for k, c in self._built.items() if k >= count}
        self.rows[:count] = rows
        self._built = {**built, **rest}

    def table(self, count: int = 10) -> str:
        """The ranking as text; every line is proved and priced exactly."""
        lines = [f"{self.kernel} on {self.target}, {', '.join(f'{k}={v}' for k, v in self.sizes.items())}"]
        shown = self.top(count)  # first: a candidate may still fall to its own proof
        left = self.considered - len(self.rows) - sum(r.count for r in self.rejected.values())
        told = [f"{r.count} {reason}" for reason, r in self.rejected.items()] or ["none rejected"]
        if left:
            told.append(f"{left} not looked at (priced one by one, a sample of them)")
        lines.append(f"{self.considered} candidates of {self.structures} structures, {len(self.rows)} fit; {'; '.join(told)}")
        if not shown:
            return "\n".join([*lines, *(f"{reason}, for example {r.example}" for reason, r in self.rejected.items())])
        header = ("rank", "time", "bound", "traffic MiB", "shared KiB", "blocks/SM", "knobs", "structure")
        body = []
        for n, c in enumerate(shown, 1):
            resident = max(c.cost.launch, key=lambda x: x.time or 0.0).occupancy  # of the launch that takes longest
            body.append(
                (
                    str(n),
                    seconds_text(c.measured if c.measured is not None else c.cost.time),
                    str(c.cost.bound or "-"),
                    _mib(c.cost.traffic.total("global")),
                    f"{c.cost.footprint['shared'] / 1024:g}",
                    "-" if resident is None else str(resident.blocks),
                    " ".join(f"{k}={v}" for k, v in c.knobs.items()),
                    c.structure,
                )
            )
        return "\n".join([*lines, *columns([header, *body])])

    def pareto(self, x: str = "footprint", y: str = "traffic") -> list[Row]:
        """The candidates that no other beats in both figures, by ascending x. Figures: FIGURES of cost/bulk.py."""
        for name in (x, y):
            if name not in FIGURES:
                raise ScheduleError(f"pareto({x!r}, {y!r}): no figure {name!r}. Figures: {', '.join(FIGURES)}")
        name = {"shared": "footprint"}
        key = [(getattr(r, name.get(x, x)), getattr(r, name.get(y, y)), n) for n, r in enumerate(self.rows)]
        out: list[Row] = []
        least = None
        for _, b, n in sorted(k for k in key if None not in k):
            if least is None or b < least:
                least = b
                out.append(self.rows[n])
        return out

    def why(self) -> str:
        """What the pick does, what binds it, what ties with it, and what each decision taken otherwise would cost at best."""
        best = self.best
        time = seconds_text(best.cost.time)
        text = f"{best.sentence}. {time} by the model, bound by {best.cost.bound}: {_mib(best.cost.traffic.total('global'))} MiB"
        ties = sum(r.time == self.rows[0].time and r.traffic == self.rows[0].traffic for r in self.rows) - 1
        if ties:
            text += f"; {ties} more candidates tie, this one has the least shared memory"
        for key, value in best.knobs.items():
            if isinstance(value, str) and (other := self._otherwise(key, value)) is not None:
                text += f"; {key} {other.knobs[key]}: {seconds_text(other.time)}, {_mib(other.traffic)} MiB at best"
        if not ties and len(self.rows) > 1:
            row = self.rows[1]
            text += f"; next {' '.join(f'{k}={v}' for k, v in row.knobs.items())}: {seconds_text(row.time)}"
        return text

    def _otherwise(self, key: str, value: str) -> Row | None:
        """The best candidate that decides `key` in another way."""
        return next((r for r in self.rows if key in r.knobs and r.knobs[key] != value), None)

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The figures of all ranked candidates, for plots."""
        return {f: np.array([getattr(r, f) for r in self.rows]) for f in ("traffic", "footprint", "register", "flops", "time")}

    def to_json(self) -> dict[str, Any]:
        best = self.best
        return {
            "kernel": self.kernel,
            "target": self.target,
            "sizes": self.sizes,
            "considered": self.considered,
            "structures": self.structures,
            "rejected": {k: {"count": r.count, "example": r.example} for k, r in self.rejected.items()},
            "best": {
                "structure": best.structure,
                "knobs": best.knobs,
                "trace": json.loads(best.schedule.trace.to_json()),
                "time": best.cost.time,
                "traffic": best.cost.traffic.total("global"),
                "footprint": best.cost.footprint["shared"],
                "measured": best.measured,
            },
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        return self.table()


def seconds_text(seconds: float | None) -> str:
    """`1.81 ms`."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def _mib(count: int) -> str:
    return f"{count / 2**20:,.6g}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Left-aligned text columns."""
    widths = [max(len(r[n]) for r in rows) for n in range(len(rows[0]))]
    return ["  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in rows]
