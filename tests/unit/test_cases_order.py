"""Known miscompilations of public scheduling compilers, order and storage; facts restated: the verdict is the mathematics."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.property.brute import Machine
from tests.unit.cases import legal, refused, scheduled
from tilec.errors import ScheduleError
from tilec.ir.printer import text
from tilec.lang import f32, kernel, sizes
from tilec.schedule.schedule import Schedule
from tilec.workloads.blur import blur
from tilec.workloads.syrk import syrk

M, N, K = sizes("M N K")


@kernel
def case1(a: f32[4], s: f32[1]):
    for i in range(4):
        s[0] += a[1]
    for p in range(4):
        a[p] = 2 * p


@kernel
def diagonal(a: f32[N + 1, N + 1]):
    for i in range(1, N + 1):
        for j in range(N):
            a[i, j] = a[i - 1, j + 1] + 1


@kernel
def backwards(x: f32[N], f: f32[N], g: f32[N]):
    for i in range(N):
        f[i] = x[i]
    for i in range(N):
        g[i] = f[N - 1 - i]


@kernel
def transposed(A: f32[N, N], B: f32[N, N]):
    for i in range(N):
        for j in range(N):
            B[i, j] = A[j, i]
    for i in range(N):
        for j in range(N):
            A[i, j] = 2 * A[i, j]


@kernel
def overwritten(P: f32[N + 2], X: f32[N]):
    for i in range(N + 2):
        P[i] = 0
    for i in range(N):
        P[i + 1] = X[i]


@kernel
def last_value(x: f32[N], y: f32[N]):
    t: f32 = 0
    for i in range(N):
        t = x[i]
    for j in range(N):
        y[j] = t + j


@kernel
def total100(x: f32[100], s: f32[1]):
    for i in range(100):
        s[0] += x[i]


@kernel
def total14(x: f32[14], s: f32[14]):
    for i in range(14):
        s[i] += x[i]


@kernel
def sum10(x: f32[10], y: f32[1]):
    acc: f32 = 0
    for k in range(10):
        acc += x[k]
    y[0] = acc


@kernel
def ikj(a: f32[M, K], b: f32[K, N], c: f32[M, N]):
    for i in range(M):
        for k in range(K):
            for j in range(N):
                c[i, j] += a[i, k] * b[k, j]


@kernel
def eight_twelve(x: f32[8], y: f32[12]):
    for i in range(8):
        x[i] = 1
    for j in range(12):
        y[j] = 2


@kernel
def sum48(x: f32[48], y: f32[1]):
    acc: f32 = 0
    for k in range(48):
        acc += x[k]
    y[0] = acc


@kernel
def constant(a: f32[N]):
    for i in range(N):
        for j in range(N):
            a[i] = 5


@kernel
def two_readers(x: f32[N], u: f32[N], v: f32[N]):
    t: f32[N]
    for i in range(N):
        t[i] = x[i] + 1
    for i in range(N):
        u[i] = t[i]
    for i in range(N):
        v[i] = 2 * t[i]


def executed(s: Schedule, **at: int) -> Counter:
    return Machine(s.program, at, frozenset()).executed


def test_01_merging_past_an_overwrite() -> None:
    witness = refused(scheduled(case1), "fuse_siblings", "i", "p")
    assert witness.kind == "anti"
    assert witness.element == "a[1]"
    # a[1] is overwritten at p=1; the first reader after that is i=2
    assert (witness.source, witness.sink) == ("S0[2]", "S1[1]")


@pytest.mark.parametrize("factors", [(2, 2), (3, 1), (2, 1)])
def test_02_tiling_the_diagonal(factors: tuple[int, int]) -> None:
    witness = refused(scheduled(diagonal), "tile", ("i", "j"), factors)
    assert witness.kind == "flow"


def test_02_one_row_and_skewed_tiles_are_legal() -> None:
    legal(scheduled(diagonal).tile(("i", "j"), (1, 3)), {"N": 4}, {"N": 7})
    legal(scheduled(diagonal).skew("j", by="i").tile(("i", "j"), (2, 3)), {"N": 4}, {"N": 7})


def test_03_unroll_and_jam() -> None:
    """Unroll-and-jam of i by 2 is split i, then its inner loop innermost."""
    s = scheduled(diagonal).split("i", 2, into=("io", "ii"))
    assert refused(s, "reorder", "io", "j", "ii").kind == "flow"


def test_04_merging_against_a_reversed_reader_names_the_sizes() -> None:
    witness = refused(scheduled(backwards), "fuse_siblings", "f.i", "g.i")
    assert (witness.kind, witness.sizes) == ("flow", {"N": 2})
    legal(scheduled(backwards, N=1).fuse_siblings("f.i", "g.i"))


def test_05_merging_a_transpose_with_its_update() -> None:
    s = scheduled(transposed)
    witness = refused(s, "fuse_siblings", "B.i", "A.i")
    assert (witness.kind, witness.sizes) == ("anti", {"N": 2})


def test_06_exchanging_writers_loses_a_value() -> None:
    witness = refused(scheduled(overwritten), "reorder_siblings", "S0.i", "S1.i")
    assert witness.kind in ("lost value", "output")
    assert "P[1]" in witness.text and "S1[0]" in witness.text
    assert witness.sizes == {"N": 1}


def test_07_a_value_that_must_be_the_last_one() -> None:
    s = scheduled(last_value)
    assert refused(s, "fuse_siblings", "i", "j").sizes == {"N": 2}
    legal(s.place("t", "register"), {"N": 1}, {"N": 5})


def test_08_splits_that_do_not_divide() -> None:
    s = scheduled(total100).split("i", 48, into=("io", "ii")).split("ii", 32, into=("im", "in_"))
    legal(s)
    assert executed(s) == Counter({("S0", (i,)): 1 for i in range(100)})


def test_09_inner_split_beyond_the_extent() -> None:
    s = scheduled(total14).split("i", 8, into=("io", "ii")).split("ii", 16, into=("im", "in_"))
    legal(s)
    assert executed(s) == Counter({("S0", (i,)): 1 for i in range(14)})


def test_10_split_reduction_needs_the_permission() -> None:
    refused(scheduled(sum10).split("k", 4, into=("ko", "ki")), "split_reduction", "acc", "ki")
    s = scheduled(sum10, reassociate="acc").split("k", 4, into=("ko", "ki")).split_reduction("acc", "ki")
    legal(s, bits=False)
    assert s.check().permissions == ('reassociate="acc"',)
    assert sum(n for (name, _), n in executed(s).items() if name == "S1") == 10


def test_11_accumulator_tile_and_its_old_value() -> None:
    small = ({"M": 2, "N": 2, "K": 3}, {"M": 1, "N": 3, "K": 1})
    legal(scheduled(ikj).cache_write("c", at="i", memory="register"), *small)
    assert refused(scheduled(ikj), "cache_write", "c", "k", "register", load=False).kind == "lost value"
    legal(scheduled(ikj).cache_write("c", at="k", memory="register", load=True), *small)


def test_12_triangular_reorder() -> None:
    s = scheduled(syrk).reorder("j", "i", "k")
    legal(s, {"N": 1}, {"N": 4})
    assert "for j in 0..N:" in text(s.program) and "for i in j..N:" in text(s.program)


def test_13_merging_unequal_extents_drops_nothing() -> None:
    s = legal(scheduled(eight_twelve).fuse_siblings("x.i", "y.j"))
    assert len(executed(s)) == 8 + 12
    assert "12" in text(s.program)


def test_14_lanes_of_a_sum() -> None:
    s = scheduled(sum48, reassociate="acc").split("k", 32, into=("ko", "lane")).split_reduction("acc", "lane")
    legal(s, bits=False)
    assert sum(n for (name, _), n in executed(s).items() if name == "S1") == 48


def test_15_the_last_writer_stays() -> None:
    legal(scheduled(constant).reorder("j", "i"), {"N": 1}, {"N": 3})


def test_16_blur_recomputes_its_halo() -> None:
    s = scheduled(blur).tile(("Y.i", "Y.j"), (2, 2), into=(("io", "ii"), ("jo", "ji"))).compute_at("H", "jo")
    legal(s, {"M": 3, "N": 5}, {"M": 1, "N": 1})
    again = executed(s, M=4, N=4)
    # four 2x2 tiles need 4x2 of H each, 32 in all, of which H has 6x4
    assert sum(n for (name, _), n in again.items() if name == "S0") == 32
    assert "S0" in str(s.check())


def test_17_compute_at_must_enclose_every_reader() -> None:
    with pytest.raises(ScheduleError) as caught:
        scheduled(two_readers).compute_at("t", "u.i")
    assert "legal" in str(caught.value)
