"""The judge itself, on programs whose verdict is known by hand: each kind of fault is found, and its absence is too."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import handbuilt as h
from tests.property.brute import judge
from tilec.ir.affine import Aff, Constraint
from tilec.ir.expr import Binary, Const, Load
from tilec.ir.program import (
    Address,
    Barrier,
    Buffer,
    Commit,
    Copy,
    Guard,
    Identity,
    Inline,
    Leaf,
    Loop,
    Merge,
    Node,
    Program,
    Wait,
)

F0 = Load(0, "f32")


def two_phases() -> Program:
    """for i<N: t[i] = x[i] + 1; for i<N: y[i] = t[N-1-i]."""
    n = Aff.of("N")
    s0 = h.statement("S0", {"i": "N"}, h.access("t", "i"), "=", Binary("+", F0, Const(1.0, "f32"), "f32"), h.access("x", "i"))
    s1 = h.statement("S1", {"i": "N"}, h.access("y", "i"), "=", F0, h.access("t", n - 1 - "i"))
    buffers = (
        Buffer("x", "f32", (n,), "param"),
        Buffer("y", "f32", (n,), "param"),
        Buffer("t", "f32", (n,)),
    )
    body = (h.loop("i", "N", h.own_leaf(s0)), h.loop("i", "N", h.own_leaf(s1)))
    return Program("two", ("N",), (), (), buffers, (s0, s1), body)


def running_sum() -> Program:
    """for i<N: s[0] += x[i], f32."""
    s0 = h.statement("S0", {"i": "N"}, h.access("s", 0), "+=", F0, h.access("x", "i"))
    buffers = (Buffer("x", "f32", (Aff.of("N"),), "param"), Buffer("s", "f32", (Aff(1),), "param"))
    return Program("sum", ("N",), (), (), buffers, (s0,), (h.loop("i", "N", h.own_leaf(s0)),))


def rows() -> Program:
    """for i<N: for j<2: y[i, j] = x[i, j]."""
    s0 = h.statement("S0", {"i": "N", "j": 2}, h.access("y", "i", "j"), "=", F0, h.access("x", "i", "j"))
    shape = (Aff.of("N"), Aff(2))
    buffers = (Buffer("x", "f32", shape, "param"), Buffer("y", "f32", shape, "param"))
    return Program("rows", ("N",), (), (), buffers, (s0,), (h.loop("i", "N", h.loop("j", 2, h.own_leaf(s0))),))


def kinds(original: Program, body: tuple[Node, ...] | None = None, n: int = 3, **changes: object) -> set[str]:
    """The kinds of fault that the judge finds in the program with this body and these changes."""
    program = replace(original, original=original, body=original.body if body is None else body, **changes)  # type: ignore[arg-type]
    return {f.kind for f in judge(original, program, {"N": n}).faults}


def leaf(p: Program, name: str) -> Leaf:
    return h.own_leaf(p.statement[name])


def test_the_original_is_legal() -> None:
    assert kinds(two_phases()) == kinds(running_sum()) == kinds(rows()) == set()


def test_order_of_values() -> None:
    p = two_phases()
    first, second = p.body
    assert kinds(p, (second, first)) == {"wrong source"}
    merged = (h.loop("i", "N", leaf(p, "S0"), leaf(p, "S1")),)
    assert kinds(p, merged) == {"wrong source"}
    assert kinds(p, merged, n=1) == set()


def test_instances() -> None:
    p = rows()
    assert kinds(p, (*p.body, *p.body)) == {"repeated"}
    assert kinds(p, (*p.body, *p.body), recomputed=frozenset({"S0"})) == set()
    short = (h.loop("i", Aff.of("N") - 1, *p.body[0].body),)  # type: ignore[union-attr]
    assert kinds(p, short) == {"missing", "lost value"}
    long = (h.loop("i", Aff.of("N") + 1, *p.body[0].body),)  # type: ignore[union-attr]
    assert {"domain", "bounds"} <= kinds(p, long)


def test_unread_temporaries_may_be_missing() -> None:
    p = two_phases()
    unread = replace(p, body=(p.body[0],), statements=p.statements[:1])
    assert kinds(unread, (h.loop("i", 1, leaf(p, "S0")),)) == set()


def test_last_writer() -> None:
    s0 = h.statement("S0", {"i": "N"}, h.access("y", 0), "=", Const(1.0, "f32"))
    p = Program("last", ("N",), (), (), (Buffer("y", "f32", (Aff(1),), "param"),), (s0,), (h.loop("i", "N", h.own_leaf(s0)),))
    back = Leaf("S0", (Aff.of("N") - 1 - "i",), Address("y", (Aff(0),)), ())
    assert kinds(p, (h.loop("i", "N", back),)) == {"lost value"}
    assert kinds(p, (h.loop("i", "N", back),), n=1) == set()


def test_storage_that_is_too_small() -> None:
    p = two_phases()
    one = (*p.buffers[:2], replace(p.buffers[2], shape=(Aff(1),)))

    def fold(x: Leaf) -> Leaf:
        if x.statement == "S0":
            return replace(x, target=Address("t", (Aff(0),)))
        return replace(x, reads=(Address("t", (Aff(0),)),))

    body = tuple(h.loop("i", "N", fold(leaf(p, s))) for s in ("S0", "S1"))
    assert kinds(p, body, buffers=one) == {"wrong source"}
    assert kinds(p, body, buffers=one, n=1) == set()


def test_contents_end_with_the_owner_iteration() -> None:
    """The row is filled at i=0 and read at i=1: right by address, undefined by owner."""
    p = rows()
    cache = Buffer("c", "f32", (Aff.of("N"), Aff(2)), "cache", "shared", None, root="x")
    copy = Copy(Address("c", h.affs("a", "b")), Address("x", h.affs("a", "b")), h.affs("a", "b"))
    fill = h.loop("a", "N", h.loop("b", 2, copy))
    use = replace(leaf(p, "S0"), reads=(Address("c", h.affs("i", "j")),))
    first_only = Guard((Constraint.eq("i", 0),), (fill,))
    body = (h.loop("i", "N", first_only, h.loop("j", 2, use)),)
    assert kinds(p, body, buffers=(*p.buffers, cache)) == set()
    assert kinds(p, body, buffers=(*p.buffers, replace(cache, owner="i"))) == {"wrong source"}


@pytest.mark.parametrize("kind", ["parallel", "vector", "block.x", "thread.x"])
def test_iterations_without_an_order(kind: str) -> None:
    p = running_sum()
    assert kinds(p, (h.loop("i", "N", leaf(p, "S0"), kind=kind),)) == {"race"}
    q = rows()
    assert kinds(q, (h.loop("i", "N", *q.body[0].body, kind=kind),)) == set()  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["parallel", "block.x"])
def test_private_copies_of_unordered_loops(kind: str) -> None:
    """One cell that every i writes and reads: a race when shared by all, none when each iteration has its own."""
    p = two_phases()
    s1 = replace(p.statements[1], reads=(h.access("t", "i"),))
    p = replace(p, statements=(p.statements[0], s1), body=(p.body[0], h.loop("i", "N", h.own_leaf(s1))))
    cell = Address("t", (Aff(0),))
    pair = (replace(leaf(p, "S0"), target=cell), replace(h.own_leaf(s1), reads=(cell,)))
    body = (h.loop("i", "N", *pair, kind=kind),)
    one = replace(p.buffers[2], shape=(Aff(1),))
    assert kinds(p, body, buffers=(*p.buffers[:2], one)) == {"race"}
    assert kinds(p, body, buffers=(*p.buffers[:2], replace(one, owner="i"))) == set()


def threads(p: Program, *between: Node) -> tuple[Node, ...]:
    first, second = (h.loop("i", "N", leaf(p, s), kind="thread.x") for s in ("S0", "S1"))
    return (h.loop("z", 1, first, *between, second),)


def test_threads_need_a_barrier() -> None:
    p = two_phases()
    assert kinds(p, threads(p)) == {"race"}
    assert kinds(p, threads(p, Barrier())) == set()
    assert kinds(p, threads(p), n=1) == set()


def test_a_register_belongs_to_its_thread() -> None:
    p = two_phases()
    held = (*p.buffers[:2], replace(p.buffers[2], memory="register", owner="z"))
    assert kinds(p, threads(p, Barrier()), buffers=held) == {"wrong source"}


def pipelined(p: Program, wait: int, slots: int = 2) -> tuple[tuple[Node, ...], tuple[Buffer, ...]]:
    """Row i+1 is copied asynchronously while row i is used."""

    def fill(i: Aff | str) -> Node:
        source = Address("x", h.affs(i, "b"))
        return h.loop("b", 2, Copy(Address("c", (Aff.of(i) % slots, Aff.of("b"))), source, source.index, asynchronous=True))

    use = replace(leaf(p, "S0"), reads=(Address("c", (Aff.of("i") % slots, Aff.of("j"))),))
    ahead = Guard((Constraint.lt(Aff.of("i") + 1, "N"),), (fill(Aff.of("i") + 1),))
    body = (fill(Aff(0)), Commit(), h.loop("i", "N", ahead, Commit(), Wait(wait), h.loop("j", 2, use)))
    return body, (*p.buffers, Buffer("c", "f32", (Aff(slots), Aff(2)), "cache", "shared", None, root="x"))


def test_asynchronous_copies() -> None:
    p = rows()
    body, buffers = pipelined(p, wait=1)
    assert kinds(p, body, buffers=buffers) == set()
    body, buffers = pipelined(p, wait=2)  # the copy that is read now may still be in flight
    assert kinds(p, body, buffers=buffers) == {"race"}
    body, buffers = pipelined(p, wait=0, slots=1)  # the copy lands in the slot that is still needed
    assert "wrong source" in kinds(p, body, buffers=buffers)
    without = tuple(n for n in pipelined(p, wait=1)[0] if not isinstance(n, Commit))  # the first row joins the second's group
    assert kinds(p, without, buffers=buffers) & {"race"}


def test_a_wait_is_for_the_issuing_thread_only() -> None:
    p = two_phases()
    s1 = replace(p.statements[1], reads=(h.access("x", Aff.of("N") - 1 - "i"),))
    p = replace(p, statements=(s1,), body=(h.loop("i", "N", h.own_leaf(s1)),))
    copy = Copy(Address("c", h.affs("i")), Address("x", h.affs("i")), h.affs("i"), asynchronous=True)
    use = replace(h.own_leaf(s1), reads=(Address("c", (Aff.of("N") - 1 - "i",)),))

    def body(*between: Node) -> tuple[Node, ...]:
        return (h.loop("z", 1, h.loop("i", "N", copy, kind="thread.x"), *between, h.loop("i", "N", use, kind="thread.x")),)

    buffers = (*p.buffers, Buffer("c", "f32", (Aff.of("N"),), "cache", "shared", None, root="x"))
    assert kinds(p, body(Commit(), Wait(0), Barrier()), buffers=buffers) == set()
    assert kinds(p, body(Commit(), Wait(0)), buffers=buffers) == {"race"}
    assert kinds(p, body(Commit(), Barrier(), Wait(0)), buffers=buffers) == {"race"}


def split_sum(p: Program, merges: int = 1, identity: bool = True) -> tuple[tuple[Node, ...], tuple[Buffer, ...]]:
    """Two partial sums, then merged."""
    slot, here = Address("q", h.affs("w")), h.affs(0)
    start = h.loop("w", 2, Identity(slot, "+=", here))
    update = h.loop("i", "N", replace(leaf(p, "S0"), target=Address("q", (Aff.of("i") % 2,))))
    end = h.loop("w", 2, *[Merge(Address("s", here), slot, "+=", here, here)] * merges)
    part = Buffer("q", "f32", (Aff(2),), "partial", "global", None, root="s")
    return ((start,) if identity else ()) + (update, end), (*p.buffers, part)


def test_reductions_under_permission() -> None:
    p, allowed = running_sum(), frozenset({"s"})
    body, buffers = split_sum(p)
    assert kinds(p, body, buffers=buffers, reassociate=allowed) == set()
    assert "permission" in kinds(p, body, buffers=buffers)
    doubled, _ = split_sum(p, merges=2)
    assert kinds(p, doubled, buffers=buffers, reassociate=allowed) == {"lost value"}
    unset, _ = split_sum(p, identity=False)
    assert kinds(p, unset, buffers=buffers, reassociate=allowed) == {"lost value"}
    backwards = Leaf("S0", (Aff.of("N") - 1 - "i",), Address("s", (Aff(0),)), (Address("x", (Aff.of("N") - 1 - "i",)),))
    assert kinds(p, (h.loop("i", "N", backwards),), reassociate=allowed) == set()
    assert "wrong source" in kinds(p, (h.loop("i", "N", backwards),))


@pytest.mark.parametrize(
    ("dtype", "op", "free"), [("f32", "max=", True), ("i32", "+=", True), ("i32", "*=", True), ("i8", "+=", False)]
)
def test_reductions_that_are_free_by_nature(dtype: str, op: str, free: bool) -> None:
    p = running_sum()
    s0 = replace(p.statements[0], op=op)
    p = replace(p, statements=(s0,), buffers=tuple(replace(b, dtype=dtype) for b in p.buffers))
    backwards = Leaf("S0", (Aff.of("N") - 1 - "i",), Address("s", (Aff(0),)), (Address("x", (Aff.of("N") - 1 - "i",)),))
    assert (kinds(p, (h.loop("i", "N", backwards),)) == set()) is free


def test_inlined_statements_count_as_executions() -> None:
    p = two_phases()
    at = Aff.of("N") - 1 - "i"
    inlined = replace(leaf(p, "S1"), reads=(Inline("S0", (at,), (Address("x", (at,)),)),))
    assert kinds(p, (h.loop("i", "N", inlined),)) == set()
    shifted = replace(leaf(p, "S1"), reads=(Inline("S0", (Aff.of("i"),), (Address("x", (Aff.of("i"),)),)),))
    assert kinds(p, (h.loop("i", "N", shifted),)) == {"wrong source"}
    assert kinds(p, (p.body[0], h.loop("i", "N", inlined))) == {"repeated"}


def test_empty_loops_and_false_guards() -> None:
    p = rows()
    never = Guard((Constraint.ge(Aff(-1), 0),), p.body)
    assert kinds(p, (never, Loop("z", (Aff(1),), (Aff(1),), p.body), *p.body)) == set()
