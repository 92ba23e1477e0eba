"""What the recipes for CPUs know of the machine, and the small questions that they ask of a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilec.ir.dtypes import DTYPES
from tilec.ir.expr import Call, walk
from tilec.ir.program import Address, Copy, Leaf, Loop, Program, Read
from tilec.ir.tree import Position, loops, path_to, sites
from tilec.schedule.names import display
from tilec.schedule.nest import const_extent, context
from tilec.schedule.schedule import Schedule
from tilec.targets import Target

WIDEST_LANES = 64  # lanes of one vector loop: more are several loops


@dataclass(frozen=True)
class Core:
    """cores: usable ones. vector: bytes of a vector register, of which there are `registers`. l1, l2: bytes of one core; l3:
    bytes that all share. l1_ways: lines of one set of l1. features: instruction sets."""

    cores: int
    vector: int
    registers: int
    l1: int
    l2: int
    l3: int
    l1_ways: int = 8
    features: tuple[str, ...] = ()

    @staticmethod
    def of(target: Target, threads: int | None = None) -> Core:
        """From a machine's figures; what a file does not say is that of a small core of the last ten years. threads: no more
        cores are used."""

        def figure(name: str, default: int) -> int:
            found = target.figure.get(name)
            return found.integer if found is not None else default

        l2 = figure("l2", 256 << 10)
        return Core(
            cores=max(1, min(target.cores, threads or target.cores)),
            vector=figure("vector_bytes", 32),
            registers=figure("vector_registers", 16),
            l1=figure("l1", 32 << 10),
            l2=l2,
            l3=figure("l3", 4 * l2),
            l1_ways=figure("l1_ways", 8),
            features=target.features,
        )

    def lanes(self, dtype: str) -> int:
        """Elements of the arithmetic type of `dtype` in one register."""
        return self.vector // DTYPES[DTYPES[dtype].arithmetic].bytes

    def micro_tile(self, dtype: str, rows: int | None = None) -> tuple[int, int]:
        """(rows, columns) of the accumulators that fit the registers beside one row of the right operand and one broadcast: as
        many as possible, in as few vectors of columns as that needs.

        The rows of the left operand may all lie in one set of the first-level cache: two of its ways stay for what passes by.
        """
        shapes: list[tuple[int, int, int]] = []
        for vectors in (2, 3, 4, 6):
            if vectors > 2 and vectors * self.lanes(dtype) > WIDEST_LANES:
                break
            most = min(self.l1_ways - 2, (self.registers - vectors - 1) // vectors, rows or self.registers)
            shapes.append((most * vectors, -vectors, most))
        _, vectors, most = max(shapes)
        return max(1, most), -vectors * self.lanes(dtype)

    def busy(self, extent: int, unit: int) -> float:
        """The share of the cores' time that equal numbers of pieces of `unit` leave them at work."""
        return extent / (self.cores * -(-extent // (unit * self.cores)) * unit)

    def chunks(self, extent: int, unit: int, most: int) -> int:
        """The length, a multiple of `unit` and at most about `most`, of pieces of `extent` that keep all cores equally busy."""
        units = -(-extent // unit)
        limit = max(1, most // unit)
        count = -(-units // limit)
        if self.cores > 1 and units >= self.cores:
            count = -(-count // self.cores) * self.cores
        return -(-units // count) * unit


def streamed(core: Core, program: Program, name: str) -> bool:
    """Is this result better stored past the caches: is it, or what the call moves in all, too large for its lines to be there
    when they are read? A line that is written in the caches is read from memory before, for which one core that computes
    elementary functions alone has time."""
    written = bytes_of(program, name)
    moved = sum(bytes_of(program, b.name) for b in program.buffers if b.role == "param")
    depth = max(len(s.loops) for s in program.statements)
    computed = [e for s in program.statements if len(s.loops) == depth for e in walk(s.value)]
    alone = core.cores == 1 and any(isinstance(e, Call) for e in computed)
    large = core.l3 * (2 if alone else 1)
    return written > large // 2 or (written > core.l2 and moved >= large)


def innermost(program: Program) -> list[tuple[Position, Loop]]:
    """The loops that hold actions only."""
    return [(p, x) for p, x in loops(program.body) if all(not hasattr(n, "body") for n in x.body)]


def vectorised(s: Schedule, wanted: frozenset[str] | None = None, most: int = WIDEST_LANES) -> Schedule:
    """Innermost loops along which everything inside steps through memory become vectors: those that every write inside has in its
    last index, of a constant extent. `wanted` limits them to these variables."""
    names: list[str] = []
    for position, loop in innermost(s.program):
        if loop.kind != "serial" or (wanted is not None and loop.var not in wanted):
            continue
        if any(isinstance(x, Loop) and x.kind == "vector" for x in path_to(s.program.body, position)):
            continue  # a part of what each lane does
        along = [_steps(a, loop.var) for a in loop.body]
        if not any(along) or not all(
            steps or writes_own(s.program, a, loop.var) for steps, a in zip(along, loop.body, strict=True)
        ):
            continue
        extent = const_extent(s.program, loop, context(s.program, position))
        if extent is not None and 1 < extent <= most:
            names.append(display(s.program, position))
    return s.vectorize(tuple(names)) if names else s


def writes_own(program: Program, action: object, var: str) -> bool:
    """Does it write a number that each iteration has for itself?"""
    if not isinstance(action, Leaf):
        return False
    b = program.buffer[action.target.buffer]
    return b.memory == "register" and not b.shape and b.owner == var


def _steps(action: object, var: str) -> bool:
    target = action.target if isinstance(action, Leaf) else getattr(action, "dst", None)
    if target is None or not target.index:
        return False
    e = target.index[-1]
    if e.names == frozenset({var}) and isinstance(action, Copy):
        return dict(action.src.index[-1].terms).get(var) == 1
    return dict(e.terms).get(var) == 1 and not any(var in x.names for x in target.index[:-1])


def bytes_of(program: Program, name: str) -> int:
    """The bytes of a buffer whose extents are numbers; 0 where they are not."""
    b = program.buffer[name]
    total = DTYPES[b.dtype].bytes
    for e in b.shape:
        if not e.is_const:
            return 0
        total *= e.const
    return total


def results(program: Program) -> list[str]:
    """Parameters that the program writes and nothing reads: candidates for streaming stores."""
    written, read = set[str](), set[str]()
    for site in sites(program.body):
        action = site.action
        if isinstance(action, Leaf):
            written.add(action.target.buffer)
            if program.statement[action.statement].op != "=":
                read.add(action.target.buffer)
            read |= _read(action.reads)
        elif isinstance(action, Copy):
            written.add(action.dst.buffer)
            read.add(action.src.buffer)
    return [b.name for b in program.buffers if b.role == "param" and b.name in written - read]


def _read(reads: Iterable[Read]) -> set[str]:
    out = set[str]()
    for r in reads:
        if isinstance(r, Address):
            out.add(r.buffer)
        else:
            out |= _read(r.reads)
    return out
