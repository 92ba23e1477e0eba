"""What a call refuses, whole texts, and what it infers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests import handbuilt as h
from tilec.errors import LanguageError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.arguments import required, signature, written
from tilec.ir.dtypes import DTYPES
from tilec.ir.expr import Binary, Const, Load, Scalar
from tilec.ir.interp import run
from tilec.ir.program import Buffer, Program

BF16 = DTYPES["bf16"].numpy
GEMM = h.gemm_silu()
EXPECTED = "gemm_silu(A: bf16[M, K], W: bf16[K, N], Y: bf16[M, N])"


def zeros(*shape: int, dtype: Any = BF16) -> np.ndarray:
    return np.zeros(shape, dtype)


def scaled() -> Program:
    """y[i] = alpha·x[i] + n, x in/out too: x[i] += 1 first."""
    s0 = h.statement("S0", {"i": "N"}, h.access("x", "i"), "+=", Const(1, "i32"))
    value = Binary("+", Binary("*", Scalar("alpha", "f32"), Load(0, "f32"), "f32"), Scalar("n", "i32"), "f32")
    s1 = h.statement("S1", {"i": "N"}, h.access("y", "i"), "=", value, h.access("x", "i"))
    buffers = (Buffer("x", "f32", h.affs("N"), "param"), Buffer("y", "f32", h.affs(Aff.of("N") + 2), "param"))
    body = h.loop("i", "N", h.own_leaf(s0), h.own_leaf(s1))
    where = (Constraint.eq(Aff.of("N") % 2, 0),)
    return Program("scaled", ("N",), where, (("alpha", "bf16"), ("n", "i8")), buffers, (s0, s1), (body,))


SCALED = scaled()
X = np.arange(4, dtype=np.float32)
GOOD = {"alpha": 2.0, "n": 3}


def refusal(program: Program, arrays: dict[str, Any], sizes: Any = None, scalars: Any = None) -> str:
    with pytest.raises(LanguageError) as e:
        run(program, arrays, sizes, scalars)
    return str(e.value)


def test_arrays() -> None:
    a, w = zeros(2, 3), zeros(3, 4)
    assert refusal(GEMM, {"A": a}) == f"gemm_silu: missing W\n  expected: {EXPECTED}"
    assert refusal(GEMM, {"A": a, "w": w}) == (f"gemm_silu: no array parameter 'w'. Did you mean 'W'?\n  expected: {EXPECTED}")
    assert refusal(GEMM, {"A": a, "W": w, "acc": w}) == f"gemm_silu: no array parameter 'acc'.\n  expected: {EXPECTED}"
    assert refusal(GEMM, {"A": a.tolist(), "W": w}) == (
        "gemm_silu: A is a list; it must be a NumPy array of bfloat16, bf16[M, K]"
    )
    assert refusal(GEMM, {"A": zeros(2, 3, dtype=np.float32), "W": w}) == (
        "gemm_silu: A has dtype float32; bf16[M, K] needs bfloat16\n"
        "  to convert: tilec.ir.dtypes.to_storage('bf16', A) rounds once, as a store does"
    )
    assert refusal(GEMM, {"A": a, "W": zeros(3)}) == "gemm_silu: W has shape (3,); bf16[K, N] has 2 dimensions"
    assert refusal(GEMM, {"A": a, "W": zeros(4, 4)}) == (
        "gemm_silu: W has shape (4, 4); dimension 0 of bf16[K, N] is 3: K = 3 (from A.shape[1] = 3)"
    )
    assert refusal(SCALED, {"x": X, "y": zeros(4, dtype=np.float32)}, None, GOOD) == (
        "scaled: y has shape (4,); dimension 0 of f32[N + 2] is 6: N = 4 (from x.shape[0] = 4)"
    )


def test_aliases() -> None:
    shared = zeros(8, 8)
    assert refusal(GEMM, {"A": shared[:4, :4], "W": zeros(4, 4), "Y": shared[:4, :4]}) == (
        "gemm_silu: A and Y share memory and Y is written; two parameters never alias: pass a copy"
    )
    assert refusal(GEMM, {"A": zeros(4, 4), "W": shared.T[2:6, 2:6], "Y": shared[4:, 4:]}).startswith(
        "gemm_silu: W and Y share memory"
    )
    assert run(GEMM, {"A": shared[:, :4], "W": zeros(4, 4), "Y": shared[:, 4:]})["Y"].shape == (8, 4), "side by side is no alias"
    assert run(GEMM, {"A": shared, "W": shared})["Y"].shape == (8, 8), "two inputs may be one array"


def test_sizes() -> None:
    a, w = zeros(2, 3), zeros(3, 4)
    assert refusal(GEMM, {"A": a, "W": w}, {"M": 5}) == (
        "gemm_silu: A has shape (2, 3); dimension 0 of bf16[M, K] is 5: M = 5 (given)"
    )
    assert refusal(GEMM, {"A": a, "W": w}, {"B": 5}) == "gemm_silu: no size 'B'. Sizes: M, N, K"
    assert refusal(GEMM, {"A": a, "W": w}, {"M": 2.0}) == "gemm_silu: size M = 2.0; a size is a whole number"
    assert refusal(GEMM, {"A": zeros(0, 3), "W": w}) == ("gemm_silu: size M = 0 (from A.shape[0] = 0); sizes are 1 to 2^31 - 1")
    assert refusal(GEMM, {"A": a, "W": w}, {"M": -1}) == "gemm_silu: size M = -1 (given); sizes are 1 to 2^31 - 1"
    assert refusal(GEMM, {"A": a, "W": w}, {"N": 2**31}) == ("gemm_silu: size N = 2147483648 (given); sizes are 1 to 2^31 - 1")
    assert refusal(SCALED, {"x": X[:3]}, None, GOOD) == "scaled: assumes N % 2 == 0, which N = 3 does not meet"
    bound = replace(h.neighbours_on_threads())
    assert refusal(bound, {"x": zeros(32, dtype=np.float32)}, {"N": 33}) == (
        "neighbours: size N is 32 (bound in the schedule), not 33"
    )
    assert refusal(bound, {"x": zeros(31, dtype=np.float32)}) == (
        "neighbours: x has shape (31,); dimension 0 of f32[32] is 32: it is a constant"
    )
    lonely = replace(h.neighbours(), buffers=(*(replace(b, shape=h.affs(4)) for b in h.neighbours().buffers),))
    assert refusal(lonely, {"x": zeros(4, dtype=np.float32)}) == (
        "neighbours: size N follows from no array given; pass it: sizes={'N': …}"
    )
    assert run(lonely, {"x": X}, {"N": 4})["y"].tolist() == [0, 2, 6, 10]


def test_scalars() -> None:
    expected = "scaled(x: f32[N], y: f32[N + 2], alpha: bf16, n: i8)"
    assert signature(SCALED) == expected
    assert refusal(SCALED, {"x": X}, None, {"alpha": 1}) == f"scaled: missing scalar n\n  expected: {expected}"
    assert refusal(SCALED, {"x": X}, None, {**GOOD, "beta": 1}) == (f"scaled: no scalar parameter 'beta'\n  expected: {expected}")
    assert refusal(SCALED, {"x": X}, None, {"alpha": "2", "n": 1}) == "scaled: scalar alpha = '2'; it must be a number (bf16)"
    assert refusal(SCALED, {"x": X}, None, {"alpha": 2, "n": 300}) == "scaled: scalar n = 300 is not a whole number within i8"
    got = run(SCALED, {"x": X}, None, {"alpha": 1.001, "n": 3})  # 1.001 is 1 in bf16
    assert got["x"].tolist() == [1, 2, 3, 4] and got["y"].tolist() == [4, 5, 6, 7, 0, 0]
    assert X.tolist() == [0, 1, 2, 3]


def test_which_parameters_a_call_needs() -> None:
    assert (required(GEMM), written(GEMM)) == (("A", "W"), ("Y",))
    assert (required(SCALED), written(SCALED)) == (("x",), ("x", "y"))
    first = replace(GEMM.statements[0], target=h.access("Y", "i", "j"))  # Y = 0, Y += A·W: assigned before it is read
    second = replace(GEMM.statements[1], target=h.access("Y", "i", "j"))
    assert required(replace(GEMM, statements=(first, second))) == ("A", "W")
    assert required(replace(GEMM, statements=(second,))) == ("A", "W", "Y")


def test_a_given_output_keeps_what_is_not_written() -> None:
    y = np.full(6, 9, np.float32)
    got = run(SCALED, {"x": X, "y": y}, None, GOOD)["y"]
    assert got.tolist() == [5, 7, 9, 11, 9, 9] and (y == 9).all()


def test_any_memory_order_is_accepted() -> None:
    rng = np.random.default_rng(0)
    a, w = rng.standard_normal((4, 6)).astype(BF16), rng.standard_normal((6, 4)).astype(BF16)
    plain = run(GEMM, {"A": a, "W": w})["Y"]
    wide = np.zeros((8, 12), BF16)
    wide[::2, ::2] = a
    assert run(GEMM, {"A": wide[::2, ::2], "W": np.asfortranarray(w)})["Y"].tobytes() == plain.tobytes()
