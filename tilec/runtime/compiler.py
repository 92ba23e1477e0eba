"""The system's C compiler: found by name, told apart, with a version that goes into every key."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import lru_cache

from tilec.errors import MeasureError
from tilec.runtime.process import run_killable

NAMES = ("gcc", "clang", "cc")
HOW = "Install gcc or clang, or name a compiler in the environment variable CC"


@dataclass(frozen=True)
class Compiler:
    """path: of the program. kind: "gcc" or "clang". version: its first line of --version."""

    path: str
    kind: str
    version: str


def find(name: str | None = None) -> Compiler:
    """The compiler `name` (a program or a path), else the one that $CC names, else the first of gcc, clang and cc there is.

    Raises MeasureError when there is none, or it is no C compiler that tilec knows.
    """
    if name is not None and (not isinstance(name, str) or not name or "\0" in name):
        raise MeasureError(f"compiler={name!r}: give the name or the path of a C compiler")
    wanted = name or os.environ.get("CC") or None
    for candidate in (wanted,) if wanted else NAMES:
        path = shutil.which(candidate)
        if path is not None:
            return _known(path)
    if wanted:
        raise MeasureError(f"no C compiler {wanted!r}. {HOW}")
    raise MeasureError(f"no C compiler: none of {', '.join(NAMES)} is there. {HOW}. The NumPy backend needs none")


@lru_cache(maxsize=8)  # asking takes some milliseconds; a compiler does not change while tilec runs
def _known(path: str) -> Compiler:
    macros = run_killable([path, "-dM", "-E", "-x", "c", os.devnull], timeout=20)
    if macros.reason is not None or "__GNUC__" not in macros.out:
        first = (macros.err.strip() or macros.out.strip() or "it does not know -dM -E").splitlines()[0]
        raise MeasureError(f"{path} is not gcc or clang ({macros.reason or first}). {HOW}")
    version = run_killable([path, "--version"], timeout=20).out.strip().splitlines()
    kind = "clang" if "__clang__" in macros.out else "gcc"
    return Compiler(path, kind, version[0] if version else kind)
