"""tune: formulas in bulk equal exact prices, structures and rejections, the front, determinism, measuring, bad arguments."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tilec import workloads
from tilec.cost.bulk import evaluate
from tilec.cost.price import price
from tilec.cost.separable import BASE, Markers, NotSeparable
from tilec.cost.term import text
from tilec.errors import MeasureError, ScheduleError, TargetError
from tilec.schedule.schedule import Schedule, start
from tilec.search.recipes import derive
from tilec.search.space import Space
from tilec.search.structure import Structure, candidate, judge, unproved_schedule
from tilec.search.tune import tune
from tilec.targets import load

SIZES = {"M": 1024, "K": 4096, "N": 12288}


def fused(s: Schedule, BM: int, BN: int, BK: int = 32, stages: int = 1, acc: str = "shared") -> Schedule:
    return (
        s.compute_inline("C")
        .split("Y.i", BM, into=("io", "ii"))
        .split("Y.j", BN, into=("jo", "ji"))
        .reorder("io", "jo", "ii", "ji")
        .compute_at("acc", "jo")
        .split("acc.k", BK, into=("ko", "ki"))
        .reorder("ko", "acc.i", "acc.j", "ki")
        .cache_read("A", at="ko", memory="shared")
        .cache_read("W", at="ko", memory="shared")
        .place("acc", acc)
        .bind("io", "block.y")
        .bind("jo", "block.x")
        .pipeline("ko", stages=stages)
    )


# tiles larger than the array too, where the structure stays the same then (two sums that share a loop have none to share)
TILES = {
    "gemm": [8, 16, 64, 128, 512],
    "gemm_silu": [1, 3, 8, 24, 64, 100],
    "act_chain": [1, 5, 64, 100],
    "swiglu": [3, 8, 16, 24],
    "transpose": [1, 7, 64],
}


@pytest.mark.parametrize(
    ("kernel", "sizes"),
    [
        ("gemm", {"M": 61, "N": 127, "K": 257}),
        ("gemm_silu", {"M": 70, "N": 45, "K": 33}),
        ("act_chain", {"M": 37, "N": 61}),
        ("swiglu", None),
        ("transpose", None),
    ],
)
def test_bulk_equals_exact(kernel: str, sizes: dict[str, int] | None):
    """Random candidates of every structure with formulas: each figure equals that of the exact price with open sizes, also of
    tiles larger than the array, and that of the program with numbers where every tile is smaller."""
    program = workloads.get(kernel).program
    sizes = sizes or {n: 29 + 7 * k for k, n in enumerate(program.sizes)}
    machine = load("h100-sxm")
    opened, bound, memo = start(program), start(program, sizes), {}
    rng = random.Random(kernel)
    recipes = derive(program)
    compared = 0
    for r in rng.sample(recipes, min(5, len(recipes))):
        structure = Structure(r.name, r.choices, Space.of(r.space), r.apply)
        judged = judge(structure, opened, memo)
        assert judged.refusal is None, judged.refusal
        if judged.formulas is None:
            continue
        knobs = {n: rng.choice(TILES[kernel]) for n in r.space}
        arrays = {n: np.array([v]) for n, v in knobs.items()}
        c = evaluate(judged.formulas, machine, sizes, arrays)
        whole = price(unproved_schedule(structure.apply, opened, knobs, memo).program, machine, sizes)
        held = whole.footprint["shared"] + whole.footprint["scratch"]
        assert (int(c.traffic[0]), int(c.flops[0])) == (whole.traffic.total("global"), whole.flops), (r.name, knobs)
        assert c.shared[0] == held and float(c.seconds[0]) == pytest.approx(whole.time, rel=1e-9), (r.name, knobs)
        exact = price(candidate(judged, opened, bound, knobs, memo).program, machine)
        assert (int(c.traffic[0]), int(c.flops[0])) == (exact.traffic.total("global"), exact.flops), (r.name, knobs)
        held = exact.footprint["shared"] + exact.footprint["scratch"]
        small = all(v <= min(sizes.values()) for v in knobs.values())
        if small:  # with numbers a tile larger than the array is cut to it; the formulas keep the whole tile
            assert float(c.seconds[0]) == pytest.approx(exact.time, rel=1e-9), (r.name, knobs)
        assert c.shared[0] == held if small else c.shared[0] >= held, (r.name, knobs)
        compared += 1
    assert compared


def test_what_is_shown_is_priced_as_it_was_ranked():
    """Sizes smaller than most tiles: the price of a candidate in full is that of its row, so that a table is in order."""
    found = tune(workloads.get("gemm"), sizes={"M": 61, "N": 127, "K": 257}, target="h100-sxm")
    shown = [found.at(n) for n in range(0, len(found.rows), len(found.rows) // 12)]
    rows = found.rows[:: len(found.rows) // 12]
    assert any(r.knobs["BM"] > 61 for r in rows) and any(r.knobs["BM"] < 61 for r in rows)
    for row, c in zip(rows, shown, strict=True):
        assert c.cost.time == pytest.approx(row.time, rel=1e-9), row
        assert c.cost.footprint["shared"] + c.cost.footprint["scratch"] == row.footprint, row


def test_formulas_read_as_a_person_writes_them():
    program = workloads.get("gemm_silu").program
    structure = Structure("fused", {}, Space.of({"BM": [64], "BN": [64], "BK": [32]}), lambda s, k: fused(s, **k))
    judged = judge(structure, start(program), {})
    assert judged.formulas is not None
    assert text(judged.formulas.traffic()) == "2*ceil(N/BN)*K*M + 2*ceil(M/BM)*K*N + 2*M*N"
    assert text(judged.formulas.launches[0].shared) == "4*BM*BN + 2*BK*BM + 2*BK*BN"
    assert text(judged.formulas.flops()) == "2*K*M*N"


def test_a_number_without_an_origin_is_not_guessed():
    markers = Markers.of(["BM", "BN"])
    (_, bm), (_, bn) = markers.values
    assert text(markers.number(3 * bm - 1)) == "3*BM - 1"
    assert text(markers.number(bm // 4)) == "floor(BM/4)"
    assert text(markers.number(bm * bn)) == "BM*BN"
    with pytest.raises(NotSeparable):
        markers.number(bm * bm * bn // BASE)


def test_the_picks_of_the_chapter():
    """The given tiles at two stages: those that fit; 128x128 beats 64x64 beats 32x32; 256x256 does not fit."""
    r = tune(
        workloads.get("gemm_silu"),
        sizes=SIZES,
        target="rtx-pro-6000",
        space={"BM": [32, 64, 128, 256], "BN": [32, 64, 128, 256]},
        schedule=lambda s, BM, BN: fused(s, BM, BN, stages=2),
    )
    assert r.considered == 16
    assert r.best.knobs == {"BM": 128, "BN": 128}
    assert r.best.cost.traffic.total("global") == 1560 * 2**20
    square = [row for row in r.rows if row.knobs["BM"] == row.knobs["BN"]]
    assert [row.knobs["BM"] for row in square] == [128, 64, 32]
    assert [row.traffic // 2**20 for row in square] == [1560, 3096, 6168]
    assert r.rejected["does not fit"].count == 5
    assert "BN=256" in r.rejected["does not fit"].example
    assert r.best.schedule.verdict.status == "legal"


def test_the_front_has_no_beaten_candidate():
    r = tune(
        workloads.get("gemm_silu"),
        sizes=SIZES,
        target="h100-sxm",
        space={"BM": [16, 32, 64, 100, 128], "BN": [16, 64, 128], "BK": [16, 32]},
        schedule=lambda s, **k: fused(s, **k),
    )
    front = r.pareto("footprint", "traffic")
    assert front and [p.footprint for p in front] == sorted(p.footprint for p in front)
    for p in front:
        assert not any(q.footprint <= p.footprint and q.traffic < p.traffic for q in r.rows)
    assert {(p.footprint, p.traffic) for p in front} == _front([(q.footprint, q.traffic) for q in r.rows])
    with pytest.raises(ScheduleError, match="no figure 'price'"):
        r.pareto("price", "traffic")


def _front(points: list[tuple[int, int]]) -> set[tuple[int, int]]:
    """The same by comparing every pair."""
    return {p for p in points if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in points)}


def test_structural_knobs_and_illegal_structures_are_counted():
    """inside="ko" puts the activation where only part of the sum is known."""

    def apply(s: Schedule, BM: int, inside: str) -> Schedule:
        s = s.split("acc.k", 32, into=("ko", "ki")) if inside == "nowhere" else s
        return s.reverse("acc.k") if inside == "backwards" else s.split("Y.i", BM, into=("io", "ii"))

    r = tune(
        workloads.get("gemm_silu"),
        sizes=SIZES,
        target="h100-sxm",
        space={"BM": [32, 64], "inside": ["nowhere", "backwards"]},
        schedule=apply,
    )
    assert r.structures == 2 and r.considered == 4
    assert r.rejected["illegal"].count == 2
    assert "order of the float reduction" in r.rejected["illegal"].example or "receives" in r.rejected["illegal"].example


def test_the_same_seed_gives_the_same_table():
    def once() -> str:
        return tune(workloads.get("act_chain"), sizes={"M": 64, "N": 96}, target="h200", seed=3).table(4)

    assert once() == once()


def test_all_partitions_of_a_chain():
    r = tune(workloads.get("act_chain"), sizes={"M": 1024, "N": 12288}, target="h100-sxm")
    by_partition = {str(row.knobs["partition"]): row.traffic for row in r.rows}
    assert len(by_partition) == 4
    assert sorted(by_partition.values()) == [60 * 2**20, 108 * 2**20, 108 * 2**20, 156 * 2**20]
    assert r.best.cost.traffic.total("global") == 60 * 2**20


def test_measuring_reranks_and_the_database_remembers(tmp_path: Path):
    ran: list[str] = []

    def measure(s: Schedule) -> float:
        ran.append(str(s))
        return 1.0 / len(str(s.trace))

    def once():
        return tune(
            workloads.get("act_chain"),
            sizes={"M": 64, "N": 96},
            target="h200",
            measure=measure,
            budget=3,
            database=str(tmp_path / "seen.sqlite"),
        )

    first = once()
    assert len(ran) == 3 and first.best.measured is not None
    assert [r.measured for r in first.rows[:3]] == sorted(r.measured for r in first.rows[:3] if r.measured is not None)
    again = once()
    assert len(ran) == 3  # nothing is run twice
    assert again.best.knobs == first.best.knobs


def test_a_measurement_that_raises_is_named(tmp_path: Path):
    def broken(s: Schedule) -> float:
        raise RuntimeError("no device")

    with pytest.raises(MeasureError, match="RuntimeError: no device"):
        tune(workloads.get("act_chain"), sizes={"M": 8, "N": 8}, target="h200", measure=broken)
    bad = tmp_path / "text"
    bad.write_text("this is no database, and long enough to be read as one" * 50)
    with pytest.raises(MeasureError, match="database"):
        tune(workloads.get("act_chain"), sizes={"M": 8, "N": 8}, target="h200", measure=lambda s: 1.0, database=str(bad))


def test_bad_arguments():
    kernel = workloads.get("gemm_silu")
    with pytest.raises(ScheduleError, match=r"no number for (K, N|N, K)"):
        tune(kernel, sizes={"M": 4})
    with pytest.raises(TargetError):
        tune(kernel, sizes=SIZES, target="h1000")
    with pytest.raises(ScheduleError, match="give schedule="):
        tune(kernel, sizes=SIZES, space={"BM": [1]})
    for wrong in ({"priced": 0}, {"priced": -3}, {"budget": 0}, {"budget": 2.5}, {"seed": "x"}):
        (name,) = wrong
        with pytest.raises(ScheduleError, match=rf"tune\({name}=.*(whole number|an integer >= 0)"):
            tune(kernel, sizes=SIZES, **wrong)  # type: ignore[arg-type]
    for value, says in (
        (0, "must be >= 1, not 0"),
        (-4, "must be >= 1, not -4"),
        ("x", "must be an integer"),
        (1.5, "values are int"),
    ):
        with pytest.raises(ScheduleError, match=f"BM.*{says}"):  # a knob outside what a primitive takes
            str(tune(kernel, sizes=SIZES, space={"BM": [value]}, schedule=lambda s, BM: s.split("Y.i", BM)).best)
    with pytest.raises(ScheduleError, match="non-empty list"):
        tune(kernel, sizes=SIZES, space={"BM": []}, schedule=lambda s, BM: s)
    with pytest.raises(ScheduleError, match="twice"):
        tune(kernel, sizes=SIZES, space={"BM": [4, 4]}, schedule=lambda s, BM: s)
    with pytest.raises(ScheduleError, match="must return the schedule"):
        str(tune(kernel, sizes=SIZES, space={"BM": [4]}, schedule=lambda s, BM: None).best)  # type: ignore[arg-type, return-value]
    with pytest.raises(ScheduleError, match="raised KeyError"):
        str(tune(kernel, sizes=SIZES, space={"BM": [4]}, schedule=lambda s, BM: {}[BM]).best)
    with pytest.raises(ScheduleError, match="does not take the knobs"):
        str(tune(kernel, sizes=SIZES, space={"BX": [4]}, schedule=lambda s, BM: s).best)


def test_products_beyond_64_bits_stay_exact():
    structure = Structure("fused", {}, Space.of({"BM": [64], "BN": [64], "BK": [32]}), lambda s, k: fused(s, **k))
    judged = judge(structure, start(workloads.get("gemm_silu").program), {})
    assert judged.formulas is not None
    huge = {"M": 2**31, "N": 2**31, "K": 2**31}
    knobs = {n: np.array([64, 3]) for n in ("BM", "BN", "BK")}
    c = evaluate(judged.formulas, load("h200"), huge, knobs)
    assert list(c.flops) == [2**94, 2**94]
    assert c.traffic[1] == 2 * (2**62 * -(-(2**31) // 3)) * 2 + 2 * 2**62


def test_every_permission_reaches_the_schedules():
    kernel, given = workloads.get("gemm"), {"reassociate": "acc", "contract": True, "hardware_rounding": True}
    found = tune(kernel, SIZES, "h200", space={"BM": [4]}, schedule=lambda s, BM: s.split("i", BM), **given)
    program = found.best.schedule.program
    assert (program.reassociate, program.contract, program.hardware_rounding) == (frozenset({"acc"}), True, True)
