"""Reductions: split_reduction."""

from __future__ import annotations

from dataclasses import replace

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff, AffLike, Constraint
from tilec.ir.program import Address, Buffer, Guard, Identity, Leaf, Loop, Merge, Node, Program
from tilec.ir.tree import Body, Position, addresses, at, loop_conditions, path_to, put, sites, subs_address, transform
from tilec.poly import bounds
from tilec.poly.regions import NoBox, Piece, box
from tilec.schedule.core import primitive
from tilec.schedule.names import display, find_buffer, find_loop, free_name, loop_at, new_name, taken
from tilec.schedule.nest import context, guarded, range_text
from tilec.schedule.owners import access_sites, owning


@primitive("reduction")
def split_reduction(
    program: Program, buffer: str, loop: str | None = None, into: str | None = None, fold: int | None = None
) -> Program:
    """Give every iteration of `loop` a partial result of its own, merged into the accumulator after the loop, in order.

    1. Inside `loop`, the accumulator `buffer` is accessed by one updating statement only (its initial value stands outside).
    2. The element it updates does not depend on `loop`, and its owner is a loop further out.
    3. `into`, the name of the partial buffer, is free; by default `<buffer>_part`.
    4. The loop has one lower bound.
    5. `fold`, where given, divides the constant number of iterations, which all touch the same elements: the partial
       results are first merged into `fold` of them, neighbours side by side, as vectors do it.
    With one name only it is the loop, and the accumulator is the one that this loop reduces. The proof asks for
    reassociate="buffer", unless the operation is max, min or an integer one.

        acc = 0                               acc = 0
        for ko:                        ->     for ko:
            for ki: acc += x[ko, ki]              acc_part[ko] = 0 (the neutral element)
                                                  for ki: acc_part[ko] += x[ko, ki]
                                              for ko_m: acc += acc_part[ko_m]
    """
    if loop is None:
        loop = buffer
        position = find_loop(program, loop)
        buffer = _reduced(program, position, loop)
    else:
        position = find_loop(program, loop)
    accumulator = find_buffer(program, buffer)
    node = loop_at(program, position)
    leaf_at, leaf = _update(program, position, accumulator, loop)
    first = node.lower[0]
    if len(node.lower) > 1:
        raise ScheduleError(f"'{loop}' runs {range_text(node)}: one lower bound is needed. Split it first")
    statement = program.statement[leaf.statement]
    name = new_name(program, into) if into is not None else free_name(program, f"{buffer}_part")
    logical = next(index for a, index, write in addresses(leaf, program) if write)
    root = program.source.buffer[accumulator.root or buffer]
    slots = _slots(program, node, position, loop)
    partial = Buffer(name, accumulator.dtype, (slots, *root.shape), "partial", root=root.name, private=0)
    cell = Address(name, (Aff.of(node.var) - first, *logical))

    path = [n for n in path_to(program.body, leaf_at)[len(position) :] if isinstance(n, Loop | Guard)]
    kept = [n for n in path if isinstance(n, Loop) and any(n.var in e.names for e in (*logical, *leaf.target.index))]
    start: dict[str, AffLike] = {n.var: f"{name}.{k}" for k, n in enumerate(kept)}
    known = [*context(program, position), *loop_conditions(node)]
    identity = Identity(subs_address(cell, start), statement.op, tuple(e.subs(start) for e in logical))
    init = _cells(program, kept, path, [], start, identity, known)

    merged = free_name(program, f"{node.var}_m".replace(".", "_"), {name})
    end: dict[str, AffLike] = {n.var: _unique(program, f"{buffer}.{k}") for k, n in enumerate(kept)}
    end[node.var] = merged
    merge = Merge(
        subs_address(leaf.target, end),
        subs_address(cell, end),
        statement.op,
        tuple(e.subs(end) for e in logical),
        tuple(e.subs(end) for e in logical),
    )
    collect = _cells(program, kept, path, [node], end, merge, context(program, position))

    if fold is not None:
        count = _count(node, path, kept, loop, fold)
        blocks, points = _unique(program, f"{merged}.0"), _unique(program, f"{merged}.1")
        slot = {node.var: first + Aff.of(points)}
        fewer = Loop(points, (Aff(0),), (Aff(fold),), ())
        more = Loop(blocks, (Aff(1),), (Aff(count // fold),), ())
        back = {**end, node.var: first + Aff.of(blocks) * fold + Aff.of(points)}
        onto = subs_address(cell, {**end, **slot})
        halves = replace(merge, dst=onto, src=subs_address(cell, back))
        last = replace(merge, src=onto)
        inside = [n for n in path if n is not node and n not in _bounded(node, path)]
        collect = (
            *_cells(program, kept, inside, [more, fewer], end, halves, context(program, position)),
            *_cells(
                program,
                kept,
                inside,
                [fewer],
                {**end, points: merged},
                replace(last, src=subs_address(onto, {points: merged})),
                context(program, position),
            ),
        )

    def update(n: Node) -> Body:
        return (replace(leaf, target=cell),) if n is leaf else (n,)

    inner = replace(node, body=(*init, *transform(node.body, update)))
    body = put(program.body, position, (inner, *collect))
    return replace(program, body=body, buffers=(*program.buffers, partial))


def _bounded(node: Loop, path: list[Loop | Guard]) -> list[Loop | Guard]:
    """What stands inside the loop and runs from or to where the loop's variable says."""
    return [n for n in path if any(node.var in c.names for c in (n.conditions if isinstance(n, Guard) else loop_conditions(n)))]


def _count(node: Loop, path: list[Loop | Guard], kept: list[Loop], loop: str, fold: int) -> int:
    extent = node.upper[0] - node.lower[0]
    bounded = [n for n in _bounded(node, path) if n is not node and (n in kept or isinstance(n, Guard))]
    if len(node.upper) > 1 or not extent.is_const or fold < 1 or extent.const % fold or bounded:
        raise ScheduleError(
            f"fold={fold} does not divide a constant number of iterations that touch the same elements: "
            f"'{loop}' runs {range_text(node)}. Possible: leave it out, split(\"{loop}\", n)"
        )
    return extent.const


def _unique(program: Program, name: str) -> str:
    used = taken(program)
    buffer, _, k = name.partition(".")
    n = int(k)
    while f"{buffer}.{n}" in used:
        n += 1
    return f"{buffer}.{n}"


def _reduced(program: Program, position: Position, loop: str) -> str:
    """The only buffer that statements inside update without depending on the loop."""
    node = loop_at(program, position)
    found: list[str] = []
    for site in sites(node.body):
        if isinstance(site.action, Leaf) and program.statement[site.action.statement].op != "=":
            logical = next(index for _, index, write in addresses(site.action, program) if write)
            if all(node.var not in e.names for e in logical):
                found.append(site.action.target.buffer)
    found = list(dict.fromkeys(found))
    if len(found) != 1:
        what = "nothing" if not found else "several buffers: " + ", ".join(found)
        raise ScheduleError(f"'{loop}' reduces {what}. Name the accumulator: split_reduction(buffer, \"{loop}\")")
    return found[0]


def _update(program: Program, position: Position, accumulator: Buffer, loop: str) -> tuple[Position, Leaf]:
    name = accumulator.name
    everywhere = access_sites(program).get(name, [])
    inside = [s for s in everywhere if s.position[: len(position)] == position]
    node = loop_at(program, position)
    if not inside:
        around = [display(program, p) for s in everywhere for p in _loops_above(program, s.position)]
        raise ScheduleError(
            f"'{name}' is not accessed inside '{loop}'. Loops around its accesses: {', '.join(dict.fromkeys(around))}"
        )
    leaves = [s for s in inside if isinstance(s.action, Leaf) and s.action.target.buffer == name]
    leaf = leaves[0].action if leaves else None
    updating = isinstance(leaf, Leaf) and program.statement[leaf.statement].op != "="
    reads = isinstance(leaf, Leaf) and any(a.buffer == name and not write for a, _, write in addresses(leaf, program))
    if len(inside) != 1 or not updating or reads or not isinstance(leaf, Leaf):
        texts = ", ".join(s.action.statement if isinstance(s.action, Leaf) else type(s.action).__name__.lower() for s in inside)
        raise ScheduleError(
            f"inside '{loop}' the accumulator '{name}' must be accessed by one updating statement only; it is accessed "
            f"by {texts}. reorder moves its first value and its uses out of the loop"
        )
    logical = next(index for _, index, write in addresses(leaf, program) if write)
    if any(node.var in e.names for e in (*logical, *leaf.target.index)):
        raise ScheduleError(f"'{loop}' does not reduce '{name}': the element it updates depends on '{node.var}'")
    if node.var in owning(accumulator, everywhere):
        raise ScheduleError(f"'{name}' is owned by '{accumulator.owner}' inside '{loop}': place it further out first")
    return inside[0].position, leaf


def _loops_above(program: Program, position: Position) -> list[Position]:
    return [position[:n] for n in range(1, len(position)) if isinstance(at(program.body, position[:n]), Loop)]


def _slots(program: Program, node: Loop, position: Position, loop: str) -> Aff:
    """How many partials one run of the loop makes at most: affine in the sizes, else a constant."""
    extents = [u - node.lower[0] for u in node.upper]
    plain = [e for e in extents if e.names <= set(program.sizes)]
    if plain:
        return plain[0]
    slot = Piece((Aff.of(node.var) - node.lower[0],), (*context(program, position), *loop_conditions(node)))
    try:
        (span,) = box([slot], [], program.sizes, program.where)
    except NoBox:
        raise ScheduleError(
            f"the number of iterations of '{loop}' ({range_text(node)}) is neither constant nor a function of the sizes. "
            f'Possible: split("{loop}", n), bind the sizes at schedule(...)'
        ) from None
    return span.extent + span.base


def _cells(
    program: Program,
    kept: list[Loop],
    path: list[Loop | Guard],
    slots: list[Loop],
    rename: dict[str, AffLike],
    action: Identity | Merge,
    known: list[Constraint],
) -> Body:
    """A nest over the elements that the update touches (and the slots), each once."""
    conditions = [c for n in slots for c in loop_conditions(n)]
    for n in path:
        conditions += n.conditions if isinstance(n, Guard) else loop_conditions(n)
    band = [*kept, *slots]
    rest = [n for n in path if isinstance(n, Loop) and n not in kept]
    order = [n.var for n in (*band, *rest)]
    found, guards = bounds.nest(order, conditions, program.sizes, program.where, known)
    hidden = {n.var for n in rest}
    body = guarded([c.subs(rename) for c in guards if not c.names & hidden], (action,))
    for n, (low, up) in reversed(list(zip(band, found[: len(band)], strict=True))):
        var = str(Aff.of(n.var).subs(rename))
        body = (Loop(var, tuple(e.subs(rename) for e in low), tuple(e.subs(rename) for e in up), body),)
    return body
