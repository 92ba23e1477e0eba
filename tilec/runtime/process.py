"""Other programs in processes that can be killed whole: compilers, probes, candidates. None outlives its call."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilec.errors import MeasureError


@dataclass(frozen=True)
class Finished:
    """code: exit status, negative for a signal. reason: None, or why it counts as failed: "timed out after 3 s",
    "killed by SIGSEGV", "exit status 1"."""

    code: int
    out: str
    err: str
    reason: str | None


def run_killable(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    input: str | None = None,
) -> Finished:
    """Run to the end, or kill it and everything it started: after `timeout` seconds, and when this call is interrupted.

    Raises MeasureError when the program cannot be started.
    """
    process = start(argv, cwd=cwd, env=env)
    try:
        out, err = process.communicate(input, timeout=timeout)
        reason = failure(process.returncode)
    except subprocess.TimeoutExpired:
        kill_group(process)
        out, err = process.communicate()
        reason = f"timed out after {timeout:g} s"
    finally:
        kill_group(process)  # also what a finished program left running
    return Finished(process.returncode, out, err, reason)


def start(
    argv: Sequence[str | os.PathLike[str]], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """The program in a process group of its own, with pipes; MeasureError when it cannot be started."""
    try:
        return subprocess.Popen(
            [os.fspath(a) for a in argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=None if env is None else {**os.environ, **env},
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as e:
        raise MeasureError(f"{os.fspath(argv[0])} can't be started: {e.strerror or e}") from None


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process that `start` made and all its descendants in its group, and wait for it; nothing if they are gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def failure(code: int) -> str | None:
    """What an exit status means in words; None for 0."""
    if code == 0:
        return None
    if code > 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
