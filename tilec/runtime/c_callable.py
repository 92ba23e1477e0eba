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

from tilec.errors import LanguageError, MeasureError
from tilec.ir.arguments import call_order, signature, written
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Program
from tilec.ir.sizes import LARGEST_SIZE
from tilec.runtime.c_build import TIMEOUT, Recipe, recipe
from tilec.runtime.c_pack import Packed, pack
from tilec.runtime.c_run import CFunction, address, check_threads, contiguous, load
from tilec.runtime.c_save import save
from tilec.runtime.call import bind, pure_outputs
from tilec.runtime.checks import check_seconds, check_texts


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
        made: Recipe,
        threads: int | None = None,
        pure: Sequence[str] | None = None,
        about: Callable[[], Mapping[str, Any]] | None = None,
    ):
        self.program, self.function, self.recipe = program, function, made
        self.threads = threads
        self.pure = tuple(pure_outputs(program) if pure is None else pure)
        self.__name__ = self.__qualname__ = program.name
        self.__doc__ = f"{signature(program)}, scheduled, compiled from C"
        self.raw = function.raw
        self._about = about
        self.schedule: Any = None  # how it runs, where tilec picked it
        self._quick = _Quick(program, self.pure, function)

    @property
    def threads(self) -> int:
        """Of the parallel loops; None sets the default. ScheduleError for what is no number of threads."""
        return self._threads

    @threads.setter
    def threads(self, threads: int | None) -> None:
        self._threads = check_threads(threads)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if not kwargs:
            values = self._quick.values(args)
            if values is not None:
                arguments, sizes, results = values
                self.function(arguments, sizes, self._threads)
                return results
        packed: dict[str, Packed] = {}
        plain_args = [self._plain(a, packed) for a in args]
        call = bind(self.program, plain_args, {n: self._plain(a, packed) for n, a in kwargs.items()}, self.pure)
        self._fits(packed, call.arrays)
        contiguous(self.program, {n: a for n, a in call.arrays.items() if n not in packed})
        copies = {p.buffer: p.room.address for p in packed.values()}
        known = {**call.scalars, **call.sizes, **{p.name: copies.get(p.name) for p in self.function.face if p.kind == "packed"}}
        values = [address(call.arrays[p.name]) if p.kind == "array" else known[p.name] for p in self.function.face]
        self.function(values, tuple(call.sizes[n] for n in self.function.sizes), self._threads)
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

    def pack(self, /, *array: np.ndarray, **arrays: np.ndarray) -> Packed:
        """`f.pack(W=W)`: the array in the layout that this schedule reads, for any number of calls `f(A, packed)`.

        Only parameters whose copy the schedule has marked with `prepack`; ScheduleError names them. Where there is one such
        parameter, `f.pack(W)` is it.
        """
        return pack(self.program, self.function, self.threads, array, arrays)

    def save(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write C source, header, shared object and a JSON description of schedule and costs; `tilec.load(folder)` reads them.

        Returns the paths. MeasureError where a file can't be written.
        """
        try:
            target = Path(folder)
        except TypeError:
            raise MeasureError(f"save({folder!r}): the path of a folder") from None
        about = self._about() if self._about else {}
        return save(self.program, self.recipe, self.function.path, self.pure, target, about)

    def __repr__(self) -> str:
        return f"<tilec.Compiled {signature(self.program)}, {self.threads} threads>"


_CONTIGUOUS, _ALIGNED, _WRITEABLE = 0x1, 0x100, 0x400  # of ndarray.flags.num


class _Quick:
    """The checks of a call with all arrays by position, or all but the only-written ones; None sends it to the full checks.

    What depends on the shapes alone is worked out once for each combination of shapes.
    """

    def __init__(self, program: Program, pure: Sequence[str], function: CFunction):
        source = program.source
        order = call_order(source)
        buffers = {b.name: b for b in source.buffers if b.role == "param"}
        outputs = written(source)
        self.given: dict[int, tuple[str, ...]] = {}
        kinds = dict(source.scalars)
        self.scalars = tuple(n for n in order if n in kinds)
        self.places: dict[int, tuple[list[int], list[int]]] = {}
        # C converts a Python float to the f32 that the full check makes; other scalars take that way
        if all(kinds[n] in ("f32", "f64") for n in self.scalars) and not source.where:
            for named in ([n for n in order if n not in pure], order):
                arrays = [n for n, name in enumerate(named) if name not in kinds]
                self.places[len(named)] = arrays, [n for n, name in enumerate(named) if name in kinds]
                self.given[len(arrays)] = tuple(named[n] for n in arrays)
        self.pure, self.path = tuple(pure), str(function.path)
        self.dtypes = {n: DTYPES[b.dtype].numpy for n, b in buffers.items()}
        self.flags = {n: _CONTIGUOUS | _ALIGNED | (_WRITEABLE if n in outputs else 0) for n in buffers}
        self.wanted = {n: [(m, self.dtypes[m], self.flags[m]) for m in names] for n, names in self.given.items()}
        self.face = [(p.name, p.kind) for p in function.face]
        self.outputs = [n for n in order if n in outputs]
        self.buffers, self.bound, self.sizes = buffers, dict(program.bound), function.sizes
        self.orders = {n: self._order(names) for n, names in self.given.items()}
        self._shapes: dict[
            tuple[tuple[int, ...], ...], tuple[tuple[int, ...], tuple[tuple[str, tuple[int, ...]], ...]] | None
        ] = {}

    def values(self, args: tuple[Any, ...]) -> tuple[list[Any], tuple[int, ...], Any] | None:
        """(arguments of the C function, its sizes, what the call returns)."""
        scalars: tuple[Any, ...] = ()
        if self.scalars:
            split = self.places.get(len(args))
            if split is None:
                return None
            scalars, args = tuple([args[n] for n in split[1]]), tuple([args[n] for n in split[0]])
            if any(type(v) is not float for v in scalars):
                return None
        wanted = self.wanted.get(len(args))
        if wanted is None:
            return None
        at: list[Any] = []
        for a, (_, dtype, flags) in zip(args, wanted, strict=True):
            if type(a) is not np.ndarray or (a.dtype is not dtype and a.dtype != dtype) or a.flags.num & flags != flags:
                return None if type(a) is not Packed else self._packed(args, scalars)
            at.append(address(a))
        shapes = tuple([a.shape for a in args])
        try:
            known = self._shapes[shapes]
        except KeyError:
            known = self._solved(self.given[len(args)], shapes)
            if len(self._shapes) > 1000:
                self._shapes.clear()
            self._shapes[shapes] = known
        if known is None:
            return None
        sizes, missing = known
        order, outputs, returned = self.orders[len(args)]
        for n in outputs:  # no other array may share memory with a written one
            low = at[n]
            high = low + args[n].nbytes
            for m, first in enumerate(at):
                if first < high and m != n and low < first + args[m].nbytes:
                    return None
        if missing:
            made = [np.zeros(shape, self.dtypes[name]) for name, shape in missing]
            at += [address(a) for a in made]
            args = (*args, *made)
        at += sizes
        at += scalars
        at.append(None)  # what could be packed ahead is not
        values = [at[n] for n in order]
        if len(returned) == 1:
            return values, sizes, args[returned[0]]
        return values, sizes, tuple([args[n] for n in returned]) or None

    def _order(self, names: tuple[str, ...]) -> tuple[list[int], list[int], list[int]]:
        """For a call with these arrays: where each argument of the C function is found among the arrays given, the outputs made,
        the sizes and None; which of the given are written; which are returned."""
        arrays = [*names, *(n for n in self.pure if n not in names)]
        sources = [*arrays, *self.sizes, *self.scalars]
        order = [sources.index(n) if kind != "packed" else len(sources) for n, kind in self.face]
        return order, [names.index(n) for n in self.outputs if n in names], [arrays.index(n) for n in self.pure]

    def _solved(
        self, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> tuple[tuple[int, ...], tuple[tuple[str, tuple[int, ...]], ...]] | None:
        """The sizes in the order of the C function, and the shapes of omitted outputs; None where something does not fit."""
        sizes, later = dict(self.bound), []
        for name, shape in zip(names, shapes, strict=True):
            extents = self.buffers[name].shape
            if len(extents) != len(shape):
                return None
            for e, extent in zip(extents, shape, strict=True):
                if e.single is None:
                    later.append((e, extent))
                elif sizes.setdefault(e.single, extent) != extent:
                    return None
        for e, extent in later:
            if any(n not in sizes for n in e.names) or e.eval(sizes) != extent:
                return None
        if any(n not in sizes for n in self.sizes) or any(not 1 <= v <= LARGEST_SIZE for v in sizes.values()):
            return None
        missing = [(n, tuple(e.eval(sizes) for e in self.buffers[n].shape)) for n in self.pure if n not in names]
        return tuple(sizes[n] for n in self.sizes), tuple(missing)

    def _packed(self, args: tuple[Any, ...], scalars: tuple[Any, ...]) -> tuple[list[Any], tuple[int, ...], Any] | None:
        """The same with arrays packed ahead in some places."""
        names = self.given[len(args)]
        for name, a in zip(names, args, strict=True):
            if type(a) is Packed and (a.name != name or a.key[0] != self.path):
                return None
        stands = tuple(np.empty(0, a.dtype) if type(a) is Packed else a for a in args)
        shapes = tuple(getattr(a, "shape", ()) for a in args)
        for a, (_, dtype, flags) in zip(stands, self.wanted[len(args)], strict=True):
            if type(a) is not np.ndarray or a.dtype != dtype or a.flags.num & flags != flags:
                return None
        known = self._solved(names, shapes)
        if known is None:
            return None
        sizes, missing = known
        arrays: dict[str, Any] = dict(zip(names, args, strict=True))
        arrays |= {n: np.zeros(shape, self.dtypes[n]) for n, shape in missing}
        for name in self.outputs:
            if any(np.may_share_memory(arrays[name], a) for n, a in arrays.items() if n != name and type(a) is not Packed):
                return None
        copies = {a.buffer: a.room.address for a in args if type(a) is Packed}
        numbers = dict(zip(self.sizes, sizes, strict=True)) | dict(zip(self.scalars, scalars, strict=True))
        values: list[Any] = []
        for n, kind in self.face:
            if kind == "array":
                values.append(None if type(arrays[n]) is Packed else address(arrays[n]))
            else:
                values.append(copies.get(n) if kind == "packed" else numbers[n])
        out = tuple(arrays[n] for n in self.pure)
        return values, sizes, out[0] if len(out) == 1 else out or None


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
    check_seconds('build("c")', "timeout", timeout)
    made = recipe(program, compiler, check_texts('build("c")', "flags", flags), vector_bytes)
    return Compiled(program, load(made, program, timeout), made, count, about=about)
