"""A program as readable C11, bit for bit what ir/interp computes; what runs where, in the order of the tree:

- `parallel` loops are OpenMP loops, `vector` loops run along the lanes of vector types (GCC and Clang), `unrolled` ones are
  written out; block and thread loops of a GPU run in order (a bind is an order; thread phases follow each other), copies at once.
- A vector loop of n iterations is cut into vectors of the register width and a rest in halves; iterations that a bound cuts off
  are inactive lanes. What is owned at or below it has a value per lane. A loop that cannot run along lanes runs in order.
- Register buffers are variables (codegen/c_storage.py). Below their owner full tiles have a branch with constant bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tilec.codegen import c_arithmetic, c_memory
from tilec.codegen.c_face import argument, c_names, entry, memory, pack_entry, parameters, uses_threads
from tilec.codegen.c_groups import GROUP, grouped
from tilec.codegen.c_helpers import BYTES, ELEMENT, Helpers
from tilec.codegen.c_instructions import Instructed
from tilec.codegen.c_place import Extent, Lanes, NotVector, Place, everywhere, extent
from tilec.codegen.c_scope import LANE, Range, bounds
from tilec.codegen.c_storage import Storage, element_bytes
from tilec.ir import printer, tree
from tilec.ir.affine import Aff, Constraint
from tilec.ir.arguments import signature
from tilec.ir.dtypes import DTYPES
from tilec.ir.expr import walk
from tilec.ir.printer import owned
from tilec.ir.program import (
    Address,
    Barrier,
    Buffer,
    Commit,
    Copy,
    Guard,
    Identity,
    Leaf,
    Loop,
    Merge,
    Node,
    Prefetch,
    Program,
    Wait,
)
from tilec.lower.cells import Cells
from tilec.lower.nests import target_of, written_buffers

MOST_COPIES = 64  # a loop is written out at most so many times
LARGEST = 2**31 - 1


def emit(program: Program, vector_bytes: int = 32) -> str:
    """The C text. vector_bytes: 16, 32 or 64, the vector registers it is shaped for; it runs on every machine."""
    cells, names, shared = Cells.of(tree.without_hints(program)), c_names(program), _team_loops(program.body)
    flushes = program.hardware_rounding
    first = _Emitter(program, cells, names, Helpers(vector_bytes, flushes), Storage(program, cells, None, shared))
    first.run()
    storage = Storage(program, cells, first.storage.decided(), shared)
    last = _Emitter(program, cells, names, Helpers(vector_bytes, flushes), storage)
    last.run()
    return last.text()


class _Emitter(Instructed):
    """The tree, node by node."""

    def run(self) -> None:
        sizes: dict[str, Range] = {n: (1, LARGEST) for n in self.program.sizes}
        declared = owned(self.program, (), None)
        packed = [b for b in declared if b.prepacked]
        if not packed:
            self.nodes(self.program.body, Place(ranges=sizes), declared)
            return
        place = Place(ranges=sizes)
        for b in declared:
            place = self.declare(b, place)
        for node in self.program.body:
            fills = [b for b in packed if b.name in written_buffers(node)]
            if not fills:
                self.loads = {}
                self._versions((node,), place)
                continue
            outer, self.lines = self.lines, []
            self._versions((node,), place)
            first = fills[0].name not in self.packs
            self.packs[fills[0].name] = [*self.packs.get(fills[0].name, []), *self.lines]
            self.lines = outer
            if not first:  # the rest of a peeled loop
                continue
            b, sizes_ = fills[0], "".join(f"{self.names[n]}, " for n in self.program.sizes)
            name, short = self.names[b.name], ELEMENT[b.dtype]
            call = f"{pack_entry(self.program, b.name)}({self.names[b.root or '']}, {sizes_}({short} *){name}, threads);"
            self.line(place, f"if ({name}_packed == NULL) {call}")

    def text(self) -> str:
        p, name, f = self.program, self.names, entry(self.program)
        listed = [argument(x, name[x.name]) for x in parameters(p)]
        sizes = [f"i64 {name[n]}" for n in p.sizes]
        offsets: list[str] = []
        for b, size, each in self.pieces:
            if b.align is not None and b.align > 64:
                offsets.append(f"    at = (at + {b.align - 1}) / {b.align} * {b.align};")
            offsets += [f"    const i64 {name[b.name]}_bytes = {size};", f"    const i64 {name[b.name]}_at = at;"]
            offsets.append(f"    at += {name[b.name]}_bytes{' * threads' if each else ''};")
        head = [*(f" * {line}" for line in printer.header(p)), " *"]
        head += [" * " + line if line else " *" for line in printer.loop_tree(p).split("\n")]
        out = ["/* C11 written by tilec.", *head, " */", self.helpers.text()]
        if uses_threads(p):
            one = "static inline int omp_get_thread_num(void) { return 0; }"
            out.append(f"#ifdef _OPENMP\n#include <omp.h>\n#else\n{one}\n#endif\n")
        unused = [f"    (void){name[n]};" for n in p.sizes] + ["    (void)threads;"]
        out.append("/* Bytes of scratch memory that a call needs. */")
        out.append(f"i64 {f}_scratch({', '.join([*sizes, 'int threads'])})\n{{")
        quiet = [f"    (void){name[b.name]}_at;" for b, _, _ in self.pieces]
        out += [*unused, "    i64 at = 0;", *offsets, *quiet, "    return at;", "}\n"]
        for b, size, _ in self.pieces:
            if b.name in self.packs:
                out += self._pack(b, size, sizes, unused)
        args = ",\n".join("    " + a for a in [*listed, "void *scratch", "int threads"])
        out.append(f"/* {signature(p)}\n * scratch: {f}_scratch(…) bytes, aligned to {memory(p)[0]}. threads: at least 1. */")
        out.append(f"void {f}(\n{args})\n{{")
        out += ["    i64 at = 0;", *offsets, "    (void)at;"] if offsets else ["    (void)scratch;"]
        out.append("    (void)threads;")
        if "stream_fence" in self.helpers.definitions:
            self.lines.append("    stream_fence();")
        return "\n".join([*out, *self.lines, "}"]) + "\n"

    def _pack(self, b: Buffer, size: str, sizes: list[str], unused: list[str]) -> list[str]:
        """The functions that make a packed copy ahead of the call."""
        g, name, short = pack_entry(self.program, b.name), self.names[b.name], ELEMENT[b.dtype]
        whole = b.root or ""  # its dtype is another one than the copy's where that is wider
        root = f"const {ELEMENT[self.program.buffer[whole].dtype]} *restrict {self.names[whole]}"
        given = ", ".join([root, *sizes, f"{short} *restrict {name}", "int threads"])
        fence = ["    stream_fence();"] if any("stream_" in line for line in self.packs[b.name]) else []
        return [
            f"/* {printer.declaration(b, printer.Scope.of(self.program))}: made ahead of calls */",
            f"i64 {g}_bytes({', '.join(sizes) or 'void'})\n{{",
            *unused[:-1],
            f"    return {size};\n}}\n",
            f"void {g}({given})\n{{",
            *unused,
            *self.packs[b.name],
            *fence,
            "}\n",
        ]

    def nodes(self, body: tuple[Node, ...], place: Place, declared: list[Buffer]) -> None:
        for b in declared:
            place = self.declare(b, place)
        tile = any(b.shape and self.storage.in_variables(b) for b in declared)
        self._versions(body, replace(place, tile=place.tile or tile))

    def _versions(self, body: tuple[Node, ...], place: Place) -> None:
        """Below the owner of variables: full tiles, those that only the first bound (of rows) cuts, the rest."""
        needed = self._fullness(body, place) if place.tile and not place.partial else []
        if not needed:
            self._each(body, place)
            return
        self.open(place, f"if ({self.scope(place).conditions(needed)}) {{  // a full tile")
        inside, branch = replace(place, depth=place.depth + 1, tile=False), self._branch()
        self._each(body, inside.version(branch, 0).knowing(needed))
        first, *others = needed
        if others:
            self.close(place, f"}} else if ({self.scope(place).conditions(others)}) {{")
            rows = replace(inside.version(branch, 1), partial=True)
            self._each(body, rows.knowing([*others, Constraint(-first.expr - 1)]))
        self.close(place, "} else {")
        rest = replace(inside.version(branch, 2), partial=True)
        self._each(body, rest.knowing([Constraint(-needed[-1].expr - 1)] if len(needed) <= 2 else []))
        self.close(place)

    def _branch(self) -> int:
        self.branches += 1
        return self.branches

    def _each(self, body: tuple[Node, ...], place: Place) -> None:
        for node in body:
            match node:
                case Loop():
                    self.loop(node, place)
                case Guard():
                    self.guard(node, place)
                case Barrier() | Commit() | Wait():
                    what = f"wait({node.n})" if isinstance(node, Wait) else type(node).__name__.lower()
                    self.line(place, f"// {what}: everything before is done already")
                case Prefetch():
                    self.prefetch(node, place)
                case Leaf():
                    self.leaf(node, place)
                case Copy() | Identity() | Merge():
                    self.move(node, place)

    def guard(self, node: Guard, place: Place) -> None:
        open_: list[Constraint] = []
        for c in node.conditions:
            truth = place.holds(c)
            if truth is False:
                return
            if truth is None:
                open_.append(Constraint(place.aff(c.expr), c.equal))
        lanes = [c for c in open_ if LANE in c.names]
        plain = [c for c in open_ if LANE not in c.names]
        inner = place
        if plain:
            self.open(place, f"if ({self.scope(place).conditions(plain)}) {{")
            inner = replace(place, depth=place.depth + 1).knowing(plain)
        if lanes:
            inner = self._narrowed(lanes, inner)
        self._versions(node.body, inner)
        if plain:
            self.close(place)

    def _narrowed(self, cs: list[Constraint], place: Place) -> Place:
        """Lanes below a bound stay active."""
        assert place.lanes is not None
        count = place.lanes.count or str(place.lanes.lanes)
        scope, key = self.scope(place), place.lanes.key
        for c in cs:
            if c.equal or c.expr.coefficient(LANE) != -1 or LANE in (c.expr + LANE).names:
                raise NotVector("a condition inside selects other lanes than the first ones")
            rest = c.expr + LANE  # lane <= rest
            count = f"{c_arithmetic.index(self.helpers, 'min_i')}({count}, {scope.aff(rest + 1)})"
            key = (*key, rest)
        name = self.new("active")
        self.line(place, f"const i64 {name} = {c_arithmetic.index(self.helpers, 'max_i')}(0, {count});")
        return replace(place, lanes=replace(place.lanes, count=name, key=key, narrowed=True))

    # loops -----------------------------------------------------------------------------------------------------------

    def loop(self, node: Loop, place: Place) -> None:
        if node.kind == "team":
            self.team(node, place)
            return
        if node.kind == "vector" and place.lanes is None:
            try:
                self._attempt(lambda: self.vector(node, place))
                return
            except NotVector as why:
                self.line(place, f"// {self.names[node.var]} runs in order: {why}")
        ext = extent(node, place)
        if ext is not None and ext.most == 0:
            return
        if ext is not None and self._written_out(node, ext):
            self.unrolled(node, ext, place)
        else:
            self.counted(node, place)

    def _attempt(self, write: Callable[[], None]) -> None:
        """Undo everything when it turns out not to be possible."""
        lines, pieces, loads = len(self.lines), len(self.pieces), dict(self.loads)
        around, owed = len(self.around), self.owed
        accesses = {n: len(a) for n, a in self.storage.accesses.items()}
        try:
            write()
        except NotVector:
            del self.lines[lines:]
            del self.pieces[pieces:]
            del self.around[around:]
            self.loads, self.owed = loads, owed
            for n, found in self.storage.accesses.items():
                del found[accesses.get(n, 0) :]
            raise

    def _written_out(self, node: Loop, ext: Extent) -> bool:
        if ext.most > MOST_COPIES or node.kind not in ("serial", "unrolled", "vector"):
            return False
        if node.kind == "unrolled":
            return True
        return any(node.var in e.names for a in self._registers(node) for e in a.index)

    def _registers(self, node: Loop) -> Iterator[Address]:
        """Accesses inside to buffers of several cells that are held in variables."""
        for site in tree.sites(node.body):
            if isinstance(site.action, Barrier | Commit | Wait | Prefetch):
                continue
            for a, _, _ in tree.addresses(site.action, self.program):
                b = self.program.buffer[a.buffer]
                if b.shape and self.storage.in_variables(b):
                    yield a

    def unrolled(self, node: Loop, ext: Extent, place: Place) -> None:
        mine = owned(self.program, place.path, node)
        for n in range(ext.most):
            value = ext.start + n
            inner = place.fixed(node, value)
            needed = [c for c in (Constraint(g - n - 1) for g in ext.gaps) if place.holds(c) is not True]
            if needed and LANE in frozenset().union(*(c.names for c in needed)):
                raise NotVector("a bound inside differs between lanes")
            if needed or mine:
                head = f"if ({self.scope(place).conditions(needed)}) {{" if needed else "{"
                self.open(place, f"{head}  // {self.names[node.var]} = {self.scope(place).aff(value)}")
                self.nodes(node.body, replace(inner, depth=place.depth + 1).knowing(needed), mine)
                self.close(place)
            else:
                self.nodes(node.body, inner, [])

    def counted(self, node: Loop, place: Place) -> None:
        """A C loop."""
        lower, upper = place.affs(node.lower), place.affs(node.upper)
        if any(LANE in e.names for e in (*lower, *upper)):
            raise NotVector(f"the bounds of {node.var} differ between lanes")
        clean = replace(node, lower=lower, upper=upper)
        inner = replace(place.running(node, lower, upper), unrolled=False)
        v, scope = self.names[node.var], self.scope(place)
        note = f"  // {node.kind}" if node.kind not in ("serial", "unrolled") else ""
        shared = node.kind == "parallel" and not place.parallel and place.lanes is None
        streams = any(getattr(site.action, "streaming", False) for site in tree.sites(node.body))
        apart = shared and streams and not place.team  # a fence for each thread after its share
        header = f"for (i64 {v} = {scope.lower(clean)}; {v} < {scope.upper(clean)}; ++{v}) {{"
        kept = self.opened(node, header, place)
        if shared:
            inner = replace(inner, parallel=True, team=False)
            if apart:
                self.open(place, "#pragma omp parallel num_threads(threads)")
                self.open(place, "{")
                place, inner = replace(place, depth=place.depth + 1), replace(inner, depth=inner.depth + 1)
            what = "for" if apart or place.team else "parallel for"
            end = " nowait" if apart else "" if place.team else " num_threads(threads)"
            packs = any(b.memory == "scratch" for b in owned(self.program, place.path, node))
            share = "dynamic" if packs or _uneven(node) else "static"  # long iterations go to whoever is free
            self.open(place, f"#pragma omp {what} schedule({share}){end}")
        self.open(place, header + note)
        self.nodes(node.body, inner, owned(self.program, place.path, node))
        self.close(place)
        self.closed(node, kept)
        if apart:
            self.line(place, f"{c_memory.fence(self.helpers)}();")
            self.close(replace(place, depth=place.depth - 1))
        elif shared and streams:
            self.line(place, f"{c_memory.fence(self.helpers)}();")

    def team(self, node: Loop, place: Place) -> None:
        """One parallel region: parallel loops inside share their iterations out and meet at their end."""
        for b in owned(self.program, place.path, node):
            place = self.declare(b, place)
        self.open(place, "#pragma omp parallel num_threads(threads)")
        self.open(place, f"{{  // {self.names[node.var]}: one team of threads")
        inner = replace(place.fixed(node, place.aff(node.lower[0])), depth=place.depth + 1, team=True)
        self._by_all(node.body, inner)
        self.close(place)

    def _by_all(self, body: tuple[Node, ...], place: Place) -> None:
        """What every thread of a team runs; nodes without a parallel loop run on one of them."""
        alone: list[Node] = []

        def flush() -> None:
            if alone:
                self.open(place, "#pragma omp single")
                self.open(place, "{")
                self._each(tuple(alone), replace(place, depth=place.depth + 1, team=False))
                self.close(place)
                alone.clear()

        for node in body:
            if not isinstance(node, Loop | Guard) or not _holds_parallel(node):
                alone.append(node)
                continue
            flush()
            if isinstance(node, Guard):
                self.open(place, f"if ({self.scope(place).conditions(node.conditions)}) {{")
                self._by_all(node.body, replace(place, depth=place.depth + 1).knowing(node.conditions))
                self.close(place)
            elif node.kind == "parallel":
                self.counted(node, place)
            else:
                lower, upper = place.affs(node.lower), place.affs(node.upper)
                clean, scope, v = replace(node, lower=lower, upper=upper), self.scope(place), self.names[node.var]
                self.open(place, f"for (i64 {v} = {scope.lower(clean)}; {v} < {scope.upper(clean)}; ++{v}) {{  // by all threads")
                inner = place.running(node, lower, upper)
                for b in owned(self.program, place.path, node):
                    inner = self.declare(b, inner)
                self._by_all(node.body, inner)
                self.close(place)
        flush()

    def vector(self, node: Loop, place: Place) -> None:
        """Along lanes; NotVector where that cannot be."""
        ext = extent(node, place)
        if ext is None:
            raise NotVector("no constant bounds its extent from one start")
        if ext.most == 0:
            return
        lanes = self._lanes(node)
        if place.partial and ext.most < ext.tile:  # cut by a number that is known here: the lanes of the full tile
            self._masked(node, ext, self._chunks(_rounded(ext.tile, lanes), lanes), place)
            return
        chunks = self._chunks(ext.most if ext.exact else _rounded(ext.most, lanes), lanes)
        if ext.exact:
            self._whole(node, ext, chunks, place)
            return
        if place.partial or not ext.needed:
            self._masked(node, ext, chunks, place)
            return
        self.open(place, f"if ({self.scope(place).conditions(ext.needed)}) {{  // all {ext.most} of {self.names[node.var]}")
        inner, branch = replace(place, depth=place.depth + 1), self._branch()
        self._whole(node, ext, chunks, inner.version(branch, 0).knowing(ext.needed))
        self.close(place, "} else {")
        self._masked(node, ext, chunks, inner.version(branch, 1))
        self.close(place)

    def _whole(self, node: Loop, ext: Extent, chunks: list[tuple[int, int]], place: Place) -> None:
        """Every lane active. Elements narrower than what is computed are gathered into whole registers before they are stored.

        These stores come last: a streaming one branches on its alignment, and a compiler interleaves the steps of several
        vectors only where no branch is between them.
        """
        action = node.body[0]
        written = action if len(node.body) == 1 and isinstance(action, Leaf | Copy) else None
        short = ELEMENT[self.program.buffer[target_of(written).buffer].dtype] if written is not None else "u8"
        streaming = written is not None and written.streaming
        rest, last = chunks, []
        while rest:
            lanes = rest[0][1]
            size = BYTES[short] * lanes
            gathers = written is not None and lanes > 1 and size >= 4 and (streaming or isinstance(written, Leaf))
            count = self.helpers.vector_bytes // size if gathers else 1
            group = [c for c in rest[:count] if c[1] == lanes]
            while len(group) & (len(group) - 1):
                group.pop()
            joins = gathers and (streaming or len(group) > 1)
            if joins:
                self.joined, self.packs_pieces = [], len(group) * BYTES[short] == 4 and len(group) > 1
            for first, n in group:
                self._chunk(node, ext, first, Lanes(node.var, n), place)
            self.packs_pieces = False
            if joins:
                last += self.store_joined(short, lanes, streaming)
            rest = rest[len(group) :]
        for line in last:
            self.line(place, line)

    def _lanes(self, node: Loop) -> int:
        """How many lanes a register holds of the widest value inside; elements, where a loop only moves them."""
        if grouped(self.program, node):
            return self.helpers.vector_bytes // GROUP
        widest, moves, registers = 4, 0, False
        for site in tree.sites(node.body):
            action = site.action
            if isinstance(action, Barrier | Commit | Wait | Prefetch):
                continue
            used = [self.program.buffer[a.buffer] for a, _, _ in tree.addresses(action, self.program)]
            registers |= any(b.memory == "register" or not b.shape for b in used)
            if isinstance(action, Copy):
                moves = max(moves, *(element_bytes(b) for b in used))
                continue
            moves = 8
            kinds = {DTYPES[b.dtype].arithmetic for b in used}
            if isinstance(action, Leaf):
                kinds |= {e.dtype for s in self._statements(action) for e in walk(self.program.statement[s].value)}
            widest = 8 if "f64" in kinds else widest
        return self.helpers.vector_bytes // (moves if 0 < moves < 4 and not registers else widest if moves else 4)

    def _statements(self, leaf: Leaf) -> Iterator[str]:
        yield leaf.statement
        stack = list(leaf.reads)
        while stack:
            r = stack.pop()
            if not isinstance(r, Address):
                yield r.statement
                stack += r.reads

    @staticmethod
    def _chunks(extent_: int, lanes: int) -> list[tuple[int, int]]:
        """(first, lanes): whole vectors, then halves."""
        out, first = [], 0
        while first < extent_:
            while lanes > extent_ - first:
                lanes //= 2
            out.append((first, lanes))
            first += lanes
        return out

    def _chunk(self, node: Loop, ext: Extent, first: int, lanes: Lanes, place: Place) -> None:
        mine = owned(self.program, place.path, node)
        start = ext.start + first
        inner = place.fixed(node, start + LANE, lanes) if lanes.lanes > 1 else place.fixed(node, start)
        if self.runs_dots(node):
            self.dots(node, inner)
            return
        if self.copied(node, inner):
            return
        if mine:
            self.open(place, f"{{  // {self.names[node.var]} = {self._span(start, lanes.lanes, place)}")
        self.nodes(node.body, replace(inner, depth=place.depth + (1 if mine else 0)), mine)
        if mine:
            self.close(place)

    def _span(self, start: Aff, lanes: int, place: Place) -> str:
        scope = self.scope(place)
        return scope.aff(start) if lanes == 1 else f"{scope.aff(start)} … {scope.aff(start + (lanes - 1))}"

    def _masked(self, node: Loop, ext: Extent, chunks: list[tuple[int, int]], place: Place) -> None:
        """Vectors of which the first lanes are active."""
        if ext.exact:  # as many as a number says
            for first, lanes in chunks:
                if first < ext.most:
                    active = min(lanes, ext.most - first)
                    self._chunk(node, ext, first, Lanes(node.var, lanes, str(active) if active < lanes else None), place)
            return
        scope = self.scope(place)
        total = self.new(f"n_{self.names[node.var]}")
        gaps = [scope.aff(g) for g in ext.gaps if not (g.is_const and g.const >= ext.most)]
        if any(LANE in g.names for g in ext.gaps):
            raise NotVector("a bound differs between lanes")
        text = str(ext.most)
        for g in gaps:
            text = f"{c_arithmetic.index(self.helpers, 'min_i')}({text}, {g})"
        self.line(place, f"const i64 {total} = {text};")
        for first, lanes in chunks:
            key = tuple(g - first for g in ext.gaps)
            self.open(
                place, f"if ({total} > {first}) {{  // {self.names[node.var]} = {self._span(ext.start + first, lanes, place)}"
            )
            inner = replace(place, depth=place.depth + 1)
            count = None
            if lanes > 1:
                count = f"{total}_{first}"
                rest = total if first == 0 else f"{total} - {first}"
                rest = rest if first + lanes >= ext.most else f"{c_arithmetic.index(self.helpers, 'min_i')}({lanes}, {rest})"
                self.line(inner, f"const i64 {count} = {rest};")
            start = len(self.lines)
            self._chunk(node, ext, first, Lanes(node.var, lanes, count, key), inner)
            if count is not None and not any(count in line for line in self.lines[start:]):
                del self.lines[start - 1]
            self.close(place)

    def _fullness(self, body: tuple[Node, ...], place: Place) -> list[Constraint]:
        """Conditions on what is known here under which the written-out and vector loops inside have constant bounds."""
        found: dict[Constraint, None] = {}

        def go(nodes: tuple[Node, ...], inner: Mapping[str, Range]) -> None:
            for node in nodes:
                if isinstance(node, Loop):  # guards tell their own versions apart
                    ext = extent(node, place)
                    ranges: Range = (float("-inf"), float("inf"))
                    if ext is not None:
                        low, high = bounds(ext.start, {**place.ranges, **inner})
                        ranges = (low, high + ext.most - 1)
                        if node.kind == "vector" or self._written_out(node, ext):
                            for c in ext.needed:
                                least = everywhere(c.expr, inner)
                                if least is not None and not least.is_const:
                                    found.setdefault(Constraint(least))
                    go(node.body, {**inner, node.var: ranges})

        go(body, {})
        return [c for c in found if place.holds(c) is None]


def _rounded(most: int, lanes: int) -> int:
    """The extent up to which vectors are laid out where a bound cuts some iterations off: the rest in one power of two."""
    rest = most % lanes
    return most if rest == 0 else most - rest + (1 << (rest - 1).bit_length())

    # storage ---------------------------------------------------------------------------------------------------------


def _uneven(node: Loop) -> bool:
    """Do iterations differ in their work by more than a tile that is cut: is a loop inside bounded by the variable alone?"""
    for _, loop in tree.loops(node.body):
        low = any(node.var in e.names for e in loop.lower)
        if low or (any(node.var in e.names for e in loop.upper) and not any(e.is_const for e in loop.upper)):
            return True
    return False


def _holds_parallel(node: Node) -> bool:
    if not isinstance(node, Loop | Guard):
        return False
    return (isinstance(node, Loop) and node.kind == "parallel") or any(_holds_parallel(n) for n in node.body)


def _team_loops(body: tuple[Node, ...], inside: bool = False) -> frozenset[str]:
    """Teams, and the loops inside them that all threads run."""
    found: set[str] = set()
    for node in body:
        if isinstance(node, Guard):
            found |= _team_loops(node.body, inside)
        elif isinstance(node, Loop) and (node.kind == "team" or (inside and node.kind != "parallel" and _holds_parallel(node))):
            found |= {node.var} | _team_loops(node.body, True)
        elif isinstance(node, Loop) and not inside:
            found |= _team_loops(node.body, False)
    return frozenset(found)
