"""A kernel and its builder twin are the same program; the builder's expressions follow the rules of the language."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilec import workloads
from tilec.ir.affine import Aff, Constraint
from tilec.ir.interp import run
from tilec.ir.program import Program
from tilec.ir.verify import verify
from tilec.lang import Builder, bf16, exp, f32, i32, kernel, sizes
from tilec.lang.builder import absolute, call, cast, compare, logical, maximum, minimum, select

M, N = sizes("M N", where="M >= 2 and M % 2 == 0")


def without_lines(p: Program) -> Program:
    return replace(p, statements=tuple(replace(s, line=None) for s in p.statements))


def test_rowquant_gemm() -> None:
    b = Builder("rowquant_gemm")
    m, n, k = b.size("M"), b.size("N"), b.size("K")
    a, w, y = b.param("A", "f16", [m, k]), b.param("W", "f8e4m3", [k, n]), b.param("Y", "f16", [m, n])
    s, q = b.temp("S", "f32", [m]), b.temp("Q", "f8e4m3", [m, k])
    with b.loop("i", 0, m) as i:
        largest = b.temp("m", "f32", initial=0)
        with b.loop("k", 0, k) as kk:
            b.store(largest, [], "=", maximum(largest[()], absolute(a[i, kk])))
        b.store(s, [i], "=", largest[()] / 448)
    with b.loop("i", 0, m) as i, b.loop("k", 0, k) as kk:
        b.store(q, [i, kk], "=", a[i, kk] / s[i])
    with b.loop("i", 0, m) as i, b.loop("j", 0, n) as j:
        acc = b.temp("acc", "f32", initial=0)
        with b.loop("k", 0, k) as kk:
            b.store(acc, [], "+=", q[i, kk] * w[kk, j])
        b.store(y, [i, j], "=", acc[()] * s[i])
    written = workloads.get("rowquant_gemm")
    assert b.program() == without_lines(written.program)
    made = b.definition()
    assert (made.name, made.parameters, made.source) == (written.name, written.parameters, None)


def test_every_construct() -> None:
    @kernel
    def k(A: f32[M, N], P: i32[N], alpha: f32, B: bf16[M, N]):
        for i in range(max(1, M - 4), min(M, N)):
            if i % 2 == 0 and i < N:
                for j in range(N):
                    row: f32[N]
                    row[j] = exp(A[i, j]) if (A[i, j] > 0 and not i < j) or P[j] == 3 else bf16(alpha) - 1
                    row[j] *= 2 * i + 1
                    row[j] = min(row[j], P[j] // 2 % (i + 1))
                    B[i, j] = 1 - row[j] / (-alpha)
                    B[i, j] -= i * 0.5

    b = Builder("k")
    m, n = b.size("M"), b.size("N")
    b.size("M", where=["M >= 2", "M % 2 == 0"])
    a, p = b.param("A", "f32", [m, n]), b.param("P", "i32", [n])
    alpha, out = b.scalar("alpha", "f32"), b.param("B", "bf16", [m, n])
    with b.loop("i", [1, m - 4], [m, n]) as i, b.when(Constraint.eq(i % 2, 0), Constraint.lt(i, n)), b.loop("j", 0, n) as j:
        row = b.temp("row", "f32", [n])
        c = logical("and", a[i, j] > 0, logical("not", compare("<", i, j)))
        b.store(row, [j], "=", select(logical("or", c, p[j] == 3), call("exp", a[i, j]), cast("bf16", alpha) - 1))
        b.store(row, [j], "*=", 2 * i + 1)
        b.store(row, [j], "=", minimum(row[j], p[j] // 2 % (i + 1)))
        b.store(out, [i, j], "=", 1 - row[j] / -alpha)
        b.store(out, [i, j], "-=", cast("f32", i) * 0.5)
    assert b.program() == without_lines(k.program)
    verify(b.program())


def test_it_runs() -> None:
    b = Builder("prefix")
    n = b.size("N")
    x, y = b.param("x", "f32", [n]), b.param("y", "f32", [n])
    total = b.temp("total", "f32", initial=0)
    with b.loop("i", 0, n) as i:
        b.store(total, [], "+=", x[i])
        b.store(y, [i], "=", total[()])
    values = np.arange(5, dtype=np.float32)
    assert run(b.program(), {"x": values})["y"].tolist() == [0, 1, 3, 6, 10]


def test_a_failed_loop_leaves_the_builder_usable() -> None:
    b = Builder("k")
    n = b.size("N")
    a = b.param("A", "f32", [n])
    try:
        with b.loop("i", 0, n) as i:
            b.store(a, [i, i], "=", 0)
    except Exception as e:
        assert "takes 1 subscript" in str(e)
    with b.loop("i", 0, n) as i:
        b.store(a, [i], "=", i)
    assert [s.target.index for s in b.program().statements] == [(Aff.of("i"),)]
