"""Every backend, once: what it prints, how it runs a program, what `build` makes of it, how it is timed.

`emit`, `build`, `run`, `tune(measure=…)` and the command line read this table and nothing else; a backend's options are the
keywords of its functions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from tilec.codegen import numpy_source, tile, triton
from tilec.errors import MeasureError, ScheduleError
from tilec.ir import interp
from tilec.ir.printer import text
from tilec.ir.program import Program
from tilec.runtime import c_callable, c_run, numpy_run, triton_run
from tilec.runtime.c_build import FLAGS, c_text, machine, recipe
from tilec.runtime.compiler import find as find_compiler
from tilec.runtime.numpy_run import Runner

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


@dataclass(frozen=True)
class Timed:
    """A way to run a program again and again on the same arrays: no checks, no copies, results in place.

    code: a program's text, so that a time is never taken for that of other code. prepare: makes a program with that text ready to
    run. facts: what else a time depends on, by name (compiler, flags); raises MeasureError where the backend cannot work at all.
    """

    prepare: Callable[[Program, Options, str], Prepared]
    code: Callable[[Program, Options], str]
    facts: Callable[[Options], Mapping[str, str]]


@dataclass(frozen=True)
class Backend:
    """What a backend can do; None is what it cannot.

    emit(program, **options) -> text. run(program) -> a runner of all written parameters. build(program, **options, about) -> a
    callable of its own kind, where it is more than a runner behind the usual checks. timed: for measured tuning.
    """

    emit: Callable[..., str] | None = None
    run: Callable[[Program], Runner] | None = None
    build: Callable[..., Callable[..., Any]] | None = None
    timed: Timed | None = None


def interpreter(program: Program) -> Runner:
    """The loop tree in its order: the reference of everything else."""
    return lambda arrays, sizes, scalars: interp.run(program, dict(arrays), dict(sizes), dict(scalars))


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
    function = c_run.load(recipe(program, options.compiler, options.flags, text=code), program, options.limit)

    def bind(arrays: Arrays, sizes: Mapping[str, int], scalars: Mapping[str, Any]) -> Bound:
        return function.raw(arrays, sizes, scalars, options.threads)

    return bind


def _compiler_facts(options: Options) -> Mapping[str, str]:
    compiler = find_compiler(options.compiler)
    flags = " ".join((*FLAGS, *options.flags))
    return {"compiler": compiler.version, "flags": flags, "instructions": machine(compiler.path)}


_NUMPY = Timed(
    lambda program, options, code: numpy_backend(program, options),
    lambda program, options: numpy_source.emit(program),
    lambda options: {"numpy": np.__version__},
)
_C = Timed(c_backend, lambda program, options: recipe(program, options.compiler, options.flags).text, _compiler_facts)

BACKENDS: Mapping[str, Backend] = {
    "pseudocode": Backend(text),
    "tile": Backend(tile.text),
    "numpy": Backend(numpy_source.emit, numpy_run.runner, timed=_NUMPY),
    "interpreter": Backend(run=interpreter),
    "c": Backend(c_text, c_run.runner, c_callable.build, _C),
    "triton": Backend(triton.source, triton_run.runner),
}


def names(able: str) -> tuple[str, ...]:
    """Of the backends that can "emit", "run" or be "timed"."""
    return tuple(name for name, b in BACKENDS.items() if getattr(b, able) is not None)


def able(name: str, ability: str, what: str) -> Backend:
    """The backend of that name; ScheduleError where there is none that can. what: the call, for the message."""
    if not isinstance(name, str) or name not in names(ability):
        raise ScheduleError(f'{what}("{name}"): no such backend. Backends: {", ".join(names(ability))}')
    return BACKENDS[name]


def options(function: Callable[..., Any]) -> list[str]:
    """The options that a person may give to a function of a backend: its keywords but those that the face fills in."""
    parameters = list(inspect.signature(function).parameters.values())[1:]
    return [p.name for p in parameters if p.kind is not p.VAR_KEYWORD and p.name not in ("about", "comments")]


def check_options(function: Callable[..., Any], given: Mapping[str, Any], what: str) -> None:
    """ScheduleError for an option that the backend has not."""
    known = options(function)
    wrong = [n for n in given if n not in known]
    if wrong:
        raise ScheduleError(f"{what}: no option '{wrong[0]}'. Options: {', '.join(known) or 'none'}")


def find(backend: str) -> Timed:
    """How the backend of that name is timed; `package.module:function` names one of your own, with the arguments of
    `numpy_backend`.

    MeasureError for an unknown one.
    """
    if isinstance(backend, str) and (known := BACKENDS.get(backend)) is not None and known.timed is not None:
        return known.timed
    if not isinstance(backend, str) or backend.count(":") != 1:
        raise MeasureError(
            f"no backend {backend!r} to measure with. Backends: {', '.join(names('timed'))}; or your own as "
            "package.module:function"
        )
    module, _, name = backend.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as e:
        raise MeasureError(f"backend {backend!r}: {e}") from None
    return Timed(lambda program, options, code: function(program, options), lambda program, options: "", lambda options: {})
