"""Misses from reuse over the loop tree, against a plain LRU cache that replays every access, and against public simulations."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

import pytest

import tilec
from benchmarks.model import caches
from tilec import f32, f64, sizes
from tilec.api import Schedule
from tilec.cost.caches import cache_misses, reuse_profile
from tilec.errors import ResourceError, ScheduleError
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Guard, Loop, Program
from tilec.ir.tree import addresses

M, N, K = sizes("M N K")


@tilec.kernel
def triangle(A: f64[N, N], x: f64[N], y: f64[N]):
    for i in range(N):
        y[i] = 0
        for j in range(i + 1):
            y[i] += A[i, j] * x[j]


@tilec.kernel
def two_passes(A: f32[M, N], B: f32[M, N], C: f32[M, N]):
    for i in range(M):
        for j in range(N):
            B[i, j] = A[i, j] * 2
    for i in range(M):
        for j in range(N):
            C[i, j] = B[i, j] + A[i, j]


@tilec.kernel
def stencil(A: f64[M + 2, N + 2], B: f64[M, N]):
    for i in range(M):
        for j in range(N):
            B[i, j] = A[i, j + 1] + A[i + 2, j + 1] + A[i + 1, j] + A[i + 1, j + 2]


@tilec.kernel
def strided(A: f64[4 * N], B: f64[N]):
    for k in range(3):
        for i in range(N):
            B[i] = A[4 * i] + A[4 * i + 1]


def replayed(p: Program, line: int, env: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Every touch of a line, in order."""

    def run(nodes: tuple, env: dict[str, int]) -> Iterator[tuple[str, int]]:
        for node in nodes:
            if isinstance(node, Loop):
                for v in range(max(e.eval(env) for e in node.lower), min(e.eval(env) for e in node.upper)):
                    yield from run(node.body, {**env, node.var: v})
            elif isinstance(node, Guard):
                if all(c.holds(env) for c in node.conditions):
                    yield from run(node.body, env)
            else:
                for a, _, _ in addresses(node, p):
                    b = p.buffer[a.buffer]
                    if b.memory == "global":
                        at = 0
                        for e, extent in zip(a.index, b.shape, strict=True):
                            at = at * extent.eval(env) + e.eval(env)
                        yield b.name, at * DTYPES[b.dtype].bytes // line

    return run(p.body, env)


def lru_misses(p: Program, capacity: int, line: int, env: dict[str, int]) -> int:
    held: OrderedDict[tuple[str, int], None] = OrderedDict()
    misses = 0
    for touched in replayed(p, line, env):
        if touched in held:
            held.move_to_end(touched)
            continue
        misses += 1
        held[touched] = None
        if len(held) > capacity // line:
            held.popitem(last=False)
    return misses


def gemm_in_tiles(n: int, tile: int) -> Schedule:
    return caches.tiled(n, tile, tile, tile, "ijk")


CASES = [
    ("triangle", triangle.schedule(), {"N": 40}),
    ("two passes", two_passes.schedule(), {"M": 24, "N": 40}),
    ("passes fused", two_passes.schedule().fuse_siblings("B.i", "C.i"), {"M": 24, "N": 40}),
    ("stencil", stencil.schedule(), {"M": 30, "N": 30}),
    ("stencil in tiles", stencil.schedule().split("i", 8).split("j", 7).reorder("i_o", "j_o", "i_i", "j_i"), {"M": 30, "N": 30}),
    ("strided", strided.schedule(), {"N": 100}),
    ("gemm in tiles", gemm_in_tiles(24, 8), {}),
    ("gemm with partial tiles", gemm_in_tiles(22, 8), {}),
]


@pytest.mark.parametrize(("name", "s", "given"), CASES, ids=[c[0] for c in CASES])
def test_misses_are_those_of_a_replay(name: str, s: Schedule, given: dict[str, int]) -> None:
    """Exact at the ends (everything fits; hardly anything does); in between within the sampling of distances."""
    profile = reuse_profile(s.program, 64, given)
    env = dict(given)
    whole = 64 * sum(profile.first.values())
    assert profile.misses(whole).total == lru_misses(s.program, whole, 64, env) == sum(profile.first.values())
    for lines in (4, 8, 16, 32, 64, 128):
        replay = lru_misses(s.program, lines * 64, 64, env)
        assert profile.misses(lines * 64).total == pytest.approx(replay, rel=0.12), lines


def test_the_distance_decides() -> None:
    """Two passes over 100 lines of A: 2 lines between a reuse and the use before, besides the 99 others of A and B's."""
    s = two_passes.schedule()
    given = {"M": 20, "N": 32}  # 40 lines an array
    profile = reuse_profile(s.program, 64, given)
    assert profile.first == {"A": 40, "B": 40, "C": 40}
    assert profile.misses(64 * 2000).total == 120
    assert profile.misses(64 * 40).total == 200  # A and B of the first pass are gone at the second
    assert profile.misses(64 * 40).by_buffer == {"A": 80, "B": 80, "C": 40}
    assert "A again over the whole (statements): 40 of 40" in str(profile.misses(64 * 40))


def test_public_simulations() -> None:
    """At least 80 % of the rows of fully associative caches within 5 %."""
    found = [f for f in caches.compared() if f["full"]]
    assert len(found) == 56
    assert sum(abs(f["error"]) <= 0.05 for f in found) >= 0.8 * 56


def test_large_sizes_are_not_enumerated() -> None:
    """4096³ in tiles of 64 in a 1 MiB cache: closed counts and drawn distances, 69 billion accesses."""
    found = cache_misses(caches.tiled(4096, 64, 64, 64, "ijk").program, 1 << 20)
    compulsory = 3 * 4096 * 4096 * 8 // 64
    per_tile = 4096**3 // 64 // 8  # lines of A or B when each tile is fetched once
    assert found.compulsory == compulsory
    assert compulsory <= found.total <= 1.1 * (2 * per_tile + compulsory)


def test_mistakes() -> None:
    s = triangle.schedule()
    with pytest.raises(ResourceError, match="cache_misses: 32 B hold no line of 64 B"):
        s.cache_misses(32, N=10)
    with pytest.raises(ResourceError, match="power of two, got 48"):
        s.cache_misses(4096, 48, N=10)
    with pytest.raises(ResourceError, match="give numbers for all sizes: N are open"):
        s.cache_misses(4096)
    with pytest.raises(ScheduleError, match="Q"):
        s.cache_misses(4096, Q=3)
