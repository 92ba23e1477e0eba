"""A program as readable C11, bit for bit what ir/interp computes; what runs where, in the order of the tree:

- `parallel` loops are OpenMP loops, `vector` loops run along the lanes of vector types (GCC and Clang), `unrolled` ones are
  written out; block and thread loops of a GPU run in order (a bind is an order; thread phases follow each other), copies at once.
- A loop that cannot run along lanes runs in order.
- Register buffers are variables (codegen/c_storage.py). Below their owner full tiles have a branch with constant bounds.

Each of these classes adds its subject to the one before: Lines (text, buffers, addresses), Actions (leaves, copies), Groups,
Instructed (dot products), Vectors, Loops, Tree. The functions that the text calls are made by the modules that c_helpers names.
"""

from __future__ import annotations

from tilec.codegen import c_comments
from tilec.codegen.c_face import argument, c_names, entry, memory, pack_arguments, pack_entry, parameters, uses_threads
from tilec.codegen.c_helpers import Helpers
from tilec.codegen.c_loops import team_loops
from tilec.codegen.c_storage import Storage
from tilec.codegen.c_tree import Tree
from tilec.ir import printer, tree
from tilec.ir.arguments import signature
from tilec.ir.program import Buffer, Loop, Program
from tilec.lower.cells import Cells


def emit(program: Program, vector_bytes: int = 32) -> str:
    """The C text. vector_bytes: 16, 32 or 64, the vector registers it is shaped for; it runs on every machine."""
    cells, names, shared = Cells.of(tree.without_hints(program)), c_names(program), team_loops(program.body)

    def written(storage: Storage) -> Tree:
        out = Tree(program, cells, names, Helpers(vector_bytes, program.hardware_rounding), storage)
        out.run()
        return out

    first = written(Storage(program, cells, None, shared))
    return _text(written(Storage(program, cells, first.storage.decided(), shared, narrowed=first.storage.narrowed)))


def _text(t: Tree) -> str:
    """The file: what the program is, helpers, the bytes of scratch memory, functions that pack ahead, the function itself."""
    p, name, f = t.program, t.names, entry(t.program)
    sizes = [f"i64 {name[n]}" for n in p.sizes]
    offsets = _offsets(t)
    head = ["/* C11 written by tilec.", *(f" * {line}" for line in printer.header(p)), " *"]
    head += [" * " + line for line in _trees(p)]
    out = [*head, " */", t.helpers.text()]
    if uses_threads(p):
        one = "static inline int omp_get_thread_num(void) { return 0; }"
        out.append(f"#ifdef _OPENMP\n#include <omp.h>\n#else\n{one}\n#endif\n")
    unused = [f"    (void){name[n]};" for n in p.sizes] + ["    (void)threads;"]
    out.append("/* Bytes of scratch memory that a call needs. */")
    out.append(f"i64 {f}_scratch({', '.join([*sizes, 'int threads'])})\n{{")
    quiet = [f"    (void){name[b.name]}_at;" for b, _, _ in t.pieces]
    out += [*unused, "    i64 at = 0;", *offsets, *quiet, "    return at;", "}\n"]
    for b, size, _ in t.pieces:
        if b.name in t.packs:
            out += _pack(t, b, size, sizes, unused)
    listed = [*(argument(x, name[x.name]) for x in parameters(p)), "void *scratch", "int threads"]
    args = ",\n".join("    " + a for a in listed)
    out.append(f"/* {signature(p)}\n * scratch: {f}_scratch(…) bytes, aligned to {memory(p)[0]}. threads: at least 1. */")
    out.append(f"void {f}(\n{args})\n{{")
    out += ["    i64 at = 0;", *offsets, "    (void)at;"] if offsets else ["    (void)scratch;"]
    out += ["    (void)threads;", *t.lines]
    if "stream_fence" in t.helpers.definitions:
        out.append("    stream_fence();")
    return "\n".join([*out, "}"]) + "\n"


def _trees(p: Program) -> list[str]:
    """What the source computes, and the loops that do it here."""

    def note(loop: Loop, path: tuple[Loop, ...]) -> str:
        over = c_comments.runs_over(p, path, loop)
        kind = printer.loop_note(loop)
        return f"{kind}{',' if kind else '  #'} {over}" if over else kind

    source = printer.loop_tree(p.source, leaf=lambda leaf, scope: scope.leaf(leaf)).split("\n")
    if p.source is p:
        return source
    indented = [["  " + line for line in lines] for lines in (source, printer.loop_tree(p, note).split("\n"))]
    return ["as written:", *indented[0], "as run here:", *indented[1]]


def _offsets(t: Tree) -> list[str]:
    """Where each piece of the scratch memory begins, and what all of them take."""
    out: list[str] = []
    for b, size, each in t.pieces:
        name = t.names[b.name]
        if b.align is not None and b.align > 64:
            out.append(f"    at = (at + {b.align - 1}) / {b.align} * {b.align};")
        out += [f"    const i64 {name}_bytes = {size};", f"    const i64 {name}_at = at;"]
        out.append(f"    at += {name}_bytes{' * threads' if each else ''};")
    return out


def _pack(t: Tree, b: Buffer, size: str, sizes: list[str], unused: list[str]) -> list[str]:
    """The functions that make a packed copy ahead of the call."""
    g, lines = pack_entry(t.program, b.name), t.packs[b.name]
    fence = ["    stream_fence();"] if any("stream_" in line for line in lines) else []
    return [
        f"/* {printer.declaration(b, printer.Scope.of(t.program))}: made ahead of calls */",
        f"i64 {g}_bytes({', '.join(sizes) or 'void'})\n{{",
        *unused[:-1],
        f"    return {size};\n}}\n",
        f"void {g}({', '.join(pack_arguments(t.program, b))})\n{{",
        *unused,
        *lines,
        *fence,
        "}\n",
    ]
