"""`price` against the reference figures, and against an enumeration of the tree in plain Python."""

from __future__ import annotations

import itertools
import json
import pickle
from collections import Counter, defaultdict

import numpy as np
import pytest

from tests.handbuilt import gemm_silu_tiled
from tilec import api
from tilec.cost.counting import Runs
from tilec.cost.price import price
from tilec.errors import CountError, ResourceError, ScheduleError, TargetError
from tilec.ir.dtypes import DTYPES
from tilec.ir.expr import Binary, Index, Load, Scalar, walk
from tilec.ir.program import ORDERED_KINDS, THREAD_KINDS, Copy, Guard, Inline, Leaf, Loop, Merge
from tilec.ir.tree import addresses, sites, updates
from tilec.poly.count import Counter as CountingMachine

MIB = 2**20
BIG = {"M": 1024, "K": 4096, "N": 12288}


class Enumerated:
    """Runs a program's loops one by one and writes down every access. Shares nothing with the counting under test."""

    def __init__(self, program, sizes):
        self.program = program
        self.moved = Counter()  # (memory, buffer, direction, fill) -> bytes
        self.cells = defaultdict(set)  # global buffer -> cells
        self.kept = defaultdict(set)  # (register buffer, block, thread) -> cells
        self.flops = 0
        self.barriers = 0
        self.run(program.body, dict(sizes), [])

    def run(self, body, env, loops):
        for node in body:
            if isinstance(node, Loop):
                start = max(e.eval(env) for e in node.lower)
                for x in range(start, min(e.eval(env) for e in node.upper)):
                    self.run(node.body, {**env, node.var: x}, [*loops, (node, start)])
            elif isinstance(node, Guard):
                if all(c.holds(env) for c in node.conditions):
                    self.run(node.body, env, loops)
            else:
                self.note(node, env, loops)

    def note(self, action, env, loops):
        self.barriers += type(action).__name__ == "Barrier"
        found = addresses(action, self.program)
        rank = {"register": 0, "shared": 1, "scratch": 1, "global": 2}
        ranks = [rank[self.program.buffer[a.buffer].memory] for a, _, _ in found]
        for a, _, is_write in found:
            b = self.program.buffer[a.buffer]
            size = DTYPES[b.dtype].bits // 8
            fill = isinstance(action, Copy) and rank[b.memory] < max(ranks)
            self.moved[b.memory, b.name, "write" if is_write else "read", fill] += size
            if is_write and updates(action, self.program):
                self.moved[b.memory, b.name, "read", fill] += size
            index = tuple(e.eval(env) for e in a.index)
            depth = next((n + 1 for n, (loop, _) in enumerate(loops) if loop.var == b.owner), 0)
            own = tuple(env[loop.var] for loop, _ in loops[:depth] if loop.kind not in ORDERED_KINDS)
            if b.memory == "global":
                self.cells[b.name].add((own, index))
            if b.memory == "register":
                block = tuple(env[loop.var] for loop, _ in loops if loop.kind.startswith("block"))
                thread = {loop.kind: env[loop.var] - start for loop, start in loops if loop.kind in THREAD_KINDS}
                self.kept[b.name, block, tuple(sorted(thread.items()))].add(index)
        if isinstance(action, Leaf):
            self.flops += self.count(action.statement, action.reads)
        if isinstance(action, Merge):
            self.flops += action.op in ("+=", "*=")

    @staticmethod
    def of_indices(node):
        leaves = [n for n in walk(node) if isinstance(n, Load | Scalar | Index)]
        return node.dtype == "i32" and bool(leaves) and all(isinstance(n, Index) for n in leaves)

    def count(self, statement, reads):
        s = self.program.statement[statement]
        own = sum(isinstance(n, Binary) and n.op in "+-*/" and not self.of_indices(n) for n in walk(s.value))
        own += s.op in ("+=", "*=")
        return own + sum(self.count(r.statement, r.reads) for r in reads if isinstance(r, Inline))


def agree(program, sizes, **more):
    """The priced numbers equal the enumerated ones, with sizes bound late (formulas) and early (numbers)."""
    e = Enumerated(program, sizes)
    c = price(program, None, sizes, **more)
    got = Counter()
    for f in c.traffic.flows:
        got[f.memory, f.buffer, f.direction, f.fill] += int(f.bytes.eval(sizes))
    assert +got == +e.moved
    assert c.flops == e.flops and c.barriers == e.barriers
    distinct = {n: len(cells) * DTYPES[program.buffer[n].dtype].bytes for n, cells in e.cells.items()}
    assert {n: v for n, v in c.footprint.by_buffer("global").items() if v} == distinct
    for memory in ("global", "shared"):
        assert c.traffic.total(memory) == sum(v for (m, _, _, fill), v in e.moved.items() if m == memory and not fill)
        assert c.traffic.fill(memory) == sum(v for (m, _, _, fill), v in e.moved.items() if m == memory and fill)
    return c, e


def tiled(kernel, bm, bn, bk, stages=1, memory="shared", **sizes):
    s = kernel.schedule(**sizes).compute_inline("C").split("Y.i", bm, into=("io", "ii")).split("Y.j", bn, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ii", "ji").compute_at("acc", "jo").split("acc.k", bk, into=("ko", "ki"))
    s = (
        s.reorder("ko", "acc.i", "acc.j", "ki")
        .cache_read("A", at="ko", memory="shared")
        .cache_read("W", at="ko", memory="shared")
    )
    s = s.place("acc", memory).bind("io", "block.y").bind("jo", "block.x")
    return s.pipeline("ko", stages=stages) if stages > 1 else s


@pytest.mark.parametrize(
    ("tile", "kib", "mib", "intensity"), [(32, 8, 6168, 15.94), (64, 24, 3096, 31.75), (128, 80, 1560, 63.02)]
)
def test_gemm_at_the_reference_tiles(tile, kib, mib, intensity):
    c = price(gemm_silu_tiled(tile), "rtx-pro-6000", BIG)
    assert c.footprint["shared"] == kib * 1024
    assert c.traffic.total("global") == mib * MIB
    assert c.intensity("global") == pytest.approx(intensity, abs=0.005)
    assert c.flops == 103_079_215_104
    assert c.occupancy.limits["shared"] == {8: 11, 24: 4, 80: 1}[kib]
    assert c.lower_bound("global") == c.footprint["global"] == 128 * MIB
    assert str(c.traffic.formula("global")) == f"2*(K*M*ceil(N/{tile}) + K*N*ceil(M/{tile}) + M*N)"
    assert c.launch[0].blocks == (1024 // tile) * (12288 // tile)


def test_partial_tiles_are_exact():
    odd = {"M": 1000, "K": 1001, "N": 1003}
    for tile in (32, 64, 128):
        c = price(gemm_silu_tiled(tile), None, odd)
        m, k, n = odd["M"], odd["K"], odd["N"]
        rows, columns = -(-m // tile), -(-n // tile)
        want = 0
        for io, jo, ko in itertools.product(range(rows), range(columns), range(-(-k // 32))):
            a, b, d = min(tile, m - io * tile), min(tile, n - jo * tile), min(32, k - ko * 32)
            want += 2 * (a * d + d * b) + (2 * a * b if ko == 0 else 0)
        assert c.traffic.total("global") == want
    agree(gemm_silu_tiled(4, 3), {"M": 10, "N": 9, "K": 7})
    agree(gemm_silu_tiled(4, 3), {"M": 1, "N": 1, "K": 1})
    agree(gemm_silu_tiled(4, 3), {"M": 8, "N": 4, "K": 3})


def test_the_pipelined_gemm_moves_the_same_bytes():
    kernel = api.workload("gemm_silu")
    plain = tiled(kernel, 4, 4, 3)
    for stages in (2, 3):
        s = tiled(kernel, 4, 4, 3, stages)
        for sizes in ({"M": 10, "N": 9, "K": 7}, {"M": 3, "N": 5, "K": 2}, {"M": 4, "N": 4, "K": 3}):
            c, _ = agree(s.program, sizes)
            assert c.traffic.formula("global") == price(plain.program).traffic.formula("global")
        assert c.footprint["shared"] == 16 * 4 + stages * 2 * (12 + 12)


def test_a_bound_program_costs_the_same():
    kernel = api.workload("gemm_silu")
    sizes = {"M": 10, "N": 9, "K": 7}
    late, early = price(tiled(kernel, 4, 4, 3).program, None, sizes), price(tiled(kernel, 4, 4, 3, **sizes).program)
    assert late.traffic.by_buffer("global") == early.traffic.by_buffer("global")
    assert late.flops_by_kind == early.flops_by_kind and early.sizes == sizes
    agree(tiled(kernel, 4, 4, 3, **sizes).program, {})


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("gemm", {"M": 3, "N": 4, "K": 2}),
        ("act_chain", {"M": 3, "N": 5}),
        ("rowquant_gemm", {"M": 3, "N": 4, "K": 5}),
        ("softmax", {"M": 3, "N": 4}),
        ("layernorm", {"M": 2, "K": 5}),
        ("attention", {"M": 3, "N": 4, "D": 2}),
        ("conv2d", {"B": 2, "K": 2, "C": 3, "P": 4, "Q": 3, "R": 2, "S": 3}),
        ("blur", {"M": 4, "N": 3}),
        ("jacobi2d", {"N": 6, "T": 3}),
        ("jacobi2d", {"N": 2, "T": 1}),
        ("syrk", {"N": 6}),
        ("transpose", {"M": 3, "N": 4}),
        ("dot", {"N": 5}),
    ],
)
def test_library_kernels_equal_enumeration(name, sizes):
    agree(api.workload(name).schedule().program, sizes)


def test_naive_gemm_intensity():
    c = price(api.workload("gemm").schedule().program, None, {"M": 128, "N": 128, "K": 128})
    assert c.intensity("global") == pytest.approx(0.498054474708171, rel=1e-12)
    assert c.traffic.by_buffer("global")["A"].read == 2 * 128**3
    assert c.traffic.by_buffer("global")["C"] == c.traffic.by_buffer("global")["C"].write == 2 * 128**2


def test_working_set_of_the_chain():
    c = price(api.workload("act_chain").schedule().program, None, {"M": 1024, "N": 12288})
    assert c.working_set["global"] == 72 * MIB
    assert c.working_set.timeline == (72 * MIB, 72 * MIB, 36 * MIB)
    assert c.traffic.total("global") == 156 * MIB and c.launches == 3
    fused = api.workload("act_chain").schedule().compute_inline("T").compute_inline("Z")
    f = price(fused.program, None, {"M": 1024, "N": 12288})
    assert (f.working_set["global"], f.traffic.total("global"), f.launches) == (60 * MIB, 60 * MIB, 1)


def test_registers_per_thread_and_of_a_collective_block():
    kernel = api.workload("gemm_silu")
    s = tiled(kernel, 8, 8, 4, memory="register")
    assert price(s.program, None, BIG).footprint["register"] == 64 * 4
    assert "unknown" in price(s.program, None, BIG).footprint.marks[0]
    c = price(s.program, "h100-sxm", BIG, threads=48, registers=32)
    assert c.footprint["register"] == 2 * 4 and not c.footprint.marks  # 64 cells on 48 threads
    assert c.occupancy.warps == c.occupancy.blocks * 2


def test_registers_of_thread_loops_are_those_one_thread_reaches():
    s = tiled(api.workload("gemm_silu"), 8, 8, 4, memory="register")
    for loop, n in (("S0.i", 0), ("S1.i", 1), ("Y.ii", 2)):
        s = s.split(loop, 2, into=(f"t{n}", f"r{n}"))
    s = s.bind(("t0", "t1", "t2"), "thread.x")
    sizes = {"M": 10, "N": 9, "K": 7}
    c, e = agree(s.program, sizes)
    most = max(len(cells) for (name, _, _), cells in e.kept.items() if name == "acc")
    assert c.footprint["register"] == most * 4 == 16 * 4
    assert c.launch[0].threads == 4
    assert c.barriers > 0


def test_launches_barriers_and_largest_launch():
    s = api.workload("gemm_silu").schedule().bind("S0.i", "block.x").bind("Y.i", "block.x")
    c = price(s.program, "h100-sxm", {"M": 128, "N": 64, "K": 32}, threads=128, registers=64)
    assert c.launches == 2 and len(c.launch) == 2
    assert [one.blocks for one in c.launch] == [128, 128]
    assert sum(one.flops for one in c.launch) == c.flops
    assert sum(one.traffic.total("global") for one in c.launch) == c.traffic.total("global")
    assert c.time == pytest.approx(sum(one.time for one in c.launch))
    assert c.launch[0].waves(c.target).waves == 1


def test_time_and_bound():
    c = price(gemm_silu_tiled(64), "h100-sxm", BIG)
    terms = dict(c.estimate.terms)
    assert c.bound == "l2" and terms["launch"] == 0.9e-6
    # 3,072 blocks on 132 SMs: 24 on the busiest; each moves 64 rows and 64 columns of 4,096 bf16 values, stores 64 × 64
    assert terms["l2"] == pytest.approx(max(24 * (2 * 64 * 4096 * 2 + 64 * 64 * 2) / (64 * 1.83e9), c.traffic.total() / 9.37e12))
    assert c.time == pytest.approx(0.9e-6 + terms["l2"] + c.launch[0].estimate.detail.fill)
    low, high = c.range
    assert low <= c.time <= high and low == pytest.approx(103_079_215_104 / 989.4e12)
    assert price(gemm_silu_tiled(64), "v100", BIG).bound == "compute"  # bf16 without a matrix rate: the vector unit


def test_does_not_fit():
    c = price(tiled(api.workload("gemm_silu"), 128, 128, 64, 5).program, "rtx-pro-6000", BIG)
    assert not c.fits and c.occupancy.blocks == 0
    with pytest.raises(ResourceError) as e:
        c.require()
    assert str(e.value) == (
        "'gemm_silu' needs 229,376 B of shared memory per block; rtx-pro-6000 allows 101,376 B.\n"
        "  acc 65,536 B + A_shared 81,920 B + W_shared 81,920 B at 5 stages; the most stages that fit: 1"
    )
    tpu = price(gemm_silu_tiled(64), "tpu-v5e", BIG)
    assert tpu.fits and tpu.occupancy is None and tpu.bound == "global"


def test_symbolic_cost_has_formulas_and_refuses_numbers():
    c = price(gemm_silu_tiled(64))
    assert str(c.flops_formula) == "2*K*M*N"
    with pytest.raises(ResourceError, match="depends on K and M and N: give cost"):
        c.traffic.total("global")
    with pytest.raises(TargetError, match="no target"):
        _ = c.time
    with pytest.raises(ResourceError, match="time: it depends on M, N, K: give cost"):
        _ = price(gemm_silu_tiled(64), "h100-sxm").time
    many = c.traffic.formula("global").eval({"M": np.array([1024, 1000]), "K": 4096, "N": 12288})
    assert many[0] == 3096 * MIB
    assert json.loads(c.to_json())["traffic"]["global"]["total"] is None


def test_wrong_sizes():
    p = gemm_silu_tiled(64)
    with pytest.raises(ScheduleError, match=r"no size 'L'\. Sizes of gemm_silu: M, N, K"):
        price(p, None, {"L": 1})
    for bad, says in (
        (0, "between 1 and"),
        (2**31, r"between 1 and 2\^31 - 1"),
        (1.5, "must be an integer"),
        (True, "must be an integer"),
    ):
        with pytest.raises(ScheduleError, match=says):
            price(p, None, {"M": bad})
    bound = tiled(api.workload("gemm_silu"), 4, 4, 3, M=10, N=9, K=7).program
    assert price(bound, None, {"M": 10}).flops == 2 * 10 * 9 * 7
    with pytest.raises(ScheduleError, match="already bound to 10"):
        price(bound, None, {"M": 11})


def test_data_has_stable_keys_and_costs_pickle():
    c = price(gemm_silu_tiled(64), "h100-sxm", BIG, threads=256, registers=128)
    d = json.loads(c.to_json())
    assert list(d) == [
        "name", "target", "sizes", "traffic", "fill", "footprint", "footprint_marks", "working_set", "working_set_timeline",
        "flops", "flops_by_kind", "intensity", "lower_bound", "launches", "barriers",
        "occupancy", "time", "time_unknown", "time_range", "time_likely",
        "bound", "time_levels", "unchecked", "capacity_bound", "launch",
        "notes", "problems",
    ]  # fmt: skip
    assert d["traffic"]["global"]["buffers"]["A"]["read"] == 1536 * MIB
    assert d["footprint"]["shared"]["bytes"] == 24 * 1024 and d["occupancy"]["limiters"]
    copy = pickle.loads(pickle.dumps(c))
    assert copy.traffic.total("global") == c.traffic.total("global") and copy.data() == d


def test_explain_and_compare():
    a, b = price(gemm_silu_tiled(64), "rtx-pro-6000", BIG), price(gemm_silu_tiled(128), "rtx-pro-6000", BIG)
    text = a.explain()
    assert "global traffic 3096 MiB (3,246,391,296 B) = 2*(K*M*ceil(N/64) + K*N*ceil(M/64) + M*N)" in text
    assert "lower bound 128 MiB" in text and "bound by compute" in text
    both = a.explain(b)
    row = next(line for line in both.splitlines() if line.startswith("global traffic"))
    assert row.split() == ["global", "traffic", "3096", "MiB", "1560", "MiB", "×0.504"]


def test_large_triangle_at_once():
    c = price(api.workload("syrk").schedule().program, None, {"N": 1_000_000})
    assert c.flops == 2 * 1_000_000 * (1_000_000 * 1_000_001 // 2)


def test_count_error_names_the_loops():
    program = api.workload("syrk").schedule().program
    runs = Runs(program, {})
    runs.counter = CountingMachine(program.sizes, budget=1)
    with pytest.raises(CountError) as e:
        runs.of(next(iter(sites(program.body))))
    assert str(e.value).startswith(
        "cost: the runs of the leaf under i, j, k have no closed form in N: the operation budget is spent"
    )
    assert str(e.value).endswith("With numbers they may: give N")
    known = Runs(program, {"N": 6})
    known.counter = CountingMachine(program.sizes, budget=1)
    assert known.of(next(iter(sites(program.body)))).constant == 6 * 21
    assert "counted at these sizes" in known.notes[0]


@pytest.mark.parametrize(("inline", "mib"), [((), 156), (("T",), 108), (("Z",), 108), (("T", "Z"), 60)])
def test_the_four_partitions_of_the_chain(inline, mib):
    s = api.workload("act_chain").schedule()
    for name in inline:
        s = s.compute_inline(name)
    c = price(s.program, None, {"M": 1024, "N": 12288})
    assert c.traffic.total("global") == mib * MIB and c.launches == 3 - len(inline)
    assert c.lower_bound("global") == 60 * MIB


def test_stored_and_recomputed_quantisation():
    sizes = {"M": 4096, "N": 1536, "K": 4096}

    def blocked(s):
        s = s.split("Y.i", 128, into=("io", "ii")).split("Y.j", 128, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")
        return s.split("acc.k", 32, into=("ko", "ki")).reorder("io", "jo", "ko", "ii", "ji", "ki")

    kernel = api.workload("rowquant_gemm")
    stored = blocked(kernel.schedule().fuse_siblings("S.i", "Q.i").cache_read("A", at="S.i", memory="shared"))
    stored = stored.cache_read("Q", at="ko", memory="shared").cache_read("W", at="ko", memory="shared")
    stored = stored.cache_read("S", at="jo", memory="shared").place("acc", "shared")
    again = blocked(kernel.schedule()).compute_at("Q", "ko").place("Q", "shared").cache_read("W", at="ko", memory="shared")
    again = again.cache_read("S", at="jo", memory="shared").place("acc", "shared")
    for s, mib in ((stored, 444), (again, 620)):
        moved = price(s.program, None, sizes).traffic.by_buffer("global")
        assert sum(v for n, v in moved.items() if n != "S") == mib * MIB
    assert price(again.program, None, sizes).flops_by_kind["div"] == 12 * 4096 * 4096 + 4096


def test_stencil_with_recomputed_halo():
    s = api.workload("blur").schedule().split("Y.i", 3, into=("io", "ii")).split("Y.j", 4, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ii", "ji").compute_at("H", "jo").place("H", "shared").cache_read("X", at="jo", memory="shared")
    c, _ = agree(s.program, {"M": 8, "N": 9})
    assert str(c.traffic.formula("shared", "write", "H")) == "4*N*(M + 2*ceil(M/3))"
    agree(s.program, {"M": 1, "N": 2})
