"""How a program is written: @kernel (Python loops) and the builder; both give a Definition with the same IR.

`from tilec.lang import kernel, sizes, bf16, f32, exp, silu, …`: the elementary functions are those of ir/functions.py, and sqrt.
"""

from __future__ import annotations

from tilec.ir.functions import FUNCTIONS
from tilec.lang.builder import Builder
from tilec.lang.kernel import Definition, define, from_source, kernel
from tilec.lang.types import Elementary, Size, Type, bf16, f8e4m3, f8e5m2, f16, f32, f64, i8, i32, sizes


def __getattr__(name: str) -> Elementary:
    if name in FUNCTIONS or name == "sqrt":
        return Elementary(name)
    raise AttributeError(f"module 'tilec.lang' has no attribute {name!r}")


__all__ = [
    "Builder",
    "Definition",
    "Elementary",
    "Size",
    "Type",
    "bf16",
    "define",
    "f8e4m3",
    "f8e5m2",
    "f16",
    "f32",
    "f64",
    "from_source",
    "i8",
    "i32",
    "kernel",
    "sizes",
]
