"""How a CPU moves what a program accesses: prefetch, store, allocate, prepack. None changes a value or an order."""

from __future__ import annotations

from dataclasses import replace

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES
from tilec.ir.layouts import triples
from tilec.ir.program import PAGES, THREAD_KINDS, Address, Buffer, Copy, Guard, Leaf, Loop, Node, Prefetch, Program
from tilec.ir.tree import Body, Position, addresses, put, sites, transform
from tilec.ir.tree import at as node_at
from tilec.schedule.core import choice, integer, primitive
from tilec.schedule.names import display, find_buffer, find_loop, free_name, loop_at, written
from tilec.schedule.placement_uses import inside, loops_to, owner_position, uses
from tilec.schedule.storage import boxed, source_address

LINE = 64  # bytes of a cache line of every CPU that tilec emits code for
MOST_LINES = 1024  # of one prefetch: more would fill a cache instead of running ahead of it


@primitive("mapping")
def prefetch(program: Program, buffer: str, at: str, distance: int = 1, level: int = 1, of: str | None = None) -> Program:
    """Ask for the cache lines of a buffer that a later iteration of a loop will touch, at the start of each iteration.

    1. Something inside `at` accesses `buffer`, which is a parameter or a placed buffer in global memory or scratch, and is not
       owned by `at` or a loop inside it.
    2. `distance` is an integer >= 0, in iterations of `at`, or of the loop `of` around it (0: what this iteration itself will
       touch); `level` is 1, 2 or 3.
    3. `at` is not a vector or thread loop.
    4. What one iteration touches has a box of constant extent, of at most 1024 lines of 64 bytes.
    Where one guard directly inside `at` holds every access, it holds the prefetch too.

        for k:                                for k:
            … W[k, 0..16] …         ->            prefetch W[k + 4, 0]
                                                  … W[k, 0..16] …
    """
    b = find_buffer(program, buffer)
    position = find_loop(program, at)
    loop = loop_at(program, position)
    distance = integer(distance, "the distance", 0)
    choice(level, "the level", (1, 2, 3))
    around = position if of is None else find_loop(program, of)
    if not inside(position, around):
        raise ScheduleError(
            f"'{of}' does not stand around '{at}'. Loops there: {', '.join(x.var for x in loops_to(program.body, position))}"
        )
    if loop.kind == "vector" or loop.kind in THREAD_KINDS:
        raise ScheduleError(f"'{at}' is {loop.kind}: its iterations run at once. Prefetch at a loop around it")
    if b.memory not in ("global", "scratch") or (b.role == "temp" and not b.placed):
        where = "has no place yet: place it first" if b.role == "temp" and not b.placed else f"is in {b.memory}"
        raise ScheduleError(f"'{b.name}' {where}; what lies in global memory or scratch can be fetched ahead")
    found = uses(program, b.name, position)
    if not found:
        places = [display(program, p) for p in _around(program, b)]
        raise ScheduleError(f"nothing inside '{at}' accesses '{b.name}'. Loops around its accesses: {', '.join(places)}")
    if inside(owner_position(program, b, uses(program, b.name)), around):
        raise ScheduleError(f"'{b.name}' is owned inside '{of or at}': a later iteration has other contents")
    outer = tuple(x.var for x in loops_to(program.body, position))
    tile = boxed(program, replace(b, role="cache"), outer[-1], [u.piece for u in found], outer)
    extents = [s.extent for s in tile.spans]
    if not all(e.is_const for e in extents):
        shown = ", ".join(map(str, extents))
        raise ScheduleError(f"one iteration of '{at}' touches {shown} cells of '{b.name}': prefetch at a loop inside it")
    dim, run = _contiguous(b, len(tile.spans))
    steps = [max(1, min(LINE // DTYPES[b.dtype].bytes, run)) if d == dim else 1 for d in range(len(extents))]
    counts = [-(-e.const // step) for e, step in zip(extents, steps, strict=True)]
    lines = 1
    for n in counts:
        lines *= n
    if lines > MOST_LINES:
        raise ScheduleError(f"one iteration of '{at}' touches {lines} lines of '{b.name}', more than {MOST_LINES}")
    variable = loop_at(program, around).var
    later = {variable: Aff.of(variable) + distance}
    names: list[str] = []
    cell: list[Aff] = []
    for span, count, step in zip(tile.spans, counts, steps, strict=True):
        base = span.base.subs(later)
        if count == 1:
            cell.append(base)
            continue
        names.append(free_name(program, f"{b.name}_ahead{len(names)}", set(names)))
        cell.append(base + Aff.of(names[-1]) * step)
    to = source_address(program, b, found, outer)(tuple(cell))
    body: Body = (Prefetch(Address(b.name, tuple(to)), level, all(u.write for u in found)),)
    for name, count in reversed(list(zip(names, [n for n in counts if n > 1], strict=True))):
        body = (Loop(name, (Aff(0),), (Aff(count),), body, "unrolled"),)
    guards = [n for n, child in enumerate(loop.body) if isinstance(child, Guard)]
    guards = [n for n in guards if all(inside(u.position, (*position, n)) for u in found)]
    where = (*position, *guards[:1])
    node = node_at(program.body, where)
    assert isinstance(node, Loop | Guard)
    return replace(program, body=put(program.body, where, (replace(node, body=(*body, *node.body)),)))


def _contiguous(b: Buffer, rank: int) -> tuple[int, int]:
    """The dimension whose neighbours are neighbours in memory, and for how many indices."""
    if b.layout is None or b.layout.name in ("pad", "xor") or rank != len(b.shape):
        return rank - 1, LINE
    if b.layout.name == "panels":
        return b.layout.args[0], b.layout.args[1]
    dim, _, modulus = triples(b.layout.args)[-1]
    return dim, abs(modulus) or LINE


def _around(program: Program, b: Buffer) -> list[Position]:
    out: list[Position] = []
    for u in uses(program, b.name):
        out += [u.position[:n] for n in range(1, len(u.position)) if isinstance(node_at(program.body, u.position[:n]), Loop)]
    return list(dict.fromkeys(out))


@primitive("mapping")
def store(program: Program, buffer: str, how: str = "streaming", at: str | None = None) -> Program:
    """Say how the elements of a buffer are stored: past the caches ("streaming") or through them ("cached").

    1. `buffer` lies in global memory, and something (inside `at`, where it is given) writes it.
    2. Streaming: each of these writes is a plain `=` or a copy, as an update reads what it stores.
    3. Streaming: nothing inside the program reads the buffer (a line that bypassed the caches would come back from memory).

        for j: Y[i, j] = …    ->    for j: Y[i, j] = …  # streaming
    """
    b = find_buffer(program, buffer)
    choice(how, "how", ("streaming", "cached"))
    position = find_loop(program, at) if at is not None else ()
    found = [u for u in uses(program, b.name, position) if u.write]
    if b.memory != "global":
        raise ScheduleError(f"'{b.name}' is in {b.memory}: only stores to global memory go through the caches")
    if not found:
        raise ScheduleError(f"nothing{f' inside {at!r}' if at else ''} writes '{b.name}'")
    if how == "streaming":
        if any(u.update for u in found):
            raise ScheduleError(
                f"an update reads the '{b.name}' that it stores. Possible: cache_write(\"{b.name}\", …), whose copy out streams"
            )
        if any(u.reads for u in uses(program, b.name)):
            raise ScheduleError(f"the program reads '{b.name}' again: a streamed line would have to come back from memory")
    chosen = {id(u.site.action) for u in found}
    streaming = how == "streaming"

    def f(node: Node) -> Body:
        return (replace(node, streaming=streaming),) if isinstance(node, Leaf | Copy) and id(node) in chosen else (node,)

    return replace(program, body=transform(program.body, f))


@primitive("storage")
def allocate(program: Program, buffer: str, align: int = LINE, pages: str = "normal") -> Program:
    """Say how a buffer's memory is asked for: the alignment of its first byte, and large pages.

    1. `buffer` is a cache, a partial result or a temporary, in global memory or scratch.
    2. `align` is a power of two between the bytes of an element and 2 MiB; `pages` is "normal" or "huge" (a wish: where the
       system has none, normal ones serve).

        W_scratch: f32[512, 192] in scratch    ->    W_scratch: f32[512, 192] in scratch, aligned to 64 B, huge pages
    """
    b = find_buffer(program, buffer)
    choice(pages, "pages", PAGES)
    if b.role == "param":
        raise ScheduleError(f"'{b.name}' is a parameter: its caller allocates it")
    if b.memory not in ("global", "scratch"):
        raise ScheduleError(f"'{b.name}' is in {b.memory}: only global memory and scratch are allocated")
    least, most = DTYPES[b.dtype].bytes, 1 << 21
    align = integer(align, "the alignment", least)
    if align & (align - 1) or align > most:
        raise ScheduleError(f"the alignment must be a power of two from {least} to {most:,} bytes, not {align:,}")
    return _with(program, replace(b, align=align, pages=pages))


@primitive("storage")
def prepack(program: Program, buffer: str) -> Program:
    """Let the caller make a packed copy of a parameter once, ahead of the calls that read it.

    1. `buffer` is a cache of a parameter that nothing writes, made by cache_read.
    2. The program owns it, and neighbouring nests of copies at the top level fill it, all of the copies from that parameter.
    3. Nothing but these nests writes it.
    Where the caller brings no packed array, the call packs, as before.

        W_global: f32[K, N], panels(1, 16)    ->    W_global: …, packed ahead of the call where the caller has it
    """
    b = find_buffer(program, buffer)
    root = program.buffer.get(b.root or "")
    if b.role != "cache" or root is None or root.role != "param":
        raise ScheduleError(f"'{b.name}' is no copy of a parameter. Possible: {_copies(program)}")
    if any(u.write for u in uses(program, root.name)):
        raise ScheduleError(f"the program writes '{root.name}', so a copy made ahead of the call would be stale")
    fills = [n for n, node in enumerate(program.body) if b.name in written((node,))]
    nests = program.body[fills[0] : fills[-1] + 1] if fills else ()
    whole = b.owner is None and len(fills) == len(nests) and written(nests) == [b.name]
    sources = [a.buffer for s in sites(nests) for a, _, w in addresses(s.action, program) if not w]
    if not whole or set(sources) != {root.name}:
        owner = f"'{b.owner}' owns it" if b.owner is not None else "what fills it is no top-level nest of copies"
        raise ScheduleError(
            f'\'{b.name}\' is filled inside the call ({owner}). Possible: cache_read("{root.name}", at=None, memory="global")'
        )
    return _with(program, replace(b, prepacked=True))


def _copies(program: Program) -> str:
    names = [b.name for b in program.buffers if b.role == "cache"]
    return ", ".join(f"'{n}'" for n in names) or "cache_read first"


def _with(program: Program, new: Buffer) -> Program:
    return replace(program, buffers=tuple(new if b.name == new.name else b for b in program.buffers))
