"""Sets from matrices are those that isl reads from text."""

from __future__ import annotations

import pytest

from tilec.ir.affine import Aff, Constraint, ceil_div
from tilec.poly.isl import Solver
from tilec.poly.matrices import basic_set

V = Aff.of
CASES = [
    [Constraint.ge("i", 0), Constraint.lt("i", "N")],
    [
        Constraint.ge("io", 0),
        Constraint.lt("io", ceil_div("N", 64)),
        Constraint.lt(V("io") * 64 + "i", "N"),
        Constraint.ge("i", 0),
    ],
    [Constraint.eq(V("i") % 3, 1), Constraint.ge("i", V("N") // 2), Constraint.lt("i", 40), Constraint.eq("io", 7)],
    [Constraint.lt((V("i") + V("io") // 3) // 5, "N"), Constraint.ge("i", -4), Constraint.ge("io", 2), Constraint.lt("i", 9)],
    [],
]


@pytest.mark.parametrize("conditions", CASES)
def test_equal_to_text(conditions):
    solver = Solver(("N",))
    text = solver.set("", ("io", "i"), conditions)
    assert basic_set(solver.ctx, ("N",), ("io", "i"), conditions).to_set().intersect_params(solver.context).is_equal(text)
