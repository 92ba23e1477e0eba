"""Which loops of a program may run all their iterations at once, decided from the text of the accesses.

The rule. A loop over v runs as *lanes* (every action of its body is carried out for all iterations before the next action) when
no iteration reads or writes a cell that another iteration writes. That is shown when for each buffer written inside the loop
  (a) the buffer is owned by this loop or one inside it: every iteration has contents of its own; or
  (b) one index, the same for every access to the buffer inside the loop, is c·v + (the same terms in outer variables) + r with
      the same c ≠ 0, and the values r takes over inner loops and constants spread over less than |c|: iterations then touch
      disjoint slices. For a subscript pair (e // n, f) the sum n·(e // n) + f counts as an index too, which covers fused loops.
Physical indices are used, and for a register buffer the thread coordinates below its owner are leading indices.
Everything else runs one iteration after the other. Inner ranges are hulls over the loops around, at the sizes of the run.

A *fold* is a loop that only carries out `t += e`, `*=`, `max=` or `min=` on one cell, e not reading t's buffer, in t's own type:
e is evaluated for all iterations at once and folded in order (max and min in any order, which gives the same value).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilec.ir.affine import Aff, Atom, Div
from tilec.ir.dtypes import DTYPES, promote
from tilec.ir.program import THREAD_KINDS, Address, Buffer, Inline, Leaf, Loop, Program, Read
from tilec.ir.tree import Site, owning_loops

Interval = tuple[int, int]  # both ends included


@dataclass(frozen=True)
class Touch:
    """One access of an action: a cell's index (thread coordinates first), with the ranges of the loops around it."""

    buffer: str
    index: tuple[Aff, ...]
    write: bool
    ranges: Mapping[str, Interval]


def interval(e: Aff, ranges: Mapping[str, Interval]) -> Interval:
    low = high = e.const
    for atom, c in e.terms:
        a, b = _atom_interval(atom, ranges)
        low += min(c * a, c * b)
        high += max(c * a, c * b)
    return low, high


def _atom_interval(atom: Atom, ranges: Mapping[str, Interval]) -> Interval:
    if isinstance(atom, Div):
        low, high = interval(atom.num, ranges)
        return low // atom.den, high // atom.den
    return ranges[atom]


def loop_range(loop: Loop, ranges: Mapping[str, Interval]) -> Interval:
    """The hull of the variable's values over the loops around; one value when the loop never runs."""
    low = max(interval(e, ranges)[0] for e in loop.lower)
    high = min(interval(e, ranges)[1] for e in loop.upper) - 1
    return low, max(low, high)


def thread_coordinates(buffer: Buffer, loops: tuple[Loop, ...]) -> tuple[Aff, ...]:
    """(x, y, z) of the accessing action, as far as loops below the owner bind them; () where cells carry no thread."""
    if buffer.memory != "register":
        return ()
    below = loops[len(owning_loops(buffer, loops)) :]
    of = {loop.kind: Aff.of(loop.var) - loop.lower[0] if len(loop.lower) == 1 else Aff.of(loop.var) for loop in below}
    return tuple(of.get(kind, Aff(0)) for kind in THREAD_KINDS)


def independent(var: str, outer: frozenset[str], touches: list[Touch], fresh: frozenset[str]) -> bool:
    """May the loop over `var` run as lanes? `touches`: all accesses inside; `fresh`: buffers owned by it or by loops inside."""
    buffers = {t.buffer for t in touches if t.write} - fresh
    return all(_disjoint(var, outer, [t for t in touches if t.buffer == b]) for b in buffers)


def _disjoint(var: str, outer: frozenset[str], touches: list[Touch]) -> bool:
    dims = range(len(touches[0].index))
    if any(_separates(var, outer, touches, [t.index[d] for t in touches]) for d in dims):
        return True
    for d in dims:
        for n in {a.den for a, _ in touches[0].index[d].terms if isinstance(a, Div)}:
            for other in dims:
                if other != d:
                    joined = [t.index[d] * n + t.index[other] for t in touches]
                    if _separates(var, outer, touches, joined):
                        return True
    return False


def _separates(var: str, outer: frozenset[str], touches: list[Touch], index: list[Aff]) -> bool:
    first: tuple[int, frozenset[tuple[Atom, int]]] | None = None
    low, high = 0, 0
    for n, (t, e) in enumerate(zip(touches, index, strict=True)):
        shared: set[tuple[Atom, int]] = set()
        rest: list[tuple[Atom, int]] = []
        for atom, c in e.terms:
            names = frozenset((atom,)) if isinstance(atom, str) else atom.num.names
            if var in names and not isinstance(atom, str):
                return False
            if atom == var:
                continue
            if names <= outer:
                shared.add((atom, c))
            else:
                rest.append((atom, c))
        form = (e.coefficient(var), frozenset(shared))
        a, b = interval(Aff(e.const, tuple(rest)), t.ranges)
        if first is None:
            first = form
        elif form != first:
            return False
        low, high = (a, b) if n == 0 else (min(low, a), max(high, b))
    assert first is not None
    return high - low < abs(first[0])


def foldable(loop: Loop, program: Program) -> bool:
    """Is the loop a fold (see above)?"""
    if len(loop.body) != 1 or not isinstance(loop.body[0], Leaf):
        return False
    leaf = loop.body[0]
    statement = program.statement[leaf.statement]
    if statement.op == "=" or any(loop.var in e.names for e in leaf.target.index):
        return False
    buffer = program.buffer[leaf.target.buffer]
    arithmetic = DTYPES[buffer.dtype].arithmetic
    exact = buffer.dtype == arithmetic and promote(arithmetic, statement.value.dtype) == arithmetic
    own_thread = buffer.memory == "register" and loop.kind in THREAD_KINDS
    return exact and not own_thread and loop.var != buffer.owner and leaf.target.buffer not in _read_buffers(leaf.reads)


def _read_buffers(reads: tuple[Read, ...]) -> set[str]:
    out: set[str] = set()
    for r in reads:
        if isinstance(r, Inline):
            out |= _read_buffers(r.reads)
        else:
            out.add(r.buffer)
    return out


def physical(address: Address, program: Program, site: Site, sizes: Mapping[str, int]) -> tuple[Aff, ...]:
    """The full index of a cell, sizes in place: thread coordinates, then the physical index."""
    coordinates = thread_coordinates(program.buffer[address.buffer], site.loops)
    return tuple(e.subs(sizes) for e in (*coordinates, *address.index))
