"""Exo: a micro-kernel of 8×48 that Exo schedules to AVX-512, and its driver in C (exo_driver.c)."""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

import numpy as np
from exo import DRAM, proc
from exo.API import compile_procs
from exo.platforms.x86 import AVX512, mm512_fmadd_ps, mm512_loadu_ps, mm512_set1_ps, mm512_storeu_ps
from exo.stdlib.scheduling import (
    bind_expr,
    divide_dim,
    divide_loop,
    expand_dim,
    fission,
    lift_alloc,
    replace_all,
    set_memory,
    simplify,
    stage_mem,
    unroll_loop,
)
from plain_c import compile_c
from serve import Missing, serve


@proc
def micro(K: size, A: f32[K, 8] @ DRAM, B: f32[K, 48] @ DRAM, C: f32[8, 48] @ DRAM):
    for k in seq(0, K):
        for i in seq(0, 8):
            for j in seq(0, 48):
                C[i, j] += A[k, i] * B[k, j]


def scheduled():
    p = divide_loop(micro, "j", 16, ["jo", "ji"], perfect=True)
    p = stage_mem(p, "for k in _: _", "C[0:8, 0:48]", "acc")
    p = set_memory(divide_dim(p, "acc", 1, 16), "acc", AVX512)
    for _ in range(2):  # the loads and the stores of acc
        p = simplify(divide_loop(p, "for i1 in _: _ #0", 16, ["jv", "ji"], perfect=True))
    for operand, name in (("A[_]", "a"), ("B[_]", "b")):
        p = expand_dim(bind_expr(p, operand, name), name, 16, "ji")
        p = lift_alloc(set_memory(p, name, AVX512), name, n_lifts=1)
    for name in "ab":
        p = fission(p, p.find(f"{name}[_] = _").after())
    p = replace_all(p, [mm512_loadu_ps, mm512_storeu_ps, mm512_fmadd_ps, mm512_set1_ps])
    return unroll_loop(unroll_loop(p, "jo"), "i")


def make(row, x, threads):
    if row["kind"] != "gemm_silu" or row["dtype"] != "f32" or row["M"] == 1 or row["lanes"] != 16:
        raise Missing("a schedule of this row was not written")
    folder = tempfile.TemporaryDirectory()
    compile_procs([scheduled()], Path(folder.name), "micro.c", "micro.h")
    driver = Path(__file__).with_name("exo_driver.c")
    loaded = compile_c([Path(folder.name) / "micro.c", driver], Path(folder.name))
    folder.cleanup()
    (m, k), n = x["A"].shape, x["W"].shape[1]
    y = np.zeros((m, n), np.float32)
    packed = np.zeros((m + 7) // 8 * 8 * k, np.float32)
    pointers = [ctypes.c_void_p(a.ctypes.data) for a in (x["A"], x["W"], y, packed)]
    sizes = [ctypes.c_long(v) for v in (m, n, k)]
    return (lambda: loaded.gemm_silu(*pointers, *sizes)), lambda: y


if __name__ == "__main__":
    serve(make)
