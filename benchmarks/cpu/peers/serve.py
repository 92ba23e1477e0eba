"""The worker side of the benchmark: one process for each peer and number of threads, told by lines of JSON what to time.

    {"cmd": "prepare", "row": {...}, "threads": n, "folder": path}   ->  {"ok": true} or {"error": text}
    {"cmd": "run", "seconds": s}                                     ->  {"ms": milliseconds of one call}
    {"cmd": "output", "to": path}                                    ->  the result as an array of f32 in a file

A peer is a function make(row, inputs, threads) -> (call, output): `inputs` are NumPy arrays (bf16 as uint16 bits), `call()` does
the whole work once, `output()` gives its result as f32. It needs NumPy and whatever the peer is; nothing of tilec.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Made = tuple[Callable[[], object], Callable[[], np.ndarray]]


class Missing(Exception):
    """The peer has no way to do this row."""


def serve(make: Callable[[dict[str, Any], dict[str, np.ndarray], int], Made]) -> None:
    """Answer requests until the input ends."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a library prints is no answer
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
                call()
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


def timed(call: Callable[[], object], seconds: float) -> float:
    """Milliseconds of one call: the mean of as many as fill `seconds`, one at least."""
    count, began = 0, time.perf_counter()
    while True:
        call()
        count += 1
        spent = time.perf_counter() - began
        if spent >= seconds:
            return 1e3 * spent / count


def bf16_to_f32(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)
