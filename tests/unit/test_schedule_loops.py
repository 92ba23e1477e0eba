"""The loop primitives: the tree each makes, and that what runs is unchanged, at sizes that divide and sizes that do not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.handbuilt import gemm_silu
from tests.unit.schedule_fuzz import band, chain, counts, same, triangle, walk
from tilec.errors import LegalityError, ScheduleError
from tilec.ir.interp import run
from tilec.ir.printer import loop_tree
from tilec.lang.builder import Builder
from tilec.schedule.schedule import Schedule, start
from tilec.workloads.syrk import syrk

SIZES = [1, 2, 3, 4, 5, 7, 9]


def line(extent: int | None = None) -> Schedule:
    """x[i] += 1 over `extent` or N elements: an instance run twice or never shows in the result."""
    b = Builder("line")
    n = b.size("N") if extent is None else extent
    x = b.param("x", "i32", [n])
    with b.loop("i", 0, n) as i:
        b.store(x, [i], "+=", 1)
    return start(b.program())


def shape(s: Schedule) -> list[str]:
    return loop_tree(s.program).splitlines()


def check(s: Schedule) -> None:
    """The scheduled program computes the same at every small size."""
    names = s.program.sizes
    for n in SIZES:
        sizes = {name: n + k for k, name in enumerate(names)}
        assert same(s, sizes), (sizes, str(s))


def points(s: Schedule, n: int) -> list[int]:
    size = {"N": n} if s.program.sizes else {}
    x = {"x": np.zeros(n, np.int32)}
    return run(s.program, x, size)["x"].tolist()


# -- split --------------------------------------------------------------------------------------------------------------


def test_split_bounds_the_last_tile():
    assert shape(line().split("i", 4)) == ["i_o in 0..ceil(N/4)", "  i_i in 0..min(4, N - 4*i_o)", "    S0: x"]


@pytest.mark.parametrize("tail", ["min", "guard", "peel"])
@pytest.mark.parametrize("factor", [1, 3, 4, 100])
def test_split_runs_every_point_once(tail: str, factor: int):
    s = line().split("i", factor, tail=tail)
    assert all(points(s, n) == [1] * n for n in (1, 3, 4, 8, 11))


@pytest.mark.parametrize(("extent", "outer", "inner"), [(100, 48, 32), (14, 8, 16)])
def test_split_of_a_split(extent: int, outer: int, inner: int):
    s = line(extent).split("i", outer).split("i_i", inner)
    assert points(s, extent) == [1] * extent


def test_split_peel_makes_full_tiles_and_a_rest():
    assert shape(line().split("i", 4, tail="peel")) == [
        "i_o in 0..floor(N/4)",
        "  i_i in 0..4",
        "    S0: x",
        "i_i in 0..N % 4",
        "  S0: x",
    ]


def test_split_exact_of_a_tile_of_multiples():
    s = line(72).split("i", 16).split("i_i", 4, tail="exact")
    assert shape(s)[1:3] == ["  i_i_o in 0..min(4, 18 - 4*i_o)", "    i_i_i in 0..4"]
    assert points(s, 72) == [1] * 72
    with pytest.raises(ScheduleError, match="not known to be a multiple of 4"):
        line(70).split("i", 16).split("i_i", 4, tail="exact")


def test_copies_that_a_split_peeled_have_names_that_work():
    b = Builder("copies")
    x, y = b.param("x", "i32", [10, 3]), b.param("y", "i32", [10, 3])
    with b.loop("i", 0, 10) as i, b.loop("j", 0, 3) as j:
        b.store(y, [i, j], "=", x[i, j])
    s = start(b.program()).cache_read("x", at=None, memory="scratch", into="c").split("c.0", 4, into=("a", "b"), tail="peel")
    assert {"c.1#1", "c.1#2"} <= set(s.loops)
    assert shape(s.reorder("c.1#1", "b#1"))[1:3] == ["  c.1 in 0..3", "    b in 0..4"]


def test_split_exact_uses_the_assumption():
    b = Builder("line")
    n = b.size("N", where="N % 64 == 0")
    x = b.param("x", "i32", [n])
    with b.loop("i", 0, n) as i:
        b.store(x, [i], "+=", 1)
    s = start(b.program()).split("i", 32, tail="exact")
    assert shape(s)[1] == "  i_i in 0..32"
    assert points(s, 128) == [1] * 128


def test_split_of_divisible_constants_needs_no_min():
    assert shape(line(12).split("i", 4))[:2] == ["i_o in 0..3", "  i_i in 0..4"]


def test_split_of_a_loop_with_several_bounds():
    check(start(band()).split("j", 3).split("j_i", 2))


# -- reorder ------------------------------------------------------------------------------------------------------------


def test_reorder_derives_triangular_bounds():
    s = start(syrk).reorder("j", "i", "k")
    assert shape(s) == ["j in 0..N", "  i in j..N", "    k in 0..N", "      S0: C"]


def test_reorder_splits_statements_off():
    s = start(gemm_silu()).reorder("k", "acc.i", "acc.j")
    assert shape(s)[:11] == [
        "i in 0..M",
        "  j in 0..N",
        "    S0: acc",
        "k in 0..K",
        "  i in 0..M",
        "    j in 0..N",
        "      S1: acc",
        "i in 0..M",
        "  j in 0..N",
        "    S2: C",
        "i in 0..M",
    ]


def test_reorder_keeps_common_leading_loops():
    s = start(gemm_silu()).split("acc.i", 4).split("acc.j", 4).reorder("i_o", "j_o", "i_i", "j_i")
    assert [t.strip().split(" ")[0] for t in shape(s)][:8] == ["i_o", "j_o", "i_i", "j_i", "S0:", "k", "S1:", "S2:"]


def test_reorder_of_the_order_it_has_changes_nothing():
    s = start(gemm_silu())
    assert s.reorder("acc.i", "acc.j", "k").program == s.program


def test_reorder_moves_a_guard_with_its_variables():
    s = start(triangle()).split("j", 2, tail="guard").reorder("j_i", "j_o", "i")
    assert s.loops == ("j_i", "j_o", "i")
    check(s)


def test_reorder_grows_a_placed_buffer():
    s = start(gemm_silu()).place("acc", "register").split("k", 2).reorder("k_o", "acc.i", "acc.j", "k_i")
    acc = s.program.buffer["acc"]
    assert acc.owner is None and [str(e) for e in acc.shape] == ["M", "N"] and acc.memory == "register"
    assert s.verdict.status == "legal"


def test_reorder_of_one_tile_keeps_the_cell_in_its_tile():
    s = start(gemm_silu()).place("acc", "register").split("acc.i", 4).split("acc.j", 4)
    s = s.split("k", 2).reorder("i_o", "j_o", "k_o", "i_i", "j_i", "k_i")
    acc = s.program.buffer["acc"]
    assert acc.owner == "j_o" and [str(e) for e in acc.shape] == ["4", "4"]


# -- the others ---------------------------------------------------------------------------------------------------------


def test_tile_nests_all_tile_loops_outside():
    s = start(triangle()).tile(("i", "j"), (2, 3), into=(("io", "ii"), ("jo", "ji")))
    assert s.loops == ("io", "jo", "ii", "ji")
    check(s)


def test_fuse_numbers_the_iterations():
    b = Builder("grid")
    n = b.size("N")
    x = b.param("x", "i32", [n, 8])
    with b.loop("i", 0, n) as i, b.loop("j", 0, 8) as j:
        b.store(x, [i, j], "+=", 1)
    s = start(b.program()).fuse("i", "j", into="t")
    assert shape(s) == ["t in 0..8*N", "  S0: x"]
    assert "x[floor(t/8), t % 8] += 1" in str(s)
    check(s)


def test_fuse_pads_a_partial_tile_with_a_guard():
    s = line().split("i", 4).fuse("i_o", "i_i")
    assert shape(s)[0] == "i_o_i_i in 0..4*ceil(N/4)"
    assert all(points(s, n) == [1] * n for n in (1, 4, 6))


def test_fused_loop_owns_what_the_inner_owned():
    s = start(gemm_silu(), {"M": 3, "N": 4, "K": 5}).place("acc", "register").fuse("acc.i", "acc.j", into="t")
    assert s.program.buffer["acc"].owner == "t" and s.program.buffer["acc"].shape == ()


@pytest.mark.parametrize("end", ["front", "back"])
@pytest.mark.parametrize("n", [1, 3])
def test_peel(end: str, n: int):
    s = line().peel("i", n, end=end)
    assert len(shape(s)) == 4
    assert all(points(s, m) == [1] * m for m in (1, 2, 3, 4, 9))


def test_peel_of_a_whole_constant_loop_leaves_one():
    assert shape(line(3).peel("i", 3)) == ["i in 0..3", "  S0: x"]


def test_skew_shift_reverse_renumber():
    s = start(triangle()).skew("j", by="i").shift("i", 3).reverse("j")
    assert shape(s)[0] == "i in 3..N + 3"
    check(s)
    check(start(band()).reverse("j").skew("j", by="i", factor=-2))


def test_distribute_gives_every_statement_a_loop():
    s = start(counts()).distribute("acc.i")
    assert [t for t in shape(s) if not t.startswith(" ")] == ["i in 0..N"] * 4
    check(s)


def test_distribute_in_two():
    s = start(counts()).distribute("acc.i", at="S2")
    assert [t for t in shape(s) if not t.startswith(" ")] == ["i in 0..N"] * 2
    assert s.loops == ("acc.i", "j", "k", "C.i")


def test_fuse_siblings_guards_the_shorter():
    s = start(chain()).fuse_siblings("i", "p")
    assert shape(s) == ["i in 0..N + 3", "  S0: B", "  S1: C"]
    assert "if i < N:" in str(s)
    check(s)


def test_fuse_siblings_of_8_and_12_runs_12():
    b = Builder("two")
    x, y = b.param("x", "i32", [8]), b.param("y", "i32", [12])
    with b.loop("i", 0, 8) as i:
        b.store(x, [i], "+=", 1)
    with b.loop("i", 0, 12) as i:
        b.store(y, [i], "+=", 1)
    s = start(b.program()).fuse_siblings("x.i", "y.i")
    assert shape(s)[0] == "i in 0..12"
    check(s)


def test_fuse_siblings_renames_around_an_inner_loop_of_that_name():
    b = Builder("names")
    n = b.size("N")
    x, y = b.param("x", "i32", [n]), b.param("y", "i32", [n, n])
    with b.loop("i", 0, n) as i:
        b.store(x, [i], "+=", 1)
    with b.loop("j", 0, n) as j, b.loop("i", 0, n) as i:
        b.store(y, [j, i], "+=", 1)
    s = start(b.program()).fuse_siblings("x.i", "j")
    assert s.loops == ("j", "i")
    check(s)


def test_reorder_siblings_exchanges():
    s = start(chain()).reorder_siblings("i", "p")
    assert s.loops == ("p", "i")
    check(s)


def test_unroll_marks_several():
    s = line().split("i", 8).split("i_i", 2).unroll(("i_i_o", "i_i_i"))
    assert [t.split("# ")[-1] for t in shape(s)[1:3]] == ["unrolled", "unrolled"]


# -- the proof sees what these rewrites do --------------------------------------------------------------------------------


def diagonal() -> Schedule:
    """a[i, j] = a[i-1, j+1] + 1."""
    b = Builder("diagonal")
    n = b.size("N")
    a = b.param("a", "f32", [n + 1, n + 1])
    with b.loop("i", 1, n + 1) as i, b.loop("j", 0, n) as j:
        b.store(a, [i, j], "=", a[i - 1, j + 1] + 1)
    return start(b.program())


@pytest.mark.parametrize("factors", [(2, 2), (4, 1)])
def test_tiles_against_a_dependence_are_refused(factors: tuple[int, int]):
    with pytest.raises(LegalityError) as e:
        diagonal().tile(("i", "j"), factors)
    assert e.value.witness is not None and e.value.witness.kind == "flow"


def test_skewed_tiles_are_legal():
    check(diagonal().tile(("i", "j"), (1, 4)))
    check(diagonal().skew("j", by="i").tile(("i", "j"), (3, 2)))


@pytest.mark.parametrize("kernel", ["triangle", "band", "counts", "chain"])
@pytest.mark.parametrize("seed", range(6))
def test_random_steps_where_every_order_is_legal(kernel: str, seed: int):
    s, refused = walk(kernel, seed, steps=5, tries=25)
    assert not refused, refused[0]
    assert len(s.trace) >= 2
    for n in (1, 2, 5):
        sizes = {name: n + k for k, name in enumerate(s.program.sizes)}
        assert same(s, sizes), (s.trace, sizes)


def test_tile_may_keep_names_that_stand_elsewhere_too():
    s = start(gemm_silu()).tile(("Y.i", "Y.j"), (4, 4), into=(("i", "ii"), ("j", "jj")))
    assert s.loops == ("acc.i", "acc.j", "k", "Y.i", "Y.j", "ii", "jj")
    assert s.verdict.status == "legal"
