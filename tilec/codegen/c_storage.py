"""Where the buffers of a program are in C: variables, vector variables, arrays on the stack, or pieces of one scratch allocation.

A register buffer becomes variables when every access to it has constant indices once its loops are written out (one index may run
along a vector's lanes). That is found by emitting once with every candidate as variables and keeping those that never failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from math import prod

from tilec.codegen.c_helpers import BYTES, ELEMENT
from tilec.ir.affine import Aff
from tilec.ir.program import Buffer, Program
from tilec.lower.cells import Cells

MOST_CELLS = 1024  # of a buffer kept in variables
MOST_VARIABLES = 64
ON_STACK = 16 << 10  # bytes of one array
SLACK = 64  # bytes behind every array, so that a whole vector can be read at its last element


@dataclass(frozen=True)
class Access:
    """One access to a register buffer: its indices (None: not constant); that of `dim` is the first of `lanes` lanes."""

    index: tuple[int, ...] | None
    dim: int | None
    lanes: int
    count: tuple[object, ...] = ()  # which lanes are active
    branch: tuple[tuple[int, int], ...] = ()  # the sides of each `if` around, that a run of the buffer's owner decides once

    def meets(self, other: Access) -> bool:
        """May both happen to the same contents? Not where they are on the two sides of one `if`."""
        for (a, side), (b, opposite) in zip(self.branch, other.branch, strict=False):
            if (a, side) != (b, opposite):
                return a != b
        return True


@dataclass(frozen=True)
class Variables:
    """A buffer held in variables: along `dim` in chunks {first: lanes}, one variable per chunk and per other index."""

    dim: int | None
    chunks: Mapping[int, int]
    masked: bool  # accesses with different active lanes meet: a partial write keeps the other lanes

    def find(self, index: tuple[int, ...]) -> tuple[tuple[int, ...], int | None]:
        """(the index that names the variable, the lane inside it: None where the variable is a scalar)."""
        if self.dim is None:
            return index, None
        i = index[self.dim]
        for first, lanes in self.chunks.items():
            if first <= i < first + lanes:
                named = (*index[: self.dim], first, *index[self.dim + 1 :])
                return named, i - first if lanes > 1 else None
        return index, None


@dataclass
class Storage:
    """The decisions, and in the first pass what they are made from."""

    program: Program
    cells: Cells
    variables: dict[str, Variables] | None = None  # None: the first pass
    shared: frozenset[str] = frozenset()  # loops that all threads of a team run: what these own lies in scratch
    accesses: dict[str, list[Access]] = field(default_factory=dict)
    narrowed: set[str] = field(default_factory=set)  # written where a guard leaves some lanes as they are

    def candidate(self, b: Buffer) -> bool:
        """May the buffer become variables? Of one cell it always is one."""
        if b.role == "param" or b.prepacked or b.owner in self.shared:
            return False
        if not b.shape and not self.cells.coordinates.get(b.name):
            return True
        if b.memory != "register" or self.cells.coordinates.get(b.name) or not all(e.is_const for e in b.shape):
            return False
        return prod(e.const for e in b.shape) <= MOST_CELLS

    def in_variables(self, b: Buffer) -> bool:
        if not self.candidate(b):
            return False
        return not b.shape or self.variables is None or b.name in self.variables

    def keeps_lanes(self, name: str) -> bool:
        """Do writes keep lanes as they were? Then all of them hold something before: a compiler may take what never was written
        for anything, also the lanes that are."""
        v = (self.variables or {}).get(name)
        return name in self.narrowed or (v is not None and v.masked)

    def note(self, name: str, access: Access) -> None:
        if self.variables is None:
            self.accesses.setdefault(name, []).append(access)

    def decided(self) -> dict[str, Variables]:
        """What the first pass found: the buffers whose accesses agree on their chunks."""
        out: dict[str, Variables] = {}
        for name, found in self.accesses.items():
            if not self.program.buffer[name].shape or any(a.index is None for a in found):
                continue
            wide = [a for a in found if a.dim is not None]
            dims = {a.dim for a in wide}
            if len(dims) > 1:
                continue
            dim = next(iter(dims), None)
            chunks: dict[int, int] = {}
            agree = True
            for a in wide:
                assert a.index is not None and dim is not None
                agree &= chunks.setdefault(a.index[dim], a.lanes) == a.lanes
            spans = sorted(chunks.items())
            agree &= all(f + n <= g for (f, n), (g, _) in pairwise(spans))
            extents = [e.const for e in self.program.buffer[name].shape]
            rows = prod(e for d, e in enumerate(extents) if d != dim)
            along = len(chunks) + (extents[dim] - sum(chunks.values())) if dim is not None else 1
            if not agree or rows * along > MOST_VARIABLES:
                continue
            there: dict[tuple[int, ...], dict[Access, None]] = {}
            for a in wide:
                assert a.index is not None
                there.setdefault(a.index, {}).setdefault(a)
            pairs = (p for same in there.values() for p in combinations(same, 2))
            out[name] = Variables(dim, dict(spans), any(a.count != b.count and a.meets(b) for a, b in pairs))
        return out


def element_bytes(b: Buffer) -> int:
    return BYTES[ELEMENT[b.dtype]]


def constant_bytes(b: Buffer, extents: tuple[Aff, ...]) -> int | None:
    """Bytes of the array without slack; None while symbolic."""
    if not all(e.is_const for e in extents):
        return None
    return prod(e.const for e in extents) * element_bytes(b)
