"""A scheduled program as Triton: one self-contained Python file with a kernel per launch and a launcher for PyTorch tensors.

Blocks run collectively: tiles in registers or shared memory become tensors, and Triton decides which thread holds what and what
passes through shared memory. The order of float sums: tiles in the order of the loops around them; inside a tile as the hardware
adds them, which needs `reassociate`. Everything else is exact: roundings to the nearest even, elementary functions as the fixed
sequences of ir/functions.py, products not contracted unless the schedule says `contract`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tilec.codegen.python_text import identifiers
from tilec.codegen.triton_kernel import Kernel, KernelText
from tilec.codegen.triton_launcher import launcher, loose_sizes
from tilec.codegen.triton_shape import shaped
from tilec.codegen.triton_support import OTHER, support
from tilec.codegen.triton_text import WIDTH
from tilec.errors import ScheduleError
from tilec.ir.arguments import signature
from tilec.ir.functions import FUNCTIONS
from tilec.ir.program import Program
from tilec.lower.instructions import For, If, Instruction, Lowered, lower
from tilec.targets import Target, load

WARPS = (1, 2, 4, 8, 16, 32)
MOST_ROWS = 65_536  # side by side: their product with a count of columns stays an i32


@dataclass(frozen=True)
class Options:
    """num_warps: per block, None for a choice by the size of the tiles. group: rows of output tiles that run side by side, 1 for
    row by row. bytes_for_f8: for machines without 8-bit floats (compute capability below 8.9) they travel as bytes, converted by
    integer operations."""

    num_warps: int | None = None
    group: int = 8
    bytes_for_f8: bool = False

    def checked(self) -> Options:
        """This, or ScheduleError for values that Triton does not take."""
        if self.num_warps is not None and (type(self.num_warps) is not int or self.num_warps not in WARPS):
            raise ScheduleError(f'emit("triton", num_warps={self.num_warps}): a power of two from 1 to 32')
        if type(self.group) is not int or not 1 <= self.group <= MOST_ROWS:
            raise ScheduleError(f'emit("triton", group={self.group}): a whole number from 1 to {MOST_ROWS:,}')
        return self


@dataclass(frozen=True)
class Emitted:
    """The file, and what its kernels take: see KernelText.

    num_warps and num_stages are those of every launch; names: identifiers; loose: sizes that no array tells, which the launcher
    takes.
    """

    program: Program
    text: str
    kernels: tuple[KernelText, ...]
    entry: str
    num_warps: int
    num_stages: int
    options: Options
    names: dict[str, str]
    loose: tuple[str, ...]


Comments = Callable[[int], Sequence[str]]


def no_comments(threads: int) -> Sequence[str]:
    """For a file without any."""
    return ()


def emit(program: Program, options: Options | None = None, comments: Comments = no_comments) -> Emitted:
    """The file of a scheduled program. comments: the lines at its end (the trace, the costs), given the threads of a block.

    Raises ScheduleError for what has no form in Triton, with the reason and what has.
    """
    chosen = (options or Options()).checked()
    form = shaped(program)
    lowered = lower(form.program)
    names = _names(lowered)

    def texts(warps: int | None) -> list[KernelText]:
        return [
            Kernel(form.program, launch, form.stages, names, chosen.group, chosen.bytes_for_f8, warps).text()
            for launch in lowered.launches
        ]

    warps = chosen.num_warps or _warps(texts(None))
    kernels = texts(warps)
    stages = max(form.stages.values(), default=1)
    used = set[str]().union(*(k.used for k in kernels))
    parts = [_head(program, kernels, chosen), "", "from __future__ import annotations", "", "import torch", "import triton"]
    parts += ["import triton.language as tl", "", ""]
    for text in support(used):
        parts += [text, ""]
    for k in kernels:
        parts += [*k.lines, "", ""]
    parts += launcher(form.program, program, kernels, names, warps, stages, chosen.bytes_for_f8)
    if lines := comments(32 * warps):
        parts += ["", "", *(f"# {line}".rstrip() for line in lines)]
    text = "\n".join(parts) + "\n"
    return Emitted(
        program,
        text,
        tuple(kernels),
        names[program.name],
        warps,
        stages,
        replace(chosen, num_warps=warps),
        names,
        loose_sizes(program),
    )


def source(
    program: Program,
    target: str | Target | None = None,
    num_warps: int | None = None,
    group: int = 8,
    comments: Comments = no_comments,
) -> str:
    """The file for a machine (any whose compute capability is 8.9 or more, where none is named)."""
    return emit(program, options_for(target, num_warps, group), comments).text


def options_for(target: str | Target | None, num_warps: int | None = None, group: int = 8) -> Options:
    """The options that suit a machine; ScheduleError for one that is no GPU."""
    machine = None if target is None else load(target)
    limits = None if machine is None else machine.limits
    if machine is not None and limits is None:
        raise ScheduleError(f'emit("triton"): {machine.name} is no GPU with a compute capability')
    old = limits is not None and tuple(map(int, limits.compute_capability.split("."))) < (8, 9)
    return Options(num_warps, group, old).checked()


def _warps(kernels: Sequence[KernelText]) -> int:
    """Four; eight for output tiles of 128 × 128 and more."""
    largest = max((p.rows * p.columns for k in kernels for p in k.products), default=0)
    return 8 if largest >= 128 * 128 else 4


def _names(lowered: Lowered) -> dict[str, str]:
    """Python identifiers: parameters keep their names, loops and buffers get free ones."""
    program = lowered.program
    reserved = {"tl", "triton", "torch", "pid", "first", "rows", "blocks", *(f"_{n}" for n in (*OTHER, *FUNCTIONS))}
    params = [b.name for b in program.buffers if b.role == "param"] + [n for n, _ in program.scalars] + list(program.sizes)
    launches = [launch.name for launch in lowered.launches]
    loops = [v for launch in lowered.launches for v in _variables(launch.body)]
    return identifiers([*params, program.name, *launches, *loops, *(b.name for b in program.buffers)], reserved)


def _variables(body: Sequence[Instruction]) -> list[str]:
    out: list[str] = []
    for op in body:
        if isinstance(op, For):
            out.append(op.loop.var)
        if isinstance(op, For | If):
            out += _variables(op.body)
    return out


def _head(program: Program, kernels: Sequence[KernelText], options: Options) -> str:
    """The docstring: what it computes and in which order it adds."""
    lines = [f'"""{signature(program)}', ""]
    lines[0] = "\n".join(_wrapped(lines[0]))
    dots = [d for k in kernels for d in k.dots]
    sums = [s for k in kernels for s in k.sums]
    notes = [f"Sum {d}: tile after tile in order, inside a tile as tl.dot adds." for d in dots]
    notes += [f"Sum {s}: piece after piece in order, inside a piece as tl.sum adds." for s in sums]
    if not notes:
        notes.append("Every operation rounds as written.")
    else:
        notes.append("Every other operation rounds as written.")
    if program.contract:
        notes.append("A multiply-add may round once (contract).")
    if options.bytes_for_f8:
        notes.append("8-bit floats are bytes here (torch.uint8 views), converted by integer operations.")
    for note in notes:
        lines += _wrapped(note)
    return "\n".join([*lines, '"""'])


def _wrapped(text: str) -> list[str]:
    words, out = text.split(" "), [""]
    for word in words:
        if out[-1] and len(out[-1]) + 1 + len(word) > WIDTH:
            out.append("    " + word)
        else:
            out[-1] += (" " if out[-1] else "") + word
    return out
