"""A call: arguments by position or name, matched to the parameters; results written back and handed out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.errors import LanguageError
from tilec.ir.arguments import call_order, check_arrays, check_scalars, check_sizes, parameters, required, signature, written
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Buffer, Program
from tilec.poly.wellformed import initial_reads


@dataclass(frozen=True)
class Call:
    """What a backend gets: every array (omitted outputs are zeros), every size and scalar.

    `given` are the caller's arrays, `written` the parameters to write back, `returned` the only-written ones.
    """

    arrays: dict[str, np.ndarray]
    given: dict[str, np.ndarray]
    sizes: dict[str, int]
    scalars: dict[str, Any]
    written: tuple[str, ...]
    returned: tuple[str, ...]

    def finish(self, results: Mapping[str, np.ndarray]) -> Any:
        """Write the results into the caller's arrays; return the only-written parameters: one array, a tuple, or None."""
        for name in self.written:
            if name in self.given:
                self.given[name][...] = results[name]
        out = tuple(self.given.get(name, results[name]) for name in self.returned)
        return out[0] if len(out) == 1 else out or None


def pure_outputs(program: Program) -> tuple[str, ...]:
    """Parameters that may be omitted at a call and are returned: written, and not read before."""
    carried = initial_reads(program.source)  # exact: also an array of which one element is read before it is written
    needed = tuple(n for n in call_order(program) if n in required(program.source) or n in carried)
    return tuple(n for n in written(program.source) if n not in needed)


def bind(program: Program, args: Sequence[Any], kwargs: Mapping[str, Any], pure: tuple[str, ...] | None = None) -> Call:
    """Match a call to the parameters, arrays and scalars in the order of the kernel; sizes that no shape gives are keywords.

    pure: the outputs that may be omitted, where they are known already.

    Positional arguments are all parameters, or all but the only-written ones. Raises LanguageError for a wrong count, an unknown
    keyword, a written array that is read-only, and what ir/arguments.py checks: dtypes, shapes, sizes, aliasing, scalars.
    """
    source, name = program.source, program.name
    order = call_order(source)
    sizes = {k: v for k, v in kwargs.items() if k in source.sizes or k in dict(source.bound)}
    values = {k: v for k, v in kwargs.items() if k not in sizes}
    unknown = [k for k in values if k not in order]
    if unknown:
        raise LanguageError(f"{name}: no parameter or size '{unknown[0]}'\n  expected: {signature(source)}")
    pure = pure_outputs(program) if pure is None else pure
    rest = [p for p in order if p not in values]
    needed = [p for p in rest if p not in pure]
    if len(args) not in (len(rest), len(needed)):
        either = "" if rest == needed else f", or {len(rest)} with {', '.join(p for p in rest if p in pure)}"
        raise LanguageError(
            f"{name}: got {len(args)} positional arguments; expected {len(needed)} ({', '.join(needed) or 'none'}){either}"
            f"\n  expected: {signature(source)}"
        )
    values |= dict(zip(rest if len(args) == len(rest) else needed, args, strict=True))
    scalar_names = dict(source.scalars)
    given = check_arrays(source, {k: v for k, v in values.items() if k not in scalar_names})
    for n in written(source):
        if n in given and not given[n].flags.writeable:
            raise LanguageError(f"{name}: {n} is written, but its array is read-only. Pass a copy")
    found = check_sizes(source, given, sizes)
    scalars = check_scalars(source, {k: v for k, v in values.items() if k in scalar_names})
    zeros = {b.name: _zeros(b, found) for b in parameters(source) if b.name not in given}
    return Call({**given, **zeros}, given, found, scalars, written(source), pure)


def shape_of(buffer: Buffer, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The extents at numbers for all sizes."""
    return tuple(e.eval(sizes) for e in buffer.shape)


def _zeros(buffer: Buffer, sizes: Mapping[str, int]) -> np.ndarray:
    return np.zeros(shape_of(buffer, sizes), DTYPES[buffer.dtype].numpy)
