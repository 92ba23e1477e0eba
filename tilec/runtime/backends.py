"""Ways to run a program again and again on the same arrays, for timing: no checks, no copies, results in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from tilec.codegen import numpy_source
from tilec.errors import MeasureError
from tilec.ir.program import Program
from tilec.runtime import numpy_run
from tilec.runtime.c_build import FLAGS, machine, recipe
from tilec.runtime.c_run import load
from tilec.runtime.compiler import find as find_compiler

Arrays = Mapping[str, np.ndarray]
Bound = Callable[[], None]  # runs once, on the arrays it was made for
Prepared = Callable[[Arrays, Mapping[str, int], Mapping[str, Any]], Bound]


@dataclass(frozen=True)
class Options:
    """threads: at most so many. compiler, flags: for backends that compile. limit: seconds that compiling may take."""

    threads: int = 1
    compiler: str | None = None
    flags: tuple[str, ...] = ()
    limit: float = 60.0


def numpy_backend(program: Program, options: Options) -> Prepared:
    """Generated NumPy code on the arrays themselves."""
    function, names = numpy_run.function(program)

    def bind(arrays: Arrays, sizes: Mapping[str, int], scalars: Mapping[str, Any]) -> Bound:
        given = {**arrays, **scalars, **sizes}
        values = [given[name] for name in names]
        return lambda: function(*values)

    return bind


def c_backend(program: Program, options: Options, code: str = "") -> Prepared:
    """Generated C, compiled (or found in the cache) and loaded. code: its text, where it is known already."""
    function = load(recipe(program, options.compiler, options.flags, text=code), program, options.limit)

    def bind(arrays: Arrays, sizes: Mapping[str, int], scalars: Mapping[str, Any]) -> Bound:
        return function.raw(arrays, sizes, scalars, options.threads)

    return bind


def _compiler_facts(options: Options) -> Mapping[str, str]:
    compiler = find_compiler(options.compiler)
    flags = " ".join((*FLAGS, *options.flags))
    return {"compiler": compiler.version, "flags": flags, "instructions": machine(compiler.path)}


@dataclass(frozen=True)
class Backend:
    """code: a program's text, so that a time is never taken for that of other code. prepare: makes a program with that text ready
    to run. facts: what else a time depends on, by name (compiler, flags); raises MeasureError where the backend cannot work at
    all."""

    prepare: Callable[[Program, Options, str], Prepared]
    code: Callable[[Program, Options], str]
    facts: Callable[[Options], Mapping[str, str]]


BACKENDS: Mapping[str, Backend] = {
    "c": Backend(c_backend, lambda program, options: recipe(program, options.compiler, options.flags).text, _compiler_facts),
    "numpy": Backend(
        lambda program, options, code: numpy_backend(program, options),
        lambda program, options: numpy_source.emit(program),
        lambda options: {"numpy": np.__version__},
    ),
}


def find(backend: str) -> Backend:
    """The backend of that name; `package.module:function` names one of your own, with the arguments of `numpy_backend`.

    MeasureError for an unknown one.
    """
    if backend in BACKENDS:
        return BACKENDS[backend]
    if not isinstance(backend, str) or backend.count(":") != 1:
        raise MeasureError(
            f"no backend {backend!r} to measure with. Backends: {', '.join(BACKENDS)}; or your own as package.module:function"
        )
    module, _, name = backend.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise MeasureError(f"backend {backend!r}: {e}") from None
    return Backend(lambda program, options, code: function(program, options), lambda program, options: "", lambda options: {})
