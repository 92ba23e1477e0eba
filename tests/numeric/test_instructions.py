"""Dot-product instructions: what is declared of each against what the machine does, and products of matrices that use them."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.numeric.compiled import assert_same, function, needs_compiler
from tests.unit.test_cpu_recipes import OPERANDS, ZEN4, gram, outer_gram, product_of
from tilec import workload
from tilec.codegen import c_instructions, c_memory, c_source
from tilec.codegen.c_helpers import Helpers
from tilec.ir import interp
from tilec.ir.instructions import INSTRUCTIONS, Instruction
from tilec.lang import bf16, f32, i8, i32, kernel, sizes
from tilec.runtime import c_build, c_callable
from tilec.runtime.compiler import find
from tilec.runtime.process import run_killable
from tilec.schedule.schedule import start
from tilec.search.cpu import pick
from tilec.search.cpu_operands import Blocks
from tilec.targets.detect import detect

pytestmark = needs_compiler
M, N, K = sizes("M N K")
PLAIN = ("-O1", "-mno-avx512bf16", "-mno-avx512vnni")  # the same text without the instructions
DOTS = [i for i in INSTRUCTIONS.values() if i.depth > 1]
TRIALS = 400


@kernel
def product_i8(A: i8[M, K], W: i8[K, N], Y: i32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: i32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            Y[i, j] = acc


@kernel
def rowquant(A: f32[M, K], W: i8[K, N], Y: f32[M, N]):
    S: f32[M]
    Q: i8[M, K]
    for i in range(M):
        m: f32 = 0
        for k in range(K):
            m = max(m, abs(A[i, k]))
        S[i] = m / 127
    for i in range(M):
        for k in range(K):
            Q[i, k] = A[i, k] / S[i]
    for i in range(M):
        for j in range(N):
            acc: i32 = 0
            for k in range(K):
                acc += Q[i, k] * W[k, j]
            Y[i, j] = f32(acc) * S[i]


# what is declared -----------------------------------------------------------------------------------------------------


def operands(wanted: Instruction, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Accumulators [trials], and groups a, b [trials, depth] of bits: large, small and denormal."""
    rng = np.random.default_rng(seed)
    shape = (TRIALS, wanted.depth)
    if wanted.operand == "i8":
        a, b = (rng.integers(-128, 128, shape).astype(np.int8) for _ in "ab")
        return rng.integers(-(2**31), 2**31, TRIALS).astype(np.int32), a, b
    near = rng.standard_normal((2, *shape)) * 2.0 ** rng.integers(-12, 12, (2, *shape))
    near[:, TRIALS // 2 :] *= 2.0 ** rng.choice((-130, -62, 0), (2, TRIALS - TRIALS // 2, 1))
    a, b = near.astype(ml_dtypes.bfloat16)
    acc = (rng.standard_normal(TRIALS) * 2.0 ** rng.choice((-130.0, 0.0, 10.0), TRIALS)).astype(np.float32)
    return acc, a, b


def declared(wanted: Instruction, acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What the declaration says, in exact arithmetic."""
    if wanted.operand == "i8":
        total = acc.astype(np.int64)
        for d in wanted.order:
            total = total + a[:, d].astype(np.int64) * b[:, d].astype(np.int64)
        return total.astype(np.int32)

    def flushed(x: float) -> float:
        tiny = wanted.flushes and 0 < abs(x) < 2.0**-126
        return float(np.copysign(0.0, x)) if tiny else x

    def rounded(x: Fraction) -> float:
        return flushed(float(_nearest_f32(x)))

    out = np.empty(len(acc), np.float32)
    for n in range(len(acc)):
        value = flushed(float(acc[n]))
        for d in wanted.order:
            term = Fraction(flushed(float(a[n, d]))) * Fraction(flushed(float(b[n, d])))
            if not wanted.contracted:
                term = Fraction(rounded(term))
            value = rounded(Fraction(value) + term)
        out[n] = value
    return out


def _nearest_f32(x: Fraction) -> np.float32:
    """Nearest even, denormals included."""
    if x == 0:
        return np.float32(0)
    exponent = max(-126, (abs(x.numerator).bit_length() - x.denominator.bit_length()))
    while exponent > -126 and abs(x) < Fraction(2) ** exponent:
        exponent -= 1
    while abs(x) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    step = Fraction(2) ** (exponent - 23)
    return np.float32(float(round(x / step) * step))


def machine(
    wanted: Instruction, acc: np.ndarray, a: np.ndarray, b: np.ndarray, folder: Path, flags: tuple[str, ...]
) -> np.ndarray:
    """What the helper of the generated C computes, lane by lane."""
    lanes = wanted.lanes
    h = Helpers(wanted.bits // 8)
    name = c_instructions.product(h, wanted, lanes)
    result, group = "f32" if wanted.result == "f32" else "i32", h.type("i32", lanes)
    load = c_memory.load(h, result, lanes), c_memory.load(h, "i32", lanes), c_memory.store(h, result, lanes)
    spread = c_instructions.spread(h, wanted, lanes, False)
    one = f"{spread}(a + {wanted.depth} * (n + l))"
    bias = f" - {name}((({group}){{0}}), ({group}){{0}} + (i32)0x80808080, w)" if wanted.name == c_instructions.BIASED else ""
    body = (
        f"for (i64 n = 0; n < {TRIALS // lanes * lanes}; n += {lanes}) {{ {group} v; "
        f"for (int l = 0; l < {lanes}; ++l) v[l] = {one}[l];\n"
        f"const {group} w = {load[1]}(b + n); {load[2]}(y + n, {name}({load[0]}(acc + n), v, w){bias}); }}"
    )
    kind = "i8" if wanted.operand == "i8" else "u16"
    text = f"{h.text()}\nvoid f(const {result} *acc, const {kind} *a, const i32 *b, {result} *y) {{ {body} }}\n"
    (folder / "f.c").write_text(text)
    done = run_killable(
        [find().path, *c_build.FLAGS, *flags, "-shared", "-fPIC", folder / "f.c", "-o", folder / "f.so", "-lm"], timeout=60
    )
    assert done.reason is None, done.err[:2000]
    if wanted.depth == 2 and wanted.operand == "i8":
        b = b.astype(np.int16)
    y, given = np.zeros_like(acc), [np.ascontiguousarray(x) for x in (acc, a, b)]
    ctypes.CDLL(str(folder / "f.so")).f(*(ctypes.c_void_p(x.ctypes.data) for x in (*given, y)))
    return y


def agrees(wanted: Instruction, got: np.ndarray, acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> bool:
    n = TRIALS // wanted.lanes * wanted.lanes
    return bool((declared(wanted, acc, a, b)[:n] == got[:n]).all())


@pytest.mark.parametrize("wanted", DOTS, ids=lambda i: i.name)
def test_declarations_say_what_the_machine_does(wanted: Instruction, tmp_path: Path) -> None:
    here = wanted.needs in detect().features
    acc, a, b = operands(wanted, 3)
    if wanted.flushes and not here:  # the plain form keeps denormals
        wanted = replace(wanted, flushes=False)
    got = machine(wanted, acc, a, b, tmp_path, ("-O1",))
    assert agrees(wanted, got, acc, a, b)
    wrong = [replace(wanted, result="i32", depth=wanted.depth, order=wanted.order[:-1])]
    if wanted.result == "f32":
        wrong = [replace(wanted, order=wanted.order[::-1]), replace(wanted, flushes=not wanted.flushes), wrong[0]]
    for mutated in wrong:  # a declaration that is wrong is found out
        assert not agrees(mutated, got, acc, a, b), mutated


@pytest.mark.parametrize("wanted", DOTS, ids=lambda i: i.name)
def test_the_plain_form_has_the_same_values(wanted: Instruction, tmp_path: Path) -> None:
    acc, a, b = operands(wanted, 4)
    got = machine(wanted, acc, a, b, tmp_path, (*PLAIN, "-mno-avx2", "-mno-avx512bw"))
    assert agrees(replace(wanted, flushes=False), got, acc, a, b)


# products of matrices -------------------------------------------------------------------------------------------------

FAST = {"contract": True, "hardware_rounding": True}
SHAPES = [(1, 1, 1), (13, 70, 33), (25, 33, 66), (40, 129, 7), (61, 40, 70), (12, 32, 64), (40, 17, 9), (70, 16, 130)]
KERNELS = {
    "i8": (product_i8, {}),
    "rowquant": (rowquant, {}),
    "gemm_silu": (workload("gemm_silu"), FAST),
    "swiglu": (workload("swiglu"), FAST),
}


@pytest.mark.parametrize("flags", [("-O1",), PLAIN], ids=["here", "plain"])
@pytest.mark.parametrize("name", list(KERNELS))
def test_picked_products_have_the_bits_of_the_loops(name: str, flags: tuple[str, ...], tmp_path: Path) -> None:
    k, permissions = KERNELS[name]
    for seed, (m, n, kk) in enumerate(SHAPES[:: 1 if flags == ("-O1",) else 2]):
        s = pick(k.program, ZEN4, sizes={"M": m, "N": n, "K": kk}, **permissions).schedule
        few = m < 2
        short = kk < (4 if permissions == FAST else 8)  # less than two groups
        assert ("# vector, v" in str(s)) != (short or few), str(s)
        assert_same(s.program, function(s.program, tmp_path, flags, vector_bytes=64), {}, seed, reference=s.program.source)


@pytest.mark.parametrize("name", list(OPERANDS))
@pytest.mark.parametrize("element", ["bf16", "i8"])
def test_operands_that_lie_otherwise_have_the_bits_of_the_loops(name: str, element: str, tmp_path: Path) -> None:
    program = product_of(element, *OPERANDS[name])
    for seed, (m, n, k) in enumerate([(33, 70, 21), (14, 48, 34), (1, 17, 9)]):
        s = pick(program, ZEN4, sizes={"M": m, "N": n, "K": k, **{b: 3 for b in program.sizes if b == "B"}}, **FAST).schedule
        assert_same(s.program, function(s.program, tmp_path, vector_bytes=64), {}, seed, reference=s.program.source)


@pytest.mark.parametrize("made", [gram, outer_gram], ids=["i8", "bf16"])
@pytest.mark.parametrize(("m", "k"), [(37, 48), (70, 33), (45, 21)])
def test_a_matrix_by_its_own_transpose_has_the_bits_of_the_loops(made: Any, m: int, k: int, tmp_path: Path) -> None:
    s = pick(made.program, ZEN4, sizes={"M": m, "K": k, **{b: 1 for b in made.program.sizes if b == "B"}}, **FAST).schedule
    assert "# vector, v" in str(s)
    assert_same(s.program, function(s.program, tmp_path, vector_bytes=64), {}, reference=s.program.source)


@pytest.mark.parametrize(("m", "n", "k"), [(29, 50, 33), (5, 70, 24), (1, 40, 9)])
@pytest.mark.parametrize("permissions", [FAST, {"contract": True}], ids=["dots", "widened"])
def test_storage_types_packed_ahead_of_the_call(permissions: dict[str, Any], m: int, n: int, k: int) -> None:
    # A widened copy has another type than the weights, one for dot products a peeled rest where k is odd.
    chosen = {"M": m, "N": n, "K": k}
    s = pick(workload("gemm_silu").program, ZEN4, ahead=("W",), sizes=chosen, **permissions).schedule
    assert "packed ahead of the call" in str(s) and ("# vector, v" in str(s)) == (permissions == FAST and m > 1)
    f = c_callable.build(s.program, flags=("-O1", "-Werror"))
    rng = np.random.default_rng(k)
    a, w = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((m, k), (k, n)))
    want = interp.run(s.program.source, {"A": a, "W": w}, chosen)["Y"].tobytes()
    assert f(a, w).tobytes() == want and f(a, f.pack(W=w)).tobytes() == want


def test_bf16_is_rounded_by_its_instruction_where_that_is_permitted(tmp_path: Path) -> None:
    program = workload("gemm_silu").program
    chosen = {"M": 7, "N": 80, "K": 6}
    rng = np.random.default_rng(1)
    a, w = (rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((7, 6), (6, 80)))
    a[2] *= ml_dtypes.bfloat16(2.0**-60)  # results below the normal range
    w[:, 3:9] *= ml_dtypes.bfloat16(2.0**-70)
    want = interp.run(program, {"A": a, "W": w}, chosen)["Y"].astype(np.float32)
    for permissions in (FAST, {"contract": True}):
        s = pick(program, ZEN4, sizes=chosen, **permissions).schedule
        f = c_callable.build(s.program, flags=("-O1",))
        got, tiny = f(a, w).astype(np.float32), np.abs(want) < 2.0**-126
        assert tiny.any() and (got[~tiny] == want[~tiny]).all()
        assert ("cvtneps_pbh" in c_source.emit(s.program, 64)) == (permissions == FAST)
        here = permissions == FAST and "avx512_bf16" in detect().features
        assert (got[tiny] == (0 if here else want[tiny])).all()


@pytest.mark.parametrize(("name", "n", "k"), [("i8", 150, 72), ("gemm_silu", 70, 40)])
def test_blocks_of_the_sum_have_the_bits_of_the_loops(name: str, n: int, k: int, tmp_path: Path) -> None:
    program, permissions = KERNELS[name][0].program, KERNELS[name][1]
    s = pick(program, ZEN4, {"Y": Blocks(12, 32, 64, 16, MC=24)}, sizes={"M": 61, "N": n, "K": k}, **permissions).schedule
    assert "# vector, v" in str(s) and "for ko in" in str(s)
    compiled = function(s.program, tmp_path, ("-O1",), vector_bytes=64)
    assert_same(s.program, compiled, {}, 3, reference=s.program.source)


def test_sums_of_the_right_operand_are_made_once_for_all_rows() -> None:
    blocks = {"Y": Blocks(12, 32, 64, 32, MC=24)}
    s = pick(product_i8.program, ZEN4, blocks, sizes={"M": 48, "N": 128, "K": 64}).schedule
    lines = c_source.emit(s.program, 64).split("\n")
    sums = [n for n, line in enumerate(lines) if "vpdpbusd_i32x16(bias_" in line]
    products = [n for n, line in enumerate(lines) if "_0 = vpdpbusd_i32x16(acc_register" in line]
    between = [line for line in lines[sums[-1] : products[0]] if "for (i64 io" in line]
    assert len(sums) == 2 and sums[-1] < products[0] and len(between) >= 1, (
        "once for both vectors, outside the loop over the rows"
    )


def test_sums_of_an_argument_stay_below_what_cuts_its_lanes_off() -> None:
    """The second vector of the last 32 columns would lie behind the end of W: nothing of it is read ahead of its condition."""
    s = start(product_i8.program, {"M": 5, "N": 48, "K": 4})
    s = s.split("j", 32, into=("jo", "jl")).place("acc", "register", at="jo").distribute("jl")
    s = s.split("k", 4, into=("ko", "ki")).reorder("S1.ko", "S1.jl", "S1.ki")
    s = s.vectorize("S1.jl").instruction("S1.jl", "vpdpbusd")
    lines = c_source.emit(s.program, 64).split("\n")
    condition = next(n for n, line in enumerate(lines) if "if (32*jo <= 16)" in line)
    sums = [n for n, line in enumerate(lines) if "bias_" in line]
    assert min(sums) > condition and all("jo" in line for line in lines if "vpdpbusd_i32x16(bias_" in line)


def test_steps_of_a_tile_of_dot_products_are_reordered() -> None:
    s = pick(workload("gemm_silu").program, ZEN4, sizes={"M": 40, "N": 64, "K": 32}, **FAST).schedule
    wide, narrow = (c_build.recipe(s.program, vector_bytes=width) for width in (64, 32))
    assert ("-fschedule-insns" in wide.flags) == (wide.compiler.kind == "gcc") and "-fschedule-insns" not in narrow.flags


@kernel
def product_bf16(A: bf16[M, K], W: bf16[K, N], Y: f32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            Y[i, j] = acc


@pytest.mark.parametrize("flags", [("-O1",), PLAIN], ids=["here", "plain"])
@pytest.mark.parametrize(("name", "made", "permissions"), [("vpdpbusd", product_i8, {}), ("vdpbf16ps", product_bf16, FAST)])
def test_rows_as_they_lie_are_woven_into_groups(
    name: str, made: Any, permissions: dict[str, Any], flags: tuple[str, ...], tmp_path: Path
) -> None:
    """The right operand is not packed: the rows of a group are woven in registers, in the order in which the loop adds them."""
    s = start(made.program, {"M": 5, "N": 48, "K": 24}, **permissions)
    s = s.split("j", 16, into=("jo", "jl")).place("acc", "register", at="jo")
    s = s.split("k", INSTRUCTIONS[name].depth, into=("ko", "ki")).distribute("jl")
    s = s.reorder("S1.ko", "S1.jl", "S1.ki").vectorize("S1.jl").instruction("S1.jl", name)
    assert "weave_" in c_source.emit(s.program, vector_bytes=64)
    assert_same(s.program, function(s.program, tmp_path, flags, vector_bytes=64), {}, 0, reference=s.program.source)
