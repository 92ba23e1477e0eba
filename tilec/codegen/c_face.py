"""What the emitted C looks like from outside: its functions' names and arguments, and the header."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.codegen.c_helpers import C_NAME, ELEMENT, HOLDS
from tilec.codegen.c_scope import identifiers
from tilec.ir import tree
from tilec.ir.arguments import signature, written
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Program


@dataclass(frozen=True)
class Parameter:
    """One argument of the C function: an array (element type, shape), a scalar or a size."""

    name: str
    kind: str  # "array", "scalar" or "size"
    dtype: str
    written: bool = False


def parameters(program: Program) -> list[Parameter]:
    """What the C function takes, in order: arrays, scalars, free sizes; then the scratch pointer and the number of threads."""
    outputs = set(written(program))
    arrays = [Parameter(b.name, "array", b.dtype, b.name in outputs) for b in program.buffers if b.role == "param"]
    scalars = [Parameter(n, "scalar", DTYPES[d].arithmetic) for n, d in program.scalars]
    return [*arrays, *scalars, *(Parameter(n, "size", "i64") for n in program.sizes)]


def entry(program: Program) -> str:
    """The name of the C function; NAME_scratch gives the bytes of scratch memory that a call needs."""
    return f"tilec_{c_names(program)[program.name]}"


def header(program: Program) -> str:
    """The C header of the emitted text; element types of f16, bf16 and f8 are unsigned integers with their bits."""
    names = c_names(program)
    f, guard = entry(program), f"{entry(program).upper()}_H"
    arguments = [
        *(
            f"{'' if p.written else 'const '}{C_NAME[ELEMENT[p.dtype]]} *{names[p.name]}"
            for p in parameters(program)
            if p.kind == "array"
        ),
        *(f"{C_NAME[HOLDS[p.dtype]]} {names[p.name]}" for p in parameters(program) if p.kind == "scalar"),
    ]
    sizes = [f"int64_t {names[n]}" for n in program.sizes]
    lines = [
        f"/* {signature(program)}",
        " * Arrays are row-major, contiguous and apart from each other.",
        f" * scratch: {f}_scratch(...) bytes, aligned to 64 (NULL where that is 0). threads: at least 1. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "#include <stdint.h>",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        f"int64_t {f}_scratch({', '.join([*sizes, 'int threads'])});",
        f"void {f}({', '.join([*arguments, *sizes, 'void *scratch', 'int threads'])});",
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "#endif",
    ]
    return "\n".join(lines) + "\n"


def uses_threads(program: Program) -> bool:
    """Is some loop parallel?"""
    return any(loop.kind == "parallel" for _, loop in tree.loops(program.body))


def c_names(program: Program) -> dict[str, str]:
    loops = [loop.var for _, loop in tree.loops(program.body)]
    given = [program.name, *(p.name for p in parameters(program)), *(b.name for b in program.buffers), *loops]
    return identifiers(given)
