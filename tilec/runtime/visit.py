"""One candidate measured from start to end in one call, for executors: the function that travels to a worker of a pool or
cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilec.errors import MeasureError
from tilec.runtime.environment import environment
from tilec.runtime.job import Job
from tilec.runtime.process import workplace
from tilec.runtime.session import Failed, Limits, Session, lock_file


@dataclass(frozen=True)
class Visit:
    """samples: seconds, or failure (its kind) and detail. environment: of the process that ran it. outputs: their digest."""

    samples: tuple[float, ...]
    environment: Mapping[str, str]
    outputs: str = ""
    failure: str | None = None
    detail: str = ""


def visit(job: Job, limits: Limits, samples: int, seconds: float) -> Visit:
    """Compile, check and time a candidate in a process that is killed if it hangs; nothing is left behind."""
    here = environment(job.backend, job.options)
    session = None
    try:
        with workplace() as place:
            try:
                session = Session(job, place, "candidate", lock_file(), limits)
                outputs = session.ready()["outputs"]
                times = tuple(session.time(seconds)["seconds"] for _ in range(samples))
                return Visit(times, here, outputs)
            finally:
                if session is not None:
                    session.close()
    except Failed as e:
        return Visit((), here, failure=e.kind, detail=e.text)
    except MeasureError as e:
        return Visit((), here, failure="system", detail=str(e))
