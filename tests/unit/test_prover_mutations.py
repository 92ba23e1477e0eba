"""The prover with one idea taken out gives a wrong verdict on a named program: so each idea is tested, not only present.

Every test first sees the right verdict, then breaks the prover, and sees the verdict change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests import handbuilt as h
from tests.unit import test_prove as programs
from tilec.ir.affine import Aff, Constraint
from tilec.ir.expr import Binary, Const
from tilec.ir.program import Buffer, Copy, Guard, Leaf, Program, Statement
from tilec.ir.tree import Site, transform
from tilec.poly import access, cells, concurrency, dataflow, order, prove
from tilec.poly.access import Relations
from tilec.poly.concurrency import HappensBefore


@pytest.fixture(autouse=True)
def no_memory() -> Iterator[None]:
    """A broken prover's answers must not be remembered, nor a sound one's be found."""

    def forget() -> None:
        for f in (prove._prove, dataflow.reference, order.dependences, order.received):
            f.cache_clear()

    forget()
    yield
    forget()


def status(p: Program) -> str:
    return prove.prove(p.source, p).status


def backwards() -> Program:
    """a[i] = a[i+1] run from the last to the first: a read after the write that should follow it."""
    s = Statement(
        "S0",
        ("i",),
        (Constraint.ge("i", 0), Constraint.lt("i", Aff.of("N") - 1)),
        h.access("a", "i"),
        "=",
        Binary("+", h.F0, Const(1, "i32"), "f32"),
        (h.access("a", Aff.of("i") + 1),),
    )
    upper = Aff.of("N") - 1
    original = Program(
        "backwards", ("N",), (), (), (Buffer("a", "f32", h.affs("N"), "param"),), (s,), (h.loop("i", upper, h.own_leaf(s)),)
    )
    i = Aff.of("N") - 2 - Aff.of("i")
    leaf = Leaf("S0", (i,), h.address("a", i), (h.address("a", i + 1),))
    return replace(original, original=original, body=(h.loop("i", upper, leaf),))


def exchanged_writers() -> Program:
    """P[i] = 0 and then P[i+1] = x[i], exchanged: only the final values tell."""
    s0 = h.statement("S0", {"i": Aff.of("N") + 2}, h.access("P", "i"), "=", Const(0, "i32"))
    s1 = h.statement("S1", {"i": "N"}, h.access("P", Aff.of("i") + 1), "=", h.F0, h.access("x", "i"))
    buffers = (Buffer("x", "f32", h.affs("N"), "param"), Buffer("P", "f32", h.affs(Aff.of("N") + 2), "param"))
    first, second = h.loop("i", Aff.of("N") + 2, h.own_leaf(s0)), h.loop("i", "N", h.own_leaf(s1))
    original = Program("writers", ("N",), (), (), buffers, (s0, s1), (first, second))
    return replace(original, original=original, body=(second, first))


def test_no_anti_dependences_in_the_fast_path(monkeypatch: pytest.MonkeyPatch):
    p = backwards()
    assert not order.order_kept(p.source, p)
    monkeypatch.setattr(order, "KINDS", (("write", "read"), ("write", "write")))
    order.dependences.cache_clear()
    assert order.order_kept(p.source, p)


def test_no_end_readers(monkeypatch: pytest.MonkeyPatch):
    p = exchanged_writers()
    assert status(p) == "illegal"
    prove._prove.cache_clear()
    dataflow.reference.cache_clear()
    monkeypatch.setattr(Relations, "final", property(lambda r: r.solver.empty()))
    assert status(p) == "legal"


def test_storage_ignored(monkeypatch: pytest.MonkeyPatch):
    """A copy made ahead into a single slot overwrites what is still to be read."""
    sound = programs.ahead(2, 0)
    one_slot = replace(
        sound,
        buffers=tuple(replace(b, shape=h.affs(1, 4)) if b.name == "x_s" else b for b in sound.buffers),
        body=transform(sound.body, lambda n: (replace(n, asynchronous=False),) if isinstance(n, Copy) else (n,)),
    )

    def single(node):
        if isinstance(node, Copy):
            return (replace(node, dst=replace(node.dst, index=(Aff(0), *node.dst.index[1:]))),)
        if isinstance(node, Leaf):
            reads = tuple(replace(r, index=(Aff(0), *r.index[1:])) for r in node.reads)  # type: ignore[arg-type, call-arg, union-attr]
            return (replace(node, reads=reads),)
        return (node,)

    one_slot = replace(one_slot, body=transform(one_slot.body, single))
    assert status(one_slot) == "illegal"
    prove._prove.cache_clear()
    monkeypatch.setattr(access, "cell", _logical_cell)
    assert status(one_slot) == "legal"


def _logical_cell(program: Program, site: Site, address, *, folded: bool):
    """What the value is, not where it lies."""
    if program.buffer[address.buffer].role != "cache":
        return f"C_{address.buffer}_", list(address.index)
    if isinstance(site.action, Copy):
        return f"C_{address.buffer}_", list(site.action.cell)
    assert isinstance(site.action, Leaf)
    return f"C_{address.buffer}_", list(site.action.instance)


def test_private_copies_ignored(monkeypatch: pytest.MonkeyPatch):
    """Blocks that each own a tile do not race; without cells of their own they would."""
    p = h.gemm_silu_tiled()
    assert status(p) == "legal"
    prove._prove.cache_clear()

    def bare(program: Program, site: Site, address, *, folded: bool):
        if not folded:
            return true_cell(program, site, address, folded=folded)
        return f"C_{address.buffer}_", list(address.index)

    true_cell = access.cell
    monkeypatch.setattr(access, "cell", bare)
    monkeypatch.setattr(concurrency, "cell", bare)
    monkeypatch.setattr(concurrency, "owner_depth", lambda buffer, site: 0)
    assert status(p) == "illegal"


def test_race_check_dropped(monkeypatch: pytest.MonkeyPatch):
    tiled = h.gemm_silu_tiled()
    shared = replace(tiled, buffers=tuple(replace(b, owner=None) if b.name == "acc" else b for b in tiled.buffers))
    assert status(shared) == "illegal"
    prove._prove.cache_clear()
    monkeypatch.setattr(HappensBefore, "races", lambda self: iter(()))
    assert status(shared) == "legal"


def test_happens_before_without_barriers(monkeypatch: pytest.MonkeyPatch):
    p = h.neighbours_on_threads()
    assert status(p) == "legal"
    prove._prove.cache_clear()
    monkeypatch.setattr(HappensBefore, "after_barrier", lambda self, a, b, depth: self.solver.empty())
    assert status(p) == "illegal"


def test_wrong_lexicographic_order(monkeypatch: pytest.MonkeyPatch):
    """Inner loops compared before outer ones."""
    p = programs.diagonal("j", "i")
    assert status(p) == "illegal"
    prove._prove.cache_clear()
    dataflow.reference(p.source, None)  # the original's flow stays right
    true_time = Relations.brief_time

    def scrambled(self: Relations, n: int, phase: int):
        first, *middle, last = true_time(self, n, phase)
        return [first, *reversed(middle), last]

    monkeypatch.setattr(Relations, "brief_time", scrambled)
    assert status(p) == "legal"


def test_doubled_contribution_accepted(monkeypatch: pytest.MonkeyPatch):
    p = programs.total()
    twice = replace(p, body=(*p.body[:3], p.body[2], p.body[3]))
    assert status(twice) == "illegal"
    prove._prove.cache_clear()
    monkeypatch.setattr(dataflow, "_not_single_valued", lambda ways: ways.domain().unwrap().subtract(ways.domain().unwrap()))
    assert status(twice) == "legal"


def test_unfinished_copies_ignored(monkeypatch: pytest.MonkeyPatch):
    p = programs.ahead(2, 2)
    assert status(p) == "illegal"
    prove._prove.cache_clear()
    monkeypatch.setattr(HappensBefore, "_unfinished", lambda self, a, b: iter(()))
    assert status(p) == "legal"


def test_undefined_owner_contents_ignored(monkeypatch: pytest.MonkeyPatch):
    """t[i] written by one owner iteration and read by the next: its contents are undefined there."""
    s0 = h.statement("S0", {"i": "N"}, h.access("t", "i"), "=", h.F0, h.access("x", "i"))
    s1 = h.statement("S1", {"i": "N"}, h.access("y", "i"), "=", h.F0, h.access("t", "i"))
    params = (Buffer("x", "f32", h.affs("N"), "param"), Buffer("y", "f32", h.affs("N"), "param"))
    original = Program(
        "late", ("N",), (), (), (*params, Buffer("t", "f32", h.affs("N"))), (s0, s1),
        (h.loop("i", "N", h.own_leaf(s0)), h.loop("i", "N", h.own_leaf(s1))),
    )  # fmt: skip
    i = Aff.of("i")
    before = Guard((Constraint.lt("i", "N"),), (Leaf("S0", (i,), h.address("t"), (h.address("x", i),)),))
    after = Guard((Constraint.ge("i", 1),), (Leaf("S1", (i - 1,), h.address("y", i - 1), (h.address("t"),)),))
    late = replace(
        original,
        original=original,
        buffers=(*params, Buffer("t", "f32", (), memory="register", owner="i", placed=True)),
        body=(h.loop("i", Aff.of("N") + 1, after, before),),
    )
    assert status(late) == "illegal"
    prove._prove.cache_clear()
    monkeypatch.setattr(cells, "owner_depth", lambda buffer, site: 0)
    assert status(late) == "legal"
