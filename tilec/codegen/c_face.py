"""What the emitted C looks like from outside: its functions' names and arguments, and the header."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.codegen.c_helpers import C_NAME, ELEMENT, HOLDS
from tilec.codegen.c_scope import identifiers
from tilec.ir import tree
from tilec.ir.arguments import signature, written
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Buffer, Program


@dataclass(frozen=True)
class Parameter:
    """One argument of the C function: an array (element type, shape), a scalar or a size."""

    name: str
    kind: str  # "array", "scalar", "size", or "packed": a copy of an array made ahead of the call, or NULL
    dtype: str
    written: bool = False


def parameters(program: Program) -> list[Parameter]:
    """What the C function takes, in order: arrays, scalars, free sizes; then the scratch pointer and the number of threads."""
    outputs = set(written(program))
    arrays = [Parameter(b.name, "array", b.dtype, b.name in outputs) for b in program.buffers if b.role == "param"]
    scalars = [Parameter(n, "scalar", DTYPES[d].arithmetic) for n, d in program.scalars]
    packed = [Parameter(b.name, "packed", b.dtype) for b in program.buffers if b.prepacked]
    return [*arrays, *scalars, *(Parameter(n, "size", "i64") for n in program.sizes), *packed]


def argument(p: Parameter, name: str, plain: bool = False) -> str:
    """Its declaration; plain: with the types of stdint.h."""
    if p.kind == "size":
        return f"{'int64_t' if plain else 'i64'} {name}"
    short = HOLDS[p.dtype] if p.kind == "scalar" else ELEMENT[p.dtype]
    kind = C_NAME[short] if plain else short
    if p.kind == "scalar":
        return f"{kind} {name}"
    star = "*" if plain else "*restrict "
    return f"{'' if p.written else 'const '}{kind} {star}{name}{'_packed' if p.kind == 'packed' else ''}"


def pack_entry(program: Program, buffer: str) -> str:
    """The function that makes the packed copy; with _bytes, how large it is."""
    return f"{entry(program)}_pack_{c_names(program)[buffer]}"


def pack_arguments(program: Program, b: Buffer, plain: bool = False) -> list[str]:
    """What that function takes: the array, whose dtype may be narrower than the copy's, the sizes, the copy and the threads."""
    names, whole = c_names(program), program.buffer[b.root or ""]
    sizes = [Parameter(n, "size", "i64") for n in program.sizes]
    taken = [Parameter(whole.name, "array", whole.dtype), *sizes, Parameter(b.name, "array", b.dtype, True)]
    return [*(argument(p, names[p.name], plain) for p in taken), "int threads"]


def memory(program: Program) -> tuple[int, bool]:
    """(alignment that scratch memory needs, are huge pages asked for)."""
    return max((b.align or 64 for b in program.buffers), default=64), any(b.pages == "huge" for b in program.buffers)


def entry(program: Program) -> str:
    """The name of the C function; NAME_scratch gives the bytes of scratch memory that a call needs."""
    return f"tilec_{c_names(program)[program.name]}"


def header(program: Program) -> str:
    """The C header of the emitted text; element types of f16, bf16 and f8 are unsigned integers with their bits."""
    names = c_names(program)
    f, guard = entry(program), f"{entry(program).upper()}_H"
    arguments = [argument(p, names[p.name], True) for p in parameters(program)]
    sizes = [f"int64_t {names[n]}" for n in program.sizes]
    packs: list[str] = []
    for b in program.buffers:
        if b.prepacked:
            g = pack_entry(program, b.name)
            packs.append(f"int64_t {g}_bytes({', '.join(sizes) or 'void'});")
            packs.append(f"void {g}({', '.join(pack_arguments(program, b, True))});")
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
        f"void {f}({', '.join([*arguments, 'void *scratch', 'int threads'])});",
        *packs,
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
