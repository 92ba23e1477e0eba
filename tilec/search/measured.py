"""What measuring does to a search's result: times in, failures out, ties told apart from differences, and how good the model
was."""

from __future__ import annotations

import contextlib
import time as clock
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tilec.errors import MeasureError, TilecError
from tilec.ir.program import Program
from tilec.runtime.backends import Options
from tilec.runtime.environment import environment
from tilec.schedule.schedule import Schedule
from tilec.search.database import Database, Entry, Key
from tilec.search.measure import Measure, Outcome, Run, Say
from tilec.search.regret import Regret, regret
from tilec.search.result import Candidate, Tuned

MEASURED = 8  # candidates that a function of the person measures when nothing else is said
NOISE = 0.01
TIED = 0.1  # what is so much slower than the best is no tie of it, however much its samples scatter
Drop = Callable[[str, str], None]


@dataclass(frozen=True)
class Measurement:
    """measured: candidates with a time, of which `known` came from the database. tried: those and the failed ones. ties: the
    first so many of the ranking cannot be told apart. regret: of the model. seconds: that measuring took. environment: what the
    times belong to. unwritten: why measurements are not on disk, else None. interrupted: it did not come to its end.
    """

    measured: int
    known: int
    tried: int
    ties: int
    regret: Regret
    seconds: float
    environment: Mapping[str, str] = field(default_factory=dict)
    unwritten: str | None = None
    interrupted: bool = False

    def __str__(self) -> str:
        env = self.environment
        known = f", {self.known} of them known from the database" if self.known else ""
        parts = [f"{self.measured} of {self.tried} candidates measured{known} in {self.seconds:.1f} s"]
        if "backend" in env:
            parts.append(f"by {env['backend']} on {env['threads']} thread{'s' if env['threads'] != '1' else ''}")
        text = " ".join(parts)
        if self.ties > 1:
            text += f"; the first {self.ties} are within noise, the simplest of them stands first"
        return "; ".join([text, str(self.regret), *([self.unwritten] if self.unwritten else [])])


def measure_with(
    result: Tuned,
    measure: Callable[[Schedule], float] | Measure,
    source: Program,
    seed: int,
    database: str | None,
    budget: int | None,
    say: Say,
    drop: Drop,
) -> None:
    """Measure the first candidates of a ranking and move them to its front; what is known from the database is not run again.

    drop(reason, example) counts a candidate that failed. An interruption leaves the result with what was measured until then, and
    goes on. Raises MeasureError (database, compiler, executor), and where a function of the person raises.
    """
    began = clock.monotonic()
    with _told(Database(database)) as store:
        if isinstance(measure, Measure):
            run = Run(measure, source, result.sizes, seed, store, say)
            candidates = _first(result, budget or measure.candidates, run)
            outcomes, env, noise, action = run.outcomes, run.environment, measure.noise, run.measure_all
            notes = run.notes
        else:
            candidates = result.top(budget or MEASURED)
            outcomes, env, noise, notes = {}, _own_environment(measure), NOISE, []
            action = _Own(measure, result, store, say, env, outcomes)
        stopped = True
        try:
            action(candidates)
            stopped = False
        finally:
            for n, o in sorted(outcomes.items()):
                if o.failure is not None:
                    drop(o.failure, f"{_label(candidates[n])}: {o.detail}")
            ties = _ranked(result, candidates, outcomes, noise)
            timed = [(c.cost.time, o.seconds) for n, c in enumerate(candidates) if (o := outcomes.get(n)) is not None]
            good = [(p, s) for p, s in timed if s is not None]
            predicted = [(p, s) for p, s in good if p]
            result.measurement = Measurement(
                len(good),
                sum(o.known is not None and o.failure is None for o in outcomes.values()),
                len(outcomes),
                ties,
                regret([p for p, _ in predicted], [s for _, s in predicted]),
                clock.monotonic() - began,
                env,
                store.unwritten,
                stopped,
            )
            result.notes = (*result.notes, *notes)


@contextlib.contextmanager
def _told(database: Database) -> Iterator[Database]:
    """Whoever interrupts is told what did not reach the disk."""
    try:
        with database as store:
            yield store
    except KeyboardInterrupt as stop:
        if database.unwritten:
            stop.add_note(database.unwritten)
        raise


def _first(result: Tuned, count: int, run: Run) -> list[Candidate]:
    """The first candidates, proved one by one as long as a third of the time lasts, so that there is time left to run them."""
    until = run.deadline - 2 / 3 * run.measure.seconds
    out: list[Candidate] = []
    for k in range(1, count + 1):
        run.say("proving the best candidates", k - 1, count)
        found = result.top(k)
        if len(found) < k:
            return found
        out = found
        if clock.monotonic() > until:
            break
    return out


def _own_environment(measure: Callable[[Schedule], float]) -> Mapping[str, str]:
    """Of a function of the person: this machine, and the function's name."""
    return {**environment("numpy", Options()), "backend": "own", "measure": getattr(measure, "__qualname__", repr(measure))}


@dataclass
class _Own:
    """Measuring by a function of the person, one candidate after the other."""

    measure: Callable[[Schedule], float]
    result: Tuned
    store: Database
    say: Say
    environment: Mapping[str, str]
    outcomes: dict[int, Outcome]

    def __call__(self, candidates: Sequence[Candidate]) -> None:
        for n, c in enumerate(candidates):
            self.say("measuring", n, len(candidates))
            text = f"{self.result.target}\n{c.schedule}\n{c.schedule.trace.to_json()}"
            key = Key(self.result.kernel, self.result.sizes, self.environment, text)
            entry = self.store.get(key)
            if entry is not None:
                self.outcomes[n] = Outcome(known=entry)
                continue
            try:
                seconds = _seconds(self.measure(c.schedule))
            except TilecError:
                raise
            except Exception as e:
                raise MeasureError(f"measure({_label(c)}) raised {type(e).__name__}: {e}") from e
            self.outcomes[n] = Outcome([seconds])
            self.store.put(key, Entry(seconds, 0.0, 1))
        self.say("measuring", len(candidates), len(candidates))


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{value!r} is no time in seconds")
    return seconds


def _label(c: Candidate) -> str:
    return f"{c.structure}, {' '.join(f'{k}={v}' for k, v in c.knobs.items())}"


def _ranked(result: Tuned, candidates: Sequence[Candidate], outcomes: Mapping[int, Outcome], noise: float) -> int:
    """Put the measured first: those within noise of the best, the simplest of them in front, then the others by time. Failed ones
    leave the ranking. Returns how many are within noise of the best."""
    good = {n: o for n, o in outcomes.items() if o.failure is None and o.seconds is not None}
    order = sorted(good, key=lambda n: (good[n].seconds or 0.0, n))
    ties: list[int] = []
    if order:
        best = good[order[0]]
        ties = [n for n in order if _within_noise(good[n], best, noise)]
    front = sorted(ties, key=lambda n: (simplicity(candidates[n]), n))
    ranked = front + [n for n in order if n not in ties]
    rest = [n for n in range(len(candidates)) if n not in outcomes]
    rows = [replace(result.rows[n], measured=good[n].seconds if n in good else None) for n in (*ranked, *rest)]
    built = {
        k: replace(candidates[n], measured=good[n].seconds, spread=good[n].spread, tie=n in ties and len(ties) > 1)
        if n in good
        else candidates[n]
        for k, n in enumerate((*ranked, *rest))
    }
    result.replace_first(len(candidates), rows, built)
    return len(ties)


def simplicity(c: Candidate) -> tuple[int, int]:
    """Fewer steps are simpler, then a shorter program."""
    return len(c.schedule.trace), len(str(c.schedule))


def _within_noise(a: Outcome, best: Outcome, noise: float) -> bool:
    assert a.seconds is not None and best.seconds is not None
    apart = a.seconds - best.seconds
    unsure = min(2 * (a.spread**2 + best.spread**2) ** 0.5, TIED * best.seconds)  # of few samples the spread says little
    return apart <= max(noise * best.seconds, unsure)
