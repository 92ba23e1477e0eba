"""A compiled program as a plain Python callable: NumPy arrays go in without copies, checked before every call."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tilec.codegen import c_face
from tilec.errors import LanguageError, MeasureError, ResourceError, ScheduleError
from tilec.ir.arguments import written
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Program
from tilec.runtime.c_build import TIMEOUT, Recipe, compile_recipe, recipe
from tilec.runtime.numpy_run import Runner

_SCALAR = {"f64": ctypes.c_double, "f32": ctypes.c_float, "i32": ctypes.c_int32}
_HUGE = 2 << 20
_ALIGNED = 64


def default_threads() -> int:
    """OMP_NUM_THREADS, else the CPUs that this process may use."""
    named = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if named.isdigit() and int(named) > 0:
        return int(named)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def check_threads(threads: int | None) -> int:
    """A number of threads; None is the default."""
    if threads is None:
        return default_threads()
    if isinstance(threads, bool) or not isinstance(threads, int) or not 1 <= threads <= 4096:
        raise ScheduleError(f"threads={threads!r}: it must be an integer from 1 to 4096")
    return threads


@dataclass
class Scratch:
    """Anonymous memory, aligned; `huge`: large pieces ask for huge pages. It is given back with the object."""

    size: int
    alignment: int = _ALIGNED
    huge: bool = False
    address: int = 0
    _map: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        align = _HUGE if self.huge and self.size >= _HUGE else max(mmap.PAGESIZE, self.alignment)
        try:
            self._map = mmap.mmap(-1, self.size + align, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, MemoryError, OverflowError, ValueError):
            raise ResourceError(f"no {self.size:,} B of scratch memory are there for temporaries and packed operands") from None
        if align == _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a wish: a system without huge pages serves normal ones
                self._map.madvise(mmap.MADV_HUGEPAGE)
        first = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.address = -(-first // align) * align


class _Teams:
    """A process that was forked from one with a team of OpenMP threads has none of them, and would wait for them: it stays with
    one thread."""

    started = False
    lost = False

    @classmethod
    def allowed(cls, threads: int) -> int:
        """As many of these threads as this process may use."""
        if threads > 1 and not cls.lost:
            cls.started = True
        return 1 if cls.lost else threads

    @classmethod
    def forked(cls) -> None:
        cls.lost = cls.lost or cls.started


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Teams.forked)


def _ends_early(path: Path) -> bool:
    """Is this an ELF file without its end, where the table of its sections lies?"""
    try:
        with path.open("rb") as f:
            head = f.read(64)
            size = os.fstat(f.fileno()).st_size
    except OSError:
        return False  # the loader says what is wrong
    if not head.startswith(b"\x7fELF\x02\x01") or len(head) < 64:
        return head.startswith(b"\x7fELF") and len(head) < 64
    table, each, count = int.from_bytes(head[40:48], "little"), *(int.from_bytes(head[n : n + 2], "little") for n in (58, 60))
    return size < table + each * count


class CFunction:
    """The functions of one shared object."""

    def __init__(self, path: Path, program: Program):
        entry, face = c_face.entry(program), c_face.parameters(program)
        self.path, self.face = path, face
        self.memory = c_face.memory(program)
        if _ends_early(path):  # the loader would map what is not there
            raise MeasureError(f"{path} can't be loaded: it is damaged, the file ends early")
        try:
            self.library = ctypes.CDLL(str(path))
            self.function = getattr(self.library, entry)
            self.scratch = getattr(self.library, f"{entry}_scratch")
        except (OSError, AttributeError) as e:
            raise MeasureError(f"{path} can't be loaded: {str(e).splitlines()[0]}") from None
        kinds = {"array": lambda p: ctypes.c_void_p, "scalar": lambda p: _SCALAR[p.dtype], "size": lambda p: ctypes.c_int64}
        kinds["packed"] = kinds["array"]
        self.function.argtypes = [*(kinds[p.kind](p) for p in face), ctypes.c_void_p, ctypes.c_int]
        self.function.restype = None
        self.sizes = [p.name for p in face if p.kind == "size"]
        self.scratch.argtypes = [*([ctypes.c_int64] * len(self.sizes)), ctypes.c_int]
        self.scratch.restype = ctypes.c_int64
        self._free: list[Scratch] = []  # taken and put back by single list operations, so that threads may call at once
        self._needed: dict[tuple[int, ...], int] = {}

    def __call__(self, values: list[Any], sizes: tuple[int, ...], threads: int) -> None:
        """Run; `values` are addresses, scalars and sizes in the order of the face."""
        if threads > 1:
            threads = _Teams.allowed(threads)
        key = (*sizes, threads)
        size = self._needed.get(key)
        if size is None:
            size = self.scratch(*key)
            if len(self._needed) > 1000:
                self._needed.clear()
            self._needed[key] = size
        if not size:
            self.function(*values, None, threads)
            return
        try:
            room = self._free.pop()
        except IndexError:
            room = None
        if room is None or room.size < size:
            room = None  # the smaller one goes before the larger one comes
            room = Scratch(size, *self.memory)
        self.function(*values, room.address, threads)
        self._free.append(room)

    def raw(
        self, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], scalars: Mapping[str, Any], threads: int | None = None
    ) -> Callable[[], None]:
        """A call without checks on these arrays (contiguous, updated in place), for timing; scratch memory is made now."""
        count = _Teams.allowed(check_threads(threads))
        key = tuple(sizes[n] for n in self.sizes)
        size = self.scratch(*key, count)
        room = Scratch(size, *self.memory) if size else None
        known = {**scalars, **sizes, **{p.name: None for p in self.face if p.kind == "packed"}}
        values = [address(arrays[p.name]) if p.kind == "array" else known[p.name] for p in self.face]
        keep = (dict(arrays), room)
        function, at = self.function, room.address if room else None

        def call() -> None:
            function(*values, at, count)

        call.keep = keep  # pyright: ignore[reportFunctionMemberAccess]  (arrays and scratch live as long as the call)

        return call


def _at_fixed_place() -> bool:
    """Does an array object hold its data pointer right behind the header of every Python object, as NumPy's C interface says?"""
    a = np.arange(3)
    return ctypes.c_void_p.from_address(id(a) + _HEADER).value == a.__array_interface__["data"][0]


_HEADER = object.__basicsize__
_POINTER = ctypes.c_void_p.from_address
_FIXED = _at_fixed_place()


def address(a: np.ndarray) -> int:
    """Of the first element; ten times faster than asking `a.ctypes`, which is most of a short call's time."""
    return _POINTER(id(a) + _HEADER).value or 0 if _FIXED else a.__array_interface__["data"][0]


def load(made: Recipe, program: Program, timeout: float = TIMEOUT) -> CFunction:
    """Compile (or find in the cache) and load."""
    kept = compile_recipe(made, timeout)
    try:
        return CFunction(kept, program)
    except MeasureError:  # a damaged object in the cache is no reason to refuse
        kept.unlink(missing_ok=True)
        return CFunction(compile_recipe(made, timeout), program)


def contiguous(program: Program, arrays: Mapping[str, np.ndarray]) -> None:
    """LanguageError for an array whose elements do not follow each other in memory."""
    for name, a in arrays.items():
        if not a.flags.c_contiguous or not a.flags.aligned:
            what = f"strides {a.strides}, not those of a C-contiguous array" if a.flags.aligned else "an unaligned address"
            raise LanguageError(
                f"{program.name}: {name} has {what}; the compiled code takes arrays without copying them: "
                f"pass np.ascontiguousarray({name})"
            )


def runner(program: Program, **options: Any) -> Runner:
    """run(arrays, sizes, scalars) -> every written parameter, in new arrays, as the other backends."""
    function = load(recipe(program, **options), program)
    outputs = written(program)
    threads = default_threads()

    def run(arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int], scalars: Mapping[str, Any]) -> dict[str, np.ndarray]:
        own = {n: np.array(arrays[n], order="C") for n in outputs}
        given = {n: own[n] if n in own else np.ascontiguousarray(a) for n, a in arrays.items()}
        known = {**scalars, **sizes, **{p.name: None for p in function.face if p.kind == "packed"}}
        values = [address(given[p.name]) if p.kind == "array" else known[p.name] for p in function.face]
        function(values, tuple(sizes[n] for n in function.sizes), threads)
        return {n: own[n].view(DTYPES[program.buffer[n].dtype].numpy) for n in outputs}

    return run
