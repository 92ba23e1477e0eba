"""Other programs in processes that can be killed whole: compilers, probes, candidates.

None outlives its call, nor the process that made the call, however that ends: a janitor, a process that only waits for that,
kills what is left and removes its folder.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilec.errors import MeasureError

# The end is a line of its own, or the end of the input: a process forked meanwhile may hold the other side of the pipe open.
# What was killed a moment ago may still write into the folder.
_JANITOR = """import os, sys
watched = set()
for line in sys.stdin:
    if line[0] == "e": break
    (watched.add if line[0] == "+" else watched.discard)(int(line[1:]))
for group in watched:
    try: os.killpg(group, 9)
    except OSError: pass
if len(sys.argv) > 1:
    import shutil, time
    for n in range(100):
        shutil.rmtree(sys.argv[1], ignore_errors=True)
        if not os.path.exists(sys.argv[1]): break
        time.sleep(0.05)
"""


# A program waits until it is watched: where this process ends before that, it never begins.
_GATE = ("/bin/sh", "-c", 'read -r go && exec "$@"', "tilec")


class Janitor:
    """folder: removed at the end. Raises MeasureError where no process can be started."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder, self.watched = folder, set[int]()
        argv = [sys.executable, "-I", "-S", "-c", _JANITOR, *([str(folder)] if folder else [])]
        try:
            self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, bufsize=0, start_new_session=True)
        except OSError as e:
            raise MeasureError(f"no process can be started: {e.strerror or e}", "system") from None

    def watch(self, process: subprocess.Popen[str]) -> None:
        """Kill its group at the end."""
        self.watched.add(process.pid)
        self._say(f"+{process.pid}\n")

    def forget(self, process: subprocess.Popen[str]) -> None:
        """It has ended."""
        self.watched.discard(process.pid)
        self._say(f"-{process.pid}\n")

    def _say(self, line: str) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # somebody killed it, or it is closed
            self.process.stdin.write(line.encode())

    def close(self) -> None:
        """The end."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        if self.watched or (self.folder is not None and self.folder.exists()):
            self._say("end\n")
        else:  # nothing to do: it may not even have begun
            self.process.kill()
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


@dataclass(frozen=True)
class Workplace:
    """A temporary folder, and who watches over it."""

    folder: Path
    janitor: Janitor


@contextlib.contextmanager
def workplace(prefix: str = "tilec-measure-") -> Iterator[Workplace]:
    """A temporary folder that is gone afterwards, also when this process is killed. MeasureError where none can be made."""
    try:
        folder = Path(tempfile.gettempdir()) / f"{prefix}{secrets.token_hex(6)}"
    except OSError as e:
        raise _no_folder(e) from None
    janitor = Janitor(folder)  # before there is something to remove
    try:
        try:
            folder.mkdir(mode=0o700)
        except OSError as e:
            raise _no_folder(e) from None
        yield Workplace(folder, janitor)
    finally:
        janitor.close()


def _no_folder(e: OSError) -> MeasureError:
    return MeasureError(f"no temporary folder can be made: {e.strerror or e}. TMPDIR names another place", "system")


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
    janitor: Janitor | None = None,
) -> Finished:
    """Run to the end, or kill it and everything it started: after `timeout` seconds, when this call is interrupted, and when this
    process ends (janitor: who sees to that; None: one of its own).

    Raises MeasureError when the program cannot be started.
    """
    if janitor is None:
        own = Janitor()
        try:
            return run_killable(argv, timeout=timeout, cwd=cwd, env=env, input=input, janitor=own)
        finally:
            own.close()
    if shutil.which(argv[0]) is None:
        raise MeasureError(f"{os.fspath(argv[0])} can't be started: No such file, or not executable", "system")
    process = start([*_GATE, *argv], cwd=cwd, env=env)
    try:
        janitor.watch(process)
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it is gone: seen below
            process.stdin.write("go\n")
            process.stdin.flush()
        out, err = process.communicate(input, timeout=timeout)
        reason = failure(process.returncode)
    except subprocess.TimeoutExpired:
        kill_group(process)
        out, err = process.communicate()
        reason = f"timed out after {timeout:g} s"
    finally:
        kill_group(process)  # also what a finished program left running
        janitor.forget(process)
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
        raise MeasureError(f"{os.fspath(argv[0])} can't be started: {e.strerror or e}", "system") from None


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a process that `start` made and all its descendants in its group, and wait for it; nothing if they are gone. Not later
    than at its end: its number is then free for others."""
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
