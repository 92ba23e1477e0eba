"""Refusals of placement, storage and pipeline: test_placement.txt holds one chain of steps per error and the whole text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.errors import ScheduleError
from tilec.lang import f32, kernel, sizes
from tilec.schedule.schedule import Schedule, start
from tilec.workloads.attention import attention
from tilec.workloads.blur import blur
from tilec.workloads.gemm_silu import gemm_silu
from tilec.workloads.swiglu import swiglu

N = sizes("N")


@kernel
def outside(x: f32[N], y: f32[N]):
    t: f32
    for i in range(N):
        t = x[i]
        y[i] = t + t


def tiles() -> Schedule:
    """GEMM+SiLU, tiles of 16, blocks of 8 in k, not cached."""
    s = start(gemm_silu).compute_inline("C").split("Y.i", 16, into=("io", "ii")).split("Y.j", 16, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ii", "ji").compute_at("acc", "jo").split("acc.k", 8, into=("ko", "ki"))
    return s.reorder("ko", "acc.i", "acc.j", "ki")


def cached() -> Schedule:
    return tiles().cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", "shared")


NAMES = {
    "gemm_silu": start(gemm_silu),
    "swiglu": start(swiglu),
    "attention": start(attention),
    "blur": start(blur),
    "blur8": start(blur, {"M": 8}),
    "outside": start(outside),
    "tiles": tiles(),
    "cached": cached(),
    "blocks": cached().bind("io", "block.y").bind("jo", "block.x"),
}
FILE = Path(__file__).with_suffix(".txt")


def cases() -> list[tuple[str, str]]:
    """(steps, text) of every section: a line `>>> steps`, then the text."""
    out: list[tuple[str, str]] = []
    for section in FILE.read_text(encoding="utf-8").split(">>> ")[1:]:
        steps, _, text = section.partition("\n")
        out.append((steps, text.strip()))
    return out


@pytest.mark.parametrize(("steps", "text"), cases())
def test_refused(steps: str, text: str) -> None:
    with pytest.raises(ScheduleError) as e:
        eval(steps, dict(NAMES))
    assert str(e.value) == text


def test_every_precondition_has_a_case() -> None:
    steps = [s for s, text in cases() if text]
    assert len(steps) == len(set(steps)) > 50
