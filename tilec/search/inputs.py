"""Which buffers a tile or a row reads more than once, and which only it touches: candidates for nearer memory."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir.affine import Aff
from tilec.ir.program import Leaf, Program
from tilec.schedule.names import find_loop
from tilec.schedule.placement_uses import Use, all_uses, loops_to, uses
from tilec.search.nests import Nest


def statement_of(u: Use) -> str:
    """The statement that accesses, "" for a copy."""
    return u.site.action.statement if isinstance(u.site.action, Leaf) else ""


def names_in(u: Use) -> frozenset[str]:
    """Every variable of the cell's index."""
    return frozenset[str]().union(*(e.names for e in u.logical))


def rules(found: Sequence[Use], outer: frozenset[str]) -> set[tuple[Aff, ...]]:
    """How the accesses move with the outer loops: with one rule they stay near each other, so that one box holds them."""

    def moved(e: Aff) -> Aff:
        return Aff(0, tuple((a, c) for a, c in e.terms if Aff(0, ((a, c),)).names & outer))

    return {tuple(moved(e) for e in u.logical) for u in found}


def around(program: Program, loop: str) -> frozenset[str]:
    """The variables of that loop and the loops around it."""
    return frozenset(x.var for x in loops_to(program.body, find_loop(program, loop)))


def operands(program: Program, loop: str, statement: str) -> list[str]:
    """What a sum reads in one iteration of its k-block loop by one access rule, the same element several times."""
    outer = around(program, loop)
    out = []
    for name, found in _inputs(program, loop).items():
        mine = [u for u in found if statement_of(u) == statement]
        if mine and len(rules(mine, outer)) == 1 and any(_repeated(u, outer) for u in mine):
            out.append(name)
    return out


def tile_inputs(program: Program, loop: str, sums: Sequence[str]) -> list[str]:
    """What the other statements of a tile read by one access rule: at several offsets (halo), in several iterations (broadcast),
    or across the rows of what they write (transposed)."""
    outer = around(program, loop)
    out = []
    for name, found in _inputs(program, loop).items():
        mine = [u for u in found if statement_of(u) not in sums]
        if (
            not mine
            or "" in map(statement_of, mine)
            or len(rules(found, outer)) > 1
            or not all(names_in(u) & outer for u in found)
        ):
            continue
        if len({u.logical for u in mine}) > 1 or _repeated(mine[0], outer) or _across(mine[0]):
            out.append(name)
    return out


def row_inputs(program: Program, loop: str) -> list[str]:
    """What one row reads in several places, in more than one element."""
    outer = around(program, loop)
    return [
        name
        for name, found in _inputs(program, loop).items()
        if len({u.position for u in found}) > 1 and all(names_in(u) & outer for u in found) and wide(program, name, loop)
    ]


def row_results(program: Program, loop: str) -> list[str]:
    """Of what one row writes to global memory: the buffers of which it writes one element and reads it again."""
    return [
        name
        for name, found in all_uses(program, find_loop(program, loop)).items()
        if program.buffer[name].memory == "global"
        and any(u.write for u in found)
        and any(u.reads for u in found)
        and not wide(program, name, loop)
    ]


def wide(program: Program, buffer: str, loop: str) -> bool:
    """Does one iteration of the loop touch several elements of the buffer?"""
    outer = around(program, loop)
    return any(names_in(u) & {x.var for x in u.site.loops} - outer for u in uses(program, buffer, find_loop(program, loop)))


def private(program: Program, group: Sequence[Nest]) -> list[str]:
    """Temporaries in global memory that only the group touches."""
    inside = {n for nest in group for n in nest.statements}
    out = []
    for name, found in all_uses(program).items():
        b = program.buffer[name]
        if b.role == "temp" and not b.placed and b.memory == "global" and all(statement_of(u) in inside for u in found):
            out.append(name)
    return out


def _inputs(program: Program, loop: str) -> dict[str, list[Use]]:
    """Buffers in global memory that the loop reads and does not write."""
    found = all_uses(program, find_loop(program, loop))
    return {n: us for n, us in found.items() if program.buffer[n].memory == "global" and not any(u.write for u in us)}


def _repeated(u: Use, outer: frozenset[str]) -> bool:
    """Does some loop inside leave the access where it is?"""
    return bool({x.var for x in u.site.loops} - outer - names_in(u))


def _across(u: Use) -> bool:
    """Does the loop that steps along the target's last dimension step along another dimension here?"""
    action = u.site.action
    if not isinstance(action, Leaf) or len(u.logical) < 2 or not action.target.index:
        return False
    fast = action.target.index[-1].names & {x.var for x in u.site.loops}
    return bool(fast & names_in(u)) and not fast & u.logical[-1].names
