"""A saved schedule, loaded: on this machine or on another one.

What is loaded needs neither the kernel's text nor a schedule: the description has the parameters with their shapes, which is all
that a call is checked against. Where the shared object was made for other instructions or another system, the source next to it
is compiled again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilec.errors import MeasureError
from tilec.runtime.c_build import Recipe, compile_recipe, machine
from tilec.runtime.c_callable import Compiled
from tilec.runtime.c_run import CFunction
from tilec.runtime.c_save import FORMAT, face
from tilec.runtime.compiler import find


def load(folder: str | os.PathLike[str], threads: int | None = None) -> Compiled:
    """The callable that `save` wrote. MeasureError where files are missing, damaged or from a newer tilec."""
    target = Path(folder)
    found = sorted(target.glob("*.json")) if target.is_dir() else []
    if len(found) != 1:
        raise MeasureError(f"{target} holds no saved schedule" if not found else f"{target} holds {len(found)} descriptions")
    try:
        data = json.loads(found[0].read_text(encoding="utf-8"))
        if not isinstance(data, dict) or not isinstance(data.get("format"), int):
            raise ValueError("no format number")
        if data["format"] > FORMAT:
            raise MeasureError(f"{found[0]} is of format {data['format']}, this tilec reads up to {FORMAT}: use a newer tilec")
        program, pure = face(data["name"], data["face"])
        source = target / f"{data['name']}.c"
        shared = source.with_suffix(".so")
        if data["machine"] != _machine_or_none() or not shared.exists():
            shared = _again(data, source)
    except OSError as e:
        raise MeasureError(f"{e.filename or target} can't be read: {e.strerror or e}") from None
    except (ValueError, KeyError, TypeError, IndexError) as e:
        raise MeasureError(f"{found[0]} is damaged: {type(e).__name__} {e}") from None
    return Compiled(program, CFunction(shared, program), None, threads, pure)


def _machine_or_none() -> str | None:
    """The instruction set here; None without a compiler, which the saved object then needs no more than this machine."""
    try:
        return machine(find().path)
    except MeasureError:
        return None


def _again(data: Mapping[str, Any], source: Path) -> Path:
    """Compile the saved source here; without a compiler the saved object is used as it is."""
    shared = source.with_suffix(".so")
    try:
        found = find()
    except MeasureError as e:
        if shared.exists():
            return shared
        raise MeasureError(f"{shared} is missing, and {e}") from None
    made = Recipe(
        data["name"],
        source.read_text(encoding="utf-8"),
        data["entry"],
        found,
        tuple(data["flags"]),
        data["vector_bytes"],
        machine(found.path),
    )
    return compile_recipe(made)
