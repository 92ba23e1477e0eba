"""What one thread of a launch does, read from a program whose thread loops are bound: the input of the block's execution model.

A phase is one thread loop with what is inside. Its counts are terms (cost/term.py) in sizes and knobs, so that one program of a
structure describes every candidate of it. What a GPU compiler does is taken as read:
- a value read in loops that its address does not use is read once: across unrolled and vector loops, and out of innermost
  serial ones; so are the values of an update in place;
- a vector loop along consecutive elements makes one access of that width, at most 16 bytes an instruction;
- unrolled loops keep the values of all their iterations in registers; a copy from global to shared memory passes through them.
Bounds that depend on the block or the thread stand for a full tile: its first block, its first thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tilec.cost.launches import Launch
from tilec.cost.operations import operations
from tilec.cost.reader import Reader
from tilec.cost.separable import NotSeparable
from tilec.cost.term import ONE, Num, Term, add, ceil, least, most, multiply
from tilec.errors import InternalError
from tilec.ir.affine import Aff, Div
from tilec.ir.dtypes import DTYPES
from tilec.ir.functions import FUNCTIONS
from tilec.ir.layouts import padded
from tilec.ir.program import BLOCK_KINDS, THREAD_KINDS, Address, Barrier, Buffer, Copy, Layout, Leaf, Loop, Program, Wait
from tilec.ir.tree import Site, addresses, owning_loops, updates

# Instructions per operation of a kind that takes more than one: a division and the elementary functions are short sequences.
_COST = {"div": 8, "sqrt": 8, "compare": 1, "minmax": 1, "select": 1, "convert": 1, "sign": 0, "logic": 1, "integer": 1}
_FUNCTION = 16


def instructions(kind: str) -> int:
    """Of one operation, apart from + and ×; InternalError for a kind without a rule, so that nothing is free by accident."""
    if kind in _COST:
        return _COST[kind]
    if kind in FUNCTIONS:
        return _FUNCTION
    raise InternalError(f"no cost rule for the operation {kind!r}")


class NoFullTile(NotSeparable):
    """A loop of the thread has no extent that stands for all blocks."""


@dataclass(frozen=True)
class Request:
    """An access that every thread makes `count` times in one run of its phase, `vector` elements each.

    index: per dimension, in elements, of a thread whose coordinates are the names "thread.x", "thread.y", "thread.z".
    """

    buffer: str
    memory: str
    write: bool
    element: int  # bytes
    vector: Term
    step: Term  # elements from one access of the innermost unrolled loop to the next; 0 without one
    steps: Term  # iterations of that loop
    count: Term
    index: tuple[Term, ...]
    extents: tuple[Term, ...]
    layout: Layout | None
    copies: bool  # it fills or empties another memory: its values only pass through registers


@dataclass(frozen=True)
class Phase:
    """One thread loop. Terms are per thread and run of the phase.

    arithmetic: instructions by arithmetic dtype. rolled: iterations of serial loops. refills: how often the values that the
    arithmetic waits for are fetched anew; waits: buffers in global memory it fetches from. fragments: registers of such values.
    """

    requests: tuple[Request, ...]
    arithmetic: tuple[tuple[str, Term], ...]
    rolled: Term
    refills: Term
    waits: int
    fragments: Term
    staged: Term  # registers of values on their way from global to shared memory


@dataclass(frozen=True)
class Group:
    """The phases that follow each other under the same loops of the block; `runs` of those loops in all.

    fetches: a copy from global memory that the threads wait for. barriers: per run.
    """

    runs: Term
    phases: tuple[Phase, ...]
    fetches: bool
    barriers: int


@dataclass(frozen=True)
class ThreadWork:
    """A launch. threads and shared bytes per block; registers of one thread that live in it, apart from fragments."""

    blocks: Term
    axes: tuple[tuple[str, Term], ...]  # thread axis → extent, x first
    shared: Term
    tiles: tuple[str, ...]  # buffers in shared memory, in the order of their addresses
    held: Term
    groups: tuple[Group, ...]

    @property
    def threads(self) -> Term:
        """Per block."""
        return multiply(e for _, e in self.axes)


def thread_work(program: Program, launch: Launch, reader: Reader) -> ThreadWork | None:
    """What a thread of the launch does; None where no thread loops are bound.

    reader: a Reader for one program, Markers or Products for a structure. Raises NoFullTile where a loop has no extent in
    a full tile, NotSeparable where the reader cannot tell what a number is.
    """
    if launch.collective:
        return None
    read = _Launch(program, reader)
    extents: dict[str, list[Term]] = {}
    for loop in launch.loops:
        if loop.kind in THREAD_KINDS:
            extents.setdefault(loop.kind, []).append(read.extent(loop))
    by_loops: dict[tuple[str, ...], list[Site]] = {}
    for site in launch.sites:
        by_loops.setdefault(tuple(loop.var for loop in _around(site)), []).append(site)
    shared: list[Term] = []
    held: list[Term] = []
    for name, found in launch.buffers(program).items():
        b = program.buffer[name]
        if b.memory == "shared":
            shape = [reader.term(e) for e in padded(b.layout, b.shape)]
            shared.append(multiply((Num(DTYPES[b.dtype].bytes), *shape)))
        elif b.memory == "register":
            held.append(read.registers(b, found))
    return ThreadWork(
        blocks=multiply(read.extent(loop) for loop in launch.loops if loop.kind in BLOCK_KINDS),
        axes=tuple((axis, most(found)) for axis, found in sorted(extents.items())),
        shared=add(shared),
        tiles=tuple(b.name for b in program.buffers if b.memory == "shared" and b.name in launch.buffers(program)),
        held=add(held),
        groups=tuple(read.group(sites) for sites in by_loops.values()),
    )


def full_work(program: Program, launch: Launch, reader: Reader) -> ThreadWork | None:
    """The same, or None where a loop has no extent in a full tile."""
    try:
        return thread_work(program, launch, reader)
    except NoFullTile:
        return None


def _around(site: Site) -> tuple[Loop, ...]:
    """The block's own loops: those outside the thread loops, without the grid's."""
    out: list[Loop] = []
    for loop in site.loops:
        if loop.kind in THREAD_KINDS:
            break
        if loop.kind not in BLOCK_KINDS:
            out.append(loop)
    return tuple(out)


def _inner(site: Site) -> tuple[Loop, ...]:
    """The loops that one thread runs."""
    first = next((n for n, loop in enumerate(site.loops) if loop.kind in THREAD_KINDS), len(site.loops))
    return tuple(loop for loop in site.loops[first:] if loop.kind not in THREAD_KINDS)


def _kept(loops: Sequence[Loop], names: frozenset[str]) -> list[Loop]:
    """The loops in whose iterations a value at an address with these names is accessed anew."""
    out = [loop for loop in loops if loop.kind not in ("unrolled", "vector") or loop.var in names]
    while out and out[-1].var not in names:
        out.pop()
    return out


def _rises(e: Aff, name: str) -> bool:
    """May the expression grow with the variable?"""
    for atom, c in e.terms:
        if atom == name and c > 0:
            return True
        if isinstance(atom, Div) and (_rises(atom.num, name) if c > 0 else _rises(-atom.num, name)):
            return True
    return False


def _names(index: Sequence[Aff]) -> frozenset[str]:
    return frozenset().union(*(e.names for e in index))


@dataclass(frozen=True)
class _Launch:
    program: Program
    reader: Reader

    def extent(self, loop: Loop) -> Term:
        """Iterations of a loop in a full tile: bounds that fall with outer loops are those of the first iteration, bounds that
        rise with them count only where no other is there, and then there is no full tile."""
        gaps = [up - low for up in loop.upper for low in loop.lower]
        known = frozenset(self.program.sizes)
        steady = [gap for gap in gaps if not any(_rises(gap, name) for name in gap.names - known)]
        if not steady:
            raise NoFullTile(f"the extent of loop {loop.var} grows with an outer loop")
        return least(self.reader.term(gap.subs(dict.fromkeys(gap.names - known, 0))) for gap in steady)

    def times(self, loops: Sequence[Loop]) -> Term:
        """Iterations of a nest."""
        return multiply(map(self.extent, loops))

    def registers(self, b: Buffer, found: Sequence[Site]) -> Term:
        """Registers of 4 bytes in which one thread holds what it accesses of a register buffer, at the site that needs most."""
        held: list[Term] = []
        for site in found:
            below = frozenset(loop.var for loop in site.loops[len(owning_loops(b, site.loops)) :])
            unrolled = [x for x in owning_loops(b, site.loops) if x in _inner(site) and x.kind in ("unrolled", "vector")]
            for a, _, _ in addresses(site.action, self.program):
                if a.buffer == b.name:
                    mine = [x for x in _inner(site) if x.var in _names(a.index) and x.var in below]
                    held.append(self.times([*mine, *unrolled]))
        return _words(most(held), b)

    def group(self, sites: Sequence[Site]) -> Group:
        around = _around(sites[0])
        by_phase: dict[tuple[int, ...], list[Site]] = {}
        for site in sites:
            first = next((n for n, x in enumerate(site.path) if isinstance(x, Loop) and x.kind in THREAD_KINDS), None)
            if first is not None:
                by_phase.setdefault(site.position[: first + 1], []).append(site)
        memory = self.program.buffer
        fetches = any(
            isinstance(s.action, Copy)
            and memory[s.action.src.buffer].memory == "global"
            and memory[s.action.dst.buffer].memory == "shared"
            and not s.action.asynchronous
            for s in sites
        )
        waits = [s.action.n for s in sites if isinstance(s.action, Wait)]
        return Group(
            runs=self.times(around),
            phases=tuple(map(self.phase, by_phase.values())),
            fetches=fetches or 0 in waits,
            barriers=sum(isinstance(s.action, Barrier) for s in sites),
        )

    def phase(self, sites: Sequence[Site]) -> Phase:
        requests: list[Request] = []
        arithmetic: dict[str, list[Term]] = {}
        fragments: list[Term] = []
        staged: list[Term] = []
        refills: list[Term] = [ONE]
        waits: set[str] = set()
        rolled: dict[str, Term] = {}
        for site in sites:
            inner = _inner(site)
            for n, loop in enumerate(inner):
                if loop.kind in ("serial", "pipelined"):
                    rolled[loop.var] = self.times(inner[: n + 1])
            for dtype, n in self._arithmetic(site).items():
                arithmetic.setdefault(dtype, []).append(multiply((Num(n), self.times(inner))))
            for a, _, is_write in addresses(site.action, self.program):
                b = self.program.buffer[a.buffer]
                if b.memory == "register":
                    continue
                make = partial(self.request, b, a, site)
                requests.append(make(is_write))
                if is_write and updates(site.action, self.program):
                    requests.append(make(False))
                if not is_write and isinstance(site.action, Leaf):
                    values = [x for x in inner if x.kind in ("unrolled", "vector") and x.var in _names(a.index)]
                    fragments.append(_words(self.times(values), b))
                    if b.memory == "global":
                        waits.add(b.name)
            if isinstance(site.action, Leaf):
                written = _names(site.action.target.index)
                refills.append(self.times([x for x in inner if x.kind == "serial" or x.var not in written]))
            elif isinstance(site.action, Copy) and not site.action.asynchronous:
                staged.append(self.times([x for x in inner if x.kind in ("unrolled", "vector")]))
        return Phase(
            requests=tuple(requests),
            arithmetic=tuple((dtype, add(terms)) for dtype, terms in arithmetic.items()),
            rolled=add(rolled.values()),
            refills=most(refills),
            waits=len(waits),
            fragments=add(fragments),
            staged=add(staged),
        )

    def _arithmetic(self, site: Site) -> dict[str, int]:
        """Instructions of one execution by arithmetic dtype; a multiply and an add are one where they may round once."""
        counts: dict[str, dict[str, int]] = {}
        for key, n in operations(self.program, site.action).items():
            counts.setdefault(key.dtype, {})[key.kind] = counts.get(key.dtype, {}).get(key.kind, 0) + n
        out: dict[str, int] = {}
        for dtype, kinds in counts.items():
            adds, muls = kinds.pop("add", 0), kinds.pop("mul", 0)
            n = max(adds, muls) if self.program.contract else adds + muls
            out[dtype] = n + sum(instructions(kind) * m for kind, m in kinds.items())
        return out

    def request(self, b: Buffer, a: Address, site: Site, write: bool) -> Request:
        inner = _inner(site)
        kept = _kept(inner, _names(a.index))
        *others, last = a.index or (Aff(0),)
        wide = [x for x in kept if x.kind == "vector" and last.coefficient(x.var) == 1]
        wide = [x for x in wide if x.var not in _names(others) | _inside(last)][:1]
        unrolled = [x for x in kept if x.kind == "unrolled" and x.var not in _names(others)][-1:]
        first = {x.var: Aff.of(x.kind) + x.lower[0] for x in site.loops if x.kind in THREAD_KINDS}
        at = {n: first.get(n, Aff(0)) for n in _names(a.index) if n not in self.program.sizes}
        return Request(
            buffer=b.name,
            memory=b.memory,
            write=write,
            element=DTYPES[b.dtype].bytes,
            vector=self.times(wide),
            step=add(self.reader.number(last.coefficient(x.var)) for x in unrolled),
            steps=self.times(unrolled),
            count=self.times([x for x in kept if x not in wide]),
            index=tuple(self.reader.term(e.subs(at)) for e in a.index),
            extents=tuple(map(self.reader.term, b.shape)),
            layout=b.layout,
            copies=isinstance(site.action, Copy),
        )


def _inside(e: Aff) -> frozenset[str]:
    """Names inside divisions."""
    return frozenset().union(*(atom.num.names for atom, _ in e.terms if isinstance(atom, Div)))


def _words(cells: Term, b: Buffer) -> Term:
    """Registers of 4 bytes for that many cells."""
    size = DTYPES[b.dtype].bytes
    return multiply((Num(size // 4), cells)) if size >= 4 else ceil(multiply((Num(size), cells)), Num(4))
