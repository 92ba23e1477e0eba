"""Generated C, compiled: from a program to a recipe (text, compiler, flags), to a shared object in the cache.

Objects are kept by the text, the compiler's version, the flags and the machine's instruction set; they are written aside and
renamed, so that a reader never sees half of one. What is compiled in is removed whatever happens.
"""

from __future__ import annotations

import hashlib
import os
import signal
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from tilec.codegen import c_face, c_source
from tilec.errors import MeasureError, ScheduleError
from tilec.ir.instructions import INSTRUCTIONS
from tilec.ir.program import Program
from tilec.ir.tree import loops
from tilec.runtime.checks import shown
from tilec.runtime.compiler import Compiler, find
from tilec.runtime.process import Finished, run_killable, workplace
from tilec.targets import host

# no fusing, no reordering, two's complement: what the text says is what runs; without errno and traps compares stay vectors
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-Wno-psabi",
)
# gcc keeps the order of the text on x86: a function of fifty dependent steps, then the next vector's. The steps of several
# vectors side by side hide each other's latencies (a quarter less time for silu). Tiles of accumulators are so already, and
# spill; those of bf16 dot products leave registers, and have the same number of elementary functions for half of the work
INTERLEAVING = ("-fschedule-insns", "-fsched-pressure", "--param=sched-pressure-algorithm=2")
# with the prices of -mtune=native gcc 12 gives the row of a right operand back to memory on Zen: of a tile of 4 x 48, every
# multiply-add loads its own vector (12 instead of 3 for each k, and half of them cross a line: twice the time)
TUNING = ("-mtune=generic",)
TIMEOUT = 120.0  # seconds of one compilation
WIDTHS = (16, 32, 64)
# what compilers say where not the text is at fault: a full disk, a limit, no memory (the system kills the largest process)
_SYSTEM = (
    "No space left",
    "Disk quota exceeded",
    "File too large",
    "File size limit",
    "Cannot allocate memory",
    "out of memory",
    "Killed signal",
    "Read-only file system",
)
_TELLING = ("__AVX", "__SSE", "__FMA", "__F16C", "__BMI", "__ARM", "__x86_64", "__aarch64", "__linux", "__APPLE")


@dataclass(frozen=True)
class Recipe:
    """All that makes the shared object; picklable, so that another process can compile it."""

    name: str
    text: str
    entry: str
    compiler: Compiler
    flags: tuple[str, ...]
    vector_bytes: int
    machine: str  # what -march=native stands for here

    @property
    def key(self) -> str:
        """Tells two objects apart."""
        parts = (self.text, self.compiler.version, " ".join(self.flags), self.machine)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def recipe(
    program: Program,
    compiler: str | None = None,
    flags: Sequence[str] = (),
    vector_bytes: int | None = None,
    text: str = "",
) -> Recipe:
    """The C text of a program and how it is compiled.

    compiler: a program's name or path, else $CC, gcc, clang or cc. flags: further ones, after tilec's own. vector_bytes: the
    registers that the text is shaped for, by default the machine's widest. text: where it was written already. MeasureError
    without a compiler.
    """
    if vector_bytes is not None:
        check_width(vector_bytes)
    found = find(compiler)
    width = vector_bytes or widest(found.path)
    threads = ("-fopenmp",) if c_face.uses_threads(program) else ()
    tiles = any(b.memory == "register" and len(b.shape) > 1 for b in program.buffers)
    dots = any(loop.instruction and INSTRUCTIONS[loop.instruction].operand == "bf16" for _, loop in loops(program.body))
    gcc = found.kind == "gcc"
    order = (*(TUNING if gcc else ()), *(INTERLEAVING if gcc and ((dots and width == 64) or not tiles) else ()))
    text = text or c_source.emit(program, width)
    options = (*FLAGS, *order, *threads, *flags)
    return Recipe(program.name, text, c_face.entry(program), found, options, width, machine(found.path))


def check_width(vector_bytes: Any) -> None:
    """ScheduleError for registers that no machine has."""
    if not isinstance(vector_bytes, int) or vector_bytes not in WIDTHS:
        raise ScheduleError(f"vector_bytes={shown(vector_bytes)}: vector registers have {', '.join(map(str, WIDTHS))} bytes")


def c_text(program: Program, vector_bytes: int = 32) -> str:
    """The C text. vector_bytes: 16, 32 or 64, the vector registers it is shaped for; it runs on every machine."""
    check_width(vector_bytes)
    return c_source.emit(program, vector_bytes)


def widest(compiler: str) -> int:
    """Bytes of this machine's vector registers, as the compiler knows it."""
    macros = _macros(compiler)
    return 64 if "__AVX512F__" in macros else 32 if "__AVX__" in macros else 16


def machine(compiler: str) -> str:
    """A name for the instruction set that -march=native stands for."""
    return hashlib.sha256("\n".join(sorted(_macros(compiler))).encode()).hexdigest()[:16]


@lru_cache(maxsize=8)  # a compiler's answer does not change while tilec runs
def _macros(path: str) -> frozenset[str]:
    """The instruction-set macros that -march=native defines."""
    done = run_killable([path, "-march=native", "-dM", "-E", "-x", "c", os.devnull], timeout=20)
    names = (line.split()[1] for line in done.out.splitlines() if line.startswith("#define "))
    return frozenset(n for n in names if n.startswith(_TELLING))


def cache_folder() -> Path:
    """Where shared objects are kept: `c` in tilec's cache folder."""
    return host.cache_folder() / "c"


def compile_recipe(made: Recipe, timeout: float = TIMEOUT, cache: Path | None = None) -> Path:
    """The shared object, out of the cache or compiled now.

    MeasureError when the compiler fails or takes longer than `timeout` seconds, or the cache cannot be written.
    """
    folder = cache or cache_folder()
    done = folder / f"{made.entry}-{made.key}.so"
    if done.exists():
        return done
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with workplace("tilec-compile-") as place:
            source, made_object = place.folder / f"{made.entry}.c", place.folder / f"{made.entry}.so"
            source.write_text(made.text, encoding="utf-8")
            argv = [made.compiler.path, *made.flags, "-shared", "-fPIC", source, "-o", made_object, "-lm"]
            finished = run_killable(argv, timeout=timeout, cwd=place.folder, janitor=place.janitor)
            if finished.reason is not None:
                told = _told(finished.reason, finished.err)
                raise MeasureError(f"{made.name}: {made.compiler.path} {told}", _kind(finished))
            _keep(source, done.with_suffix(".c"))
            _keep(made_object, done)
    except OSError as e:
        where = e.filename or folder
        raise MeasureError(
            f"{made.name}: the compiled code can't be written to {where}: {e.strerror or e}. TILEC_CACHE names another folder, "
            "TMPDIR the one that is compiled in",
            "system",
        ) from None
    return done


def _keep(made: Path, kept: Path) -> None:
    """A file into the cache, at once or not at all. It is compiled elsewhere, so that a compiler that is killed leaves nothing
    here."""
    handle, part = tempfile.mkstemp(dir=kept.parent, prefix=kept.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(made.read_bytes())
        os.replace(part, kept)
    except BaseException:
        os.unlink(part)
        raise


def _kind(finished: Finished) -> str | None:
    """What a tuner counts a failed compilation as: the text's fault (None), or one of the system."""
    if finished.reason is not None and finished.reason.startswith("timed out"):
        return "timed out"
    ill = any(word in finished.err for word in _SYSTEM) or finished.code in (-signal.SIGKILL, -signal.SIGXFSZ)
    return "system" if ill else None


def _told(reason: str, err: str) -> str:
    lines = [
        line.strip() for line in err.splitlines() if "error" in line.lower() or "No space" in line
    ] or err.strip().splitlines()
    shown = ": " + "\n  ".join(lines[:3]) if lines else ""
    return f"failed ({reason}){shown}" if not reason.startswith("timed out") else f"{reason}, compiling"
