"""tilec emit: the code of a schedule by one backend. A backend that takes options of its own has a handler here."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tilec import api
from tilec.cli_answer import Answer, Progress
from tilec.cli_files import written
from tilec.cli_triton import emit_triton
from tilec.errors import ScheduleError
from tilec.runtime.c_callable import Compiled

Handler = Callable[[api.Schedule, argparse.Namespace, Progress], Answer]


def emit_c(s: api.Schedule, o: argparse.Namespace, progress: Progress) -> Answer:
    """--compile: the shared object, header and description too, in the folder that -o names."""
    if not o.compile:
        return plain(s, o, progress, **({"vector_bytes": o.vector_bytes} if o.vector_bytes else {}))
    if o.output is None:
        raise ScheduleError("emit --compile: name a folder for the C source, header and shared object: -o FOLDER")
    progress.now("compiling")
    built = s.build("c", vector_bytes=o.vector_bytes)
    assert isinstance(built, Compiled)
    files = built.save(o.output)
    progress.end()
    names = [str(f) for f in files]
    text = "\n".join(names)
    return Answer(text, {"command": "emit", "kernel": s.program.name, "backend": "c", "files": names})


def plain(s: api.Schedule, o: argparse.Namespace, progress: Progress, **options: Any) -> Answer:
    """The text of any backend, on standard output or into the file that -o names."""
    text = s.emit(o.backend, **options)
    data = {"command": "emit", "kernel": s.program.name, "backend": o.backend, "sizes": dict(s.program.bound), "text": text}
    if o.output is None:
        return Answer(text.rstrip("\n"), data)
    return Answer(written(Path(o.output), text), {**data, "files": [o.output]})


# Other backends print their text and have no options.
HANDLERS: Mapping[str, Handler] = {"c": emit_c, "triton": emit_triton}

OPTIONS: Mapping[str, tuple[str, ...]] = {"c": ("--vector-bytes",), "triton": ("--target", "--warps", "--group", "--workers")}


def emit(s: api.Schedule, o: argparse.Namespace, progress: Progress) -> Answer:
    """By the backend that `o.backend` names."""
    ours = {
        "--vector-bytes": o.vector_bytes,
        "--target": o.target,
        "--warps": o.warps,
        "--group": o.group,
        "--workers": o.workers,
    }
    others = [name for name, value in ours.items() if value is not None and name not in OPTIONS.get(o.backend, ())]
    if others:
        raise ScheduleError(f"emit: backend {o.backend} has no {others[0]}")
    handler = HANDLERS.get(o.backend)
    if handler is not None:
        return handler(s, o, progress)
    if o.compile:
        raise ScheduleError(f"emit: backend {o.backend} has no --compile. Backends that have: {', '.join(HANDLERS)}")
    return plain(s, o, progress)
