"""Copies that lay the elements which one dot product adds next to each other: rows woven together, or groups turned round.

    for lane: for d in 0..depth: packed[…, lane, d] = a[…]     with depth elements of 4 bytes in all

A group is one 32-bit element of a vector: the rows that hold its parts are widened and shifted into place.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from tilec.codegen import c_lanes, c_memory
from tilec.codegen.c_actions import Actions
from tilec.codegen.c_helpers import BYTES, ELEMENT, Helpers, under
from tilec.codegen.c_place import Place
from tilec.codegen.c_scope import LANE, by_strides, simplified
from tilec.ir.affine import Aff
from tilec.ir.program import Address, Copy, Loop, Program

GROUP = 4  # bytes


@dataclass(frozen=True)
class Run:
    """Where the groups of all lanes lie. Packed: one run of memory at pointers[0] (step 0: one group for all lanes), with
    `places[d]` the position of element d in each group. Else element d of lane 0 is at pointers[d], the other lanes behind it."""

    pointers: tuple[str, ...]
    places: tuple[int, ...] | None
    step: int  # elements from one lane to the next


def grouped(program: Program, node: Loop) -> int:
    """The elements of a group, where a vector loop only copies groups of 4 bytes; else 0."""
    if node.kind != "vector" or len(node.body) != 1:
        return 0
    inner = node.body[0]
    if not isinstance(inner, Loop) or len(inner.body) != 1 or len(inner.lower) != 1 or len(inner.upper) != 1:
        return 0
    action, extent = inner.body[0], inner.upper[0] - inner.lower[0]
    if not isinstance(action, Copy) or not extent.is_const or inner.kind not in ("serial", "unrolled"):
        return 0
    dst, src = program.buffer[action.dst.buffer], program.buffer[action.src.buffer]
    fits = dst.dtype == src.dtype and extent.const > 1 and extent.const * BYTES[ELEMENT[dst.dtype]] == GROUP
    return extent.const if fits and "register" not in (dst.memory, src.memory) else 0


class Groups(Actions):
    """Copies of groups on top of the actions."""

    def copied(self, node: Loop, place: Place) -> bool:
        """Write the copies of a vector of groups; False where they do not lie so that whole vectors move."""
        depth, lanes = grouped(self.program, node), place.width
        if not depth or lanes == 1:
            return False
        inner = node.body[0]
        assert isinstance(inner, Loop) and isinstance(inner.body[0], Copy) and place.lanes is not None
        copy = inner.body[0]
        dst, src = (self.groups_at(a, inner, depth, place) for a in (copy.dst, copy.src))
        if dst is None or dst.places is None or src is None or 0 in (dst.step, src.step):
            return False
        short, count = ELEMENT[self.program.buffer[copy.src.buffer].dtype], place.lanes.count
        cut = count if self.program.buffer[copy.src.buffer].role == "param" else None
        h = self.helpers
        if src.places is None:
            rows = [src.pointers[dst.places.index(n)] for n in range(depth)]
            loaded = [c_memory.loaded(h, short, lanes, p, cut) for p in rows]
            value = f"{weave(h, short, depth, lanes)}({', '.join(loaded)})"
        else:
            value = c_memory.loaded(h, "u32", lanes, f"(const u32 *)({src.pointers[0]})", cut)
            if src.places != dst.places:
                if depth != 2:
                    return False
                value = f"{turn(h, lanes)}({value})"
        name = self.names[copy.dst.buffer]
        self.loads = {t: v for t, v in self.loads.items() if name not in t}
        stored = c_memory.stored(h, "u32", lanes, f"(u32 *)({dst.pointers[0]})", value, count)
        self.line(place, f"{stored}  // copy of {depth} together")
        return True

    def groups_at(self, a: Address, inner: Loop, depth: int, place: Place) -> Run | None:
        """Where the groups that `inner` runs over lie at the lanes of this place; None where in no such form."""
        b = self.program.buffer[a.buffer]
        pointers: list[str] = []
        first: list[tuple[Aff, ...]] = []
        steps: set[int | None] = set()
        for d in range(depth):
            here = place.fixed(inner, inner.lower[0] + d)
            index = [here.aff(e) for e in self.cells.index(a, here.path)]
            plans = [
                self.plan(b, [simplified(e.subs({LANE: lane}), here.ranges) for e in index], here) for lane in range(place.width)
            ]
            if any(p.xor is not None for p in plans):
                return None
            flats = [tuple(e for _, e in by_strides(p.index, p.extents)) for p in plans]
            steps |= {_difference(y, x) for x, y in pairwise(flats)}
            first.append(flats[0])
            pointer = self._flat(plans[0], self.scope(here))
            pointers.append(self.names[b.name] if pointer == "0" else f"{self.names[b.name]} + {pointer}")
        if len(steps) != 1 or (step := steps.pop()) is None:
            return None
        found = [_difference(f, first[0]) for f in first]
        places = [p - min(q for q in found if q is not None) for p in found if p is not None]
        if sorted(places) == list(range(depth)) and step in (0, depth):
            return Run((pointers[places.index(0)],), tuple(places), step)
        return Run(tuple(pointers), None, step) if step == 1 else None


def _difference(x: tuple[Aff, ...], y: tuple[Aff, ...]) -> int | None:
    """x - y in elements, where it is a number."""
    apart = [a - b for a, b in zip(x, y, strict=True)]
    return apart[-1].const if all(e == Aff(0) for e in apart[:-1]) and apart[-1].is_const else None


def weave(h: Helpers, short: str, depth: int, lanes: int) -> str:
    """Lane l of the result holds lane l of every argument, the first in its lowest bits."""
    t, u, x = h.type("u32", lanes), "u" + short[1:], h.type(short, lanes)
    name = "abcd"[:depth]

    def body() -> str:
        widen = c_lanes.resize(h, "u32", u, lanes)
        cast = f"({h.type(u, lanes)})"
        bits = 32 // depth
        parts = [f"{widen}({cast}{v})" + (f" << {bits * n}" if n else "") for n, v in enumerate(name)]
        plain = "return " + " | ".join(f"({p})" if "<<" in p else p for p in parts) + ";"
        if (depth, lanes) != (2, 16):
            return plain
        index = ", ".join(f"{n}, {32 + n}" for n in range(16))  # both halves of a register behind each other, one permutation
        wide = "_mm512_castsi256_si512((__m256i){})"
        order = f"(__m512i)({h.type('u16', 32)}){{{index}}}"
        fast = f"return ({t})_mm512_permutex2var_epi16({wide.format('a')}, {order}, {wide.format('b')});"
        return under("__AVX512BW__", fast, plain)

    return h.define(f"weave_{depth}_{x}", t, ", ".join(f"{x} {v}" for v in name), body)


def turn(h: Helpers, lanes: int) -> str:
    """Both halves of every element exchanged."""
    t = h.type("u32", lanes)
    return h.define(f"turn_{t}", t, f"{t} x", "return x << 16 | x >> 16;")
