"""Building loop nests: what the order primitives share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import Copy, Guard, Leaf, Loop, Node, Program
from tilec.ir.tree import Body, Position, at, loop_conditions, path_to, put
from tilec.poly import bounds
from tilec.schedule.names import display


def context(program: Program, position: Position) -> list[Constraint]:
    """What is known at `position`: the bounds and guards above it."""
    out: list[Constraint] = []
    for node in path_to(program.body, position):
        out += node.conditions if isinstance(node, Guard) else loop_conditions(node)
    return out


def siblings(program: Program, position: Position) -> Body:
    """The body that holds the node at `position`."""
    if len(position) == 1:
        return program.body
    parent = at(program.body, position[:-1])
    assert isinstance(parent, Loop | Guard)
    return parent.body


def swap(program: Program, position: Position, *new: Node) -> Program:
    """The program with other nodes in place of the one at `position`."""
    return replace(program, body=put(program.body, position, new))


def guarded(conditions: Iterable[Constraint], body: Body) -> Body:
    """`body` under a guard of those conditions that are no constants."""
    kept = tuple(dict.fromkeys(c for c in conditions if not (c.expr.is_const and c.holds({}))))
    return (Guard(kept, body),) if kept and body else body


def simple(program: Program, loop: Loop, known: Sequence[Constraint]) -> Loop:
    """The loop without bounds that its others and what is known imply; one bound a side stays as it is."""
    lower, upper = tuple(dict.fromkeys(loop.lower)), tuple(dict.fromkeys(loop.upper))
    lower, upper = _extreme(lower, max), _extreme(upper, min)
    if len(lower) > 1:
        kept = bounds.simplify([Constraint.ge(loop.var, e) for e in lower], known, program.sizes, program.where)
        lower = tuple(e for e in lower if Constraint.ge(loop.var, e) in kept) or lower[:1]
    if len(upper) > 1:
        below = [Constraint.ge(loop.var, e) for e in lower]
        kept = bounds.simplify([Constraint.lt(loop.var, e) for e in upper], [*known, *below], program.sizes, program.where)
        # an upper bound may be implied by an empty range only: keep one
        upper = tuple(e for e in upper if Constraint.lt(loop.var, e) in kept) or upper[:1]
    return replace(loop, lower=lower, upper=upper)


def _extreme(bound: tuple[Aff, ...], pick: Callable[[int, int], int]) -> tuple[Aff, ...]:
    """Of bounds that differ by a constant only the binding one."""
    groups: dict[tuple, int] = {}
    for e in bound:
        groups[e.terms] = pick(groups[e.terms], e.const) if e.terms in groups else e.const
    return tuple(Aff(const, terms) for terms, const in groups.items())


def readable(loops: Sequence[Loop], hidden: Iterable[str] = ()) -> bool:
    """Does every header refer only to loops further out (and to none that is hidden)?"""
    later = {loop.var for loop in loops} | set(hidden)
    for loop in loops:
        if any(e.names & later for e in (*loop.lower, *loop.upper)):
            return False
        later.discard(loop.var)
    return True


def build(
    program: Program,
    loops: Sequence[Loop],
    guards: Iterable[Constraint],
    body: Body,
    known: Sequence[Constraint],
    anew: bool = False,
) -> Body:
    """The nest that runs the integer points of the loops' bounds and the guards, in the order of `loops`, outermost first.

    Headers are kept where each refers to what stands outside it only, else (or if `anew`) bounds are derived, the guards
    included. Guards stand as far out as their variables allow.
    """
    remaining = list(dict.fromkeys(guards))
    headers = list(loops)
    if anew or not readable(loops):
        conditions = [*(c for loop in loops for c in loop_conditions(loop)), *remaining]
        found, remaining = bounds.nest([loop.var for loop in loops], conditions, program.sizes, program.where, known)
        headers = [replace(loop, lower=low, upper=up) for loop, (low, up) in zip(loops, found, strict=True)]
    placed: list[list[Constraint]] = [[] for _ in range(len(loops) + 1)]
    for c in remaining:
        depth = max((n + 1 for n, loop in enumerate(headers) if loop.var in c.names), default=0)
        placed[depth].append(c)
    out = guarded(placed[-1], body)
    for n in reversed(range(len(headers))):
        out = guarded(placed[n], (replace(headers[n], body=out),))
    return out


def const_extent(program: Program, loop: Loop, known: Sequence[Constraint]) -> int | None:
    """The largest number of iterations, when it does not grow with the sizes."""
    differences = [u - low for low in loop.lower for u in loop.upper]
    fixed = [d.const for d in differences if d.is_const]
    if fixed and len(differences) == 1:
        return max(fixed[0], 0)
    return bounds.extent_const((loop.lower, loop.upper), known, program.sizes, program.where)


def range_text(loop: Loop) -> str:
    """`max(a, b)..min(c, d)`."""
    low = str(loop.lower[0]) if len(loop.lower) == 1 else f"max({', '.join(map(str, loop.lower))})"
    high = str(loop.upper[0]) if len(loop.upper) == 1 else f"min({', '.join(map(str, loop.upper))})"
    return f"{low}..{high}"


def described(program: Program, position: Position) -> str:
    """What stands at a position, for messages: loop 'acc.k', statement 'S1', a guard, a copy into 'A_shared', a barrier."""
    node = at(program.body, position)
    match node:
        case Loop():
            return f"loop '{display(program, position)}'"
        case Leaf():
            return f"statement '{node.statement}'"
        case Guard():
            return "a guard"
        case Copy():
            return f"a copy into '{node.dst.buffer}'"
        case _:
            return f"a {type(node).__name__.lower()}"
