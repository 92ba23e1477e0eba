"""The structure of code for CPUs: fill_at, specialise, team."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff, AffLike, Constraint
from tilec.ir.program import LAUNCH_KINDS, UNORDERED_KINDS, Address, Buffer, Copy, Guard, Loop, Node, Program
from tilec.ir.tree import Body, Position, loop_conditions, loops, path_to, put, sites
from tilec.ir.tree import at as node_at
from tilec.poly.bounds import nest
from tilec.poly.regions import hull
from tilec.schedule.core import names, primitive
from tilec.schedule.names import display, find_buffer, find_loop, loop_at, new_name, written
from tilec.schedule.nest import context, guarded, range_text, siblings, simple
from tilec.schedule.owners import repair
from tilec.schedule.placement_uses import addressing, conditions_to, insert, inside, loops_to, owner_position, uses
from tilec.schedule.storage import boxed


@primitive("storage")
def fill_at(program: Program, buffer: str, loop: str) -> Program:
    """Move the copies that fill a cache to where they are first used: each iteration of `loop` copies what it reads itself, the
    first time it is needed.

    1. `buffer` is a cache filled by one nest of copies, which stands before every read of it.
    2. `loop` stands below the owner of `buffer`, after that nest, and holds every read of `buffer`.
    3. The cells that one iteration of `loop` reads have a box of fixed extent. The copies run where every loop between the owner
       and `loop` that this box does not depend on is in its first iteration (that loop needs one lower bound).

        for k, j: Wp[k, j] = W[k, j]           for i:
        for i:                           ->        for j:
            for j: … Wp[.., j] …                       if i == 0: for k: Wp[k, j] = W[k, j]
                                                       … Wp[.., j] …
    """
    b = find_buffer(program, buffer)
    target = find_loop(program, loop)
    found = uses(program, b.name)
    fill, copy = _fill(program, b)
    owner = owner_position(program, b, found)
    if target[: len(owner)] != owner or target == owner or inside(target, fill) or target < fill:
        raise ScheduleError(
            f"'{loop}' must stand inside the owner of '{b.name}' and after the copies. {_possible(program, b, fill)}"
        )
    reads = [u for u in found if u.reads]
    if not reads or not all(inside(u.position, target) for u in reads):
        raise ScheduleError(f"'{loop}' does not hold every read of '{b.name}'. {_possible(program, b, fill)}")
    path = loops_to(program.body, target)
    outer = tuple(x.var for x in path)
    tile = boxed(program, replace(b, role="cache"), outer[-1], [u.piece for u in reads], outer)
    fixed = [*(x.var for x in loops_to(program.body, owner)), *program.sizes]
    near = addressing(reads, fixed)
    source = [u for u in uses(program, copy.src.buffer) if u.site.action is copy]
    far = addressing(source, fixed)
    rank = len(tile.kept)
    fresh = _copy_names(b.name, rank, outer)
    shift: dict[str, AffLike] = {f"#{n}": tile.spans[d].base + fresh[n] for n, d in enumerate(tile.kept)}
    dims = [f"x{n}" for n in range(rank)]
    pieces = [replace(u.piece, index=tuple(u.piece.index[d] for d in tile.kept)) for u in reads]
    back: dict[str, AffLike] = {x: f"#{n}" for n, x in enumerate(dims)}
    conditions = [c.subs(back).subs(shift) for c in hull(dims, pieces, outer, program.sizes, program.where)]
    known = conditions_to(program.body, target)
    bounds, guards = nest(fresh, conditions, program.sizes, program.where, known)
    cell = tile.logical([Aff.of(v) for v in fresh])
    body: Body = (
        replace(copy, dst=Address(b.name, near.physical(cell)), src=Address(copy.src.buffer, far.physical(cell)), cell=cell),
    )
    for var, (lower, upper) in reversed(list(zip(fresh, bounds, strict=True))):
        body = (Loop(var, lower, upper, body),)
    used = frozenset[str]().union(*(s.base.names for s in tile.spans))
    first: list[Constraint] = []
    for x in path[len(loops_to(program.body, owner)) :]:
        if x.var in used:
            continue
        low, *more = x.lower
        if more:
            raise ScheduleError(f"'{x.var}' runs {range_text(x)}: its first iteration needs one lower bound")
        first.append(Constraint.eq(x.var, low))
    body = guarded([*guards, *first], body)
    new = replace(program, body=insert(program.body, (*target, 0), before=body))
    return replace(new, body=put(new.body, fill, ()))


def _copy_names(prefix: str, rank: int, outer: Sequence[str]) -> list[str]:
    tries = (prefix, *(f"{prefix}{k}" for k in range(2, len(outer) + 3)))
    return next(found for t in tries if not set(found := [f"{t}.{n}" for n in range(rank)]) & set(outer))


def _fill(program: Program, b: Buffer) -> tuple[Position, Copy]:
    """The nest that fills a cache, and its copy."""
    copies = [s for s in sites(program.body) if isinstance(s.action, Copy) and s.action.dst.buffer == b.name]
    others = [u for u in uses(program, b.name) if u.write and not isinstance(u.site.action, Copy)]
    if b.role != "cache" or len(copies) != 1 or others:
        raise ScheduleError(f"'{b.name}' is not filled by one nest of copies alone, as cache_read makes it")
    site = copies[0]
    action = site.action
    assert isinstance(action, Copy)
    if action.asynchronous:
        raise ScheduleError(f"'{b.name}' is filled by asynchronous copies: do this before pipeline")
    position = site.position
    while len(position) > 1:
        around = node_at(program.body, position[:-1])
        if written((around,)) != [b.name] or any(u.reads for u in uses(program, b.name, position[:-1])):
            break
        position = position[:-1]
    return position, action


def _possible(program: Program, b: Buffer, fill: Position) -> str:
    reads = [u.position for u in uses(program, b.name) if u.reads]
    owner = owner_position(program, b, uses(program, b.name))
    fit = [
        display(program, p)
        for p, _ in loops(program.body)
        if inside(p, owner) and p != owner and p > fill and all(inside(q, p) for q in reads)
    ]
    return f"Possible loops: {', '.join(fit) or 'none'}"


@primitive("loops")
def specialise(program: Program, at: str, loops: str | tuple[str, ...]) -> Program:
    """Write out what one iteration of a loop does once for full tiles, with constant bounds, and once for what is left.

    1. Each of `loops` stands inside `at` and runs 0..min(E, …) with a constant E.
    2. The other bounds use sizes and loops at or outside `at` only.
    3. `at` and the loops are not bound to blocks or threads.

        for jo:                                  for jo:
            for k:                                   if 16*jo + 16 <= N:
                for j in 0..min(16, N - 16*jo)  ->       for k: for j in 0..16: S
                    S                                if N < 16*jo + 16:
                                                         for k: for j in 0..N - 16*jo: S
    """
    outer = find_loop(program, at)
    node = loop_at(program, outer)
    given = [(name, find_loop(program, name)) for name in names(loops, "the loops")]
    inside_at = {x.var for x in _loops_in(node.body)}
    full: list[Constraint] = []
    for name, position in given:
        loop = loop_at(program, position)
        if not inside(position, outer) or position == outer:
            held = ", ".join(sorted(inside_at)) or "none"
            raise ScheduleError(f"'{name}' does not stand inside '{at}'. Loops inside it: {held}")
        if node.kind in LAUNCH_KINDS or loop.kind in LAUNCH_KINDS:
            raise ScheduleError(f"'{name if loop.kind in LAUNCH_KINDS else at}' is bound: specialise before bind")
        constants = [e for e in loop.upper if e.is_const]
        rest = [e for e in loop.upper if not e.is_const]
        if loop.lower != (Aff(0),) or len(constants) != 1 or not rest:
            raise ScheduleError(f"'{name}' runs {range_text(loop)}: it must run 0..min(constant, …), as split makes it")
        moving = sorted({n for e in rest for n in e.names if n in inside_at})
        if moving:
            raise ScheduleError(
                f"the extent of '{name}' ({range_text(loop)}) changes with '{moving[0]}' inside '{at}'. Use at=\"{moving[0]}\""
            )
        full += [Constraint.ge(e, constants[0]) for e in rest]
    full = list(dict.fromkeys(full))
    ways: list[tuple[list[Constraint], Body]] = [(full, _tidied(program, node, outer, full))]
    before: list[Constraint] = []
    for c in full:  # the first of the conditions that fails tells the rest apart
        ways.append(([*before, Constraint(-c.expr - 1)], _tidied(program, node, outer, [*before, Constraint(-c.expr - 1)])))
        before.append(c)
    body: Body = tuple(Guard(tuple(conditions), inner) for conditions, inner in ways)
    return repair(program, replace(program, body=put(program.body, outer, (replace(node, body=body),))))


def _loops_in(body: Body) -> list[Loop]:
    return [loop for _, loop in loops(body)]


def _tidied(program: Program, node: Loop, outer: Position, extra: list[Constraint]) -> Body:
    """The body with bounds that the guard's conditions make redundant left out."""
    known = [*context(program, outer), *loop_conditions(node), *extra]

    def go(body: Body, around: list[Constraint]) -> Body:
        out: list[Node] = []
        for n in body:
            if isinstance(n, Loop):
                bare = simple(program, n, around)
                out.append(replace(bare, body=go(n.body, [*around, *loop_conditions(bare)])))
            elif isinstance(n, Guard):
                out.append(replace(n, body=go(n.body, [*around, *n.conditions])))
            else:
                out.append(n)
        return tuple(out)

    return go(node.body, known)


@primitive("mapping")
def team(program: Program, first: str, last: str | None = None, into: str = "team") -> Program:
    """Start the threads of a CPU once for a run of sibling loops: parallel loops inside share the iterations out and end in a
    barrier; what stands beside them runs on one thread.

    1. `first` and `last` are siblings, in this order; without `last` it is `first` alone.
    2. They stand under no parallel, vector or bound loop and in no team, and hold no loop bound to blocks or threads.
    3. At least one of them is or holds a parallel loop.
    4. `into` is a free name.

        for i in 0..M: …  # parallel          for team in 0..1:  # team
        for j in 0..N: …  # parallel    ->        for i in 0..M: …  # parallel
                                                  for j in 0..N: …  # parallel
    """
    a = find_loop(program, first)
    z = a if last is None else find_loop(program, last)
    if a[:-1] != z[:-1] or a[-1] > z[-1]:
        raise ScheduleError(f"'{first}' and '{last}' are no siblings in this order: a team holds neighbours")
    for x in path_to(program.body, a):
        if isinstance(x, Loop) and (x.kind in UNORDERED_KINDS or x.kind == "team"):
            raise ScheduleError(f"'{first}' stands under '{x.var}' ({x.kind}): a team starts outside parallel loops")
    held = siblings(program, a)[a[-1] : z[-1] + 1]
    kinds = {x.kind: x.var for _, x in loops(held)}
    bound = [v for k, v in kinds.items() if k in LAUNCH_KINDS]
    if bound:
        raise ScheduleError(f"'{bound[0]}' runs on a GPU's blocks or threads, which are no team of a CPU's threads")
    if "team" in kinds:
        raise ScheduleError(f"'{kinds['team']}' is a team already")
    if "parallel" not in kinds:
        raise ScheduleError("no parallel loop stands there: parallel first")
    name = new_name(program, into)
    body = program.body
    for n in reversed(range(a[-1] + 1, z[-1] + 1)):
        body = put(body, (*a[:-1], n), ())
    body = put(body, a, (Loop(name, (Aff(0),), (Aff(1),), held, "team"),))
    return replace(program, body=body)
