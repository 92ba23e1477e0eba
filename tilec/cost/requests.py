"""What each access of a phase takes: instructions, turns of shared memory, lines of L1, from the addresses of the first warp.

Addresses are enumerated once per combination of the knobs that they depend on, and shared by all candidates that have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tilec.cost.banks import BANKS, LINE
from tilec.cost.lanes import distinct, lines, wavefronts
from tilec.cost.term import Num, Term, evaluate, multiply, names
from tilec.cost.threadwork import Phase, Request, ThreadWork
from tilec.ir.layouts import address

WIDEST = 16  # bytes of one instruction
_DENSE = 1 << 20  # combinations that are told apart by a table

# What a front end makes of vector types. OpenCL: vectors of more than 16 bytes are cut into such, and elements that a thread
# reads one after another from shared memory are joined as far as the alignment of the arrays laid out before them proves it.
# CUDA C++: a vector of more than 16 bytes is a struct, accessed element by element, and nothing is joined.
OPENCL, CUDA = "opencl", "cuda"


@dataclass(frozen=True)
class Found:
    """Per request: instructions an access takes; turns of shared memory, lines of L1, and the least its bytes need; threads of
    the block that access different elements."""

    pieces: np.ndarray  # a share, where several accesses are one instruction
    turns: np.ndarray
    lines: np.ndarray
    least: np.ndarray
    different: np.ndarray


@dataclass(frozen=True)
class Lanes:
    """Addresses of the lanes of the first warp, enumerated once per combination of the knobs that they depend on."""

    work: ThreadWork
    environment: Mapping[str, Any]
    n: int
    front: str

    def of(self, r: Request, p: Phase) -> Found:
        before = self._before(r, p)
        shape = (*r.index, *r.extents, *(e for _, e in self.work.axes))
        used = set().union(*(names(t) for t in (r.vector, r.step, r.steps, *before, *shape)))
        keys = sorted(k for k in used if isinstance(self.environment.get(k), np.ndarray))
        if not keys:
            found = self._find(r, before, self.environment, 1)
            return Found(*(np.broadcast_to(getattr(found, f), (self.n,)) for f in found.__dataclass_fields__))
        first, which = self._kinds(keys)
        environment = {**self.environment, **{k: self.environment[k][first] for k in keys}}
        found = self._find(r, before, environment, len(first))
        return Found(*(getattr(found, f)[which] for f in found.__dataclass_fields__))

    @cached_property
    def _codes(self) -> dict[str, tuple[np.ndarray, int]]:
        """Per array of the environment: which of its values each row has, and how many there are."""
        out = {}
        for name, column in self.environment.items():
            if isinstance(column, np.ndarray):
                values, code = np.unique(column, return_inverse=True)
                out[name] = code, len(values)
        return out

    def _kinds(self, keys: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """(rows that stand for each combination of values, the combination of each row)."""
        key, count = np.zeros(self.n, dtype=np.int64), 1
        for name in keys:
            code, many = self._codes[name]
            key, count = key * many + code, count * many
        if count > max(self.n, _DENSE):
            _, first, which = np.unique(key, return_index=True, return_inverse=True)
            return first, which
        row = np.full(count, -1)
        row[key] = np.arange(self.n)
        used = np.flatnonzero(row >= 0)
        number = np.zeros(count, dtype=np.int64)
        number[used] = np.arange(len(used))
        return row[used], number[key]

    def _before(self, r: Request, p: Phase) -> tuple[Term, ...]:
        """Bytes per access of the arrays in shared memory that lie before this one."""
        if r.memory != "shared" or r.write or self.front != OPENCL:
            return ()
        earlier = self.work.tiles[: self.work.tiles.index(r.buffer)]
        return tuple(multiply((Num(q.element), q.vector)) for q in p.requests if q.buffer in earlier and not q.write)

    def _find(self, r: Request, before: tuple[Term, ...], environment: Mapping[str, Any], n: int) -> Found:
        element = r.element
        vector = self._column(r.vector, environment, n)
        width = vector * element
        joined = np.ones(n, dtype=np.int64)
        if before:
            adjacent = (vector == 1) & (self._column(r.step, environment, n) == 1)
            aligned = np.maximum.reduce([self._column(t, environment, n) for t in before]) // element
            run = np.minimum(self._column(r.steps, environment, n), np.minimum(aligned, WIDEST // element))
            joined = np.where(adjacent, np.maximum(1, run), 1)
            width = width * joined
        if self.front == OPENCL:
            pieces, width = np.maximum(1, -(-width // WIDEST)), np.minimum(width, WIDEST)
        else:
            pieces, width = np.where(width > WIDEST, vector, 1), np.where(width > WIDEST, element, width)
        lanes = self._addresses(r, environment, n, np.arange(BANKS))
        block = self._column(self.work.threads, environment, n)
        every = np.minimum(np.arange(max(BANKS, int(block.max()))), block[:, None] - 1)
        reads = r.memory == "global" and not r.write and not r.copies
        return Found(
            pieces=pieces / joined,
            turns=wavefronts(lanes, width) if r.memory == "shared" else np.ones(n),
            lines=lines(lanes, width) if r.memory == "global" else np.ones(n),
            least=np.maximum(1, BANKS * width // LINE),
            different=distinct(self._addresses(r, environment, n, every)) if reads else np.ones(n),
        )

    def _addresses(self, r: Request, environment: Mapping[str, Any], n: int, thread: np.ndarray) -> np.ndarray:
        """Bytes from the start of the buffer. thread: linear index in the block, x fastest; [lanes] or [n, lanes]."""
        wide = {k: v[:, None] if isinstance(v, np.ndarray) else v for k, v in environment.items()}
        rest = np.broadcast_to(thread, (n, thread.shape[-1]))
        for axis, extent in self.work.axes:
            size = evaluate(extent, wide)
            wide[axis], rest = rest % size, rest // size
        index = [evaluate(t, wide) for t in r.index] or [0]
        sizes = [evaluate(t, wide) for t in r.extents] or [1]
        return np.broadcast_to(np.asarray(address(r.layout, sizes, index)) * r.element, rest.shape)

    def _column(self, t: Term, environment: Mapping[str, Any], n: int) -> np.ndarray:
        return np.broadcast_to(np.asarray(evaluate(t, environment), dtype=np.int64), (n,))
