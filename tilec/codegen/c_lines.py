"""The text as it grows: lines, helpers asked for, buffers made room for; and the C text of an address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod

from tilec.codegen import c_comments, c_memory
from tilec.codegen.c_helpers import ELEMENT, Helpers
from tilec.codegen.c_place import NotVector, Place
from tilec.codegen.c_scope import LANE, CScope, Plan, arranged, simplified
from tilec.codegen.c_storage import ON_STACK, SLACK, Access, Storage, constant_bytes, element_bytes
from tilec.ir import printer
from tilec.ir.affine import Aff
from tilec.ir.layouts import padded
from tilec.ir.program import Address, Buffer, Program
from tilec.lower.cells import Cells

INDENT = "    "
LONG = 90  # a line's text with its comment, without the indentation


@dataclass(frozen=True)
class Cell:
    """An address: a variable (`name`), or elements of an array at the flat addresses `at` (one per lane, or a row's first)."""

    buffer: Buffer
    name: str
    at: tuple[str, ...] = ()
    wide: bool = False  # the value has all lanes
    gathers: bool = False
    holds_lanes: bool = False  # the variable or element is itself a vector
    outside: bool = False  # a parameter: nothing may be touched behind its end

    @property
    def element(self) -> str:
        """The variable, or the (first) element."""
        return f"{self.name}[{self.at[0]}]" if self.at else self.name

    @property
    def pointer(self) -> str:
        """To the first of a row of elements."""
        return self.name if self.at[0] == "0" else f"{self.name} + {self.at[0]}"


@dataclass
class Lines:
    """What every layer of the emitter writes into."""

    program: Program
    cells: Cells
    names: Mapping[str, str]
    helpers: Helpers
    storage: Storage
    lines: list[str] = field(default_factory=list)
    pieces: list[tuple[Buffer, str, bool]] = field(default_factory=list)  # scratch: buffer, bytes, one per thread
    loads: dict[str, str] = field(default_factory=dict)  # of the straight line being written
    packs: dict[str, list[str]] = field(default_factory=dict)  # of a buffer packed ahead: the lines of its function
    joined: list[tuple[str, str, str]] | None = None  # pieces (pointer, value, type) of one wider store, while they are collected
    packs_pieces: bool = False  # they fill a register, so that 4-byte integers are packed into it in one go
    headed: bool = False  # a comment above says what is being written out
    fresh: int = 0
    branches: int = 0

    def line(self, place: Place, text: str) -> None:
        self.lines.append(INDENT * place.depth + text)

    def open(self, place: Place, text: str) -> None:
        self.loads = {}
        self.line(place, text)

    def close(self, place: Place, text: str = "}") -> None:
        self.loads = {}
        self.line(place, text)

    def new(self, stem: str) -> str:
        self.fresh += 1
        return f"{stem}_{self.fresh}"

    def branch(self) -> int:
        """A number for an `if` that tells versions apart."""
        self.branches += 1
        return self.branches

    def scope(self, place: Place) -> CScope:
        order = printer.Scope.of(self.program, place.path).order
        return CScope(self.program, order, self.names, place.ranges, self.helpers)

    # buffers ---------------------------------------------------------------------------------------------------------

    def declare(self, b: Buffer, place: Place) -> Place:
        """The line that makes room for a buffer, where there is one."""
        name, short = self.names[b.name], ELEMENT[b.dtype]
        note = f"// {printer.declaration(b, printer.Scope.of(self.program, place.path))}" if b.shape else ""
        wide = place.lanes is not None
        if wide:
            place = replace(place, widened=place.widened | {b.name})
        if self.storage.in_variables(b):
            start = " = {0}" if self.storage.keeps_lanes(b.name) else ""
            sized = [(end, place.width if wide else n) for end, n in self._variables(b)]
            found = {f"{name}{end}{start if n > 1 else ''}": self.helpers.type(short, n) for end, n in sized}
            declared = c_comments.rows(found)
            if len(declared) == 1:
                self._noted(place, declared[0], note)
                return place
            for line in [note, *declared]:
                self.line(place, line)
            return place
        extents = self._extents(b)
        size = constant_bytes(b, extents)
        if wide and (size is None or size * place.width > ON_STACK):
            raise NotVector(f"{b.name} would need an array of vectors of its own")
        if size is not None and size <= ON_STACK and b.owner not in self.storage.shared and not b.prepacked:
            cells = prod(e.const for e in extents)
            kind = self.helpers.type(short, place.width)
            cells += 0 if wide else -(-SLACK // element_bytes(b))
            self._noted(place, f"{kind} {name}[{max(cells, 1)}] __attribute__((aligned(64)));", note)
            return place
        scope = self.scope(Place(ranges=place.ranges))
        if all(b.name != other.name for other, _, _ in self.pieces):
            if size is not None:
                amount = str((size + 2 * SLACK - 1) // 64 * 64)
            else:
                amount = f"({scope.product((*extents, Aff(element_bytes(b))))} + {2 * SLACK - 1}) / 64 * 64"
            self.pieces.append((b, amount, place.parallel))
        at = f"{name}_at"
        if place.parallel:
            at += f" + omp_get_thread_num() * {name}_bytes"
        if b.prepacked:
            own = f"(const {short} *)((char *)scratch + {at})"
            self._noted(place, f"const {short} *const restrict {name} = {name}_packed != NULL ? {name}_packed : {own};", note)
            return place
        self._noted(place, f"{short} *const restrict {name} = ({short} *)((char *)scratch + {at});", note)
        return place

    def _noted(self, place: Place, text: str, note: str) -> None:
        """A line and its comment, in front of it where both are long."""
        if note and len(text) + len(note) > LONG:
            self.line(place, note)
            self.line(place, text)
        else:
            self.line(place, f"{text}  {note}" if note else text)

    def _extents(self, b: Buffer) -> tuple[Aff, ...]:
        """Physical extents with the layout's padding, thread coordinates first."""
        front: list[Aff] = []
        for c in self.cells.coordinates.get(b.name, ()):
            constants = [e.const for e in c.extents if e.is_const]
            if len(c.extents) == 1:
                front.append(c.extents[0])
            elif len(constants) == len(c.extents):
                front.append(Aff(max(constants)))
            else:
                total = Aff(0)
                for e in c.extents:  # all are positive: their sum bounds each
                    total = total + e
                front.append(total)
        return (*front, *padded(b.layout, b.shape))

    def _variables(self, b: Buffer) -> list[tuple[str, int]]:
        """(suffix, lanes) of every variable of a buffer; none before it is decided."""
        if not b.shape:
            return [("", 1)]
        v = (self.storage.variables or {}).get(b.name)
        if v is None:
            return []
        out: dict[str, int] = {}
        for index in product(*(range(e.const) for e in b.shape)):
            named, lane = v.find(index)
            out.setdefault("".join(f"_{i}" for i in named), 1 if lane is None or v.dim is None else v.chunks[named[v.dim]])
        return list(out.items())

    # addresses -------------------------------------------------------------------------------------------------------

    def cell(self, a: Address, place: Place) -> Cell:
        b, name = self.program.buffer[a.buffer], self.names[a.buffer]
        index = [place.aff(e) for e in self.cells.index(a, place.path)]
        along = [d for d, e in enumerate(index) if LANE in e.names]
        widened = b.name in place.widened
        if widened and along:
            raise NotVector(f"{b.name} belongs to each lane and is indexed across them")
        if self.storage.in_variables(b):
            if place.lanes is not None and place.lanes.narrowed and (along or widened):
                self.storage.narrowed.add(b.name)
            return self._variable(b, name, index, along, place, widened)
        scope = self.scope(place)
        outside = b.role == "param"
        plan = self.plan(b, index, place)
        if not along:
            return Cell(b, name, (self._flat(plan, scope),), wide=widened, holds_lanes=widened, outside=outside)
        along = [d for d, e in enumerate(plan.index) if LANE in e.names]
        last = len(plan.index) - 1
        plain = plan.index[last].coefficient(LANE) == 1 and LANE not in (plan.index[last] - LANE).names
        if along == [last] and plain and plan.xor is None:
            first = replace(plan, index=[*plan.index[:-1], plan.index[last] - LANE])
            return Cell(b, name, (self._flat(first, scope),), wide=True, outside=outside)
        assert place.lanes is not None
        at = []
        for lane in range(place.lanes.lanes):
            here = [simplified(e.subs({LANE: lane}), place.ranges) for e in index]
            at.append(self._flat(self.plan(b, here, place), scope))
        return Cell(b, name, tuple(at), wide=True, gathers=True, outside=outside)

    def plan(self, b: Buffer, index: list[Aff], place: Place) -> Plan:
        """Where the layout puts a cell; thread coordinates come first."""
        extents = [*self._extents(b)[: len(index) - len(b.shape)], *b.shape]
        return arranged(b, index, extents, place.ranges)

    def named(self, text: str, kind: str, stem: str, place: Place) -> str:
        """A constant that holds the text's value, the same one while nothing it reads is stored to."""
        known = self.loads.get(text)
        if known is None:
            name = self.new(stem)
            self.line(place, f"const {kind} {name} = {text};")
            known = self.loads[text] = name
        return known

    def _flat(self, plan: Plan, scope: CScope) -> str:
        if plan.xor is None:
            return scope.flat(plan.index, plan.extents)
        digit, row, columns = plan.xor
        others = [Aff(0) if d == digit else e for d, e in enumerate(plan.index)]
        stride = plan.extents[digit + 1 :]
        turned = f"(({scope.aff(plan.index[digit])}) ^ (({scope.aff(row)}) % {columns}))"
        step = scope.product(stride) if stride else "1"
        return f"{scope.flat(others, plan.extents)} + {turned}" + (f" * ({step})" if step != "1" else "")

    def _variable(self, b: Buffer, name: str, index: list[Aff], along: list[int], place: Place, widened: bool) -> Cell:
        if not b.shape:
            return Cell(b, name, wide=widened, holds_lanes=widened)
        lanes = place.lanes
        dim = along[0] if along else None
        first = [e - LANE if d == dim else e for d, e in enumerate(index)]
        if len(along) > 1 or not all(e.is_const for e in first):
            self.storage.note(b.name, Access(None, None, 1))
            return Cell(b, name, wide=bool(along) or widened, holds_lanes=bool(along) or widened)
        constant = tuple(e.const for e in first)
        key = (*(lanes.key if lanes and lanes.count else ()), lanes.count is None if lanes else True)
        at = next((n for n, x in enumerate(place.path, 1) if x.var == b.owner), 0)
        branch = tuple((of, side) for of, side, below in place.branch if below <= at)  # one run of the owner is on one side only
        self.storage.note(b.name, Access(constant, dim, lanes.lanes if lanes and dim is not None else 1, key, branch))
        v = (self.storage.variables or {}).get(b.name)
        if v is None:
            return Cell(b, name, wide=bool(along) or widened, holds_lanes=bool(along) or widened)
        named, lane = v.find(constant)
        text = name + "".join(f"_{i}" for i in named)
        if dim is not None or widened:
            return Cell(b, text, wide=True, holds_lanes=True)
        return Cell(b, text if lane is None else f"{text}[{lane}]")

    def raw(self, cell: Cell, place: Place) -> tuple[str, bool]:
        """The element, or the elements of all lanes."""
        short, n = ELEMENT[cell.buffer.dtype], place.width
        if not cell.at or not cell.wide or cell.holds_lanes:
            return cell.element, cell.wide
        assert place.lanes is not None
        count = place.lanes.count
        if cell.gathers:
            kind = self.helpers.type(short, n)
            items = [f"{cell.name}[{at}]" for at in cell.at]
            if count is not None:
                items = [f"{count} > {lane} ? {item} : 0" for lane, item in enumerate(items)]
            return f"({kind}){{{', '.join(items)}}}", True
        return c_memory.loaded(self.helpers, short, n, cell.pointer, count if cell.outside else None), True
