"""The order of accesses and the numbers that outlive a context, against isl's own text."""

from __future__ import annotations

import pytest

from tilec.ir.affine import Aff
from tilec.poly.access import Relations
from tilec.poly.dataflow import reference, value_flow
from tilec.poly.isl import Map, Solver, UnionMap
from tilec.poly.matrices import Frozen
from tilec.poly.precedence import after
from tilec.workloads import get

TEXT = "{{ [a, b] -> [c, d] : {} }}"


@pytest.mark.parametrize(
    ("time", "other", "alike", "want"),
    [
        (["a", "b"], ["c", "d"], (), "a > c or (a = c and b > d)"),
        ([0, "a", 1], [0, "c", 0], (), "a >= c"),
        ([0, "a", 0], [0, "c", 1], (), "a > c"),
        (["a", "b"], [2, "d"], (), "a > 2 or (a = 2 and b > d)"),
        ([2, "b"], ["c", "d"], (), "c < 2 or (c = 2 and b > d)"),
        ([1, "a"], [0, "c"], (), ""),
        ([0, "a"], [1, "c"], (), "1 = 0"),
    ],
)
def test_after(time: list[int | str], other: list[int | str], alike: tuple[str, ...], want: str):
    r = Relations(Solver(()), get("dot").program)
    found = after(r.solver, ["a", "b"], [Aff.of(e) for e in time], ["c", "d"], [Aff.of(e) for e in other], alike)
    assert found.is_equal(Map.read_from_str(r.solver.ctx, TEXT.format(want or "true")))


def test_after_with_variables_that_are_alike():
    r = Relations(Solver(()), get("dot").program)
    found = after(r.solver, ["a", "b"], [Aff.of("a"), Aff.of("b")], ["a", "d"], [Aff.of("a"), Aff.of("d")], ("a",))
    assert found.is_equal(Map.read_from_str(r.solver.ctx, TEXT.format("a = c and b > d")))


@pytest.mark.parametrize("name", ["gemm_silu_quantize", "jacobi2d", "conv2d", "syrk"])
def test_a_frozen_relation_is_the_same_in_another_context(name: str):
    program = get(name).program
    frozen = reference(program, None).wanted
    assert frozen.text is None
    r = Relations(Solver(program.sizes), program)
    found = value_flow(r)
    want = r.reader_instance.reverse().apply_range(found.sources).apply_range(r.writer_instance)
    assert frozen.thaw(r.solver.ctx).is_equal(want)


def test_existentials_and_nothing_are_frozen_too():
    solver = Solver(("N",))
    for text in ("{ A[i] -> B[o] : exists e : i = 2e + 3o and 0 <= o < 4 }", "{ }"):
        relation = UnionMap.read_from_str(solver.ctx, text)
        again = Frozen.of(relation).thaw(Solver(("N",)).ctx)
        assert again.to_str() == relation.to_str()
