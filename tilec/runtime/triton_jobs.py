"""Emitted Triton kernels compiled for machines that need not be here: several at once, kept on disk, with progress.

A job is one kernel of one emitted file for one compute capability, its parameters specialised as a launch on contiguous arrays of
the given sizes specialises them: strides and sizes that are multiples of 16 are known to be, a stride of 1 is a constant.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tilec.codegen.triton import Emitted
from tilec.codegen.triton_kernel import KernelText
from tilec.codegen.triton_value import F8
from tilec.errors import ScheduleError
from tilec.runtime.triton_worker import pool, version
from tilec.targets import Target
from tilec.targets.host import cache_folder

LIMIT = 300.0  # s
POINTER = {
    "f64": "fp64",
    "f32": "fp32",
    "f16": "fp16",
    "bf16": "bf16",
    "f8e4m3": "fp8e4nv",
    "f8e5m2": "fp8e5",
    "i32": "i32",
    "i8": "i8",
}
CAPABILITIES = (80, 86, 89, 90, 100, 103, 120)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Job:
    """One kernel for one architecture."""

    text: str
    kernel: str
    signature: Mapping[str, str]
    constants: Mapping[str, int]
    divisible: tuple[str, ...]
    capability: int
    options: Mapping[str, Any]

    def key(self, version: str) -> str:
        """What its result depends on."""
        code = self.text.split("\n\n\ndef _check(")[0]
        code = code[code.index("from __future__") :]
        return hashlib.sha256(json.dumps([version, code, {**asdict(self), "text": ""}], sort_keys=True).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Compiled:
    """What the compiler made of a kernel.

    registers, stack (bytes): per thread; shared: bytes per block. spills: loads and stores of spilled registers in the code.
    matrix: matrix instructions by mnemonic. tensor_memory: columns. conversions: the roundings to narrower floats, as in PTX.
    error: why there is no code.
    """

    kernel: str
    capability: int
    registers: int = 0
    shared: int = 0
    stack: int = 0
    spills: int = 0
    matrix: Mapping[str, int] = field(default_factory=dict)
    instructions: int = 0
    tensor_memory: int = 0
    conversions: tuple[str, ...] = ()
    error: str | None = None


def capability(target: Target) -> int:
    """90 for "9.0"; ScheduleError where Triton compiles nothing for the machine."""
    limits = target.limits
    if limits is None:
        raise ScheduleError(f'emit("triton"): {target.name} is no GPU with a compute capability')
    major, minor = limits.compute_capability.split(".")
    number = int(major) * 10 + int(minor)
    if number not in CAPABILITIES:
        known = ", ".join(f"{c // 10}.{c % 10}" for c in CAPABILITIES)
        raise ScheduleError(
            f'emit("triton"): {target.name} has compute capability {limits.compute_capability}; compiled are {known}'
        )
    return number


def jobs(emitted: Emitted, sizes: Mapping[str, int], capability: int) -> list[Job]:
    """One per kernel of the file; `sizes` are numbers for the sizes that the schedule leaves open."""
    return [_job(emitted, k, sizes, capability) for k in emitted.kernels]


def _job(emitted: Emitted, kernel: KernelText, sizes: Mapping[str, int], capability: int) -> Job:
    program = emitted.program
    missing = [n for n in program.sizes if n not in sizes]
    if missing:
        raise ScheduleError(f"compile: the sizes {', '.join(missing)} are open: give a number for each")
    signature: dict[str, str] = {}
    constants: dict[str, int] = {}
    divisible: list[str] = []

    def whole(name: str, value: int) -> None:
        """An integer argument as a launch specialises it."""
        if value == 1:
            signature[name] = "constexpr"
            constants[name] = 1
            return
        signature[name] = "i32" if value < 2**31 else "i64"
        if value % 16 == 0:
            divisible.append(name)

    for n in kernel.buffers:
        b = kernel.shapes[n]
        name = kernel.names[n]
        element = "u8" if emitted.options.bytes_for_f8 and b.dtype in F8 else POINTER[b.dtype]
        signature[name] = f"*{element}"
        divisible.append(name)
        extents = [e.eval(sizes) for e in b.shape]
        for d in range(len(extents)):
            stride = 1
            for e in extents[d + 1 :]:
                stride *= e
            whole(f"{name}_{d}", stride)
    for n in kernel.sizes:
        whole(kernel.names[n], sizes[n])
    for n in kernel.scalars:
        dtype = dict(program.scalars)[n]
        signature[kernel.names[n]] = {"f32": "fp32", "f64": "fp64"}.get(dtype, dtype)
    for n, e in kernel.extents.items():
        signature[n] = "constexpr"
        constants[n] = 1 << max(e.eval(sizes) - 1, 0).bit_length()
    options = {"num_warps": emitted.num_warps, "num_stages": emitted.num_stages, "enable_fp_fusion": program.contract}
    return Job(emitted.text, kernel.name, signature, constants, tuple(divisible), capability, options)


def compile_all(
    wanted: Sequence[Job],
    workers: int | None = None,
    progress: Progress | None = None,
    cache: Path | None = None,
    limit: float = LIMIT,
) -> list[Compiled]:
    """Each job's result, in order; those known from the cache folder are not compiled again. limit: seconds for one.

    progress(done, total) is called after each. Raises MeasureError where Triton is missing or unsuitable; a kernel that does not
    compile has an `error`.
    """
    say = progress or (lambda done, total: None)
    folder = cache or cache_folder() / "triton"
    installed_version = version()
    keys = [job.key(installed_version) for job in wanted]
    found: dict[str, Compiled] = {}
    for key, job in zip(keys, wanted, strict=True):
        if key not in found and (old := _stored(folder / f"{key}.json", job)) is not None:
            found[key] = old
    todo = {key: job for key, job in zip(keys, wanted, strict=True) if key not in found}
    done = sum(key in found for key in keys)
    say(done, len(wanted))
    if todo:
        count = workers or min(len(todo), os.cpu_count() or 1)
        for key, answer in pool({key: asdict(job) for key, job in todo.items()}, count, limit):
            found[key] = _result(todo[key], answer)
            if not answer.get("died"):
                _store(folder / f"{key}.json", found[key])
            done += keys.count(key)
            say(done, len(wanted))
    return [found[key] for key in keys]


def _stored(path: Path, job: Job) -> Compiled | None:
    """From the cache; None for what is not there and for what no run of tilec wrote."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        found = Compiled(**{**data, "conversions": tuple(data["conversions"]), "kernel": job.kernel})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    numbers = (found.registers, found.shared, found.stack, found.spills, found.instructions, found.tensor_memory)
    whole = all(type(n) is int for n in (*numbers, *found.matrix.values())) if isinstance(found.matrix, dict) else False
    return found if whole and isinstance(found.error, str | None) and found.capability == job.capability else None


def _store(path: Path, result: Compiled) -> None:
    """Written whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        part.write_text(json.dumps(asdict(result)), encoding="utf-8")
        part.replace(path)
    except OSError:
        return  # a cache that can't be written costs time only


def _result(job: Job, answer: Mapping[str, Any]) -> Compiled:
    if "error" in answer:
        return Compiled(job.kernel, job.capability, error=str(answer["error"]))
    return Compiled(
        job.kernel,
        job.capability,
        registers=answer["registers"],
        shared=answer["shared"],
        stack=answer["stack"],
        spills=answer["spills"],
        matrix=answer["matrix"],
        instructions=answer["instructions"],
        tensor_memory=answer["tensor_memory"],
        conversions=tuple(answer["ptx_conversions"]),
    )
