"""One schedule for a mix of shapes, and the space of a search on a CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import tilec
from tilec import workload, workloads
from tilec.errors import ScheduleError
from tilec.schedule.schedule import Schedule, start
from tilec.search.cpu_space import cpu_recipes
from tilec.search.mix import Mixed, combine
from tilec.search.result import Row, Tuned
from tilec.targets import load

ZEN3 = load(Path(__file__).parent.parent / "data" / "host_zen3.toml")
SHAPES = [({"M": 16, "N": 512}, 3), ({"M": 64, "N": 512}, 1.0)]


def tiled(s: Schedule, BN: int) -> Schedule:
    return s.split("S0.j", BN, into=("jo", "ji"))


def made(times: dict[int, float | None], measured: dict[int, float] | None = None) -> Tuned:
    """A result whose candidates are numbers with times."""
    rows = [Row("s", {"B": b}, 1, 0, 0, 1, t, (measured or {}).get(b)) for b, t in times.items()]
    return Tuned("k", "host", {}, rows, {}, len(rows), 1, (), lambda row: None, lambda row, e: None)  # type: ignore[arg-type, return-value]


def test_the_least_expected_time_wins_not_the_most_frequent_shape():
    """Expected times by hand: 0.75 * 1 + 0.25 * 9 = 3, 0.75 * 2 + 0.25 * 2 = 2, 0.75 * 1.5 + 0.25 * 8 = 3.125."""
    mix = combine(SHAPES, [made({1: 1.0, 2: 2.0, 3: 1.5}), made({1: 9.0, 2: 2.0, 3: 8.0})])
    assert mix.best.knobs == {"B": 2} and mix.best.expected == 2.0
    assert [c.knobs["B"] for c in mix.ranked] == [2, 1, 3]
    assert mix.weights == (0.75, 0.25)
    assert mix.alone == 0.75 * 1 + 0.25 * 2 and mix.price == pytest.approx(2 / 1.25 - 1)


def test_only_candidates_that_fit_every_shape_and_measured_times_first():
    mix = combine(SHAPES, [made({1: 1.0, 2: 2.0}), made({2: 2.0, 3: 0.1})])
    assert [c.knobs["B"] for c in mix.ranked] == [2]
    measured = combine(SHAPES, [made({1: 1.0, 2: 2.0}, {2: 7.0}), made({1: 1.0, 2: 2.0}, {2: 5.0, 1: 1.0})])
    assert [c.knobs["B"] for c in measured.ranked] == [2] and measured.best.times == (7.0, 5.0)
    with pytest.raises(ScheduleError, match="no candidate is legal and fits in every shape"):
        _ = combine(SHAPES, [made({1: 1.0}), made({2: 1.0})]).best


def test_a_mix_of_a_kernel():
    mix = tilec.tune_mix(workload("act_chain"), SHAPES, target="h200", space={"BN": [64, 128, 256]}, schedule=tiled)
    assert isinstance(mix, Mixed) and len(mix.ranked) == 3
    for n, (numbers, _) in enumerate(SHAPES):
        c = mix.candidate(n)
        assert c.knobs == mix.best.knobs and dict(c.schedule.program.bound) == numbers
        assert c.schedule.check().status == "legal" and c.cost.time == pytest.approx(mix.best.times[n])
    assert "expected" in mix.table() and "M=16, N=512 (75%)" in str(mix)


@pytest.mark.parametrize("shapes", [[], None, [{"M": 1}], [({"M": 1}, 0)], [({"M": 1}, True)], [("M", 1)], "MN"])
def test_bad_mixes(shapes):
    with pytest.raises(ScheduleError, match="tune_mix"):
        tilec.tune_mix(workload("act_chain"), shapes)


# -- the space of a CPU --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gemm_silu", "act_chain", "softmax", "blur", "jacobi2d", "dot", "swiglu"])
def test_recipes_of_a_cpu(name: str):
    program = workloads.get(name).program
    numbers = dict(zip(program.sizes, (64, 96, 80), strict=False))
    bound = start(program, numbers)
    recipes = cpu_recipes(bound.program, ZEN3)
    assert recipes[0].name == "picked" and not recipes[0].space
    assert len({r.name for r in recipes}) == len(recipes)
    if any(r.space for r in recipes):
        assert name in ("gemm_silu", "swiglu", "blur", "act_chain")


def test_a_search_on_the_host_ranks_by_its_model_and_keeps_the_pick():
    r = tilec.tune(
        workload("gemm_silu"), {"M": 48, "N": 64, "K": 40}, ZEN3, reassociate="acc", contract=True, priced=12, threads=1
    )
    assert any(row.structure == "picked" for row in r.rows)
    times = [row.time for row in r.rows]
    assert times == sorted(t for t in times if t is not None) and len(times) >= 8
    assert r.best.schedule.check().status == "legal"
    assert r.best.cost.time == pytest.approx(r.rows[0].time)
    assert any("drawn from the seed" in n for n in r.notes)
    again = tilec.tune(
        workload("gemm_silu"), {"M": 48, "N": 64, "K": 40}, ZEN3, reassociate="acc", contract=True, priced=12, threads=1
    )
    assert [row.knobs for row in again.rows] == [row.knobs for row in r.rows]


def test_a_target_without_rates_is_searched_as_before():
    plain = replace(ZEN3, threads=())
    r = tilec.tune(workload("act_chain"), {"M": 32, "N": 64}, plain)
    assert r.considered == 100
