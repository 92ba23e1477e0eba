"""Generated NumPy code, compiled and called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tilec.codegen import numpy_source
from tilec.ir.arguments import written
from tilec.ir.program import Program

Runner = Callable[[Mapping[str, np.ndarray], Mapping[str, int], Mapping[str, Any]], dict[str, np.ndarray]]


def runner(program: Program) -> Runner:
    """run(arrays, sizes, scalars) -> every written parameter, in new arrays. All parameters, free sizes and scalars are given."""
    source = numpy_source.emit(program)
    namespace: dict[str, Any] = {}
    exec(compile(source, f"<tilec numpy {program.name}>", "exec"), namespace)
    function = namespace[numpy_source.entry(program)]
    outputs, names = written(program), numpy_source.parameters(program)

    def run(arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], scalars: Mapping[str, Any]) -> dict[str, np.ndarray]:
        copies = {name: np.array(arrays[name]) for name in outputs}
        given = {**arrays, **scalars, **sizes, **copies}
        function(*(given[name] for name in names))
        return copies

    return run
