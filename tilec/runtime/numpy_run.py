"""Generated NumPy code, compiled and called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilec.codegen import numpy_source
from tilec.ir.arguments import written
from tilec.ir.program import Program

Runner = Callable[[Mapping[str, np.ndarray], Mapping[str, int], Mapping[str, Any]], dict[str, np.ndarray]]


def function(program: Program) -> tuple[Callable[..., None], list[str]]:
    """The generated function, which works on the arrays themselves, and the names of its arguments in order."""
    namespace: dict[str, Any] = {}
    exec(compile(numpy_source.emit(program), f"<tilec numpy {program.name}>", "exec"), namespace)
    return namespace[numpy_source.entry(program)], numpy_source.parameters(program)


def runner(program: Program) -> Runner:
    """run(arrays, sizes, scalars) -> every written parameter, in new arrays. All parameters, free sizes and scalars are given."""
    call, names = function(program)
    outputs = written(program)

    def run(arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], scalars: Mapping[str, Any]) -> dict[str, np.ndarray]:
        copies = {name: np.array(arrays[name]) for name in outputs}
        given = {**arrays, **scalars, **sizes, **copies}
        call(*(given[name] for name in names))
        return copies

    return run
