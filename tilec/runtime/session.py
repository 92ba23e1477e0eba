"""A candidate in a process of its own, from the side that waits for it: every wait has an end, and the process never outlives
it."""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilec.runtime.job import Job
from tilec.runtime.process import Workplace, failure, kill_group

START = 60.0  # seconds until Python runs and the inputs are there, on a busy machine
SPARE = 10.0  # seconds that a run's answer may take beside the run
QUEUE = 3600.0  # seconds that other processes of the machine may time before this one


@dataclass(frozen=True)
class Limits:
    """Seconds: for compiling one candidate, for one run of it (and for one sample of its time)."""

    compile: float = 60.0
    run: float = 20.0


class Failed(Exception):
    """A candidate that cannot be timed. kind: for counting, such as "timed out", "crashed", "wrong result"."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind, self.text = kind, text

    def __reduce__(self) -> tuple[Any, ...]:
        return Failed, (self.kind, self.text)


class Session:
    """One worker process. `ready` waits until its first run was found right; then `time` as often as wanted; `close` at the
    end."""

    def __init__(self, job: Job, place: Workplace, name: str, lock: Path, limits: Limits) -> None:
        """name: of a folder of its own in that place."""
        self.limits, self.janitor, folder = limits, place.janitor, place.folder / name
        self.closed = False
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "job").write_bytes(pickle.dumps(job))
            self.errors = folder / "errors"
            with open(self.errors, "wb") as errors:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "tilec.runtime.worker", str(folder / "job"), str(lock)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env={**os.environ, **_environment(job, folder)},
                    text=True,
                    start_new_session=True,
                )
        except OSError as e:
            raise Failed("system", f"{e.strerror or e}: {e.filename or folder}") from None
        self.janitor.watch(self.process)
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):  # closed while waiting
            for line in self.process.stdout:
                self.lines.put(line)
        self.lines.put(None)

    def ready(self) -> dict[str, Any]:
        """prepared and first (seconds), outputs (a digest). Raises Failed."""
        self._until("prepared", START + self.limits.compile, "compiling")
        self._until("running", START, "making its inputs")
        return self._until("ready", self.limits.run + SPARE, "its first run", self.limits.run)

    def time(self, seconds: float) -> dict[str, Any]:
        """seconds (of one call, the median), best, calls. Raises Failed."""
        self._send({"do": "time", "seconds": seconds})
        self._until("waiting", START, "starting to time")
        self._until("running", QUEUE, "waiting for the machine")
        return self._until("timed", self.limits.run + seconds + SPARE, "a timed run", self.limits.run + seconds)

    def digest(self) -> str:
        """Of the outputs of the last run."""
        self._send({"do": "digest"})
        return self._until("digest", START, "reading its outputs")["outputs"]

    def save(self, folder: Path) -> None:
        """Keep the outputs there for others to compare with."""
        self._send({"do": "save", "folder": str(folder)})
        self._until("done", START, "saving its outputs")

    def compare(self, folder: Path, allowed: dict[str, float]) -> str | None:
        """Where an output is further from a saved one than allowed, in words; None where none is."""
        self._send({"do": "compare", "folder": str(folder), "allowed": allowed})
        return self._until("compared", START, "comparing its outputs")["text"]

    def close(self) -> None:
        """Kill the process and all it started. As often as wanted: later its number may be another process's."""
        if self.closed:
            return
        self.closed = True
        kill_group(self.process)
        self.janitor.forget(self.process)
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError, ValueError):
                if pipe is not None:
                    pipe.close()

    def _send(self, command: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # a dead process is seen by the wait that follows
            self.process.stdin.write(json.dumps(command) + "\n")
            self.process.stdin.flush()

    def _until(self, event: str, seconds: float, doing: str, shown: float | None = None) -> dict[str, Any]:
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise Failed("timed out", f"{doing} took more than {shown or seconds:g} s") from None
        if line is None:
            ended = self._ended()
            self.close()
            reason = failure(self.process.returncode) or "it ended"
            # nothing of tilec's: the system was out of memory, or a person; a second try may go well
            kind = "killed" if ended == -signal.SIGKILL else "crashed"
            raise Failed(kind, f"{doing}: {reason}{self._last_words()}")
        try:
            answer = dict(json.loads(line))
        except (ValueError, TypeError):  # the candidate wrote over the memory of the process
            answer = {}
        if answer.get("event") == event:
            return answer
        self.close()
        if answer.get("event") == "failed":
            raise Failed(answer["kind"], answer["text"])
        raise Failed("crashed", f"{doing}: the process answered {line[:40]!r}")

    def _ended(self) -> int | None:
        """The exit status of a process whose answers have ended, before it is killed with what it left."""
        try:
            return self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:  # it only closed its side
            return None

    def _last_words(self) -> str:
        try:
            lines = self.errors.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return f" ({lines[-1][:200]})" if lines else ""


def _environment(job: Job, folder: Path) -> dict[str, str]:
    """Threads for every library that reads them; the modules that this process finds; temporary files in the session's folder."""
    threads = str(job.options.threads)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    # beside other work the system may leave a team's threads on one core for many calls: each gets a core of its own
    places = {"OMP_PROC_BIND": "spread", "OMP_PLACES": "cores", "OMP_DYNAMIC": "false"}
    return {**dict.fromkeys(names, threads), **places, "PYTHONPATH": path, "TMPDIR": str(folder)}


def lock_file() -> Path:
    """Under its lock one process of this machine times at a time."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(tempfile.gettempdir()) / f"tilec-timing-{user}.lock"
