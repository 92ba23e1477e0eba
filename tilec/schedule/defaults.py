"""Where temporaries live until `place` names them, derived again after every step.

A scalar (declared rank 0) all of whose accesses lie in one iteration of the innermost loop around all of them is
contracted: one register cell, owned by that loop. One that is declared outside every loop is a register of the program, as
long as no loop around its accesses runs its iterations apart and no two kernel launches share it. Every other temporary
lies in global memory, whole, owned by the program.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir.affine import Aff
from tilec.ir.program import ORDERED_KINDS, THREAD_KINDS, Address, Buffer, Guard, Loop, Node, Program
from tilec.ir.tree import Body, map_addresses, transform
from tilec.poly.regions import NoBox, Piece, box, injective
from tilec.schedule.placement_uses import Use, all_uses, common_node, conditions_to, loops_to


def derive(program: Program) -> Program:
    """The program with every unplaced temporary in its default place."""
    if program.original is None:
        return program
    free = [b for b in program.buffers if b.role == "temp" and not b.placed]
    if not free:
        return program
    found = all_uses(program)
    new: dict[str, Buffer] = {}
    for b in free:
        whole = program.source.buffer[b.name]
        mine = found.get(b.name, [])
        owner = contracted(program, whole, mine)
        if owner or lone(program, whole, mine):
            new[b.name] = replace(whole, memory="register", owner=owner, shape=())
        else:
            new[b.name] = whole
    body = readdress(program, {n: not b.shape for n, b in new.items()})
    buffers = tuple(new.get(b.name, b) for b in program.buffers)
    if body == program.body and buffers == program.buffers:
        return program
    return replace(program, buffers=buffers, body=body)


def lone(program: Program, whole: Buffer, found: list[Use]) -> bool:
    """A scalar declared outside every loop, used in sequence only and not handed from one kernel launch to another."""
    if program.has_launches and len({u.position[0] for u in found}) > 1:
        return False
    apart = any(loop.kind not in ORDERED_KINDS for u in found for loop in u.site.loops)
    return bool(found) and not whole.shape and not apart


def contracted(program: Program, whole: Buffer, found: list[Use]) -> str | None:
    """The loop that owns the register of a scalar, or None where it cannot be one."""
    if not found or whole.private != len(whole.shape) or not whole.shape:
        return None
    path = common_node([u.position for u in found])
    outer = loops_to(program.body, path)
    if not outer:
        return None
    for u in found:
        # a thread loop below the owner would give every thread a register of its own
        if any(loop.kind in THREAD_KINDS for loop in u.site.loops[len(outer) :]):
            return None
    try:
        spans = box([u.piece for u in found], [loop.var for loop in outer], program.sizes, program.where)
    except NoBox:
        return None
    if any(s.extent != Aff(1) for s in spans):
        return None
    # the cell must be another one in every iteration of its owner; loops that it does not depend on only repeat it
    index = tuple(s.base for s in spans)
    named = frozenset().union(*(e.names for e in index))
    depth = max((n for n, loop in enumerate(outer) if loop.var in named), default=None)
    if depth is None:
        return None
    var = outer[depth].var
    others = tuple(Aff.of(loop.var) for loop in outer[:depth])
    around = conditions_to(program.body, path)
    return var if injective(Piece((*index, *others), around), [var], program.sizes, program.where) else None


def readdress(program: Program, contracted_: dict[str, bool]) -> Body:
    """Every access of the named buffers at its logical index, or at () where the buffer is contracted."""

    def address(a: Address, logical: tuple[Aff, ...], write: bool) -> Address:
        if a.buffer not in contracted_:
            return a
        return Address(a.buffer, () if contracted_[a.buffer] else logical)

    def action(node: Node) -> Body:
        return (node,) if isinstance(node, Loop | Guard) else (map_addresses(node, address, program),)

    return transform(program.body, action)
