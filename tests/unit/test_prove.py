"""The proof on programs written node by node: what it accepts, what it refuses, and what the witness says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests import handbuilt as h
from tilec.ir.affine import Aff, Constraint, ceil_div
from tilec.ir.expr import Binary, Const
from tilec.ir.program import (
    Address,
    Buffer,
    Commit,
    Copy,
    Guard,
    Identity,
    Leaf,
    Loop,
    Merge,
    Node,
    Program,
    Statement,
    Wait,
)
from tilec.ir.tree import transform
from tilec.poly.barriers import insert_barriers
from tilec.poly.order import order_kept
from tilec.poly.prove import prove, prove_step
from tilec.poly.verdict import Verdict


def check(program: Program, budget: int | None = None) -> Verdict:
    return prove(program.source, program, budget)


def diagonal(*loops: str) -> Program:
    """a[i, j] = a[i-1, j+1] + 1, its two loops in the given order."""
    s = Statement(
        "S0",
        ("i", "j"),
        (Constraint.ge("i", 1), Constraint.lt("i", "N"), Constraint.ge("j", 0), Constraint.lt("j", Aff.of("N") - 1)),
        h.access("a", "i", "j"),
        "=",
        Binary("+", h.F0, Const(1, "i32"), "f32"),
        (h.access("a", Aff.of("i") - 1, Aff.of("j") + 1),),
    )
    bounds = {"i": (1, Aff.of("N")), "j": (0, Aff.of("N") - 1)}
    body: tuple[Node, ...] = (h.own_leaf(s),)
    for v in reversed(loops):
        body = (Loop(v, h.affs(bounds[v][0]), h.affs(bounds[v][1]), body),)
    p = Program("diagonal", ("N",), (), (), (Buffer("a", "f32", h.affs("N", "N"), "param"),), (s,), body)
    return p if loops == ("i", "j") else replace(p, original=diagonal("i", "j"))


def total(*, permitted: bool = True, kind: str = "serial", merged: Aff | None = None, identity: bool = True) -> Program:
    """y = Σ x[i], in blocks of 4 with partial sums that are merged in order."""
    s0 = Statement("S0", (), (), h.access("s"), "=", Const(0, "i32"), ())
    s1 = h.statement("S1", {"i": "N"}, h.access("s"), "+=", h.F0, h.access("x", "i"))
    s2 = Statement("S2", (), (), h.access("y"), "=", h.F0, (h.access("s"),))
    buffers = (Buffer("x", "f32", h.affs("N"), "param"), Buffer("y", "f32", (), "param"), Buffer("s", "f32", ()))
    body = (h.own_leaf(s0), h.loop("i", "N", h.own_leaf(s1)), h.own_leaf(s2))
    original = Program("total", ("N",), (), (), buffers, (s0, s1, s2), body)
    i = Aff.of("io") * 4 + "ii"
    partial = h.address("s_partial", "io")
    block = h.loop("ii", (4, Aff.of("N") - Aff.of("io") * 4), Leaf("S1", (i,), partial, (h.address("x", i),)))
    start: tuple[Node, ...] = (Identity(partial, "+=", h.affs("io")),) if identity else ()
    return replace(
        original,
        original=original,
        reassociate=frozenset({"s"} if permitted else ()),
        buffers=(*buffers, Buffer("s_partial", "f32", (ceil_div("N", 4),), "partial", root="s")),
        body=(
            body[0],
            h.loop("io", ceil_div("N", 4), *start, block, kind=kind),
            h.loop("io", merged or ceil_div("N", 4), Merge(h.address("s"), partial, "+=", (), h.affs("io"))),
            body[2],
        ),
    )


def ahead(stages: int, wait: int, shape: int | None = None) -> Program:
    """y[i] = 2·x[i], each block of 4 copied asynchronously one block ahead into `stages` slots."""
    s = h.statement("S0", {"i": "N"}, h.access("y", "i"), "=", Binary("*", Const(2, "i32"), h.F0, "f32"), h.access("x", "i"))
    params = (Buffer("x", "f32", h.affs("N"), "param"), Buffer("y", "f32", h.affs("N"), "param"))
    original = Program("ahead", ("N",), (), (), params, (s,), (h.loop("i", "N", h.own_leaf(s)),))
    io = Aff.of("io")

    def load(block: Aff) -> Loop:
        at = block * 4 + "c"
        copy = Copy(h.address("x_s", block % stages, "c"), h.address("x", at), (at,), asynchronous=True)
        return h.loop("c", (4, Aff.of("N") - block * 4), copy)

    more = Constraint.lt(io + 1, ceil_div("N", 4))
    use = Leaf("S0", (io * 4 + "ii",), h.address("y", io * 4 + "ii"), (h.address("x_s", io % stages, "ii"),))
    blocks = h.loop(
        "io",
        ceil_div("N", 4),
        Guard((more,), (load(io + 1),)),
        Commit(),
        Wait(wait),
        h.loop("ii", (4, Aff.of("N") - io * 4), use),
    )
    return replace(
        original,
        original=original,
        buffers=(*params, Buffer("x_s", "f32", h.affs(shape or stages, 4), "cache", "shared", "b", root="x")),
        body=(h.loop("b", 1, load(Aff.of(0)), Commit(), blocks, kind="block.x"),),
    )


def test_the_original_is_legal_for_all_sizes():
    p = h.gemm_silu()
    verdict = prove(p, replace(p, original=p))
    assert (verdict.status, verdict.sizes) == ("legal", "all sizes")


def test_exchanged_diagonal_has_the_smallest_witness():
    verdict = check(diagonal("j", "i"))
    assert (verdict.status, verdict.sizes) == ("illegal", "N >= 3")
    w = verdict.witness
    assert w is not None
    assert (w.source, w.sink, w.element, w.kind, w.sizes) == ("S0[1,1]", "S0[2,0]", "a[1,1]", "flow", {"N": 3})


def test_tiled_gemm_with_caches_is_legal():
    verdict = check(h.gemm_silu_tiled())
    assert (verdict.status, verdict.sizes, verdict.recomputed) == ("legal", "all sizes", ("S2",))


def test_silu_inside_the_k_loop_names_both_partial_sums():
    tiled = h.gemm_silu_tiled()

    def move(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Loop) and node.var == "jo":
            init, blocks, store = node.body
            assert isinstance(blocks, Loop)
            return (replace(node, body=(init, replace(blocks, body=(*blocks.body, store)))),)
        return (node,)

    inside = replace(tiled, body=transform(tiled.body, move), recomputed=frozenset({"S2", "S3"}))
    verdict = check(inside)
    assert (verdict.status, verdict.sizes) == ("illegal", "K >= 33")
    w = verdict.witness
    assert w is not None
    assert (w.received, w.needed, w.kind) == ("S1[0,0,31]", "S1[0,0,32]", "wrong source")
    assert w.sizes == {"M": 1, "N": 1, "K": 33}


@pytest.mark.parametrize(
    ("stages", "wait", "status"),
    [(2, 1, "legal"), (3, 1, "legal"), (2, 0, "legal"), (2, 2, "illegal"), (1, 0, "illegal"), (1, 1, "illegal")],
)
def test_copies_one_block_ahead(stages: int, wait: int, status: str):
    assert check(ahead(stages, wait)).status == status


def test_a_wait_too_late_is_a_race():
    w = check(ahead(2, 2)).witness
    assert w is not None and w.kind == "race" and w.sizes == {"N": 1}


def test_a_slot_overwritten_ahead_is_a_wrong_source_or_a_race():
    w = check(ahead(1, 0)).witness
    assert w is not None and w.sizes == {"N": 5}


def test_a_wait_that_covers_nothing_is_noted():
    p = ahead(2, 1)
    late = replace(p, body=(replace(p.body[0], body=(Wait(0), *p.body[0].body)),))  # type: ignore[union-attr, call-arg]
    verdict = check(late)
    assert verdict.status == "legal"
    assert any("covers no copy" in note for note in verdict.notes)


def test_partial_sums_need_the_permission():
    refused = check(total(permitted=False))
    assert refused.status == "illegal"
    allowed = check(total())
    assert allowed.status == "legal" and allowed.permissions == ('reassociate="s"',)
    assert "two runs give the same bits" in allowed.notes[0]


def test_partial_sums_in_parallel():
    assert check(total(kind="parallel")).status == "legal"


def test_a_lost_partial_sum_is_found():
    verdict = check(total(merged=ceil_div(Aff.of("N") - 1, 4)))
    assert verdict.status == "illegal"
    assert verdict.witness is not None and verdict.witness.kind == "lost value" and verdict.witness.sizes == {"N": 1}


def test_a_partial_sum_merged_twice_is_found():
    p = total()
    twice = replace(p, body=(*p.body[:3], p.body[2], p.body[3]))
    verdict = check(twice)
    assert verdict.status == "illegal"
    assert verdict.witness is not None and "more than once" in verdict.witness.text


def test_a_partial_sum_without_identity_is_found():
    verdict = check(total(identity=False))
    assert verdict.status == "illegal"
    assert verdict.witness is not None and "no initial value" in verdict.witness.text


def test_a_merge_past_the_partials_is_found():
    assert check(total(merged=ceil_div(Aff.of("N") + 4, 4))).status == "illegal"


def test_threads_need_the_barrier():
    good = h.neighbours_on_threads()
    assert check(good).status == "legal"
    bare = replace(good, body=transform(good.body, lambda n: () if type(n).__name__ == "Barrier" else (n,)))
    verdict = check(bare)
    assert verdict.status == "illegal" and verdict.witness is not None and verdict.witness.kind == "race"
    assert check(insert_barriers(bare)).status == "legal"


def test_blocks_that_share_one_accumulator_race():
    tiled = h.gemm_silu_tiled()
    shared = replace(tiled, buffers=tuple(replace(b, owner=None) if b.name == "acc" else b for b in tiled.buffers))
    verdict = check(shared)
    assert verdict.status == "illegal" and verdict.witness is not None and verdict.witness.kind == "race"
    assert verdict.witness.sizes in ({"M": 1, "N": 65, "K": 1}, {"M": 65, "N": 1, "K": 1})


def test_a_budget_of_one_is_unknown():
    verdict = check(h.gemm_silu_tiled(), budget=1)
    assert verdict.status == "unknown" and verdict.reason is not None and "budget" in verdict.reason


def test_the_fast_path_only_accepts():
    p = diagonal("i", "j")
    assert order_kept(p, replace(p, original=p))
    assert not order_kept(p, diagonal("j", "i"))
    assert prove_step(p, diagonal("j", "i")).method == "full"
    assert prove_step(p, replace(p, original=p)).method == "order"


def test_an_instance_that_runs_twice_is_found():
    p = diagonal("i", "j")
    twice = replace(p, original=p, body=(*p.body, *p.body))
    verdict = check(twice)
    assert verdict.status == "illegal" and verdict.witness is not None and "more than once" in verdict.witness.text


def test_a_missing_and_an_invented_instance_are_found():
    p = diagonal("i", "j")
    outer = p.body[0]
    assert isinstance(outer, Loop)
    fewer = replace(p, original=p, body=(replace(outer, upper=h.affs(Aff.of("N") - 1)),))
    verdict = check(fewer)
    assert verdict.status == "illegal" and verdict.witness is not None and "never executed" in verdict.witness.text
    more = replace(p, original=p, body=(replace(outer, upper=h.affs(Aff.of("N") + 1)),))
    verdict = check(more)
    assert verdict.status == "illegal" and verdict.witness is not None and "no such instance" in verdict.witness.text


def test_a_chain_of_copies_is_followed():
    p = h.gemm_silu_tiled()
    again = Buffer("A_register", "bf16", h.affs(64, 32), "cache", "register", "ko", root="A")
    row, column = "A_register.0", "A_register.1"

    def add(node: Node) -> tuple[Node, ...]:
        if isinstance(node, Loop) and node.var == "ko":
            copy = Copy(
                h.address("A_register", row, column),
                h.address("A_shared", row, column),
                h.affs(Aff.of("io") * 64 + row, Aff.of("ko") * 32 + column),
            )
            nest = h.loop(row, h.tail("M", "io", 64), h.loop(column, h.tail("K", "ko", 32), copy))
            return (replace(node, body=(*node.body[:2], nest, *node.body[2:])),)
        if isinstance(node, Leaf) and node.statement == "S1":
            a, w = node.reads
            assert isinstance(a, Address)
            return (replace(node, reads=(Address("A_register", a.index), w)),)
        return (node,)

    assert check(replace(p, buffers=(*p.buffers, again), body=transform(p.body, add))).status == "legal"


def test_shared_memory_does_not_outlive_a_launch():
    p = h.neighbours_on_threads()
    one = p.body[0]
    assert isinstance(one, Loop)
    first, _, second = one.body
    apart = replace(
        p,
        buffers=tuple(replace(b, owner=None) if b.name == "t" else b for b in p.buffers),
        body=(replace(one, body=(first,)), replace(one, var="b2", body=(second,))),
    )
    verdict = check(apart)
    assert verdict.status == "illegal" and verdict.witness is not None and verdict.witness.kind == "lost value"
    assert check(replace(apart, buffers=tuple(replace(b, memory="global") for b in apart.buffers))).status == "legal"


def test_a_contribution_of_a_recomputed_update_counts_each_time():
    """B[i] += 3 twice, declared recomputable: an update is no value that can be made again in place."""
    s = h.statement("S0", {"i": 2}, h.access("B", "i"), "+=", Const(3, "i32"))
    original = Program("twice", (), (), (), (Buffer("B", "i32", h.affs(2), "param"),), (s,), (h.loop("i", 2, h.own_leaf(s)),))
    body = (h.loop("i", 2, h.own_leaf(s), h.own_leaf(s)),)
    twice = replace(original, original=original, recomputed=frozenset({"S0"}), body=body)
    verdict = check(twice)
    assert verdict.status == "illegal" and verdict.witness is not None and "more than once" in verdict.witness.text
