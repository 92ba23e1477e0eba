"""Faults of the proof that attacks on it found, each as the smallest program that showed it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests import handbuilt as h
from tilec.errors import Witness
from tilec.ir.affine import Aff, ceil_div
from tilec.ir.expr import Binary, Const, Load
from tilec.ir.interp import run
from tilec.ir.program import (
    Access,
    Barrier,
    Buffer,
    Commit,
    Copy,
    Identity,
    Leaf,
    Merge,
    Node,
    Program,
    Statement,
    Wait,
)
from tilec.ir.tree import put, sites
from tilec.poly.barriers import insert_barriers
from tilec.poly.order import order_kept
from tilec.poly.prove import prove, prove_step
from tilec.poly.verdict import Verdict

N = Aff.of("N")
X, Y, T = Buffer("X", "f32", (N,), "param"), Buffer("Y", "f32", (N,), "param"), Buffer("T", "f32", (N,))


def program(buffers: tuple[Buffer, ...], *body: Node, statements: tuple[Statement, ...]) -> Program:
    return Program("attacked", ("N",), (), (), buffers, statements, body)


def scheduled(original: Program, *body: Node, **changes: Any) -> Program:
    return replace(original, original=original, body=body, **changes)


def check(p: Program) -> Verdict:
    return prove(p.source, p)


def refused(p: Program) -> Witness:
    verdict = check(p)
    assert verdict.status == "illegal" and verdict.witness is not None, str(verdict)
    return verdict.witness


def identity_nest() -> Program:
    """Y[i] = X[i]."""
    s = h.statement("S0", {"i": "N"}, h.access("Y", "i"), "=", h.F0, h.access("X", "i"))
    return program((X, Y), h.loop("i", "N", h.own_leaf(s)), statements=(s,))


def summed(dtype: str = "f32", op: str = "+=", value: str = "f32") -> Program:
    """s = 0; s op= X[i]; Z = s."""
    s0 = Statement("S0", (), (), h.access("s"), "=", Const(0, "i32"), ())
    s1 = h.statement("S1", {"i": "N"}, h.access("s"), op, Load(0, value), h.access("X", "i"))
    s2 = Statement("S2", (), (), h.access("Z"), "=", Load(0, "i32" if dtype == "i32" else "f32"), (h.access("s"),))
    buffers = (Buffer("X", value, (N,), "param"), Buffer("Z", dtype, (), "param"), Buffer("s", dtype, ()))
    return program(buffers, h.own_leaf(s0), h.loop("i", "N", h.own_leaf(s1)), h.own_leaf(s2), statements=(s0, s1, s2))


def reversed_sum(original: Program) -> Program:
    at = N - 1 - "i"
    update = Leaf("S1", (at,), h.address("s"), (h.address("X", at),))
    return scheduled(original, original.body[0], h.loop("i", "N", update), original.body[2])


def test_a_race_in_both_directions_names_the_smaller_sizes():
    """A[i] is read two iterations later at N >= 3 and two earlier (cyclically) at N >= 4."""
    s0 = h.statement("S0", {"i": "N"}, h.access("A", "i"), "=", h.F0, h.access("X", "i"))
    s1 = h.statement("S1", {"i": "N"}, h.access("Y", "i"), "=", h.F0, Access("A", ((Aff.of("i") + 2) % 5,)))
    a = Buffer("A", "f32", (N + 5,), "param")
    leaves = h.own_leaf(s0), h.own_leaf(s1)
    original = program((X, a, Y), h.loop("i", "N", *leaves), statements=(s0, s1))
    verdict = check(scheduled(original, h.loop("i", "N", *leaves, kind="parallel")))
    assert verdict.sizes == "N >= 3" and verdict.witness is not None
    assert verdict.witness.sizes == {"N": 3} and verdict.witness.kind == "race"


def test_sizes_of_a_refusal_cover_every_check():
    """The loop is cut at 4 (a missing instance from N = 5) and the reader runs first (from N = 2)."""
    s0 = h.statement("S0", {"i": "N"}, h.access("T", "i"), "=", h.F0, h.access("X", "i"))
    s1 = h.statement("S1", {"i": "N"}, h.access("Y", "i"), "=", h.F0, h.access("T", N - 1 - "i"))
    original = program((X, Y, T), h.loop("i", "N", h.own_leaf(s0)), h.loop("i", "N", h.own_leaf(s1)), statements=(s0, s1))
    verdict = check(scheduled(original, h.loop("i", ("N", 4), h.own_leaf(s0), h.own_leaf(s1))))
    assert verdict.sizes == "N >= 2" and verdict.witness is not None and verdict.witness.sizes == {"N": 2}


@pytest.mark.parametrize(("dtype", "op", "value"), [("i32", "+=", "f32"), ("i32", "max=", "f32"), ("i8", "max=", "f32")])
def test_floats_into_an_integer_keep_their_order(dtype: str, op: str, value: str):
    p = reversed_sum(summed(dtype, op, value))
    assert refused(p).sizes == {"N": 2}
    allowed = check(replace(p, reassociate=frozenset({"s"})))
    assert allowed.status == "legal" and allowed.permissions == ('reassociate="s"',)


def test_floats_into_an_integer_really_depend_on_their_order():
    for op, values in (("+=", [0.5, 1.0]), ("max=", [7.0, np.nan, 3.0])):
        original = summed("i32", op)
        x = {"X": np.array(values, np.float32)}
        one, two = (run(p, x, {"N": len(values)})["Z"] for p in (original, reversed_sum(original)))
        assert one != two, op


def test_integers_into_an_integer_reorder_freely():
    assert check(reversed_sum(summed("i32", "+=", "i32"))).status == "legal"
    assert check(reversed_sum(summed("f32", "max=", "f32"))).status == "legal"


def test_a_reduction_is_combined_by_its_own_operation():
    original = replace(summed(), reassociate=frozenset({"s"}))
    part = h.address("part", "i")
    leaf = Leaf("S1", h.affs("i"), part, (h.address("X", "i"),))
    buffers = (*original.buffers, Buffer("part", "f32", (N,), "partial", root="s"))

    def split(start: str, merge: str) -> Program:
        first = h.loop("i", "N", Identity(part, start, h.affs("i")), leaf)
        last = h.loop("i", "N", Merge(h.address("s"), part, merge, (), h.affs("i")))
        return scheduled(original, original.body[0], first, last, original.body[2], buffers=buffers)

    assert check(split("+=", "+=")).status == "legal"
    assert "identity" in refused(split("max=", "+=")).text
    assert "merge" in refused(split("+=", "*=")).text


def test_an_asynchronous_copy_into_a_result_needs_a_wait():
    original = identity_nest()
    leaf = Leaf("S0", h.affs("i"), h.address("Y_local", "i"), (h.address("X", "i"),))
    copy = Copy(h.address("Y", "i"), h.address("Y_local", "i"), h.affs("i"), asynchronous=True)
    buffers = (*original.buffers, Buffer("Y_local", "f32", (N,), "cache", root="Y"))
    loops = h.loop("i", "N", leaf), h.loop("i", "N", copy)
    assert check(scheduled(original, *loops, Commit(), Wait(0), buffers=buffers)).status == "legal"
    for end in ((), (Commit(),), (Wait(0),), (Commit(), Wait(1))):
        witness = refused(scheduled(original, *loops, *end, buffers=buffers))
        assert witness.kind == "race" and witness.sizes == {"N": 1} and witness.element == "Y[0]"


def test_a_result_that_nothing_writes_keeps_its_initial_value():
    """Y[i] for i < N - 1 has no instance at N = 1, so leaving it out differs only from N = 2 on."""
    s0 = h.statement("S0", {"i": "N"}, h.access("Z", "i"), "=", h.F0, h.access("X", "i"))
    s1 = h.statement("S1", {"i": N - 1}, h.access("Y", "i"), "=", h.F0, h.access("X", "i"))
    z = Buffer("Z", "f32", (N,), "param")
    first = h.loop("i", "N", h.own_leaf(s0))
    original = program((X, Y, z), first, h.loop("i", N - 1, h.own_leaf(s1)), statements=(s0, s1))
    verdict = check(scheduled(original, first))
    assert verdict.sizes == "N >= 2" and verdict.witness is not None and verdict.witness.sizes == {"N": 2}


@pytest.mark.parametrize("case", ["another element", "a cache that nothing copies out", "outside its buffer"])
def test_the_fast_path_looks_at_the_storage(case: str):
    s0 = h.statement("S0", {"i": "N"}, h.access("T", "i"), "=", h.F0, h.access("X", "i"))
    s1 = h.statement("S1", {"i": "N"}, h.access("Y", "i"), "=", h.F0, h.access("T", "i"))
    original = program((X, Y, T), h.loop("i", "N", h.own_leaf(s0)), h.loop("i", "N", h.own_leaf(s1)), statements=(s0, s1))
    target, buffers = h.address("Y", "i"), (X, Y, T)
    if case == "another element":
        target = h.address("Y", N - 1 - "i")
    elif case == "outside its buffer":
        buffers = (X, Y, replace(T, shape=h.affs(4)))
    else:
        target, buffers = h.address("Y_local", "i"), (X, Y, T, Buffer("Y_local", "f32", (N,), "cache", root="Y"))
    last = h.loop("i", "N", Leaf("S1", h.affs("i"), target, (h.address("T", "i"),)))
    p = scheduled(original, original.body[0], last, buffers=buffers)
    assert not order_kept(original, p) and prove_step(original, p).status == "illegal"
    assert prove_step(original, scheduled(original, *original.body)).method == "order"


def tiles_on_threads(slots: int) -> Program:
    """y[i] = x[i] + x[i+1] by 4 threads, each tile fetched into one of `slots` slots of a shared buffer, without barriers."""
    reads = h.access("x", "i"), h.access("x", Aff.of("i") + 1)
    s = h.statement("S0", {"i": "N"}, h.access("y", "i"), "=", Binary("+", h.F0, h.F1, "f32"), *reads)
    buffers = (Buffer("x", "f32", (N + 1,), "param"), Buffer("y", "f32", (N,), "param"))
    original = program(buffers, h.loop("i", "N", h.own_leaf(s)), statements=(s,))
    o = Aff.of("o")

    copy = Copy(h.address("x_shared", o % slots, "c"), h.address("x", o * 4 + "c"), h.affs(o * 4 + "c"))
    fetch = h.loop("c", (5, N + 1 - o * 4), copy, kind="thread.x")
    two = h.address("x_shared", o % slots, "i"), h.address("x_shared", o % slots, Aff.of("i") + 1)
    compute = h.loop("i", (4, N - o * 4), Leaf("S0", (o * 4 + "i",), h.address("y", o * 4 + "i"), two), kind="thread.x")
    main = h.loop("o", ceil_div("N", 4), fetch, compute)
    shared = Buffer("x_shared", "f32", h.affs(slots, 5), "cache", "shared", "b", root="x")
    block = h.loop("b", 1, main, kind="block.x")
    return scheduled(original, block, buffers=(*buffers, shared))


@pytest.mark.parametrize(("slots", "barriers"), [(1, 2), (2, 1)])
def test_inserted_barriers_are_all_needed(slots: int, barriers: int):
    """With two slots the barrier of one iteration keeps the reads of the one before from the copies of the one after."""
    p = insert_barriers(tiles_on_threads(slots))
    found = [s.position for s in sites(p.body) if isinstance(s.action, Barrier)]
    assert check(p).status == "legal" and len(found) == barriers
    for position in found:
        assert refused(replace(p, body=put(p.body, position, ()))).kind == "race"


@pytest.mark.parametrize("middle", ["merge", "copy"])
def test_a_partial_result_merged_twice_counts_twice(middle: str):
    """The partial sum reaches s by two merges of one intermediate place, which alone is reached two ways."""
    original = replace(summed(), reassociate=frozenset({"s"}))
    p, q = h.address("p"), h.address("q")
    leaf = Leaf("S1", h.affs("i"), p, (h.address("X", "i"),))
    pass_on = (Identity(q, "+=", ()), Merge(q, p, "+=", (), ())) if middle == "merge" else (Copy(q, p, ()),)
    buffers = (*original.buffers, Buffer("p", "f32", (), "partial", root="s"), Buffer("q", "f32", (), "partial", root="s"))

    def merged(times: int) -> Program:
        last = h.loop("n", times, Merge(h.address("s"), q, "+=", (), ()))
        body = original.body[0], Identity(p, "+=", ()), h.loop("i", "N", leaf), *pass_on, last, original.body[2]
        return scheduled(original, *body, buffers=buffers)

    assert check(merged(1)).permissions == ('reassociate="s"',)
    verdict = check(merged(2))
    assert verdict.status == "illegal" and verdict.witness is not None and not verdict.notes
    assert verdict.witness.kind == "wrong source" and "more than once" in verdict.witness.text


def test_only_partial_results_of_a_reduction_are_merged_into_it():
    original = replace(summed(), reassociate=frozenset({"s"}))
    foreign = Merge(h.address("s"), h.address("X", 0), "+=", (), h.affs(0))
    assert "no partial result" in refused(scheduled(original, *original.body[:2], foreign, original.body[2])).text


def test_a_wait_inside_a_parallel_loop_is_none_for_copies_around_it():
    """Iteration o waits for itself alone; iteration 1 may read before iteration 0 has waited."""
    original = identity_nest()
    copy = Copy(h.address("X_shared", "c"), h.address("X", "c"), h.affs("c"), asynchronous=True)
    leaf = Leaf("S0", h.affs("o"), h.address("Y", "o"), (h.address("X_shared", "o"),))
    buffers = (*original.buffers, Buffer("X_shared", "f32", (N,), "cache", "shared", root="X"))
    fetch = h.loop("c", "N", copy), Commit()
    inside = scheduled(original, *fetch, h.loop("o", "N", Wait(0), leaf, kind="parallel"), buffers=buffers)
    assert refused(inside).kind == "race"
    around = scheduled(original, *fetch, Wait(0), h.loop("o", "N", leaf, kind="parallel"), buffers=buffers)
    assert check(around).status == "legal"
