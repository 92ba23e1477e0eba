"""compute_inline, compute_at and their relatives: the rewritten text, and the same values at odd sizes."""

from __future__ import annotations

import pytest

from tests.unit.scheduled import same
from tilec.errors import LegalityError
from tilec.ir.printer import text
from tilec.lang import f32, kernel, sizes
from tilec.schedule.schedule import Schedule, start
from tilec.workloads.attention import attention
from tilec.workloads.blur import blur
from tilec.workloads.gemm_silu import gemm_silu
from tilec.workloads.rowquant import rowquant
from tilec.workloads.rowquant_gemm import rowquant_gemm
from tilec.workloads.swiglu import swiglu

N = sizes("N")


def body(s: Schedule) -> list[str]:
    """The lines of the program without its header and declarations of the program."""
    return text(s.program).split("\n\n", 1)[1].splitlines()


def tiled(s: Schedule, buffer: str, a: int, b: int) -> Schedule:
    s = s.split(f"{buffer}.i", a, into=("io", "ii")).split(f"{buffer}.j", b, into=("jo", "ji"))
    return s.reorder("io", "jo", "ii", "ji")


@kernel
def chain(x: f32[N], y: f32[N]):
    a: f32[N + 2]
    b: f32[N]
    for i in range(N + 2):
        a[i] = i * 0.5
    for i in range(N):
        b[i] = a[i] + a[i + 2] * x[i]
    for i in range(N):
        y[i] = b[i] * 3


def test_inline_keeps_the_rounding():
    s = start(gemm_silu).compute_inline("C")
    assert body(s)[-1].strip() == "Y[i, j] = bf16(silu(bf16(acc[i, j])))  # S3"
    assert "C" not in s.program.buffer and s.program.recomputed == frozenset()
    same(s.program, M=7, N=3, K=5)


def test_inline_of_an_inlined_statement():
    s = start(chain).compute_inline("a").compute_inline("b")
    assert body(s) == ["for i in 0..N:", "    y[i] = ((f32(i) * 0.5) + (f32(i + 2) * 0.5) * x[i]) * 3  # S2"]
    assert s.program.recomputed == {"S0"}  # a[i] feeds two readers, b[i] one
    same(s.program, N=9)
    again = start(chain).compute_inline("b").compute_inline("a")
    assert again.program == s.program


def test_inline_of_a_strided_and_mirrored_producer():
    @kernel
    def spread(x: f32[N], y: f32[N]):
        t: f32[4 * N]
        for i in range(N):
            t[4 * N - 1 - 4 * i] = x[i]
        for i in range(N):
            y[i] = t[4 * i + 3]

    s = start(spread).compute_inline("t")
    assert body(s) == ["for i in 0..N:", "    y[i] = x[N - i - 1]  # S1"] and s.program.recomputed == frozenset()
    same(s.program, N=5)


def test_compute_at_a_tile():
    s = tiled(start(gemm_silu).compute_inline("C"), "Y", 64, 32).compute_at("acc", "jo")
    assert body(s)[2:7] == [
        "        for i in 0..min(64, M - 64*io):",
        "            for j in 0..min(32, N - 32*jo):",
        "                acc[64*io + i, 32*jo + j] = 0  # S0",
        "                for k in 0..K:",
        "                    acc[64*io + i, 32*jo + j] += A[64*io + i, k] * W[k, 32*jo + j]  # S1",
    ]
    assert s.program.recomputed == frozenset()
    same(s.program, M=70, N=33, K=5)
    back = s.compute_root("acc")
    assert back.program == tiled(start(gemm_silu).compute_inline("C"), "Y", 64, 32).program


def test_halo_is_recomputed_within_the_domain():
    s = tiled(start(blur), "Y", 8, 4).compute_at("H", "jo")
    assert body(s)[2:4] == ["        for i in 0..min(10, M - 8*io + 2):", "            for j in 0..min(4, N - 4*jo):"]
    assert s.program.recomputed == {"S0"} and s.verdict.status == "legal" and s.verdict.recomputed == ("S0",)
    same(s.program, M=17, N=9)
    assert s.compute_root("H").program.recomputed == frozenset()


def test_what_is_inlined_in_a_recomputed_statement_is_recomputed():
    @kernel
    def stages(x: f32[N + 2], y: f32[N]):
        a: f32[N + 2]
        b: f32[N + 2]
        for i in range(N + 2):
            a[i] = x[i] * 2
        for i in range(N + 2):
            b[i] = a[i] + 1
        for i in range(N):
            y[i] = b[i] + b[i + 2]

    s = start(stages).compute_inline("a")
    assert s.program.recomputed == frozenset()
    assert s.compute_inline("b").program.recomputed == {"S0", "S1"}
    s = s.split("y.i", 4).compute_at("b", "i_o")
    assert s.program.recomputed == {"S0", "S1"}
    same(s.program, N=7)


def test_halo_clipped_at_both_ends():
    @kernel
    def window(x: f32[N], y: f32[N]):
        t: f32[N]
        for i in range(N):
            t[i] = x[i] * 2
        for i in range(N):
            s: f32 = t[i]
            if i >= 1:
                s += t[i - 1]
            if i < N - 1:
                s += t[i + 1]
            y[i] = s

    s = start(window).split("y.i", 4).compute_at("t", "i_o").place("t", "shared")
    assert body(s)[1:4] == [
        "    t: f32[6] in shared",
        "    for i in max(0, 1 - 4*i_o)..min(6, N - 4*i_o + 1):",
        "        t[i] = x[4*i_o + i - 1] * 2  # S0",
    ]
    for n in (1, 3, 4, 5, 9):
        same(s.program, N=n)


def test_several_readers_at_different_places():
    @kernel
    def two(x: f32[N], y: f32[N], z: f32[N]):
        t: f32[N]
        for i in range(N):
            t[i] = x[i] + 1
        for i in range(N):
            y[i] = t[i]
        for i in range(N):
            z[i] = t[N - 1 - i]

    s = start(two)
    with pytest.raises(Exception, match="does not enclose every reader"):
        s.compute_at("t", "y.i")


def test_recomputed_operand():
    s = tiled(start(rowquant_gemm), "Y", 16, 8).split("acc.k", 4, into=("ko", "ki")).reorder("ko", "ii", "ji", "ki")
    s = s.place("acc", "shared").compute_at("Q", "ko").place("Q", "shared").cache_read("S", at="jo", memory="shared")
    assert s.program.recomputed == {"S3"}
    assert [str(e) for e in s.program.buffer["Q"].shape] == ["16", "4"]
    same(s.program, M=33, N=17, K=9)


def test_producer_chain_moves_with_its_register():
    s = start(rowquant).split("Q.i", 8, into=("io", "ii")).compute_at("S", "io")  # an output: the tiles write all of it
    assert body(s)[1:3] == ["    for i in 0..min(8, M - 8*io):", "        m: f32 in register"]
    assert s.program.buffer["m"].owner == "i" and s.program.recomputed == frozenset()
    same(s.program, M=11, K=5)


def test_silu_inside_the_k_block_loop_is_illegal():
    s = start(gemm_silu).compute_inline("C").split("Y.i", 8, into=("io", "ii")).compute_at("acc", "io")
    s = s.split("acc.k", 4, into=("ko", "ki")).reorder("ko", "i", "acc.j", "ki")
    with pytest.raises(LegalityError) as e:
        s.reverse_compute_at("Y", "ko")
    assert e.value.witness is not None


def test_reverse_compute_at():
    s = tiled(start(gemm_silu), "C", 8, 4).reverse_compute_at("Y", "jo")
    assert body(s)[-3:] == [
        "        for i in 0..min(8, M - 8*io):",
        "            for j in 0..min(4, N - 4*jo):",
        "                Y[8*io + i, 4*jo + j] = bf16(silu(C[8*io + i, 4*jo + j]))  # S3",
    ]
    assert s.program.recomputed == frozenset()
    s = s.place("C", "shared")
    same(s.program, M=19, N=9, K=3)
    with pytest.raises(LegalityError):
        start(chain).split("a.i", 4).reverse_compute_at("b", "i_o")  # b needs two neighbours: one is not there yet


def test_swiglu_fused():
    s = start(swiglu).compute_inline("G").compute_inline("U")
    s = tiled(s, "Y", 16, 8).compute_at("g", "jo").compute_at("u", "jo").place("g", "register").place("u", "register")
    assert s.program.recomputed == frozenset()
    same(s.program, M=17, N=9, K=5)


def test_attention_rows_in_a_block():
    s = start(attention).split("O.i", 4, into=("io", "ii")).compute_at("P", "io").compute_at("S", "io")
    s = s.place("S", "shared").place("E", "shared").place("P", "shared")
    assert s.program.recomputed == frozenset()
    same(s.program, {"scale": 0.5}, M=9, N=5, D=3)


def test_a_tile_of_a_fused_loop():
    s = start(gemm_silu, {"N": 8}).compute_inline("C").fuse("Y.i", "Y.j", into="f").split("f", 16, into=("fo", "fi"))
    s = s.compute_at("acc", "fo").place("acc", "shared")
    assert "    acc: f32[2, 8] in shared" in body(s) and "    for i in 0..min(2, M - 2*fo):" in body(s)
    same(s.program, M=5, K=3)
    s = start(gemm_silu, {"N": 8}).compute_inline("C").fuse("Y.i", "Y.j", into="f").split("f", 4, into=("fo", "fi"))
    s = s.compute_at("acc", "fo").place("acc", "shared")
    assert "    acc: f32[4] in shared" in body(s)
    same(s.program, M=3, K=3)


def test_a_tile_of_a_reversed_loop():
    s = start(blur).reverse("Y.i").split("Y.i", 4, into=("io", "ii")).compute_at("H", "io").place("H", "shared")
    assert "    H: f32[6, N] in shared" in body(s)
    same(s.program, M=9, N=3)


def test_every_fourth_row():
    s = start(blur).split("Y.i", 4, into=("io", "ii")).reorder("ii", "io").compute_at("H", "ii").place("H", "shared")
    assert s.program.recomputed == {"S0"}
    same(s.program, M=9, N=3)
