"""Arguments of the calculators of latency and waves that once gave NaN, a count of 0, or a foreign traceback."""

from __future__ import annotations

import pytest

import tilec
from tilec.errors import ResourceError

WRONG = ("x", None, float("nan"), float("inf"), -1, True, [1])


@pytest.mark.parametrize("value", WRONG, ids=repr)
def test_they_are_refused(value):
    for call in (tilec.bytes_in_flight, tilec.warps_needed, tilec.loads_needed, tilec.effective_bandwidth, tilec.waves):
        with pytest.raises(ResourceError, match="must"):
            call("h100-sxm", value)
    with pytest.raises(ResourceError, match="blocks_per_sm must"):
        tilec.waves("h100-sxm", 5, value)
    with pytest.raises(ResourceError, match="tile"):
        tilec.tiles(value, ("x",))


@pytest.mark.parametrize(
    "value", [float("inf"), float("nan"), True, False, -1, "1", None, [1, True, 1], [1, float("inf"), 1], 1e308]
)
@pytest.mark.parametrize("what", ["copy", "compute"])
def test_durations_are_finite_numbers(what: str, value: object) -> None:
    given = {"copy": 1, "compute": 2, what: value}
    with pytest.raises(ResourceError, match=f"pipeline_time: .*{what} duration"):
        tilec.pipeline_time(**given, blocks=3, slots=2)


def test_the_way_back_from_very_many_registers_is_short() -> None:
    o = tilec.occupancy("h100-sxm", threads=128, registers=10**30)
    assert o.blocks == 0 and o.problems and str(o.gain) == f"registers {10**30:,} → 256 per thread"


def test_a_carveout_between_two_percent() -> None:
    o = tilec.occupancy("h100-sxm", threads=128, registers=32, shared_bytes=4096, carveout=1.5)
    assert o.gain is not None and o.gain.steps[0][0] == "carveout" and o.gain.steps[0][2] > 1.5


@pytest.mark.parametrize("addresses", [0, -1, True, None, 1.5, float("inf"), "0", b"x", [0.5], [True], [-4], range(0, 10**9, 4)])
@pytest.mark.parametrize("call", [tilec.bank_rounds, tilec.global_sectors])
def test_addresses_are_numbers_of_one_warp(call, addresses) -> None:
    with pytest.raises(ResourceError, match=f"^{call.__name__}: "):
        call(addresses)


@pytest.mark.parametrize("pair", [1, None, True, "12", b"xy", (), (1,), (1, 2, 3), (1, True), (float("nan"), 1)])
def test_times_of_two_shapes_are_a_pair(pair) -> None:
    for given in ({"old_us": pair, "new_us": (5, 20)}, {"old_us": (10, 10), "new_us": pair}):
        with pytest.raises(ResourceError, match=r"^break_even_share: "):
            tilec.break_even_share(**given)


def test_more_outputs_than_the_grid_has() -> None:
    assert tilec.operand_sharing(3, 3, 2, 10**30) == tilec.operand_sharing(3, 3, 2, 9)
