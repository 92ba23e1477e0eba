"""Copies of a part of a buffer kept nearer: cache_read and cache_write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import MEMORIES, THREAD_KINDS, Address, Buffer, Copy, Identity, Leaf, Loop, Merge, Program
from tilec.ir.tree import Body, Position, loops
from tilec.poly.bounds import nest
from tilec.poly.regions import Piece, covers, hull
from tilec.schedule.core import choice, primitive
from tilec.schedule.names import display, find_buffer, find_loop, free_name, new_name
from tilec.schedule.nest import guarded
from tilec.schedule.placement_uses import Use, check_room, conditions_to, insert, inside, loops_to, owner_position, uses
from tilec.schedule.storage import Tile, boxed, redirect, source_address


def _refuse_partial(b: Buffer) -> None:
    """A partial result is no cell of the kernel, so a copy of it has no value that the proof could follow."""
    if b.role == "partial":
        raise ScheduleError(
            f"'{b.name}' holds partial results of '{b.root}': it cannot be copied. Possible: place(\"{b.name}\", …)"
        )


@primitive("storage")
def cache_read(program: Program, buffer: str, at: str | None, memory: str, into: str | None = None) -> Program:
    """Copy what one iteration of a loop reads of a buffer into a nearer memory, and read it there.

    1. Something inside `at` reads `buffer`; `buffer` is not owned by a loop inside `at`. at=None: the whole program.
    2. `memory` is global, shared, register or scratch; shared not at or below a thread loop. With at=None global or scratch.
    3. `into` is a free name; by default `buffer_memory`.
    4. The cells read have a box of fixed extent (constant, or affine in the sizes).
    5. No block loop stands directly inside `at`.

        for ko:                              for ko:
            for i in 0..64:                      A_shared: bf16[64, 32] in shared
                … A[i, 32*ko + k] …     ->       for A_shared.0 in 0..64:
                                                     for A_shared.1 in 0..min(32, K - 32*ko):
                                                         A_shared[..] = A[A_shared.0, 32*ko + A_shared.1]
                                                 for i in 0..64: … A_shared[i, k] …
    """
    b = find_buffer(program, buffer)
    position = () if at is None else find_loop(program, at)
    if at is None:
        choice(memory, "the memory of a copy for the whole program", ("global", "scratch"))
    readers = [u for u in uses(program, b.name, position) if not u.write]
    if not readers:
        where = f"inside '{at}' " if at is not None else ""
        raise ScheduleError(f"nothing {where}reads '{b.name}'. Loops around its reads: {_around(program, b, False)}")
    _refuse_partial(b)
    cache = _Cache.of(program, b, position, memory, into, readers)
    before = (*position, min(u.position[len(position)] for u in readers))
    copy = cache.copies([u.piece for u in readers], cache.name, cache.name)
    body = redirect(program, b.name, position, cache.address, writes=False)
    return replace(program, body=insert(body, before, before=copy), buffers=(*program.buffers, cache.buffer))


@primitive("storage")
def cache_write(
    program: Program,
    buffer: str,
    at: str,
    memory: str,
    load: bool | str = "auto",
    into: str | None = None,
    merge: bool = False,
) -> Program:
    """Write a part of a buffer in a nearer memory during one iteration of a loop, then copy it out.

    1. Something inside `at` writes `buffer`; `buffer` is not owned by a loop inside `at`.
    2. `memory` and `into` as for cache_read.
    3. The cells accessed have a box of fixed extent.
    4. `load` is "auto", True or False. "auto" copies the old values in first where one is read, or where the copy out holds a
       cell that is not always written; False never does (the proof then refuses what needs it).
    5. merge=True: the cache starts at the neutral element and is added to the buffer's cells at the end, so that their old values
       are needed only there. Inside `at` one updating statement alone accesses the buffer, and `load` is "auto". The proof asks
       for reassociate, unless the operation is max, min or an integer one.

        for i:                               for i:
            for k:                               C_register: f32[N] in register
                for j: C[i,j] += …      ->       for C_register.0: C_register[..] = C[i, ..]
                                                 for k:
                                                     for j: C_register[j] += …
                                                 for C.0: C[i, ..] = C_register[..]
    """
    b = find_buffer(program, buffer)
    position = find_loop(program, at)
    if load not in (True, False, "auto"):
        raise ScheduleError(f'load must be "auto", True or False, not {load!r}')
    if not isinstance(merge, bool):
        raise ScheduleError(f"merge must be True or False, not {merge!r}")
    if merge:
        return accumulated(program, b, position, memory, load, into)
    found = uses(program, b.name, position)
    writes = [u for u in found if u.write]
    if not writes:
        raise ScheduleError(f"nothing inside '{at}' writes '{b.name}'. Loops around its writes: {_around(program, b, True)}")
    if load is True:
        _refuse_partial(b)
    cache = _Cache.of(program, b, position, memory, into, found)
    out = cache.copies([u.piece for u in writes], b.name, b.name, out=True)
    first = (*position, min(u.position[len(position)] for u in found))
    last = (*position, max(u.position[len(position)] for u in writes))
    old: Body = ()
    if load is True or (load == "auto" and _old_value_needed(program, cache, found, writes)):
        old = cache.copies([u.piece for u in found], cache.name, cache.name)
    body = redirect(program, b.name, position, cache.address)
    body = insert(body, last, after=out)
    return replace(program, body=insert(body, first, before=old), buffers=(*program.buffers, cache.buffer))


def accumulated(program: Program, b: Buffer, position: Position, memory: str, load: bool | str, into: str | None) -> Program:
    """cache_write(merge=True): a partial result of one slot, from the neutral element, merged into the buffer at the end."""
    at = display(program, position)
    found = uses(program, b.name, position)
    if load != "auto":
        raise ScheduleError(f"with merge=True nothing is loaded: leave load out, not {load!r}")
    if b.role == "partial":
        raise ScheduleError(f"'{b.name}' holds partial results already")
    texts = [u.site.action.statement if isinstance(u.site.action, Leaf) else type(u.site.action).__name__ for u in found]
    if len(found) != 1 or not found[0].update or not isinstance(found[0].site.action, Leaf):
        what = ", ".join(texts) or "nothing"
        raise ScheduleError(
            f"inside '{at}' one updating statement alone must access '{b.name}', to be merged; it is accessed by {what}. "
            "Possible: a loop that holds the updates only (reorder or distribute moves the rest out)"
        )
    leaf = found[0].site.action
    op = program.statement[leaf.statement].op
    root = program.source.buffer[b.root or b.name]
    cache = _Cache.of(program, b, position, memory, into or free_name(program, f"{b.name}_part"), found)
    name = cache.name
    rank = len(cache.tile.kept)

    def nest_of(prefix: str, end: bool) -> Body:
        names = next(
            ns for t in (prefix, f"{prefix}2", f"{prefix}3") if cache.outer_free(ns := [f"{t}.{n}" for n in range(rank)])
        )
        conditions = [c.subs({f"#{n}": v for n, v in enumerate(names)}) for c in cache.region([found[0].piece])]
        bounds, guards = nest(names, conditions, program.sizes, program.where, cache.known)
        cell = cache.tile.logical([Aff.of(v) for v in names])
        near = Address(name, (Aff(0), *(Aff.of(v) for v in names)))
        far = Address(b.name, source_address(program, b, cache.found, cache.outer)(cell))
        body: Body = (Merge(far, near, op, cell, cell) if end else Identity(near, op, cell),)
        body = guarded([g for g in guards if g.names & set(names)], body)
        for var, (lower, upper) in reversed(list(zip(names, bounds, strict=True))):
            body = (Loop(var, lower, upper, body),)
        return guarded([g for g in guards if not g.names & set(names)], body)

    partial = replace(cache.buffer, role="partial", shape=(Aff(1), *cache.tile.shape), root=root.name)
    address = lambda logical: Address(name, (Aff(0), *cache.tile.physical(logical)))  # noqa: E731
    body = redirect(program, b.name, position, address)
    here = (*position, found[0].position[len(position)])
    body = insert(body, here, before=nest_of(name, False), after=nest_of(b.name, True))
    return replace(program, body=body, buffers=(*program.buffers, partial))


@dataclass(frozen=True)
class _Cache:
    """A new buffer that holds a box of another one during one iteration of a loop."""

    program: Program
    source: Buffer
    buffer: Buffer
    tile: Tile
    outer: tuple[str, ...]
    known: tuple[Constraint, ...]
    found: tuple[Use, ...]

    @staticmethod
    def of(program: Program, b: Buffer, position: Position, memory: str, into: str | None, found: Sequence[Use]) -> _Cache:
        choice(memory, "memory", MEMORIES)
        check_room(program, position)
        path = loops_to(program.body, position)
        outer = tuple(loop.var for loop in path)
        if not inside(position, owner_position(program, b, found)):
            raise ScheduleError(f"'{b.name}' lives in one iteration of '{b.owner}', which is inside '{outer[-1]}'")
        threads = [loop.var for loop in path if loop.kind in THREAD_KINDS]
        if memory == "shared" and threads:
            raise ScheduleError(f"shared memory belongs to a block: '{outer[-1]}' is at or below the thread loop '{threads[0]}'")
        default = free_name(program, f"{b.name}_{memory}")
        name = default if into is None else new_name(program, into)
        root = b.root or b.name
        owner = outer[-1] if outer else None
        buffer = Buffer(name, b.dtype, (), "cache", memory, owner, root=root, placed=True)
        tile = boxed(program, buffer, owner, [u.piece for u in found], outer)
        known = conditions_to(program.body, position)
        return _Cache(program, b, replace(buffer, shape=tile.shape), tile, outer, known, tuple(found))

    @property
    def name(self) -> str:
        return self.buffer.name

    def outer_free(self, names: Sequence[str]) -> bool:
        return not set(names) & set(self.outer)

    def address(self, logical: tuple[Aff, ...]) -> Address:
        return Address(self.name, self.tile.physical(logical))

    def region(self, pieces: Sequence[Piece]) -> list[Constraint]:
        """The hull of those cells, over variables #0, #1, … that count from the box's base."""
        p, kept = self.program, self.tile.kept
        names = [f"#{n}" for n in range(len(kept))]
        narrow = [Piece(tuple(x.index[d] for d in kept), x.conditions) for x in pieces]
        shift = {f"#{n}": self.tile.spans[d].base + f"#{n}" for n, d in enumerate(kept)}
        dims = [f"x{n}" for n in range(len(kept))]
        back = dict(zip(dims, names, strict=True))
        return [c.subs(back).subs(shift) for c in hull(dims, narrow, self.outer, p.sizes, p.where)]

    def copies(self, pieces: Sequence[Piece], prefix: str, dst: str, out: bool = False) -> Body:
        """Loops prefix.0, prefix.1, … that copy exactly the hull of those cells in, or out."""
        p, rank = self.program, len(self.tile.kept)
        tries = (
            prefix,
            *(f"{prefix}{k}" for k in range(2, len(self.outer) + 3)),
        )  # inside a copy loop of that name: the next one
        names = next(found for t in tries if self.outer_free(found := [f"{t}.{n}" for n in range(rank)]))
        conditions = [c.subs({f"#{n}": v for n, v in enumerate(names)}) for c in self.region(pieces)]
        bounds, guards = nest(names, conditions, p.sizes, p.where, self.known)
        cell = self.tile.logical([Aff.of(v) for v in names])
        near = Address(self.name, tuple(Aff.of(v) for v in names))
        far = Address(self.source.name, source_address(p, self.source, self.found, self.outer)(cell))
        action = Copy(far, near, cell) if out else Copy(near, far, cell)
        body: Body = guarded([g for g in guards if g.names & set(names)], (action,))
        for var, (lower, upper) in reversed(list(zip(names, bounds, strict=True))):
            body = (Loop(var, lower, upper, body),)
        return guarded([g for g in guards if not g.names & set(names)], body)


def _old_value_needed(program: Program, cache: _Cache, found: Sequence[Use], writes: Sequence[Use]) -> bool:
    """Is there a read that no earlier write of the iteration covers, or a copied-out cell that no write covers?"""
    sizes, where = program.sizes, program.where
    whole = Piece(tuple(Aff.of(f"x{n}") for n in range(len(cache.tile.spans))), ())
    dims = [f"x{n}" for n in range(len(cache.tile.spans))]
    region = hull(dims, [u.piece for u in writes], cache.outer, sizes, where)
    if not covers([u.piece for u in writes], [Piece(whole.index, tuple(region))], cache.outer, sizes, where):
        return True
    plain = [u for u in writes if not u.update]
    return any(not _covered(program, cache, u, [w for w in plain if w.position < u.position]) for u in found if u.reads)


def _covered(program: Program, cache: _Cache, u: Use, earlier: Sequence[Use]) -> bool:
    for w in earlier:
        shared = [a.var for a, b in zip(u.site.loops, w.site.loops, strict=False) if a is b]
        if covers([w.piece], [u.piece], shared, program.sizes, program.where):
            return True
    return covers([w.piece for w in earlier], [u.piece], cache.outer, program.sizes, program.where)


def _around(program: Program, b: Buffer, write: bool) -> str:
    positions = [u.position for u in uses(program, b.name) if (u.write if write else not u.write)]
    names = [display(program, p) for p, _ in loops(program.body) if any(inside(q, p) for q in positions)]
    return ", ".join(names) or "none"
