"""Random kernels under random primitives: every priced count equals the enumerated one."""

from __future__ import annotations

from random import Random

import pytest

from tests.property.generator import TRIED, random_program, sizes_of
from tests.property.sequences import rewritten
from tests.unit.test_cost_price import agree


@pytest.mark.parametrize("chunk", range(4))
def test_random_programs_cost_what_they_do(chunk):
    for seed in range(15 * chunk, 15 * (chunk + 1)):
        rng = Random(5000 + seed)
        original = random_program(rng)
        program, _ = rewritten(rng, original)
        for tried in (TRIED[0], TRIED[4]):
            c, e = agree(program, sizes_of(original, tried))
            assert sum(c.flops_by_kind.get(k, 0) for k in ("add", "mul", "div")) == e.flops
