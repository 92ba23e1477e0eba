"""Which storage cell an access touches: a register buffer has cells per thread, so the accessing thread's indices come first."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.errors import InternalError
from tilec.ir import tree
from tilec.ir.affine import Aff, Div
from tilec.ir.program import THREAD_KINDS, Address, Buffer, Loop, Program


@dataclass(frozen=True)
class Coordinate:
    """A thread axis along which a register buffer has cells of its own; `extents`: one of them bounds every index."""

    axis: str
    extents: tuple[Aff, ...]


@dataclass(frozen=True)
class Cells:
    """Per register buffer, the thread axes that tell its cells apart: they vary below its owner (those at or above it are fixed
    while it lives), and no dimension of the buffer is indexed by the thread itself, as in `acc[i, j]` with i and j on threads.
    """

    program: Program
    coordinates: dict[str, tuple[Coordinate, ...]]

    @staticmethod
    def of(program: Program) -> Cells:
        found: dict[str, dict[str, list[Aff]]] = {b.name: {} for b in program.buffers if b.memory == "register"}
        accesses: dict[str, list[tuple[dict[str, Aff], Address]]] = {name: [] for name in found}
        for site in tree.sites(program.body):
            loops = site.loops
            for a, _, _ in tree.addresses(site.action, program):
                if a.buffer not in found:
                    continue
                below = _below(program.buffer[a.buffer], loops)
                accesses[a.buffer].append((_threads(below), a))
                for n, loop in enumerate(below):
                    if loop.kind in THREAD_KINDS:
                        found[a.buffer].setdefault(loop.kind, []).append(_extent(below[: n + 1]))
        return Cells(
            program,
            {
                name: tuple(
                    Coordinate(axis, tuple(dict.fromkeys(axes[axis])))
                    for axis in reversed(THREAD_KINDS)
                    if axis in axes and not _in_the_index(axis, accesses[name])
                )
                for name, axes in found.items()
            },
        )

    def index(self, a: Address, loops: tuple[Loop, ...]) -> tuple[Aff, ...]:
        """Thread indices (z, y, x; those that matter), then the physical index, of an access under `loops`."""
        coordinates = self.coordinates.get(a.buffer, ())
        if not coordinates:
            return a.index
        below = _below(self.program.buffer[a.buffer], loops)
        mine = _threads(below)
        return (*(mine.get(c.axis, Aff(0)) for c in coordinates), *a.index)


def _below(b: Buffer, loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The loops under the owner."""
    return loops[len(tree.owning_loops(b, loops)) :]


def _threads(loops: tuple[Loop, ...]) -> dict[str, Aff]:
    return {loop.kind: Aff.of(loop.var) - _first(loop) for loop in loops if loop.kind in THREAD_KINDS}


def _first(loop: Loop) -> Aff:
    """Threads count from the loop's lower bound."""
    return loop.lower[0] if len(loop.lower) == 1 else Aff(0)


def _in_the_index(axis: str, accesses: list[tuple[dict[str, Aff], Address]]) -> bool:
    """Does one dimension equal the thread index in every access?"""
    _, first = accesses[0]
    return any(all(threads.get(axis, Aff(0)) == a.index[d] for threads, a in accesses) for d in range(len(first.index)))


def _extent(loops: tuple[Loop, ...]) -> Aff:
    """An upper bound of the last loop's thread index that uses none of `loops`, by the form of the bounds."""
    gaps = [e - _first(loops[-1]) for e in loops[-1].upper]
    constants = [e for e in gaps if e.is_const]
    if constants:
        return min(constants, key=lambda e: e.const)
    e = gaps[0]
    for loop in reversed(loops[:-1]):
        if loop.var not in e.names:
            continue
        n = e.coefficient(loop.var)
        if any(loop.var in a.num.names for a, _ in e.terms if isinstance(a, Div)):
            raise InternalError(f"no bound for the thread index {loops[-1].var!r}: {e} uses {loop.var!r} inside a division")
        e = e.subs({loop.var: loop.upper[0] - 1 if n > 0 else loop.lower[0]})
    return e
