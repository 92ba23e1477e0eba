"""A saved schedule, loaded: on this machine or on another one.

What is loaded needs neither the kernel's text nor a schedule: the description has the parameters with their shapes, which is all
that a call is checked against. Where the shared object was made for other instructions or another system, the source next to it
is compiled again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilec.codegen import c_face
from tilec.errors import MeasureError
from tilec.runtime.c_build import Recipe, compile_recipe, machine
from tilec.runtime.c_callable import Compiled
from tilec.runtime.c_run import CFunction
from tilec.runtime.c_save import FORMAT, checked, face, rest
from tilec.runtime.compiler import Compiler, find


def load(folder: str | os.PathLike[str], threads: int | None = None) -> Compiled:
    """The callable that `save` wrote. MeasureError where files are missing, damaged or from a newer tilec."""
    try:
        target = Path(folder)
    except TypeError:
        raise MeasureError(f"load({folder!r}): the path of a folder") from None
    found = sorted(target.glob("*.json")) if target.is_dir() else []
    if len(found) != 1:
        raise MeasureError(f"{target} holds no saved schedule" if not found else f"{target} holds {len(found)} descriptions")
    try:
        data = json.loads(found[0].read_text(encoding="utf-8"))
        if not isinstance(data, dict) or type(data.get("format")) is not int:
            raise ValueError("no format number")
        if data["format"] > FORMAT:
            raise MeasureError(f"{found[0]} is of format {data['format']}, this tilec reads up to {FORMAT}: use a newer tilec")
        checked(data)
        program, pure = face(data["name"], data["face"])
        if data["entry"] != c_face.entry(program):
            raise ValueError(f"entry {data['entry']!r}, not {c_face.entry(program)!r}")
        source = target / f"{data['name']}.c"
        shared = source.with_suffix(".so")
        made = _recipe(data, source)
        if data["machine"] != _machine_or_none() or not shared.exists():
            shared = _again(made, source)
    except OSError as e:
        raise MeasureError(f"{e.filename or target} can't be read: {e.strerror or e}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, ZeroDivisionError, RecursionError) as e:
        raise MeasureError(f"{found[0]} is damaged: {type(e).__name__} {e}") from None
    return Compiled(program, CFunction(shared, program), made, threads, pure, lambda: rest(data))


def _machine_or_none() -> str | None:
    """The instruction set here; None without a compiler, which the saved object then needs no more than this machine."""
    try:
        return machine(find().path)
    except MeasureError:
        return None


def _recipe(data: Mapping[str, Any], source: Path) -> Recipe:
    """How the saved object was made; its text is empty where the source is not there."""
    compiler = Compiler("", "clang" if "clang" in data["compiler"] else "gcc", data["compiler"])
    text = source.read_text(encoding="utf-8") if source.exists() else ""
    return Recipe(data["name"], text, data["entry"], compiler, tuple(data["flags"]), data["vector_bytes"], data["machine"])


def _again(made: Recipe, source: Path) -> Path:
    """Compile the saved source here; without a compiler the saved object is used as it is."""
    shared = source.with_suffix(".so")
    try:
        found = find()
    except MeasureError as e:
        if shared.exists():
            return shared
        raise MeasureError(f"{shared} is missing, and {e}") from None
    if not made.text:
        raise MeasureError(f"{source} can't be read: it is missing or empty")
    return compile_recipe(replace(made, compiler=found, machine=machine(found.path)))
