"""tilec emit: the code of a schedule by one backend, and what --compile makes of it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

from tilec import api
from tilec.cli_answer import Answer, Progress
from tilec.cli_files import written
from tilec.cli_triton import compile_triton
from tilec.errors import ScheduleError
from tilec.runtime import backends
from tilec.runtime.c_callable import Compiled

# The flags that are options of a backend, by the names that `emit` has for them; --workers is one of compiling for a GPU.
FLAGS: Mapping[str, str] = {
    "--vector-bytes": "vector_bytes",
    "--target": "target",
    "--warps": "num_warps",
    "--group": "group",
}


def compile_c(s: api.Schedule, o: argparse.Namespace, progress: Progress) -> Answer:
    """The source, shared object, header and description, in the folder that -o names."""
    if o.output is None:
        raise ScheduleError("emit --compile: name a folder for the C source, header and shared object: -o FOLDER")
    progress.now("compiling")
    built = s.build("c", vector_bytes=o.vector_bytes)
    assert isinstance(built, Compiled)
    files = built.save(o.output)
    progress.end()
    names = [str(f) for f in files]
    return Answer("\n".join(names), {"command": "emit", "kernel": s.program.name, "backend": "c", "files": names})


# What --compile does, by backend.
COMPILE: Mapping[str, Callable[[api.Schedule, argparse.Namespace, Progress], Answer]] = {"c": compile_c, "triton": compile_triton}


def emit(s: api.Schedule, o: argparse.Namespace, progress: Progress) -> Answer:
    """The text of the backend that `o.backend` names, on standard output or into the file that -o names; or, with --compile,
    what its compiler makes of it."""
    emitter = backends.able(o.backend, "emit", "emit").emit
    assert emitter is not None
    given = {flag: value for flag in FLAGS if (value := getattr(o, flag[2:].replace("-", "_"))) is not None}
    known = [flag for flag, name in FLAGS.items() if name in backends.options(emitter)]
    if o.workers is not None and not (o.backend == "triton" and o.compile):
        raise ScheduleError("emit: --workers belongs to --backend triton --compile")
    if wrong := [flag for flag in given if flag not in known]:
        raise ScheduleError(f"emit: backend {o.backend} has no {wrong[0]}")
    if o.compile:
        if o.backend not in COMPILE:
            raise ScheduleError(f"emit: backend {o.backend} has no --compile. Backends that have: {', '.join(COMPILE)}")
        return COMPILE[o.backend](s, o, progress)
    text = s.emit(o.backend, **{FLAGS[flag]: value for flag, value in given.items()})
    data = {"command": "emit", "kernel": s.program.name, "backend": o.backend, "sizes": dict(s.program.bound), "text": text}
    if "--target" in known:
        data["target"] = o.target
    if o.output is None:
        return Answer(text.rstrip("\n"), data)
    return Answer(written(Path(o.output), text), {**data, "files": [o.output]})
