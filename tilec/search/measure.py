"""Timing candidates: compiled and checked side by side, timed in turn, again and again, as long as time is left.

Every candidate runs in a process of its own (runtime/session.py). A sample is the median of as many calls as fit in a fiftieth of
a second; candidates are sampled in turn, so that what disturbs the machine disturbs all of them; a candidate's time is the median
of its samples. Ones that are clearly slower than the best are given up after three. Candidates within noise of the best are
ties: among them the simplest is kept.
"""

from __future__ import annotations

import os
import time as clock
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, as_completed
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from tilec.errors import MeasureError, ScheduleError, TilecError
from tilec.ir.arguments import written
from tilec.ir.program import Program
from tilec.runtime.backends import Options, find
from tilec.runtime.call import pure_outputs
from tilec.runtime.checks import MOST_THREADS, check_cpus, check_flag, check_seconds, check_texts, check_whole, shown
from tilec.runtime.environment import digest, environment
from tilec.runtime.job import Check, Job, check_for, make_inputs, store_inputs
from tilec.runtime.process import workplace
from tilec.runtime.session import START, Failed, Limits
from tilec.runtime.team import Team, agree
from tilec.runtime.visit import Visit, visit
from tilec.search.database import Database, Entry, Key
from tilec.search.result import Candidate
from tilec.targets.detect import detect

CANDIDATES = 16
SAMPLE = 0.02  # seconds of one sample
GIVEN_UP = 1.25  # times the best median after the first rounds
FIRST = 3  # rounds before one is given up
KEPT = ("wrong result", "crashed", "does not compile", "fails")  # failures that a second try would only repeat
SLOW = "timed out"  # repeated with the same limits
Say = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Measure:
    """How candidates are measured.

    backend: "c", "numpy", or one of your own as package.module:function. threads: of each candidate (None: the cores). compiler,
    flags: for C. candidates: so many of the model's first are measured. seconds: after these no further candidate is started
    and no further round (the first one is always measured). repeats: samples of each that is not given up. limit: seconds that
    one run may take. compile_limit: and compiling it. workers: processes that compile side by side (None: the cores). verify:
    compare every candidate with the reference. noise: a smaller relative difference is no difference. executor: any
    concurrent.futures.Executor that runs the measurements instead of this computer.
    """

    backend: str = "c"
    threads: int | None = None
    compiler: str | None = None
    flags: Sequence[str] = ()
    candidates: int = CANDIDATES
    seconds: float = 60.0
    repeats: int = 9
    limit: float = 20.0
    compile_limit: float = 60.0
    workers: int | None = None
    verify: bool = True
    noise: float = 0.01
    executor: Executor | None = None

    def __post_init__(self) -> None:
        for name in ("candidates", "repeats"):
            check_whole("Measure", name, getattr(self, name))
        for name in ("seconds", "limit", "compile_limit"):
            check_seconds("Measure", name, getattr(self, name))
        if self.executor is not None and not isinstance(self.executor, Executor):
            raise ScheduleError(f"Measure(executor={shown(self.executor)}): a concurrent.futures.Executor")
        if self.workers is not None:
            check_whole("Measure", "workers", self.workers, 1, MOST_THREADS)
        if self.threads is not None and self.executor is None:
            check_cpus("Measure", "threads", self.threads)
        elif self.threads is not None:  # of another machine
            check_whole("Measure", "threads", self.threads, 1, MOST_THREADS)
        check_flag("Measure", "verify", self.verify)
        if isinstance(self.noise, bool) or not isinstance(self.noise, int | float) or not 0 <= self.noise < 1:
            raise ScheduleError(f"Measure(noise={shown(self.noise)}): a fraction from 0 to 1")
        check_texts("Measure", "flags", self.flags)
        if self.compiler is not None and (not isinstance(self.compiler, str) or not self.compiler or "\0" in self.compiler):
            raise ScheduleError(f"Measure(compiler={shown(self.compiler)}): the name or the path of a C compiler")
        find(self.backend)
        if self.backend == "numpy" and (self.compiler is not None or self.flags):
            name = "compiler" if self.compiler is not None else "flags"
            raise ScheduleError(f"Measure({name}={shown(getattr(self, name))}): the backend 'numpy' compiles nothing")

    @property
    def options(self) -> Options:
        """For the backend."""
        return Options(self.threads or detect().cores, self.compiler, tuple(self.flags), self.compile_limit)


@dataclass
class Outcome:
    """Of one candidate: its samples in seconds, or why there are none. known: from the database."""

    samples: list[float] = field(default_factory=list)
    failure: str | None = None
    detail: str = ""
    known: Entry | None = None

    @property
    def seconds(self) -> float | None:
        """The median."""
        if self.known is not None:
            return self.known.seconds
        return median(self.samples) if self.samples else None

    @property
    def spread(self) -> float:
        """Standard error of the median, from the median deviation of the samples; 0 of one sample."""
        if self.known is not None:
            return self.known.spread
        if len(self.samples) < 2:
            return 0.0
        middle = median(self.samples)
        return 1.2533 * 1.4826 * median(abs(s - middle) for s in self.samples) / len(self.samples) ** 0.5

    @property
    def count(self) -> int:
        """Samples."""
        return self.known.samples if self.known is not None else len(self.samples)


class Run:
    """One measured search: candidates in the model's order in, outcomes by number out. Finished ones are in the database at
    once."""

    def __init__(
        self, measure: Measure, source: Program, numbers: Mapping[str, int], seed: int, store: Database, say: Say
    ) -> None:
        self.measure, self.source, self.numbers, self.seed, self.store, self.say = measure, source, numbers, seed, store, say
        self.options = measure.options
        there = measure.executor
        name, options = measure.backend, self.options
        self.environment = environment(name, options) if there is None else elsewhere(there, name, options)
        self.outcomes: dict[int, Outcome] = {}
        self.keys: dict[int, Key] = {}
        self.codes: dict[int, str] = {}
        self.deadline = clock.monotonic() + measure.seconds
        self.check: Check | None = None
        self.notes: list[str] = []

    @cached_property
    def resets(self) -> bool:
        """Does a run change what the next one reads?"""
        return set(written(self.source)) != set(pure_outputs(self.source))

    @property
    def late(self) -> bool:
        """Is the time over, with something to show for it? Where everything fails, twice the time is."""
        over = clock.monotonic() - self.deadline
        if over <= 0:
            return False
        return any(o.seconds is not None for o in self.outcomes.values()) or (bool(self.outcomes) and over > self.measure.seconds)

    def measure_all(self, candidates: Sequence[Candidate]) -> None:
        """Outcomes of as many as the time allows, in their order."""
        wanted = self.lookup(candidates)
        if not wanted:
            return
        if self.measure.executor is not None:
            measure_elsewhere(self, self.measure.executor, candidates, wanted)
        else:
            measure_here(self, candidates, wanted)

    def reference(self, program: Program, inputs: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Compute what results are compared with."""
        if self.measure.verify:
            self.say("computing the reference", 0, 1)
            self.check = check_for(self.source, program, self.numbers, self.seed, inputs=inputs)

    def lookup(self, candidates: Sequence[Candidate]) -> list[int]:
        """Numbers of those that have to be measured; the others' outcomes are noted."""
        out = []
        for n, c in enumerate(candidates):
            try:
                self.keys[n] = self.key(n, c)
            except TilecError as e:
                self.outcomes[n] = Outcome(failure="does not compile", detail=str(e))
                continue
            entry = self.known(n)
            if entry is None:
                out.append(n)
            else:
                self.outcomes[n] = Outcome(failure=entry.failure, detail=entry.detail, known=entry)
        return out

    def known(self, n: int) -> Entry | None:
        """What the database has of a candidate: that it took too long only for the same limits, and no time of too few samples
        (the tuner was interrupted)."""
        entry = self.store.get(self.keys[n])
        if entry is not None and entry.failure == SLOW:
            return self.store.get(self.slow_key(n))
        few = entry is not None and entry.failure is None and entry.samples < min(FIRST, self.measure.repeats)
        return None if few else entry

    def slow_key(self, n: int) -> Key:
        """Where it is kept that a candidate took too long."""
        limits = f"\nlimits={self.measure.compile_limit:g} {self.measure.limit:g}"
        return replace(self.keys[n], candidate=self.keys[n].candidate + limits)

    def key(self, n: int, c: Candidate) -> Key:
        """Of a candidate: everything that its time depends on. Its code is kept for the worker."""
        code = self.codes[n] = find(self.measure.backend).code(c.schedule.program, self.options)
        parts = (str(self.source), str(c.schedule), c.schedule.trace.to_json(), digest(code), f"verify={self.measure.verify}")
        return Key(self.source.name, self.numbers, self.environment, "\n".join(parts))

    def job(self, n: int, c: Candidate, folder: Path | None, scalars: Mapping[str, Any]) -> Job:
        """What another process needs. folder: where the inputs lie; None: it makes them."""
        program = c.schedule.program
        return Job(
            program,
            {n: self.numbers[n] for n in program.sizes},
            self.source,
            self.numbers,
            self.measure.backend,
            self.options,
            self.codes.get(n, ""),
            self.seed,
            folder,
            scalars,
            self.check,
            self.resets,
        )

    def keep(self, n: int) -> None:
        """Write what is known of a candidate; a failure that a second try might mend is not kept."""
        o = self.outcomes[n]
        if o.failure is None or o.failure in (*KEPT, SLOW):
            entry = Entry(o.seconds if o.failure is None else None, o.spread, o.count, o.failure, o.detail)
            self.store.put(self.keys[n], entry, {"samples": o.samples})
            if o.failure == SLOW:
                self.store.put(self.slow_key(n), entry)

    def fail(self, n: int, kind: str, text: str) -> None:
        """Note that a candidate cannot be measured."""
        self.outcomes[n] = Outcome(failure=kind, detail=text)
        self.keep(n)

    def sampled(self, n: int, seconds: float) -> None:
        """Note one sample."""
        self.outcomes.setdefault(n, Outcome()).samples.append(seconds)
        self.keep(n)


def measure_here(run: Run, candidates: Sequence[Candidate], wanted: Sequence[int]) -> None:
    """On this computer: prepared side by side, sampled in turn, in groups that fit into memory; the best so far stays for the
    next."""
    m = run.measure
    with workplace() as place:
        folder = place.folder
        inputs = folder / "inputs"
        run.say("making inputs", 0, 1)
        try:
            inputs.mkdir()
            arrays, scalars = make_inputs(run.source, run.numbers, run.seed)
            store_inputs(inputs, arrays)
        except OSError as e:
            raise MeasureError(
                f"the inputs can't be written to {inputs}: {e.strerror or e}. TMPDIR names another place"
            ) from None
        run.reference(candidates[wanted[0]].schedule.program, (arrays, scalars))
        group = _fitting(2 * sum(a.nbytes for a in arrays.values()))
        del arrays
        team = Team(place, Limits(m.compile_limit, m.limit), m.workers or detect().cores)
        left, best = list(wanted), None
        try:
            while left and not run.late:
                now, left = left[: group - len(team.sessions)], left[group - len(team.sessions) :]
                jobs = {n: run.job(n, candidates[n], inputs, scalars) for n in now}
                done = len(wanted) - len(left) - len(now)
                for n, failed in team.open(
                    jobs, lambda k, done=done: run.say("compiling", done + k, len(wanted)), lambda: run.late
                ):
                    run.fail(n, failed.kind, failed.text)
                for n, text in agree(team, run.check, folder):
                    run.fail(n, "wrong result", text)
                _rounds(run, team, len(wanted))
                for n in list(team.sessions):
                    _unless_failed(run, team, n, lambda n=n: team.same(n))
                finished = [n for n in team.sessions if run.outcomes[n].seconds is not None]
                best = min(finished, key=lambda n: run.outcomes[n].seconds or 0.0, default=None)
                team.close(*(n for n in list(team.sessions) if n != best))
        finally:
            team.close_all()


def _fitting(bytes_each: int) -> int:
    """How many candidates may be in memory at once: at most eight, in half of what is free."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 4
    return max(2, min(8, free // 2 // max(1, bytes_each)))


def _rounds(run: Run, team: Team, total: int) -> None:
    """Sample every open candidate in turn."""
    m = run.measure
    for turn in range(m.repeats):
        for n in list(team.sessions):
            if turn and run.late:
                return
            have = len(run.outcomes[n].samples) if n in run.outcomes else 0
            if have >= m.repeats + FIRST:
                continue  # the best of an earlier group has enough
            _unless_failed(run, team, n, lambda n=n: run.sampled(n, team.sessions[n].time(SAMPLE)["seconds"]))
            ready = sum(o.seconds is not None or o.failure is not None for o in run.outcomes.values())
            run.say(f"timing, round {turn + 1} of {m.repeats}", min(ready, total), total)
        if turn + 1 >= FIRST:
            best = min((o.seconds for o in run.outcomes.values() if o.seconds is not None), default=0.0)
            for n in list(team.sessions):
                if (run.outcomes[n].seconds or 0.0) > GIVEN_UP * best:  # it may be the best yet, where those before it fail
                    _unless_failed(run, team, n, lambda n=n: team.same(n))
                    if n in team.sessions:
                        team.close(n)


def _unless_failed(run: Run, team: Team, n: int, action: Callable[[], None]) -> None:
    """Do something with a candidate; where it fails in that, it is out."""
    try:
        action()
    except Failed as e:
        run.fail(n, e.kind, e.text)
        team.close(n)


def measure_elsewhere(run: Run, executor: Executor, candidates: Sequence[Candidate], wanted: Sequence[int]) -> None:
    """By an executor: every candidate is visited twice, in opposite orders; each visit compiles, checks and times it."""
    m = run.measure
    samples = max(1, (m.repeats + 1) // 2)
    limits = Limits(m.compile_limit, m.limit)
    patience = m.seconds + START + m.compile_limit + (samples + 2) * m.limit
    futures: dict[Future[Visit], int] = {}
    outputs: dict[int, str] = {}
    run.reference(candidates[wanted[0]].schedule.program, make_inputs(run.source, run.numbers, run.seed))
    try:
        for n in (*wanted, *reversed(wanted)):
            futures[executor.submit(visit, run.job(n, candidates[n], None, {}), limits, samples, SAMPLE)] = n
        for done, future in enumerate(as_completed(futures, timeout=patience)):
            run.say("measuring elsewhere", done, len(futures))
            n = futures[future]
            if not future.cancelled():
                _visited(run, n, future, outputs)
            seen = run.outcomes.get(n)
            failed, late = seen is not None and seen.failure is not None, run.late
            for other, number in futures.items():
                if late or (failed and number == n):  # a second visit would fail again
                    other.cancel()
    except TimeoutError:
        run.notes.append(f"the executor did not answer within {patience:.0f} s")
    except RuntimeError as e:  # it was shut down, or its processes died, before all was submitted
        run.notes.append(f"the executor stopped: {type(e).__name__}: {e}")
    finally:
        for future in futures:
            future.cancel()


def _visited(run: Run, n: int, future: Future[Visit], outputs: dict[int, str]) -> None:
    try:
        found = future.result()
    except CancelledError:
        return
    except Exception as e:  # whatever an executor raises for a worker that is gone
        found = Visit((), run.environment, failure="worker lost", detail=f"{type(e).__name__}: {e}")
    old = run.outcomes.get(n)
    if old is not None and old.failure is not None:
        return
    if found.failure is None and dict(found.environment) != dict(run.environment):
        changed = ", ".join(k for k in run.environment if found.environment.get(k) != run.environment[k])
        run.fail(n, "another environment", f"a worker with another {changed} than the first")
    elif found.failure == "worker lost" and old is not None:
        run.notes.append(f"one of two visits of a candidate was lost: {found.detail}")
    elif found.failure is not None:
        run.fail(n, found.failure, found.detail)
    elif outputs.setdefault(n, found.outputs) != found.outputs:
        run.fail(n, "wrong result", "the outputs change from run to run on the same inputs")
    else:
        for seconds in found.samples:
            run.sampled(n, seconds)


def elsewhere(executor: Executor, backend: str, options: Options) -> Mapping[str, str]:
    """The environment of a worker; MeasureError where there is no answer."""
    try:
        return executor.submit(environment, backend, options).result(timeout=10 * START)
    except TilecError:
        raise
    except Exception as e:
        raise MeasureError(f"the executor does not work: {type(e).__name__}: {e}") from None
