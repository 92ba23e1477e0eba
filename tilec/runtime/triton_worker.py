"""Processes that hold Triton (triton_adapter.py): started, asked, replaced when they die. This process never imports it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from tilec.errors import MeasureError
from tilec.runtime.process import failure, kill_group, start

RANGE = ((3, 9), (3, 10))  # what triton_adapter.py is written for
NEEDED = "Triton is not installed: pip install 'tilec[triton]'"


def installed() -> bool:
    """Is there a Triton to compile with?"""
    return importlib.util.find_spec("triton") is not None


def version() -> str:
    """Of the installed Triton; MeasureError where it is missing or none that tilec works with."""
    try:
        found = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        raise MeasureError(NEEDED) from None
    numbers = tuple(int(n) for n in found.split(".")[:2] if n.isdigit())
    if not RANGE[0] <= numbers < RANGE[1]:
        low, high = (".".join(map(str, n)) for n in RANGE)
        raise MeasureError(f"Triton {found} is installed; tilec works with >={low},<{high}: pip install 'tilec[triton]'")
    return found


def worker(mode: str) -> subprocess.Popen[str]:
    """A process of the adapter that is ready; MeasureError where Triton is missing or can't be imported."""
    version()
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    argv = [sys.executable, "-W", "ignore", "-m", "tilec.runtime.triton_adapter", mode]
    process = start(argv, env={"PYTHONPATH": os.pathsep.join(paths)})
    ask(process, {"hello": True})
    return process


def ask(process: subprocess.Popen[str], request: Mapping[str, Any]) -> dict[str, Any]:
    """One request, one answer; MeasureError, and no process any more, where it ends instead."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
    except (BrokenPipeError, ValueError):
        pass  # it is gone: what it said last is read below
    line = process.stdout.readline()
    if line.startswith("{"):
        return json.loads(line)
    code = process.poll()
    kill_group(process)
    said = (process.stderr.read() if process.stderr is not None else "").strip().splitlines()
    why = said[-1] if said else failure(process.returncode if code is None else code) or "no message"
    raise MeasureError(f"Triton's process ended: {why}")


def pool(requests: Mapping[str, Mapping[str, Any]], workers: int, limit: float) -> Generator[tuple[str, dict[str, Any]]]:
    """(key, answer) of each request as they are ready, from that many compilers. One that takes more than `limit` seconds, or
    takes its process with it, is answered by an `error`; another process goes on with the rest.

    MeasureError where no process can be started. None is left when this ends, however it does.
    """
    waiting: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    ready: queue.SimpleQueue[tuple[str, dict[str, Any]] | Exception] = queue.SimpleQueue()
    for key in [*requests, *[None] * workers]:
        waiting.put(key)
    processes: list[subprocess.Popen[str]] = []
    over = threading.Event()

    def fresh() -> subprocess.Popen[str]:
        process = worker("compile")
        processes.append(process)
        if over.is_set():
            kill_group(process)
        return process

    def answered(process: subprocess.Popen[str], key: str) -> dict[str, Any]:
        late = threading.Event()

        def stop() -> None:
            late.set()
            kill_group(process)

        timer = threading.Timer(limit, stop)
        timer.start()
        try:
            return ask(process, requests[key])
        except MeasureError as e:
            return {"error": f"compiling took more than {limit:g} s" if late.is_set() else str(e), "died": True}
        finally:
            timer.cancel()

    def work() -> None:
        try:
            process = fresh()
            while (key := waiting.get()) is not None and not over.is_set():
                if process.poll() is not None:
                    process = fresh()
                ready.put((key, answered(process, key)))
        except Exception as e:
            ready.put(e)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    for t in threads:
        t.start()
    try:
        for _ in requests:
            got = ready.get()
            if isinstance(got, Exception):
                raise got if isinstance(got, MeasureError) else MeasureError(f"compiling with Triton failed: {got}")
            yield got
    finally:
        over.set()
        for process in processes:
            kill_group(process)
