"""Plain loops in C, compiled by the system's compiler with -O3 -march=native -ffast-math -fopenmp."""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from serve import Missing, serve

FLAGS = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]


def library():
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Missing("no gcc")
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "loops.so"
    subprocess.run([compiler, *FLAGS, str(Path(__file__).with_name("loops.c")), "-o", str(path), "-lm"], check=True)
    loaded = ctypes.CDLL(str(path))
    folder.cleanup()
    return loaded


def make(row, x, threads):
    kind = row["kind"]
    wanted = {"gemm_silu": "A W", "rmsnorm": "X G", "softmax": "X", "chain_i8": "G U", "int8": "A W"}
    if kind not in wanted or (row["dtype"] != "f32" and kind != "int8"):
        raise Missing("its plain loops were not written")
    arrays = [np.ascontiguousarray(x[n]) for n in wanted[kind].split()]
    made = {"chain_i8": np.int8, "int8": np.int32}.get(kind, np.float32)
    shape = {"rmsnorm": (row["M"], row.get("K", 0))}.get(kind, (row["M"], row["N"] if "N" in row else row["K"]))
    y = np.zeros(shape, made)
    f = getattr(library(), kind)
    sizes = [row[n] for n in {"rmsnorm": "M K", "softmax": "M N"}.get(kind, "M N K").split() if n in row]
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (*arrays, y)]
    rest = [ctypes.c_float(row["scale"]), ctypes.c_long(y.size)] if kind == "chain_i8" else [ctypes.c_long(v) for v in sizes]
    kept = (arrays, y)  # the pointers do not keep them

    def call():
        f(*pointers, *rest)
        return kept

    return call, lambda: y


if __name__ == "__main__":
    serve(make)
