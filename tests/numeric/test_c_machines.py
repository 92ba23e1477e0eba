"""The text for machines that this one is not: every intrinsic of wider registers compiles, and runs in registers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.numeric.compiled import needs_compiler
from tests.unit.test_schedule_cpu import dots, halves, integers, product
from tilec.codegen import c_arithmetic, c_convert, c_functions, c_instructions, c_lanes, c_memory, c_source
from tilec.codegen.c_helpers import Helpers
from tilec.ir.dtypes import DTYPES, RULES
from tilec.ir.functions import FUNCTIONS
from tilec.ir.instructions import INSTRUCTIONS
from tilec.runtime.c_build import FLAGS
from tilec.runtime.compiler import find
from tilec.schedule.schedule import Schedule, start

pytestmark = needs_compiler
WIDE = "-march=sapphirerapids"


def compiled(text: str, folder: Path, march: str) -> str:
    """Assembly for another machine; skipped where the compiler does not know it."""
    known = subprocess.run([find().path, march, "-E", "-x", "c", "/dev/null"], capture_output=True, text=True, timeout=60)
    if known.returncode:
        pytest.skip(f"{find().version} does not know {march}")
    (folder / "k.c").write_text(text)
    flags = [f for f in FLAGS if not f.startswith("-march")]
    command = [
        find().path,
        *flags,
        march,
        "-mtune=znver3",
        "-Wall",
        "-Wno-unused-function",
        "-Wno-maybe-uninitialized",
        "-S",
        "k.c",
        "-o",
        "k.s",
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr[:2000]
    return (folder / "k.s").read_text()


@pytest.mark.parametrize("flushes", [False, True])
@pytest.mark.parametrize("march", [WIDE, "-march=x86-64-v3", "-march=x86-64"])
def test_every_helper_compiles(march: str, flushes: bool, tmp_path: Path) -> None:
    h = Helpers(64, flushes)
    for lanes in (1, 2, 4, 8, 16, 32):
        for dtype in DTYPES:
            c_convert.decode(h, dtype, lanes)
            for source in ("f32", "f64", "i32"):
                for rule in (None, *RULES):
                    c_convert.encode(h, dtype, source, lanes, rule)
            c_convert.through(h, dtype, lanes)
            c_convert.paired(h, dtype, lanes)
        for f in FUNCTIONS:
            c_functions.function(h, f, lanes)
        for short in ("f64", "f32", "i32", "u16", "u8", "i8"):
            for op in ("max", "min") if short[0] in "fi" and short != "i8" else ():
                c_arithmetic.extreme(h, op, short, lanes)
            if lanes > 1:
                whole, part = (c_memory.load, c_memory.store, c_memory.stream), (c_memory.load_part, c_memory.store_part)
                for make in (*whole, *part, c_lanes.splat, c_lanes.select, c_lanes.join):
                    make(h, short, lanes)
        c_arithmetic.fma(h, "f32", lanes), c_arithmetic.sqrt(h, "f64", lanes), c_arithmetic.divide(h, "//", lanes)
        if lanes in (4, 8, 16):
            for wanted in INSTRUCTIONS.values():
                if wanted.depth > 1:
                    c_instructions.product(h, wanted, lanes)
                    for turned in (False, True) if wanted.depth == 2 else (False,):
                        c_instructions.spread(h, wanted, lanes, turned)
    c_memory.fence(h)
    compiled(h.text(), tmp_path, march)


def hot_loop(assembly: str, instruction: str, count: int) -> list[str]:
    """The innermost loop with that many of the instruction, as lines."""
    for block in re.split(r"^\.L\w+:\n", assembly, flags=re.M):
        lines = block.split("\n")
        end = next((n for n, line in enumerate(lines) if re.match(r"\tj\w+", line)), len(lines))
        if sum(instruction in line for line in lines[:end]) == count:
            return lines[:end]
    raise AssertionError(f"no loop with {count} {instruction}")


def tile(rows: int, columns: int) -> Schedule:
    s = start(product, contract=True).split("i", rows, into=("io", "ii")).split("j", columns, into=("jo", "jl"))
    s = s.reorder("jo", "io", "ii", "jl").place("acc", "register", at="io").reorder("k", "S1.ii", "S1.jl")
    s = s.cache_read("W", at="jo", memory="scratch")
    return s.vectorize(("S0.jl", "S1.jl", "Y.jl", "W_scratch.1")).unroll(("S0.ii", "S1.ii", "Y.ii"))


@pytest.mark.parametrize(
    ("rows", "columns", "width", "march"), [(6, 16, 32, "-march=x86-64-v3"), (12, 32, 64, WIDE), (8, 48, 64, WIDE)]
)
def test_accumulators_stay_in_registers(rows: int, columns: int, width: int, march: str, tmp_path: Path) -> None:
    """The inner loop of a full tile: a fused multiply-add per accumulator, and no vector on the stack."""
    assembly = compiled(c_source.emit(tile(rows, columns).program, width), tmp_path, march)
    loop = hot_loop(assembly, "vfmadd", rows * columns * 4 // width)
    assert not [line for line in loop if "(%rsp)" in line and ("mm" in line)], "\n".join(loop)


def test_dot_instructions_are_used(tmp_path: Path) -> None:
    s = dots(halves, "bf16", 16, True, contract=True, hardware_rounding=True).instruction("S1.jl", "vdpbf16ps")
    assert "vdpbf16ps" in compiled(c_source.emit(s.program, 64), tmp_path, WIDE)
    s = dots(integers, "i8", 16, False).instruction("S1.jl", "vpdpwssd")
    assert "vpdpwssd" in compiled(c_source.emit(s.program, 64), tmp_path, WIDE)
    s = dots(integers, "i8", 8, False).instruction("S1.jl", "vpmaddwd")
    assert "vpmaddwd" in compiled(c_source.emit(s.program, 32), tmp_path, "-march=x86-64-v3")
