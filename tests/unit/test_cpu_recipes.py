"""The schedules that tilec picks for CPUs: values at odd sizes, structure from the program, sizes from the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tilec
from tests.unit.scheduled import same
from tilec.errors import ScheduleError, TargetError
from tilec.ir.program import Program
from tilec.ir.tree import loops
from tilec.lang import bf16, f32, from_source, i8, i32, kernel, silu, sizes
from tilec.search.cpu import group_nests, pick
from tilec.search.cpu_blocks import blocked_rows
from tilec.search.cpu_core import Core
from tilec.search.cpu_operands import Blocks
from tilec.search.nests import nests
from tilec.targets.load import parse
from tilec.workloads import names

B, M, N, K, L = sizes("B M N K L")
DATA = Path(__file__).parent.parent / "data"
ZEN3, ZEN4 = (parse((DATA / f"host_{name}.toml").read_text(), f"host_{name}.toml") for name in ("zen3", "zen4"))

NAMES = names()
DOTS: dict[str, Any] = {"contract": True, "hardware_rounding": True}
FLOATS = {
    "dot": "acc",
    "rmsnorm": "ss",
    "softmax": "total",
    "attention": "total",
    "layernorm": None,
}


@kernel
def gemm_silu_f32(A: f32[M, K], W: f32[K, N], Y: f32[M, N]):
    C: f32[M, N]
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc
    for i in range(M):
        for j in range(N):
            Y[i, j] = silu(C[i, j])


@kernel
def two_products(A: f32[M, K], B: f32[K, N], C: f32[N, L], Y: f32[M, L]):
    T: f32[M, N]
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * B[k, j]
            T[i, j] = acc
    for i in range(M):
        for j in range(L):
            last: f32 = 0
            for k in range(N):
                last += T[i, k] * C[k, j]
            Y[i, j] = last


@kernel
def with_numbers(A: f32[M, K], W: f32[K, N], b: f32[N], Y: f32[M, N], Z: f32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            x: f32 = acc + b[j]
            Y[i, j] = x * silu(x)
    for i in range(M):
        for j in range(N):
            y: f32 = A[i, 0] * b[j]
            z: f32 = y + b[j]
            Z[i, j] = z * silu(y)


def numbers(program, first: int) -> dict[str, int]:
    if len(program.sizes) > 4:  # a convolution: the product of all its sizes is run
        return {n: min(first, 2 + 3 * k % 7) for k, n in enumerate(program.sizes)}
    return {n: first + 4 * k for k, n in enumerate(program.sizes)}


@pytest.mark.parametrize("name", NAMES)
def test_without_permissions_every_bit_is_kept(name):
    program = tilec.workload(name).program
    for first, machine in ((1, ZEN3), (19, ZEN3), (35, ZEN4)):
        chosen = numbers(program, first)
        picked = pick(program, machine, sizes=chosen)
        assert picked.schedule.verdict.status == "legal" and not picked.schedule.verdict.permissions
        scalars = {n: 0.5 for n, _ in program.scalars}
        same(picked.schedule.program, scalars or None, **chosen)


def text(program, machine=ZEN3, **chosen) -> str:
    return str(pick(program, machine, sizes=chosen).schedule)


def test_a_contraction_with_its_epilogue_is_one_tile():
    shown = text(gemm_silu_f32.program, M=1000, N=1000, K=2000)
    lines = [line.strip() for line in shown.splitlines()]
    assert "acc_register: f32[6, 16] in register" in lines and "C: f32[1000, 1000] in global" not in shown
    assert any(line.startswith("W_packed: f32[672, 64]") and "panels(1, 16)" in line for line in lines)
    assert "for ko in 0..3:" in lines and sum("# parallel" in line for line in lines) == 1
    assert any("= silu(acc[" in line for line in lines)
    short = text(gemm_silu_f32.program, M=1000, N=1000, K=1000)
    assert "acc: f32[6, 16] in register" in short and "for ko" not in short


def test_the_first_tile_of_rows_packs_while_it_multiplies():
    chosen = {"M": 20, "N": 150, "K": 30}
    picked = pick(gemm_silu_f32.program, ZEN3, {"Y": Blocks(6, 16, 64)}, sizes=chosen)
    lines = [line.strip() for line in str(picked.schedule).splitlines()]
    at = lines.index("if io == 0:")
    assert lines[at + 1] == "prefetch W[k + 8, 64*jc + 16*jr]  # to L1"
    assert lines[at - 3 : at] == [
        "for k in 0..30:",
        "for A_ahead0 in 0..6:  # unrolled",
        "prefetch A[6*io + A_ahead0 + 6, k]  # to L1",
    ]
    same(picked.schedule.program, **chosen)


def test_pieces_of_rows_run_where_there_are_too_few_of_columns():
    chosen = {"M": 200, "N": 40, "K": 30}
    picked = pick(gemm_silu_f32.program, ZEN3, sizes=chosen)
    lines = [line.strip() for line in str(picked.schedule).splitlines()]
    assert lines.index("for team in 0..1:  # team") < lines.index("for W_packed.0 in 0..30:  # parallel")
    assert any(line.startswith("for ic in 0..") and line.endswith("# parallel") for line in lines)
    same(picked.schedule.program, **chosen)


def test_blocks_of_rows_go_through_both_contractions_and_the_steps_between():
    chosen = {"M": 100, "N": 70, "D": 40}
    attention = tilec.workload("attention").program
    picked = pick(attention, ZEN4, sizes=chosen, reassociate="total")
    assert picked.groups == ("S+P+O",) and picked.notes == () and picked.schedule.verdict.permissions == ('reassociate="total"',)
    lines = str(picked.schedule).splitlines()
    block = next(n for n, line in enumerate(lines) if line.startswith("for ic in 0..") and line.endswith("# parallel"))
    inside = [line.strip() for line in lines[block + 1 :]]
    assert any(line.startswith("S: f32[") for line in inside) and any(line.startswith("P: bf16[") for line in inside)
    assert sum("panels(" in line for line in lines[:block]) == 2  # K and V, once for all blocks
    same(picked.schedule.program, {"scale": 0.5}, **chosen)


@pytest.mark.parametrize(
    ("name", "count"), [("attention", 3), ("rowquant_gemm", 0), ("gemm_silu", 0), ("softmax", 0), ("swiglu", 0)]
)
def test_only_contractions_around_rows_are_blocked(name, count):
    assert blocked_rows(nests(tilec.workload(name).program)[1]) == count


def test_wider_registers_make_wider_tiles():
    core = Core.of(ZEN4)
    assert (core.registers, core.vector) == (32, 64) and core.micro_tile("f32") == (6, 64)
    assert Core.of(ZEN3).micro_tile("f32") == (6, 16) and Core.of(ZEN3).micro_tile("f64") == (6, 8)
    assert "acc: f32[6, 64] in register" in text(gemm_silu_f32.program, ZEN4, M=1000, N=1000, K=300)


@pytest.mark.parametrize("rows", range(1, 15))
@pytest.mark.parametrize("machine", [ZEN3, ZEN4], ids=["zen3", "zen4"])
def test_the_micro_tile_fits_the_registers(machine, rows):
    core = Core.of(machine)
    mr, nr = core.micro_tile("f32", rows)
    vectors = nr // core.lanes("f32")
    assert 1 <= mr <= max(rows, 1) and mr * vectors + vectors + 1 <= core.registers


def test_pieces_keep_the_cores_equally_busy():
    core = Core(cores=2, vector=32, registers=16, l1=32 << 10, l2=512 << 10, l3=32 << 20)
    assert core.chunks(512, 16, 192) == 128  # four pieces, not three
    assert core.chunks(12288, 16, 192) == 192
    assert core.chunks(16, 16, 192) == 16
    for extent in (1, 17, 100, 517, 1000, 4096):
        length = core.chunks(extent, 16, 192)
        assert length % 16 == 0 and length <= 192 and -(-extent // length) * length >= extent


def test_few_rows_read_the_right_operand_as_it_lies():
    shown = text(gemm_silu_f32.program, M=1, N=4096, K=512)
    assert "W_packed" not in shown and "A_packed" not in shown and "for ki in 0..8" in shown
    assert "prefetch W[8*ko + ki, 2048*jc + 8*jt + 256]  # to L2" in shown
    some = text(gemm_silu_f32.program, M=10, N=4096, K=512)
    assert "W_packed" not in some and "A_packed: f32[10, 512] in scratch, panels(0, 10)" in some
    assert "acc_register: f32[10, 8] in register" in some and "for ki in 0..128" in some
    assert "prefetch W[128*ko + ki, 2048*jc + 8*jt + 16]  # to L2" in some
    more = text(gemm_silu_f32.program, M=16, N=4096, K=512)
    assert "W_packed" in more and "acc: f32[4, 16] in register" in more  # four whole tiles, not three


@pytest.mark.parametrize("ahead", [(), ("W",)])
def test_few_rows_keep_every_bit(ahead):
    for rows, machine in ((2, ZEN3), (7, ZEN3), (13, ZEN3), (29, ZEN4)):
        chosen = {"M": rows, "N": 50, "K": 37}
        picked = pick(gemm_silu_f32.program, machine, ahead=ahead, sizes=chosen)
        assert "prefetch W" in str(picked.schedule)
        same(picked.schedule.program, **chosen)
    for name in ("gemm", "swiglu", "gemm_silu"):
        program = tilec.workload(name).program
        same(pick(program, ZEN4, sizes={"M": 12, "N": 40, "K": 33}).schedule.program, M=12, N=40, K=33)


def test_weights_may_be_packed_ahead_of_the_call():
    for rows in (1, 20):
        chosen = {"M": rows, "N": 50, "K": 30}
        picked = pick(gemm_silu_f32.program, ZEN3, ahead=("W",), sizes=chosen)
        assert "packed ahead of the call where the caller has it" in str(picked.schedule)
        same(picked.schedule.program, **chosen)
    with pytest.raises(ScheduleError, match=r"'A' is not packed ahead of the call. Possible: W"):
        pick(gemm_silu_f32.program, ZEN3, ahead=("A",), sizes={"M": 20, "N": 50, "K": 30})


def test_a_long_sum_is_cut_and_stays_in_order():
    """The sum of a tile is loaded and stored for each block: no permission."""
    picked = pick(gemm_silu_f32.program, ZEN3, {"Y": Blocks(6, 16, 32, 5)}, sizes={"M": 13, "N": 37, "K": 17})
    assert "for ko in 0..4" in str(picked.schedule) and not picked.schedule.check().permissions
    same(picked.schedule.program, M=13, N=37, K=17)
    shown = text(gemm_silu_f32.program, M=64, N=64, K=40000)
    assert "for ko" in shown


def test_storage_types_are_converted_once():
    shown = text(tilec.workload("gemm_silu").program, M=64, N=64, K=64)
    assert "A_wide: f32[64, 64] in scratch" in shown and "W_packed: f32[64, " in shown


def test_two_sums_of_one_consumer_share_the_tile():
    program = tilec.workload("swiglu").program
    assert [[n.name for n in g] for g in group_nests(program, nests(program)[1])] == [["G", "U", "Y"]]
    shown = text(program, M=64, N=64, K=64)
    assert "g: f32[6, 16] in register" in shown and "u: f32[6, 16] in register" in shown


def test_row_sums_need_the_permission_and_maxima_do_not():
    program = tilec.workload("softmax").program
    strict = str(pick(program, ZEN3, sizes={"M": 8, "N": 512}).schedule)
    assert "m_part" in strict and "total_part" not in strict
    free = pick(program, ZEN3, sizes={"M": 8, "N": 512}, reassociate="total")
    assert "total_part: f32[32] in register" in str(free.schedule)
    assert free.schedule.check().permissions == ('reassociate="total"',)


def test_chains_are_inlined_and_large_results_stream():
    program = tilec.workload("act_chain").program
    shown = text(program, M=4096, N=12288)
    assert "T:" not in shown and "Z:" not in shown and "streaming" in shown
    assert "streaming" not in text(program, M=64, N=512)


def test_results_stream_where_the_call_moves_more_than_the_last_cache_holds():
    chain, norm = tilec.workload("act_chain").program, tilec.workload("softmax").program
    assert "streaming" in text(chain, M=1024, N=12288)  # 12 MiB of result behind 48 MiB of input, 32 MiB of cache
    assert "streaming" in text(norm, M=4096, N=2048) and "streaming" not in text(norm, M=2048, N=2048)


def test_streamed_chains_take_eight_vectors_at_once_where_their_steps_fit_the_registers():
    """Twice a machine's usual lanes, where the rows are whole multiples of that."""

    def lanes(machine, m, n):
        program = pick(tilec.workload("act_chain").program, machine, sizes={"M": m, "N": n}).schedule.program
        return [loop.upper[0].const for _, loop in loops(program.body) if loop.kind == "vector"]

    assert ZEN4.vector_registers == 32 and lanes(ZEN4, 1024, 12288) == [128]
    assert lanes(ZEN4, 1024, 12288 + 64) == [64] and lanes(ZEN4, 8, 1024) == [64]  # a rest; a result that stays in the caches
    assert ZEN3.vector_registers == 16 and lanes(ZEN3, 1024, 12288) == [32]


def test_a_stencil_computes_its_producer_in_strips():
    picked = pick(tilec.workload("blur").program, ZEN3, sizes={"M": 100, "N": 100})
    assert "H: f32[34, 100] in scratch" in str(picked.schedule) and picked.schedule.program.recomputed


def test_every_nest_of_the_library_runs_on_the_cores():
    """Under a loop of time steps too."""
    for name in NAMES:
        program = tilec.workload(name).program
        wanted = FLOATS.get(name) if FLOATS.get(name) in program.buffer else None
        picked = pick(program, ZEN3, sizes=dict.fromkeys(program.sizes, 64), reassociate=wanted)
        kinds = {loop.kind for _, loop in loops(picked.schedule.program.body)}
        assert "parallel" in kinds, (name, picked.notes)


def test_the_face():
    s = tilec.pick(tilec.workload("gemm"), ZEN3, M=64, N=64, K=64)
    assert isinstance(s, tilec.Schedule) and s.kernel is not None and len(s.trace) > 5
    replayed = s.trace.apply(tilec.workload("gemm").schedule(M=64, N=64, K=64))
    assert str(replayed) == str(s)
    with pytest.raises(TargetError, match="h200 is no CPU"):
        tilec.pick(tilec.workload("gemm"), "h200", M=64, N=64, K=64)
    with pytest.raises(ScheduleError, match="the first argument is a kernel"):
        tilec.compile("gemm")  # type: ignore[arg-type]


def test_the_next_row_is_asked_for_while_this_one_is_computed():
    chosen = {"M": 5, "N": 130}
    picked = pick(tilec.workload("softmax").program, ZEN4, sizes=chosen, reassociate="total")
    lines = [line.strip() for line in str(picked.schedule).splitlines()]
    at = next(n for n, line in enumerate(lines) if line.startswith("prefetch X[2*io + ii + 1, "))
    assert any("exp(X[2*io + ii, " in line for line in lines[at : at + 6])
    same(picked.schedule.program, None, **chosen)


@pytest.mark.parametrize(("rows", "columns", "block"), [(4, 64, 4), (7, 32, 4), (12, 32, 16), (16, 16, 64)])
def test_few_rows_of_bf16_weave_pairs_of_rows_as_they_lie(rows, columns, block):
    chosen = {"M": rows, "N": 4096, "K": 512}
    permissions = {"contract": True, "hardware_rounding": True}
    shown = str(pick(tilec.workload("gemm_silu").program, ZEN4, sizes=chosen, **permissions).schedule)
    assert "W_packed" not in shown and f"acc_register: f32[{rows}, {columns}] in register" in shown
    assert f"for ki in 0..{block}:" in shown and "vdpbf16ps" in shown


def test_a_product_of_a_product_has_the_same_structure():
    found = pick(two_products.program, ZEN4, contract=True, sizes={"M": 100, "N": 70, "K": 90, "L": 130})
    assert found.notes == ()
    assert "B_packed" in str(found.schedule) and "C_packed" in str(found.schedule)


@pytest.mark.parametrize(("columns", "level"), [(1000, "L1"), (1024, "L2")])
def test_rows_that_share_sets_of_the_cache_are_asked_for_in_the_next_one(columns, level):
    s = pick(gemm_silu_f32.program, ZEN4, contract=True, sizes={"M": 100, "N": columns, "K": 90}).schedule
    asked = [line for line in str(s).splitlines() if "prefetch W[" in line]
    assert len(asked) == 1 and asked[0].endswith(f"to {level}")


def test_one_core_that_computes_functions_reads_the_lines_it_writes():
    chosen = {"M": 2048, "N": 4096}  # 32 MiB in all, the last cache of the machine
    softmax = tilec.workload("softmax")
    for threads, streams in ((None, True), (2, True), (1, False)):
        text_ = str(tilec.pick(softmax, ZEN4, reassociate="total", threads=threads, **chosen))
        assert ("streaming" in text_) == streams
    with pytest.raises(ScheduleError, match="threads"):
        tilec.pick(softmax, ZEN4, threads=0, **chosen)


OPERANDS = {
    "batched": ("A[b, i, k]", "B, M, K", "W[b, k, j]", "B, K, N"),
    "heads": ("A[i, b, k]", "M, B, K", "W[k, b, j]", "K, B, N"),
    "left across": ("A[b, k, i]", "B, K, M", "W[b, k, j]", "B, K, N"),
    "both across": ("A[k, i]", "K, M", "W[j, k]", "N, K"),
    "parts": ("A[i + 1, k]", "M + 1, K", "W[k + 2, j + 1]", "K + 2, N + 1"),
}


def product_of(element: str, a: str, a_shape: str, w: str, w_shape: str) -> Program:
    """Y[i, j] = sum of a * w over k, for each b where there is one."""
    batch, total = "b" in a, "i32" if element == "i8" else "f32"
    lines = ["for b in range(B):"] * batch + ["for i in range(M):", "for j in range(N):"]
    depth = len(lines) + 1
    text = f"def product(A: {element}[{a_shape}], W: {element}[{w_shape}], Y: {total}[{'B, ' * batch}M, N]):\n"
    for n, line in enumerate(lines):
        text += f"{'    ' * (n + 1)}{line}\n"
    for line in (f"acc: {total} = 0", "for k in range(K):", f"    acc += {a} * {w}", f"Y[{'b, ' * batch}i, j] = acc"):
        text += f"{'    ' * depth}{line}\n"
    names = dict(zip("BMNK", sizes("B M N K"), strict=True))
    return from_source(text, {**names, "bf16": bf16, "i8": i8, "i32": i32, "f32": f32}).program


@pytest.mark.parametrize("name", list(OPERANDS))
@pytest.mark.parametrize("element", ["bf16", "i8"])
@pytest.mark.parametrize("chosen", [{"B": 3, "M": 33, "N": 70, "K": 21}, {"B": 1, "M": 14, "N": 48, "K": 33}])
def test_dot_products_take_operands_however_they_lie(name: str, element: str, chosen: dict[str, int]):
    program = product_of(element, *OPERANDS[name])
    picked = pick(program, ZEN4, sizes={n: chosen[n] for n in program.sizes}, **DOTS)
    assert picked.notes == () and "# vector, v" in str(picked.schedule)
    same(picked.schedule.program)


def test_numbers_of_one_point_leave_the_vectors():
    chosen = {"M": 9, "N": 200, "K": 7}
    found = pick(with_numbers.program, ZEN4, contract=True, sizes=chosen)
    lines = [line.strip() for line in str(found.schedule).splitlines()]
    for name in ("x", "z"):
        at = lines.index(f"{name}: f32 in register")
        assert any("# vector" in line for line in lines[at - 2 : at]), lines[at - 3 : at + 3]
    same(found.schedule.program, None)


@kernel
def outer_gram(A: bf16[K, M], Y: f32[M, M]):
    for i in range(M):
        for j in range(M):
            acc: f32 = 0
            for k in range(K):
                acc += A[k, i] * A[k, j]
            Y[i, j] = acc


@kernel
def gram(A: i8[B, M, K], Y: i32[B, M, M]):
    for b in range(B):
        for i in range(M):
            for j in range(M):
                acc: i32 = 0
                for k in range(K):
                    acc += A[b, i, k] * A[b, j, k]
                Y[b, i, j] = acc


@pytest.mark.parametrize("machine", [ZEN3, ZEN4], ids=["zen3", "zen4"])
@pytest.mark.parametrize("made", [outer_gram, gram, tilec.workload("syrk")], ids=["outer", "inner", "syrk"])
@pytest.mark.parametrize("permissions", [{}, DOTS], ids=["strict", "dots"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_matrix_by_its_own_transpose_is_packed_once(made: Any, machine: Any, permissions: dict[str, Any], batch: int) -> None:
    chosen = {"M": 45, "N": 45, "K": 21, "B": batch}
    picked = pick(made.program, machine, sizes={n: chosen[n] for n in made.program.sizes}, **permissions)
    text_ = str(picked.schedule)
    assert picked.notes == () and "A_packed" in text_ and "prefetch A" not in text_
    assert ("# vector, v" in text_) == (made is gram or (made is outer_gram and machine is ZEN4 and permissions == DOTS))
    same(picked.schedule.program)
