"""Several candidates at once: opened side by side, held against each other, closed together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np

from tilec.runtime.job import Check, Job
from tilec.runtime.process import Workplace
from tilec.runtime.session import Failed, Limits, Session, lock_file

MARGIN = 4.0  # cells that were not sampled may differ by so many times the largest deviation allowed to sampled ones


class Team:
    """Sessions by number. `outputs`: the digest of each one's first results."""

    def __init__(self, place: Workplace, limits: Limits, workers: int) -> None:
        self.place, self.limits, self.workers = place, limits, workers
        self.sessions: dict[int, Session] = {}
        self.outputs: dict[int, str] = {}
        self._all: list[Session] = []
        self._stopped = False

    def open(
        self, jobs: Mapping[int, Job], said: Callable[[int], None], stop: Callable[[], bool]
    ) -> Iterator[tuple[int, Failed]]:
        """Start them, at most `workers` at a time; yields those that fail. Those not started when `stop` holds are left out."""
        pool = ThreadPoolExecutor(self.workers)
        try:
            futures = {pool.submit(self._open, n, job, stop): n for n, job in jobs.items()}
            said(0)
            for k, future in enumerate(as_completed(futures), 1):
                said(k)
                try:
                    found = future.result()
                except Failed as e:
                    yield futures[future], e
                    continue
                if found is not None:
                    self.sessions[futures[future]], self.outputs[futures[future]] = found
        except BaseException:
            self.close_all()
            raise
        finally:
            pool.shutdown(cancel_futures=True)

    def _open(self, n: int, job: Job, stop: Callable[[], bool]) -> tuple[Session, str] | None:
        if self._stopped or stop():
            return None
        session = Session(job, self.place, f"candidate{n}", lock_file(), self.limits)
        self._all.append(session)
        if self._stopped:
            session.close()
        return session, session.ready()["outputs"]

    def same(self, n: int) -> None:
        """Failed when the results after the timed runs are not those of the first run."""
        if self.sessions[n].digest() != self.outputs[n]:
            raise Failed("wrong result", "the outputs change from run to run on the same inputs")

    def close(self, *numbers: int) -> None:
        """End these."""
        for n in numbers:
            self.sessions.pop(n).close()

    def close_all(self) -> None:
        """End everything that was ever started."""
        self._stopped = True
        for session in self._all:
            session.close()
        self.sessions.clear()


def agree(team: Team, check: Check | None, folder: Path) -> list[tuple[int, str]]:
    """Close the candidates whose outputs, in cells that the reference did not cover, are unlike those of most others; with
    why."""
    if check is None or check.part.whole or len(team.sessions) < 2:
        return []
    if check.exact:
        return _alike(team)
    largest = {}
    for name, want in check.expected.items():
        finite = want.allowed[np.isfinite(want.allowed)] if want.allowed is not None else np.zeros(0)
        largest[name] = MARGIN * float(finite.max()) if finite.size else float("inf")
    return _near(team, folder, largest)


def _alike(team: Team) -> list[tuple[int, str]]:
    """Bit for bit: the most frequent outputs are taken for right; with as many others, nobody's are."""
    count = Counter(team.outputs[n] for n in team.sessions)
    (common, most), *rest = count.most_common()
    sure = not rest or rest[0][1] < most
    wrong = [n for n in team.sessions if not sure or team.outputs[n] != common]
    team.close(*wrong)
    return [(n, "its outputs are not bit for bit those of the other candidates") for n in wrong]


def _near(team: Team, folder: Path, allowed: dict[str, float]) -> list[tuple[int, str]]:
    """Within a tolerance of one of them; one that most others are far from is itself the wrong one."""
    wrong: list[tuple[int, str]] = []
    while len(team.sessions) > 1:
        base, *others = team.sessions
        n = base
        try:
            team.sessions[base].save(folder)
            far = []
            for n in others:
                text = team.sessions[n].compare(folder, allowed)
                if text is not None:
                    far.append((n, text))
        except Failed as e:
            wrong.append((n, e.text))
            team.close(n)
            continue
        if 2 * len(far) <= len(others):
            team.close(*(n for n, _ in far))
            return wrong + far
        wrong.append((base, f"most other candidates differ: {far[0][1]}"))
        team.close(base)
    return wrong
