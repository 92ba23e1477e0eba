"""A compiled schedule as a plain Python callable: called like its kernel, on NumPy arrays that are not copied.

A call in the usual form (arrays by position) is checked by a short list made once; whatever does not pass it goes through the
full checks of runtime/call.py, which say what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tilec.errors import LanguageError, ScheduleError
from tilec.ir.arguments import call_order, signature, written
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Program
from tilec.ir.sizes import LARGEST_SIZE
from tilec.runtime.c_build import TIMEOUT, Recipe, recipe
from tilec.runtime.c_pack import Packed, pack
from tilec.runtime.c_run import CFunction, address, check_threads, contiguous, load
from tilec.runtime.c_save import save
from tilec.runtime.call import bind, pure_outputs


class Compiled:
    """`f(A, W)` or `f(A, W, Y)`, as the kernel; written arrays are updated in place, only-written ones may be omitted.

    threads: how many the parallel loops use, from now on; by default OMP_NUM_THREADS, else the CPUs there are. Calls may come
    from several Python threads at once. `recipe` has the C text, the compiler and its flags; `raw(arrays, sizes, scalars)` gives
    a call without checks, for timing.
    """

    def __init__(
        self,
        program: Program,
        function: CFunction,
        made: Recipe | None,
        threads: int | None = None,
        pure: Sequence[str] | None = None,
        about: Callable[[], Mapping[str, Any]] | None = None,
    ):
        self.program, self.function, self.recipe = program, function, made
        self.threads = check_threads(threads)
        self.pure = tuple(pure_outputs(program) if pure is None else pure)
        self.__name__ = self.__qualname__ = program.name
        self.__doc__ = f"{signature(program)}, scheduled, compiled from C"
        self.raw = function.raw
        self._about = about
        self.schedule: Any = None  # how it runs, where tilec picked it
        self._quick = _Quick(program, self.pure, function)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            values = self._quick.values(args)
            if values is not None:
                arguments, sizes, results = values
                self.function(arguments, sizes, self.threads)
                return results
        packed: dict[str, Packed] = {}
        plain_args = [self._plain(a, packed) for a in args]
        call = bind(self.program, plain_args, {n: self._plain(a, packed) for n, a in kwargs.items()}, self.pure)
        self._fits(packed, call.arrays)
        contiguous(self.program, {n: a for n, a in call.arrays.items() if n not in packed})
        copies = {p.buffer: p.room.address for p in packed.values()}
        known = {**call.scalars, **call.sizes, **{p.name: copies.get(p.name) for p in self.function.face if p.kind == "packed"}}
        values = [address(call.arrays[p.name]) if p.kind == "array" else known[p.name] for p in self.function.face]
        self.function(values, tuple(call.sizes[n] for n in self.function.sizes), self.threads)
        return call.finish({n: call.arrays[n] for n in call.written})

    def _plain(self, a: Any, packed: dict[str, Packed]) -> Any:
        """A packed array is checked like one of its shape that takes no memory."""
        if not isinstance(a, Packed):
            return a
        packed[a.name] = a
        return np.broadcast_to(np.zeros((), a.dtype), a.shape)

    def _fits(self, packed: dict[str, Packed], arrays: dict[str, np.ndarray]) -> None:
        """LanguageError for an array that another schedule packed, or in another parameter's place."""
        for name, p in packed.items():
            if p.key[0] != str(self.function.path):
                raise LanguageError(f"{self.program.name}: {name} was packed by another schedule: use this one's pack({name}=…)")
            if arrays[name].strides != (0,) * p.ndim:
                raise LanguageError(f"{self.program.name}: a packed {name} stands in another parameter's place")

    def pack(self, **arrays: np.ndarray) -> Packed:
        """`f.pack(W=W)`: the array in the layout that this schedule reads, for any number of calls `f(A, packed)`.

        Only parameters whose copy the schedule has marked with `prepack`; ScheduleError names them.
        """
        return pack(self.program, self.function, self.threads, arrays)

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write C source, header, shared object and a JSON description of schedule and costs; `tilec.load(folder)` reads them.

        Returns the paths. MeasureError where a file can't be written.
        """
        if self.recipe is None:
            raise ScheduleError(f"{self.program.name} was loaded from {self.function.path.parent}: copy that folder")
        about = self._about() if self._about else {}
        return save(self.program, self.recipe, self.function.path, self.pure, Path(folder), about)

    def __repr__(self) -> str:
        return f"<tilec.Compiled {signature(self.program)}, {self.threads} threads>"


class _Quick:
    """The checks of a call with all arrays by position, or all but the only-written ones; None sends it to the full checks."""

    def __init__(self, program: Program, pure: Sequence[str], function: CFunction):
        source = program.source
        order = call_order(source)
        self.buffers = {b.name: b for b in source.buffers if b.role == "param"}
        self.possible = all(n in self.buffers for n in order) and not source.where
        self.given = {len(order): order, len(order) - len(pure): tuple(n for n in order if n not in pure)}
        self.written = [n for n in order if n in written(source)]
        self.pure, self.face, self.sizes = tuple(pure), function.face, function.sizes
        self.bound, self.path = dict(program.bound), str(function.path)
        self.dtypes = {n: DTYPES[b.dtype].numpy for n, b in self.buffers.items()}
        # a shape as (size, or None), expression
        self.shapes = {n: [(e.single if e.single in source.sizes else None, e) for e in b.shape] for n, b in self.buffers.items()}

    def values(self, args: tuple[Any, ...]) -> tuple[list[Any], tuple[int, ...], Any] | None:
        """(arguments of the C function, its sizes, what the call returns)."""
        names = self.given.get(len(args))
        if names is None or not self.possible:
            return None
        sizes = dict(self.bound)
        arrays = dict(zip(names, args, strict=True))
        later: list[tuple[Any, int]] = []
        for name, a in arrays.items():
            shape = self.shapes[name]
            if type(a) is Packed:
                if a.name != name or a.key[0] != self.path:
                    return None
            elif type(a) is not np.ndarray or a.dtype != self.dtypes[name] or not a.flags.c_contiguous:
                return None
            if a.ndim != len(shape):
                return None
            for extent, (size, e) in zip(a.shape, shape, strict=True):
                if size is None:
                    later.append((e, extent))
                elif sizes.setdefault(size, extent) != extent:
                    return None
        for e, extent in later:
            if any(n not in sizes for n in e.names) or e.eval(sizes) != extent:
                return None
        if any(n not in sizes for n in self.sizes) or any(not 1 <= v <= LARGEST_SIZE for v in sizes.values()):
            return None
        for name in self.pure:
            if name not in arrays:
                shape = tuple(e.eval(sizes) for _, e in self.shapes[name])
                arrays[name] = np.zeros(shape, self.dtypes[name])
        spans: dict[str, tuple[Any, int]] = {}
        packed: dict[str, int] = {}
        for name, a in arrays.items():
            if type(a) is Packed:
                packed[a.buffer] = a.room.address
                continue
            first = address(a)
            if first % a.itemsize:
                return None
            spans[name] = (first, first + a.nbytes)
        for name in self.written:
            if name not in spans or not arrays[name].flags.writeable:
                return None
            low, high = spans[name]
            for other, (a, b) in spans.items():
                if other != name and a < high and low < b:
                    return None
        absent = (None, 0)
        values = [
            spans.get(p.name, absent)[0] if p.kind == "array" else packed.get(p.name) if p.kind == "packed" else sizes[p.name]
            for p in self.face
        ]
        out = tuple(arrays[n] for n in self.pure)
        return values, tuple(sizes[n] for n in self.sizes), out[0] if len(out) == 1 else out or None


def build(
    program: Program,
    *,
    compiler: str | None = None,
    threads: int | None = None,
    flags: Sequence[str] = (),
    vector_bytes: int | None = None,
    timeout: float = TIMEOUT,
    about: Callable[[], Mapping[str, Any]] | None = None,
) -> Compiled:
    """Compile and load.

    compiler: gcc or clang by name or path. threads: of the parallel loops. flags: further ones for the compiler. vector_bytes:
    16, 32 or 64, by default the machine's. timeout: seconds for the compiler. MeasureError when it is missing, fails or hangs.
    about: what `save` writes about the schedule.
    """
    count = check_threads(threads)
    made = recipe(program, compiler, tuple(flags), vector_bytes)
    return Compiled(program, load(made, program, timeout), made, count, about=about)
