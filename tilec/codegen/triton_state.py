"""A kernel under construction: its lines, the tiles it holds, extents, index vectors and the tests that keep them inside."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from tilec.codegen.triton_text import INDENT, TritonScope, may_be_negative
from tilec.errors import ScheduleError
from tilec.ir import tree
from tilec.ir.affine import Aff, Div
from tilec.ir.program import Loop, Program
from tilec.lower.instructions import Launch, Tile
from tilec.lower.nests import constant_extent

Extent = int | str  # a power of two, or the name of a compile-time parameter that is one


@dataclass(frozen=True)
class Axis:
    """A loop that is a dimension of an operation, with the extent of the tensors along it."""

    loop: Loop
    extent: Extent


@dataclass
class Value:
    """A buffer in registers or shared memory: one tensor. bounds: per dimension, where its last writer stopped; zero: per
    dimension, the bounds beyond which its elements are zero."""

    name: str
    extents: tuple[Extent, ...]
    bounds: tuple[frozenset[Aff], ...] = ()
    zero: tuple[frozenset[Aff], ...] = ()


@dataclass(frozen=True)
class Dot:
    """A product as emitted: extents, operands (name, type, loaded by a copy in its loop), stages of that loop."""

    rows: int
    columns: int
    depth: int
    left: tuple[str, str, bool]
    right: tuple[str, str, bool]
    stages: int


@dataclass(frozen=True)
class Output:
    """A tile stored to global memory: extents, type; slices: of columns, stored one after the other."""

    extents: tuple[Extent, ...]
    dtype: str
    slices: int = 1


@dataclass
class Block:
    """Lines under construction, the names known in them, what was computed and loaded in them."""

    depth: int
    known: set[str]
    lines: list[str] = field(default_factory=list)
    made: dict[tuple[str, Aff, Extent], str] = field(default_factory=dict)
    loads: dict[tuple[str, ...], str] = field(default_factory=dict)


class State:
    """What the operations of one kernel share. group: rows of output tiles side by side; bits: f8 travels as bytes;
    warps: of a block, None where they are not chosen yet."""

    def __init__(
        self,
        program: Program,
        launch: Launch,
        stages: dict[str, int],
        names: dict[str, str],
        group: int,
        bits: bool,
        warps: int | None,
    ):
        self.program, self.launch, self.stages, self.names = program, launch, stages, names
        self.group, self.bits, self.warps = group, bits, warps
        self.values: dict[str, Value] = {}
        self.taken: set[str] = {*names.values(), "pid", "tl", "triton", "torch"}
        self.blocks = [Block(1, set(program.sizes))]
        self.loops: list[Loop] = []
        self.used: Counter[str] = Counter()  # calls of support functions; divisions and reductions
        self.extents: dict[str, Aff] = {}
        self.touched: dict[str, None] = {}
        self.sizes: set[str] = set()
        self.scalars: set[str] = set()
        self.stored: set[str] = set()  # global buffers written since the last barrier
        self.fetched: set[str] = set()  # global buffers read since the last barrier
        self.dots: list[str] = []
        self.sums: list[str] = []
        self.products: list[Dot] = []
        self.summed: set[str] = set()  # tiles that hold sums of products
        self.outputs: list[Output] = []
        self.fed: list[tuple[tuple[Extent, ...], str]] = []  # tiles that a pipelined loop loads for values it computes
        self.copied: set[str] = set()  # tiles that a copy loaded
        self.both: set[str] = set()  # global buffers that the kernel reads and writes
        self.once: set[str] = set()  # buffers that one operation writes

    def refused(self, why: str) -> ScheduleError:
        return ScheduleError(f'emit("triton"): {self.launch.name}: {why}')

    @property
    def block(self) -> Block:
        return self.blocks[-1]

    def line(self, *lines: str) -> None:
        self.block.lines += lines

    def put(self, text: str) -> None:
        self.line(INDENT * self.block.depth + text)

    def scope(self) -> TritonScope:
        order = {name: n for n, name in enumerate([*self.program.sizes, *(loop.var for loop in self.loops)])}
        return TritonScope(self.program, order, self.names)

    def aff(self, e: Aff) -> str:
        self.sizes |= e.names & set(self.program.sizes)
        for d in _divisions(e):
            if may_be_negative(d.num) and d.num.const != d.den - 1:
                raise self.refused(f"floor({d.num}/{d.den}) may be of a negative number, which Triton divides toward zero")
        return self.scope().aff(e)

    def fresh(self, name: str) -> str:
        base = re.sub(r"\W", "_", name)
        out, n = base, 2
        while out in self.taken:
            out, n = f"{base}{n}", n + 1
        self.taken.add(out)
        return out

    def bound(self, which: str, bounds: tuple[Aff, ...]) -> str:
        for e in bounds:
            self.aff(e)
        return self.scope().bound(which, bounds)

    # extents, indices, masks -------------------------------------------------------------------------------------

    def extent(self, e: Aff) -> Extent:
        """The power of two that holds `e` elements."""
        if e.is_const:
            return 1 << max(e.const - 1, 0).bit_length()
        for name, known in self.extents.items():
            if known == e:
                return name
        name = self.fresh("BLOCK_" + re.sub(r"\W+", "_", str(e)).strip("_"))
        self.extents[name] = e
        return name

    def loop_extent(self, loop: Loop) -> Extent:
        constant = constant_extent(loop)
        if constant is not None:
            return self.extent(Aff(max(constant, 1)))
        gaps = [u - low for u in loop.upper for low in loop.lower]
        fixed = [g for g in gaps if g.names <= set(self.program.sizes)]
        if not fixed:
            raise self.refused(
                f"'{loop.var}' has no extent that is known before the launch: {', '.join(map(str, gaps))}; a tile is a "
                "rectangle, and nothing nearer is one; the backends c and numpy have a form for it"
            )
        return self.extent(fixed[0])

    def axes(self, op: Tile, whole: bool = True) -> tuple[Axis, ...]:
        """Every axis at the extent of the tiles it runs over; not `whole`: only what is written counts."""
        loops = (*op.axes, *op.reduced)
        found: dict[str, Extent] = {}
        for a, _, is_write in tree.addresses(op.action, self.program):
            if not (whole or is_write):
                continue
            b = self.program.buffer[a.buffer]
            if b.memory == "global":
                continue
            for d, e in enumerate(a.index):
                axis = next((x for x in loops if x.var in e.names), None)
                if axis is None:
                    if e != Aff(0) or b.shape[d] != Aff(1):
                        raise self.refused(
                            f"'{a.buffer}' is used element by element ({a.buffer}[{', '.join(map(str, a.index))}]), and a tile "
                            f"in registers has no index; nearest: distribute the loops of {_mentioned(e, self.loops)} or keep "
                            f"'{a.buffer}' in global memory"
                        )
                    continue
                if e - axis.var + axis.lower[0] != Aff(0) or len(axis.lower) > 1:
                    raise self.refused(
                        f"a part of the tile '{a.buffer}' from {e - axis.var + axis.lower[0]} on is used; Triton cannot cut a "
                        f"tile in registers; nearest: make '{a.buffer}' as large as what is used of it"
                    )
                mine = self.extent(b.shape[d])
                if found.setdefault(axis.var, mine) != mine:
                    raise self.refused(f"'{axis.var}' runs over tiles of {found[axis.var]} and of {mine} elements ('{a.buffer}')")
        return tuple(Axis(x, found.get(x.var) or self.loop_extent(x)) for x in loops)

    def vector(self, base: Aff, axis: Axis, hint: str) -> str:
        """The variable that holds base + axis for every element along the axis."""
        first = base + axis.loop.lower[0]
        key = ("index", first, axis.extent)
        for block in self.blocks:
            if key in block.made:
                return block.made[key]
        home = next(b for b in self.blocks if first.names <= b.known)
        name = home.made[key] = self.fresh(hint)
        text = f"tl.arange(0, {axis.extent})"
        if first != Aff(0):
            text = f"{self.aff(first)} + {text}"
        home.lines.append(f"{INDENT * home.depth}{name} = {text}")
        return name

    def hint(self, buffer: str, d: int) -> str:
        """What the source calls that dimension of a buffer."""
        b = self.program.buffer[buffer]
        root = b.root or buffer
        for s in self.program.statements:
            for a in (s.target, *s.reads):
                if a.buffer == root and len(a.index) == len(b.shape) and (v := a.index[d].single) is not None:
                    return v
        return f"{buffer}_index"

    def bounds(self, axis: Axis) -> frozenset[Aff]:
        """The upper bounds that cut the tile short."""
        low = axis.loop.lower[0]
        out = []
        for u in axis.loop.upper:
            gap = u - low
            if gap.is_const and isinstance(axis.extent, int) and gap.const >= axis.extent:
                continue
            out.append(u)
        return frozenset(out)

    def conditions(self, axis: Axis, bases: dict[Aff, str]) -> list[str]:
        """The tests, on vectors along the axis, that hold inside its bounds; `bases`: offsets in use, with their names."""
        out = []
        low = axis.loop.lower[0]
        for block in self.blocks:  # another operation's vector may make a shorter test: k < K, not n < K - 32 * ko
            for key, name in block.made.items():
                if key[0] == "index" and key[2] == axis.extent:
                    bases = {**bases, key[1] - low: name}
        for u in sorted(self.bounds(axis), key=str):
            base = min(bases or {Aff(0): "n"}, key=lambda b: (len((b + u).terms), str(b)))
            out.append(f"{self.vector(base, axis, bases.get(base, 'n'))} < {self.aff(base + u)}")
        for low in axis.loop.lower[1:]:
            base = next(iter(bases), Aff(0))
            out.append(f"{self.vector(base, axis, bases.get(base, 'n'))} >= {self.aff(base + low)}")
        return out


def _divisions(e: Aff) -> Iterator[Div]:
    for atom, _ in e.terms:
        if not isinstance(atom, str):
            yield atom
            yield from _divisions(atom.num)


def _mentioned(e: Aff, loops: list[Loop]) -> str:
    names = [f"'{x.var}'" for x in loops if x.var in e.names]
    return ", ".join(names) or f"index {e}"
