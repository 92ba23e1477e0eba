"""Loops along the lanes of vectors.

A loop of n iterations is cut into vectors of the register width and a rest in halves; iterations that a bound cuts off are
inactive lanes. What is owned at or below it has a value per lane.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from tilec.codegen import c_arithmetic
from tilec.codegen.c_groups import GROUP, grouped
from tilec.codegen.c_helpers import BYTES, ELEMENT
from tilec.codegen.c_instructions import Instructed
from tilec.codegen.c_place import Extent, Lanes, NotVector, Place, extent
from tilec.codegen.c_scope import LANE
from tilec.codegen.c_storage import element_bytes
from tilec.ir import tree
from tilec.ir.affine import Aff, Constraint
from tilec.ir.dtypes import DTYPES
from tilec.ir.expr import walk
from tilec.ir.printer import owned
from tilec.ir.program import Address, Buffer, Copy, Leaf, Loop, Node
from tilec.lower.nests import target_of


class Vectors(Instructed, ABC):
    """Vector loops on top of what runs at their lanes."""

    @abstractmethod
    def nodes(self, body: tuple[Node, ...], place: Place, declared: list[Buffer]) -> None:
        """What stands in a loop, with the buffers that it owns."""

    def vector(self, node: Loop, place: Place) -> None:
        """Along lanes; NotVector where that cannot be."""
        ext = extent(node, place)
        if ext is None:
            raise NotVector("no constant bounds its extent from one start")
        if ext.most == 0:
            return
        lanes = self._lanes(node)
        if place.partial and ext.most < ext.tile:  # cut by a number that is known here: the lanes of the full tile
            self._masked(node, ext, _chunks(_rounded(ext.tile, lanes), lanes), place)
            return
        chunks = _chunks(ext.most if ext.exact else _rounded(ext.most, lanes), lanes)
        if ext.exact:
            self._whole(node, ext, chunks, place)
            return
        if place.partial or not ext.needed:
            self._masked(node, ext, chunks, place)
            return
        self.open(place, f"if ({self.scope(place).conditions(ext.needed)}) {{  // all {ext.most} of {self.names[node.var]}")
        inner, branch = replace(place, depth=place.depth + 1), self.branch()
        full = inner.version(branch, 0).knowing(ext.needed)
        fits = [c for c in chunks if sum(c) <= ext.most]
        self._whole(node, ext, fits, full)
        for first, n in chunks[len(fits) :]:  # laid out like the lanes of the other side, of which not all are iterations
            self._chunk(node, ext, first, Lanes(node.var, n, str(ext.most - first)), full)
        self.close(place, f"}} else {{  // fewer than {ext.most} of {self.names[node.var]}")
        self._masked(node, ext, chunks, inner.version(branch, 1))
        self.close(place)

    def _whole(self, node: Loop, ext: Extent, chunks: list[tuple[int, int]], place: Place) -> None:
        """Every lane active. Elements narrower than what is computed are gathered into whole registers before they are stored.

        These stores come last: a streaming one branches on its alignment, and a compiler interleaves the steps of several
        vectors only where no branch is between them.
        """
        action = node.body[0]
        written = action if len(node.body) == 1 and isinstance(action, Leaf | Copy) else None
        short = ELEMENT[self.program.buffer[target_of(written).buffer].dtype] if written is not None else "u8"
        streaming = written is not None and written.streaming
        rest, last = chunks, []
        while rest:
            lanes = rest[0][1]
            size = BYTES[short] * lanes
            gathers = written is not None and lanes > 1 and size >= 4 and (streaming or isinstance(written, Leaf))
            count = self.helpers.vector_bytes // size if gathers else 1
            group = [c for c in rest[:count] if c[1] == lanes]
            while len(group) & (len(group) - 1):
                group.pop()
            joins = gathers and (streaming or len(group) > 1)
            if joins:
                self.joined, self.packs_pieces = [], len(group) * BYTES[short] == 4 and len(group) > 1
            for first, n in group:
                self._chunk(node, ext, first, Lanes(node.var, n), place)
            self.packs_pieces = False
            if joins:
                last += self.store_joined(short, lanes, streaming)
            rest = rest[len(group) :]
        for line in last:
            self.line(place, line)

    def _lanes(self, node: Loop) -> int:
        """How many lanes a register holds of the widest value inside; elements, where a loop only moves them."""
        if grouped(self.program, node):
            return self.helpers.vector_bytes // GROUP
        widest, moves, registers = 4, 0, False
        for site in tree.sites(node.body):
            action = site.action
            used = [self.program.buffer[a.buffer] for a, _, _ in tree.addresses(action, self.program)]
            if not used:
                continue
            registers |= any(b.memory == "register" or not b.shape for b in used)
            if isinstance(action, Copy):
                moves = max(moves, *(element_bytes(b) for b in used))
                continue
            moves = 8
            kinds = {DTYPES[b.dtype].arithmetic for b in used}
            if isinstance(action, Leaf):
                kinds |= {e.dtype for s in _statements(action) for e in walk(self.program.statement[s].value)}
            widest = 8 if "f64" in kinds else widest
        return self.helpers.vector_bytes // (moves if 0 < moves < 4 and not registers else widest)

    def _chunk(self, node: Loop, ext: Extent, first: int, lanes: Lanes, place: Place) -> None:
        mine = owned(self.program, place.path, node)
        start = ext.start + first
        inner = place.fixed(node, start + LANE, lanes) if lanes.lanes > 1 else place.fixed(node, start)
        if self.runs_dots(node):
            self.dots(node, inner)
            return
        if self.copied(node, inner):
            return
        if mine:
            self.open(place, f"{{  // {self.names[node.var]} = {self._span(start, lanes.lanes, place)}")
        self.nodes(node.body, replace(inner, depth=place.depth + (1 if mine else 0)), mine)
        if mine:
            self.close(place)

    def _span(self, start: Aff, lanes: int, place: Place) -> str:
        scope = self.scope(place)
        return scope.aff(start) if lanes == 1 else f"{scope.aff(start)} … {scope.aff(start + (lanes - 1))}"

    def _masked(self, node: Loop, ext: Extent, chunks: list[tuple[int, int]], place: Place) -> None:
        """Vectors of which the first lanes are active."""
        if ext.exact:  # as many as a number says
            for first, lanes in chunks:
                if first < ext.most:
                    active = min(lanes, ext.most - first)
                    self._chunk(node, ext, first, Lanes(node.var, lanes, str(active) if active < lanes else None), place)
            return
        scope = self.scope(place)
        total = self.new(f"n_{self.names[node.var]}")
        gaps = [scope.aff(g) for g in ext.gaps if not (g.is_const and g.const >= ext.most)]
        if any(LANE in g.names for g in ext.gaps):
            raise NotVector("a bound differs between lanes")
        text = str(ext.most)
        for g in gaps:
            text = f"{c_arithmetic.index(self.helpers, 'min_i')}({text}, {g})"
        self.line(place, f"const i64 {total} = {text};")
        declared = len(self.lines)
        for first, lanes in chunks:
            key = tuple(g - first for g in ext.gaps)
            span = f"  // {self.names[node.var]} = {self._span(ext.start + first, lanes, place)}"
            if len(chunks) == 1 and all(place.holds(Constraint(g - 1)) for g in ext.gaps):  # its first lane is always active
                self.lines[-1] += span
                self._chunk(node, ext, 0, Lanes(node.var, lanes, total if lanes > 1 else None, key), place)
                break
            self.open(place, f"if ({total} > {first}) {{{span}")
            inner = replace(place, depth=place.depth + 1)
            count = None
            if lanes > 1:
                count = f"{total}_{first}"
                rest = total if first == 0 else f"{total} - {first}"
                rest = rest if first + lanes >= ext.most else f"{c_arithmetic.index(self.helpers, 'min_i')}({lanes}, {rest})"
                self.line(inner, f"const i64 {count} = {rest};")
            start = len(self.lines)
            self._chunk(node, ext, first, Lanes(node.var, lanes, count, key), inner)
            if count is not None and not any(count in line for line in self.lines[start:]):
                del self.lines[start - 1]
            self.close(place)
        if not any(total in line for line in self.lines[declared:]):
            del self.lines[declared - 1]


def _statements(leaf: Leaf) -> Iterator[str]:
    """Those that a leaf computes, inlined ones too."""
    yield leaf.statement
    stack = list(leaf.reads)
    while stack:
        r = stack.pop()
        if not isinstance(r, Address):
            yield r.statement
            stack += r.reads


def _chunks(count: int, lanes: int) -> list[tuple[int, int]]:
    """(first, lanes): whole vectors, then halves."""
    out, first = [], 0
    while first < count:
        while lanes > count - first:
            lanes //= 2
        out.append((first, lanes))
        first += lanes
    return out


def _rounded(most: int, lanes: int) -> int:
    """The extent up to which vectors are laid out where a bound cuts some iterations off: the rest in one power of two."""
    rest = most % lanes
    return most if rest == 0 else most - rest + (1 << (rest - 1).bit_length())
