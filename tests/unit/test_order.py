"""The fast path: what it accepts, and that each of its questions is needed.

Every program that must be refused is refused by one question only: with that one answered yes, the fast path would accept it.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests import handbuilt as h
from tests.unit import test_prove as programs
from tilec import workloads
from tilec.errors import LegalityError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.expr import Binary, Const
from tilec.ir.program import Barrier, Buffer, Commit, Copy, Guard, Inline, Leaf, Loop, Node, Program, Wait
from tilec.ir.tree import transform
from tilec.poly import order, prove
from tilec.poly.access import Relations
from tilec.poly.concurrency import HappensBefore
from tilec.poly.isl import Memory, Solver
from tilec.schedule.schedule import start

N, I = Aff.of("N"), Aff.of("i")
Body = tuple[Node, ...]


def params(*names: str) -> tuple[Buffer, ...]:
    return tuple(Buffer(n, "f32", h.affs("N"), "param") for n in names)


def passed_on(*, twice: bool = False) -> Program:
    """t[i] = x[i] for all i, then (with `twice`) x[i] = 0 for all i, then y[i] = t[i]."""
    s0 = h.statement("S0", {"i": "N"}, h.access("t", "i"), "=", h.F0, h.access("x", "i"))
    s1 = h.statement("S1", {"i": "N"}, h.access("x", "i"), "=", Const(0, "i32"))
    s2 = h.statement("S2", {"i": "N"}, h.access("y", "i"), "=", h.F0, h.access("t", "i"))
    statements = (s0, s1, s2) if twice else (s0, s2)
    body = tuple(h.loop("i", "N", h.own_leaf(s)) for s in statements)
    return Program("passed", ("N",), (), (), (*params("x", "y"), Buffer("t", "f32", h.affs("N"))), statements, body)


def changed(original: Program, *body: Node, buffers: tuple[Buffer, ...] | None = None) -> Program:
    return replace(original, original=original, body=body, buffers=buffers or original.buffers)


def inlined(original: Program, at: Aff) -> Program:
    """y[i] = x[at], by S0 inlined into S2; S1 stays before."""
    leaf = Leaf("S2", (I,), h.address("y", I), (Inline("S0", (at,), (h.address("x", at),)),))
    kept = [n for n in original.body[1:-1]]
    return changed(original, *kept, h.loop("i", "N", leaf))


def one_cell() -> Program:
    """All of t in one cell: only the last x[i] is still there."""
    p = passed_on()
    first = h.loop("i", "N", Leaf("S0", (I,), h.address("t", 0), (h.address("x", I),)))
    second = h.loop("i", "N", Leaf("S2", (I,), h.address("y", I), (h.address("t", 0),)))
    return changed(p, first, second, buffers=(*params("x", "y"), Buffer("t", "f32", h.affs(1), placed=True)))


def one_slot() -> Program:
    """Blocks of 4 copied one ahead into two slots, squeezed into one."""
    sound = programs.ahead(2, 0)

    def squeeze(node: Node) -> Body:
        if isinstance(node, Copy):
            return (replace(node, asynchronous=False, dst=replace(node.dst, index=(Aff(0), *node.dst.index[1:]))),)
        if isinstance(node, Leaf):
            return (replace(node, reads=(h.address("x_s", 0, "ii"),)),)
        return (node,)

    return replace(sound, body=transform(sound.body, squeeze))


def elsewhere() -> Program:
    """y[N-1-i] = t[i]."""
    p = passed_on()
    return changed(p, p.body[0], h.loop("i", "N", Leaf("S2", (I,), h.address("y", N - 1 - I), (h.address("t", I),))))


def exchanged() -> Program:
    p = passed_on()
    return changed(p, p.body[1], p.body[0])


def late() -> Program:
    """x is cleared before the inlined S0 reads it."""
    return inlined(passed_on(twice=True), I)


def half() -> Program:
    """Only every second y."""
    p = passed_on()
    leaf = Leaf("S2", (I * 2,), h.address("y", I * 2), (h.address("t", I * 2),))
    return changed(p, p.body[0], h.loop("i", (N + 1) // 2, leaf))


def never() -> Program:
    """The loop over y is empty."""
    p = passed_on()
    leaf = Leaf("S2", (I,), h.address("y", I), (h.address("t", I),))
    return changed(p, p.body[0], h.loop("i", 0, leaf))


def out_of_bounds() -> Program:
    """t has one cell fewer than it needs."""
    p = passed_on()
    return changed(p, *p.body, buffers=(*params("x", "y"), Buffer("t", "f32", (N - 1,), placed=True)))


WRONG: list[tuple[Callable[[], Program], str]] = [
    (lambda: changed(passed_on(), *passed_on().body, passed_on().body[1]), "_complete"),  # y is written twice
    (half, "_complete"),
    (never, "_complete"),
    (elsewhere, "_in_place"),
    (out_of_bounds, "_in_place"),
    (one_cell, "_private"),
    (one_slot, "_copied"),
    (lambda: inlined(passed_on(), N - 1 - I), "_inlined"),
    (late, "_in_order"),
    (exchanged, "_in_order"),
]


@pytest.mark.parametrize(("wrong", "question"), WRONG, ids=[f"{n}{q}" for n, (_, q) in enumerate(WRONG)])
def test_each_question_is_needed(wrong: Callable[[], Program], question: str, monkeypatch: pytest.MonkeyPatch):
    p = wrong()
    assert not order.order_kept(p.source, p)
    assert prove.prove_step(p.source, p).status == "illegal"
    monkeypatch.setattr(order, question, lambda *_: True)
    assert order.order_kept(p.source, p)


def test_an_inlined_read_is_asked_for_its_order(monkeypatch: pytest.MonkeyPatch):
    """Without anti dependences nobody misses the x that was cleared before the inlined S0 reads it."""
    p = late()
    monkeypatch.setattr(order, "KINDS", (("write", "read"), ("write", "write")))
    order.dependences.cache_clear()
    assert order.order_kept(p.source, p)
    order.dependences.cache_clear()


def test_races_are_asked_after_the_order(monkeypatch: pytest.MonkeyPatch):
    """a[i] = a[i-1] + 1 in parallel: the order of the tree is the original's, the machine's is not."""
    s = h.statement("S0", {"i": "N"}, h.access("a", I + 1), "=", Binary("+", h.F0, Const(1, "i32"), "f32"), h.access("a", "i"))
    original = Program(
        "running", ("N",), (), (), (Buffer("a", "f32", (N + 1,), "param"),), (s,), (h.loop("i", "N", h.own_leaf(s)),)
    )
    p = changed(original, h.loop("i", "N", h.own_leaf(s), kind="parallel"))
    assert order.order_kept(original, p)
    assert prove.prove_step(original, p).status == "illegal"
    monkeypatch.setattr(prove, "machine_order", lambda hb, notes: iter(()))
    assert prove.prove_step(original, p).status == "legal"


def in_phases(*body: Node) -> Program:
    """for r: t[i] = x[r,i] by 8 threads, then y[r,i] = t[7-i] by 8 threads; `body` is what runs in each r, barriers included."""
    r, i = Aff.of("r"), Aff.of("i")
    rows = tuple(Buffer(n, "f32", h.affs("N", 8), "param") for n in ("x", "y"))
    s0 = h.statement("S0", {"r": "N", "i": 8}, h.access("t", i), "=", h.F0, h.access("x", r, i))
    s1 = h.statement("S1", {"r": "N", "i": 8}, h.access("y", r, i), "=", h.F0, h.access("t", 7 - i))
    whole = h.loop("r", "N", h.loop("i", 8, h.own_leaf(s0)), h.loop("i", 8, h.own_leaf(s1)))
    buffers = (*rows, Buffer("t", "f32", h.affs(8)))
    original = Program("phases", ("N",), (), (), buffers, (s0, s1), (whole,))
    first, second = (h.loop("i", 8, h.own_leaf(s), kind="thread.x") for s in (s0, s1))
    parts = [first if n is s0_here else second if n is s1_here else n for n in body]
    shared = Buffer("t", "f32", h.affs(8), memory="shared", owner="b", placed=True)
    block = h.loop("b", 1, h.loop("r", "N", *parts), kind="block.x")
    return changed(original, block, buffers=(*rows, shared))


s0_here, s1_here = Commit(), Wait(0)  # where the two phases stand in `body`


@pytest.mark.parametrize(
    ("body", "sound"),
    [
        ((s0_here, s1_here), False),
        ((s0_here, Barrier(), s1_here), False),  # the next r writes what this one still reads
        ((Barrier(), s0_here, s1_here), False),
        ((Barrier(), s0_here, Barrier(), s1_here), True),
        ((s0_here, Barrier(), s1_here, Barrier()), True),
    ],
)
def test_fences_stand_between_phases_and_between_iterations(body: Body, sound: bool, monkeypatch: pytest.MonkeyPatch):
    p = in_phases(*body)
    hb = HappensBefore(Relations(Solver(p.sizes, p.where), p))
    pairs = [(a, b) for a, b in hb.conflicts() if a.site != b.site]
    assert len(pairs) == 1 and hb.fenced(*pairs[0]) == sound
    assert prove.prove(p.source, p).status == ("legal" if sound else "illegal")
    step = prove.prove_step(p.source, p)
    assert (step.status, step.method) == (("legal", "order") if sound else ("illegal", "full"))
    monkeypatch.setattr(HappensBefore, "fenced", lambda self, a, b: a.site != b.site)
    assert prove.prove_step(p.source, p).status == "legal"


def test_a_statement_that_is_inlined_leaves_no_reader_of_its_cells():
    """S0 is inlined into one reader, another one still looks into t."""
    p = passed_on()
    s3 = h.statement("S3", {"i": "N"}, h.access("z", "i"), "=", h.F0, h.access("t", "i"))
    original = replace(
        p, buffers=(*p.buffers, *params("z")), statements=(*p.statements, s3), body=(*p.body, h.loop("i", "N", h.own_leaf(s3)))
    )
    half_way = replace(inlined(original, I), original=original, body=(*inlined(original, I).body[1:], original.body[-1]))
    assert not order.order_kept(original, half_way)
    both = changed(original, original.body[0], *inlined(passed_on(), I).body, original.body[-1])
    assert not order.order_kept(original, both)  # S0 runs twice, and nobody said that it may
    assert order.order_kept(original, replace(both, recomputed=frozenset({"S0"})))
    assert prove.prove(original, replace(both, recomputed=frozenset({"S0"}))).status == "legal"


def test_a_guard_counts_as_a_bound():
    p = passed_on()
    (first, second) = p.body
    assert isinstance(second, Loop)
    guarded = changed(p, first, h.loop("i", N + 3, Guard((Constraint.lt("i", N),), second.body)))
    assert order.order_kept(p, guarded)
    assert not order.order_kept(p, changed(p, first, h.loop("i", N + 3, *second.body)))


def test_the_chain_of_the_benchmark_takes_the_fast_path():
    """GEMM+SiLU+quantize tiled, cached, bound: every step, the inlined one and the pipelined one too."""
    s = start(workloads.get("gemm_silu_quantize")).compute_inline("T").split("Q.i", 64, into=("io", "ii"))
    s = s.split("acc.k", 32, into=("ko", "ki")).reorder("io", "ii")
    s = s.cache_read("A", at="ko", memory="register")
    assert s.verdict.method == "order"
    assert replace(s.verdict, method="full") == s.check()


def test_a_step_that_is_refused_leaves_the_memory_sound():
    s = start(workloads.get("jacobi2d"))
    for _ in range(2):
        with pytest.raises(LegalityError):
            s.fuse_siblings("S0.i", "S1.i")
    t = s.shift("S1.i", 1).shift("S1.j", 1)
    assert t.verdict.method == "order" and t.check().status == "legal"


def test_a_memory_is_of_one_original_and_budget():
    first, second = passed_on(), passed_on(twice=True)
    memory = Memory()
    for p in (first, second, first):
        assert prove.prove_step(p, replace(p, original=p), memory=memory).method == "order"
    wrong = elsewhere()
    assert prove.prove_step(wrong.source, wrong, memory=memory).status == "illegal"
    assert prove.prove_step(first, replace(first, original=first), 1, memory).status == "unknown"
    assert prove.prove_step(first, replace(first, original=first), memory=memory).method == "order"


def test_a_memory_has_one_borrower():
    p, memory = passed_on(), Memory()
    with memory.lend(p, None) as one, memory.lend(p, None) as other:
        assert one is not other
    with memory.lend(p, None) as again:
        assert again is one
    with pytest.raises(RuntimeError), memory.lend(p, None):
        raise RuntimeError("a failure leaves none")
    with memory.lend(p, None) as new:
        assert new is not one


def test_a_schedule_travels_without_its_memory():
    s = start(workloads.get("gemm_silu")).split("Y.i", 64)
    t = pickle.loads(pickle.dumps(s))
    assert t == s and t.memory is not s.memory
    assert t.split("Y.j", 64).verdict.status == "legal"
