"""The library of kernels: one file per kernel, named like the kernel it holds; its docstring gives shapes and formula."""

from __future__ import annotations

import difflib
import importlib
import pkgutil

from tilec.errors import LanguageError
from tilec.lang import Definition


def names() -> list[str]:
    """Every kernel of the library, in alphabetical order (the files of this folder; none is imported)."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__))


def get(name: str) -> Definition:
    """The kernel `name`. Raises LanguageError for an unknown one."""
    known = names()
    if name not in known:
        close = difflib.get_close_matches(str(name), known, 1)
        hint = f" Did you mean '{close[0]}'?" if close else ""
        raise LanguageError(f"no kernel '{name}' in the library. Kernels: {', '.join(known)}.{hint}")
    return getattr(importlib.import_module(f"tilec.workloads.{name}"), name)


__all__ = ["get", "names"]
