"""Plain loops in C (loops.c), as a person writes them first; the compiler's flags are in plain_c.py."""

import ctypes
import tempfile
from pathlib import Path

import numpy as np
from plain_c import compile_c
from serve import Missing, bf16_to_f32, e4m3_values, serve

SIGNATURES = {  # kind -> (arrays read, sizes, scalar, shape of the result)
    "gemm_silu": ("A W", "M N K", None, "M N"),
    "chain_i8": ("G U", "M N", "inverse", "M N"),
    "chain_f8": ("G U", "M N", "inverse", "M N"),
    "int8": ("A W", "M N K", None, "M N"),
    "rowquant": ("A W", "M N K", None, "M N"),
    "rmsnorm": ("X G", "M K", "eps", "M K"),
    "softmax": ("X", "M N", None, "M N"),
    "attention": ("Q K V", "M N D", "scale", "M D"),
}
RESULTS = {"chain_i8": np.int8, "chain_f8": np.uint8, "int8": np.int32}


def make(row, x, threads):
    kind = row["kind"]
    if kind not in SIGNATURES:
        raise Missing("its plain loops were not written")
    arrays, sizes, scalar, shape = SIGNATURES[kind]
    inputs = [np.ascontiguousarray(x[n]) for n in arrays.split()]
    narrow = row["dtype"] == "bf16"
    made = np.uint16 if narrow and kind == "gemm_silu" else RESULTS.get(kind, np.float32)
    y = np.zeros([row[n] for n in shape.split()], made)
    with tempfile.TemporaryDirectory() as folder:
        loaded = compile_c([Path(__file__).with_name("loops.c")], Path(folder))
    f = getattr(loaded, kind + ("_bf16" if narrow else ""))
    arguments = [ctypes.c_void_p(a.ctypes.data) for a in (*inputs, y)] + [ctypes.c_long(row[n]) for n in sizes.split()]
    if scalar:
        arguments.append(ctypes.c_float(row[scalar]))
    kept = (inputs, y)  # the pointers do not keep them

    def call():
        f(*arguments)
        return kept

    if y.dtype == np.uint8:
        return call, lambda: e4m3_values()[y]
    return call, lambda: bf16_to_f32(y) if y.dtype == np.uint16 else y


if __name__ == "__main__":
    serve(make)
