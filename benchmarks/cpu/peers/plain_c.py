"""Compiling C for a peer with the system's compiler."""

import ctypes
import shutil
import subprocess

from serve import Missing

# without the last, gcc divides by a corrected reciprocal, and 1 / (1 + exp(large)) is NaN. -fno-finite-math-only would mend that
# too, but takes the vector functions of the C library away
FLAGS = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC", "-mrecip=!div,!vec-div"]


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
