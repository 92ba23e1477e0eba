"""The pseudocode: rounding is visible, indices are in natural order, buffers stand at the loop that owns them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import handbuilt as h
from tilec.ir.affine import Aff, Constraint
from tilec.ir.expr import Binary, Cast, Compare, Const, Expr, Index, Load, Select
from tilec.ir.printer import Scope, header, loop_tree, text
from tilec.ir.program import Access, Buffer, Guard, Identity, Inline, Layout, Leaf, Merge, Program

ZERO = Const(0, "i32")


def program(*buffers: Buffer, value: Expr = ZERO, op: str = "=", reads: tuple[Access, ...] = ()) -> Program:
    s = h.statement("S0", {"i": "N"}, h.access(buffers[0].name, "i"), op, value, *reads)
    return Program("p", ("N",), (), (), buffers, (s,), (h.loop("i", "N", h.own_leaf(s)),))


def line(p: Program) -> str:
    return text(p).splitlines()[-1].strip()


def test_scheduled_gemm_silu_reads_as_in_the_design() -> None:
    lines = text(h.gemm_silu_tiled()).splitlines()
    assert lines[0] == "gemm_silu(A: bf16[M, K], W: bf16[K, N], Y: bf16[M, N])"
    assert lines[1:3] == ["sizes: M, N, K", "recomputed: S2"]
    stripped = [x.strip() for x in lines]
    assert "for io in 0..ceil(M/64):  # block.y" in stripped
    assert "acc[ii, ji] += A_shared[ii, ki] * W_shared[ki, ji]  # S1" in stripped
    assert stripped[-1] == "Y[64*io + ii, 64*jo + ji] = bf16(silu(bf16(acc[ii, ji])))  # S3"
    # acc is declared in jo, the caches in ko
    jo, ko = stripped.index("for jo in 0..ceil(N/64):  # block.x"), stripped.index("for ko in 0..ceil(K/32):")
    assert stripped[jo + 1] == "acc: f32[64, 64] in shared"
    assert stripped[ko + 1 : ko + 3] == ["A_shared: bf16[64, 32] in shared", "W_shared: bf16[32, 64] in shared"]


def test_asynchronous_copies_and_waits() -> None:
    stripped = [x.strip() for x in text(h.copied_ahead()).splitlines()]
    assert "async x_shared[(io + 1) % 2, x_shared.0] = x[4*io + x_shared.0 + 4]  # copy" in stripped
    assert "commit" in stripped and "wait(1)" in stripped
    assert "for io in 0..ceil(N/4):  # pipelined" in stripped


@pytest.mark.parametrize(
    ("target", "op", "value", "expected"),
    [
        ("bf16", "=", Load(0, "f32"), "y[i] = bf16(x[i])  # S0"),
        ("f32", "=", Load(0, "f32"), "y[i] = x[i]  # S0"),
        ("f64", "=", Load(0, "f32"), "y[i] = x[i]  # S0"),
        ("bf16", "=", Const(1, "i32"), "y[i] = 1  # S0"),
        ("bf16", "=", Const(257, "i32"), "y[i] = bf16(257)  # S0"),
        ("f32", "=", Index(Aff.of("i")), "y[i] = f32(i)  # S0"),
        ("f32", "+=", Index(Aff.of("i")), "y[i] += i  # S0"),
        ("bf16", "+=", Load(0, "f32"), "y[i] = bf16(y[i] + x[i])  # S0"),
        ("bf16", "*=", Binary("+", Load(0, "f32"), Const(1.5, "f32"), "f32"), "y[i] = bf16(y[i] * (x[i] + 1.5))  # S0"),
        ("f32", "*=", Binary("+", Load(0, "f32"), Const(1.5, "f32"), "f32"), "y[i] *= x[i] + 1.5  # S0"),
        ("i32", "+=", Load(0, "f32"), "y[i] = i32(y[i] + x[i])  # S0"),
        ("f32", "max=", Load(0, "f32"), "y[i] = max(y[i], x[i])  # S0"),
        ("f8e4m3", "min=", Load(0, "f32"), "y[i] = f8e4m3(min(y[i], x[i]))  # S0"),
        ("bf16", "=", Cast("bf16", Load(0, "f32"), "f32", "toward_zero"), "y[i] = bf16(x[i], 'toward_zero')  # S0"),
        (
            "f32",
            "=",
            Select(Compare("<", Load(0, "f32"), Const(0.0, "f32")), Const(0.0, "f32"), Load(0, "f32"), "f32"),
            "y[i] = (0 if x[i] < 0 else x[i])  # S0",
        ),
    ],
)
def test_where_a_store_rounds(target: str, op: str, value: Expr, expected: str) -> None:
    y, x = Buffer("y", target, h.affs("N"), "param"), Buffer("x", "f32", h.affs("N"), "param")
    assert line(program(y, x, value=value, op=op, reads=(h.access("x", "i"),))) == expected


def test_storing_a_loaded_value_of_the_same_type_does_not_round() -> None:
    y, x = Buffer("y", "bf16", h.affs("N"), "param"), Buffer("x", "bf16", h.affs("N"), "param")
    assert line(program(y, x, value=Load(0, "f32"), reads=(h.access("x", "i"),))) == "y[i] = x[i]  # S0"


def test_an_inlined_f32_sum_is_in_parentheses() -> None:
    p = h.neighbours()
    double = Inline("S0", h.affs("i"), (h.address("x", "i"),))
    s1 = replace(p.statements[1], value=Binary("*", Load(0, "f32"), Load(1, "f32"), "f32"))
    leaf = Leaf("S1", h.affs("i"), h.address("y", "i"), (double, double))
    p = replace(p, statements=(p.statements[0], s1), body=(h.loop("i", "N", leaf),))
    assert line(p) == "y[i] = (2 * x[i]) * (2 * x[i])  # S1"


def test_scalars_identity_merge_and_guards() -> None:
    acc = Buffer("acc", "bf16", (), memory="register", owner="i", layout=Layout("pad", (0, 1)))
    part = Buffer("part", "f32", h.affs(4), memory="register", owner="i")
    p = program(Buffer("y", "f32", h.affs("N"), "param"))
    i = Aff.of("i")
    body = (
        Identity(h.address("part", 3), "max=", h.affs("i")),
        Guard(
            (Constraint.lt(i * 2, "N"), Constraint.eq(i % 4, 0), Constraint.ge(i, 1)),
            (Merge(h.address("acc"), h.address("part", 3), "+=", h.affs("i"), h.affs("i")),),
        ),
    )
    p = replace(p, buffers=(*p.buffers, acc, part), body=(h.loop("i", "N", *body),))
    assert text(p).splitlines()[3:] == [
        "for i in 0..N:",
        "    acc: bf16 in register, pad(0, 1)",
        "    part: f32[4] in register",
        "    part[3] = -inf  # identity of max=",
        "    if 2*i < N and i % 4 == 0 and i >= 1:",
        "        acc = bf16(acc + part[3])  # merge",
    ]


@pytest.mark.parametrize(
    ("dtype", "op", "expected"),
    [
        ("f32", "+=", "-0"), ("i32", "+=", "0"), ("bf16", "*=", "1"), ("f32", "min=", "inf"), ("f8e4m3", "min=", "448"),
        ("f8e4m3", "max=", "-448"), ("i8", "max=", "-128"), ("i32", "min=", "2147483647"),
    ],
)  # fmt: skip
def test_identity_as_the_buffer_holds_it(dtype: str, op: str, expected: str) -> None:
    p = program(Buffer("y", dtype, h.affs("N"), "param"))
    p = replace(p, body=(h.loop("i", "N", Identity(h.address("y", "i"), op, h.affs("i"))),))
    assert line(p) == f"y[i] = {expected}  # identity of {op}"


@pytest.mark.parametrize(
    ("aff", "expected"),
    [
        (Aff.of("a") + Aff.of("b") * 64, "64*b + a"),  # b is the outer loop
        (Aff.of("a") - 1 + Aff.of("N"), "N + a - 1"),
        (Aff.of("N") - Aff.of("b") * 64, "N - 64*b"),
        ((Aff.of("b") + Aff.of("a") + 1) % 3, "(b + a + 1) % 3"),
        ((Aff.of("a") % 8) * 5 + 2, "5*(a % 8) + 2"),
        (Aff.of("b") * 64 + Aff.of("a") // 8, "64*b + floor(a/8)"),
        ((Aff.of("N") - Aff.of("a") + 7) // 8, "ceil((N - a)/8)"),
        (Aff.of("a") // 4 * 4, "4*floor(a/4)"),
        (Aff.of("a") // 2 - Aff.of("a") % 2, None),
        (Aff(0), "0"),
        (-Aff.of("a"), "-a"),
    ],
)
def test_affine_text(aff: Aff, expected: str | None) -> None:
    got = Scope(h.gemm_silu(), {"N": 0, "b": 1, "a": 2}).aff(aff)
    if expected is not None:
        assert got == expected
    for a in range(40):  # the text means the expression
        env = {"N": 97, "b": 3, "a": a}
        python = got.replace("/", "//").replace("floor", "").replace("ceil((N - a)//8)", "-((a - N)//8)")
        assert eval(python, {}, env) == aff.eval(env), got


def test_header_names_bound_sizes_assumptions_and_permissions() -> None:
    p = replace(
        h.gemm_silu(),
        sizes=("N",),
        bound=(("M", 8), ("K", 4)),
        where=(Constraint.eq(Aff.of("N") % 64, 0),),
        scalars=(("alpha", "f32"),),
        reassociate=frozenset({"acc"}),
        contract=True,
    )
    assert header(p) == [
        "gemm_silu(A: bf16[M, K], W: bf16[K, N], Y: bf16[M, N], alpha: f32)",
        "sizes: M = 8, K = 4, N",
        "where: N % 64 == 0",
        "allowed: reassociate acc, contract",
    ]


def test_a_buffer_is_declared_once_when_its_loop_name_repeats() -> None:
    p = h.gemm_silu()
    acc = replace(p.buffer["acc"], shape=(), memory="register", owner="j")
    lines = text(replace(p, buffers=(*p.buffers[:4], acc))).splitlines()
    assert [n for n, x in enumerate(lines) if x.strip() == "acc: f32 in register"] == [lines.index("    for j in 0..N:") + 1]


def test_loop_tree() -> None:
    assert loop_tree(h.gemm_silu()).splitlines() == [
        "i in 0..M",
        "  j in 0..N",
        "    S0: acc",
        "    k in 0..K",
        "      S1: acc",
        "    S2: C",
        "i in 0..M",
        "  j in 0..N",
        "    S3: Y",
    ]
    assert "copy: A_shared = A" in loop_tree(h.gemm_silu_tiled())
