"""What one block of a launch does, as formulas in sizes and knobs: the input of the time model (kernel_time.py).

Work is that of a *full* block: a tile at the edge of an array occupies its block for as long as a full one. The count of an
action is the product of the extents of the loops inside the block, of each the least bound that names no other loop: of a tile
its whole extent, also where the array is smaller. (Without such a bound one that falls with an outer loop counts, at that loop's
first iteration.) Where a loop has none of these (a triangle), the average over the blocks is taken instead. The same rule serves
exact pricing (no markers, numbers for sizes) and whole arrays of candidates. Bytes of global memory are the exact ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tilec.cost.counting import moves
from tilec.cost.fit import slot_count
from tilec.cost.launches import Launch
from tilec.cost.operations import Key, operations
from tilec.cost.separable import Markers, NotSeparable, positive
from tilec.cost.term import ONE, ZERO, Num, Term, least, multiply
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import (
    BLOCK_KINDS,
    ORDERED_KINDS,
    UPDATE_OPS,
    Address,
    Copy,
    Guard,
    Inline,
    Leaf,
    Loop,
    Program,
    Read,
)
from tilec.ir.tree import Site, addresses, updates


@dataclass(frozen=True)
class Count:
    """Runs of an action in one block: `full` in a full block, or (None) the average, `total` over all blocks ÷ blocks."""

    full: Term | None
    total: Term = ZERO


@dataclass(frozen=True)
class Contraction:
    """A sum of products over an m × n tile of the buffer `target`, `runs` multiply-adds in a block; `k` is the extent of its
    innermost sum loop; operands: the buffers with the rows and the columns."""

    target: str
    operands: tuple[str, str]
    matrix: str | None  # dtype of the matrix unit that could do it
    operand_bytes: int
    m: Term
    n: Term
    k: Term
    runs: Count
    staged: bool  # its operands come out of shared memory


@dataclass(frozen=True)
class Stream:
    """One buffer of global memory in one direction, as one block sees it.

    copied: only copies move it; staged: into shared memory. distinct: what a block touches at most, (bytes of one access, product
    of the extents of the loops that the address names) of each access. axes: the block axes that the addresses depend on; blocks
    that agree there share the bytes. whole: bytes of the buffer. rank: loops of a block that an address names, at most.
    """

    buffer: str
    direction: str
    copied: bool
    staged: bool
    distinct: tuple[tuple[int, Count], ...]
    axes: frozenset[str]
    whole: Term
    rank: int


@dataclass(frozen=True)
class BlockTerms:
    """One launch. axes: extent of each block axis. work: operations (kind, number per run, runs) outside contractions. shared:
    (bytes, runs) of shared memory outside contractions and fills. steps: iterations of the loop that fills the block's
    buffers; stages: its slots. contract: products and sums may share a slot."""

    axes: tuple[tuple[str, Term], ...]
    work: tuple[tuple[Key, int, Count], ...]
    contractions: tuple[Contraction, ...]
    shared: tuple[tuple[int, Count], ...]
    streams: tuple[Stream, ...]
    steps: Term
    stages: int
    contract: bool


Total = Callable[[Site], Term]


def block_terms(program: Program, step: Launch, markers: Markers, total: Total) -> BlockTerms:
    """`total` counts all runs of a site, for the loops whose extent inside a block is no plain number.

    Raises NotSeparable where a number of the tree comes from no knob in a known way.
    """
    work: list[tuple[Key, int, Count]] = []
    contractions: list[Contraction] = []
    shared: list[tuple[int, Count]] = []
    streams: dict[tuple[str, str], _Gathered] = {}
    for site in step.sites:
        block, inner = _cut(site)
        found = moves(program, site.action)
        done = operations(program, site.action)
        if not found and not done:
            continue
        runs = _runs(site, inner, markers, total)
        mine = _contraction(program, site, inner, runs, markers) if step.collective else None
        if mine is not None:
            contractions.append(mine)
            # the product and the sum are the contraction's; anything else (a cast, a scale) is work of its own
            done = {k: n - (k.kind in ("mul", "add")) for k, n in done.items()}
        work += [(k, n, runs) for k, n in done.items() if n > 0]
        for m in found:
            if m.buffer.memory in ("shared", "scratch") and mine is None and not (m.fill and m.direction == "write"):
                shared.append((m.bytes, runs))
        at = {a: w for a, _, w in addresses(site.action, program)}
        for a, is_write in at.items():
            b = program.buffer[a.buffer]
            if b.memory != "global":
                continue
            size = DTYPES[b.dtype].bytes
            for direction in _directions(is_write, updates(site.action, program)):
                whole = multiply([Num(size), *map(markers.term, b.shape)])
                gathered = streams.setdefault((b.name, direction), _Gathered(whole))
                copy = isinstance(site.action, Copy)
                gathered.copied.append(copy)
                gathered.staged.append(copy and any(x.buffer.memory in ("shared", "scratch") for x in found))
                gathered.distinct.append((size, _distinct(a, inner, site.path, markers) or runs))
                gathered.axes |= _axes(a, block, site)
                names = frozenset().union(*(e.names for e in a.index)) if a.index else frozenset()
                gathered.rank = max(gathered.rank, sum(isinstance(x, Loop) and x.var in names for x in inner))
    axes = _block_axes(step, markers)
    return BlockTerms(
        axes,
        tuple(work),
        tuple(contractions),
        tuple(shared),
        tuple(g.stream(*key) for key, g in streams.items()),
        _steps(program, step, markers),
        _stages(program, step),
        program.contract,
    )


def _directions(is_write: bool, is_update: bool) -> tuple[str, ...]:
    if not is_write:
        return ("read",)
    return ("write", "read") if is_update else ("write",)


def in_turn(step: Launch) -> bool:
    """Are the launch's threads bound, and do its copies end before what reads them begins (none is asynchronous)?"""
    return not step.collective and not any(isinstance(s.action, Copy) and s.action.asynchronous for s in step.sites)


class _Gathered:
    def __init__(self, whole: Term):
        self.whole = whole
        self.copied: list[bool] = []
        self.staged: list[bool] = []
        self.distinct: list[tuple[int, Count]] = []
        self.axes: frozenset[str] = frozenset()
        self.rank = 0

    def stream(self, buffer: str, direction: str) -> Stream:
        return Stream(
            buffer, direction, all(self.copied), any(self.staged), tuple(self.distinct), self.axes, self.whole, self.rank
        )


def _cut(site: Site) -> tuple[tuple[Loop | Guard, ...], tuple[Loop | Guard, ...]]:
    """The path down to the innermost block loop, and what stands inside a block."""
    last = max((n for n, node in enumerate(site.path) if isinstance(node, Loop) and node.kind in BLOCK_KINDS), default=-1)
    return site.path[: last + 1], site.path[last + 1 :]


def bounds(path: Sequence[Loop | Guard], around: Iterable[Loop | Guard] = ()) -> dict[str, list[Aff]] | None:
    """Of every loop of the path the bounds on its extent that name no loop; None where one has none or a guard is no bound.

    Where every bound names a loop, those that fall with an outer loop's variable are taken at that loop's lower bound. Guards
    bound the innermost loop.
    """
    loops = {n.var: n for n in (*around, *path) if isinstance(n, Loop)}
    order = list(loops)
    gaps: dict[str, list[Aff]] = {n.var: [u - low for u in n.upper for low in n.lower] for n in path if isinstance(n, Loop)}
    for node in path:
        if isinstance(node, Loop):
            continue
        for c in node.conditions:
            inside = [v for v in order if v in c.names]
            if not inside or inside[-1] not in gaps:
                continue
            v = inside[-1]
            k = c.expr.coefficient(v)
            rest = c.expr - Aff.of(v) * k
            if c.equal or k >= 0 or v in rest.names:
                return None
            gaps[v] += [rest // -k + 1 - low for low in loops[v].lower]
    lows = {v: min(e.const for e in n.lower if e.is_const) for v, n in loops.items() if any(e.is_const for e in n.lower)}
    out: dict[str, list[Aff]] = {}
    for v, found in gaps.items():
        free = [g for g in found if not g.names & loops.keys()] or [
            e for g in found if not (e := _capped(g, lows)).names & loops.keys()
        ]
        if not free:
            return None
        out[v] = list(dict.fromkeys(free))
    return out


def _capped(gap: Aff, lows: dict[str, int]) -> Aff:
    for v in gap.names & lows.keys():
        c = gap.coefficient(v)
        if c < 0:
            gap = gap - Aff.of(v) * c + lows[v] * c
    return gap


def _extent(gaps: Iterable[Aff], markers: Markers) -> Term:
    return positive(least(_read(gaps, markers)))


def _read(gaps: Iterable[Aff], markers: Markers) -> list[Term]:
    out: list[Term] = []
    failed: NotSeparable | None = None
    for g in gaps:
        try:
            out.append(markers.term(g))
        except NotSeparable as e:
            failed = e
    if not out:
        raise failed or NotSeparable("no bound")
    return out


def _runs(site: Site, inner: tuple[Loop | Guard, ...], markers: Markers, total: Total) -> Count:
    found = bounds(inner, site.path)
    if found is None:
        return Count(None, total(site))
    return Count(multiply(_extent(g, markers) for g in found.values()))


def _distinct(a: Address, inner: Sequence[Loop | Guard], path: Sequence[Loop | Guard], markers: Markers) -> Count | None:
    """Elements that a block touches through the address, at most; None where a loop that it names has no bound."""
    names = frozenset().union(*(e.names for e in a.index)) if a.index else frozenset()
    factors: list[Term] = []
    for loop in inner:
        if isinstance(loop, Loop) and loop.var in names:
            found = bounds([loop], path)
            if found is None:
                return None
            factors.append(_extent(found[loop.var], markers))
    return Count(multiply(factors))


def _axes(a: Address, block: tuple[Loop | Guard, ...], site: Site) -> frozenset[str]:
    """The kinds of the block loops that the address depends on, through lower bounds of loops too."""
    loops = {n.var: n for n in site.loops}
    names = set(frozenset().union(*(e.names for e in a.index)) if a.index else ())
    for loop in reversed(site.loops):
        if loop.var in names:
            for e in loop.lower:
                names |= e.names
    return frozenset(n.kind for n in block if isinstance(n, Loop) and n.var in names and n.var in loops)


def _block_axes(step: Launch, markers: Markers) -> tuple[tuple[str, Term], ...]:
    for site in step.sites:
        block, _ = _cut(site)
        found = [n for n in block if isinstance(n, Loop) and n.kind in BLOCK_KINDS]
        if not found:
            continue
        out: list[tuple[str, Term]] = []
        for loop in found:
            gaps = bounds([loop], block)
            out.append((loop.kind, _extent(gaps[loop.var], markers) if gaps else ONE))
        return tuple(sorted(out))
    return ()


def _contraction(
    program: Program, site: Site, inner: tuple[Loop | Guard, ...], runs: Count, markers: Markers
) -> Contraction | None:
    """`target += a · b` with loops that only a has, loops that only b has, and a sum."""
    action = site.action
    if not isinstance(action, Leaf) or program.statement[action.statement].op not in UPDATE_OPS or runs.full is None:
        return None
    keys = operations(program, action)
    if not any(k.kind == "mul" for k in keys):
        return None
    operands = _plain(action.reads)
    if len(operands) != 2:
        return None
    loops = {n.var: n for n in inner if isinstance(n, Loop)}
    target, left, right = ({v for e in a.index for v in e.names if v in loops} for a in (action.target, *operands))
    summed = [v for v in loops if v in left and v in right and v not in target]
    rows = [v for v in loops if v in target and v in left and v not in right]
    columns = [v for v in loops if v in target and v in right and v not in left]
    if not summed or not (rows or columns):
        return None

    def product(names: list[str]) -> Term | None:
        factors = [bounds([loops[v]], site.path) for v in names]
        if any(f is None for f in factors):
            return None
        return multiply(_extent(f[v], markers) for f, v in zip(factors, names, strict=True) if f is not None)

    m, n, k = product(rows), product(columns), product(summed[-1:])
    if m is None or n is None or k is None:
        return None
    buffers = [program.buffer[a.buffer] for a in operands]
    return Contraction(
        action.target.buffer,
        (operands[0].buffer, operands[1].buffer),
        next((key.matrix for key in keys if key.matrix), None),
        max(DTYPES[b.dtype].bytes for b in buffers),
        m,
        n,
        k,
        runs,
        all(b.memory in ("shared", "scratch") for b in buffers),
    )


def _plain(reads: tuple[Read, ...]) -> list[Address]:
    out: list[Address] = []
    for r in reads:
        out += _plain(r.reads) if isinstance(r, Inline) else [r]
    return out


def _filled(program: Program, step: Launch) -> list[Site]:
    """Copies from global memory into a block's own."""
    return [
        s
        for s in step.sites
        if isinstance(s.action, Copy)
        and program.buffer[s.action.src.buffer].memory == "global"
        and program.buffer[s.action.dst.buffer].memory != "global"
    ]


def _steps(program: Program, step: Launch, markers: Markers) -> Term:
    """Iterations, in a block, of the loops around a copy and what reads it: the deepest such nest."""
    best: tuple[int, Term] = (0, ONE)
    for copy in _filled(program, step):
        assert isinstance(copy.action, Copy)
        name = copy.action.dst.buffer
        _, inside = _cut(copy)
        for site in step.sites:
            if isinstance(site.action, Copy) and program.buffer[site.action.dst.buffer].memory == "global":
                continue
            if not any(a.buffer == name and not w for a, _, w in addresses(site.action, program)):
                continue
            common: list[Loop] = []
            for x, y in zip(inside, _cut(site)[1], strict=False):
                if x is not y:
                    break
                if isinstance(x, Loop) and x.kind in ORDERED_KINDS:
                    common.append(x)
            found = bounds(common, copy.path)
            if common and found is not None and len(common) > best[0]:
                best = (len(common), multiply(_extent(g, markers) for g in found.values()))
    return best[1]


def _stages(program: Program, step: Launch) -> int:
    names = {s.action.dst.buffer for s in _filled(program, step) if isinstance(s.action, Copy)}
    return max((slot_count(program, step, n) or 1 for n in names), default=1)
