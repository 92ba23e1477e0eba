"""Which part of the outputs can be computed by itself, so that a large run is checked against the reference in little time.

A size s is *free* when the iterations of its loops have nothing to do with each other, by this rule on the original program:
  - every loop whose bounds name s is `range(s)`, no guard and no other loop's bounds name it or its variable, no value does;
  - a statement has at most one such loop v; every access that names v has the plain index `v`, in one place;
  - a buffer is indexed by such a v in the same place by all its accesses, or by none of them, and then no statement under such a
    loop writes it.
The rows of a product are free, and its columns; its k is not. Computing a free size's iterations 0, 5 and 9 alone, on arrays that
hold the rows 0, 5 and 9, gives these rows to the bit: each keeps its own operations in their order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilec.ir.affine import Aff
from tilec.ir.expr import Index, walk
from tilec.ir.program import Access, Guard, Leaf, Loop, Program
from tilec.ir.tree import sites

EDGE = 4  # of a sample, at either end of the range


@dataclass(frozen=True)
class Sample:
    """sizes: of the reduced problem. chosen: which iterations of each reduced size, ascending. axes: buffer -> (axis, size)."""

    sizes: Mapping[str, int]
    chosen: Mapping[str, tuple[int, ...]]
    axes: Mapping[str, tuple[tuple[int, str], ...]]

    def part(self, name: str, array: np.ndarray) -> np.ndarray:
        """The cells of a parameter that the reduced problem has, as a new contiguous array."""
        for axis, size in self.axes.get(name, ()):
            if size in self.chosen:
                array = array.take(self.chosen[size], axis)
        return np.ascontiguousarray(array)

    @property
    def whole(self) -> bool:
        """Is nothing left out?"""
        return not self.chosen


def free_sizes(program: Program) -> dict[str, dict[str, int]]:
    """The free sizes of an original program, each with buffer -> the dimension that its loops index."""
    out: dict[str, dict[str, int]] = {}
    for size in program.sizes:
        found = _free(program, size)
        if found is not None:
            out[size] = found
    return out


def sample(program: Program, sizes: Mapping[str, int], work: float, seed: int = 0) -> Sample:
    """A part of the problem of at most about `work` statement instances, or all of it where that is not more.

    program: the original, with its sizes open. Free sizes are halved, the largest first, down to nine iterations: those at both
    ends, and others from the seed.
    """
    free = free_sizes(program)
    left = dict(sizes)
    while instances(program, left) > work:
        largest = max((s for s in free if left[s] > 2 * EDGE + 1), key=lambda s: left[s], default=None)
        if largest is None:
            break
        left[largest] = max(2 * EDGE + 1, left[largest] // 2)
    chosen = {}
    for s in free:
        if left[s] < sizes[s]:
            rng = random.Random(f"{seed} {s} {sizes[s]}")
            ends = {*range(EDGE), *range(sizes[s] - EDGE, sizes[s])}
            rest = rng.sample(range(EDGE, sizes[s] - EDGE), left[s] - len(ends))
            chosen[s] = tuple(sorted({*ends, *rest}))
    axes: dict[str, list[tuple[int, str]]] = {}
    for s in chosen:
        for buffer, axis in free[s].items():
            axes.setdefault(buffer, []).append((axis, s))
    return Sample({**sizes, **left}, chosen, {b: tuple(a) for b, a in axes.items()})


def instances(program: Program, sizes: Mapping[str, int]) -> int:
    """Statement instances of an original program, at most: loops whose bounds move with others count with their widest range."""
    total = 0
    for site in sites(program.body):
        if not isinstance(site.action, Leaf):
            continue
        ranges: dict[str, tuple[int, int]] = {n: (v, v) for n, v in sizes.items()}
        count = 1
        for loop in site.loops:
            low = max(_range(e, ranges)[0] for e in loop.lower)
            high = min(_range(e, ranges)[1] for e in loop.upper)
            ranges[loop.var] = (low, max(low, high - 1))
            count *= max(0, high - low)
        total += count
    return total


def _range(e: Aff, ranges: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    low = high = e.const
    for atom, c in e.terms:
        if isinstance(atom, str):
            a, b = ranges[atom]
        else:
            a, b = (x // atom.den for x in _range(atom.num, ranges))
        low, high = low + min(c * a, c * b), high + max(c * a, c * b)
    return low, high


def _free(program: Program, size: str) -> dict[str, int] | None:
    """buffer -> dimension, or None where the size is not free."""
    if any(size in c.names for c in program.where) or size in dict(program.bound):
        return None
    place: dict[str, int] = {}
    without: set[str] = set()
    only = Aff.of(size)
    for site in sites(program.body):
        mine = [n for n in site.path if isinstance(n, Loop) and (n.upper, n.lower) == ((only,), (Aff(0),))]
        if len(mine) > 1:
            return None
        names = {size, *(n.var for n in mine)}
        for node in site.path:
            if isinstance(node, Guard) and any(c.names & names for c in node.conditions):
                return None
            if isinstance(node, Loop) and node not in mine and any(e.names & names for e in (*node.lower, *node.upper)):
                return None
        if not isinstance(site.action, Leaf):
            return None
        statement = program.statement[site.action.statement]
        if any(x.aff.names & names for x in walk(statement.value) if isinstance(x, Index)):
            return None
        for access in (statement.target, *statement.reads):
            at = _position(access, mine[0].var if mine else None, names)
            if at is None:
                return None
            if at < 0:
                without.add(access.buffer)
                if access is statement.target and mine:
                    return None
            elif place.setdefault(access.buffer, at) != at:
                return None
    if not place or without & set(place):
        return None
    for b in program.buffers:
        dims = [n for n, e in enumerate(b.shape) if size in e.names]
        if b.private == 0 and dims != ([place[b.name]] if b.name in place else []):
            return None
        if any(size in e.names and e != only for e in b.shape):
            return None
    return place


def _position(access: Access, var: str | None, names: set[str]) -> int | None:
    """Where the plain variable stands in the index; -1: nowhere; None: otherwise than alone and once, or the size itself does."""
    found = [n for n, e in enumerate(access.index) if e.names & names]
    if not found:
        return -1
    if var is None or len(found) > 1 or access.index[found[0]] != Aff.of(var):
        return None
    return found[0]
