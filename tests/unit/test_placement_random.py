"""Random chains of placement and storage steps: whatever is accepted computes the original."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.scheduled import same
from tilec.errors import LegalityError, ScheduleError
from tilec.schedule.names import loop_names
from tilec.schedule.schedule import Schedule, start
from tilec.workloads.act_chain import act_chain
from tilec.workloads.blur import blur
from tilec.workloads.gemm_silu import gemm_silu
from tilec.workloads.jacobi2d import jacobi2d
from tilec.workloads.rowquant import rowquant
from tilec.workloads.softmax import softmax
from tilec.workloads.syrk import syrk

KERNELS = (act_chain, blur, gemm_silu, jacobi2d, rowquant, softmax, syrk)
MEMORIES = ("global", "shared", "register")


def some_step(s: Schedule, rng: Random) -> tuple:
    loop, buffer, memory = rng.choice(loop_names(s.program)), rng.choice(s.buffers), rng.choice(MEMORIES)
    steps = [
        ("split", loop, rng.choice([2, 3])),
        ("split", loop, 4),
        ("compute_at", buffer, loop),
        ("compute_at", buffer, rng.choice(loop_names(s.program))),
        ("reverse_compute_at", buffer, loop),
        ("compute_inline", buffer),
        ("compute_root", buffer),
        ("place", buffer, memory),
        ("cache_read", buffer, loop, memory),
        ("cache_write", buffer, loop, memory),
        ("pipeline", loop, rng.choice([2, 3])),
        ("parallel", loop),
    ]
    return rng.choice(steps)


@pytest.mark.parametrize("seed", range(20))
def test_accepted_steps_keep_the_values(seed):
    rng = Random(seed)
    kernel = KERNELS[seed % len(KERNELS)]
    values = {n: rng.choice([1, 2, 3, 5]) for n in kernel.program.sizes}
    s = start(kernel, values if seed % 3 == 0 else {})
    taken = []
    for _ in range(40):
        if len(taken) == 4:
            break
        name, *args = some_step(s, rng)
        try:
            s = s.apply(name, *args)
        except (ScheduleError, LegalityError):
            continue
        taken.append((name, args))
    assert taken, "nothing was accepted"
    same(s.program, {n: 0.5 for n, _ in s.program.scalars} or None, **{n: v for n, v in values.items() if n in s.program.sizes})
