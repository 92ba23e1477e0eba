"""Programs written down node by node, for tests of what reads a Program: they need neither the front end nor a schedule."""

from __future__ import annotations

from dataclasses import replace

from tilec.ir.affine import Aff, AffLike, Constraint, ceil_div
from tilec.ir.expr import Binary, Call, Const, Expr, Load
from tilec.ir.program import (
    Access,
    Address,
    Barrier,
    Buffer,
    Commit,
    Copy,
    Inline,
    Leaf,
    Loop,
    Node,
    Program,
    Statement,
    Wait,
)


def affs(*es: AffLike) -> tuple[Aff, ...]:
    return tuple(Aff.of(e) for e in es)


def address(buffer: str, *index: AffLike) -> Address:
    return Address(buffer, affs(*index))


def loop(var: str, upper: AffLike | tuple[AffLike, ...], *body: Node, kind: str = "serial", lower: AffLike = 0) -> Loop:
    uppers = upper if isinstance(upper, tuple) else (upper,)
    return Loop(var, affs(lower), affs(*uppers), body, kind)


def box(**extents: AffLike) -> tuple[Constraint, ...]:
    return tuple(c for v, n in extents.items() for c in (Constraint.ge(v, 0), Constraint.lt(v, n)))


def statement(name: str, extents: dict[str, AffLike], target: Access, op: str, value: Expr, *reads: Access) -> Statement:
    return Statement(name, tuple(extents), box(**extents), target, op, value, reads)


def access(buffer: str, *index: AffLike) -> Access:
    return Access(buffer, affs(*index))


def own_leaf(s: Statement) -> Leaf:
    """The leaf of the original program."""
    return Leaf(
        s.name,
        tuple(Aff.of(v) for v in s.loops),
        Address(s.target.buffer, s.target.index),
        tuple(Address(a.buffer, a.index) for a in s.reads),
    )


F0, F1 = Load(0, "f32"), Load(1, "f32")


def gemm_silu() -> Program:
    """C = bf16(A·W), Y = silu(C): the original, with the accumulator expanded over i, j."""
    s0 = statement("S0", {"i": "M", "j": "N"}, access("acc", "i", "j"), "=", Const(0, "i32"))
    s1 = statement(
        "S1",
        {"i": "M", "j": "N", "k": "K"},
        access("acc", "i", "j"),
        "+=",
        Binary("*", F0, F1, "f32"),
        access("A", "i", "k"),
        access("W", "k", "j"),
    )
    s2 = statement("S2", {"i": "M", "j": "N"}, access("C", "i", "j"), "=", F0, access("acc", "i", "j"))
    s3 = statement("S3", {"i": "M", "j": "N"}, access("Y", "i", "j"), "=", Call("silu", (F0,), "f32"), access("C", "i", "j"))
    return Program(
        name="gemm_silu",
        sizes=("M", "N", "K"),
        where=(),
        scalars=(),
        buffers=(
            Buffer("A", "bf16", affs("M", "K"), "param"),
            Buffer("W", "bf16", affs("K", "N"), "param"),
            Buffer("Y", "bf16", affs("M", "N"), "param"),
            Buffer("C", "bf16", affs("M", "N")),
            Buffer("acc", "f32", affs("M", "N"), private=2),
        ),
        statements=(s0, s1, s2, s3),
        body=(
            loop("i", "M", loop("j", "N", own_leaf(s0), loop("k", "K", own_leaf(s1)), own_leaf(s2))),
            loop("i", "M", loop("j", "N", own_leaf(s3))),
        ),
    )


def tail(extent: AffLike, outer: str, tile: int) -> tuple[Aff, Aff]:
    return Aff.of(tile), Aff.of(extent) - Aff.of(outer) * tile


def gemm_silu_tiled(tile: int = 64, block: int = 32) -> Program:
    """The schedule of DESIGN 5 without its pipeline: C inlined, tiles in shared memory, one block per output tile."""
    original = gemm_silu()
    io, jo, ko = Aff.of("io") * tile, Aff.of("jo") * tile, Aff.of("ko") * block
    m, n, k = tail("M", "io", tile), tail("N", "jo", tile), tail("K", "ko", block)
    cell = address("acc", "ii", "ji")
    init = Leaf("S0", affs(io + "ii", jo + "ji"), cell, ())
    update = Leaf(
        "S1",
        affs(io + "ii", jo + "ji", ko + "ki"),
        cell,
        (address("A_shared", "ii", "ki"), address("W_shared", "ki", "ji")),
    )
    store = Leaf(
        "S3",
        affs(io + "ii", jo + "ji"),
        address("Y", io + "ii", jo + "ji"),
        (Inline("S2", affs(io + "ii", jo + "ji"), (cell,)),),
    )
    row, column = "A_shared.0", "A_shared.1"
    load_a = Copy(address("A_shared", row, column), address("A", io + row, ko + column), affs(io + row, ko + column))
    row_w, column_w = "W_shared.0", "W_shared.1"
    load_w = Copy(address("W_shared", row_w, column_w), address("W", ko + row_w, jo + column_w), affs(ko + row_w, jo + column_w))
    body = (
        loop("ii", m, loop("ji", n, init)),
        loop(
            "ko",
            ceil_div("K", block),
            loop(row, m, loop(column, k, load_a)),
            loop(row_w, k, loop(column_w, n, load_w)),
            loop("ii", m, loop("ji", n, loop("ki", k, update))),
        ),
        loop("ii", m, loop("ji", n, store)),
    )
    buffers = tuple(b for b in original.buffers if b.role == "param")
    return replace(
        original,
        buffers=(
            *buffers,
            Buffer("acc", "f32", affs(tile, tile), memory="shared", owner="jo", private=2, placed=True),
            Buffer("A_shared", "bf16", affs(tile, block), "cache", "shared", "ko", root="A"),
            Buffer("W_shared", "bf16", affs(block, tile), "cache", "shared", "ko", root="W"),
        ),
        body=(loop("io", ceil_div("M", tile), loop("jo", ceil_div("N", tile), *body, kind="block.x"), kind="block.y"),),
        recomputed=frozenset({"S2"}),
        original=original,
    )


def neighbours() -> Program:
    """t[i] = 2·x[i]; y[i] = t[i] + t[i-1] (i ≥ 1): the original."""
    s0 = statement("S0", {"i": "N"}, access("t", "i"), "=", Binary("*", Const(2, "i32"), F0, "f32"), access("x", "i"))
    s1 = Statement(
        "S1",
        ("i",),
        (Constraint.ge("i", 1), Constraint.lt("i", "N")),
        access("y", "i"),
        "=",
        Binary("+", F0, F1, "f32"),
        (access("t", "i"), access("t", Aff.of("i") - 1)),
    )
    return Program(
        name="neighbours",
        sizes=("N",),
        where=(),
        scalars=(),
        buffers=(
            Buffer("x", "f32", affs("N"), "param"),
            Buffer("y", "f32", affs("N"), "param"),
            Buffer("t", "f32", affs("N")),
        ),
        statements=(s0, s1),
        body=(loop("i", "N", own_leaf(s0)), Loop("i", affs(1), affs("N"), (own_leaf(s1),))),
    )


def neighbours_on_threads() -> Program:
    """Two phases of one block of 32 threads that talk through shared memory: N bound to 32."""
    original = neighbours()
    bound = replace(
        original,
        sizes=(),
        bound=(("N", 32),),
        buffers=tuple(replace(b, shape=affs(32)) for b in original.buffers),
        statements=tuple(replace(s, domain=tuple(c.subs({"N": 32}) for c in s.domain)) for s in original.statements),
        body=(loop("i", 32, own_leaf(original.statements[0])), Loop("i", affs(1), affs(32), (own_leaf(original.statements[1]),))),
    )
    s0, s1 = bound.statements
    return replace(
        bound,
        buffers=(*bound.buffers[:2], replace(bound.buffers[2], memory="shared", owner="b", placed=True)),
        body=(
            loop(
                "b",
                1,
                loop("i", 32, own_leaf(s0), kind="thread.x"),
                Barrier(inserted=True),
                Loop("i", affs(1), affs(32), (own_leaf(s1),), "thread.x"),
                kind="block.x",
            ),
        ),
        original=bound,
    )


def copied_ahead() -> Program:
    """y[i] = 2·x[i], x fetched one tile ahead by asynchronous copies into two slots of a shared buffer; tiles of 4."""
    s0 = statement("S0", {"i": "N"}, access("y", "i"), "=", Binary("*", Const(2, "i32"), F0, "f32"), access("x", "i"))
    original = Program(
        name="double",
        sizes=("N",),
        where=(),
        scalars=(),
        buffers=(Buffer("x", "f32", affs("N"), "param"), Buffer("y", "f32", affs("N"), "param")),
        statements=(s0,),
        body=(loop("i", "N", own_leaf(s0)),),
    )
    v = "x_shared.0"

    def fetch(tile: Aff) -> Loop:
        src = tile * 4 + v
        copy = Copy(address("x_shared", tile % 2, v), address("x", src), affs(src), asynchronous=True)
        return loop(v, (4, Aff.of("N") - tile * 4), copy)

    io = Aff.of("io")
    leaf = Leaf("S0", affs(io * 4 + "ii"), address("y", io * 4 + "ii"), (address("x_shared", io % 2, "ii"),))
    return replace(
        original,
        buffers=(*original.buffers, Buffer("x_shared", "f32", affs(2, 4), "cache", "shared", "b", root="x")),
        body=(
            loop(
                "b",
                1,
                fetch(Aff(0)),
                Commit(),
                loop(
                    "io",
                    ceil_div("N", 4),
                    fetch(io + 1),
                    Commit(),
                    Wait(1),
                    loop("ii", (4, Aff.of("N") - io * 4), leaf),
                    kind="pipelined",
                ),
                kind="block.x",
            ),
        ),
        original=original,
    )
