"""What a CPU's schedules add: fill_at, specialise, team, cache_write(merge), prefetch, store, allocate, prepack, instruction."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from tests.unit.scheduled import same
from tilec.errors import InternalError, LegalityError, ScheduleError
from tilec.ir import interp
from tilec.ir.affine import Aff
from tilec.ir.instructions import INSTRUCTIONS
from tilec.ir.layouts import address, allocated
from tilec.ir.printer import text
from tilec.ir.program import Address, Copy, Guard, Layout, Loop, Prefetch
from tilec.ir.tree import sites, transform, without_hints
from tilec.ir.verify import verify
from tilec.lang import bf16, f32, i8, i32, kernel, silu, sizes
from tilec.poly.prove import prove
from tilec.schedule.schedule import Schedule, start
from tilec.schedule.trace import Trace

M, N, K = sizes("M N K")


@kernel
def product(A: f32[M, K], W: f32[K, N], Y: f32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            Y[i, j] = silu(acc)


@kernel
def integers(A: i8[M, 8], W: i8[8, N], Y: i32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: i32 = 0
            for k in range(8):
                acc += A[i, k] * W[k, j]
            Y[i, j] = acc


@kernel
def halves(A: bf16[M, 8], W: bf16[8, 32], Y: f32[M, 32]):
    for i in range(M):
        for j in range(32):
            acc: f32 = 0
            for k in range(8):
                acc += A[i, k] * W[k, j]
            Y[i, j] = acc


@kernel
def rounded(X: f32[M, N], Y: bf16[M, N]):
    for i in range(M):
        for j in range(N):
            Y[i, j] = X[i, j]


@kernel
def two(X: f32[M, N], T: f32[M, N], Y: f32[M, N]):
    for i in range(M):
        for j in range(N):
            T[i, j] = X[i, j] + 1
    for i in range(M):
        for j in range(N):
            Y[i, j] = T[M - 1 - i, j] * 2


def tiles() -> Schedule:
    """Tiles of 4 x 8 in panels of 16 columns, the sum of a tile in registers."""
    s = start(product).split("j", 16, into=("jc", "jx")).split("jx", 8, into=("jr", "jl")).split("i", 4, into=("io", "ii"))
    s = s.reorder("jc", "io", "jr", "ii", "jl").place("acc", "register", at="jr")
    return s.reorder("k", "S1.ii", "S1.jl")


def packed() -> Schedule:
    return tiles().cache_read("W", at="jc", memory="scratch").layout("W_scratch", "panels", 1, 8)


ODD = ({"M": 1, "N": 1, "K": 1}, {"M": 5, "N": 19, "K": 3}, {"M": 8, "N": 16, "K": 2}, {"M": 9, "N": 41, "K": 7})

# -- fill_at ------------------------------------------------------------------------------------------------------------


def test_packing_moves_to_the_first_use():
    s = packed().fill_at("W_scratch", "jr")
    assert "if io == 0:" in str(s) and str(s).count("# copy") == 1 and s.check().status == "legal"
    for numbers in ODD:
        same(s.program, **numbers)


def test_a_fill_in_parallel_rows_is_a_race():
    with pytest.raises(LegalityError) as e:
        packed().parallel("io").fill_at("W_scratch", "jr")
    assert e.value.witness is not None and e.value.witness.kind == "race"


def test_the_proof_sees_a_fill_in_a_later_iteration():
    s = packed().fill_at("W_scratch", "jr")

    def late(node):
        if isinstance(node, Guard) and isinstance(next(sites(node.body)).action, Copy):
            return (replace(node, conditions=tuple(replace(c, expr=c.expr - 1) for c in node.conditions)),)
        return (node,)

    broken = replace(s.program, body=transform(s.program.body, late))
    assert broken != s.program and prove(s.program.source, broken).status == "illegal"


def test_fill_at_refusals():
    s = packed()
    for args, reason in (
        (("A", "jr"), "not filled by one nest of copies alone"),
        (("W_scratch", "jc"), "Possible loops: io, jr, k, S1.ii, S1.jl"),
        (("W_scratch", "S0.ii"), "does not hold every read"),
        (("W_scratch", "W_scratch.0"), "after the copies"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            s.fill_at(*args)


# -- specialise ---------------------------------------------------------------------------------------------------------

POINTS = ("S0.ii", "S1.ii", "S2.ii", "S0.jl", "S1.jl", "S2.jl")


def test_full_tiles_have_constant_bounds_and_the_rest_its_own_kernel():
    s = packed().specialise("jr", POINTS)
    shown = str(s)
    assert "if 4*io + 3 < M and 16*jc + 8*jr + 7 < N:" in shown and "if M <= 4*io + 3:" in shown
    assert shown.count("for ii in 0..4:") >= 3 and s.check().status == "legal"
    for numbers in ODD:
        same(s.program, **numbers)


def test_a_kernel_that_misses_a_case_is_refused():
    s = packed().specialise("jr", POINTS)

    def without_the_last(node):
        return (replace(node, body=node.body[:-1]),) if isinstance(node, Loop) and node.var == "jr" else (node,)

    broken = replace(s.program, body=transform(s.program.body, without_the_last))
    verdict = prove(s.program.source, broken)
    assert verdict.status == "illegal" and verdict.witness is not None


def test_specialise_refusals():
    s = packed()
    for args, reason in (
        (("jr", "io"), "does not stand inside 'jr'"),
        (("jr", "k"), r"must run 0\.\.min\(constant"),
        (("io", "S1.jl"), "changes with 'jr' inside 'io'. Use at=\"jr\""),
    ):
        with pytest.raises(ScheduleError, match=reason):
            s.specialise(*args)
    with pytest.raises(ScheduleError, match="is bound: specialise before bind"):
        tiles().reorder("jc", "io").bind("jc", "block.x").specialise("jc", POINTS)


# -- team ---------------------------------------------------------------------------------------------------------------


def test_a_team_holds_sibling_parallel_loops():
    s = start(two).parallel(("T.i", "Y.i")).team("T.i", "Y.i")
    assert [line.strip() for line in str(s).splitlines() if "for" in line] == [
        "for team in 0..1:  # team",
        "for i in 0..M:  # parallel",
        "for j in 0..N:",
        "for i in 0..M:  # parallel",
        "for j in 0..N:",
    ]
    assert s.check().status == "legal"
    same(s.program, M=5, N=3)


def test_team_refusals_and_rules():
    s = start(two)
    with pytest.raises(ScheduleError, match="no parallel loop stands there"):
        s.team("T.i")
    s = s.parallel(("T.i", "Y.i"))
    for args, reason in (
        (("Y.i", "T.i"), "no siblings in this order"),
        (("T.j",), "stands under 'i' \\(parallel\\)"),
        (("T.i", "Y.i", "M"), "the name 'M' is taken"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            s.team(*args)
    with pytest.raises(ScheduleError, match="is a team already"):
        s.team("T.i").team("team", into="again")
    with pytest.raises(ScheduleError, match="no team of a CPU's threads"):
        start(two).bind("T.i", "block.x").team("T.i")
    wide = transform(
        s.team("T.i").program.body, lambda n: (replace(n, upper=(Aff(2),)),) if getattr(n, "kind", "") == "team" else (n,)
    )
    with pytest.raises(InternalError, match="verify: team"):
        verify(replace(s.program, body=wide))


# -- cache_write(merge=True) -----------------------------------------------------------------------------------------------


def accumulated(permitted: bool = True) -> Schedule:
    s = start(product, reassociate="acc" if permitted else None)
    s = s.split("i", 4, into=("io", "ii")).split("j", 8, into=("jo", "jl")).reorder("io", "jo", "ii", "jl")
    s = s.split("k", 3, into=("ko", "ki")).reorder("ko", "S1.ii", "S1.jl", "ki").place("acc", "scratch")
    return s.cache_write("acc", at="ko", memory="register", merge=True)


def test_a_tile_is_accumulated_at_the_end():
    s = accumulated()
    assert "# merge" in str(s) and "# identity of +=" in str(s)
    assert s.check().permissions == ('reassociate="acc"',)
    given = np.random.default_rng(3)
    a, w = given.normal(size=(5, 7)).astype("f4"), given.normal(size=(7, 9)).astype("f4")
    got = interp.run(s.program, {"A": a, "W": w}, {})["Y"]
    want = (x := a.astype("f8") @ w) / (1 + np.exp(-x))
    assert np.allclose(got, want, rtol=1e-5, atol=1e-6)


def test_merging_needs_the_permission_and_one_update():
    with pytest.raises(LegalityError, match="reassociate"):
        accumulated(permitted=False)
    s = start(product, reassociate="acc").place("acc", "scratch")
    with pytest.raises(ScheduleError, match="one updating statement alone must access 'acc'"):
        s.cache_write("acc", at="j", memory="register", merge=True)
    with pytest.raises(ScheduleError, match="leave load out"):
        s.cache_write("acc", at="k", memory="register", merge=True, load=True)


def test_a_merge_that_happens_twice_is_refused():
    s = accumulated()

    def doubled(node):
        return (node, node) if type(node).__name__ == "Merge" else (node,)

    verdict = prove(s.program.source, replace(s.program, body=transform(s.program.body, doubled)))
    assert verdict.status == "illegal"


# -- prefetch, store, allocate, prepack -----------------------------------------------------------------------------------


def hints(s: Schedule) -> list[str]:
    return [line.strip() for line in text(s.program).splitlines() if "prefetch" in line]


def test_prefetch_names_one_address_for_each_line():
    s = packed().prefetch("W_scratch", at="k", distance=4)
    assert hints(s) == ["prefetch W_scratch[k + 4, 8*jr]  # to L1"]
    s = s.prefetch("A", at="k", distance=16, level=2)  # four rows, in four lines
    assert "prefetch A[4*io + A_ahead0, k + 16]  # to L2" in hints(s)
    s = s.prefetch("Y", at="jr", distance=0)
    assert "prefetch Y[4*io + Y_ahead0, 16*jc + 8*jr]  # to L1, for a write" in hints(s)
    assert without_hints(s.program) == packed().program
    for numbers in ODD:
        same(s.program, **numbers)


def test_a_prefetch_stands_under_the_guard_of_what_it_is_for():
    s = packed().fill_at("W_scratch", "k").prefetch("W", at="k", distance=8)
    lines = [line.strip() for line in str(s).splitlines()]
    assert lines[lines.index("if io == 0:") + 1] == "prefetch W[k + 8, 16*jc + 8*jr]  # to L1"
    for numbers in ODD:
        same(s.program, **numbers)


def test_a_prefetch_may_be_spread_over_an_inner_loop():
    s = packed().prefetch("W_scratch", at="k", distance=1, level=2, of="jr")
    assert hints(s) == ["prefetch W_scratch[k, 8*jr + 8]  # to L2"]
    for numbers in ODD:
        same(s.program, **numbers)


def test_prefetch_refusals():
    s = packed()
    with pytest.raises(ScheduleError, match=r"'k' does not stand around 'jr'\. Loops there: jc, io, jr"):
        s.prefetch("W_scratch", "jr", of="k")
    with pytest.raises(ScheduleError, match="owned inside 'jc'"):
        s.prefetch("W_scratch", "jr", of="jc")
    for args, reason in (
        (("W", "io"), "nothing inside 'io' accesses 'W'. Loops around its accesses: jc"),
        (("acc", "k"), "'acc' is in register"),
        (("W_scratch", "jc"), "owned inside 'jc'"),
        (("A", "jr"), "touches 4, K cells of 'A': prefetch at a loop inside it"),
        (("W_scratch", "k", -1), "the distance must be >= 0"),
        (("W_scratch", "k", 1, 4), "the level must be one of 1, 2, 3"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            s.prefetch(*args)
    with pytest.raises(ScheduleError, match="its iterations run at once"):
        s.vectorize("S1.jl").prefetch("W_scratch", "S1.jl")


def test_a_prefetch_of_a_buffer_that_is_gone_is_no_tree():
    s = packed()
    stray = (Prefetch(Address("nothing", ())), *s.program.body)
    with pytest.raises(InternalError, match="verify: prefetch"):
        verify(replace(s.program, body=stray))
    with pytest.raises(ScheduleError, match="is fetched ahead"):
        s.prefetch("W_scratch", at="k").place("W_scratch", "global")


def test_streaming_stores_are_said_and_kept_by_later_steps():
    s = start(two).store("Y").split("Y.j", 8)
    assert str(s).count("# S1, streaming") == 1
    same(s.program, M=3, N=9)
    assert str(s.store("Y", "cached")) == str(start(two).split("Y.j", 8))
    for args, reason in (
        (("T",), "the program reads 'T' again"),
        (("X",), "nothing writes 'X'"),
        (("Y", "around"), "how must be one of"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            start(two).store(*args)
    with pytest.raises(ScheduleError, match="'acc' is in register"):
        packed().store("acc")


def test_allocation_is_said_and_checked():
    s = packed().allocate("W_scratch", 4096, "huge")
    assert "in scratch, panels(1, 8), aligned to 4096 B, huge pages" in str(s)
    for args, reason in (
        (("W",), "its caller allocates it"),
        (("acc",), "only global memory and scratch are allocated"),
        (("W_scratch", 48), "must be a power of two from 4 to 2,097,152 bytes, not 48"),
        (("W_scratch", 64, "giant"), "pages must be one of"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            packed().allocate(*args)


def test_a_parameter_packed_ahead_of_the_call():
    s = tiles().cache_read("W", at=None, memory="global", into="P").layout("P", "panels", 1, 8).prepack("P")
    assert "P: f32[K, N] in global, panels(1, 8), packed ahead of the call where the caller has it" in str(s)
    for numbers in ODD:
        same(s.program, **numbers)
    with pytest.raises(ScheduleError, match=r"filled inside the call \('jc' owns it\)"):
        packed().prepack("W_scratch")
    with pytest.raises(ScheduleError, match=r"'acc' is no copy of a parameter. Possible: 'W_scratch'"):
        packed().prepack("acc")
    with pytest.raises(ScheduleError, match="must be one of 'global', 'scratch'"):
        tiles().cache_read("W", at=None, memory="register")


# -- layouts of digits -----------------------------------------------------------------------------------------------------


def test_digits_are_bijections():
    for shape, digits in (
        ((6, 20), (1, 16, 0, 0, 2, 0, 1, 1, 16, 0, 1, 2)),
        ((7, 5), (0, 1, 0, 1, 1, 0)),
        ((7, 5), (1, 1, 0, 0, 1, 0)),
        ((8, 12), (0, 8, 0, 1, 1, 0, 0, 2, 4, 0, 1, -2)),
    ):
        cells = np.indices(shape).reshape(2, -1)
        found = address(Layout("digits", digits), shape, list(cells))
        assert len(set(found.tolist())) == len(found) and 0 <= found.min() <= found.max() < allocated(
            Layout("digits", digits), shape
        )
    # panels are a special case
    cells = list(np.indices((6, 20)).reshape(2, -1))
    same_as = address(Layout("digits", (1, 16, 0, 0, 1, 0, 1, 1, 16)), (6, 20), cells)
    assert (same_as == address(Layout("panels", (1, 16)), (6, 20), cells)).all()


def test_digits_that_do_not_tell_cells_apart_are_refused():
    s = packed()
    for digits, reason in (
        (((1, 1, 0),), "dimension 0 has no digit"),
        (((0, 1, 0), (1, 1, 0), (1, 1, 8)), "the digit of dimension 1 and divisor 1 needs a modulus of 2 or more, not 0"),
        (((0, 1, 0), (1, 8, 0), (1, 1, 4)), "dimension 1 needs a digit of divisor 4, not 8"),
        (((0, 1, 0), (1, 1, 8)), "the leading digit of dimension 1"),
        (((0, 1, 0), (1, 1, 0), (2, 1, 0)), "there is no dimension 2"),
        (((0, 1), (1, 1, 0)), "takes triples"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            s.layout("W_scratch", "digits", digits)


# -- widen ------------------------------------------------------------------------------------------------------------------


def test_operands_are_converted_once():
    s = start(halves).split("j", 16, into=("jo", "jl")).reorder("jo", "i", "jl").cache_read("W", at="jo", memory="scratch")
    wide = s.widen("W_scratch")
    assert "W_scratch: f32[8, 16] in scratch" in str(wide) and wide.check().status == "legal"
    same(wide.program, M=3)
    for broken, reason in (
        (lambda: wide.widen("W_scratch"), "f32, an arithmetic type, already"),
        (lambda: s.widen("W"), "is no cache"),
        (lambda: s.cache_read("W_scratch", at="i", memory="scratch").widen("W_scratch"), "copied out again"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            broken()
    narrow = start(rounded).cache_write("Y", at="i", memory="scratch")
    with pytest.raises(ScheduleError, match=r"is copied out again|rounds to bf16"):
        narrow.widen("Y_scratch")


# -- instruction -----------------------------------------------------------------------------------------------------------


def fused(contract: bool = True) -> Schedule:
    s = start(product, contract=contract).split("i", 4, into=("io", "ii")).split("j", 8, into=("jo", "jl"))
    s = s.reorder("io", "jo", "ii", "jl").place("acc", "register", at="jo").reorder("k", "S1.ii", "S1.jl")
    return s.vectorize("S1.jl")


def test_a_fused_multiply_add_needs_contract():
    s = fused().instruction("S1.jl", "vfmadd231ps")
    assert "# vector, vfmadd231ps" in str(s)
    same(s.program, M=5, N=9, K=3)
    with pytest.raises(ScheduleError, match=r"one rounding. This needs contract=True"):
        fused(contract=False).instruction("S1.jl", "vfmadd231ps")


def dots(k, dtype_name: str, lanes: int, backwards: bool, **permissions) -> Schedule:
    s = start(k, {"N": 16} if "N" in k.program.sizes else {}, **permissions)
    s = (
        s.split("j", lanes, into=("jo", "jl"))
        .split("k", 2, into=("ko", "kk"))
        .reorder("i", "jo", "jl")
        .place("acc", "register", at="jo")
    )
    s = s.reorder("ko", "S1.jl", "kk").cache_read("W", at="i", memory="scratch").cache_read("A", at="i", memory="scratch")
    m = -2 if backwards else 2
    s = s.layout("W_scratch", "digits", ((1, lanes, 0), (0, 2, 0), (1, 1, lanes), (0, 1, m)))
    s = s.layout("A_scratch", "digits", ((0, 2, 0), (0, 1, m)))
    return s.vectorize("S1.jl")


def test_integer_pairs_need_no_permission():
    s = dots(integers, "i8", 8, False).instruction("S1.jl", "vpmaddwd")
    same(s.program, M=3, N=16)
    with pytest.raises(ScheduleError, match="has 8 lanes; vpdpwssd has 16"):
        dots(integers, "i8", 8, False).instruction("S1.jl", "vpdpwssd")


def test_the_order_of_the_bf16_pairs_decides_what_is_needed():
    allowed = {"contract": True, "hardware_rounding": True}
    assert "vdpbf16ps" in str(dots(halves, "bf16", 16, True, **allowed).instruction("S1.jl", "vdpbf16ps"))
    with pytest.raises(ScheduleError, match='reassociate="acc" \\(or the elements of each group laid out backwards\\)'):
        dots(halves, "bf16", 16, False, **allowed).instruction("S1.jl", "vdpbf16ps")
    assert dots(halves, "bf16", 16, False, reassociate="acc", **allowed).instruction("S1.jl", "vdpbf16ps")
    with pytest.raises(ScheduleError, match="This needs contract=True, hardware_rounding=True at"):
        dots(halves, "bf16", 16, True).instruction("S1.jl", "vdpbf16ps")


def test_the_declared_order_of_vdpbf16ps_is_the_fused_sum_in_order_when_pairs_lie_backwards():
    """Declared semantics against exact arithmetic: odd element first; backwards pairs make that the loop's order."""
    declared = INSTRUCTIONS["vdpbf16ps"]
    rng = np.random.default_rng(5)
    a = (rng.integers(-128, 128, 2) * 2.0 ** rng.integers(-3, 3, 2)).astype("f4")
    b = (rng.integers(-128, 128, 2) * 2.0 ** rng.integers(-3, 3, 2)).astype("f4")
    acc = np.float32(1 / 3)

    def fma(x, y, z) -> np.float32:
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        near = np.float32(float(exact))  # the products of 8-bit significands leave no double rounding here
        return near

    in_order = fma(a[1], b[1], fma(a[0], b[0], acc))
    memory_a, memory_b = a[::-1], b[::-1]
    got = acc
    for d in declared.order:
        got = fma(memory_a[d], memory_b[d], got)
    assert got == in_order


def test_instruction_refusals():
    s = fused()
    for args, reason in (
        (("S1.jl", "vmul"), "the instruction must be one of"),
        (("S1.ii", "vfmadd231ps"), "'S1.ii' is serial"),
        (("S1.jl", "vfmadd231pd"), "adds into f64; 'acc' is f32"),
        (("S1.jl", "vpmaddwd"), "one multiply-add must stand alone, under one loop of 2 iterations"),
    ):
        with pytest.raises(ScheduleError, match=reason):
            s.instruction(*args)
    with pytest.raises(ScheduleError, match=r"runs 'S1.jl' already"):
        s.instruction("S1.jl", "vfmadd231ps").instruction("S1.jl", "vfmadd231ps")
    along = start(product, contract=True).split("j", 8, into=("jo", "jl")).reorder("jo", "i", "jl").vectorize("jl")
    with pytest.raises(ScheduleError, match="one multiply-add must stand alone"):
        along.instruction("jl", "vfmadd231ps")
    columns = start(product, contract=True).split("i", 8, into=("io", "il")).reorder("io", "j", "il")
    columns = columns.place("acc", "register", at="j").reorder("k", "S1.il").vectorize("S1.il")
    with pytest.raises(ScheduleError, match="the lanes 'il' of 'A' do not lie next to each other"):
        columns.instruction("S1.il", "vfmadd231ps")


def test_every_cpu_step_replays_from_its_trace():
    s = packed().fill_at("W_scratch", "jr").specialise("jr", POINTS).prefetch("A", at="k#1", distance=8)
    s = s.allocate("W_scratch", pages="huge").store("Y").parallel("jc").team("jc")
    again = Trace.from_json(s.trace.to_json()).apply(start(product))
    assert str(again) == str(s) and str(Trace.from_python(s.trace.to_python()).apply(start(product))) == str(s)
    assert s.check().status == "legal"
