"""One launch as the text of one Triton kernel: tiles as tensors, bounds as masks, the grid in groups of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilec.codegen.triton_slices import tile_operation
from tilec.codegen.triton_state import Block, Dot, Extent, Output, State
from tilec.codegen.triton_text import call
from tilec.ir import tree
from tilec.ir.affine import Aff
from tilec.ir.program import BLOCK_KINDS, Barrier, Buffer, Leaf, Loop, Program
from tilec.lower.instructions import For, If, Instruction, Launch, Sync, Tile
from tilec.lower.nests import target_of


@dataclass
class KernelText:
    """A kernel and what its launch needs.

    Its parameters in order: buffers (pointer and strides each), sizes, scalars, block extents. grid: the number of blocks per
    loop, each the least of some bounds. used: support functions. dots, sums: what the hardware adds in its own order, in words.
    products, outputs: the same and the tiles stored, as figures.
    """

    name: str
    buffers: list[str]
    sizes: list[str]
    scalars: list[str]
    extents: dict[str, Aff]
    grid: list[tuple[Aff, ...]]
    lines: list[str]
    used: Counter[str]
    dots: list[str]
    sums: list[str]
    products: list[Dot]
    outputs: list[Output]
    fed: list[tuple[tuple[Extent, ...], str]]
    shapes: dict[str, Buffer]
    names: dict[str, str]


class Kernel(State):
    """The text of one launch."""

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
        super().__init__(program, launch, stages, names, group, bits, warps)
        self.grid_loops: list[Loop] = []

    # the whole --------------------------------------------------------------------------------------------------

    def text(self) -> KernelText:
        launch, program = self.launch, self.program
        if launch.threads:
            axes = ", ".join(axis for axis, _ in launch.threads)
            raise self.refused(f"loops are bound to {axes}, and Triton spreads a block over its warps itself; bind blocks only")
        if not launch.grid:
            raise self.refused(f"no loop is bound to blocks; {self.bindable()}")
        self.both = self.in_and_out(launch.body)
        writes = Counter(target_of(op.action).buffer for op in _tiles(launch.body))
        self.once = {b for b, n in writes.items() if n == 1}
        self.body(launch.body)
        name = self.names[launch.name]
        buffers = [b.name for b in program.buffers if b.name in self.touched]
        sizes = [n for n in program.sizes if n in self.sizes]
        scalars = [n for n, _ in program.scalars if n in self.scalars]
        arguments: list[str] = []
        for b in buffers:
            arguments += [self.names[b], *(f"{self.names[b]}_{d}" for d in range(len(program.buffer[b].shape)))]
        arguments += [self.names[n] for n in (*sizes, *scalars)]
        arguments += [f"{e}: tl.constexpr" for e in self.extents]
        head = call(f"def {name}(", arguments, "):", 0)
        grid = [self.counts(loop) for loop in self.grid_loops]
        lines = ["@triton.jit", *head, *self.blocks[0].lines]
        shapes = {b: program.buffer[b] for b in buffers}
        return KernelText(
            name=name,
            buffers=buffers,
            sizes=sizes,
            scalars=scalars,
            extents=self.extents,
            grid=grid,
            lines=lines,
            used=self.used,
            dots=self.dots,
            sums=self.sums,
            products=self.products,
            outputs=self.outputs,
            fed=self.fed,
            shapes=shapes,
            names=self.names,
        )

    def bindable(self) -> str:
        """What to bind: the first loop that moves what the launch writes to global memory; whether that is legal `bind` says."""
        mine = {id(op.action) for op in _tiles(self.launch.body)}
        for site in tree.sites(self.program.body):
            action = site.action
            if not isinstance(action, Leaf) or id(action) not in mine:
                continue
            if self.program.buffer[action.target.buffer].memory != "global":
                continue
            for loop in site.loops:
                if any(loop.var in e.names for e in action.target.index):
                    name = f"{action.statement}.{loop.var}"
                    return f'nearest, if its iterations are independent: .bind("{name}", "block.x"); or tilec.tune(…)'
        return "no loop moves what it writes; nearest: split_reduction(…) makes one"

    def in_and_out(self, body: Iterable[Instruction]) -> set[str]:
        reads: set[str] = set()
        writes: set[str] = set()
        for op in _tiles(body):
            for a, _, is_write in tree.addresses(op.action, self.program):
                if self.program.buffer[a.buffer].memory == "global":
                    (writes if is_write else reads).add(a.buffer)
                    if is_write and tree.updates(op.action, self.program):
                        reads.add(a.buffer)
        return reads & writes

    # control -----------------------------------------------------------------------------------------------------

    def body(self, body: Sequence[Instruction]) -> None:
        for op in body:
            match op:
                case For(loop=loop) if loop.kind in BLOCK_KINDS:
                    if len(self.blocks) > 1 or self.block.lines or len(body) != 1:
                        raise self.refused(
                            f"'{loop.var}' on {loop.kind} stands beside or under other work; block loops come first"
                        )
                    self.grid_loops.append(loop)
                    self.loops.append(loop)
                    if not (len(op.body) == 1 and isinstance(op.body[0], For) and op.body[0].loop.kind in BLOCK_KINDS):
                        self.place()
                    self.body(op.body)
                case For():
                    self.loop(op)
                case If():
                    scope = self.scope()
                    for c in op.conditions:
                        self.aff(c.expr)
                    test = [scope.constraint(c).replace("*", " * ") for c in op.conditions]
                    condition = test[0] if len(test) == 1 else " & ".join(f"({t})" for t in test)
                    self.inner(f"if {condition}:", op.body, ())
                case Sync():
                    if not isinstance(op.action, Barrier):
                        raise self.refused("copies are committed or awaited by hand; Triton does both: use pipeline(…)")
                case Tile():
                    tile_operation(self, op)

    def place(self) -> None:
        """The loops of the grid from the program's number."""
        loops = self.grid_loops
        for n, loop in enumerate(loops):
            mine = {x.var for x in loops[:n]}
            if any(e.names & mine for e in (*loop.lower, *loop.upper)) or len(loop.lower) > 1:
                raise self.refused(f"the bounds of the block loop '{loop.var}' use another block loop; bind the outer one only")
        name = [self.names[x.var] for x in loops]
        if len(loops) == 1:
            self.put(f"{name[0]} = tl.program_id(0){self.plus(loops[0])}")
        else:
            self.put("pid = tl.program_id(0)")
            count = {x.var: self.count(x) for x in loops}
            rest = "pid"
            *outer, row, column = loops
            for x in reversed(outer):
                inner = [count[y.var] for y in loops[loops.index(x) + 1 :]]
                self.put(f"{self.names[x.var]} = {rest} // ({' * '.join(inner)})" + _if_more(x, loops, count) + self.plus(x))
            if outer:
                self.put(f"pid = pid % ({count[row.var]} * {count[column.var]})")
            r, c = self.names[row.var], self.names[column.var]
            if self.group > 1:
                g = self.group
                self.put(f"# {g} rows of tiles side by side share what they read")
                self.put(f"first = pid // ({g} * {count[column.var]}) * {g}")
                self.put(f"rows = tl.minimum({count[row.var]} - first, {g})")
                self.put(f"{r} = first + pid % ({g} * {count[column.var]}) % rows{self.plus(row)}")
                self.put(f"{c} = pid % ({g} * {count[column.var]}) // rows{self.plus(column)}")
            else:
                self.put(f"{r} = pid // {count[column.var]}{self.plus(row)}")
                self.put(f"{c} = pid % {count[column.var]}{self.plus(column)}")
        self.block.known |= {x.var for x in loops}

    def plus(self, loop: Loop) -> str:
        return "" if loop.lower[0] == Aff(0) else f" + {self.aff(loop.lower[0])}"

    def counts(self, loop: Loop) -> tuple[Aff, ...]:
        return tuple(u - loop.lower[0] for u in loop.upper)

    def count(self, loop: Loop) -> str:
        text = self.bound("min", self.counts(loop))
        if text.isidentifier() or text.isdigit():
            return text
        name = self.fresh(f"{self.names[loop.var]}_count")
        self.put(f"{name} = {text}")
        return name

    def loop(self, op: For) -> None:
        loop = op.loop
        var = self.names[loop.var]
        low, high = self.bound("max", loop.lower), self.bound("min", loop.upper)
        if loop.kind == "unrolled" and low.isdigit() and high.isdigit():
            header = f"for {var} in tl.static_range({low}, {high}):"
        else:
            header = f"for {var} in tl.range({low}, {high}, num_stages={self.stages.get(loop.var, 1)}):"
        again = self.in_and_out(op.body)
        self.stored |= again
        self.inner(header, op.body, (loop,))
        self.stored |= again

    def inner(self, header: str, body: Sequence[Instruction], loops: tuple[Loop, ...]) -> None:
        block = Block(self.block.depth + 1, self.block.known | {x.var for x in loops})
        before = set(self.values)
        self.blocks.append(block)
        self.loops += loops
        self.body(body)
        self.blocks.pop()
        for _ in loops:
            self.loops.pop()
        self.put(header)  # behind what the body put before it
        self.block.lines += block.lines
        if not loops:
            for name in set(self.values) - before:
                raise self.refused(f"'{name}' is first written under a condition; a tile needs a value on every path")
        for name in set(self.values) - before:
            del self.values[name]  # owned inside


def _tiles(body: Iterable[Instruction]) -> Iterable[Tile]:
    for op in body:
        if isinstance(op, Tile):
            yield op
        elif isinstance(op, For | If):
            yield from _tiles(op.body)


def _if_more(x: Loop, loops: list[Loop], count: dict[str, str]) -> str:
    """Not the outermost: modulo its own count."""
    return "" if x is loops[0] else f" % {count[x.var]}"
