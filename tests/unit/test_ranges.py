"""The ranges of a predicted time: what a cost says of itself is what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tilec
from benchmarks.model import cublas, ranges
from benchmarks.model.rank import Structures, predict, read
from benchmarks.model.section import rows
from benchmarks.model.spaces import SPACES
from tests.unit.test_cost_explain import gemm
from tilec.cost.checked import SEEN, likely
from tilec.cost.price import price
from tilec.targets import load

KEPT = json.loads((Path(__file__).resolve().parents[2] / "docs" / "model.json").read_text())["ranges"]


def test_the_share_that_is_printed_is_the_share_that_was_measured() -> None:
    """The figures of the report, and the same over every thirtieth row now."""
    assert KEPT["rows"] == SEEN.rows and KEPT["held"] == pytest.approx(SEEN.held, abs=0.005)
    inside, count, structures = 0.0, 0, Structures()
    for file, target, _ in SPACES:
        space = read(file)
        space = space.take(np.arange(0, space.count, 30))
        ratio = space.measured * 1e-3 / predict(space, target, structures)
        inside, count = inside + float(np.sum((ratio >= SEEN.low) & (ratio <= SEEN.high))), count + len(ratio)
    table = rows(cublas.FILE)[::30]
    estimate, measured = cublas.whole(cublas.predicted(table, load(cublas.TARGET)), cublas.HOST_US * 1e-6, 0.0)
    ratio = measured / estimate
    inside, count = inside + float(np.sum((ratio >= SEEN.low) & (ratio <= SEEN.high))), count + len(ratio)
    assert inside / count == pytest.approx(SEEN.held, abs=0.02)
    narrow = np.mean((ratio >= 0.9) & (ratio <= 1.1))
    assert narrow < 0.6  # a narrower range would not hold as many


def test_bounds_of_drawn_rows_hold_what_was_measured() -> None:
    space = read(SPACES[1][0])
    picked = ranges.draw(space.count, 6)
    low, high = ranges.space_bounds(space, SPACES[1][1], picked.tolist()).T
    measured = space.measured[picked] * 1e-3
    assert np.mean((measured >= low) & (measured <= high)) >= 0.8 and np.all(low < high)
    assert all(v >= 0.9 for v in KEPT["bounds"].values())


def test_a_row_priced_alone_is_the_row_in_bulk() -> None:
    table, machine = rows(cublas.FILE)[7:2000:400], load(cublas.TARGET)
    for row in table:
        program, target, sizes = cublas.scheduled(row, machine)
        (calls,) = cublas.predicted([row], machine)
        exact = price(program, target, sizes)
        assert sum(float(x[0]) for x in calls.launches) == pytest.approx(exact.time, rel=1e-9)


def test_the_likely_range_is_said_where_seconds_were_measured() -> None:
    row, machine = rows(cublas.FILE)[1100], load(cublas.TARGET)
    program, target, sizes = cublas.scheduled(row, machine)
    cost = price(program, target, sizes)
    assert cost.likely is not None and cost.likely == likely(cost)
    low, high = cost.likely
    assert cost.range[0] <= low < cost.time < high <= cost.range[1]
    assert "93% of 54,220 measured kernels took 0.7 to 1.5 times their estimate" in cost.explain()
    assert cost.data()["time_likely"] == [low, high]
    elsewhere = gemm(target="v100"), gemm(target="h100-sxm"), tilec.workload("gemm").schedule().cost("tpu-v5e", M=8, N=8, K=8)
    for other in elsewhere:
        assert other.likely is None and "likely" not in other.explain() and other.data()["time_likely"] is None
    assert tilec.workload("gemm").schedule().cost("h100-sxm").likely is None


def test_where_only_the_order_was_measured_no_share_is_claimed() -> None:
    """Products in bf16 on the matrix unit: published ladders gave their order."""
    for target in ("a100-sxm", "rtx-pro-6000", "b200"):
        cost = gemm(target=target)
        assert cost.likely is None and cost.data()["time_likely"] is None
        assert (
            "how likely is not known: seconds were compared for products in f32 on compute capability 8.0 (A100)"
            in cost.explain()
        )
        assert "measured kernels took" not in cost.explain()
