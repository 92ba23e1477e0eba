"""Parameters packed ahead of the calls: one pass over the weights, as many calls as there are inputs."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilec.codegen.c_face import memory, pack_entry
from tilec.errors import MeasureError, ScheduleError
from tilec.ir.arguments import check_arrays, check_sizes, parameters
from tilec.ir.program import Buffer, Program
from tilec.runtime.c_run import CFunction, Scratch, address, contiguous


@dataclass(frozen=True)
class Packed:
    """An array in the layout that one compiled schedule reads; given to its calls in the array's place.

    buffer: the copy's name in the schedule. key: the compiled schedule that packed it, and the sizes.
    """

    name: str
    buffer: str
    shape: tuple[int, ...]
    dtype: np.dtype
    key: tuple[str, tuple[tuple[str, int], ...]] = field(repr=False)
    room: Scratch = field(repr=False)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Of the packed copy."""
        return self.room.size


def packable(program: Program) -> dict[str, Buffer]:
    """Parameter -> the copy that may be made of it ahead of calls."""
    return {b.root: b for b in program.buffers if b.prepacked and b.root is not None}


def pack(
    program: Program, function: CFunction, threads: int, unnamed: Sequence[np.ndarray], named: Mapping[str, np.ndarray]
) -> Packed:
    """The packed copy of the one array given: by the name of its parameter, or without where only one can be meant."""
    able = packable(program)
    if len(unnamed) + len(named) != 1 or (unnamed and len(able) != 1):
        names = ", ".join(able) or "none: prepack a copy first"
        raise ScheduleError(f"pack() takes one array by name, as in pack({next(iter(able), 'W')}=…). Possible: {names}")
    name, a = (next(iter(able)), unnamed[0]) if unnamed else next(iter(named.items()))
    if name not in able:
        raise ScheduleError(
            f"pack({name}=…): the schedule packs no '{name}' ahead. Possible: {', '.join(able) or 'prepack first'}"
        )
    b = able[name]
    source = program.source
    param = next(x for x in parameters(source) if x.name == name)
    alone = Program(source.name, source.sizes, (), (), (param,), (), (), bound=source.bound)
    check_arrays(alone, {name: a})
    sizes = _sizes(alone, a)
    contiguous(program, {name: a})
    values = [sizes.get(n, 1) for n in function.sizes]
    try:
        measure, run = (getattr(function.library, pack_entry(program, b.name) + end) for end in ("_bytes", ""))
    except AttributeError as e:  # of a saved object whose description is another one's
        raise MeasureError(str(e)) from None
    measure.restype, run.restype = ctypes.c_int64, None
    whole = [ctypes.c_int64(v) for v in values]
    room = Scratch(measure(*whole), *memory(program))
    run(ctypes.c_void_p(address(a)), *whole, ctypes.c_void_p(room.address), ctypes.c_int(threads))
    return Packed(name, b.name, a.shape, a.dtype, (str(function.path), tuple(sorted(sizes.items()))), room)


def _sizes(alone: Program, a: np.ndarray) -> dict[str, int]:
    """The sizes that the parameter's shape gives; the copy must need no others."""
    names = frozenset().union(*(e.names for e in alone.buffers[0].shape))
    part = Program(
        alone.name,
        tuple(n for n in alone.sizes if n in names),
        (),
        (),
        alone.buffers,
        (),
        (),
        bound=tuple((n, v) for n, v in alone.bound if n in names),
    )
    return check_sizes(part, {alone.buffers[0].name: a}, None)
