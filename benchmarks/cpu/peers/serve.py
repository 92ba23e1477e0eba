"""The worker side of the benchmark: one process for each peer and number of threads, told by lines of JSON what to time.

    {"cmd": "prepare", "row": {...}, "threads": n, "folder": path}   ->  {"ok": true} or {"error": text}
    {"cmd": "run", "seconds": s}                                     ->  {"ms": [milliseconds of each call]}
    {"cmd": "output", "to": path}                                    ->  the result as an array of f32 in a file

A peer is a function make(row, inputs, threads) -> (call, output): `inputs` are NumPy arrays (bf16 as uint16 bits), `call()` does
the whole work once, `output()` gives its result as f32. It needs NumPy and whatever the peer is; nothing of tilec.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

Made = tuple[Callable[[], object], Callable[[], np.ndarray]]
WARM = 0.4  # of the seconds of a turn: threads wake up and spread over the cores in the first milliseconds


class Missing(Exception):
    """The peer has no way to do this row."""


def serve(make: Callable[[dict[str, Any], dict[str, np.ndarray], int], Made]) -> None:
    """Answer requests until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints, in C too, is no answer
    call: Callable[[], object] = lambda: None  # noqa: E731
    output: Callable[[], np.ndarray] = lambda: np.zeros(0)  # noqa: E731
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: dict[str, Any] = {"ok": True}
            if request["cmd"] == "prepare":
                folder = Path(request["folder"])
                inputs = {p.stem: np.load(p) for p in sorted(folder.glob("*.npy"))}
                call, output = make(request["row"], inputs, request["threads"])
                settle(call)
                spread(request["threads"])
            elif request["cmd"] == "run":
                answer = {"ms": timed(call, request["seconds"])}
            elif request["cmd"] == "output":
                np.save(request["to"], np.asarray(output(), dtype=np.float32))
        except Missing as e:
            answer = {"error": f"no way to do it: {e}"}
        except Exception as e:  # whatever a peer raises is its answer; the benchmark goes on
            answer = {"error": f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def settle(call: Callable[[], object], calls: int = 6, seconds: float = 1.0) -> None:
    """The first calls, in which memory that a peer allocates comes from the system for the first time."""
    began = time.perf_counter()
    for _ in range(calls):
        call()
        if time.perf_counter() - began > seconds:
            return


def spread(threads: int) -> None:
    """One core for the calling thread, the others for the threads that it started: where every core is busy with other work,
    the system may leave both threads of a team on one core for a whole turn. OpenMP could bind its own; not all peers use it."""
    cores = sorted(os.sched_getaffinity(0))
    if 1 < threads <= len(cores):
        others = sorted({int(t) for t in os.listdir("/proc/self/task")} - {os.getpid()})
        os.sched_setaffinity(os.getpid(), {cores[0]})
        for n, thread in enumerate(others):
            os.sched_setaffinity(thread, {cores[1 + n % (threads - 1)]})


def timed(call: Callable[[], object], seconds: float) -> list[float]:
    """Milliseconds of each call of a turn, after a part of it that is not counted when calls are short."""
    began, times = time.perf_counter(), []
    while True:
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        if end - start > seconds or end - began > WARM * seconds:
            times.append(1e3 * (end - start))
        if end - began >= seconds and times:
            return times


def fastest(ways: Iterable[Callable[[], Made]], seconds: float = 0.1) -> Made:
    """The way whose call is the fastest here: a person tries a few micro-tiles too."""
    made = []
    for way in ways:
        call, output = way()
        began = time.perf_counter()
        call()
        first = time.perf_counter() - began
        made.append((1e3 * first if first > 2 * seconds else median(timed(call, seconds)), call, output))
    _, call, output = min(made, key=lambda m: m[0])
    return call, output


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def e4m3_values() -> np.ndarray:
    """The value of each of the 256 codes of E4M3FN."""
    code = np.arange(256)
    e, f = (code >> 3) & 15, code & 7
    size = np.where(e == 0, f * 2.0**-9, (8 + f) * 2.0 ** (e - 10.0))
    return np.where(code & 127 == 127, np.nan, np.where(code & 128, -size, size)).astype(np.float32)
