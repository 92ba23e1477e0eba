"""Compiling C for a peer with the system's compiler."""

import ctypes
import shutil
import subprocess

from serve import Missing

# infinities are meant: with -ffinite-math-only gcc divides by a corrected reciprocal, and 1 / (1 + exp(large)) is NaN
FLAGS = ["-O3", "-march=native", "-ffast-math", "-fno-finite-math-only", "-fopenmp", "-shared", "-fPIC"]


def compile_c(sources, folder):
    """The library of `sources`, made in `folder`, loaded."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Missing("no gcc")
    path = folder / "peer.so"
    done = subprocess.run(
        [compiler, *FLAGS, f"-I{folder}", *map(str, sources), "-o", str(path), "-lm"], capture_output=True, text=True
    )
    if done.returncode:
        raise Missing(f"gcc: {done.stderr.splitlines()[0]}")
    return ctypes.CDLL(str(path))
