"""Triton text: the shape it is made from is proved, the text is laid out and valid Python, what has no form is refused."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from benchmarks.gpu_report.emit import FOLDER, HEAD
from benchmarks.gpu_report.schedules import CASES, Case, case
from tilec import api
from tilec.codegen.triton import Options, emit, options_for
from tilec.codegen.triton_shape import shaped
from tilec.errors import ScheduleError
from tilec.ir import tree
from tilec.ir.program import Copy, Program
from tilec.poly.prove import prove
from tilec.search.recipes import derive


def moved(program: Program, buffer: str, asynchronous: bool, k: str) -> Program:
    """The copies into a buffer from the next iteration's place."""

    def f(node):
        if isinstance(node, Copy) and node.dst.buffer == buffer and node.asynchronous == asynchronous:
            if any(k in e.names for e in node.src.index):
                index = tuple(e + 1 if k in e.names else e for e in node.src.index)
                return (replace(node, src=replace(node.src, index=index)),)
        return (node,)

    return replace(program, body=tree.transform(program.body, f))


@pytest.mark.parametrize("c", CASES, ids=lambda c: c.name)
def test_every_kernel(c: Case) -> None:
    s = c.schedule()
    form = shaped(s.program)
    original = s.program.original
    assert original is not None
    assert prove(original, form.program).status == "legal"
    for options in (Options(), Options(num_warps=8, group=1, bytes_for_f8=True)):
        made = emit(s.program, options)
        compile(made.text, c.name, "exec")
        done = subprocess.run(
            [sys.executable, "-m", "ruff", "format", "--isolated", "--check", "-"],
            input=made.text,
            text=True,
            capture_output=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if options == Options():  # what benchmarks/gpu.py runs is this; python -m benchmarks.gpu_report.emit writes it again
            assert (FOLDER / f"{c.name}.py").read_text(encoding="utf-8") == HEAD + made.text
        assert [k.name for k in made.kernels] == [f"{s.program.name}_{n}" for n in range(len(made.kernels))]
        assert all(f"def {k.name}(" in made.text and f"{k.name}[(blocks,)](" in made.text for k in made.kernels)


def test_a_wrong_shape_would_be_seen() -> None:
    """The proof that every case passes refuses a shape whose copy fetches the wrong tile."""
    s = case("gemm_silu").schedule()
    form = shaped(s.program).program
    assert s.program.original is not None
    assert prove(s.program.original, moved(form, "A_shared", False, "ko")).status == "illegal"


def test_a_prologue_of_something_else_is_refused() -> None:
    s = case("gemm_silu").schedule()
    with pytest.raises(ScheduleError, match=r"what is copied into A_shared before 'ko' is not what its first iterations copy"):
        shaped(moved(s.program, "A_shared", True, "ko_pre"))


def test_stages_are_remembered() -> None:
    form = shaped(case("gemm_silu").schedule().program)
    assert form.stages == {"ko": 3}
    assert form.program.buffer["A_shared"].owner == "ko"
    assert [str(e) for e in form.program.buffer["A_shared"].shape] == ["64", "32"]


def test_a_loop_that_carries_a_value_is_not_split() -> None:
    """e[j] needs total of the iterations before: the loop over j stays one loop, and has then no form."""
    from_next = api.Kernel(api.workload("softmax").definition).schedule(reassociate="total").bind("i", "block.x")
    assert [x.var for _, x in tree.loops(shaped(from_next.program).program.body)].count("j") == 4  # m; e; total; Y
    s = api.workload("jacobi2d").schedule()
    assert shaped(s.program).program.body == s.program.body


REFUSED = {
    "permission": (
        lambda: replace(case("gemm"), reassociate=()).schedule(),
        "emit(\"triton\"): gemm_0: 'acc' is a float sum, and tl.dot promises no order inside a tile; allow it: "
        'schedule(reassociate="acc"). Nothing nearer keeps the written order',
    ),
    "sum permission": (
        lambda: replace(case("softmax"), reassociate=()).schedule(),
        "emit(\"triton\"): softmax_0: 'total' is a float sum, and tl.sum promises no order inside a tile; allow it: "
        'schedule(reassociate="total"). Nothing nearer keeps the written order',
    ),
    "no blocks": (
        lambda: api.workload("transpose").schedule(),
        'emit("triton"): transpose_0: no loop is bound to blocks; nearest, if its iterations are independent: '
        '.bind("S0.i", "block.x"); or tilec.tune(…)',
    ),
    "no blocks, the first loop runs in turn": (
        lambda: api.workload("jacobi2d").schedule(),
        'emit("triton"): jacobi2d_0: no loop is bound to blocks; nearest, if its iterations are independent: '
        '.bind("S0.i", "block.x"); or tilec.tune(…)',
    ),
    "no blocks, one output": (
        lambda: api.workload("dot").schedule(),
        'emit("triton"): dot_0: no loop is bound to blocks; no loop moves what it writes; nearest: split_reduction(…) makes one',
    ),
    "threads": (
        lambda: api.workload("transpose").schedule(N=64).bind("i", "block.x").bind("j", "thread.x"),
        'emit("triton"): transpose_0: loops are bound to thread.x, and Triton spreads a block over its warps itself; '
        "bind blocks only",
    ),
    "small tiles": (
        lambda: case("gemm").schedule({"BM": 64, "BN": 8, "BK": 32}),
        "emit(\"triton\"): gemm_0: a tile of 8 along 'ji'; tl.dot of bf16 needs at least 16: split by 16",
    ),
    "small depth": (
        lambda: case("rowquant_gemm_stored").schedule({"BM": 64, "BN": 64, "BK": 16}),
        "emit(\"triton\"): rowquant_gemm_1: a tile of 16 along 'ki'; tl.dot of f8e4m3 needs at least 32: split by 32",
    ),
    "triangle": (
        lambda: api.workload("syrk").schedule(reassociate="C").bind("i", "block.y").bind("j", "block.x"),
        "emit(\"triton\"): syrk_0: the bounds of the block loop 'j' use another block loop; bind the outer one only",
    ),
    "a row as long as its number": (
        lambda: api.workload("syrk").schedule(reassociate="C").bind("i", "block.x"),
        "emit(\"triton\"): syrk_0: 'j' has no extent that is known before the launch: i + 1; a tile is a rectangle, and nothing "
        "nearer is one; the backends c and numpy have a form for it",
    ),
}


def test_the_nearest_can_be_done() -> None:
    """Also where two nests have loops of one name."""
    s = api.workload("gemm_silu").schedule(reassociate="acc")
    for _ in range(2):
        with pytest.raises(ScheduleError) as e:
            emit(s.program)
        (name,) = re.findall(r'\.bind\("(.*)", "block.x"\)', str(e.value))
        s = s.bind(name, "block.x")
    emit(s.program)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises(ScheduleError) as e:
        emit(make().program)
    assert str(e.value) == text


def test_options() -> None:
    program = case("gemm").schedule().program
    for wrong in (3, 64, -4, True, 4.0, "4"):
        with pytest.raises(ScheduleError, match="a power of two from 1 to 32"):
            emit(program, Options(num_warps=wrong))  # pyright: ignore[reportArgumentType]
    for wrong in (0, True, 2.0, 10**9):
        with pytest.raises(ScheduleError, match="a whole number from 1 to 65,536"):
            emit(program, Options(group=wrong))  # pyright: ignore[reportArgumentType]
    for target in ("host", "tpu-v5e"):
        with pytest.raises(ScheduleError, match=f"{target} is no GPU with a compute capability"):
            options_for(target)
    assert options_for("a100-sxm").bytes_for_f8 and not options_for("rtx-4090").bytes_for_f8
    assert "first = pid" not in emit(program, Options(group=1)).text
    assert "num_warps=2," in emit(program, Options(num_warps=2)).text


def test_by_the_face() -> None:
    s = api.workload("transpose").schedule().split("i", 32).split("j", 32).reorder("i_o", "j_o", "i_i", "j_i")
    text = s.bind("i_o", "block.x").emit("triton", target="h100-sxm", num_warps=2)
    assert text.startswith('"""transpose(A: f32[M, N], B: f32[N, M])\n')
    assert '#     s = s.bind("i_o", "block.x")' in text
    assert "# cost of transpose on h100-sxm" in text
    with pytest.raises(ScheduleError, match=r"no option 'warps'\. Options: target, num_warps, group"):
        s.emit("triton", warps=2)


def test_bound_sizes_need_no_masks() -> None:
    """Where tiles divide the sizes, no element is masked."""
    text = emit(case("gemm").schedule(M=128, N=128, K=64).program).text
    assert "mask" not in text and "tl.range(0, 2, num_stages=3)" in text


@pytest.mark.parametrize("n", [0, 7, 19])
def test_the_candidates_of_the_script_are_those_of_today(n: int) -> None:
    """Of the files that benchmarks/gpu.py times, some are emitted again from their structure and knobs."""
    manifest = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))
    for group in manifest["candidates"].values():
        row = group[n]
        s = api.workload("gemm_silu").schedule(reassociate="acc", **row["sizes"])
        recipe = next(r for r in derive(s.program) if r.name == row["structure"])
        made = emit(recipe.apply(s, row["knobs"]).program, options_for("h200", row["warps"]))
        assert (FOLDER / f"{row['file']}.py").read_text(encoding="utf-8") == HEAD + made.text


@pytest.mark.parametrize(
    ("name", "warps", "splits"), [("gemm_silu", 4, 1), ("gemm_silu", 8, 0), ("gemm", 4, 0), ("swiglu", 2, 6)]
)
def test_slices(name: str, warps: int, splits: int) -> None:
    """More than 16 outputs per thread of an elementary function behind a product come in slices, each sum halved by itself."""
    text = emit(case(name).schedule().program, Options(num_warps=warps)).text
    assert text.count("tl.split(") == splits
    slices = 1 + splits // (2 if name == "swiglu" else 1)
    assert text.count("    if 64 * jo + ") == slices - 1


def test_a_tile_that_a_variable_holds_is_not_loaded_again() -> None:
    """X, which softmax only reads, twice without a copy; e, which it writes, after each barrier."""
    body = emit(case("softmax_direct").schedule().program).text.split("def softmax_0(")[1]
    assert body.count("tl.load(X + ") == 1 and body.count("tl.load(e + ") == 2
