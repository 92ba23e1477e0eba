"""What a person reads of a few programs, in the three text forms. Every text is that of a program that runs: it is compared with
the reference before its text is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import handbuilt
from tilec.codegen import numpy_source, tile
from tilec.ir import interp
from tilec.ir.arguments import check_scalars
from tilec.ir.printer import loop_tree, text
from tilec.ir.program import Program
from tilec.runtime.compare import against_reference
from tilec.runtime.numpy_run import Runner
from tilec.schedule.schedule import Schedule, start
from tilec.workloads.blur import blur
from tilec.workloads.gemm_silu import gemm_silu
from tilec.workloads.rowquant import rowquant
from tilec.workloads.syrk import syrk


def fused_gemm_silu() -> Schedule:
    """The schedule of the design, before its copies are pipelined."""
    return (
        start(gemm_silu)
        .compute_inline("C")
        .split("Y.i", 64, into=("io", "ii"))
        .split("Y.j", 64, into=("jo", "ji"))
        .reorder("io", "jo", "ii", "ji")
        .compute_at("acc", "jo")
        .split("acc.k", 32, into=("ko", "ki"))
        .reorder("ko", "acc.i", "acc.j", "ki")
        .cache_read("A", at="ko", memory="shared")
        .cache_read("W", at="ko", memory="shared")
        .place("acc", "shared")
        .bind("io", "block.y")
        .bind("jo", "block.x")
    )


def gemm_silu_on_threads() -> Schedule:
    """A thread per output element, its sum in a register; tiles of 16."""
    return (
        start(gemm_silu)
        .compute_inline("C")
        .split("Y.i", 16, into=("io", "ii"))
        .split("Y.j", 16, into=("jo", "ji"))
        .reorder("io", "jo", "ii", "ji")
        .compute_at("acc", "jo")
        .split("acc.k", 16, into=("ko", "ki"))
        .reorder("ko", "acc.i", "acc.j", "ki")
        .cache_read("A", at="ko", memory="shared")
        .cache_read("W", at="ko", memory="shared")
        .place("acc", "register")
        .bind("io", "block.y")
        .bind("jo", "block.x")
        .bind(("S0.i", "S1.i", "Y.ii", "A_shared.0", "W_shared.0"), "thread.y")
        .bind(("S0.j", "S1.j", "Y.ji", "A_shared.1", "W_shared.1"), "thread.x")
    )


def row_at_a_time() -> Schedule:
    """The quantisation joins the row maximum: one row per block."""
    return start(rowquant).fuse_siblings("S.i", "Q.i").bind("S.i", "block.x")


PROGRAMS: dict[str, Callable[[], Program]] = {
    "gemm_silu": lambda: gemm_silu.program,
    "gemm_silu_fused": lambda: fused_gemm_silu().program,
    "gemm_silu_pipelined": lambda: fused_gemm_silu().pipeline("ko", stages=2).program,
    "gemm_silu_on_threads": lambda: gemm_silu_on_threads().program,
    "rowquant_rows": lambda: row_at_a_time().program,
    "syrk_reordered": lambda: start(syrk).reorder("j", "i", "k").program,
    "blur": lambda: blur.program,
    "neighbours_on_threads": handbuilt.neighbours_on_threads,
    "copied_ahead": handbuilt.copied_ahead,
}
FORMS: dict[str, Callable[[Program], str]] = {
    "element": text,
    "tile": tile.text,
    "numpy": numpy_source.emit,
    "loops": loop_tree,
}
SHOWN = {
    "gemm_silu": ("element", "loops"),
    "gemm_silu_fused": ("element", "tile", "numpy", "loops"),
    "gemm_silu_pipelined": ("element", "tile"),
    "gemm_silu_on_threads": ("element", "tile", "numpy"),
    "rowquant_rows": ("element", "tile", "numpy"),
    "syrk_reordered": ("element",),
    "blur": ("tile",),
    "neighbours_on_threads": ("element", "tile", "numpy"),
    "copied_ahead": ("element", "tile", "numpy"),
}
SIZES = {"M": 70, "N": 67, "K": 41}


def interpreter(program: Program) -> Runner:
    return lambda arrays, sizes, scalars: interp.run(program, arrays, sizes, check_scalars(program, scalars))


@pytest.mark.parametrize("name", PROGRAMS)
def test_text(name: str, golden: Callable[[str, str], None]) -> None:
    program = PROGRAMS[name]()
    sizes = {n: SIZES[n] for n in program.sizes}
    for build in (interpreter, None):
        found = against_reference(program, sizes, 1, build) if build else against_reference(program, sizes, 1)
        assert found and all(d.identical for d in found), found
    for form in SHOWN[name]:
        golden(f"{name}.{form}", FORMS[form](program))


def test_no_text_is_left_over(request: pytest.FixtureRequest) -> None:
    expected = {f"{name}.{form}.txt" for name, forms in SHOWN.items() for form in forms}
    texts = {f.name for f in request.path.parent.glob("*.txt") if not f.name.endswith(".triton.txt")}  # those: test_triton.py
    assert texts == expected
