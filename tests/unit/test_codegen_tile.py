"""What counts as an operation on whole tiles, how it is written, and the instruction tree it is read from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests import handbuilt as h
from tilec.codegen import tile
from tilec.ir import tree
from tilec.ir.affine import Aff, Constraint
from tilec.ir.expr import Binary, Const, Expr, Index, Load, Unary
from tilec.ir.program import Access, Buffer, Guard, Identity, Layout, Loop, Node, Program
from tilec.lower.instructions import For, If, Instruction, Launch, Sync, Tile, allocation, constant_extent, lower

F, G = Load(0, "f32"), Load(1, "f32")


def nest(
    extents: dict[str, str | int],
    target: Access,
    op: str,
    value: Expr,
    *reads: Access,
    dtypes: dict[str, str] | None = None,
    around: tuple[str, ...] = (),
) -> Program:
    """One statement under its loops; every buffer is a global parameter with extents named after the loops' bounds."""
    s = h.statement("S0", extents, target, op, value, *reads)
    body: Node = h.own_leaf(s)
    for v in reversed(extents):
        body = h.loop(v, extents[v], body)
    shapes = {a.buffer: tuple(_extent(e, extents) for e in a.index) for a in (*reads, target)}
    buffers = tuple(Buffer(n, (dtypes or {}).get(n, "f32"), shape, "param") for n, shape in shapes.items())
    sizes = tuple(dict.fromkeys(e for e in extents.values() if isinstance(e, str)))
    return Program("p", sizes, (), (), buffers, (s,), (body,))


def _extent(e: Aff, extents: dict[str, str | int]) -> Aff:
    """One more than the largest value of an index with non-negative coefficients."""
    top = Aff(e.const + 1)
    for name, c in e.terms:
        assert isinstance(name, str)
        top = top + (Aff.of(extents[name]) - 1) * c
    return top


def body(p: Program) -> list[str]:
    lines = tile.text(p).splitlines()
    return lines[lines.index("") + 1 :]


def tiles(p: Program) -> list[Tile]:
    def go(ops: tuple[Instruction, ...]) -> Iterator[Tile]:
        for op in ops:
            if isinstance(op, Tile):
                yield op
            elif isinstance(op, For | If):
                yield from go(op.body)

    return [t for launch in lower(p).launches for t in go(launch.body)]


MUL = Binary("*", F, G, "f32")


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (
            nest(
                {"i": "M", "j": "N", "k": "K"},
                h.access("C", "i", "j"),
                "+=",
                MUL,
                h.access("A", "i", "k"),
                h.access("B", "k", "j"),
            ),
            ["C = matmul_accumulate(C, A, B)  # S0"],
        ),
        (  # the other operand first, both transposed, the sum outermost
            nest(
                {"k": "K", "i": "M", "j": "N"},
                h.access("C", "i", "j"),
                "+=",
                MUL,
                h.access("B", "j", "k"),
                h.access("A", "k", "i"),
            ),
            ["C = matmul_accumulate(C, A.T, B.T)  # S0"],
        ),
        (  # C's dimensions the other way round: rows are its first
            nest(
                {"i": "M", "j": "N", "k": "K"},
                h.access("C", "j", "i"),
                "+=",
                MUL,
                h.access("A", "i", "k"),
                h.access("B", "k", "j"),
            ),
            ["C = matmul_accumulate(C, B.T, A.T)  # S0"],
        ),
        (  # bf16 rounds after every term: no matmul
            nest(
                {"i": "M", "j": "N", "k": "K"},
                h.access("C", "i", "j"),
                "+=",
                MUL,
                h.access("A", "i", "k"),
                h.access("B", "k", "j"),
                dtypes={"C": "bf16"},
            ),
            ["for k in 0..K:", "    C = bf16(C + A[:, k][:, None] * B[k])  # S0"],
        ),
        (
            nest({"i": "M", "k": "K"}, h.access("m", "i"), "max=", Unary("abs", F, "f32"), h.access("A", "i", "k")),
            ["m = max(m, reduce_max(abs(A), over=k))  # S0"],
        ),
        (
            nest({"i": "M", "k": "K"}, h.access("y", "i"), "+=", MUL, h.access("A", "i", "k"), h.access("x", "k")),
            ["y += reduce_sum(A * x, over=k)  # S0"],
        ),
        (
            nest({"i": "M", "j": "N"}, h.access("Y", "i", "j"), "=", MUL, h.access("s", "i"), h.access("A", "j", "i")),
            ["store_tile(Y, s[:, None] * A.T)  # S0"],
        ),
        (
            nest({"i": "M", "j": "N"}, h.access("Y", "i", "j"), "=", Const(0, "i32")),
            ["Y = init_tile(0)  # S0"],
        ),
        (  # two values of p touch one cell of o at different r: the window's sum stays a loop
            nest({"p": "M", "r": 3}, h.access("o", "p"), "+=", MUL, h.access("w", "r"), h.access("x", Aff.of("p") + "r")),
            ["for r in 0..3:", "    o += w[r] * x[r : M + r]  # S0"],
        ),
        (  # a stride is no plain slice
            nest({"i": "M"}, h.access("y", "i"), "=", F, h.access("x", Aff.of("i") * 2)),
            ["for i in 0..M:", "    y[i] = x[2*i]  # S0"],
        ),
        (  # a value that depends on the axis itself
            nest({"i": "M"}, h.access("y", "i"), "=", Index(Aff.of("i"))),
            ["for i in 0..M:", "    y[i] = f32(i)  # S0"],
        ),
        (  # a recurrence
            nest({"i": "M", "j": "N"}, h.access("y", Aff.of("i") + 1, "j"), "=", F, h.access("y", "i", "j")),
            ["for i in 0..M:", "    store_tile(y, y[i], at=(i + 1, 0), size=(1, N))  # S0"],
        ),
        (  # the diagonal
            nest({"i": "M"}, h.access("y", "i"), "=", F, h.access("x", "i", "i")),
            ["for i in 0..M:", "    y[i] = x[i, i]  # S0"],
        ),
    ],
)
def test_operations(program: Program, expected: list[str]) -> None:
    assert body(program) == expected


def test_design_example() -> None:
    assert [x.strip() for x in body(h.gemm_silu_tiled())] == [
        "for io in 0..ceil(M/64):  # block.y",
        "for jo in 0..ceil(N/64):  # block.x",
        "acc: f32[64, 64] in shared",
        "acc = init_tile(0)  # S0",
        "for ko in 0..ceil(K/32):",
        "A_shared: bf16[64, 32] in shared",
        "W_shared: bf16[32, 64] in shared",
        "A_shared = load_tile(A, at=(64*io, 32*ko), size=(64, 32))",
        "W_shared = load_tile(W, at=(32*ko, 64*jo), size=(32, 64))",
        "acc = matmul_accumulate(acc, A_shared, W_shared)  # S1",
        "store_tile(Y, bf16(silu(bf16(acc))), at=(64*io, 64*jo), size=(64, 64))  # S3",
    ]
    assert [t.kind for t in tiles(h.gemm_silu_tiled())] == ["init", "load", "load", "matmul", "store"]


def test_a_bound_that_is_not_the_array_s_end_is_written() -> None:
    p = h.gemm_silu_tiled()
    p = replace(p, body=tree.subs(p.body, {"M": Aff.of("M") - 1}))
    assert "A_shared = load_tile(A, at=(64*io, 32*ko), size=(min(64, M - 64*io - 1), 32))" in [x.strip() for x in body(p)]


def test_bound_axes_and_guards() -> None:
    p = h.neighbours()
    leaf = h.own_leaf(p.statements[0])
    guarded = Loop("i", h.affs(0), h.affs(64), (Guard((Constraint.lt("i", "N"),), (leaf,)),), "thread.x")
    assert body(replace(p, body=(guarded,))) == ["store_tile(t, 2 * x[0 : 64], at=(0,), size=(64,))  # S0, i on thread.x"]
    odd = Loop("i", h.affs(0), h.affs(Aff.of("N")), (Guard((Constraint.eq(Aff.of("i") % 2, 1),), (leaf,)),))
    assert body(replace(p, body=(odd,))) == ["for i in 0..N:", "    if i % 2 == 1:", "        t[i] = 2 * x[i]  # S0"]


def test_cells_that_only_threads_tell_apart() -> None:
    p = h.neighbours()
    t = replace(p.buffer["t"], shape=(), memory="register", owner="b")
    init = h.loop("i", 32, Identity(h.address("t"), "+=", h.affs("i")), kind="thread.x")
    p = replace(p, buffers=(*p.buffers[:2], t), body=(h.loop("b", 1, init, kind="block.x"),))
    assert body(p)[-1].strip() == "t = init_tile(-0)  # identity, i on thread.x, for each i in 0..32"


def test_launches() -> None:
    plain, fused, threads = (lower(p).launches for p in (h.gemm_silu(), h.gemm_silu_tiled(), h.neighbours_on_threads()))
    assert [(x.name, x.bound, x.collective) for x in plain] == [("gemm_silu_0", False, False), ("gemm_silu_1", False, False)]
    assert [(x.bound, x.collective, [g.var for g in x.grid], x.threads) for x in fused] == [(True, True, ["io", "jo"], ())]
    assert [(x.bound, x.collective, x.threads) for x in threads] == [(True, False, (("thread.x", 32),))]
    assert sum(isinstance(op, Sync) for op in _flat(threads[0])) == 1


def _flat(launch: Launch) -> list[Instruction]:
    out: list[Instruction] = []
    todo = list(launch.body)
    while todo:
        op = todo.pop(0)
        out.append(op)
        todo += op.body if isinstance(op, For | If) else ()
    return out


def test_allocations() -> None:
    found = {a.buffer.name: a.bytes for a in lower(h.gemm_silu_tiled()).launches[0].allocations()}
    assert found == {"acc": 64 * 64 * 4, "A_shared": 64 * 32 * 2, "W_shared": 32 * 64 * 2}
    assert [(a.buffer.name, a.bytes) for a in lower(h.gemm_silu()).allocations] == [("C", None), ("acc", None)]
    padded = Buffer("x", "bf16", h.affs(64, 32), layout=Layout("pad", (1, 8)))
    panels = Buffer("x", "f32", h.affs(30, 16), layout=Layout("panels", (0, 14)))
    swizzled = Buffer("x", "f32", h.affs(8, 8), layout=Layout("xor", (0, 1)))
    assert [allocation(b).bytes for b in (padded, panels, swizzled)] == [64 * 40 * 2, 42 * 16 * 4, 256]


def test_constant_extent() -> None:
    n = Aff.of("N")
    assert constant_extent(Loop("i", h.affs(n * 8), h.affs(n * 8 + 8, 100), ())) == 8
    assert constant_extent(Loop("i", h.affs(0), h.affs(n), ())) is None
    assert constant_extent(Loop("i", h.affs(5), h.affs(2), ())) == 0
