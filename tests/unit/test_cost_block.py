"""The execution model of a block: lanes, residents and overlap against plain Python, and what is read from programs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tilec.cost.banks import bank_rounds
from tilec.cost.block import block_figures
from tilec.cost.bulk import evaluate as evaluate_all
from tilec.cost.bulk import formulas
from tilec.cost.lanes import lines, wavefronts
from tilec.cost.launches import launches
from tilec.cost.occupancy import occupancy
from tilec.cost.overlap import cycle
from tilec.cost.price import price
from tilec.cost.products import Products
from tilec.cost.reader import Reader
from tilec.cost.requests import CUDA, OPENCL
from tilec.cost.residents import l1_beside, residents
from tilec.cost.separable import Markers, NotSeparable
from tilec.cost.term import Name, Num, evaluate, floor, multiply, names
from tilec.cost.threadwork import NoFullTile, ThreadWork, full_work, thread_work
from tilec.errors import TargetError
from tilec.schedule.schedule import Schedule, start
from tilec.targets import load
from tilec.workloads import get


def plain_lines(addresses: list[int], width: int) -> int:
    """Lines per phase of 128 bytes, by sets."""
    phase = min(32, 128 // width)
    return sum(len({b // 128 for a in addresses[i : i + phase] for b in range(a, a + width)}) for i in range(0, 32, phase))


def test_wavefronts_and_lines_are_those_of_one_access_at_a_time():
    rng = np.random.default_rng(0)
    strides = rng.choice([0, 1, 2, 3, 4, 5, 8, 16, 32, 33], size=(400, 2))
    across = rng.choice([1, 2, 4, 8, 16, 32], size=400)
    width = rng.choice([4, 8, 16], size=400)
    lane = np.arange(32)
    addresses = (lane % across[:, None] * strides[:, :1] + lane // across[:, None] * strides[:, 1:]) * width[:, None]
    turns, looked_up = wavefronts(addresses, width), lines(addresses, width)
    joined = 0
    for n, row in enumerate(addresses.tolist()):
        pair = all(row[k] == row[k ^ 1] for k in range(32)) or all(row[k] == row[k ^ 2] for k in range(32))
        apart = bank_rounds(row, int(width[n]))
        assert turns[n] <= apart and looked_up[n] == plain_lines(row, int(width[n]))
        if width[n] == 4 or not pair:
            assert turns[n] == apart
        joined += turns[n] < apart
    assert joined > 20  # the rule of neighbours is exercised


def test_broadcast_of_wide_loads():
    """All lanes one address: a 16-byte load takes two turns (two pairs of phases), an 8-byte one a single turn."""
    same = np.zeros((3, 32), dtype=int)
    assert wavefronts(same, np.array([4, 8, 16])).tolist() == [1, 1, 2]
    assert lines(same, np.array([4, 8, 16])).tolist() == [1, 2, 4]


@pytest.mark.parametrize("capability", ["7.0", "7.5", "8.0", "8.6", "8.9", "9.0", "12.0"])
def test_residents_are_the_occupancy_calculators(capability: str):
    limits = load(capability).limits
    assert limits is not None
    rng = np.random.default_rng(1)
    threads, registers = rng.integers(1, 1100, 300), rng.integers(0, 260, 300)
    shared = rng.integers(0, 110_000, 300)
    found = residents(limits, threads, registers, shared)
    for n in range(300):
        assert found[n] == occupancy(capability, int(threads[n]), int(registers[n]), int(shared[n])).blocks, n
    assert (found == 0).any() and (found > 4).any()


def test_l1_beside_shared_memory():
    limits = load("8.6").limits
    assert limits is not None
    assert l1_beside(limits, np.array([0, 1, 8192, 8193, 102_400])).tolist() == [131072, 122880, 122880, 114688, 28672]


def test_cycle_lies_between_its_bounds():
    for n in (1, 2, 5, 64):
        for work, wait in ((1.0, 0.0), (1.0, 3.0), (2.0, 100.0)):
            value = float(cycle(n, work, wait))
            assert max(n * work, work + wait) - 1e-9 <= value <= n * work + wait + 1e-9
    assert float(cycle(1, 2.0, 5.0)) == pytest.approx(7.0)
    assert float(cycle(10_000, 1.0, 5.0)) == pytest.approx(10_000, rel=1e-3)


def test_names_of_a_formula():
    assert names(floor(Name("a"), multiply((Name("b"), Num(2))))) == {"a", "b"}


def test_products_of_dependent_knobs_are_refused():
    with pytest.raises(NotSeparable, match="not independent"):
        Products.of({"A": "ab", "B": "ba"})
    with pytest.raises(NotSeparable, match="3 knobs are made of 4 letters"):
        Products.of({"A": "ab", "B": "bc", "C": "cd"})


def test_products():
    p = Products.of({"T": "ab", "U": "a", "M": "abm"})
    env = {"T": 64, "U": 8, "M": 512}
    t, u, m = (p.values[k] for k in ("T", "U", "M"))
    for number, wanted in ((t, 64), (m // t, 8), (t // u, 8), (3 * m, 1536), (m - 1, 511), (5, 5), (m // u * 2, 128)):
        assert evaluate(p.number(number), env) == wanted
    with pytest.raises(NotSeparable, match="no product of knobs"):
        p.number(10_007)


def tiled(M: int = 256, vector: int = 4, staged: bool = True) -> Schedule:
    """A tile of 64 × 64 by 16 × 16 threads with 4 × 4 results each."""
    s = start(get("gemm").program, {"M": M, "N": 256, "K": 256}, contract=True)
    s = s.split("i", 64, into=("io", "ii")).split("j", 64, into=("jo", "ji"))
    s = s.split("ii", 4, into=("ty", "i4")).split("ji", vector, into=("tx", "j4"))
    s = s.reorder("io", "jo", "ty", "tx", "i4", "j4").split("k", 32, into=("ko", "ki"))
    s = s.reorder("ko", "ty", "tx", "ki", "i4", "j4").place("acc", "register", at="jo")
    if staged:
        s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared")
        for name, width in (("A_shared", 32), ("W_shared", 64)):
            s = s.split(f"{name}.1", width // 16, into=(f"{name}_x", f"{name}_v"))
            s = s.split(f"{name}.0", 16, into=(f"{name}_k", f"{name}_y"))
            s = s.reorder(f"{name}_y", f"{name}_x", f"{name}_k", f"{name}_v").unroll((f"{name}_k", f"{name}_v"))
            s = s.bind(f"{name}_y", "thread.y").bind(f"{name}_x", "thread.x")
    phases = ("S0", "S1", "C")
    s = s.bind(tuple(f"{p}.ty" for p in phases), "thread.y").bind(tuple(f"{p}.tx" for p in phases), "thread.x")
    s = s.bind("io", "block.y").bind("jo", "block.x")
    s = s.unroll(tuple(f"{p}.i4" for p in phases))
    return s.vectorize(tuple(f"{p}.j4" for p in phases))


def work(s: Schedule) -> ThreadWork:
    found = thread_work(s.program, launches(s.program)[0], Reader())
    assert found is not None
    return found


def value(t) -> int:
    return evaluate(t, {})


def test_what_is_read_from_a_program():
    s = tiled()
    w = work(s)
    cost = price(s.program, "a100-sxm")
    assert [(a, value(t)) for a, t in w.axes] == [("thread.x", 16), ("thread.y", 16)]
    assert value(w.blocks) == 16 and value(w.shared) == cost.footprint["shared"] == 2 * (64 * 32 + 32 * 64)
    assert 4 * value(w.held) == cost.footprint["register"] == 64
    main = next(g for g in w.groups if g.fetches)
    assert value(main.runs) == 8 and main.barriers == 2
    compute = next(p for p in main.phases if p.arithmetic)
    assert [(d, value(t)) for d, t in compute.arithmetic] == [("f32", 32 * 16)]
    # bf16 tiles: 4 scalars of A per k (rows), one vector of 4 of W per k
    assert {(r.buffer, value(r.count), value(r.vector)) for r in compute.requests} == {("A_shared", 128, 1), ("W_shared", 32, 4)}
    assert value(compute.rolled) == 32 and compute.waits == 0
    staged = [p for p in main.phases if not p.arithmetic]
    assert [value(p.staged) for p in staged] == [8, 8]
    fused = sum(value(t) for _, t in compute.arithmetic) * value(main.runs) * value(w.threads) * value(w.blocks)
    assert 2 * fused == cost.flops


def test_unstaged_operands_are_waited_for():
    w = work(tiled(staged=False))
    main = next(g for g in w.groups if value(g.runs) == 8)
    assert not main.fetches and main.barriers == 0
    (compute,) = main.phases
    assert compute.waits == 2 and value(compute.refills) == 32
    figures = block_figures(w, load("a100-sxm"), {})
    fast = block_figures(work(tiled()), load("a100-sxm"), {})
    assert figures.seconds[0] > fast.seconds[0] > 0


def test_collective_blocks_have_no_thread_work():
    s = start(get("gemm").program, {"M": 64, "N": 64, "K": 64}).split("i", 16, into=("io", "ii")).bind("io", "block.x")
    assert thread_work(s.program, launches(s.program)[0], Reader()) is None


def test_more_blocks_take_longer_and_none_takes_nothing():
    figures = block_figures(work(tiled()), load("rtx-3090"), {})
    times = [float(figures.cycles(n)[0]) for n in range(6)]
    assert times[0] == 0 and all(a < b for a, b in itertools.pairwise(times))
    assert times[4] < 4 * times[1]  # they overlap


def test_a_machine_without_sms_is_refused():
    with pytest.raises(TargetError, match="no SMs"):
        block_figures(work(tiled()), load("tpu-v5e"), {})


def test_vectors_of_a_struct_are_elements():
    s = tiled(vector=16, staged=False)  # 32 bytes of W at once
    by_front = {front: block_figures(work(s), load("rtx-3090"), {}, front) for front in (OPENCL, CUDA)}
    assert by_front[OPENCL].seconds[0] != by_front[CUDA].seconds[0]


def on_threads(s: Schedule, TY: int, TX: int, RI: int, RJ: int, KB: int) -> Schedule:
    """A tile of TY·RI × TX·RJ of `gemm`, RI × RJ results a thread, operands read from global memory."""
    s = s.split("i", RI, into=("gi", "i1")).split("j", RJ, into=("gj", "j1"))
    s = s.split("gi", TY, into=("bi", "ty")).split("gj", TX, into=("bj", "tx")).reorder("bi", "bj", "ty", "tx", "i1", "j1")
    s = s.split("k", KB, into=("ko", "ki")).reorder("ty", "tx", "ko", "ki", "i1", "j1").place("acc", "register", at="bj")
    s = s.bind("bi", "block.y").bind("bj", "block.x")
    phases = [v.removesuffix(".ty") for v in s.loops if v.endswith(".ty")] or [""]
    names = [f"{p}." if p else "" for p in phases]
    return s.bind(tuple(f"{p}ty" for p in names), "thread.y").bind(tuple(f"{p}tx" for p in names), "thread.x")


def test_a_structure_and_its_programs_take_the_same_time():
    """Formulas at marker numbers against exact prices, for launches with bound threads."""
    sizes = {"M": 256, "N": 512, "K": 128}
    markers = Markers.of(("TY", "TX", "RI", "RJ", "KB"))
    fresh = start(get("gemm").program, {})
    found = formulas(on_threads(fresh, **dict(markers.values)).program, markers)
    assert found.launches[0].inner is not None
    rng = np.random.default_rng(2)
    knobs = {k: rng.choice(v, 6) for k, v in {"TY": [4, 8], "TX": [8, 16], "RI": [1, 4], "RJ": [2, 4], "KB": [8, 32]}.items()}
    for target in ("a100-sxm", "rtx-3090"):
        bulk = evaluate_all(found, load(target), sizes, knobs).seconds
        for n in range(6):
            one = {k: int(v[n]) for k, v in knobs.items()}
            exact = price(on_threads(fresh, **one).program, target, sizes)
            assert exact.time == pytest.approx(bulk[n], rel=1e-9), one


def test_copies_in_flight_take_no_registers():
    s = tiled()
    ahead = s.pipeline("ko", stages=2)
    apart = [max(value(p.staged) for g in work(x).groups for p in g.phases) for x in (s, ahead)]
    assert apart == [8, 0]


def test_a_triangle_has_no_full_tile():
    s = start(get("syrk").program, {"N": 64})
    s = s.bind("i", "block.x").bind("j", "thread.x")
    with pytest.raises(NoFullTile, match="grows with an outer loop"):
        thread_work(s.program, launches(s.program)[0], Reader())
    assert full_work(s.program, launches(s.program)[0], Reader()) is None
    assert price(s.program, "a100-sxm").time > 0
