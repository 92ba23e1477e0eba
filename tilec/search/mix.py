"""One schedule for a mix of shapes: the candidate whose expected time over the shapes, by their frequencies, is least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilec.errors import ScheduleError
from tilec.search.result import Candidate, Row, Tuned, columns, seconds_text


@dataclass(frozen=True)
class Shared:
    """A candidate in every shape: its expected time in seconds, its time at each shape, and what the best of each shape takes."""

    structure: str
    knobs: Mapping[str, Any]
    expected: float
    times: tuple[float, ...]

    @property
    def key(self) -> tuple[str, tuple[tuple[str, Any], ...]]:
        """Tells candidates apart."""
        return self.structure, tuple(sorted(self.knobs.items(), key=lambda x: x[0]))


@dataclass(frozen=True)
class Mixed:
    """What `tune_mix` found. shapes, weights (adding up to 1): as given. ranked: candidates that fit every shape, by expected
    time. results: the search at each shape. alone: the expected time if each shape had its own best schedule.
    """

    shapes: list[dict[str, int]]
    weights: tuple[float, ...]
    ranked: tuple[Shared, ...]
    results: tuple[Tuned, ...]
    alone: float = field(default=0.0)

    @property
    def best(self) -> Shared:
        """The first; ScheduleError where no candidate is legal and fits in every shape."""
        if not self.ranked:
            raise ScheduleError("tune_mix: no candidate is legal and fits in every shape")
        return self.ranked[0]

    @property
    def price(self) -> float:
        """What one schedule for all costs over a schedule for each shape, as a fraction."""
        return self.best.expected / self.alone - 1 if self.alone else 0.0

    def candidate(self, shape: int) -> Candidate:
        """The best one in full at one of the shapes: its schedule (proved) and its cost."""
        result = self.results[shape]
        for n, row in enumerate(result.rows):
            if _key(row) == self.best.key:
                return result.at(n)
        raise ScheduleError(f"tune_mix: the best candidate is not among those of {self.shapes[shape]}")

    def table(self, count: int = 10) -> str:
        """The ranking as text: expected time, then the time at each shape."""
        heads = [", ".join(f"{k}={v}" for k, v in s.items()) for s in self.shapes]
        rows = [("rank", "expected", *(f"{h} ({w:.0%})" for h, w in zip(heads, self.weights, strict=True)), "knobs", "structure")]
        for n, c in enumerate(self.ranked[:count], 1):
            knobs = " ".join(f"{k}={v}" for k, v in c.knobs.items())
            rows.append((str(n), seconds_text(c.expected), *map(seconds_text, c.times), knobs, c.structure))
        return "\n".join(columns(rows))

    def __str__(self) -> str:
        return self.table()


def combine(shapes: Sequence[tuple[Mapping[str, int], float]], results: Sequence[Tuned]) -> Mixed:
    """Rank candidates over all shapes; measured times count where a candidate was measured in every shape."""
    total = sum(w for _, w in shapes)
    weights = tuple(w / total for _, w in shapes)
    tables = [{_key(row): row for row in r.rows} for r in results]
    common = [k for k in tables[0] if all(k in t for t in tables)]
    measured = [k for k in common if all(t[k].measured is not None for t in tables)]
    ranked = []
    for key in measured or common:
        rows = [t[key] for t in tables]
        times = [row.measured if measured else row.time for row in rows]
        if any(t is None for t in times):
            continue
        seconds = tuple(float(t) for t in times if t is not None)
        expected = sum(w * t for w, t in zip(weights, seconds, strict=True))
        ranked.append(Shared(rows[0].structure, rows[0].knobs, expected, seconds))
    ranked.sort(key=lambda c: c.expected)
    bests = [min((c.times[n] for c in ranked), default=0.0) for n in range(len(results))]
    alone = sum(w * t for w, t in zip(weights, bests, strict=True))
    return Mixed([dict(s) for s, _ in shapes], weights, tuple(ranked), tuple(results), alone)


def check_mix(shapes: Any) -> list[tuple[dict[str, int], float]]:
    """(sizes, frequency) pairs; ScheduleError for anything else."""
    out = []
    for entry in shapes if isinstance(shapes, Sequence) else ():
        good = isinstance(entry, Sequence) and len(entry) == 2 and isinstance(entry[0], Mapping)
        if not good or isinstance(entry[1], bool) or not isinstance(entry[1], int | float) or not 0 < entry[1] < float("inf"):
            raise ScheduleError(f"tune_mix: {entry!r} is no shape with a frequency > 0, as in ({{'M': 64}}, 3)")
        out.append((dict(entry[0]), float(entry[1])))
    if not out:
        raise ScheduleError("tune_mix: give shapes with frequencies: [({'M': 64}, 3), ({'M': 1}, 97)]")
    return out


def _key(row: Row) -> tuple[str, tuple[tuple[str, Any], ...]]:
    return row.structure, tuple(sorted(row.knobs.items(), key=lambda x: x[0]))
