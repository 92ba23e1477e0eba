"""Schedules of contractions for CPUs: panels, a micro-tile in registers, packed operands, chains before and after.

The structure (loops outermost first): columns in pieces of NC, on the cores; blocks of KC of the sum; tiles of MR rows;
micro-tiles of NR columns, whose accumulators stay in registers while k runs. The right operand is packed into panels of NR
columns by the first tile of rows that reads it, row by row, while it multiplies them; the left one is read as it lies. What
follows the sum elementwise runs on the tile: from registers where k is one block, else where the pieces are complete.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Address, Leaf, Program
from tilec.schedule.schedule import Schedule
from tilec.search.cpu_core import Core, vectorised
from tilec.search.cpu_dot import Dots, grouped, instructed, lying, named, shared_loops, sum_loop, turned_copy
from tilec.search.cpu_operands import Blocks, Place, extents, right_operands
from tilec.search.cpu_packing import UNDER_WAY, copying, of_itself, packed, widened
from tilec.search.handles import fresh, loops_of, path_of, site, standing
from tilec.search.nests import Group, Nest
from tilec.search.tiles import handed_on, inlined, tile_knobs

SKINNY = 24  # fewer rows than that are so few tiles that a partial one counts
FEW = 6  # fewer than that are bound by reading the right operand alone: packing it would not pay
LINE = 64  # bytes of a line of the caches
PIECE = 8192  # columns of it that are read side by side where they are all that counts: long runs of memory
WIDTH = 64  # columns of a piece: a core then reads a byte of the left operand in a cycle, which every cache and memory gives
EVEN = 0.6  # less of the cores' time is lost than waiting for a right operand that all cores packed would cost
NARROW_ROWS = 12  # of a micro-tile where there are fewer columns than it could have
ROWS_AT_ONCE = 8  # rows of the right operand that are read side by side, so that a sum is loaded and stored for 8 of them


def choose(program: Program, group: Group, core: Core, ahead: frozenset[str] = frozenset(), dots: Dots | None = None) -> Blocks:
    """Sizes from the program and the machine.

    A packed piece of the right operand (KC rows, NC columns) stays in half of the second-level cache while all rows of the left
    one pass; a longer k is cut in equal blocks, of three eighths, as partial sums share the cache then. Pieces are WIDTH columns,
    so that there are many for the cores.
    """
    sums = [n for n in group if n.kind == "contraction"]
    nest, root = sums[-1], group[-1]
    size = {**extents(program, nest)}
    by = tile_knobs(program, root)
    rows = next((v for v, knob in by.items() if knob == "BM"), None)
    columns = next(v for v, knob in by.items() if knob == "BN")
    own = dict(zip(root.band, nest.band, strict=False)) if len(root.band) == len(nest.band) else {}
    m = size.get(own.get(rows or "", rows or ""), 0)
    n = size.get(own.get(columns, columns), 0)
    k = 1
    for v in nest.sums:
        k *= max(1, size.get(v, 1))
    result = program.statement[nest.leading].target.buffer
    dtype = program.buffer[result].dtype
    word = dots.word if dots else DTYPES[DTYPES[dtype].arithmetic].bytes
    mr, nr = core.micro_tile(dtype, m or None)
    if dots is not None and 0 < n < nr:  # whole vectors, then what is left
        lanes = dots.instruction.lanes
        nr = max(lanes, n // lanes * lanes)
        mr = min(NARROW_ROWS, (core.registers - nr // lanes - 1) * lanes // nr, m or NARROW_ROWS)
    outer = [v for v in root.band if v not in by]
    ahead = ahead & frozenset(b for x in sums for b in right_operands(program, x))
    if 0 < m <= core.registers - 3 and not outer:  # one tile of rows: nothing of the right operand is read twice
        if dots is None and ahead:
            nr = nr if m < FEW else core.lanes(dtype)
            return Blocks(m, nr, core.chunks(n, nr, PIECE) if n else PIECE, flat=True, ahead=ahead)
        if dots is None or (dots.weaves_rows and not ahead and k % dots.instruction.depth == 0):
            read = max(DTYPES[program.buffer[b].dtype].bytes for b in right_operands(program, nest) or [result])
            nr, run = _few(m, read, core.lanes(dtype), core, dots)
            return Blocks(m, nr, core.chunks(n, nr, PIECE) if n else PIECE, run, packed=False, flat=True)
    if 0 < m < SKINNY:  # few tiles: of a height that leaves no partial one, if there is such
        mr = min(range(min(4, mr), mr + 1), key=lambda rows: (-(-m // rows) * rows, -rows))
    width = max(nr, WIDTH // nr * nr)
    kc, longest = 0, core.l2 // 2 // (word * width)
    if k > longest and (dots is None or k % dots.instruction.depth == 0):
        blocks = -(-k // (longest * 3 // 4))
        kc = (k + 8 * blocks - 1) // (8 * blocks) * 8
    batch = max([size.get(own.get(v, v), 0) for v in outer], default=1)
    if n and m and batch < core.cores and core.busy(n, width) < min(EVEN, core.busy(m, mr)):
        return Blocks(mr, nr, -(-n // nr) * nr, kc, "rows", core.chunks(m, mr, 16 * mr), ahead=ahead)
    return Blocks(mr, nr, width, kc, ahead=ahead)


def _few(m: int, read: int, lanes: int, core: Core, dots: Dots | None) -> tuple[int, int]:
    """(columns of the micro-tile, rows of a block of the sum) where all rows are one tile. read: bytes of an element of the right
    operand, of which a tile takes one or two lines from each of its rows. Lines of a few rows are read side by side, as a sum is
    loaded and stored for each block; of more rows, which multiply for longer, as many as are asked for some tiles ahead."""
    if m < FEW and dots is None:
        return lanes, ROWS_AT_ONCE
    most = min((core.registers - 2) // (m + 1), max(1, 2 * LINE // (lanes * read)))
    vectors = 1 << (most.bit_length() - 1) if most else 1
    nr = vectors * lanes
    return nr, ROWS_AT_ONCE if m <= 8 else UNDER_WAY // (2 if vectors == 1 else 4) // (nr * read)


def contraction_group(s: Schedule, group: Group, b: Blocks, core: Core, dots: Dots | None = None) -> Schedule:
    """The schedule of contractions over one band and what is elementwise around them. dots: by this instruction."""
    root = group[-1]
    by = tile_knobs(s.program, root)
    columns = next(v for v, knob in by.items() if knob == "BN")
    rows = next((v for v, knob in by.items() if knob == "BM"), None)
    s = inlined(s, group)
    if root.update is not None and len(root.statements) == 1:  # a sum into an argument, in any loop order
        wanted = [*root.band, *root.sums]
        if [v for v in s.program.statement[root.leading].loops if v in wanted] != wanted:
            s = s.reorder(*(f"{root.leading}.{v}" for v in wanted))
    q = root.leading
    batch = [v for v in root.band if v not in by]
    jc, jr, jl, io, ii, ic, jx, ix = fresh(s, "jc", "jr", "jl", "io", "ii", "ic", "jx", "ix")
    s = s.split(f"{q}.{columns}", b.NC, into=(jc, jx)).split(f"{q}.{jx}", b.NR, into=(jr, jl))
    points = [jl]
    tiles = [jr]
    outer = [*batch, jc]
    if rows is not None:
        if b.across == "rows":
            s = s.split(f"{q}.{rows}", b.MC, into=(ic, ix)).split(f"{q}.{ix}", b.MR, into=(io, ii))
            outer = [*batch, jc, ic]
        else:
            s = s.split(f"{q}.{rows}", b.MR, into=(io, ii))
        tiles, points = [io, jr], [ii, jl]
    s = s.reorder(*(f"{q}.{v}" for v in (*outer, *tiles, *points)))
    place = Place(outer, tiles, points)
    sums: list[Nest] = []
    if root.kind == "contraction":
        s = summed(s, root, place, b, own=True, dots=dots)
        sums.append(root)
    for nest in reversed(group[:-1]):
        if not standing(s.program, nest.statements):
            continue
        s = s.compute_at(handed_on(s.program, nest), tiles[-1] if not b.KC else outer[-1])
        if nest.kind == "contraction":
            s = summed(s, nest, place, b, own=False, dots=dots)
            sums.append(nest)
    if dots is not None and not b.KC:
        for nest in sums:
            s = grouped(s, nest, dots)
    if b.packed:
        for nest in reversed(sums):
            s = packed(s, nest, place, b, core, dots)
            s = s if b.flat else of_itself(s, nest, b.NR, dots)
    if dots is not None:
        for nest in reversed(sums):
            s = lying(s, nest, dots)
    if b.flat:
        for nest in reversed(sums):
            s = _flat(s, nest, b, core, dots)
    if b.packed and dots is None:
        for nest in reversed(sums):
            s = widened(s, nest)
    s = vectorised(s)
    if dots is not None:
        for nest in sums:
            s = instructed(s, nest, dots)
    if b.packed and not b.flat:
        s = _ahead(s, sums, b, core, dots)
    first = batch[0] if batch and b.across == "columns" else outer[-1]
    s = s.parallel(first)
    if b.across == "columns":
        return s
    made = [x.name for x in s.program.buffers if x.role == "cache" and x.memory == "scratch" and x.owner == outer[-2]]
    filling = [loop for b in made for loop in shared_loops(s.program, b)]
    return s.team(filling[0], first, into=fresh(s, "team")[0]) if filling else s


def summed(s: Schedule, nest: Nest, place: Place, b: Blocks, own: bool, dots: Dots | None = None) -> Schedule:
    """One contraction of the tile: k outside the points, its accumulators in registers (blocked: per block of k, the groups that
    an instruction adds inside the points already)."""
    q = nest.update
    assert q is not None
    target = s.program.statement[q].target.buffer
    temp = s.program.buffer[target].role == "temp"
    ks = list(nest.sums)
    if not b.KC:
        if temp:
            s = s.place(target, "register", at=place.tiles[-1])
        else:
            s = s.cache_write(target, at=f"{q}.{place.tiles[-1]}", memory="register")
        inner = list(place.points) if own else _below(s.program, q, nest, place.tiles[-1])
        return s.reorder(*(f"{q}.{v}" for v in (*ks, *inner)))
    ko, ki = fresh(s, "ko", "ki")
    if own:
        tiles, points = list(place.tiles), list(place.points)
    else:
        mine = _below(s.program, q, nest, place.outer[-1])
        tiles, points = [], []
        for v, factor in zip(mine[-2:], (b.MR, b.NR)[-len(mine[-2:]) :], strict=True):
            tile, point = fresh(s, f"{v}t", f"{v}p")
            s = s.split(f"{q}.{v}", factor, into=(tile, point))
            tiles.append(tile)
            points.append(point)
    if temp:
        s = s.place(target, "scratch", at=place.outer[-1])
    k = f"{q}.{loops_of(s.program, q, ks[0])[-1]}"
    if dots is not None:
        depth = dots.instruction.depth
        kg, kk = fresh(s, "kg", "kk")
        s = s.split(k, depth, into=(kg, kk), tail="exact").split(f"{q}.{kg}", b.KC // depth, into=(ko, ki))
        points.append(kk)
    else:
        s = s.split(k, b.KC, into=(ko, ki))
    s = s.reorder(*(f"{q}.{v}" for v in (ko, *tiles, ki, *ks[1:], *points)))
    return s.cache_write(target, at=f"{q}.{tiles[-1]}", memory="register")


def _below(program: Program, q: str, nest: Nest, loop: str) -> list[str]:
    """The loops over the nest's band below `loop`, outermost first."""
    path = path_of(program, q)
    inside = path[path.index(loop) + 1 :] if loop in path else path
    wanted = {x for v in nest.band for x in loops_of(program, q, v)}
    return [v for v in inside if v in wanted]


def _flat(s: Schedule, nest: Nest, b: Blocks, core: Core, dots: Dots | None) -> Schedule:
    """Few rows: the left operand column by column where its rows may be more than a set of the cache has ways, and the lines of
    the right one, which lie in as many rows as a block has, asked for some tiles before."""
    q = nest.update
    assert q is not None
    path = path_of(s.program, q)
    k = sum_loop(s.program, q, nest, dots)
    micro = path[path.index(k) - 1]
    target = s.program.buffer[s.program.statement[q].target.buffer]
    if target.memory == "scratch" and len(target.shape) == 2:  # a tile's sums next to each other
        s = s.layout(target.name, "panels", 1, b.NR)
    row = next(v for v, knob in tile_knobs(s.program, nest).items() if knob == "BM")
    right = right_operands(s.program, nest)
    for access in s.program.statement[q].reads:
        buffer = s.program.buffer.get(access.buffer)
        if buffer is None or buffer.memory != "global":
            continue
        if buffer.name in right and nest.band[-1] in access.index[-1].names and not b.packed:
            tiles = UNDER_WAY // (DTYPES[buffer.dtype].bytes * b.KC * b.NR)
            s = s.prefetch(buffer.name, f"{q}.{k}", max(1, tiles), 2, of=f"{q}.{micro}")
        rows = [d for d, e in enumerate(access.index) if row in e.names]
        found = site(s.program, q)
        assert found is not None and isinstance(found.action, Leaf)
        copied = all(getattr(r, "buffer", "") != buffer.name for r in found.action.reads)  # with another sum
        if rows == [0] and len(access.index) == 2 and core.l1_ways - 2 < b.MR and not copied:
            (into,) = fresh(s, f"{buffer.name}_packed")
            s = s.cache_read(buffer.name, at=None, memory="scratch", into=into)
            if dots is not None:
                s = turned_copy(s, into, dots)
                continue
            if DTYPES[buffer.dtype].arithmetic != buffer.dtype:
                s = s.widen(into)
            s = s.layout(into, "panels", 0, b.MR).allocate(into, 64, "huge")
            outermost = copying(s, into)[::-1]
            s = s.reorder(*outermost) if len(outermost) > 1 else s
            s = s.parallel(outermost[0]) if outermost else s
    return s


def _ahead(s: Schedule, sums: Sequence[Nest], b: Blocks, core: Core, dots: Dots | None) -> Schedule:
    """What the next tile reads, fetched while this one runs: rows of the left operand, line by line, and partial sums."""
    for nest in sums:
        q = nest.update
        assert q is not None
        path = path_of(s.program, q)
        k = sum_loop(s.program, q, nest, dots)
        depth = dots.instruction.depth if dots else 1
        rows, micro = path[path.index(k) - 2 : path.index(k)]
        at, around = named(s.program, q, k), named(s.program, q, rows)
        target = s.program.statement[q].target.buffer
        if b.KC and s.program.buffer[target].memory in ("scratch", "global"):
            tile = named(s.program, q, micro)
            s = s.prefetch(target, tile, 1, 2, of=around if b.NC == b.NR else tile)
        found = site(s.program, q)
        assert found is not None and isinstance(found.action, Leaf)
        for r in found.action.reads:
            if not isinstance(r, Address) or s.program.buffer[r.buffer].memory not in ("scratch", "global"):
                continue
            names = frozenset[str]().union(*(e.names for e in r.index))
            alone = sum(getattr(other, "buffer", "") == r.buffer for other in found.action.reads) == 1
            if alone and rows in names and micro not in names:
                read = next(x for x in found.loops if x.var == k)
                run = (
                    max((e.const for e in read.upper if e.is_const), default=0)
                    * depth
                    * DTYPES[s.program.buffer[r.buffer].dtype].bytes
                )
                level = 1 if 0 < run * b.MR <= core.l1 * 3 // 4 else 2
                kept = s.program.buffer[r.buffer]
                if kept.role == "temp" and not kept.placed:
                    s = s.place(kept.name, "global").allocate(kept.name, 64, "huge")
                s = s.prefetch(r.buffer, at, 1, level, of=around)
    return s
