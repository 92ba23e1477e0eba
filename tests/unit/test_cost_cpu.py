"""The time model of a CPU: its terms by hand on small nests, against exact cache misses, and that what should be faster is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilec
from tilec import f32, sizes, workloads
from tilec.cost.caches import cache_misses
from tilec.cost.cpu import NARROW, _busiest, combined, cpu_time, program_time
from tilec.cost.cpu_traffic import Cache, Traffic
from tilec.cost.cpu_tree import Builder
from tilec.cost.price import price
from tilec.schedule.schedule import Schedule, start
from tilec.search.cpu import pick
from tilec.search.cpu_operands import Blocks
from tilec.search.nests import nests
from tilec.targets import load

DATA = Path(__file__).parent.parent / "data"
ZEN3, ZEN4 = load(DATA / "host_zen3.toml"), load(DATA / "host_zen4.toml")
M, N, K = sizes("M N K")


@tilec.kernel
def scale(A: f32[M, N], B: f32[M, N]):
    for i in range(M):
        for j in range(N):
            B[i, j] = A[i, j] * 2.0


@tilec.kernel
def gemm(A: f32[M, K], W: f32[K, N], C: f32[M, N]):
    for i in range(M):
        for j in range(N):
            acc: f32 = 0
            for k in range(K):
                acc += A[i, k] * W[k, j]
            C[i, j] = acc


def times(s: Schedule, machine=ZEN3, threads: int = 1) -> dict[str, float]:
    out: dict[str, float] = {}
    for n, node in enumerate(s.program.body):
        for name, t in cpu_time(s.program, node, machine, {}, threads, first=n == 0).terms:
            out[name] = out.get(name, 0.0) + t
    return out


def traffic(s: Schedule, capacity: int, ways: float = float("inf")) -> float:
    """Bytes fetched over the edge of a cache of that size, by the model."""
    nests = [Builder(s.program, {}).tree(node) for node in s.program.body]
    found = Traffic(s.program, {}, 64)
    return sum(float(np.mean(found.of(top, Cache(capacity, ways))[0])) for top in nests)


def test_the_bytes_of_a_pass_over_memory():
    s = start(scale.program, {"M": 4096, "N": 4096})
    t = times(s)
    read, written = 4 * 4096**2, 4 * 4096**2
    store = max(2 / ZEN3.rate("copy") - 1 / ZEN3.rate("read"), 0.2 / ZEN3.rate("read"))
    assert t["global"] == pytest.approx(read / ZEN3.rate("read") + written * store, rel=1e-6)
    assert t["overhead"] == pytest.approx(ZEN3.rate("call"))
    past = start(scale.program, {"M": 4096, "N": 4096}).split("j", 8, into=("jo", "jl")).vectorize("jl").store("B")
    assert times(past)["global"] < t["global"]  # a store past the caches does not read first


def test_a_sum_waits_for_itself():
    """One sum, one term after the other: four cycles each; with rows of sums side by side, the arithmetic binds."""
    numbers = {"M": 128, "N": 128, "K": 256}
    plain = start(gemm.program, numbers)
    waits = 128 * 128 * 256 * 4 / ZEN3.figure["clock"].value
    assert waits <= times(plain)["compute"] < 1.5 * waits
    rows = plain.split("j", 16, into=("jo", "ji")).reorder("i", "jo", "k", "ji")
    assert times(rows)["compute"] < 0.5 * waits


def test_vectors_are_faster_and_threads_share():
    numbers = {"M": 64, "N": 1024}
    program = workloads.get("act_chain").program
    plain = start(program, numbers).compute_inline("T").compute_inline("Z")
    vector = plain.split("j", 8, into=("jo", "jl")).vectorize("jl")
    assert times(vector)["compute"] <= times(plain)["compute"]
    shared = vector.parallel("i")
    one, two = times(shared, threads=1), times(shared, threads=2)
    assert two["compute"] == pytest.approx(one["compute"] / 2, rel=0.02)
    assert two["overhead"] > one["overhead"]
    assert times(vector, threads=2)["compute"] == pytest.approx(one["compute"], rel=0.02)  # nothing runs in parallel there
    uneven = start(program, {"M": 3, "N": 1024}).compute_inline("T").compute_inline("Z").parallel("i")
    assert times(uneven, threads=2)["compute"] == pytest.approx(times(uneven, threads=1)["compute"] * 2 / 3, rel=0.02)


def test_wider_vectors_and_faster_machines_are_seen():
    numbers = {"M": 64, "N": 1024}
    s = start(workloads.get("act_chain").program, numbers).compute_inline("T").compute_inline("Z")
    s = s.split("j", 16, into=("jo", "jl")).vectorize("jl")
    assert times(s, ZEN4)["compute"] < times(s, ZEN3)["compute"]


@pytest.mark.parametrize("capacity", [1 << 11, 1 << 13, 1 << 15])
def test_bytes_between_caches_against_exact_misses(capacity: int):
    """A product too large for the cache and one that fits, against the count of a fully associative cache: within a factor two,
    and in the same order."""
    seen = []
    for n in (16, 32, 64):
        s = start(gemm.program, {"M": n, "N": n, "K": n})
        mine = traffic(s, capacity)
        exact = cache_misses(s.program, capacity, 64, {}).total * 64
        assert 0.4 < mine / exact < 2.5, (n, mine, exact)
        seen.append((mine, exact))
    assert sorted(seen) == sorted(seen, key=lambda x: x[1])


def test_blocking_reduces_the_bytes():
    numbers = {"M": 256, "N": 256, "K": 256}
    plain = start(gemm.program, numbers)
    tiles = start(gemm.program, numbers).split("i", 32, into=("io", "ii")).split("j", 32, into=("jo", "ji"))
    tiles = tiles.reorder("io", "jo", "ii", "ji").split("k", 32, into=("ko", "ki")).reorder("ko", "ii", "ji", "ki")
    assert traffic(tiles, 1 << 15) < 0.5 * traffic(plain, 1 << 15)
    assert traffic(plain, 1 << 30) == 3 * 4 * 256**2  # each array once
    assert traffic(tiles, 1 << 30) == 4 * 4 * 256**2  # the sums, too: outside a k block they are an array


def test_a_cost_on_the_host_uses_it():
    s = start(workloads.get("act_chain").program, {"M": 256, "N": 512})
    c = price(s.program, ZEN3, {}, threads=1)
    assert c.time == pytest.approx(program_time(s.program, ZEN3, {}, 1)[0])
    assert c.bound in ("compute", "global", "l2", "l3")
    open_ = start(workloads.get("act_chain").program)
    assert price(open_.program, ZEN3, {"M": 256, "N": 512}, threads=1).time == pytest.approx(c.time)


def test_terms_overlap_but_for_a_share():
    assert combined({"compute": 1.0, "global": 0.5, "overhead": 0.1}) == pytest.approx(1.0 + 0.15 * 0.5 + 0.1)
    assert combined({}) == 0.0


@pytest.mark.parametrize("name", workloads.names())
def test_every_kernel_has_a_time(name: str):
    program = workloads.get(name).program
    s = start(program, dict(zip(program.sizes, (33, 40, 17, 9, 12, 3, 3), strict=False)))
    for threads in (1, 2):
        seconds, moved = program_time(s.program, ZEN3, {}, threads)
        assert 0 < seconds < 1 and moved > 0


def tile(rows: int, columns: int, packed: bool = False) -> dict[str, float]:
    """Terms of a contraction of 480 in micro-tiles."""
    b = Blocks(rows, columns, columns, packed=packed)
    name = nests(gemm.program)[1][-1].name
    s = pick(gemm.program, ZEN4, {name: b}, sizes={"M": 480, "N": 480, "K": 480}, contract=True).schedule
    return times(s, ZEN4)


def test_a_tile_in_registers_loads_its_operands_once():
    """Twelve by two vectors of 16: 24 multiply-adds for 14 loads; one by one vector: 2 loads for each, and each waits."""
    work = 2 * 480**3 / ZEN4.rate("fma_f32", 1)
    assert work < tile(12, 32)["compute"] < 1.15 * work
    assert tile(1, 16)["compute"] > 3 * work


def test_what_a_condition_lets_pass_seldom_counts_seldom():
    """The first of forty rows of tiles packs: two loads and stores beside its 24 multiply-adds."""
    packed, place = tile(12, 32, packed=True), tile(12, 32)
    assert packed["compute"] < 1.02 * place["compute"]
    assert packed["l2"] < 1.2 * place["l2"] and packed["l3"] < 1.2 * place["l3"]


def test_rows_a_power_of_two_apart_collide():
    """Sixteen rows of one line, 4 KiB apart, read twice: they fit in 32 KiB, but not in 8 ways of its sets."""

    @tilec.kernel
    def columns(A: f32[M, N], B: f32[K, M]):
        for k in range(K):
            for i in range(M):
                B[k, i] = A[i, 0]

    def bytes_of(width: int) -> float:
        return traffic(start(columns.program, {"M": 16, "N": width, "K": 64}), 32 << 10, 8)

    assert bytes_of(1024) > 10 * bytes_of(1024 + 16) / 2
    assert bytes_of(1024 + 16) < 2 * (16 * 128 + 64 * 128)


def test_the_busiest_thread_of_unequal_pieces():
    assert _busiest(2, 2, 1.0) == 0.5
    assert _busiest(3, 2, 1.0) == pytest.approx(2 / 3)
    assert _busiest(2, 2, 1.5) == pytest.approx(0.75), "pieces of 384 and 128 columns"
    assert _busiest(1000, 2, 2.0) == pytest.approx(0.501), "a triangle in many rows"
    assert _busiest(7, 1, 3.0) == 1.0


def test_a_narrower_vector_is_not_half_the_price():
    s = start(scale.program, {"M": 512, "N": 512})
    full, half = (times(s.split("j", w, into=("jo", "ji")).vectorize("ji"), ZEN4)["compute"] for w in (16, 8))
    assert half >= 2 * NARROW * full * 0.99
