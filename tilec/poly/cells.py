"""What tells storage locations apart: owner iterations, kernel launches, hardware threads, and the physical index."""

from __future__ import annotations

from tilec.ir.affine import Aff
from tilec.ir.program import ORDERED_KINDS, THREAD_KINDS, Address, Buffer, Program
from tilec.ir.tree import Site, owning_loops
from tilec.poly.isl import mangle
from tilec.poly.verdict import Unresolved

ZERO = Aff(0)


def thread_indices(site: Site) -> tuple[Aff, Aff, Aff]:
    """(x, y, z) of the hardware thread that runs the action; 0 where no loop is bound."""
    out = {kind: ZERO for kind in THREAD_KINDS}
    for loop in site.loops:
        if loop.kind in out:
            if len(loop.lower) != 1:
                raise Unresolved(
                    f"the {loop.kind} loop {loop.var} starts at a max of several bounds, so its thread index is not affine"
                )
            out[loop.kind] = Aff.of(loop.var) - loop.lower[0]
    return out["thread.x"], out["thread.y"], out["thread.z"]


def owner_depth(buffer: Buffer, site: Site) -> int:
    """How many of the site's loops stand at or above the owner."""
    return len(owning_loops(buffer, site.loops))


def cell(program: Program, site: Site, address: Address, *, folded: bool) -> tuple[str, list[Aff]]:
    """The storage location of an access.

    folded: the physical cell, with the coordinates of unordered loops at or above the owner. Not folded: every owner
    iteration has cells of its own, which is how contents that are undefined at its start look to the values.
    """
    buffer = program.buffer[address.buffer]
    index: list[Aff] = []
    if buffer.owner is None and buffer.memory in ("shared", "register") and program.has_launches:
        index.append(Aff(site.position[0]))  # contents do not outlive a launch
    for loop in site.loops[: owner_depth(buffer, site)]:
        if not folded or loop.kind not in ORDERED_KINDS:
            index.append(Aff.of(loop.var))
    if buffer.memory == "register":
        index += thread_indices(site)
    return f"C_{mangle(address.buffer)}", [*index, *address.index]
