"""place, cache_read, cache_write, layout: shapes and regions in the text, the same values at odd sizes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.scheduled import same
from tilec.errors import LegalityError, ScheduleError
from tilec.ir.layouts import address, allocated
from tilec.ir.printer import text
from tilec.ir.program import Layout
from tilec.lang import f32, kernel, sizes
from tilec.schedule.schedule import Schedule, start
from tilec.workloads.blur import blur
from tilec.workloads.conv2d import conv2d
from tilec.workloads.gemm import gemm
from tilec.workloads.gemm_silu import gemm_silu
from tilec.workloads.rowquant import rowquant
from tilec.workloads.syrk import syrk

M, N, K = sizes("M N K")


@kernel
def product(a: f32[M, K], b: f32[K, N], c: f32[M, N]):
    for i in range(M):
        for k in range(K):
            for j in range(N):
                c[i, j] += a[i, k] * b[k, j]


@kernel
def twice(x: f32[N], y: f32[N]):
    t: f32
    for i in range(N):
        t = x[i]
        y[i] = t + t


def lines(s: Schedule) -> list[str]:
    return [line.strip() for line in text(s.program).splitlines()]


def tiled_gemm(factor: int = 16, block: int = 8) -> Schedule:
    s = start(gemm_silu).compute_inline("C").split("Y.i", factor, into=("io", "ii")).split("Y.j", factor, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ii", "ji").compute_at("acc", "jo").split("acc.k", block, into=("ko", "ki"))
    return s.reorder("ko", "acc.i", "acc.j", "ki")


def test_default_places():
    s = start(gemm_silu)
    assert "acc: f32 in register" in lines(s) and "C: bf16[M, N] in global" in lines(s)
    s = tiled_gemm()
    assert "acc: f32[M, N] in global" in lines(s)  # alive over all of ko: no longer one cell per iteration
    s = start(twice)  # declared outside the loop: not private to its iterations, which would race for it
    assert s.program.buffer["t"].memory == "register" and s.program.buffer["t"].owner is None
    with pytest.raises(LegalityError):
        s.parallel("i")


def test_place_by_owner():
    s = tiled_gemm()
    assert s.place("acc", "shared").program.buffer["acc"].owner == "jo"
    assert "acc: f32[16, 16] in shared" in lines(s.place("acc", "shared"))
    assert "acc: f32[16, N] in shared" in lines(s.place("acc", "shared", at="io"))
    moved = s.place("acc", "shared").place("acc", "register", at="io")
    assert moved.program == s.place("acc", "register", at="io").program
    same(s.place("acc", "shared").program, M=37, N=21, K=11)


def test_partial_tiles_allocate_the_full_tile():
    s = start(gemm_silu, {"M": 100}).split("Y.i", 48, into=("io", "ii")).compute_at("C", "io").place("C", "shared")
    assert "C: bf16[48, N] in shared" in lines(s)
    s = start(gemm_silu, {"M": 32}).split("Y.i", 64, into=("io", "ii")).compute_at("C", "io").place("C", "shared")
    assert "C: bf16[32, N] in shared" in lines(s)


def test_cache_read_regions():
    s = tiled_gemm().cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared", into="Wt")
    text_ = lines(s)
    assert "A_shared: bf16[16, 8] in shared" in text_ and "Wt: bf16[8, 16] in shared" in text_
    assert "for A_shared.0 in 0..min(16, M - 16*io):" in text_ and "for A_shared.1 in 0..min(8, K - 8*ko):" in text_
    assert "A_shared[A_shared.0, A_shared.1] = A[16*io + A_shared.0, 8*ko + A_shared.1]  # copy" in text_
    s = s.cache_read("A_shared", at="S1.i", memory="register", into="A_row")  # a cache of a cache
    assert s.program.buffer["A_row"].root == "A" and "A_row[A_row.0] = A_shared[i, A_row.0]  # copy" in lines(s)
    same(s.place("acc", "shared").program, M=37, N=21, K=11)


def test_cache_read_of_a_window_and_a_temporary():
    s = start(blur).split("Y.i", 4).split("Y.j", 4).reorder("i_o", "j_o", "i_i", "j_i")
    s = s.cache_read("H", at="j_o", memory="shared")
    assert "H_shared: f32[6, 4] in shared" in lines(s) and "for H_shared.0 in 0..min(6, M - 4*i_o + 2):" in lines(s)
    same(s.program, M=9, N=5)


def test_cache_read_of_what_a_guard_allows():
    @kernel
    def half(x: f32[N], y: f32[N]):
        for i in range(N):
            if i < 5:
                y[i] = x[i]

    s = start(half).split("i", 4).cache_read("x", at="i_o", memory="shared")
    same(s.program, N=3)
    same(s.program, N=14)


def test_row_cache_and_a_scalar_kept():
    s = start(rowquant).fuse_siblings("S.i", "Q.i").cache_read("A", at="i", memory="shared")
    s = s.cache_write("S", at="i", memory="register")
    assert "A_shared: f16[K] in shared" in lines(s) and "S_register: f32 in register" in lines(s)
    assert "Q[i, k] = f8e4m3(A_shared[k] / S_register)  # S3" in lines(s)
    same(s.program, M=7, K=13)


def test_cache_write_loads_where_the_old_value_is_read():
    s = start(product).cache_write("c", at="i", memory="register")
    assert "c_register[c_register.0] = c[i, c_register.0]  # copy" in lines(s)
    same(s.program, M=5, N=4, K=3)
    per_k = start(product).cache_write("c", at="k", memory="register")
    same(per_k.program, M=5, N=4, K=3)
    with pytest.raises(LegalityError):
        start(product).cache_write("c", at="k", memory="register", load=False)


def test_cache_write_of_what_is_assigned_first():
    s = start(gemm).split("i", 4, into=("io", "ii"))
    s = s.cache_write("C", at="ii", memory="shared")
    copies = [line for line in lines(s) if line.endswith("# copy")]
    assert len(copies) == 1 and copies[0].startswith("C[")  # nothing is loaded
    same(s.program, M=9, N=5, K=3)


def test_cache_write_of_a_triangle():
    s = start(syrk).split("i", 4, into=("io", "ii")).split("j", 4, into=("jo", "ji")).reorder("io", "jo", "ii", "ji", "k")
    s = s.cache_write("C", at="jo", memory="shared")
    assert "C_shared: f32[4, 4] in shared" in lines(s)
    same(s.program, N=11)


def test_layouts_are_bijections():
    cells = list(np.indices((8, 4)).reshape(2, -1))
    for layout in (None, Layout("pad", (1, 3)), Layout("xor", (0, 1)), Layout("panels", (0, 3)), Layout("panels", (1, 3))):
        found = address(layout, (8, 4), cells)
        assert len(set(found.tolist())) == 32 and found.min() >= 0 and found.max() < allocated(layout, (8, 4))
    assert address(Layout("xor", (0, 1)), (8, 4), (3, 1)) == 4 * 3 + (1 ^ 3)
    assert address(Layout("panels", (0, 3)), (8, 4), (5, 2)) == (1 * 4 + 2) * 3 + 2
    assert allocated(Layout("pad", (1, 3)), (8, 4)) == 56 and allocated(Layout("panels", (0, 3)), (8, 4)) == 36


def test_layout_is_recorded_and_moves_behind_the_slot():
    s = tiled_gemm().cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared")
    s = s.place("acc", "shared").layout("A_shared", "pad", 1, 8).layout("W_shared", "xor", 0, 1)
    assert "A_shared: bf16[16, 8] in shared, pad(1, 8)" in lines(s)
    s = s.pipeline("ko", stages=2)
    assert "A_shared: bf16[2, 16, 8] in shared, pad(2, 8)" in lines(s)
    assert "W_shared: bf16[2, 8, 16] in shared, xor(1, 2)" in lines(s)


def test_layout_refusals():
    s = tiled_gemm().cache_read("A", at="ko", memory="shared")
    for args in (
        ("A_shared", "pad", 2, 8),
        ("A_shared", "pad", 1, 0),
        ("A_shared", "xor", 1, 1),
        ("A", "pad", 0, 1),
        ("acc", "pad", 0, 1),
    ):
        with pytest.raises(ScheduleError):
            s.layout(*args)
    odd = tiled_gemm(block=6).cache_read("A", at="ko", memory="shared")
    with pytest.raises(ScheduleError, match="power of two"):
        odd.layout("A_shared", "xor", 0, 1)


def test_window_of_symbolic_width():
    s = start(conv2d).split("p", 4, into=("po", "pi")).split("q", 4, into=("qo", "qi")).reorder("po", "qo", "pi", "qi")
    s = s.cache_read("X", at="qo", memory="shared")
    assert "X_shared: bf16[C, R + 3, S + 3] in shared" in lines(s)
    assert "for X_shared.1 in 0..min(R + 3, P + R - 4*po - 1):" in lines(s)
    same(s.program, B=2, K=2, C=2, P=5, Q=6, R=3, S=2)


def test_a_cache_inside_a_copy_loop_names_its_own_loops():
    """cache_write at the loop that copies the same buffer out: `A.0` may not stand under `A.0`."""

    @kernel
    def shifted(x: f32[N], A: f32[N]):
        for i in range(N):
            A[i] = x[i]

    s = start(shifted).split("i", 4).cache_write("A", at="i_o", memory="shared")
    again = s.cache_write("A", at="A.0", memory="register", load=False)
    assert "A.0" in again.loops and again.verdict.status == "legal"
    same(again.program, N=11)
