"""What CPU schedules add, compiled: packing at the first use, specialised tiles, teams, prefetches, streaming stores, digits,
machine instructions with their plain form, arrays packed ahead of the call. The bits of the loops as written."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilec
from tests.numeric.compiled import assert_same, function, inputs, needs_compiler
from tests.unit.test_cpu_recipes import ZEN4
from tests.unit.test_schedule_cpu import ODD, dots, fused, halves, integers, packed, product, tiles, two
from tilec.codegen import c_source
from tilec.errors import LanguageError, ScheduleError
from tilec.ir import interp
from tilec.lang import bf16, f32, i8, kernel, sizes
from tilec.runtime import c_build, c_callable
from tilec.runtime.bound import bounds
from tilec.runtime.c_pack import Packed
from tilec.schedule.schedule import Schedule, start
from tilec.search.cpu import pick
from tilec.search.cpu_operands import Blocks

pytestmark = needs_compiler
M, N, K = sizes("M N K")


@kernel
def rounded(X: f32[M, N], Y: bf16[M, N], Z: i8[M, N]):
    for i in range(M):
        for j in range(N):
            Y[i, j] = X[i, j]
    for i in range(M):
        for j in range(N):
            Z[i, j] = X[i, j] * 3


def vectors(s: Schedule) -> Schedule:
    rows = tuple(v for v in s.loops if v.endswith("ii"))
    s = s.vectorize(tuple(v for v in s.loops if v.endswith("jl")))
    return s.unroll(rows) if rows else s


SCHEDULES = {
    "tiles": lambda: vectors(tiles()),
    "packed": lambda: vectors(packed()),
    "fill_at": lambda: vectors(packed().fill_at("W_scratch", "jr")).parallel("jc"),
    "prefetch": lambda: vectors(packed().prefetch("A", "k", distance=4)),
    "huge pages": lambda: packed().allocate("W_scratch", align=4096, pages="huge"),
    "streaming": lambda: vectors(packed().store("Y")).parallel("jc"),
    "digits": lambda: vectors(
        tiles().cache_read("W", at="jc", memory="scratch").layout("W_scratch", "digits", ((1, 8, 0), (0, 1, 0), (1, 1, 8)))
    ),
}


@pytest.mark.parametrize("numbers", [(24, 64, 9), (13, 64, 5), (12, 77, 8), (13, 86, 7), (2, 7, 3), (1, 1, 1), (25, 40, 2)])
def test_tiles_that_a_number_cuts_have_no_condition_inside(numbers: tuple[int, int, int], tmp_path: Path) -> None:
    """Full tiles, those cut by the end of the rows, of the columns, and of both: as many lanes and rows as are there."""
    chosen = dict(zip("MNK", numbers, strict=True))
    picked = pick(product.program, ZEN4, {"Y": Blocks(4, 32, 32)}, sizes=chosen)
    compiled = function(picked.schedule.program, tmp_path, vector_bytes=64)
    assert_same(picked.schedule.program, compiled, {}, seed=3)
    text = c_source.emit(picked.schedule.program, 64)
    loops = [part.split("\n}")[0] for part in text[text.index("void tilec_product") :].split("for (i64 k = 0")[1:]]
    assert loops and all("min_i(" not in part for part in loops)


def blocks(numbers: dict[str, int] | None = None) -> Schedule:
    """Blocks of 12 rows, tiles of 4 rows in them, all written out."""
    s = start(product, sizes=numbers or {}).split("i", 12, into=("ic", "ix")).split("ix", 4, into=("io", "ii"))
    s = s.split("j", 8, into=("jo", "jl")).reorder("ic", "io", "jo", "ii", "jl").place("acc", "register", at="jo")
    return vectors(s.reorder("k", "S1.ii", "S1.jl"))


@pytest.mark.parametrize("rows", [48, 50, 45, 41, 12, 3])
def test_rows_that_always_exist_are_not_tested(rows: int, tmp_path: Path) -> None:
    """What the loops around say of a tile: how many rows the last one has."""
    numbers = {"M": rows, "N": 24, "K": 5}
    s = blocks(numbers)
    text = c_source.emit(s.program)
    assert not re.findall(r"if \(.*\) \{  // ii = ", text)
    assert (f"the last {rows % 4} of ii" in text) == (rows % 4 > 0 and rows > 4)
    assert_same(s.program, function(s.program, tmp_path), {}, rows, reference=s.program.source)


def test_the_first_row_and_lane_of_a_tile_always_exist(tmp_path: Path) -> None:
    s = blocks()
    text = c_source.emit(s.program)
    assert "// ii = 0" not in text and "{  // ii = 1" in text and "> 0) {" not in text[text.index("void tilec_product(") :]
    compiled = function(s.program, tmp_path)
    for seed, numbers in enumerate((*ODD, {"M": 24, "N": 8, "K": 3}, {"M": 26, "N": 7, "K": 1}, {"M": 13, "N": 9, "K": 2})):
        assert_same(s.program, compiled, numbers, seed, reference=s.program.source)


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_schedules_of_a_product(name: str, tmp_path: Path) -> None:
    s, width = SCHEDULES[name](), {"tiles": 16, "packed": 64}.get(name, 32)
    compiled = function(s.program, tmp_path, vector_bytes=width)
    for seed, numbers in enumerate(ODD):
        assert_same(s.program, compiled, numbers, seed, reference=s.program.source)


def test_specialised_tiles_keep_the_register_variables(tmp_path: Path) -> None:
    s = vectors(packed()).specialise("jr", ("S0.ii", "S0.jl"))
    text = c_source.emit(s.program)
    assert "f32x8 acc_0_0" in text and "acc[" not in text[text.index("*/") :]
    compiled = function(s.program, tmp_path)
    for seed, numbers in enumerate(ODD):
        assert_same(s.program, compiled, numbers, seed, reference=s.program.source)


@pytest.mark.parametrize("columns", [16, 48, 64])
def test_accumulators_below_a_loop_of_one_iteration_are_variables(columns: int, tmp_path: Path) -> None:
    s = pick(product.program, ZEN4, sizes={"M": 40, "N": columns, "K": 20}, threads=1).schedule
    text = c_source.emit(s.program, 64)
    assert "for jc in 0..1:  # parallel" in str(s) and "acc[" not in text[text.index("*/") :]
    assert_same(s.program, function(s.program, tmp_path, vector_bytes=64), {}, reference=s.program.source)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_lanes_that_a_write_keeps_hold_something_before(width: int, tmp_path: Path) -> None:
    """A compiler takes a variable that was never written for anything, and then also the lanes written beside it."""
    p = pick(tilec.workload("rowquant_gemm").program, ZEN4).schedule.program
    text = c_source.emit(p, width)
    assert re.search(r"m_part_0 = \{0\}, ", text)
    compiled = function(p, tmp_path, vector_bytes=width)
    for seed, k in enumerate((3, 31, 33, 64, 70)):
        assert_same(p, compiled, {"M": 7, "N": 70, "K": k}, seed)


@tilec.kernel
def added(X: f32[M, N], Y: f32[M, N], Z: i8[M, N]):
    for i in range(M):
        for j in range(N):
            Y[i, j] += X[i, j]
    for i in range(M):
        for j in range(N):
            Z[i, j] = X[i, j]


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("lanes", [3, 11, 22, 48])
def test_whole_tiles_of_an_odd_width_end_where_they_end(lanes: int, width: int, tmp_path: Path) -> None:
    """Not at the next power of two: what is added behind would be added twice, or lie behind the array."""
    s = start(added.program)
    for nest in ("Y", "Z"):
        s = s.split(f"{nest}.j", lanes, into=(f"{nest}o", f"{nest}l")).vectorize(f"{nest}l")
    compiled = function(s.program, tmp_path, vector_bytes=width)
    for seed, n in enumerate((lanes, 2 * lanes, 2 * lanes + 1, 3 * lanes - 1)):
        assert_same(s.program, compiled, {"M": 3, "N": n}, seed)
    p = start(product.program).split("j", lanes, into=("jo", "jl")).place("acc", "register", at="jo").distribute("jl")
    p = p.reorder("S1.k", "S1.jl").vectorize(("S0.jl", "S1.jl", "S2.jl"))
    compiled = function(p.program, tmp_path, vector_bytes=width)
    for seed, n in enumerate((lanes, 2 * lanes, 2 * lanes + 1, 3 * lanes - 1)):
        assert_same(p.program, compiled, {"M": 3, "N": n, "K": 5}, seed)


def test_a_team_is_one_parallel_region(tmp_path: Path) -> None:
    s = start(two).parallel(("S0.i", "S1.i")).team("S0.i", "S1.i")
    text = c_source.emit(s.program)
    assert text.count("#pragma omp parallel") == 1 and text.count("#pragma omp for") == 2
    compiled = function(s.program, tmp_path)
    for seed in range(5):
        assert_same(s.program, compiled, {"M": 33, "N": 7}, seed, threads=2)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_streaming_stores_of_every_width(width: int, tmp_path: Path) -> None:
    s = start(rounded).split("S0.j", 64, into=("a", "jl")).split("S1.j", 64, into=("b", "jm"))
    s = s.vectorize(("jl", "jm")).store("Y").store("Z").parallel("S0.i")
    text = c_source.emit(s.program, width)
    assert "stream_u16x" in text and "stream_fence();" in text
    compiled = function(s.program, tmp_path, vector_bytes=width)
    for seed, (m, n) in enumerate(((1, 1), (3, 64), (5, 131), (2, 200))):
        assert_same(s.program, compiled, {"M": m, "N": n}, seed)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_no_streaming_store_stands_between_the_steps_of_a_vector_loop(width: int, tmp_path: Path) -> None:
    """It is a branch, which would keep the compiler from interleaving the vectors before and behind it."""
    s = start(rounded, sizes={"M": 3, "N": 256}).split("S0.j", 128, into=("a", "jl")).split("S1.j", 128, into=("b", "jm"))
    s = s.vectorize(("jl", "jm")).store("Y").store("Z").parallel(("S0.i", "S1.i"))
    calls = [line.split("(")[0].split()[-1] for line in c_source.emit(s.program, width).splitlines() if line.startswith(" " * 16)]
    stores = [n for n, call in enumerate(calls) if call.startswith("stream_")]
    gaps = [b - a for a, b in pairwise(stores)]
    assert len(stores) == 128 * 3 // width and sum(gap > 1 for gap in gaps) == 1  # between the two loops
    assert_same(s.program, function(s.program, tmp_path, vector_bytes=width), {}, 0)


def test_sums_of_integer_pairs_are_exact(tmp_path: Path) -> None:
    for width in (16, 32, 64):
        s = dots(integers, "i8", 8, False).instruction("S1.jl", "vpmaddwd")
        assert "vpmaddwd_i32x" in c_source.emit(s.program, width)
        compiled = function(s.program, tmp_path, vector_bytes=width)
        for seed, m in enumerate((1, 3, 20)):
            assert_same(s.program, compiled, {"M": m}, seed, reference=s.program.source)
        s = dots(integers, "i8", 16, False).instruction("S1.jl", "vpdpwssd")
        assert_same(s.program, function(s.program, tmp_path, vector_bytes=width), {"M": 3}, 1)


def test_bf16_pairs_are_the_fused_sum_in_order(tmp_path: Path) -> None:
    """vdpbf16ps over pairs laid out backwards, in its plain form: each product added with one rounding, in the loop's order."""
    s = dots(halves, "bf16", 16, True, contract=True, hardware_rounding=True).instruction("S1.jl", "vdpbf16ps")
    for width in (16, 32, 64):
        assert "vdpbf16ps_f32x" in c_source.emit(s.program, width)
        compiled = function(s.program, tmp_path, vector_bytes=width)
        rng = np.random.default_rng(width)
        a, w = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((5, 8), (8, 32)))
        y = np.zeros((5, 32), np.float32)
        compiled.raw({"A": a, "W": w, "Y": y}, {"M": 5}, {}, 1)()
        want = np.zeros((5, 32), np.float32)
        for k in range(8):  # a product of two bf16 is exact in f64, and so is its sum with an f32 here
            want = (want.astype(np.float64) + a[:, k : k + 1].astype(np.float64) * w[k].astype(np.float64)).astype(np.float32)
        assert (y.view(np.uint32) == want.view(np.uint32)).all()
    other = dots(halves, "bf16", 16, False, contract=True, hardware_rounding=True, reassociate="acc")
    compiled = function(other.instruction("S1.jl", "vdpbf16ps").program, tmp_path)
    compiled.raw({"A": a, "W": w, "Y": y}, {"M": 5}, {}, 1)()
    assert (y != want).any(), "pairs that are not turned round are added in another order"


def test_a_fused_multiply_add_rounds_once(tmp_path: Path) -> None:
    s = fused().instruction("S1.jl", "vfmadd231ps")
    compiled = function(s.program, tmp_path)
    rng = np.random.default_rng(3)
    a, w = rng.standard_normal((5, 9)).astype(np.float32), rng.standard_normal((9, 20)).astype(np.float32)
    y = np.zeros((5, 20), np.float32)
    compiled.raw({"A": a, "W": w, "Y": y}, {"M": 5, "N": 20, "K": 9}, {}, 1)()
    exact = a.astype(np.float64) @ w.astype(np.float64)
    exact = exact / (1 + np.exp(-exact))
    bound = 12 * 2.0**-24 * (np.abs(a).astype(np.float64) @ np.abs(w).astype(np.float64) + 1)
    assert (np.abs(y - exact) <= bound).all()


# -- packed ahead of the call ----------------------------------------------------------------------------------------------


def ahead() -> Schedule:
    s = start(product).split("j", 16, into=("jo", "jl")).reorder("jo", "i", "jl").place("acc", "register", at="i")
    s = s.reorder("k", "S1.jl").cache_read("W", at=None, memory="global").layout("W_global", "panels", 1, 16)
    return vectors(s).prepack("W_global")


def test_weights_packed_once_serve_many_calls() -> None:
    f = c_callable.build(ahead().program, flags=("-O1",))
    rng = np.random.default_rng(0)
    w = rng.standard_normal((7, 37)).astype(np.float32)
    ready = f.pack(W=w)
    assert isinstance(ready, Packed) and ready.shape == (7, 37) and ready.nbytes >= 7 * 48 * 4
    for m in (1, 4):
        a = rng.standard_normal((m, 7)).astype(np.float32)
        want = f(a, w)
        assert (interp.run(product.program, {"A": a, "W": w})["Y"] == want).all()
        w_before = w.copy()
        w[:] = np.nan  # the packed copy alone is read
        assert (f(a, ready) == want).all() and (f(A=a, W=ready) == want).all()
        w[:] = w_before


def test_packed_arrays_are_checked() -> None:
    f, g = c_callable.build(ahead().program, flags=("-O1",)), c_callable.build(packed().program, flags=("-O1",))
    w = np.ones((7, 20), np.float32)
    ready = f.pack(W=w)
    with pytest.raises(LanguageError, match="W has shape"):
        f(np.ones((3, 8), np.float32), ready)
    with pytest.raises(LanguageError, match="was packed by another schedule"):
        g(np.ones((3, 7), np.float32), ready)
    with pytest.raises(LanguageError, match="stands in another parameter's place"):
        f(ready, np.ones((20, 3), np.float32))
    with pytest.raises(ScheduleError, match=r"packs no 'A' ahead. Possible: W"):
        f.pack(A=w)
    with pytest.raises(ScheduleError, match=r"packs no 'W' ahead"):
        g.pack(W=w)
    with pytest.raises(LanguageError, match="dtype float64"):
        f.pack(W=w.astype(np.float64))
    a = np.ones((3, 7), np.float32)
    assert (f(a, f.pack(w)) == f(a, ready)).all()  # only W can be meant
    for arrays, names in (((), {}), ((w, w), {}), ((w,), {"W": w}), ((), {"A": w, "W": w})):
        with pytest.raises(ScheduleError, match=r"pack\(\) takes one array by name, as in pack\(W=…\)\. Possible: W"):
            f.pack(*arrays, **names)
    with pytest.raises(ScheduleError, match=r"Possible: none: prepack a copy first"):
        g.pack(w)
    with pytest.raises(LanguageError, match="W is a list"):
        f.pack([[1.0]])
    with pytest.raises(LanguageError, match="W has an unaligned address"):
        f.pack(W=np.zeros(w.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(w.shape))
    with pytest.raises(ScheduleError, match=r"ahead=3: the names of arguments"):
        pick(product.program, ZEN4, ahead=3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("gemm_silu", {"M": 48, "N": 15, "K": 11}),  # packed in another dtype than the weights'
        ("gemm_silu", {"M": 7, "N": 17, "K": 6}),  # few rows: the left operand is copied and widened once
        ("gemm_silu", {"M": 7, "N": 17, "K": 1}),  # a dimension of one element has no loop
        ("gemm_silu", {"M": 40, "N": 1, "K": 1}),
        ("rowquant_gemm", {"M": 9, "N": 16, "K": 11}),
        ("rowquant_gemm", {"M": 30, "N": 5, "K": 3}),  # fewer terms than two groups of a dot product
    ],
)
def test_picked_weights_are_packed_as_they_are_read(name: str, numbers: dict[str, int]) -> None:
    """Of storage types, few rows, loops of one iteration: given packed, as they lie, and as the interpreter has it."""
    given = tilec.workload(name)
    f = tilec.pick(given, "host", ahead="W", **numbers).build("c", flags=("-O1",))
    assert isinstance(f, c_callable.Compiled)
    arrays, scalars = inputs(given.program, numbers, 5)
    want = given(*(arrays[n] if n in arrays else scalars[n] for n in given.parameters))
    left = {n: a for n, a in {**arrays, **scalars}.items() if n != "W"}
    for weights in (arrays["W"], f.pack(W=arrays["W"])):
        got = f(W=weights, **left)
        assert (got.view(np.uint8) == want.view(np.uint8)).all()


@pytest.mark.parametrize("numbers", [{"M": 9, "N": 20, "K": 15}, {"M": 15, "N": 9, "K": 3}])
def test_few_rows_of_two_sums_are_copied_once(numbers: dict[str, int]) -> None:
    picked = pick(tilec.workload("swiglu").program, ZEN4, contract=True, sizes=numbers)
    assert not picked.notes and "X_packed2" not in str(picked.schedule)


# -- what is permitted stays within a bound that is computed in higher precision ---------------------------------------------


def turned(s: Schedule) -> Schedule:
    return s.split("k", 8, into=("ko", "kk")).reorder("kk", "ko")


@pytest.mark.parametrize(
    ("permissions", "change"),
    [
        ({"contract": True}, lambda s: s),
        ({"reassociate": "acc"}, lambda s: s.split("k", 8, into=("ko", "kk")).reorder("kk", "ko")),
        (
            {"reassociate": "acc", "contract": True},
            lambda s: s.split("k", 4, into=("ko", "kk")).reorder("kk", "ko").split_reduction("kk"),
        ),
    ],
)
def test_permitted_results_are_within_the_bound(permissions: dict, change, tmp_path: Path) -> None:
    s = change(start(product, **permissions))
    compiled = function(s.program, tmp_path)
    numbers = {"M": 5, "N": 9, "K": 67}
    rng = np.random.default_rng(9)
    a, w = rng.standard_normal((5, 67)).astype(np.float32), rng.standard_normal((67, 9)).astype(np.float32)
    value, error = bounds(s.program.source, {"A": a, "W": w}, numbers, {})["Y"]
    y = np.zeros((5, 9), np.float32)
    compiled.raw({"A": a, "W": w, "Y": y}, numbers, {}, 1)()
    strict = interp.run(product.program, {"A": a, "W": w})["Y"]
    assert (y.view(np.uint32) != strict.view(np.uint32)).any(), "the permission is used"
    assert (np.abs(y - value) <= error).all()
    assert not (np.abs(y + np.float32(0.01) - value) <= error).all(), "the bound is tight enough to tell"


def test_steps_are_reordered_where_there_is_no_tile() -> None:
    gcc = c_build.recipe(start(product.program).program).compiler.kind == "gcc"
    plain, tile = (c_build.recipe(s.program).flags for s in (start(product.program), tiles()))
    assert ("-fschedule-insns" in plain) == gcc and "-fschedule-insns" not in tile


@tilec.kernel
def shifted(X: f32[M, N], Y: f32[M, N]):
    for i in range(M):
        m: f32 = -1e30
        for j in range(N):
            m = max(m, X[i, j])
        t: f32 = 0
        for j in range(N):
            t += X[i, j] - m
        for j in range(N):
            Y[i, j] = X[i, j] - t


@pytest.mark.parametrize("n", [2, 17, 66, 70, 130, 200])
def test_lanes_behind_the_end_of_a_row_leave_partial_results_alone(n: int) -> None:
    """A maximum of negative numbers, a sum that no zero may enter: whole vectors and the end of a row meet in one variable."""
    f = tilec.compile(shifted, reassociate="t", threads=1, M=3, N=n)
    x = np.random.default_rng(n).standard_normal((3, n), dtype=np.float32) - 9
    assert (f(x).view(np.uint32) == f.schedule.run(x).view(np.uint32)).all()
