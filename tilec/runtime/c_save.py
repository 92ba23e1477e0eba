"""A compiled schedule in a folder: C source, header, shared object and a JSON description; and back, also on another machine.

What is loaded needs neither the kernel's text nor a schedule: the description has the parameters with their shapes, which is all
that a call is checked against. Where the shared object was made for other instructions or another system, the source next to it
is compiled again.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilec.codegen.c_face import header, memory
from tilec.errors import MeasureError
from tilec.ir.affine import Aff, Constraint, Div
from tilec.ir.arguments import required, signature, written
from tilec.ir.dtypes import DTYPES
from tilec.ir.expr import Const
from tilec.ir.program import Access, Buffer, Layout, Program, Statement
from tilec.runtime.c_build import Recipe

USUAL = ("format", "name", "signature", "entry", "face", "compiler", "flags", "vector_bytes", "machine")
FORMAT = 1  # of the description; raised when an older tilec could misread it


def save(
    program: Program, made: Recipe, shared: Path, pure: tuple[str, ...], folder: Path, about: Mapping[str, Any]
) -> list[Path]:
    """Write NAME.c, NAME.h, NAME.so and NAME.json into `folder`, which is made; returns their paths.

    about: what else the description holds: the schedule, its costs. MeasureError where something can't be written.
    """
    paths = [folder / f"{program.name}.{ending}" for ending in ("c", "h", "so", "json")]
    description = {
        "format": FORMAT,
        "name": program.name,
        "signature": signature(program),
        "entry": made.entry,
        "face": face_data(program, pure),
        "compiler": made.compiler.version,
        "flags": list(made.flags),
        "vector_bytes": made.vector_bytes,
        "machine": made.machine,
        **about,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths[0].write_text(made.text, encoding="utf-8")
        paths[1].write_text(header(program), encoding="utf-8")
        shutil.copyfile(shared, paths[2])
        paths[3].write_text(json.dumps(description, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as e:
        raise MeasureError(f"{program.name} can't be saved in {folder}: {e.strerror or e} ({e.filename or folder})") from None
    return paths


def face_data(program: Program, pure: tuple[str, ...]) -> dict[str, Any]:
    source = program.source
    needed, outputs = set(required(source)), set(written(source))
    arrays = [
        {
            "name": b.name,
            "dtype": b.dtype,
            "shape": [_aff_data(e) for e in b.shape],
            "shape_text": [str(e) for e in b.shape],
            "written": b.name in outputs,
            "required": b.name in needed,
            "returned": b.name in pure,
        }
        for b in source.buffers
        if b.role == "param"
    ]
    return {
        "arrays": arrays,
        "scalars": [list(s) for s in source.scalars],
        "sizes": list(program.sizes),
        "bound": [list(b) for b in program.bound],
        "where": [[_aff_data(c.expr), c.equal] for c in program.where],
        "order": list(source.parameters),
        "packed": [
            {
                "name": b.name,
                "dtype": b.dtype,
                "root": b.root,
                "shape": [_aff_data(e) for e in b.shape],
                "layout": [b.layout.name, *b.layout.args] if b.layout else None,
            }
            for b in program.buffers
            if b.prepacked
        ],
        "memory": list(memory(program)),
    }


def checked(data: Mapping[str, Any]) -> None:
    """ValueError where a description can't be one that `save` wrote; what is missing or of another kind raises as Python does."""
    arrays, scalars, sizes = data["face"]["arrays"], dict(data["face"]["scalars"]), data["face"]["sizes"]
    bound, order, align = dict(data["face"]["bound"]), data["face"]["order"], data["face"]["memory"][0]
    names = [a["name"] for a in arrays]
    packed = [a["name"] for a in data["face"]["packed"]]
    for name in (data["name"], *names, *scalars, *sizes, *bound):
        if not (isinstance(name, str) and name.isidentifier()):
            raise ValueError(f"no name: {name!r}")
    every = [*names, *packed, *scalars, *sizes, *bound]
    if not names or len(set(every)) != len(every):
        raise ValueError("no arrays, or one name twice")
    if sorted(order) != sorted([*names, *scalars]):
        raise ValueError("the order of the parameters is not that of the arrays and scalars")
    for dtype in (*(a["dtype"] for a in arrays), *(a["dtype"] for a in data["face"]["packed"]), *scalars.values()):
        if dtype not in DTYPES:
            raise ValueError(f"no dtype {dtype!r}")
    if not all(type(v) is int and v >= 1 for v in bound.values()) or type(align) is not int or align < 1 or align & (align - 1):
        raise ValueError("a size or an alignment that is none")
    known = {*sizes, *bound}
    for a in (*arrays, *data["face"]["packed"]):
        if any(not e.names <= known for e in map(_aff, a["shape"])):
            raise ValueError(f"the shape of {a['name']} has unknown sizes")
    if not all(isinstance(x, str) for x in (data["entry"], data["machine"], data["compiler"], *data["flags"])):
        raise ValueError("entry, machine, compiler and flags are texts")
    if isinstance(data["flags"], str) or type(data["vector_bytes"]) is not int:
        raise ValueError("flags are a list, vector_bytes an integer")


def rest(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a description holds beside what every one does: the schedule, its costs."""
    return {n: v for n, v in data.items() if n not in USUAL}


def face(name: str, data: Mapping[str, Any]) -> tuple[Program, tuple[str, ...]]:
    """A program with the same parameters, and nothing inside: enough to check a call."""
    buffers, statements = [], []
    for a in data["arrays"]:
        shape = tuple(map(_aff, a["shape"]))
        buffers.append(Buffer(a["name"], a["dtype"], shape, "param"))
        if a["written"]:
            target = Access(a["name"], tuple(Aff(0) for _ in shape))
            op = "+=" if a["required"] else "="
            statements.append(Statement(f"S{len(statements)}", (), (), target, op, Const(0, "i32"), ()))
    align, huge = data["memory"]
    for a in data["packed"]:
        layout = Layout(a["layout"][0], tuple(a["layout"][1:])) if a["layout"] else None
        shape = tuple(map(_aff, a["shape"]))
        buffers.append(Buffer(a["name"], a["dtype"], shape, "cache", root=a["root"], layout=layout, prepacked=True))
    buffers.append(Buffer("scratch memory", "i8", (), "temp", align=int(align), pages="huge" if huge else "normal"))
    program = Program(
        name,
        tuple(data["sizes"]),
        tuple(Constraint(_aff(e), equal) for e, equal in data["where"]),
        tuple((n, t) for n, t in data["scalars"]),
        tuple(buffers),
        tuple(statements),
        (),
        parameters=tuple(data["order"]),
        bound=tuple((n, v) for n, v in data["bound"]),
    )
    return program, tuple(a["name"] for a in data["arrays"] if a["returned"])


def _aff_data(e: Aff) -> list[Any]:
    """[const, [name or [numerator, denominator], coefficient]…]."""
    return [e.const, *([a if isinstance(a, str) else [_aff_data(a.num), a.den], c] for a, c in e.terms)]


def _aff(data: list[Any]) -> Aff:
    if any(type(n) is not int for n in (data[0], *(c for _, c in data[1:]))):
        raise ValueError(f"no whole numbers: {data}")
    out = Aff(data[0])
    for atom, c in data[1:]:
        if not isinstance(atom, str) and (type(atom[1]) is not int or atom[1] < 1):
            raise ValueError(f"no divisor: {atom[1]!r}")
        inner = Aff.of(atom) if isinstance(atom, str) else Aff(0, ((Div(_aff(atom[0]), atom[1]), 1),))
        out = out + inner * c
    return out
