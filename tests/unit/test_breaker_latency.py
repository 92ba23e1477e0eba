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
