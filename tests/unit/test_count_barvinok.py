"""A second opinion on counts: barvinok (GPL), where `islpy-barvinok` is installed in place of islpy. Skipped otherwise.

python -m venv other && other/bin/pip install islpy-barvinok numpy networkx ml_dtypes rich pytest
other/bin/python -m pytest tests/unit/test_count_barvinok.py
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

import islpy
import pytest

import tilec
from tilec.api import Schedule
from tilec.ir.affine import Aff, Constraint, ceil_div
from tilec.ir.program import Program
from tilec.ir.tree import addresses, sites
from tilec.poly.count import Counter, Image, NotClosed, evaluate

pytestmark = pytest.mark.skipif(not hasattr(islpy.Set, "card"), reason="islpy without barvinok")
SIZES = (1, 2, 3, 7, 16, 31, 64, 100)


def gemm() -> Schedule:
    s = tilec.workload("gemm").schedule().split("i", 16, into=("io", "ii")).split("j", 8, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ii", "ji").split("acc.k", 4, into=("ko", "ki")).reorder("io", "jo", "ko", "ii", "ji", "ki")
    return s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", "shared")


PROGRAMS = {
    "gemm in tiles": lambda: gemm().bind("io", "block.y").bind("jo", "block.x").pipeline("ko", stages=3),
    "syrk in tiles": lambda: (
        tilec.workload("syrk").schedule(reassociate="C").split("i", 8, into=("io", "ii")).split("j", 4, into=("jo", "ji"))
    ),
    "heat, skewed": lambda: tilec.workload("jacobi2d").schedule(),
    "blur in tiles": lambda: tilec.workload("blur").schedule(),
    "conv2d": lambda: tilec.workload("conv2d").schedule(),
}


def card(counter: Counter, cells: islpy.Set, sizes: dict[str, int]) -> int:
    """barvinok's count of a set over the counter's sizes, at numbers."""
    params = cells.params()
    for name, value in sizes.items():
        where = params.find_dim_by_name(islpy.dim_type.param, name + "_")
        if where >= 0:
            params = params.fix_val(islpy.dim_type.param, where, islpy.Val(value))
    if params.is_empty():
        return 0
    return cells.card().eval(params.sample_point()).to_python()


def several(names: Sequence[str], seed: int) -> Iterator[dict[str, int]]:
    rng = random.Random(seed)
    for _ in range(6):
        yield {n: rng.choice(SIZES) for n in names}


def ran(p: Program, n: int) -> None:
    counter = Counter(p.sizes, p.where)
    solver = counter.oracle.solver
    seen = set()
    for site in sites(p.body):
        variables = tuple(loop.var for loop in site.loops)
        if (variables, site.conditions) not in seen and variables:
            seen.add((variables, site.conditions))
            count, cells = counter.points(variables, site.conditions), solver.set("", variables, site.conditions)
            for sizes in several(p.sizes, n):
                assert evaluate(count, sizes) == card(counter, cells, sizes), (variables, sizes)
        for a, _, _ in addresses(site.action, p):
            if not a.index or p.buffer[a.buffer].memory != "global" or p.buffer[a.buffer].owner is not None:
                continue
            distinct = counter.distinct([Image(variables, site.conditions, a.index)])
            domain = solver.set("", variables, site.conditions)
            cells = solver.map(domain, variables, "i", "", a.index).range()
            for sizes in several(p.sizes, n + 1):
                assert evaluate(distinct, sizes) == card(counter, cells, sizes), (a, sizes)
    assert seen


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    """How often every action runs, and how many cells it touches."""
    ran(PROGRAMS[name]().program, 0)


@pytest.mark.parametrize("seed", range(60))
def test_random_systems(seed: int) -> None:
    """Triangles, floors and congruences over two sizes."""
    rng = random.Random(seed)
    variables = ("i", "j", "k")[: rng.randint(2, 3)]
    conditions = [Constraint.ge(variables[0], 0), Constraint.lt(variables[0], rng.choice(("M", "N")))]
    for before, v in pairwise(variables):
        low = rng.choice([Aff(0), Aff.of(before) - 2, Aff.of(before) // 2])
        high = rng.choice([Aff.of("N"), Aff.of(before) + 1, ceil_div("M", 3), Aff.of(before) * 2 + 3])
        conditions += [Constraint.ge(v, low), Constraint.lt(v, high)]
    if rng.random() < 0.5:
        step = rng.randint(2, 4)
        total = Aff.of(variables[0]) + Aff.of(variables[-1])
        conditions.append(Constraint.eq(total % step, rng.randrange(step)))
    counter = Counter(("M", "N"))
    try:
        count = counter.points(variables, conditions)
    except NotClosed:
        pytest.skip("beyond the budget of cases")
    cells = counter.oracle.solver.set("", variables, conditions)
    for sizes in several(("M", "N"), seed):
        assert evaluate(count, sizes) == card(counter, cells, sizes), (conditions, sizes)
