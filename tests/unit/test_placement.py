"""compute_inline, compute_at and their relatives: the rewritten text, and the same values at odd sizes."""

from __future__ import annotations

from dataclasses import replace

from tests.handbuilt import gemm_silu
from tilec.ir.printer import text
from tilec.ir.program import Program
from tilec.ir.verify import verify
from tilec.schedule import loops, loops_order, placement, placement_inline  # noqa: F401
from tilec.schedule.core import rewrite
from tilec.schedule.defaults import derive


def begin(original: Program) -> Program:
    return derive(replace(original, original=original))


def step(program: Program, name: str, *args, **kwargs) -> Program:
    new = derive(rewrite(program, name, args, kwargs))
    verify(new)
    return new

def test_x():
    p=begin(gemm_silu())
    print(text(p))
    p=step(p,"compute_inline","C")
    print(text(p))
    p=step(p,"split","Y.i", 64, into=("io", "ii"))
    p=step(p,"split","Y.j", 64, into=("jo", "ji"))
    p=step(p,"reorder","io", "jo", "ii", "ji")
    p=step(p,"compute_at","acc", "jo")
    print(text(p))
    p=step(p,"split","acc.k", 32, into=("ko", "ki"))
    p=step(p,"reorder","ko", "acc.i", "acc.j", "ki")
    print(text(p))
