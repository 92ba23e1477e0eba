"""Emitted Triton kernels on NumPy arrays, by Triton's interpreter: no GPU, no PyTorch in this process."""

from __future__ import annotations

import importlib.util
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tilec.codegen.triton import Emitted, emit
from tilec.errors import MeasureError
from tilec.ir.arguments import required, written
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Program
from tilec.runtime.numpy_run import Runner
from tilec.runtime.process import kill_group
from tilec.runtime.triton_worker import NEEDED, ask, installed, worker
from tilec.schedule.schedule import HasProgram

Arrays = dict[str, np.ndarray]


def available() -> str | None:
    """Why kernels can't be interpreted here, or None."""
    if not installed():
        return NEEDED
    return None if importlib.util.find_spec("torch") is not None else "PyTorch is not installed: Triton's interpreter needs it"


def interpreted(
    emitted: Emitted,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float | int],
    process: subprocess.Popen[str] | None = None,
) -> Arrays:
    """The launcher of the file on copies of the arrays (every array parameter, elements of its dtype): each written parameter.
    process: a worker("interpret") that is used and left running; by default one of its own.

    Raises MeasureError where Triton or PyTorch is missing, and with Triton's own words where the kernel fails.
    """
    reason = available()
    if reason is not None:
        raise MeasureError(reason)
    program = emitted.program
    arguments: list[tuple[str, str, str | None]] = []
    with tempfile.TemporaryDirectory(prefix="tilec-triton-") as folder:
        data, out = Path(folder) / "in.npz", Path(folder) / "out.npz"
        given: dict[str, Any] = {}
        for b in program.buffers:
            if b.role == "param":
                d = DTYPES[b.dtype]
                given[b.name] = np.ascontiguousarray(arrays[b.name]).view(f"u{d.bytes}")
                arguments.append((emitted.names[b.name], b.name, b.dtype))
        for name, value in (*scalars.items(), *((n, sizes[n]) for n in emitted.loose)):
            given[name] = np.asarray(value)
            arguments.append((emitted.names[name], name, None))
        np.savez(data, **given)
        outputs = [(n, program.buffer[n].dtype) for n in written(program)]
        mine = process or worker("interpret")
        try:
            request = {"text": emitted.text, "entry": emitted.entry, "arguments": arguments, "outputs": outputs}
            answer = ask(mine, {**request, "data": str(data), "out": str(out)})
        finally:
            if process is None:
                kill_group(mine)
        if "error" in answer:
            raise MeasureError(f"Triton's interpreter refused {program.name}: {answer['error']}")
        with np.load(out) as results:
            return {n: results[n].view(DTYPES[dtype].numpy) for n, dtype in outputs}


def device_seconds(schedule: HasProgram, device: str = "cuda", scalars: Mapping[str, float | int] | None = None) -> float:
    """Seconds of one run on a CUDA device, as `tune(measure=device_seconds)` needs them; sizes must be bound.

    The median of launches on rotating arrays. device="cpu" times the interpreter, which tells nothing of a GPU. scalars: 1 each
    by default. Raises MeasureError without Triton, PyTorch or a device.
    """
    reason = available()
    if reason is not None:
        raise MeasureError(reason)
    program = schedule.program
    if program.sizes:
        raise MeasureError(f"the sizes {', '.join(program.sizes)} are open: bind them at schedule(…)")
    emitted = emit(program)
    needed = required(program.source)
    arrays = [
        (emitted.names[b.name], b.dtype, [e.eval({}) for e in b.shape])
        for b in program.buffers
        if b.role == "param" and b.name in needed
    ]
    others = {emitted.names[n]: (scalars or {}).get(n, 1) for n, _ in program.scalars}
    process = worker("device" if device == "cuda" else "interpret")
    try:
        request = {"text": emitted.text, "entry": emitted.entry, "device": device, "arrays": arrays, "others": others}
        answer = ask(process, request)
    finally:
        kill_group(process)
    if "error" in answer:
        raise MeasureError(f"{program.name} on {device}: {answer['error']}")
    return float(answer["seconds"])


def runner(program: Program) -> Runner:
    """The same in the form of the other backends."""
    emitted = emit(program)
    return lambda arrays, sizes, scalars: interpreted(emitted, arrays, sizes, scalars)
