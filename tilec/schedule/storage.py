"""Where a buffer's cells are: place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff
from tilec.ir.program import MEMORIES, THREAD_KINDS, Address, Buffer, Copy, Guard, Loop, Node, Prefetch, Program, Read
from tilec.ir.tree import Body, Position, map_addresses, sites
from tilec.poly.regions import NoBox, Piece, Span, box
from tilec.schedule.core import choice, primitive
from tilec.schedule.names import display, find_buffer, find_loop
from tilec.schedule.placement_uses import Use, addressing, common_node, innermost_loop, inside, loops_to, uses, with_slot


@primitive("storage")
def place(program: Program, buffer: str, memory: str, at: str | None = None) -> Program:
    """Keep a buffer in a memory, as the smallest box that one iteration of its owner needs.

    1. `buffer` is a temporary or a cache, accessed somewhere; `memory` is global, shared, register or scratch.
    2. `at` encloses all its accesses; by default the innermost loop that does. That loop owns it.
    3. A shared buffer is not owned at or below a thread loop.
    4. The box has a constant extent, or one affine in the sizes, valid for all sizes.
    5. No asynchronous copy fills it yet (place before pipeline).

        for io:                                for io:
            for i in 0..64:                        B: f32[64] in shared
                B[64*io + i] = …          ->       for i in 0..64:
            … B[64*io + j] …                           B[i] = …
                                                   … B[j] …
    """
    b = find_buffer(program, buffer)
    choice(memory, "memory", MEMORIES)
    if b.role == "param":
        raise ScheduleError(
            f"'{b.name}' is a parameter: it lies in global memory. cache_read or cache_write keep a part of it elsewhere"
        )
    found = uses(program, b.name)
    if not found:
        raise ScheduleError(f"nothing accesses '{b.name}'")
    if any(isinstance(u.site.action, Copy) and u.write and u.site.action.asynchronous for u in found):
        raise ScheduleError(f"an asynchronous copy fills '{b.name}': place it before pipeline")
    owner = owning_loop(program, b, found, at)
    path = loops_to(program.body, owner)
    threads = [loop.var for loop in path if loop.kind in THREAD_KINDS]
    if memory == "shared" and threads:
        free = [display(program, p) for p in _enclosing(program, found) if not _under_thread(program, p)]
        raise ScheduleError(
            f"shared memory belongs to a block: '{b.name}' would be owned under the thread loop '{threads[0]}'. "
            f"Possible loops: {', '.join(free) or 'none'}"
        )
    return stored(program, b, memory, owner, found)


def stored(program: Program, b: Buffer, memory: str, owner: Position, found: Sequence[Use]) -> Program:
    """The program with the buffer's box derived for that owner (() is the program) and every access readdressed."""
    if any(isinstance(s.action, Prefetch) and s.action.address.buffer == b.name for s in sites(program.body)):
        raise ScheduleError(f"'{b.name}' is fetched ahead by prefetches, which name its cells as they are: prefetch last")
    path = loops_to(program.body, owner)
    tile = boxed(program, b, path[-1].var if path else None, [u.piece for u in found], [loop.var for loop in path])
    new = replace(b, shape=tile.shape, memory=memory, owner=path[-1].var if path else None, placed=True, layout=None)
    body = redirect(program, b.name, (), lambda logical: Address(b.name, tile.physical(logical)))
    return replace(program, body=body, buffers=tuple(new if x.name == b.name else x for x in program.buffers))


@dataclass(frozen=True)
class Tile:
    """A box of a buffer's logical cells, and which dimensions are kept (those that may have more than one index)."""

    spans: tuple[Span, ...]
    kept: tuple[int, ...]

    @property
    def shape(self) -> tuple[Aff, ...]:
        return tuple(self.spans[d].extent for d in self.kept)

    def physical(self, logical: Sequence[Aff]) -> tuple[Aff, ...]:
        return tuple(logical[d] - self.spans[d].base for d in self.kept)

    def logical(self, physical: Sequence[Aff]) -> tuple[Aff, ...]:
        inner = dict(zip(self.kept, physical, strict=True))
        return tuple(s.base + inner.get(d, Aff(0)) for d, s in enumerate(self.spans))


def boxed(program: Program, b: Buffer, owner: str | None, pieces: Sequence[Piece], outer: Sequence[str]) -> Tile:
    """The box of those cells, per iteration of the outer loops. A temporary drops its declaration dimensions of extent 1, a cache
    every dimension of extent 1."""
    try:
        spans = box(pieces, outer, program.sizes, program.where)
    except NoBox as e:
        inside_ = f"one iteration of '{owner}'" if owner else "the program"
        bind = ", ".join(f"{n}=…" for n in e.sizes) or "the sizes"
        advice = f"bind {bind} in schedule(…), or choose another loop"
        if not program.sizes:
            advice = "choose another loop (at these sizes it may touch no cell at all)"
        raise ScheduleError(
            f"the cells of '{b.name}' that {inside_} touches have no box of fixed extent in dimension {e.dimension}: {advice}"
        ) from None
    private = program.source.buffer[b.root or b.name].private if b.role != "cache" else len(spans)
    slots = 1 if b.role == "partial" else 0  # always kept: it says which partial result
    return Tile(spans, tuple(d for d, s in enumerate(spans) if d < slots or d >= private + slots or s.extent != Aff(1)))


def redirect(program: Program, name: str, under: Position, to, *, reads: bool = True, writes: bool = True) -> Body:
    """The body with every access of the buffer below `under` at to(logical index)."""

    def address(a: Address, logical: tuple[Aff, ...], write: bool) -> Read:
        if a.buffer != name or not (writes if write else reads):
            return a
        return to(with_slot(program.buffer[name], a, logical))

    def go(body: Body, position: Position) -> Body:
        out: list[Node] = []
        for n, node in enumerate(body):
            here = (*position, n)
            if not (inside(here, under) or inside(under, here)):
                out.append(node)
            elif isinstance(node, Loop | Guard):
                out.append(replace(node, body=go(node.body, here)))
            else:
                out.append(map_addresses(node, address, program))
        return tuple(out)

    return go(program.body, ())


def owning_loop(program: Program, b: Buffer, found: Sequence[Use], at: str | None) -> Position:
    """The position of the loop that `at` names, or of the innermost one around all accesses; () when there is none."""
    node = common_node([u.position for u in found])
    if at is None:
        return innermost_loop(program.body, node)
    position = find_loop(program, at)
    if not inside(node, position):
        names = ", ".join(display(program, p) for p in _enclosing(program, found)) or "none"
        raise ScheduleError(f"'{at}' does not enclose every access of '{b.name}'. Loops that do, outermost first: {names}")
    return position


def _enclosing(program: Program, found: Sequence[Use]) -> list[Position]:
    node = common_node([u.position for u in found])
    prefixes = [node[: n + 1] for n in range(len(node))]
    return [p for p in prefixes if innermost_loop(program.body, p) == p]


def _under_thread(program: Program, position: Position) -> bool:
    return any(loop.kind in THREAD_KINDS for loop in loops_to(program.body, position))


def source_address(program: Program, b: Buffer, found: Sequence[Use], outer: Sequence[str]):
    """logical index -> physical index of an existing buffer, as its accesses `found` address it."""
    if b.role == "param" or (b.role == "temp" and not b.placed):
        return tuple  # logical; the default placement readdresses a temporary
    return addressing(found, [*outer, *program.sizes]).physical
