"""What the emitted C says of itself: the statements, what each loop runs over, one heading for what is written out."""

from __future__ import annotations

import re

import pytest

from tests.numeric.test_c_cpu import SCHEDULES
from tests.unit.test_cpu_recipes import ZEN4
from tests.unit.test_schedule_cpu import product, tiles
from tilec.codegen import c_comments, c_source
from tilec.ir import tree
from tilec.schedule.schedule import start
from tilec.search.cpu import pick
from tilec.search.cpu_operands import Blocks


def over(program) -> dict[str, str]:
    """What each loop runs over, by name."""
    found: dict[str, str] = {}
    for site in tree.sites(program.body):
        for n, loop in enumerate(site.loops):
            found.setdefault(loop.var, c_comments.runs_over(program, site.loops[:n], loop))
    return found


def body(text: str) -> str:
    return text[text.index("\nvoid tilec_") :]


def test_a_loop_says_what_of_the_source_it_runs_over() -> None:
    said = over(tiles().program)
    assert said["jc"] == "j in 16*jc..min(16*jc + 16, N)"
    assert said["jr"] == "j in 16*jc + 8*jr..min(16*jc + 8*jr + 8, N)"
    assert said["ii"] == "i = 4*io + ii" and said["jl"] == "j = 16*jc + 8*jr + jl"
    assert said["k"] == ""  # as the loop's header has it
    assert set(over(product.program).values()) == {""}


def test_ranges_that_divide_have_no_end_to_say() -> None:
    said = over(start(product, sizes={"M": 12, "N": 5, "K": 3}).split("i", 4, into=("io", "ii")).program)
    assert said["io"] == "i in 4*io..4*io + 4"
    said = over(start(product, sizes={"M": 13, "N": 5, "K": 3}).split("i", 4, into=("io", "ii")).program)
    assert said["io"] == "i in 4*io..min(4*io + 4, 13)"


def test_what_is_not_simple_is_not_said() -> None:
    fused = over(start(product, sizes={"M": 4, "N": 5, "K": 3}).fuse("i", "j", into="f").program)
    assert fused["f"] == "j = f % 5"  # and i = f/5, a division


def test_the_source_stands_above_the_loops() -> None:
    text = c_source.emit(tiles().program)
    head = text[: text.index("*/")]
    assert " * as written:\n *   i in 0..M\n" in head and "S1: acc[i, j] += A[i, k] * W[k, j]\n" in head
    assert " * as run here:\n *   jc in 0..ceil(N/16)  # j in 16*jc..min(16*jc + 16, N)\n" in head
    plain = c_source.emit(product.program)
    assert "S2: Y[i, j] = silu(acc[i, j])\n" in plain and "as run" not in plain


def test_what_is_written_out_has_one_comment_above() -> None:
    text = body(c_source.emit(tiles().unroll(("S0.ii", "S1.ii", "S2.ii")).vectorize(("S0.jl", "S1.jl", "S2.jl")).program))
    full = text[text.index("// a full tile: all 4 of ii, all 8 of jl") : text.index("} else if")]
    assert "f32x8 acc_0_0, acc_1_0, acc_2_0, acc_3_0;" in text
    for n, buffer in (("S0", "acc"), ("S1", "acc"), ("S2", "Y")):
        assert full.count(n) == 1 and f"// {n}: {buffer}, for ii in 0..4, jl in 0..8\n" in full
    assert "{  // fewer than 4 of ii, all 8 of jl\n" in text and "} else {  // fewer than 8 of jl\n" in text


def test_the_rest_of_a_bound_size_is_counted() -> None:
    chosen = pick(product.program, ZEN4, {"Y": Blocks(4, 32, 32)}, sizes={"M": 14, "N": 64, "K": 9})
    text = body(c_source.emit(chosen.schedule.program, 64))
    rows = [m for m in re.findall(r"\} else \{  // (.*)", text) if m.startswith("the last ")]
    assert rows and all(re.fullmatch(r"the last \d+ of \w+", m) for m in rows)


@pytest.mark.parametrize("name", list(SCHEDULES))
def test_no_branch_is_without_a_comment_and_no_number_is_left_to_compute(name: str) -> None:
    text = body(c_source.emit(SCHEDULES[name]().program))
    assert "} else {\n" not in text
    bound = start(product, sizes={"M": 64, "N": 512, "K": 256}).cache_read("W", at=None, memory="scratch")
    assert "W_scratch_bytes = 524352;" in c_source.emit(bound.program)


@pytest.mark.parametrize(
    ("variables", "lines"),
    [
        (
            {"a_0_0": "f32x8", "a_0_8": "f32x8", "a_1_0": "f32x8", "a_1_8": "f32x8"},
            ["f32x8 a_0_0, a_0_8;", "f32x8 a_1_0, a_1_8;"],
        ),
        ({"a_0": "f32x8", "a_8": "f32x4"}, ["f32x8 a_0;", "f32x4 a_8;"]),
        ({"a_0_0": "f32x8", "a_1_0": "f32x8"}, ["f32x8 a_0_0, a_1_0;"]),
        ({"m": "f32"}, ["f32 m;"]),
        ({}, []),
    ],
)
def test_rows_of_variables(variables: dict[str, str], lines: list[str]) -> None:
    assert c_comments.rows(variables) == lines
