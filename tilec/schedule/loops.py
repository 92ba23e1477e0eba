"""Loops, cutting and joining: split, tile, fuse, peel, unroll."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff, AffLike, Constraint, Div, ceil_div
from tilec.ir.program import BLOCK_KINDS, THREAD_KINDS, Guard, Loop, Program
from tilec.ir.tree import Position, loop_conditions, path_to, subs
from tilec.poly import bounds
from tilec.schedule.core import choice, integer, names, primitive
from tilec.schedule.loops_order import in_order
from tilec.schedule.names import display, find_loop, free_name, loop_at, new_name
from tilec.schedule.nest import const_extent, context, described, range_text, simple, swap
from tilec.schedule.owners import repair

TAILS = ("min", "guard", "peel", "exact")


@primitive("loops")
def split(program: Program, loop: str, factor: int, into: tuple[str, str] | None = None, tail: str = "min") -> Program:
    """Cut a loop into tiles: an outer loop over them and an inner loop within one.

    1. `factor` is an integer >= 1; it may exceed the extent (one partial tile).
    2. `into` are two different, free names; by default `v_o` and `v_i`.
    3. The loop is not bound to blocks or threads and not pipelined (split first).
    4. tail="peel" needs one lower and one upper bound; "exact" one lower bound, and every upper one known to be a multiple of the
       factor away from it.

        for i in 0..N:      "min"      for i_o in 0..ceil(N/4):
            S[i]             ->            for i_i in 0..min(4, N - 4*i_o):
                                               S[4*i_o + i_i]
    "guard": the inner loop runs full tiles and the body is guarded. "peel": full tiles, then one loop for the rest.
    A loop with several lower bounds is cut at multiples of the factor, and so is one whose lower bound moves with an outer loop
    (a skewed band needs tiles that stand still; not for "peel" and "exact"); any other one from its lower bound on.
    """
    position = find_loop(program, loop)
    node = loop_at(program, position)
    factor = integer(factor, "the factor")
    choice(tail, "tail", TAILS)
    if node.kind in (*BLOCK_KINDS, *THREAD_KINDS, "pipelined"):
        raise ScheduleError(f"'{loop}' is {node.kind}: split it before it is bound or pipelined")
    outer, inner = _into(program, node.var, into)
    known = context(program, position)
    bare = simple(program, node, known)
    lows, ups = bare.lower, bare.upper
    base, extent = lows[0], ups[0] - lows[0]
    several = len(lows) > 1 or (tail in ("min", "guard") and _moves(program, position, base))
    if several:
        base = Aff(0)
    value = base + Aff.of(outer) * factor + inner
    start = tuple((low // factor) for low in lows) if several else (Aff(0),)
    stop = tuple(ceil_div(up - base, factor) for up in ups)
    first = tuple(low - Aff.of(outer) * factor for low in lows) if several else ()
    last = tuple(up - base - Aff.of(outer) * factor for up in ups)
    body = subs(node.body, {node.var: value})
    outer_kind = "serial" if node.kind in ("vector", "unrolled") else node.kind
    tiles = Loop(outer, start, stop, (), outer_kind)
    became = {node.var: (outer, inner)}
    exact = not several and all(multiple(program, up - base, factor) for up in ups)
    if tail == "exact" and not exact:
        raise ScheduleError(
            f"the extent of '{loop}' ({range_text(node)}) is not known to be a multiple of {factor}. Possible: another factor, "
            f'tail="min", "guard" or "peel", a bound size, or an assumption: sizes(..., where="... % {factor} == 0")'
        )
    if exact:
        new = (replace(tiles, body=(Loop(inner, (Aff(0),), (Aff(factor),), body, node.kind),)),)
    elif tail == "guard":
        conditions = tuple(Constraint.ge(value, low) for low in lows if several) + tuple(Constraint.lt(value, up) for up in ups)
        new = (replace(tiles, body=(Loop(inner, (Aff(0),), (Aff(factor),), (Guard(conditions, body),), node.kind),)),)
    elif tail == "peel":
        if several or len(ups) > 1:
            raise ScheduleError(
                f'\'{loop}\' runs {range_text(node)}: peel needs one bound on each side. Use tail="min" or "guard"'
            )
        new = _peeled_tail(program, tiles, inner, extent, base, factor, node, known)
    else:
        points = Loop(inner, (Aff(0), *first), (Aff(factor), *last), body, node.kind)
        new = (replace(tiles, body=(_trim(program, points, tiles, known),)),)
    return repair(program, swap(program, position, *new), became)


def _moves(program: Program, position: Position, low: Aff) -> bool:
    """Does the bound use the variable of a loop further out?"""
    return any(isinstance(n, Loop) and n.var in low.names for n in path_to(program.body, position))


def _trim(program: Program, points: Loop, tiles: Loop, known: Sequence[Constraint]) -> Loop:
    single = len(points.upper) == 2 and (points.upper[1] + Aff.of(tiles.var) * points.upper[0].const)
    if single and single.is_const and len(tiles.upper) == 1 and tiles.upper[0] == Aff(1) and tiles.lower == (Aff(0),):
        return replace(points, upper=(single,))  # one partial tile
    return simple(program, points, [*known, *loop_conditions(tiles)])


def _peeled_tail(
    program: Program, tiles: Loop, inner: str, extent: Aff, base: Aff, factor: int, node: Loop, known: Sequence[Constraint]
) -> tuple[Loop, ...]:
    whole = extent // factor
    body = subs(node.body, {node.var: base + Aff.of(tiles.var) * factor + inner})
    main = replace(tiles, upper=(whole,), body=(Loop(inner, (Aff(0),), (Aff(factor),), body, node.kind),))
    # a negative extent has no rest, whatever its remainder
    positive = bounds.implied(Constraint(extent), known, program.sizes, program.where)
    rest = (extent % factor,) if positive else (extent % factor, extent)
    remainder = Loop(inner, (Aff(0),), rest, subs(node.body, {node.var: base + whole * factor + inner}), node.kind)
    out = () if whole.is_const and whole.const <= 0 else (main,)
    return out if rest[0].is_const and rest[0].const <= 0 else (*out, remainder)


def multiple(program: Program, extent: Aff, factor: int) -> bool:
    """Is the extent a multiple of the factor for all sizes, by its form and by assumptions like `N % 64 == 0`?"""
    values: dict[str, AffLike] = {}
    for c in program.where:
        if c.equal:
            for atom, k in c.expr.terms:
                # N - 64*floor(N/64) == 0
                if isinstance(atom, Div) and (name := atom.num.single) and c.expr == (Aff.of(name) % atom.den) and k == -atom.den:
                    values[name] = Aff.of(f"{name}'") * atom.den
    return (extent.subs(values) % factor) == Aff(0)


def _into(program: Program, var: str, into: Any) -> tuple[str, str]:
    if into is None:
        outer = free_name(program, f"{var}_o".replace(".", "_"))
        return outer, free_name(program, f"{var}_i".replace(".", "_"))
    if not isinstance(into, tuple) or len(into) != 2:
        raise ScheduleError(f"into must be two names, the outer one first, not {into!r}")
    outer, inner = (n if n == var else new_name(program, n) for n in into)
    if outer == inner:
        raise ScheduleError(f"into: both loops are called '{outer}'")
    return outer, inner


@primitive("loops")
def tile(
    program: Program, loops: tuple[str, ...], factors: tuple[int, ...] | int, into: tuple[tuple[str, str], ...] | None = None
) -> Program:
    """Split each loop and nest all tile loops outside all point loops.

    1. As many factors as loops (or one for all); what split requires of each.
    2. The loops form one path (reorder).
    3. `into`: one pair of names for each loop.

        for i: for j: S    ->    for i_o: for j_o: for i_i: for j_i: S
    """
    given = names(loops, "the loops")
    sizes = (factors,) * len(given) if isinstance(factors, int) else factors
    if not isinstance(sizes, tuple) or len(sizes) != len(given):
        raise ScheduleError(f"{len(given)} loops need {len(given)} factors, not {factors!r}")
    if into is not None and (not isinstance(into, tuple) or len(into) != len(given)):
        raise ScheduleError(f"into must be {len(given)} pairs of names, one for each loop, not {into!r}")
    positions = [find_loop(program, name) for name in given]
    if len(set(positions)) < len(positions):
        raise ScheduleError("two of the names mean the same loop")
    deepest = max(positions, key=len)
    for name, p in zip(given, positions, strict=True):
        if p != deepest[: len(p)]:
            raise ScheduleError(f"'{name}' is not around '{display(program, deepest)}': tile takes loops of one path")
    # innermost first: the positions of the loops further out stay
    for n in sorted(range(len(given)), key=lambda n: -len(positions[n])):
        var = loop_at(program, positions[n]).var
        pair = _into(program, var, into[n] if into is not None else None)
        program = split(program, display(program, positions[n]), sizes[n], pair)

    def moved(p: Position) -> Position:
        """Every tiled loop further out has become two."""
        out: list[int] = []
        for depth in range(len(p)):
            out.append(p[depth])
            if p[: depth + 1] in positions and depth + 1 < len(p):
                out.append(0)
        return tuple(out)

    band = [*map(moved, positions), *((*moved(p), 0) for p in positions)]
    return in_order(program, band) if len(given) > 1 else program


@primitive("loops")
def fuse(program: Program, outer: str, inner: str, into: str | None = None) -> Program:
    """Collapse two nested loops into one that runs the same iterations in the same order.

    1. `inner` is the only child of `outer` and both have the same kind.
    2. `outer` has one lower bound; some lower and upper bound of `inner` differ by a constant E (other bounds become a guard).
    3. `into` is free; by default `<outer>_<inner>`.

        for i in 0..N:                     for i_j in 0..8*N:
            for j in 0..8: S[i,j]    ->        S[floor(i_j/8), i_j % 8]
    """
    a, b = find_loop(program, outer), find_loop(program, inner)
    x, y = loop_at(program, a), loop_at(program, b)
    if b != (*a, 0) or len(x.body) != 1:
        inside = ", ".join(described(program, (*a, n)) for n in range(len(x.body)))
        raise ScheduleError(
            f"'{inner}' is not the only child of '{outer}' (directly inside: {inside}). "
            "distribute and reorder make loops perfectly nested"
        )
    if x.kind != y.kind:
        raise ScheduleError(f"'{outer}' is {x.kind} and '{inner}' is {y.kind}: fuse them before one of them is bound")
    known = context(program, a)
    x, y = simple(program, x, known), simple(program, y, [*known, *loop_conditions(x)])
    start = x.lower[0]
    if len(x.lower) > 1:
        raise ScheduleError(f"'{outer}' runs {range_text(x)}: one lower bound is needed. Split or peel it first")
    pairs = [(low, up, (up - low).const) for low in y.lower for up in y.upper if (up - low).is_const and (up - low).const >= 1]
    if not pairs:
        raise ScheduleError(
            f"the extent of '{inner}' ({range_text(y)}) is no constant, so the iterations cannot be numbered by one affine loop. "
            f'Possible: split("{inner}", n) and fuse its parts, or bind the size at schedule(...)'
        )
    low, up, extent = min(pairs, key=lambda t: t[2])
    var = new_name(program, into) if into is not None else free_name(program, f"{x.var}_{y.var}".replace(".", "_"))
    row = start + Aff.of(var) // extent
    column = low.subs({x.var: row}) + Aff.of(var) % extent
    values: dict[str, AffLike] = {x.var: row, y.var: column}
    rest = [Constraint.ge(y.var, e) for e in y.lower if e != low] + [Constraint.lt(y.var, e) for e in y.upper if e != up]
    body = subs(y.body, values)
    if rest:
        body = (Guard(tuple(c.subs(values) for c in rest), body),)
    merged = Loop(var, (Aff(0),), tuple((e - start) * extent for e in x.upper), body, x.kind)
    # an owner of the outer loop alone has no loop of its own any more: it moves further out
    return repair(program, swap(program, a, merged), joined={(x.var, y.var): var})


@primitive("loops")
def peel(program: Program, loop: str, n: int = 1, end: str = "front") -> Program:
    """Give the first or the last `n` iterations a loop of their own.

    1. `n` is an integer >= 1; end is "front" or "back".
    2. The loop has one lower bound (front) or one upper bound (back), and is not bound or pipelined.

        for i in 0..N: S    ->    for i in 0..min(1, N): S
                                  for i in 1..N: S
    """
    position = find_loop(program, loop)
    node = loop_at(program, position)
    n = integer(n, "n")
    choice(end, "end", ("front", "back"))
    if node.kind in (*BLOCK_KINDS, *THREAD_KINDS, "pipelined"):
        raise ScheduleError(f"'{loop}' is {node.kind}: peel it before it is bound or pipelined")
    known = context(program, position)
    node = simple(program, node, known)
    if len(node.lower if end == "front" else node.upper) > 1:
        other = "back" if end == "front" else "front"
        raise ScheduleError(
            f"'{loop}' runs {range_text(node)}: one {'lower' if end == 'front' else 'upper'} bound is needed. "
            f'Possible: end="{other}", or split'
        )
    if end == "front":
        cut = node.lower[0] + n
        parts = [replace(node, upper=(cut, *node.upper)), replace(node, lower=(cut,))]
    else:
        cut = node.upper[0] - n
        parts = [replace(node, upper=(cut,)), replace(node, lower=(*node.lower, cut))]
    parts = [simple(program, part, known) for part in parts]
    return repair(program, swap(program, position, *(p for p in parts if not _empty(p))))


def _empty(loop: Loop) -> bool:
    return any((u - low).is_const and (u - low).const <= 0 for low in loop.lower for u in loop.upper)


@primitive("loops")
def unroll(program: Program, loops: str | tuple[str, ...]) -> Program:
    """Mark loops to be written out iteration by iteration.

    1. Each loop is serial.
    2. Its extent is bounded by a constant for all sizes.

        for i in 0..4: S    ->    for i in 0..4: S   # unrolled
    """
    for name in names(loops, "the loops"):
        position = find_loop(program, name)
        node = loop_at(program, position)
        if node.kind != "serial":
            raise ScheduleError(f"'{name}' is {node.kind}: only a serial loop can be unrolled")
        if const_extent(program, node, context(program, position)) is None:
            raise ScheduleError(
                f"the extent of '{name}' ({range_text(node)}) is no constant. Possible: split(\"{name}\", n) and unroll the "
                "inner loop, or bind the size at schedule(...)"
            )
        program = swap(program, position, replace(node, kind="unrolled"))
    return program
