"""Known miscompilations of public scheduling compilers, concurrency; facts restated.

An order that nothing guarantees is a race.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.property.brute import judge
from tests.unit.cases import legal, refused, scheduled
from tilec.errors import LegalityError
from tilec.ir.program import Barrier, Copy, Loop, Node, Program, Wait
from tilec.ir.tree import sites, transform
from tilec.lang import f32, kernel, sizes
from tilec.poly.prove import prove
from tilec.schedule.schedule import Schedule

M, N, K = sizes("M N K")


@kernel
def neighbours(x: f32[M, N], y: f32[M, N]):
    for r in range(M):
        t: f32[N]
        for i in range(N):
            t[i] = 2 * x[r, i]
        for j in range(1, N):
            y[r, j] = t[j - 1] + t[j]


@kernel
def product(A: f32[M, K], W: f32[K, N], Y: f32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            Y[i, j] = acc


@kernel
def dot(x: f32[K], y: f32[1]):
    acc: f32 = 0
    for k in range(K):
        acc += x[k]
    y[0] = acc


@kernel
def rows(A: f32[N, 2], y: f32[N, 2]):
    for i in range(N):
        for j in range(2):
            y[i, j] = A[i, j] + 1


def without(program: Program, kind: type) -> Program:
    def f(node: Node) -> tuple[Node, ...]:
        return () if isinstance(node, kind) else (node,)

    return replace(program, body=transform(program.body, f))


def has(program: Program, kind: type) -> bool:
    return any(isinstance(s.action, kind) for s in sites(program.body))


def both(program: Program, *tried: dict[str, int]) -> str:
    """The proof's status, which the judge must share: legal at every tried size, or illegal at the witness's."""
    verdict = prove(program.source, program)
    if verdict.status == "legal":
        assert all(judge(program.source, program, t).legal for t in tried)
        return "legal"
    assert verdict.witness is not None, verdict
    assert not judge(program.source, program, verdict.witness.sizes).legal
    return verdict.witness.kind


def shared_row() -> Schedule:
    return scheduled(neighbours, N=8).place("t", "shared").bind("r", "block.x").bind(("i", "j"), "thread.x")


def test_30_phases_that_exchange_values_need_a_barrier() -> None:
    s = legal(shared_row(), {"M": 2})
    assert has(s.program, Barrier)
    assert both(without(s.program, Barrier), {"M": 2}) == "race"
    with pytest.raises(LegalityError) as caught:
        s.barrier("i", remove=True)
    assert caught.value.witness is not None and caught.value.witness.kind == "race"


def test_31_one_accumulator_for_all_blocks() -> None:
    s = scheduled(product).tile(("i", "j"), (2, 2), into=(("io", "ii"), ("jo", "ji"))).place("acc", "global", at="jo")
    bound = legal(s.bind("io", "block.y").bind("jo", "block.x"), {"M": 3, "N": 3, "K": 2})
    everyone = replace(
        bound.program, buffers=tuple(replace(b, owner=None) if b.name == "acc" else b for b in bound.program.buffers)
    )
    assert both(everyone, {"M": 3, "N": 3, "K": 2}) == "race"


def test_32_the_loop_of_a_sum() -> None:
    assert refused(scheduled(dot), "parallel", "k").kind == "race"
    assert refused(scheduled(dot, K=8), "vectorize", "k").kind == "race"
    assert refused(scheduled(dot, K=8), "bind", "k", "thread.x").kind == "race"


def test_32_split_reduction_with_the_permission() -> None:
    s = scheduled(dot, reassociate="acc").split("k", 4, into=("ko", "lane")).reorder("lane", "ko").split_reduction("acc", "lane")
    legal(s, {"K": 1}, {"K": 9}, bits=False)
    legal(s.parallel("lane"), {"K": 1}, {"K": 9}, bits=False)


def test_33_the_slot_that_is_still_being_read() -> None:
    s = legal(scheduled(rows).cache_read("A", at="i", memory="shared").pipeline("i", 2), {"N": 1}, {"N": 2}, {"N": 5})
    assert any(isinstance(x.action, Copy) and x.action.asynchronous for x in sites(s.program.body))

    def later(node: Node) -> tuple[Node, ...]:
        return (Wait(node.n + 1),) if isinstance(node, Wait) else (node,)

    late = replace(s.program, body=transform(s.program.body, later))
    assert both(late, {"N": 3}) == "race"
    assert both(without(s.program, Wait), {"N": 3}) == "race"


def test_33_a_wait_that_covers_nothing_is_reported() -> None:
    s = scheduled(rows)
    idle = replace(s.program, body=(Wait(0), *s.program.body), original=s.program.source)
    assert isinstance(idle.body[1], Loop)
    verdict = prove(idle.source, idle)
    assert verdict.status == "legal"
    assert any("wait" in note for note in verdict.notes)
