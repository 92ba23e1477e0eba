"""Bytes between a cache and what is behind it, for the model of CPUs: which loops' cells fit, what is fetched again.

Of a nest that fits, its footprint once; of a loop whose body fits, the union of its iterations; of another one, its body's bytes
for each iteration. Rows that lie a multiple of many sets apart fit when the sets they share have ways for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import gcd

import numpy as np

from tilec.cost.cpu_tree import GUARD, POINTS, Act, Nest, Values
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Address, Program

ALIGNED = 16  # bytes: what NumPy's allocation promises, so that vectors of a parameter cross lines


@dataclass(frozen=True)
class Cache:
    """size in bytes; ways: places in it for lines a multiple of size ÷ ways apart. start: bytes that could be fetched while a run
    of neighbours starts; slowest: how many times longer starts make a fetch at most."""

    size: float
    ways: float = float("inf")
    start: float = 0.0
    slowest: float = 1.0


@dataclass
class Box:
    """Of one buffer: pitch between rows; bytes fetched, written back, stored past the caches; the most rows and their length."""

    pitch: float
    fetched: Values = field(default_factory=lambda: np.zeros(POINTS))
    written: Values = field(default_factory=lambda: np.zeros(POINTS))
    past: Values = field(default_factory=lambda: np.zeros(POINTS))
    rows: float = 0.0
    run: float = 0.0
    neighbours: float = float("inf")

    def add(self, rows: Values, run: Values, neighbours: float, write: bool, past: bool) -> None:
        """One more access: accesses to one buffer touch the same cells, as far as is known."""
        self.neighbours = min(self.neighbours, neighbours)
        if past:
            self.past = np.maximum(self.past, rows * run)
            return
        self.fetched = np.maximum(self.fetched, rows * run)
        self.rows, self.run = max(self.rows, float(np.max(rows))), max(self.run, float(np.max(run)))
        if write:
            self.written = np.maximum(self.written, rows * run)

    def collides(self, cache: Cache) -> bool:
        """Do rows fall on the same sets more often than these have ways?"""
        if not self.pitch or cache.ways == float("inf"):
            return False
        way = round(cache.size / cache.ways)
        return self.rows * max(self.run, gcd(round(self.pitch), way)) >= cache.size  # nothing else has a place then


def _fits(boxes: Mapping[str, Box], cache: Cache) -> bool:
    total = float(np.max(sum((b.fetched for b in boxes.values()), np.zeros(POINTS))))
    return total <= cache.size and not any(b.collides(cache) for b in boxes.values())


@dataclass(frozen=True)
class Traffic:
    """Of a program with numbers for its sizes; line: bytes of a cache's."""

    program: Program
    sizes: Mapping[str, int]
    line: int

    def of(self, nest: Nest, cache: Cache) -> tuple[Values, Values, Values]:
        """(bytes fetched, of them written back, bytes stored past the caches) for one execution of a loop's whole range."""
        if nest.var == "":
            return self._children(nest, cache)
        whole = self._boxes(nest.acts, nest, inside=False)
        # what fits as a whole is fetched once; where an iteration fits, what iterations share stays from one to the next
        if _fits(whole, cache) or _fits(self._boxes(nest.acts, nest), cache):
            return _summed(whole, cache)
        once = self._children(nest, cache)
        return once[0] * nest.extent, once[1] * nest.extent, once[2] * nest.extent

    def _children(self, nest: Nest, cache: Cache, at: Nest | None = None) -> tuple[Values, Values, Values]:
        """at: the loop around a condition."""
        total = [np.zeros(POINTS) for _ in range(3)]
        parts = []
        for c in nest.children:
            if isinstance(c, Nest) and c.var == GUARD:
                parts.append(self._children(c, cache, at or nest))
            elif isinstance(c, Nest):
                parts.append(self.of(c, cache))
        loose = [c for c in nest.children if isinstance(c, Act)]
        if loose:
            parts.append(_summed(self._boxes(loose, at or nest), cache))
        for part in parts:
            total = [a + b for a, b in zip(total, part, strict=True)]
        return total[0], total[1], total[2]

    def _boxes(self, acts: list[Act], nest: Nest, inside: bool = True) -> dict[str, Box]:
        """By buffer the cells that one iteration of the loop touches, or (not inside) all of its range. What stands under a
        condition on loops further out counts by the share in which it holds."""
        out: dict[str, Box] = {}
        for act in acts:
            depth = next((n for n, x in enumerate(act.loops) if x is nest), -1)
            inner = act.loops[depth + 1 :] if inside else act.loops[depth:]
            extents = {x.var: x.extent for x in inner}
            share = np.ones(POINTS)
            for names, part in act.guards:
                share = share if names & extents.keys() else share * part
            for address, write, past in act.touched:
                kept = out.setdefault(address.buffer, Box(self._pitch(address.buffer)))
                rows, run = self._rows_of(address, extents)
                kept.add(rows * share, run, self._neighbours(act, address), write, past)
        return out

    def _rows_of(self, address: Address, extents: Mapping[str, Values]) -> tuple[Values, Values]:
        """(rows, bytes of each in whole lines) of the box of cells."""
        b = self.program.buffer[address.buffer]
        size = DTYPES[b.dtype].bytes
        cells = np.ones(POINTS)
        run = np.ones(POINTS)
        for n, e in enumerate(address.index):
            reach = np.ones(POINTS)
            for atom, c in e.terms:
                names = [atom] if isinstance(atom, str) else sorted(atom.num.names)
                for name in names:
                    if name in extents:
                        step = abs(c) if isinstance(atom, str) else abs(c) * abs(atom.num.coefficient(name)) / atom.den
                        reach = reach + step * np.maximum(extents[name] - 1, 0.0)
            if n == len(address.index) - 1:
                run = reach
            else:
                cells = cells * reach
        row = self._row(b.shape)
        whole = run * size >= row * size if row else np.zeros(POINTS, bool)
        ends = self.line - ALIGNED if b.role == "param" else 0
        lines = np.where(whole, run * size, np.ceil((run * size + ends) / self.line) * self.line)
        return cells, lines

    def _neighbours(self, act: Act, address: Address) -> float:
        """Bytes that the loops, innermost first, go through without a jump."""
        b = self.program.buffer[address.buffer]
        if b.layout is not None:
            return float("inf")
        length = pitch = float(DTYPES[b.dtype].bytes)
        pitches = []
        for e, extent in zip(reversed(address.index), reversed(b.shape), strict=True):
            pitches.append((e, pitch))
            pitch *= float(extent.eval(self.sizes))
        for nest in reversed(act.loops):
            step = sum(p * abs(e.coefficient(nest.var)) for e, p in pitches)
            if step > length:
                return length
            if step > 0:
                length = max(length, step * float(np.max(nest.extent)))
        return float("inf")

    def _pitch(self, name: str) -> float:
        """Bytes from one row of a buffer to the next; 0 where rows follow each other in another order."""
        b = self.program.buffer[name]
        return self._row(b.shape) * DTYPES[b.dtype].bytes if b.layout is None and len(b.shape) > 1 else 0.0

    def _row(self, shape: tuple[Aff, ...]) -> float:
        """Elements of a buffer's last dimension: where all are touched, rows follow each other without gaps."""
        return float(shape[-1].eval(self.sizes)) if shape else 0.0


def _summed(boxes: Mapping[str, Box], cache: Cache) -> tuple[Values, Values, Values]:
    total = [np.zeros(POINTS) for _ in range(3)]
    for b in boxes.values():
        slower = min(1.0 + cache.start / b.neighbours, cache.slowest)
        for n, part in enumerate((b.fetched, b.written, b.past)):
            total[n] = total[n] + slower * part
    return total[0], total[1], total[2]
