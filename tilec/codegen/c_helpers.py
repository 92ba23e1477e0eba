"""The inline functions that generated C stands on, as they are asked for; c_memory, c_lanes, c_arithmetic, c_convert and
c_functions make them.

A type is `f32` or, with n lanes, `f32x8` (GCC and Clang vector extension); n = 1 is the scalar. Every helper exists for both, is
made when it is first asked for, and says nothing about the program. Masks are i32 lanes of 0 and -1 (i64 for f64 compares);
scalar booleans are int 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

BYTES = {"f64": 8, "f32": 4, "i64": 8, "u64": 8, "i32": 4, "u32": 4, "u16": 2, "i16": 2, "u8": 1, "i8": 1}
C_NAME = {
    "f64": "double",
    "f32": "float",
    **{f"{s}{n}": f"{'u' if s == 'u' else ''}int{n}_t" for s in "iu" for n in (8, 16, 32, 64)},
}
# what an element of a number format is in C, and the type its arithmetic value has
ELEMENT = {"f64": "f64", "f32": "f32", "f16": "u16", "bf16": "u16", "f8e4m3": "u8", "f8e5m2": "u8", "i32": "i32", "i8": "i8"}
HOLDS = {"f64": "f64", "f32": "f32", "i32": "i32", "bool": "i32"}
MASK = {"f64": "i64", "i64": "i64", "u64": "i64"}  # of compares; every other type's is i32


@dataclass(frozen=True)
class Register:
    """x86's vector registers of one size: how intrinsics on them begin, their types, the macro of a compiler that has them."""

    bits: int
    macro: str

    @property
    def prefix(self) -> str:
        return "_mm" if self.bits == 128 else f"_mm{self.bits}"

    @property
    def floats(self) -> str:
        return f"__m{self.bits}"

    @property
    def whole(self) -> str:
        """Of integers."""
        return f"__m{self.bits}i"

    def real(self, size: int) -> tuple[str, str]:
        """The type with elements of 4 or 8 bytes, and the end of its intrinsics' names."""
        return (self.floats, "ps") if size == 4 else (f"{self.floats}d", "pd")


REGISTERS = {16: Register(128, "__SSE2__"), 32: Register(256, "__AVX2__"), 64: Register(512, "__AVX512F__")}  # by bytes


def vector(short: str, lanes: int) -> str:
    """The name of the type: `f32`, `f32x8`."""
    return short if lanes == 1 else f"{short}x{lanes}"


def number(value: float | int, short: str) -> str:
    """A constant as a C literal that reads back as exactly this value."""
    if short in ("i32", "i64"):
        if value == -(2**31) and short == "i32":
            return "INT32_MIN"
        return str(int(value))
    if value != value:
        return "NAN" if short == "f32" else "(f64)NAN"
    if value in (np.inf, -np.inf):
        return f"{'-' if value < 0 else ''}INFINITY" if short == "f32" else f"{'-' if value < 0 else ''}(f64)INFINITY"
    text = str(np.float32(value)) if short == "f32" else repr(float(value))
    text = text if "." in text or "e" in text else text + ".0"
    return text + ("f" if short == "f32" else "")


@dataclass
class Helpers:
    """Definitions in the order of their need. A method returns the name to call; `vector_bytes` is the widest register.
    flushes: a conversion may take denormals for zero, where an instruction does."""

    vector_bytes: int = 32
    flushes: bool = False
    types: dict[tuple[str, int], None] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The prelude: includes, types, functions."""
        scalars = [f"typedef {C_NAME[s]} {s};" for s in ("f64", "f32", "i64", "u64", "i32", "u32", "i16", "u16", "i8", "u8")]
        vectors: list[str] = []
        for short, lanes in sorted(self.types, key=lambda t: (list(BYTES).index(t[0]), t[1])):
            size, name = BYTES[short] * lanes, vector(short, lanes)
            vectors.append(f"typedef {short} {name} __attribute__((vector_size({size})));")
            vectors.append(f"typedef {short} {name}_at __attribute__((vector_size({size}), aligned({BYTES[short]}), may_alias));")
        head = ["#include <math.h>", "#include <stddef.h>", "#include <stdint.h>", "#include <stdlib.h>", "#include <string.h>"]
        if any("_mm" in d for d in self.definitions.values()):
            head += ["#if defined(__x86_64__) || defined(__i386__)", "#include <immintrin.h>", "#endif"]
        return "\n".join([*head, "", *scalars, *vectors, "", *self.definitions.values()])

    def type(self, short: str, lanes: int) -> str:
        if lanes > 1:
            self.types.setdefault((short, lanes))
        return vector(short, lanes)

    def define(self, name: str, returns: str, parameters: str, body: Callable[[], str] | str) -> str:
        """`static inline returns name(parameters) { body }`, once. A callable body may ask for other helpers first."""
        if name not in self.definitions:
            lines = body if isinstance(body, str) else body()
            inner = "\n".join(
                ("    " + line) if line and not line.startswith("#") else line for line in lines.strip().split("\n")
            )
            self.definitions.pop(name, None)
            self.definitions[name] = f"static inline {returns} {name}({parameters})\n{{\n{inner}\n}}\n"
        return name


def under(macros: str, fast: str, plain: str) -> str:
    """`fast` where the compiler defines all of the macros, else `plain`."""
    condition = " && ".join(f"defined({macro})" for macro in macros.split())
    return f"#if {condition}\n{fast}\n#else\n{plain}\n#endif"


def by_lane(t: str, lanes: int, one: str) -> str:
    """The body of a function whose lanes are computed one after the other: `one` is lane l."""
    return f"{t} y;\nfor (int l = 0; l < {lanes}; ++l) y[l] = {one};\nreturn y;"
