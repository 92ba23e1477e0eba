"""Program -> instruction tree: what cost and the code generators read instead of deriving it each for itself.

    Lowered    ::= program, allocations, launches
    Launch     ::= name, bound, grid, threads, allocations, Instruction*
    Instruction::= For(loop, allocations, Instruction*) | If(conditions, Instruction*) | Tile | Sync
    Tile       ::= kind, axes, reduced, action        one operation on whole tiles; without axes on one element

One top-level nest is one Launch; `bound` says whether it has block or thread loops, which makes it a kernel launch of a GPU.
Explicit loops of a Tile stand around it as For. The kinds of a Tile:

    load, store, copy    a Copy toward the arithmetic, away from it, within a memory
    init                 a constant or a neutral element over all axes
    matmul               acc[a,b] += x[a,k]·y[k,b], k the one reduced axis
    reduce               any other update with reduced axes
    map                  elementwise over all axes (also an update); written to global memory it is a store
    merge                dst = dst op src over all axes
    element              no axes at all
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import TypeAlias, Union

from tilec.ir import tree
from tilec.ir.affine import Aff, Constraint
from tilec.ir.dtypes import DTYPES, promote
from tilec.ir.expr import Binary, Index, Load, walk
from tilec.ir.layouts import padded
from tilec.ir.printer import owned
from tilec.ir.program import (
    BLOCK_KINDS,
    DISTANCE,
    THREAD_KINDS,
    Address,
    Barrier,
    Buffer,
    Commit,
    Copy,
    Guard,
    Identity,
    Inline,
    Leaf,
    Loop,
    Merge,
    Node,
    Program,
    Read,
    Wait,
)
from tilec.lower.cells import Cells
from tilec.lower.nests import Split, bound_names, constant_extent, is_plain, perfect, reads_of, split, target_of


@dataclass(frozen=True)
class Allocation:
    """Storage of one buffer at its owner. `extents` include the layout's padding; `bytes` is None while they are symbolic.

    Of a register buffer it is what the declaration says; a thread holds the cells that its own indices select (lower/cells.py).
    """

    buffer: Buffer
    extents: tuple[Aff, ...]

    @property
    def bytes(self) -> int | None:
        if not all(e.is_const for e in self.extents):
            return None
        return prod(e.const for e in self.extents) * DTYPES[self.buffer.dtype].bytes


@dataclass(frozen=True)
class Tile:
    kind: str
    axes: tuple[Loop, ...]  # those that only tell threads apart, then in the order of the target's dimensions
    reduced: tuple[Loop, ...]  # the rest, in running order
    action: Leaf | Copy | Identity | Merge


@dataclass(frozen=True)
class Sync:
    action: Barrier | Commit | Wait


@dataclass(frozen=True)
class For:
    loop: Loop  # its own body is empty
    allocations: tuple[Allocation, ...]
    body: tuple[Instruction, ...]


@dataclass(frozen=True)
class If:
    conditions: tuple[Constraint, ...]
    body: tuple[Instruction, ...]


Instruction: TypeAlias = Union[For, If, Tile, Sync]


@dataclass(frozen=True)
class Launch:
    name: str
    bound: bool
    grid: tuple[Loop, ...]  # block loops, outermost first
    threads: tuple[tuple[str, int | None], ...]  # per bound thread axis its largest constant extent; None: not constant
    body: tuple[Instruction, ...]

    @property
    def collective(self) -> bool:
        """Bound to blocks without thread loops: a backend spreads each block over its threads."""
        return self.bound and not self.threads

    def allocations(self) -> list[Allocation]:
        """Everything a launch owns."""
        found: list[Allocation] = []

        def go(body: tuple[Instruction, ...]) -> None:
            for op in body:
                if isinstance(op, For):
                    found.extend(op.allocations)
                if isinstance(op, For | If):
                    go(op.body)

        go(self.body)
        return found


@dataclass(frozen=True)
class Lowered:
    program: Program
    allocations: tuple[Allocation, ...]  # temporaries that outlive the launches
    launches: tuple[Launch, ...]


def lower(program: Program) -> Lowered:
    """The instruction tree of a well-formed program (`ir.verify`)."""
    program = tree.without_hints(program)
    cells = Cells.of(program)
    launches = [_launch(program, cells, n, node) for n, node in enumerate(program.body)]
    return Lowered(program, tuple(map(allocation, owned(program, (), None))), tuple(launches))


def allocation(b: Buffer) -> Allocation:
    """The storage of a buffer, its layout's padding included."""
    return Allocation(b, tuple(padded(b.layout, b.shape)))


def _launch(program: Program, cells: Cells, n: int, node: Node) -> Launch:
    inside = [loop for _, loop in tree.loops((node,))]
    threads: list[tuple[str, int | None]] = []
    for axis in THREAD_KINDS:
        extents = [constant_extent(loop) for loop in inside if loop.kind == axis]
        if extents:
            known = [e for e in extents if e is not None]
            threads.append((axis, max(known) if len(known) == len(extents) else None))
    grid = tuple(replace(loop, body=()) for loop in inside if loop.kind in BLOCK_KINDS)
    return Launch(f"{program.name}_{n}", bool(grid or threads), grid, tuple(threads), _nodes(program, cells, (node,), ()))


def _nodes(program: Program, cells: Cells, body: tuple[Node, ...], path: tuple[Loop, ...]) -> tuple[Instruction, ...]:
    out: list[Instruction] = []
    for node in body:
        if isinstance(node, Barrier | Commit | Wait):
            out.append(Sync(node))
            continue
        nest = perfect(program, node, path)
        if nest is not None:
            out.append(_tile(split(nest, cells, plain=True), cells))
            continue
        match node:
            case Loop():
                mine = tuple(map(allocation, owned(program, path, node)))
                out.append(For(replace(node, body=()), mine, _nodes(program, cells, node.body, (*path, node))))
            case Guard():
                out.append(If(node.conditions, _nodes(program, cells, node.body, path)))
    return tuple(out)


def _tile(s: Split, cells: Cells) -> Instruction:
    """The operation, its explicit loops and conditions around it."""
    program, action, around = cells.program, s.nest.action, s.nest.around
    axes, explicit = s.vector, s.explicit
    if isinstance(action, Leaf) and _uses_index(program, action, {loop.var for loop in axes}):
        axes, explicit = (), s.nest.loops
    reduced: list[Loop] = []
    if isinstance(action, Leaf) and _accumulates(program, action):
        written = cells.index(action.target, around)
        reads = [cells.index(a, around) for a in reads_of(program, action)]
        stuck = frozenset().union(*(c.names for c in s.nest.conditions))
        for loop in reversed(explicit):
            names = {a.var for a in (*axes, *reduced)}
            fits = all(is_plain(index, {*names, loop.var}) for index in reads)
            used = any(loop.var in e.names for e in written) or any(loop.var in bound_names(r) for r in reduced)
            if not fits or used or bound_names(loop) & names or loop.var in stuck:
                break
            if _uses_index(program, action, {loop.var}):
                break
            reduced.insert(0, loop)
        explicit = explicit[: len(explicit) - len(reduced)]
    index = target_of(action).index
    axes = tuple(sorted(axes, key=lambda loop: next((d for d, e in enumerate(index) if loop.var in e.names), -1)))
    kind = _kind(program, action, axes, tuple(reduced))
    op: Instruction = Tile(kind, _headers(axes), _headers(tuple(reduced)), action)
    return _around(op, explicit, s.nest.conditions)


def _accumulates(program: Program, leaf: Leaf) -> bool:
    """An update in the target's own type, without rounding between the terms, whose terms don't depend on the target."""
    s, target = program.statement[leaf.statement], program.buffer[leaf.target.buffer]
    exact = promote(DTYPES[target.dtype].arithmetic, s.value.dtype) == target.dtype
    return s.op != "=" and exact and all(a.buffer != target.name for a in reads_of(program, leaf))


def _headers(loops: tuple[Loop, ...]) -> tuple[Loop, ...]:
    return tuple(replace(loop, body=()) for loop in loops)


def _around(op: Instruction, explicit: tuple[Loop, ...], conditions: tuple[Constraint, ...]) -> Instruction:
    """Each condition right inside the last loop whose variable it uses."""
    for n in range(len(explicit), -1, -1):
        known = {loop.var for loop in explicit[:n]}
        inner = {loop.var for loop in explicit} - known
        here = tuple(c for c in conditions if not c.names & inner and (n == 0 or explicit[n - 1].var in c.names))
        if here:
            op = If(here, (op,))
        if n:
            op = For(replace(explicit[n - 1], body=()), (), (op,))
    return op


def _uses_index(program: Program, leaf: Leaf, axes: set[str]) -> bool:
    """Does a value depend on an axis other than through an address?"""

    def inside(statement: str, instance: tuple[Aff, ...], reads: tuple[Read, ...]) -> bool:
        s = program.statement[statement]
        env = dict(zip(s.loops, instance, strict=True))
        for e in walk(s.value):
            if isinstance(e, Index) and e.aff.subs(env).names & axes:
                return True
        return any(isinstance(r, Inline) and inside(r.statement, r.instance, r.reads) for r in reads)

    return inside(leaf.statement, leaf.instance, leaf.reads)


def _kind(program: Program, action: Leaf | Copy | Identity | Merge, axes: tuple[Loop, ...], reduced: tuple[Loop, ...]) -> str:
    if not axes and not reduced:
        return "element"
    target = program.buffer[target_of(action).buffer]
    match action:
        case Copy():
            far, near = DISTANCE[program.buffer[action.src.buffer].memory], DISTANCE[target.memory]
            return "load" if far > near else "store" if far < near else "copy"
        case Identity():
            return "init"
        case Merge():
            return "merge"
        case Leaf():
            if reduced:
                return "matmul" if _is_matmul(program, action, axes, reduced) else "reduce"
            if not action.reads and program.statement[action.statement].op == "=":
                return "init"
            return "store" if target.memory == "global" else "map"


def _is_matmul(program: Program, leaf: Leaf, axes: tuple[Loop, ...], reduced: tuple[Loop, ...]) -> bool:
    s = program.statement[leaf.statement]
    match s.value:
        case Binary(op="*", a=Load(n=a), b=Load(n=b)) if s.op == "+=" and len(reduced) == 1 and len(axes) == 2 and a != b:
            return _factors(leaf, a, b, axes, reduced[0]) is not None
    return False


def _factors(leaf: Leaf, a: int, b: int, axes: tuple[Loop, ...], k: Loop) -> tuple[Address, Address] | None:
    """(rows × k, k × columns) in that order; None when the reads are not such a pair."""
    x, y = leaf.reads[a], leaf.reads[b]
    if not (isinstance(x, Address) and isinstance(y, Address)):
        return None
    rows, columns = axes[0].var, axes[1].var
    of = [frozenset().union(*(e.names for e in r.index)) & {rows, columns, k.var} for r in (x, y)]
    if of == [{rows, k.var}, {columns, k.var}]:
        return x, y
    return (y, x) if of == [{columns, k.var}, {rows, k.var}] else None


def matmul_factors(program: Program, tile: Tile) -> tuple[Address, Address]:
    """The two operands of a matmul tile: rows × k and k × columns."""
    assert isinstance(tile.action, Leaf)
    value = program.statement[tile.action.statement].value
    assert isinstance(value, Binary) and isinstance(value.a, Load) and isinstance(value.b, Load)
    factors = _factors(tile.action, value.a.n, value.b.n, tile.axes, tile.reduced[0])
    assert factors is not None
    return factors
