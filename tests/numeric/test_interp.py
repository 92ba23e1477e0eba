"""The interpreter against plain loops written here by hand, value for value, for original and for scheduled trees."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest

from tests import handbuilt as h
from tilec.errors import InternalError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.dtypes import DTYPES, to_storage
from tilec.ir.evaluate import evaluate, maximum, minimum, neutral
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Index, Load, Scalar, Select, Unary
from tilec.ir.functions import FUNCTIONS
from tilec.ir.interp import run
from tilec.ir.program import Buffer, Copy, Guard, Identity, Leaf, Loop, Merge, Node, Program, Statement

F0, F1 = Load(0, "f32"), Load(1, "f32")
BOTH = pytest.mark.parametrize("vectorize", [True, False])


def values(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    return to_storage(dtype, np.random.default_rng(seed).standard_normal(shape).astype(np.float32))


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def program(
    buffers: tuple[Buffer, ...], statements: tuple[Statement, ...], *body: Node, sizes: tuple[str, ...] = ("N",)
) -> Program:
    return Program("example", sizes, (), (), buffers, statements, body)


def param(name: str, dtype: str, *shape: Aff | str | int) -> Buffer:
    return Buffer(name, dtype, h.affs(*shape), "param")


def gemm_silu_by_hand(a: np.ndarray, w: np.ndarray) -> np.ndarray:
    f = np.float32
    a, w = a.astype(f), w.astype(f)
    m, k, n = *a.shape, w.shape[1]
    y = np.zeros((m, n), DTYPES["bf16"].numpy)
    for i in range(m):
        for j in range(n):
            acc = f(0)
            for p in range(k):
                acc = f(acc + f(a[i, p] * w[p, j]))
            c = np.asarray(acc).astype(y.dtype).astype(f)
            y[i, j] = FUNCTIONS["silu"].evaluate(c)
    return y


@BOTH
@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 6, 7), (9, 4, 13)])
def test_gemm_silu_original_and_tiled(shape: tuple[int, int, int], vectorize: bool) -> None:
    m, n, k = shape
    arrays = {"A": values("bf16", m, k), "W": values("bf16", k, n, seed=1)}
    expected = gemm_silu_by_hand(arrays["A"], arrays["W"])
    before = {name: a.copy() for name, a in arrays.items()}
    for p in (h.gemm_silu(), h.gemm_silu_tiled(4, 3), h.gemm_silu_tiled(2, 8), h.gemm_silu_tiled(64, 32)):
        got = run(p, arrays, vectorize=vectorize)
        assert list(got) == ["Y"]
        assert same_bits(got["Y"], expected)
    assert all(same_bits(arrays[name], before[name]) for name in arrays), "arguments are not modified"


def test_inlining_keeps_the_rounding() -> None:
    """acc = 1 + 2^-9 is 1 in bf16: silu of the unrounded sum stores another value."""
    a, w = np.float32([[1, 2.0**-9]]), np.float32([[1], [1]])
    arrays = {"A": to_storage("bf16", a), "W": to_storage("bf16", w)}
    rounded = to_storage("bf16", FUNCTIONS["silu"].evaluate(np.float32([[1]])))
    assert same_bits(run(h.gemm_silu_tiled(2, 2), arrays)["Y"], rounded)
    assert same_bits(run(h.gemm_silu(), arrays)["Y"], rounded)


@BOTH
def test_threads_and_asynchronous_copies_run_in_tree_order(vectorize: bool) -> None:
    x = values("f32", 32)
    doubled = np.float32(2) * x
    expected = np.zeros(32, np.float32)
    expected[1:] = doubled[1:] + doubled[:-1]
    for p in (h.neighbours(), h.neighbours_on_threads()):
        assert same_bits(run(p, {"x": x}, vectorize=vectorize)["y"], expected)
    for n in (3, 8, 31):
        with_room = replace(h.copied_ahead())
        try:
            got = run(with_room, {"x": x[:n]}, vectorize=vectorize)["y"]
        except InternalError as e:
            assert "x[" in str(e), "the hand-built prefetch past the end is out of bounds, and said to be"
        else:
            assert same_bits(got, doubled[:n])


@BOTH
def test_registers_belong_to_threads(vectorize: bool) -> None:
    """r is owned by the block and indexed by nothing: each thread keeps its own cell between two phases."""
    s0 = h.statement("S0", {"b": 2, "i": 4}, h.access("r"), "=", F0, h.access("x", "b", "i"))
    s1 = h.statement("S1", {"b": 2, "i": 4}, h.access("y", "b", "i"), "=", F0, h.access("r"))
    buffers = (param("x", "f32", 2, 4), param("y", "f32", 2, 4), Buffer("r", "f32", (), memory="register", owner="b"))
    phases = [h.loop("i", 4, h.own_leaf(s), kind="thread.x") for s in (s0, s1)]
    p = program(buffers, (s0, s1), h.loop("b", 2, *phases, kind="block.x"), sizes=())
    x = values("f32", 2, 4)
    assert same_bits(run(p, {"x": x}, vectorize=vectorize)["y"], x)
    shared = replace(p, buffers=(*buffers[:2], replace(buffers[2], memory="shared")))
    assert same_bits(run(shared, {"x": x}, vectorize=vectorize)["y"], np.repeat(x[:, 3:], 4, axis=1))


@BOTH
def test_owner_iterations_start_undefined(vectorize: bool) -> None:
    s0 = h.statement("S0", {"i": "N"}, h.access("y", "i"), "=", F0, h.access("t"))
    s1 = h.statement("S1", {"i": "N"}, h.access("t"), "=", Const(1.0, "f32"))
    buffers = (param("y", "f32", "N"), Buffer("t", "f32", (), owner="i"))
    p = program(buffers, (s0, s1), h.loop("i", "N", h.own_leaf(s0), h.own_leaf(s1)))
    assert np.isnan(run(p, {}, {"N": 3}, vectorize=vectorize)["y"]).all()
    assert run(p, {}, {"N": 3}, vectorize=vectorize, poison=False)["y"].tolist() == [0, 0, 0]
    kept = replace(p, buffers=(buffers[0], replace(buffers[1], owner=None)))
    assert run(kept, {}, {"N": 3}, vectorize=vectorize)["y"].tolist()[1:] == [1, 1]
    whole = replace(p, buffers=(replace(buffers[0], dtype="i8"), replace(buffers[1], dtype="i8")))
    assert run(whole, {}, {"N": 2}, vectorize=vectorize)["y"].tolist() == [-91, -91]


@BOTH
def test_bounds_guards_and_divisions(vectorize: bool) -> None:
    """y[i, j] += 1 for max(1, i-1) <= j < min(N, 2i), i even: counted by hand."""
    s = h.statement("S0", {"i": "N", "j": "N"}, h.access("y", "i", "j"), "+=", Const(1, "i32"))
    i = Aff.of("i")
    inner = Loop("j", h.affs(1, i - 1), h.affs("N", i * 2), (h.own_leaf(s),))
    p = program(
        (param("y", "i32", "N", "N"),),
        (s,),
        h.loop("i", "N", Guard((Constraint.eq(i % 2, 0), Constraint.ge("N", 2)), (inner,))),
    )
    n = 7
    expected = np.zeros((n, n), np.int32)
    for a in range(0, n, 2):
        for b in range(max(1, a - 1), min(n, 2 * a)):
            expected[a, b] = 1
    assert same_bits(run(p, {"y": np.zeros((n, n), np.int32)}, vectorize=vectorize)["y"], expected)


@BOTH
@pytest.mark.parametrize("op", ["+=", "*=", "max=", "min="])
def test_reductions_keep_their_order(op: str, vectorize: bool) -> None:
    s0 = h.statement("S0", {}, h.access("out", 0), "=", Const(1.0, "f32"))
    s1 = h.statement("S1", {"k": "N"}, h.access("out", 0), op, Binary("*", F0, F1, "f32"), h.access("x", "k"), h.access("w", "k"))
    p = program(
        (param("x", "f32", "N"), param("w", "f32", "N"), param("out", "f32", 1)),
        (s0, s1),
        h.own_leaf(s0),
        h.loop("k", "N", h.own_leaf(s1)),
    )
    x, w = values("f32", 500), values("f32", 500, seed=1)
    total = np.float32(1)
    for a, b in zip(x, w, strict=True):
        match op:
            case "+=":
                total = total + a * b
            case "*=":
                total = total * (a * b)
            case "max=":
                total = max(total, a * b)
            case _:
                total = min(total, a * b)
    assert same_bits(run(p, {"x": x, "w": w}, vectorize=vectorize)["out"], np.array([total]))
    if op == "+=":
        assert total != np.float32(1 + np.dot(x.astype(np.float64), w)), "the order can be seen in this sum"


@BOTH
def test_wide_and_wrapping_sums(vectorize: bool) -> None:
    x64 = np.random.default_rng(5).standard_normal(300)
    whole = np.random.default_rng(5).integers(-(2**31), 2**31, 300).astype(np.int32)
    for dtype, x in (("f64", x64), ("i32", whole)):
        s = h.statement("S0", {"k": "N"}, h.access("out", 0), "+=", Load(0, dtype), h.access("x", "k"))
        p = program((param("x", dtype, "N"), param("out", dtype, 1)), (s,), h.loop("k", "N", h.own_leaf(s)))
        got = run(p, {"x": x, "out": np.zeros(1, x.dtype)}, vectorize=vectorize)["out"]
        total = 0.0 if dtype == "f64" else 0
        for v in x.tolist():
            total += v
        wrapped = total if dtype == "f64" else (int(total) + 2**31) % 2**32 - 2**31
        assert got.tolist() == [wrapped] and got.dtype == x.dtype


@BOTH
def test_narrow_accumulators_round_every_step(vectorize: bool) -> None:
    s = h.statement("S0", {"k": "N"}, h.access("out", 0), "+=", Const(0.01, "f32"))
    for dtype, expected in (("bf16", 4), ("f16", 32)):
        p = program((param("out", dtype, 1),), (s,), h.loop("k", "N", h.own_leaf(s)))
        start = np.zeros(1, DTYPES[dtype].numpy)
        assert float(run(p, {"out": start}, {"N": 10_000 if vectorize else 9_000}, vectorize=vectorize)["out"][0]) == expected


@BOTH
def test_identity_merge_and_copy(vectorize: bool) -> None:
    s = h.statement("S0", {"i": 8}, h.access("out", 0), "+=", F0, h.access("x", "i"))
    partial = Buffer("part", "f32", h.affs(2), "partial")
    copied = Buffer("xc", "f32", h.affs(4), "cache", "shared", "io", root="x")
    leaf = Leaf("S0", h.affs(Aff.of("io") * 4 + "ii"), h.address("part", "io"), (h.address("xc", "ii"),))
    fill = Copy(h.address("xc", "c"), h.address("x", Aff.of("io") * 4 + "c"), h.affs(Aff.of("io") * 4 + "c"))
    body = (
        h.loop("p", 2, Identity(h.address("part", "p"), "+=", h.affs(0))),
        h.loop("io", 2, h.loop("c", 4, fill), h.loop("ii", 4, leaf), kind="parallel"),
        h.loop("p", 2, Merge(h.address("out", 0), h.address("part", "p"), "+=", h.affs(0), h.affs(0))),
    )
    p = program((param("x", "f32", 8), param("out", "f32", 1), partial, copied), (s,), *body, sizes=())
    x = values("f32", 8)
    parts = [np.float32(0) + x[0], np.float32(0) + x[4]]
    for n in range(1, 4):
        parts = [parts[0] + x[n], parts[1] + x[4 + n]]
    expected = np.array([(np.float32(2) + parts[0]) + parts[1]])
    assert same_bits(run(p, {"x": x, "out": np.float32([2])}, vectorize=vectorize)["out"], expected)


def test_neutral_elements() -> None:
    for dtype in ("f32", "f64", "i32"):
        for op, f in (("+=", np.add), ("*=", np.multiply), ("max=", maximum), ("min=", minimum)):
            e = neutral(op, dtype)
            xs = [0, -3, 7] if dtype == "i32" else [0.0, -0.0, -3.5, np.inf, -np.inf]
            for x in np.asarray(xs, e.dtype):
                assert np.asarray(f(x, e)).tobytes() == np.asarray(x).tobytes(), (dtype, op, x)


def test_maximum_and_minimum() -> None:
    nan, zero = np.float32(np.nan), np.float32(0)
    for a, b in ((nan, zero), (zero, -nan), (nan, nan)):
        assert maximum(a, b).tobytes() == minimum(a, b).tobytes() == nan.tobytes(), "NaN wins and is canonical"
    for a, b in ((zero, -zero), (-zero, zero)):
        assert not np.signbit(maximum(a, b)) and np.signbit(minimum(a, b))
    x, y = np.float64([1, -0.0, -0.0, 5]), np.float64([2, -5, -0.0, 0])
    assert maximum(x, y).tobytes() == np.float64([2, -0.0, -0.0, 5]).tobytes()
    assert minimum(x, y).tobytes() == np.float64([1, -5, -0.0, 0]).tobytes()


def test_expressions() -> None:
    def value(e: Expr, *loads: float | np.generic) -> object:
        with np.errstate(all="ignore"):
            return np.asarray(evaluate(e, loads, lambda a: a.eval({"i": 5}), {"alpha": np.float32(0.5)}))[()]

    i32 = Load(0, "i32"), Load(1, "i32")
    big, m1 = np.int32(2**31 - 1), np.int32(-1)
    assert value(Binary("+", *i32, "i32"), big, np.int32(1)) == -(2**31)
    assert value(Binary("*", *i32, "i32"), big, big) == 1
    assert [value(Binary(op, *i32, "i32"), np.int32(-7), np.int32(2)) for op in ("//", "%")] == [-4, 1]
    assert [value(Binary(op, *i32, "i32"), np.int32(-7), np.int32(0)) for op in ("//", "%")] == [0, 0]
    assert value(Binary("+", i32[0], F1, "f32"), np.int32(2**24 + 1), np.float32(0)) == 2**24  # the i32 rounds once
    assert value(Unary("-", i32[0], "i32"), np.int32(-(2**31))) == -(2**31)
    assert value(Unary("sqrt", F0, "f32"), np.float32(2)) == np.sqrt(np.float32(2))
    assert value(Unary("abs", F0, "f32"), np.float32(-2)) == 2
    assert value(Index(Aff.of("i") * 3 - 1)) == 14
    assert value(Binary("*", Scalar("alpha", "f32"), Const(3, "i32"), "f32")) == 1.5
    inside = Binary("and", Compare(">=", F0, Const(0, "i32")), Unary("not", Compare(">", F0, F1), "bool"), "bool")
    assert value(Select(inside, F0, Const(-1.0, "f32"), "f32"), np.float32(2), np.float32(3)) == 2
    assert value(Select(inside, F0, Const(-1.0, "f32"), "f32"), np.float32(4), np.float32(3)) == -1
    assert value(Cast("bf16", i32[0], "f32"), np.int32(259)) == 260
    assert value(Cast("i32", F0, "i32"), np.float32(2.5)) == 2
    assert value(Cast("i8", F0, "i32", "toward_zero"), np.float32(-127.9)) == -127
    assert value(Call("exp", (i32[0],), "f32"), np.int32(0)) == 1
    once = Binary("+", Binary("*", F0, F0, "f32"), F1, "f32")  # the product rounds before the sum: no fused multiply-add
    assert value(once, np.float32(1 + 2.0**-12), np.float32(-1 - 2.0**-11)) == 0
    assert m1.dtype == np.int32
    with pytest.raises(InternalError, match="no operation '/' on i32 values"):
        value(Binary("/", *i32, "i32"), big, big)


@BOTH
def test_an_access_outside_its_buffer_is_an_internal_error(vectorize: bool) -> None:
    s = h.statement("S0", {"i": "N"}, h.access("y", "i"), "=", F0, h.access("x", Aff.of("i") + 1))
    p = program((param("x", "f32", "N"), param("y", "f32", "N")), (s,), h.loop("i", "N", h.own_leaf(s)))
    with pytest.raises(InternalError, match=r"example: x\[i \+ 1\] leaves x: .* the extent is 3"):
        run(p, {"x": values("f32", 3)}, vectorize=vectorize)


def test_speed() -> None:
    """A 256³ GEMM takes under a second, tiled trees of 100³ too (processor time: the machine may be busy)."""
    arrays = {"A": values("bf16", 256, 256), "W": values("bf16", 256, 256, seed=1)}
    start = time.process_time()
    run(h.gemm_silu(), arrays)
    assert time.process_time() - start < 1
    small = {"A": values("bf16", 100, 101), "W": values("bf16", 101, 99, seed=1)}
    expected = run(h.gemm_silu(), small)
    for tile, block in ((4, 4), (32, 16)):
        start = time.process_time()
        got = run(h.gemm_silu_tiled(tile, block), small)
        assert time.process_time() - start < 2
        assert same_bits(got["Y"], expected["Y"])
