"""The @kernel front end: what it makes of every construct of the language."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilec.lang
from tilec.ir import expr as ir
from tilec.ir.affine import Aff, Constraint
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Index, Load, Scalar, Select, Unary
from tilec.ir.program import Access, Buffer, Guard, Leaf, Loop, Program, Statement
from tilec.ir.verify import verify
from tilec.lang import bf16, exp, f8e4m3, f32, f64, from_source, i8, i32, kernel, sizes, sqrt
from tilec.poly.wellformed import check

M, N, K = sizes("M N K")
EIGHT = 8
THIRD = np.float32(1 / 3)


def read(body: str, parameters: str = "A: f32[N, N], B: f32[N, N]", **names: object) -> Program:
    """A kernel with the given statements; every program made here keeps the rules of the tree."""
    namespace = {n: getattr(tilec.lang, n) for n in ("f64", "f32", "f16", "bf16", "f8e4m3", "i32", "i8")}
    namespace |= {"M": M, "N": N, "K": K, "math": math, **names}
    text = f"def f({parameters}):\n" + "\n".join("    " + line for line in body.strip("\n").splitlines())
    program = from_source(text, namespace).program
    verify(program)
    return program


def value(text: str, parameters: str = "A: f32[N], D: f64[N], I: i32[N], C: i8[N], alpha: f32, B: f32[N]") -> Statement:
    return read(f"for i in range(N):\n    B[i] = {text}", parameters).statements[0]


def index(*names: str | int) -> tuple[Aff, ...]:
    return tuple(Aff.of(n) for n in names)


def test_gemm_as_written() -> None:
    @kernel
    def gemm(A: bf16[M, K], W: bf16[K, N], C: bf16[M, N]):
        """The product."""
        for i in range(M):
            for j in range(N):
                acc: f32 = 0
                for k in range(K):
                    acc += A[i, k] * W[k, j]
                C[i, j] = acc

    p = gemm.program
    assert (gemm.name, gemm.parameters, gemm.doc, p.sizes) == ("gemm", ("A", "W", "C"), "The product.", ("M", "N", "K"))
    assert gemm.source is not None and gemm.source.lstrip().startswith("@kernel")
    assert p.original is None and p.source is p
    assert p.buffer["acc"] == Buffer("acc", "f32", index("M", "N"), private=2)
    assert p.buffer["A"] == Buffer("A", "bf16", index("M", "K"), role="param")
    zero, add, store = p.statements
    assert (zero.target, zero.op, zero.value) == (Access("acc", index("i", "j")), "=", Const(0.0, "f32"))
    assert (add.op, add.value) == ("+=", Binary("*", Load(0, "f32"), Load(1, "f32"), "f32"))
    assert add.reads == (Access("A", index("i", "k")), Access("W", index("k", "j")))
    assert add.domain == tuple(
        c for v, n in (("i", "M"), ("j", "N"), ("k", "K")) for c in (Constraint.ge(v, 0), Constraint.lt(v, n))
    )
    assert (store.target, store.reads) == (Access("C", index("i", "j")), (Access("acc", index("i", "j")),))
    (outer,) = p.body
    assert isinstance(outer, Loop) and (outer.var, outer.lower, outer.upper, outer.kind) == ("i", index(0), index("M"), "serial")
    assert [s.line for s in p.statements] == [gemm.line + n for n in (4, 6, 7)]
    verify(p)


def test_annotations_work_when_they_are_evaluated() -> None:
    assert str(f32[M + 2, 2 * N - 1, 3, N // 2, K % 4].shape) == str((M + 2, 2 * N - 1, 3, N // 2, K % 4))
    assert [str(e) for e in (1 + M, 8 - M, -M)] == ["M + 1", "8 - M", "-M"]


def test_sizes_state_assumptions() -> None:
    m, n = sizes("M, N", where=["M % 64 == 0 and N >= 3", "M >= N"])
    p = read("for i in range(M):\n    A[i, 0] = 0\nfor j in range(N):\n    A[0, j] = 0", "A: f32[M, N]", M=m, N=n)
    assert p.where == (
        Constraint.eq(Aff.of("M") % 64, 0),
        Constraint.ge("N", 3),
        Constraint.ge("M", "N"),
    )
    # an assumption about a size that the kernel has not says nothing here
    assert read("A[0] = 0", "A: f32[M]", M=m).where == (Constraint.eq(Aff.of("M") % 64, 0),)


def test_a_size_keeps_its_name_whatever_python_calls_it() -> None:
    assert read("A[0] = 0", "A: f32[rows + 1]", rows=sizes("M")).buffer["A"].shape == (Aff.of("M") + 1,)


# loops and conditions


def test_bounds_with_min_and_max() -> None:
    p = read("for i in range(max(2, M - 3), min(N, M) - 1):\n    A[i, 0] = 0")
    (loop,) = p.body
    assert isinstance(loop, Loop)
    assert loop.lower == (Aff(2), Aff.of("M") - 3)
    assert loop.upper == (Aff.of("N") - 1, Aff.of("M") - 1)
    p = read("for i in range(N - min(N, 3), N + N - max(N, 5)):\n    A[i, 0] = 0")
    (loop,) = p.body
    assert isinstance(loop, Loop)
    assert loop.lower == (Aff(0), Aff.of("N") - 3) and loop.upper == (Aff.of("N"), 2 * Aff.of("N") - 5)


def test_conditions() -> None:
    p = read("for i in range(N):\n    if 1 <= i < N - 1 and i % 4 == 2 and i // 2 > M:\n        A[i, 0] = 0")
    i = Aff.of("i")
    conditions = (
        Constraint.ge(i, 1),
        Constraint.lt(i, Aff.of("N") - 1),
        Constraint.eq(i % 4, 2),
        Constraint.lt("M", i // 2),
    )
    (loop,) = p.body
    assert isinstance(loop, Loop)
    (guard,) = loop.body
    assert isinstance(guard, Guard) and guard.conditions == conditions
    assert p.statements[0].domain == (Constraint.ge(i, 0), Constraint.lt(i, "N"), *conditions)


@pytest.mark.parametrize(
    ("condition", "opposite"),
    [
        ("i < 3", Constraint.ge("i", 3)),
        ("i >= M", Constraint.lt("i", "M")),
        ("i == 0", Constraint.ge("i", 1)),
        ("i == N - 1", Constraint.lt("i", Aff.of("N") - 1)),
        ("i % 4 == 0", Constraint.ge(Aff.of("i") % 4, 1)),
        ("(i + 1) % 4 == 3", Constraint.lt((Aff.of("i") + 1) % 4, 3)),
        ("not i < 3", Constraint.lt("i", 3)),
        ("i != 0", Constraint.eq("i", 0)),
    ],
)
def test_else_is_the_opposite(condition: str, opposite: Constraint) -> None:
    p = read(f"for i in range(N):\n    if {condition}:\n        A[i, 0] = 0\n    else:\n        A[i, 0] = 1")
    first, second = p.statements
    env = [{"i": i, "N": n, "M": m} for n in range(1, 10) for m in (1, 4) for i in range(n)]
    for e in env:  # exactly one side runs
        assert sum(all(c.holds(e) for c in s.domain) for s in (first, second)) == 1
    assert [second.domain[2].holds(e) for e in env] == [opposite.holds(e) for e in env]


def test_elif() -> None:
    p = read("""
for i in range(N):
    if i < 2:
        A[i, 0] = 0
    elif i < 4:
        A[i, 0] = 1
    else:
        A[i, 0] = 2
""")
    ran = [[s.name for s in p.statements if all(c.holds({"i": i, "N": 6}) for c in s.domain)] for i in range(6)]
    assert ran == [["S0"], ["S0"], ["S1"], ["S1"], ["S2"], ["S2"]]


def test_loops_without_statements_disappear() -> None:
    p = read("for i in range(N):\n    for j in range(N):\n        pass\n    if i < 3:\n        t: f32\n    A[i, 0] = 0")
    (loop,) = p.body
    assert isinstance(loop, Loop) and [type(n) for n in loop.body] == [Leaf]


# temporaries


@pytest.mark.parametrize(
    ("head", "shape", "prefix"),
    [
        ("for i in range(N):\n  for j in range(i + 1):", "N, N", "i, j"),
        ("for i in range(2, N):\n  for j in range(i, N):", "N, N", "i, j"),
        ("for i in range(-2, N):\n  for j in range(i, i + 3):", "N + 2, N + 4", "i + 2, j + 2"),
        ("for i in range(N):\n  for j in range(max(0, i - 3), min(N, i + 4)):", "N, N", "i, j"),
        ("for i in range(N):\n  for j in range(4 * (i // 4), i):", "N, N - 1", "i, j"),
        ("for i in range(N - M, N):\n  for j in range(i % 4, 4):", "M, 4", "-N + M + i, j"),
        ("for i in range(N):\n  for j in range(8 - 2 * i, 9):", "N, 2*N + 1", "i, j + 2*N - 10 + 0"),
    ],
)
def test_private_dimensions_cover_the_loops(head: str, shape: str, prefix: str) -> None:
    p = read(f"{head}\n    t: f32 = 0\n    row: f32[K]\n    row[0] = t", "A: f32[N, M, K]")
    t, row = p.buffer["t"], p.buffer["row"]
    assert (t.private, row.private) == (2, 2) and row.shape == (*t.shape, Aff.of("K"))
    used: set[tuple[int, ...]] = set()
    for n in range(1, 7):
        for m in range(1, 4):
            for i in range(-3, n + 1):
                for j in range(-8, n + 12):
                    env = {"N": n, "M": m, "K": 1, "i": i, "j": j}
                    if all(c.holds(env) for c in p.statements[0].domain):
                        at = tuple(e.eval(env) for e in p.statements[0].target.index)
                        assert all(0 <= x < e.eval(env) for x, e in zip(at, t.shape, strict=True)), (env, at)
                        used.add(at)
    assert used
    if not prefix.endswith("+ 0"):
        assert ", ".join(map(str, t.shape)) == shape
        env = {"N": 5, "M": 2, "i": 3, "j": 1}
        assert [e.eval(env) for e in p.statements[0].target.index] == [
            int(eval(text.strip(), {}, env)) for text in prefix.split(",")
        ]


def test_declaration_without_value_is_no_statement() -> None:
    p = read("T: f32[N]\nt: f32\nt = 2\nfor i in range(N):\n    T[i] = t")
    assert [s.name for s in p.statements] == ["S0", "S1"] and p.buffer["t"].shape == ()
    check(p)


def test_declarations_inside_an_if_see_the_loops_around() -> None:
    p = read("for i in range(N):\n    if i > 2:\n        t: f32 = 1\n        A[i, 0] = t")
    assert p.buffer["t"].private == 1 and len(p.statements[0].domain) == 3


# statements


@pytest.mark.parametrize(
    ("written", "same_as"),
    [
        ("A[i, 0] = A[i, 0] + B[i, 1]", "A[i, 0] += B[i, 1]"),
        ("A[i, 0] = B[i, 1] + A[i, 0]", "A[i, 0] += B[i, 1]"),
        ("A[i, 0] = A[i, 0] * 2", "A[i, 0] *= 2"),
        ("A[i, 0] = A[i, 0] - B[i, 1]", "A[i, 0] += -B[i, 1]"),
        ("A[i, 0] -= 3", "A[i, 0] += -3"),
        ("A[i, 0] = A[i, 0] + B[i, 1] * A[i, 0]", "A[i, 0] += B[i, 1] * A[i, 0]"),
        ("A[i, 0] = A[i, 0] + D[i]", "A[i, 0] += D[i]"),
        ("A[i, 0] = A[i, 0] + i", "A[i, 0] += i"),
    ],
)
def test_updates(written: str, same_as: str) -> None:
    parameters = "A: f32[N, 2], B: f32[N, 2], D: f64[N]"
    a = read(f"for i in range(N):\n    {written}", parameters)
    assert a == read(f"for i in range(N):\n    {same_as}", parameters)
    assert a.statements[0].op in ("+=", "*=")


def test_max_and_min_are_updates() -> None:
    for text in ("max(A[i, 0], B[i, 0])", "max(B[i, 0], A[i, 0])"):
        s = read(f"for i in range(N):\n    A[i, 0] = {text}").statements[0]
        assert (s.op, s.value, s.reads) == ("max=", Load(0, "f32"), (Access("B", index("i", 0)),))
    assert read("for i in range(N):\n    A[i, 0] = min(A[i, 0], 3)").statements[0].value == Const(3.0, "f32")


def test_what_is_no_update() -> None:
    for text in ("A[i, 0] + B[i, 0] + 1", "B[i, 0] - A[i, 0]", "A[i, 0] / 2", "A[i, 1] + 1", "-A[i, 0]"):
        s = read(f"for i in range(N):\n    A[i, 0] = {text}").statements[0]
        assert s.op == "=" and s.reads


# values


def test_values() -> None:
    f, i = Load(0, "f32"), Index(Aff.of("i"))
    a_plus = Binary("+", f, Const(1.0, "f32"), "f32")
    assert value("A[i] + 1").value == a_plus
    assert value("2.5 - A[i] * i").value == Binary("-", Const(2.5, "f32"), Binary("*", f, Cast("f32", i, "f32"), "f32"), "f32")
    assert value("alpha * A[i]").value == Binary("*", Scalar("alpha", "f32"), f, "f32")
    assert value("D[i] + A[i]").value == Binary("+", Load(0, "f64"), Cast("f64", Load(1, "f32"), "f64"), "f64")
    assert value("C[i] + I[i]").value == Binary("+", Load(0, "i32"), Load(1, "i32"), "i32")
    assert value("I[i] // 3 % I[i]").value == Binary(
        "%", Binary("//", Load(0, "i32"), Const(3, "i32"), "i32"), Load(0, "i32"), "i32"
    )
    assert value("abs(sqrt(A[i]))").value == Unary("abs", Unary("sqrt", f, "f32"), "f32")
    assert value("sqrt(D[i])").value == Unary("sqrt", Load(0, "f64"), "f64")
    assert value("exp(I[i])").value == Call("exp", (Cast("f32", Load(0, "i32"), "f32"),), "f32")
    assert value("max(A[i], 0, alpha)").value == Binary(
        "max", Binary("max", f, Const(0.0, "f32"), "f32"), Scalar("alpha", "f32"), "f32"
    )
    assert value("bf16(A[i])").value == Cast("bf16", f, "f32")
    assert value("i8(A[i], 'toward_zero')").value == Cast("i8", f, "i32", "toward_zero")
    assert value("f32(A[i])").value == f
    assert value("+A[i]").value == f
    assert value("A[i] if 0 < A[i] <= 1 or not i == 2 else 0").value == Select(
        Binary(
            "or",
            Binary("and", Compare("<", Const(0.0, "f32"), f), Compare("<=", f, Const(1.0, "f32")), "bool"),
            Unary("not", Compare("==", i, Const(2, "i32")), "bool"),
            "bool",
        ),
        f,
        Const(0.0, "f32"),
        "f32",
    )


def test_affine_values_are_one_index() -> None:
    assert value("2 * i + N - 3").value == Index(2 * Aff.of("i") + "N" - 3)
    assert value("i // 4 + i % 4").value == Index(Aff.of("i") // 4 + Aff.of("i") % 4)
    assert value("-i").value == Index(-Aff.of("i"))
    assert value("i * i").value == Binary("*", Index(Aff.of("i")), Index(Aff.of("i")), "i32")


def test_constants_come_from_where_the_kernel_is_defined() -> None:
    half = 0.5

    @kernel
    def f(A: f32[N], B: f8e4m3[N]):
        for i in range(N - EIGHT):
            A[i + EIGHT] = half * -math.inf + THIRD
            B[i] = EIGHT

    s, t = f.program.statements
    constants = [e.value for e in ir.walk(s.value) if isinstance(e, Const)]
    assert constants == [0.5, -math.inf, float(THIRD)] and s.target.index == (Aff.of("i") + 8,)
    assert t.value == Const(8.0, "f32")


def test_literals() -> None:
    assert value("7", "B: i32[N]").value == Const(7, "i32")
    assert value("-2147483648", "B: i32[N]").value == Const(-2147483648, "i32")
    assert value("7", "B: f64[N]").value == Const(7.0, "f64")
    assert value("0.5", "B: f64[N]").value == Const(0.5, "f32")  # float literals are f32


def test_equal_reads_are_one() -> None:
    s = value("A[i] * A[i] + A[i]")
    assert s.reads == (Access("A", index("i")),)
    assert {e.n for e in ir.walk(s.value) if isinstance(e, Load)} == {0}


def test_functions_by_attribute() -> None:
    names = {"tilec": tilec.lang}
    p = read("for i in range(N):\n    A[i] = tilec.exp(tilec.bf16(A[i]))", "A: tilec.f32[N]", **names)
    assert p.statements[0].value == Call("exp", (Cast("bf16", Load(0, "f32"), "f32"),), "f32")


def test_names_seen_only_in_local_annotations_and_bodies() -> None:
    def make() -> Program:
        rows, dtype, limit, f = sizes("Q"), bf16, 3, exp

        @kernel
        def g(B: f32[rows]):
            t: dtype = limit
            for i in range(rows):
                B[i] = f(t) + sqrt(2.0)

        assert (rows, dtype, limit, f) is not None
        return g.program

    p = make()
    assert p.buffer["t"].dtype == "bf16" and p.sizes == ("Q",)


def test_dtypes_are_exported() -> None:
    assert [t.name for t in (f64, f32, bf16, f8e4m3, i32, i8)] == ["f64", "f32", "bf16", "f8e4m3", "i32", "i8"]
