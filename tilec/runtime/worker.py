"""The process that runs one candidate: `python -m tilec.runtime.worker JOB LOCK`. It may hang or crash; who started it lives on.

JOB is a pickled Job, LOCK a file under whose lock one process of this machine times at a time. Commands are JSON lines on
standard input, answers JSON lines on standard output, each with its `event`:

    (start)                         prepared, then running, then ready: prepared (s), first (s, the first run), outputs (a digest)
    {"do": "save", "folder"}        done: the outputs lie in the folder
    {"do": "compare", "folder", "allowed": {name: x}}   compared: text, where an element is further from the saved one
    {"do": "time", "seconds"}       waiting, running, then timed: seconds (of one call, median), best, calls
    {"do": "digest"}                digest: outputs, of the last run

or `failed` with kind and text, after which the process ends. The end of standard input means that nobody waits any more: the
process group dies at once.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from tilec.errors import MeasureError, TilecError
from tilec.ir.arguments import check_scalars, written
from tilec.ir.dtypes import DTYPES, to_arithmetic
from tilec.runtime.backends import Bound, Prepared, find
from tilec.runtime.job import Job, fingerprint, load_inputs

try:
    import fcntl
    import resource
except ImportError:  # not on this system: timings of several processes may disturb each other
    fcntl = resource = None


class Wrong(Exception):
    """A result is not what the reference says."""


class Answers:
    """Lines to who started the process. What a candidate prints goes to standard error instead."""

    def __init__(self) -> None:
        self.stream = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)

    def say(self, event: str, **rest: Any) -> None:
        self.stream.write(json.dumps({"event": event, **rest}) + "\n")
        self.stream.flush()


class Candidate:
    """A job's program on arrays of its own: run, looked at, timed."""

    def __init__(self, job: Job, prepared: Prepared) -> None:
        self.job, self.names = job, written(job.source)
        self.arrays, scalars = load_inputs(job)
        self.initial = {n: self.arrays[n].copy() for n in self.names} if job.reset else {}
        self.call: Bound = prepared(self.arrays, dict(job.sizes), check_scalars(job.source, scalars))

    def outputs(self) -> dict[str, np.ndarray]:
        return {n: self.arrays[n] for n in self.names}

    def first(self) -> dict[str, Any]:
        began = time.perf_counter()
        self.call()
        first = time.perf_counter() - began
        if self.job.check is not None:
            text = self.job.check.wrong(self.outputs())
            if text is not None:
                raise Wrong(text)
        return {"first": first, "outputs": fingerprint(self.outputs())}

    def save(self, folder: Path) -> None:
        for n, array in self.outputs().items():
            array.tofile(folder / f"{n}.out")

    def far(self, folder: Path, allowed: dict[str, float]) -> str | None:
        for n, array in self.outputs().items():
            d = next(d for d in DTYPES.values() if d.numpy == array.dtype)
            other = np.fromfile(folder / f"{n}.out", d.raw).view(d.numpy).reshape(array.shape)
            a, b = (to_arithmetic(d.name, x).astype(np.float64) for x in (array, other))
            with np.errstate(invalid="ignore"):
                off = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
            bad = ~(off <= allowed[n])
            if bad.any():
                at = tuple(int(x) for x in np.argwhere(bad)[0])
                return f"{n}: {int(bad.sum()):,} elements are far from those of another candidate, e.g. {a[at]} and {b[at]}"
        return None

    def time(self, seconds: float) -> dict[str, Any]:
        """Calls for about that long; at least one. The first of several, in which threads wake up, does not count."""
        times: list[float] = []
        while not times or sum(times) < seconds:
            for n, values in self.initial.items():
                self.arrays[n][...] = values
            began = time.perf_counter()
            self.call()
            times.append(time.perf_counter() - began)
        counted = times[1:] or times
        return {"seconds": median(counted), "best": min(counted), "calls": len(counted)}


def main(job_file: str, lock_file: str) -> None:
    answers = Answers()
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    commands: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_listen, args=(commands,), daemon=True).start()
    phase = "does not compile"
    try:
        job: Job = pickle.loads(Path(job_file).read_bytes())
        began = time.perf_counter()
        prepared = find(job.backend).prepare(job.program, job.options, job.code)
        seconds = time.perf_counter() - began
        answers.say("prepared")
        phase = "fails"
        candidate = Candidate(job, prepared)
        answers.say("running")
        answers.say("ready", prepared=seconds, **candidate.first())
        while True:
            command = json.loads(commands.get())
            if command["do"] == "time":
                answers.say("waiting")
                with locked(lock_file):
                    answers.say("running")
                    timed = candidate.time(command["seconds"])
                answers.say("timed", **timed)
            elif command["do"] == "digest":
                answers.say("digest", outputs=fingerprint(candidate.outputs()))
            elif command["do"] == "save":
                candidate.save(Path(command["folder"]))
                answers.say("done")
            else:
                answers.say("compared", text=candidate.far(Path(command["folder"]), command["allowed"]))
    except Wrong as e:
        answers.say("failed", kind="wrong result", text=str(e))
    except MemoryError as e:
        answers.say("failed", kind="out of memory", text=str(e) or "no memory")
    except OSError as e:
        answers.say("failed", kind="system", text=f"{e.strerror or e}" + (f": {e.filename}" if e.filename else ""))
    except Exception as e:
        kind = (e.kind if isinstance(e, MeasureError) else None) or phase
        answers.say("failed", kind=kind, text=str(e) if isinstance(e, TilecError) else f"{type(e).__name__}: {e}")


def _listen(commands: queue.Queue[str]) -> None:
    for line in sys.stdin:
        commands.put(line)
    os.killpg(os.getpgid(0), signal.SIGKILL)  # also a compiler that still runs, and a candidate that hangs


@contextlib.contextmanager
def locked(path: str) -> Iterator[None]:
    """One process of this machine at a time; given up when the process ends, however it ends."""
    with open(path, "a") as f:
        if fcntl is not None:
            fcntl.flock(f, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    main(*sys.argv[1:])
