"""Recipes: which structures a program gives, that they compute the same, and what they cost."""

from __future__ import annotations

import pytest

from tests.unit.scheduled import same
from tilec.cost.price import price
from tilec.errors import LegalityError, ScheduleError, TilecError
from tilec.ir.program import Program
from tilec.lang import Definition, bf16, f8e4m3, f32, kernel, silu, sizes
from tilec.schedule.schedule import HasProgram, Schedule, start
from tilec.search.nests import graph, nests, partitions
from tilec.search.recipes import Recipe, derive
from tilec.search.unproved import unproved
from tilec.workloads import get, names

MIB = 2**20
ODD = {"M": 37, "N": 45, "K": 29, "D": 21, "T": 2, "B": 2, "C": 11, "P": 5, "Q": 19, "R": 3, "S": 2}
M, N, K, L = sizes("M N K L")


def small(r: Recipe) -> dict[str, int]:
    return {k: 8 if k == "BK" else 16 for k in r.space}


def spanning(recipes: list[Recipe]) -> list[Recipe]:
    """One stage; of two memories for sums and two orders each once in every partition and with every other choice."""
    out = []
    order = next((r.choices["order"] for r in recipes if "order" in r.choices), None)
    for r in recipes:
        first = (r.choices.get("accumulator", "shared") == "shared", r.choices.get("order", order) == order)
        if r.choices.get("stages", 1) == 1 and first in ((True, True), (False, "order" not in r.choices)):
            out.append(r)
    return out


def program(name: str) -> Program:
    return start(get(name), reassociate="acc" if name == "dot" else None).program


def fresh(kernel: HasProgram | Program, given: dict[str, int] | None = None) -> Schedule:
    """A schedule whose steps are not proved one by one."""
    return unproved(start(kernel, given), {})


def computes_the_same(p: Program, r: Recipe) -> None:
    s = r.apply(fresh(p), small(r))
    assert s.check().status == "legal", r.name
    same(s.program, {n: 0.5 for n, _ in p.scalars}, **{n: ODD[n] for n in p.sizes})


def choose(name: str, **choices: str | int) -> Recipe:
    """The first recipe of a library kernel with these choices."""
    return next(r for r in derive(program(name)) if all(r.choices.get(k) == v for k, v in choices.items()))


def test_partitions():
    assert partitions(1) == [((0,),)]
    assert partitions(3) == [((0,), (1,), (2,)), ((0,), (1, 2)), ((0, 1), (2,)), ((0, 1, 2),)]
    for n in range(1, 7):
        assert len(set(partitions(n))) == 2 ** (n - 1)


def test_what_the_nests_of_the_library_are():
    kinds = {n: [nest.kind for nest in nests(get(n).program)[1]] for n in names()}
    e, c, r = "elementwise", "contraction", "rows"
    assert kinds == {
        "act_chain": [e, e, e],
        "act_chain_i8": [e, e, e],
        "attention": [c, r, c],
        "blur": [e, e],
        "conv2d": [c],
        "dot": ["sum"],
        "gemm": [c],
        "gemm_silu": [c, e],
        "gemm_silu_quantize": [c, e, e],
        "jacobi2d": [e, e],
        "layernorm": [r],
        "rmsnorm": [r],
        "rowquant": [r, e],
        "rowquant_gemm": [r, e, c],
        "softmax": [r],
        "swiglu": [c, c, e],
        "syrk": [c],
        "transpose": [e],
    }
    assert nests(get("jacobi2d").program)[0] == ("t",)
    edges = graph(nests(get("rowquant_gemm").program)[1]).edges(data="buffers")
    assert list(edges) == [(0, 1, ("S",)), (0, 2, ("S",)), (1, 2, ("Q",))]
    (conv,) = nests(get("conv2d").program)[1]
    assert (conv.band, conv.sums, conv.update) == (("b", "k", "p", "q"), ("c", "r", "s"), "S1")


@pytest.mark.parametrize("name", names())
def test_recipes_are_told_apart(name: str):
    recipes = derive(program(name))
    count = len(nests(get(name).program)[1])
    assert len({r.choices["partition"] for r in recipes}) == 2 ** (count - 1)
    assert len({r.name for r in recipes}) == len(recipes) == len({tuple(r.choices.items()) for r in recipes})
    for r in recipes:
        assert r.sentence and "\n" not in r.sentence
        assert all(v & (v - 1) == 0 for values in r.space.values() for v in values)


@pytest.mark.parametrize("name", [n for n in names() if n not in ("jacobi2d", "dot")])
def test_recipes_compute_the_same(name: str):
    """Applied with symbolic sizes, proved as a whole, run where no tile size divides."""
    p = program(name)
    chosen = spanning(derive(p))
    assert len({r.choices["partition"] for r in chosen}) == len({r.choices["partition"] for r in derive(p)})
    for r in chosen:
        computes_the_same(p, r)


def test_a_step_of_two_arrays_is_tiled_and_never_merged():
    p = program("jacobi2d")
    apart, together = [r for r in derive(p) if r.choices["partition"] == "B | A"], choose("jacobi2d", partition="B+A")
    for r in apart:
        computes_the_same(p, r)
    with pytest.raises(LegalityError) as e:
        together.apply(start(p), small(together))
    assert e.value.witness is not None


def test_a_sum_keeps_its_order_without_the_permission():
    assert [r.choices["sum"] for r in derive(get("dot").program)] == ["in order"]
    in_order, blocks = derive(program("dot"))
    assert in_order.apply(start(get("dot")), {}).program == start(get("dot")).program
    s = blocks.apply(start(get("dot"), reassociate="acc"), {"BN": 16})
    assert s.verdict.status == "legal" and [loop.kind for loop in s.program.body if hasattr(loop, "kind")] == [
        "block.x",
        "serial",
    ]


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("gemm", {"accumulator": "shared"}),
        ("conv2d", {"accumulator": "register"}),
        ("swiglu", {"partition": "G+U+Y", "sums": "together", "accumulator": "register"}),
        ("rowquant_gemm", {"partition": "S | Q+Y"}),
        ("gemm_silu_quantize", {"partition": "C+T+Q"}),
    ],
)
def test_pipelined_recipes(name: str, choices: dict[str, str]):
    computes_the_same(program(name), choose(name, stages=3, **choices))


@pytest.mark.parametrize("partition", ["S+Q | Y", "S | Q+Y"])
def test_every_step_is_proved(partition: str):
    """A Schedule proves each primitive; the search runs the same steps and proves the result."""
    r = choose("rowquant_gemm", partition=partition, **({"inputs": "shared"} if partition == "S+Q | Y" else {}))
    s = r.apply(start(get("rowquant_gemm")), {"BM": 16, "BN": 16, "BK": 8})
    assert s.verdict.status == "legal"
    quick = r.apply(fresh(get("rowquant_gemm")), {"BM": 16, "BN": 16, "BK": 8})
    assert quick.program == s.program and quick.trace == s.trace


@pytest.mark.parametrize("knobs", [{"BM": 64, "BN": 128, "BK": 32}, {"BM": 3, "BN": 1, "BK": 2}])
def test_tiles_larger_than_the_sizes_and_odd_ones(knobs: dict[str, int]):
    p = start(get("gemm_silu_quantize"), {"M": 5, "N": 3, "K": 4}).program
    for r in spanning(derive(p))[-2:]:
        s = r.apply(fresh(p), knobs)
        assert s.check().status == "legal"
        same(s.program, {"scale": 0.5})


def traffic(r: Recipe, name: str, given: dict[str, int], tile: int) -> tuple[dict[str, float], int]:
    """(MiB of global memory by buffer, bytes of shared memory) with sizes bound."""
    knobs = {k: 32 if k == "BK" else tile for k in r.space}
    cost = price(r.apply(fresh(get(name), given), knobs).program)
    shared = max((launch.footprint["shared"] for launch in cost.launch), default=0)
    return {b: v / MIB for b, v in cost.traffic.by_buffer("global").items()}, shared


@pytest.mark.parametrize(("tile", "moved", "shared"), [(32, 6168, 8), (64, 3096, 24), (128, 1560, 80)])
def test_traffic_of_a_product(tile: int, moved: int, shared: int):
    r = choose("gemm", accumulator="shared", stages=1)
    by, footprint = traffic(r, "gemm", {"M": 1024, "N": 12288, "K": 4096}, tile)
    assert (sum(by.values()), footprint) == (moved, shared * 1024)


def test_traffic_of_a_product_and_silu():
    given = {"M": 1024, "N": 12288, "K": 4096}
    found = {q: sum(traffic(choose("gemm_silu", partition=q), "gemm_silu", given, 64)[0].values()) for q in ("C | Y", "C+Y")}
    assert found == {"C | Y": 3144, "C+Y": 3096}


def test_traffic_of_a_chain():
    found = {
        r.choices["partition"]: sum(traffic(r, "act_chain", {"M": 1024, "N": 12288}, 64)[0].values())
        for r in derive(get("act_chain").program)
    }
    assert found == {"T | Z | Q": 156, "T | Z+Q": 108, "T+Z | Q": 108, "T+Z+Q": 60}


def test_quantised_operand_stored_or_recomputed():
    """The 8 KiB row of A is kept between its maximum and its quantisation, also after the other nest is tiled."""
    given = {"M": 4096, "N": 1536, "K": 4096}
    stored = choose("rowquant_gemm", partition="S+Q | Y", inputs="shared")
    again = choose("rowquant_gemm", partition="S | Q+Y")
    assert stored.choices["quantised operand"] == "stored" and again.choices["quantised operand"] == "recomputed"
    for r, want in ((stored, 444), (again, 620)):
        by, _ = traffic(r, "rowquant_gemm", given, 128)
        assert by.pop("S") < 0.25 and sum(by.values()) == want
    s = stored.apply(fresh(get("rowquant_gemm"), given), {"BM": 128, "BN": 128, "BK": 32})
    b = s.program.buffer["A_shared"]
    assert [str(e) for e in b.shape] == ["4096"] and (b.dtype, b.memory) == ("f16", "shared")


def test_shared_operands_are_fetched_once():
    moved = {
        how: traffic(choose("swiglu", partition="G+U+Y", sums=how), "swiglu", {"M": 1024, "N": 1024, "K": 1024}, 64)[0]["X"]
        for how in ("in turn", "together")
    }
    assert moved == {"in turn": 64, "together": 32}


@kernel
def outer_product(A: f32[M, K], W: f32[K, N], C: f32[M, N]):
    for k in range(K):
        for i in range(M):
            for j in range(N):
                C[i, j] += A[i, k] * W[k, j]


@kernel
def two_products(X: bf16[M, K], A: bf16[K, L], B: bf16[L, N], Y: bf16[M, N]):
    H: bf16[M, L]
    for i in range(M):
        for l in range(L):
            a: f32 = 0
            for k in range(K):
                a += X[i, k] * A[k, l]
            H[i, l] = silu(a)
    for i in range(M):
        for j in range(N):
            b: f32 = 0
            for l in range(L):
                b += H[i, l] * B[l, j]
            Y[i, j] = b


@kernel
def dynamic_quantize(A: bf16[M, K], W: bf16[K, N], Y: f8e4m3[M, N], S: f32[M]):
    C: bf16[M, N]
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc
    for i in range(M):
        m: f32 = 0
        for j in range(N):
            m = max(m, abs(C[i, j]))
        S[i] = m / 448
    for i in range(M):
        for j in range(N):
            Y[i, j] = C[i, j] / S[i]


@kernel
def carried(A: f32[N]):
    for i in range(1, N):
        A[i] = A[i - 1] + A[i]


@kernel
def one_value(x: f32[1], y: f32[1]):
    y[0] = x[0] * 2


@pytest.mark.parametrize(("definition", "most"), [(outer_product, "C"), (two_products, "H+Y"), (dynamic_quantize, "C+S+Y")])
def test_kernels_of_no_library(definition: Definition, most: str):
    """The structure decides, not the name: other loop orders, chains of products, rows of a product."""
    p = definition.program
    r = next(r for r in derive(p) if r.choices["partition"] == most)
    s = r.apply(fresh(p), small(r))
    assert s.check().status == "legal"
    same(s.program, **{n: v for n, v in {"M": 19, "N": 21, "K": 10, "L": 18}.items() if n in p.sizes})


def test_what_cannot_be_is_refused_by_a_primitive():
    used_outside = next(r for r in derive(dynamic_quantize.program) if r.choices["partition"] == "C+S | Y")
    with pytest.raises(ScheduleError, match="does not enclose every reader of 'C'"):
        used_outside.apply(start(dynamic_quantize), small(used_outside))
    in_all_blocks = next(r for r in derive(dynamic_quantize.program) if r.name.startswith("C+S+Y") and "j outside" in r.name)
    verdict = in_all_blocks.apply(fresh(dynamic_quantize), small(in_all_blocks)).check()
    assert verdict.status == "illegal" and verdict.witness is not None and verdict.witness.kind == "race"
    (only,) = derive(carried.program)
    with pytest.raises(TilecError, match=r"iterations of the block\.x loop"):
        only.apply(start(carried), {"BN": 4})


def test_a_program_without_loops_stays_as_written():
    (r,) = derive(one_value.program)
    assert (r.name, r.space) == ("as written", {}) and r.apply(start(one_value), {}).trace == start(one_value).trace
