"""What schedules refuse: test_schedule.txt holds one call per line (`program: steps`) and the whole text of its refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.schedule_fuzz import band, chain, counts, triangle
from tilec.errors import TilecError
from tilec.ir.program import Program
from tilec.lang.builder import Builder
from tilec.schedule.schedule import Schedule, start
from tilec.schedule.trace import Trace
from tilec.workloads.gemm_silu import gemm_silu
from tilec.workloads.syrk import syrk


def diagonal() -> Program:
    b = Builder("diagonal")
    n = b.size("N")
    a = b.param("a", "f32", [n + 1, n + 1])
    with b.loop("i", 1, n + 1) as i, b.loop("j", 0, n) as j:
        b.store(a, [i, j], "=", a[i - 1, j + 1] + 1)
    return b.program()


def total() -> Program:
    b = Builder("total")
    n = b.size("N", where="N % 4 == 0")
    x, out = b.param("x", "f32", [n]), b.param("out", "f32", [1])
    acc = b.temp("acc", "f32", initial=0)
    with b.loop("k", 0, n) as k:
        b.store(acc, [], "+=", x[k])
    b.store(out, [0], "=", acc[()])
    return b.program()


PROGRAMS = {f.__name__: f() for f in (band, chain, counts, triangle, diagonal, total)}
PROGRAMS |= {"gemm_silu": gemm_silu.program, "syrk": syrk.program}


def cases() -> list[tuple[str, str]]:
    """(call, text) of every `=== call` section."""
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    return [(call, rest.strip()) for call, _, rest in (s.partition("\n") for s in text.split("=== ")[1:])]


def run(call: str) -> Schedule:
    """`gemm_silu(M=4): split("k", 4).unroll("k_i")`."""
    head, _, steps = call.partition(": ")
    name, _, arguments = head.partition("(")
    given = eval(f"dict({arguments.rstrip(')')})")
    options = {k: given.pop(k) for k in ("reassociate", "contract", "proof_budget") if k in given}
    return (
        Trace.from_python(f"s.{steps}").apply(start(PROGRAMS[name], given, **options))
        if steps
        else start(PROGRAMS[name], given, **options)
    )


@pytest.mark.parametrize(("call", "text"), [pytest.param(c, t, id=c) for c, t in cases()])
def test_refused(call: str, text: str) -> None:
    with pytest.raises(TilecError) as e:
        run(call)
    assert e.value.render() == text
