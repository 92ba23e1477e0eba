"""Shrinking a nest that moves under another loop to what is needed there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import Guard, Inline, Leaf, Loop, Node, Program, Read
from tilec.ir.tree import Body, loop_conditions, loops, rename_loop, sites, subs
from tilec.poly.bounds import connected, is_empty, tightest
from tilec.poly.regions import NoBox, Piece, box, exact, hull, injective, renamed
from tilec.schedule.names import free_name


@dataclass(frozen=True)
class Place:
    """Where a nest moves to: the loops around it there, and all that their bounds and guards say."""

    loops: tuple[str, ...]
    known: tuple[Constraint, ...]


@dataclass(frozen=True)
class Join:
    """The iterations of one action of the nest (below `at`, a position in it) that are needed, with all their conditions."""

    at: tuple[int, ...]
    conditions: tuple[Constraint, ...]


def separate(program: Program, child: Node, around: Sequence[str]) -> tuple[Node, dict[str, tuple[str, ...]]]:
    """The nest with new names for its loops that would repeat one of `around`, and which names these are."""
    became: dict[str, tuple[str, ...]] = {}
    for var in dict.fromkeys(loop.var for _, loop in loops((child,))):
        if var in around:
            new = free_name(program, var, {n for names in became.values() for n in names})
            (child,) = rename_loop((child,), var, new)
            became[var] = (new,)
    return child, became


def joins(
    program: Program,
    place: Place,
    above: Sequence[Constraint],
    own: Sequence[tuple[tuple[int, ...], Piece]],
    wanted: Sequence[Piece],
) -> list[Join]:
    """Iterations of the nest's actions whose cells (`own`, by position in the nest) are among the `wanted` ones.

    above: what holds around the nest where it stands now.
    """
    keep = [*place.loops, *program.sizes]
    out: list[Join] = []
    for r in dict.fromkeys(renamed(w, keep, ".wanted") for w in wanted):
        for position, piece in own:
            both = exact(Piece(piece.index, (*above, *piece.conditions)), r)
            if not is_empty(both, program.sizes, program.where):
                out.append(Join(position, both))
    return out


def shrink(program: Program, child: Node, place: Place, needed: Sequence[Join]) -> Node:
    """The nest with its loops around the needed actions cut to the hull of the needed iterations, within their old bounds."""

    def node(n: Node, position: tuple[int, ...], path: tuple[str, ...], known: tuple[Constraint, ...]) -> Node:
        if isinstance(n, Guard):
            return replace(n, body=body(n.body, position, path, (*known, *n.conditions)))
        if not isinstance(n, Loop):
            return n
        inner = [j for j in needed if j.at[: len(position)] == position]
        if inner:
            # conditions without a link to this loop only say whether anything runs: leaving them out keeps the hull a hull
            linked = [connected((n.var,), j.conditions) for j in inner]
            near = frozenset().union(*(c.names for conditions in linked for c in conditions))
            variables = (*(v for v in path if v in near), n.var)
            dims = [v + ".x" for v in variables]
            pieces = [Piece(tuple(Aff.of(v) for v in variables), conditions) for conditions in linked]
            back = dict(zip(dims, variables, strict=True))
            found = [c.subs(back) for c in hull(dims, pieces, place.loops, program.sizes, program.where)]
            lower, upper = tightest(n.var, [*found, *loop_conditions(n)], known, program.sizes, program.where)
            n = replace(n, lower=lower, upper=upper)
        return replace(n, body=body(n.body, position, (*path, n.var), (*known, *loop_conditions(n))))

    def body(nodes: Body, position: tuple[int, ...], path: tuple[str, ...], known: tuple[Constraint, ...]) -> Body:
        return tuple(node(n, (*position, k), path, known) for k, n in enumerate(nodes))

    return node(child, (), (), place.known)


def rebase(program: Program, child: Node, place: Place) -> Node:
    """The nest with each loop whose range moves with the outer loops counting from the start of its box instead."""

    def node(n: Node, known: tuple[Constraint, ...]) -> Node:
        if isinstance(n, Guard):
            return replace(n, body=tuple(node(x, (*known, *n.conditions)) for x in n.body))
        if not isinstance(n, Loop):
            return n
        base = start(program, n, known, place)
        if base.names:
            n = replace(
                n,
                lower=tuple(sorted((e - base for e in n.lower), key=lambda e: len(e.names))),
                upper=tuple(sorted((e - base for e in n.upper), key=lambda e: len(e.names))),
                body=subs(n.body, {n.var: base + n.var}),
            )
        inner = (*known, *loop_conditions(n))
        return replace(n, body=tuple(node(x, inner) for x in n.body))

    return node(child, place.known)


def start(program: Program, loop: Loop, known: tuple[Constraint, ...], place: Place) -> Aff:
    """Where a loop's box begins, in terms of the outer loops; 0 when its extent is not constant."""
    if all(e.is_const for e in loop.lower):
        return Aff(0)
    piece = Piece((Aff.of(loop.var),), (*known, *loop_conditions(loop)))
    try:
        (span,) = box([piece], place.loops, program.sizes, program.where)
    except NoBox:
        return Aff(0)
    return span.base if span.extent.is_const else Aff(0)


def recomputed(program: Program, child: Node, place: Place) -> frozenset[str]:
    """Statements of the nest of which some instance runs in several iterations of the loops around it."""
    out: set[str] = set()
    for site in sites((child,)):
        if isinstance(site.action, Leaf):
            piece = Piece(site.action.instance, (*place.known, *site.conditions))
            variables = [*place.loops, *(loop.var for loop in site.loops)]
            if not injective(piece, variables, program.sizes, program.where):
                out |= {site.action.statement, *inlined(site.action.reads)}
    return frozenset(out)


def inlined(reads: Sequence[Read]) -> set[str]:
    """Statements that are evaluated in place of a read, at any depth."""
    inner = [r for r in reads if isinstance(r, Inline)]
    return {r.statement for r in inner}.union(*(inlined(r.reads) for r in inner))
