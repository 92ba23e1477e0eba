"""Backends that misbehave, for tests of measuring: a worker process loads them by name, as tests.unit.bad_backends:hangs."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tilec.codegen import numpy_source
from tilec.errors import MeasureError
from tilec.ir.program import Program
from tilec.runtime.backends import Options, Prepared, numpy_backend


def good(program: Program, options: Options) -> Prepared:
    return numpy_backend(program, options)


def around(before: Callable[[Mapping[str, Any]], None], after: Callable[[Mapping[str, Any]], None] = lambda a: None):
    """A backend that does something before and after each run."""

    def backend(program: Program, options: Options) -> Prepared:
        prepared = numpy_backend(program, options)

        def bind(arrays, sizes, scalars):
            run = prepared(arrays, sizes, scalars)

            def call() -> None:
                before(arrays)
                run()
                after(arrays)

            return call

        return bind

    return backend


def _note(name: str) -> None:
    """Leave the process's number where the test looks for it."""
    folder = os.environ.get("TILEC_TEST_NOTES")
    if folder:
        (Path(folder) / f"{name}-{os.getpid()}").write_text("")


def _spin(arrays: Mapping[str, Any]) -> None:
    """Hang in C, with a child that hangs too."""
    child = subprocess.Popen(["sleep", "3600"])
    _note("worker")
    (Path(os.environ["TILEC_TEST_NOTES"]) / f"child-{child.pid}").write_text("")
    ctypes.CDLL(None).sleep(3600)


def _rest(arrays: Mapping[str, Any]) -> None:
    _note("worker")
    time.sleep(0.2)


hangs = around(_spin)
crashes = around(lambda arrays: os.kill(os.getpid(), signal.SIGSEGV))
leaves = around(lambda arrays: os._exit(7))
raises = around(lambda arrays: 1 / 0)  # type: ignore[arg-type, return-value]
slow = around(_rest)


def _spoil(arrays: Mapping[str, Any]) -> None:
    list(arrays.values())[-1].view("u1")[-1] ^= 1


wrong = around(lambda arrays: None, _spoil)


def _babble(arrays: Mapping[str, Any]) -> None:
    """Write over what the process says to who started it."""
    for o in gc.get_objects():
        if type(o).__name__ == "Answers":
            o.stream.write("[1, 2\n")
            o.stream.flush()


babbles = around(_babble)


def does_not_compile(program: Program, options: Options) -> Prepared:
    raise MeasureError("cc: error: expected ';'")


def hangs_while_compiling(program: Program, options: Options) -> Prepared:
    _spin({})
    raise AssertionError


class Drift:
    """Outputs that change after the first runs."""

    def __init__(self) -> None:
        self.runs = 0

    def __call__(self, arrays: Mapping[str, Any]) -> None:
        self.runs += 1
        if self.runs > 3:
            _spoil(arrays)


drifts = around(lambda arrays: None, Drift())


def drifts_apart(program: Program, options: Options) -> Prepared:
    """Both change their outputs, one of them far behind the other: tiles of 32 take 50 ms more."""
    slower = "32*" in numpy_source.emit(program).replace(" ", "")
    return around(lambda arrays: time.sleep(0.05 if slower else 0.0), Drift())(program, options)


def mixed(program: Program, options: Options) -> Prepared:
    """What happens depends on the tile: 16 fine, 32 hangs, 64 crashes, 128 wrong, 256 does not compile."""
    text = numpy_source.emit(program)
    for size, backend in ((256, does_not_compile), (128, wrong), (64, crashes), (32, hangs)):
        if f"{size}*" in text.replace(" ", "") or f"*{size}" in text.replace(" ", ""):
            return backend(program, options)
    return good(program, options)


def dies_in_pool(program: Program, options: Options) -> Prepared:
    """Kills the process that measures it: the parent of the worker."""
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)
    raise AssertionError
