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

from tilec.codegen.c_actions import Actions
from tilec.codegen.c_face import Parameter, c_names, entry, parameters, uses_threads
from tilec.codegen.c_helpers import ELEMENT, HOLDS, Helpers
from tilec.codegen.c_place import Extent, Lanes, NotVector, Place, everywhere, extent
from tilec.codegen.c_scope import LANE, Range, bounds
from tilec.codegen.c_storage import Storage, element_bytes
from tilec.ir import printer, tree
from tilec.ir.affine import Aff, Constraint
from tilec.ir.arguments import signature
from tilec.ir.dtypes import DTYPES
from tilec.ir.expr import walk
from tilec.ir.printer import owned
from tilec.ir.program import Address, Barrier, Buffer, Commit, Copy, Guard, Identity, Leaf, Loop, Merge, Node, Program, Wait
from tilec.lower.cells import Cells

MOST_COPIES = 64  # a loop is written out at most so many times
LARGEST = 2**31 - 1


def emit(program: Program, vector_bytes: int = 32) -> str:
    """The C text. vector_bytes: 16, 32 or 64, the vector registers it is shaped for; it runs on every machine."""
    cells, names = Cells.of(program), c_names(program)
    first = _Emitter(program, cells, names, Helpers(vector_bytes), Storage(program, cells))
    first.run()
    last = _Emitter(program, cells, names, Helpers(vector_bytes), Storage(program, cells, first.storage.decided()))
    last.run()
    return last.text()


class _Emitter(Actions):
    """The tree, node by node."""

    def run(self) -> None:
        sizes: dict[str, Range] = {n: (1, LARGEST) for n in self.program.sizes}
        self.nodes(self.program.body, Place(ranges=sizes), owned(self.program, (), None))

    def text(self) -> str:
        p, name = self.program, self.names
        f = entry(p)
        listed = [
            f"{'' if x.written else 'const '}{self._c(x)} *restrict {name[x.name]}" for x in parameters(p) if x.kind == "array"
        ]
        listed += [f"{HOLDS[x.dtype]} {name[x.name]}" for x in parameters(p) if x.kind == "scalar"]
        sizes = [f"i64 {name[n]}" for n in p.sizes]
        scratch, offsets = [], []
        for b, size, shared in self.pieces:
            each = f"{size} * threads" if shared else size
            offsets += [f"    const i64 {name[b.name]}_bytes = {size};", f"    const i64 {name[b.name]}_at = at;"]
            offsets += [f"    at += {name[b.name]}_bytes{' * threads' if shared else ''};"]
            scratch.append(each)
        threads = "int threads"
        head = [*(f" * {line}" for line in printer.header(p)), " *"]
        head += [" * " + line if line else " *" for line in printer.loop_tree(p).split("\n")]
        out = ["/* C11 written by tilec.", *head, " */", self.helpers.text()]
        if self._parallel:
            out.append(
                "#ifdef _OPENMP\n#include <omp.h>\n#else\nstatic inline int omp_get_thread_num(void) { return 0; }\n#endif\n"
            )
        total = " + ".join(scratch) or "0"
        unused = "".join(f"    (void){name[n]};\n" for n in p.sizes) + "    (void)threads;\n"
        out.append("/* Bytes of scratch memory that a call needs. */")
        out.append(f"i64 {f}_scratch({', '.join([*sizes, threads])})\n{{\n{unused}    return {total};\n}}\n")
        args = ",\n".join("    " + a for a in [*listed, *sizes, "void *scratch", threads])
        out.append(f"/* {signature(p)}\n * scratch: {f}_scratch(…) bytes, aligned to 64. threads: at least 1. */")
        out.append(f"void {f}(\n{args})\n{{")
        if offsets:
            out += ["    i64 at = 0;", *offsets, "    (void)at;"]
        else:
            out.append("    (void)scratch;")
        out.append("    (void)threads;")
        return "\n".join([*out, *self.lines, "}"]) + "\n"

    def _c(self, x: Parameter) -> str:
        return ELEMENT[x.dtype]

    @property
    def _parallel(self) -> bool:
        return uses_threads(self.program)

    # lines -----------------------------------------------------------------------------------------------------------

    def nodes(self, body: tuple[Node, ...], place: Place, declared: list[Buffer]) -> None:
        for b in declared:
            place = self.declare(b, place)
        if not place.partial and any(b.shape and self.storage.in_variables(b) for b in declared):
            needed = self._fullness(body, place)
            if needed:
                self.open(place, f"if ({self.scope(place).conditions(needed)}) {{  // a full tile")
                inside = replace(place, depth=place.depth + 1, branch=self._branch())
                self._each(body, inside.knowing(needed))
                self.close(place, "} else {")
                self._each(body, replace(inside, partial=True, branch=self._branch()))
                self.close(place)
                return
        self._each(body, place)

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
        self._each(node.body, inner)
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
            scope.used.add("min_i")
            count = f"{self.helpers.index('min_i')}({count}, {scope.aff(rest + 1)})"
            key = (*key, rest)
        name = self.new("active")
        self.line(place, f"const i64 {name} = {self.helpers.index('max_i')}(0, {count});")
        return replace(place, lanes=replace(place.lanes, count=name, key=key, narrowed=True))

    # loops -----------------------------------------------------------------------------------------------------------

    def loop(self, node: Loop, place: Place) -> None:
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
        accesses = {n: len(a) for n, a in self.storage.accesses.items()}
        try:
            write()
        except NotVector:
            del self.lines[lines:]
            del self.pieces[pieces:]
            self.loads = loads
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
            if isinstance(site.action, Barrier | Commit | Wait):
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
        if node.kind == "parallel" and not place.parallel and place.lanes is None:
            self.open(place, "#pragma omp parallel for schedule(static) num_threads(threads)")
            inner = replace(inner, parallel=True)
        self.open(place, f"for (i64 {v} = {scope.lower(clean)}; {v} < {scope.upper(clean)}; ++{v}) {{{note}")
        self.nodes(node.body, inner, owned(self.program, place.path, node))
        self.close(place)

    def vector(self, node: Loop, place: Place) -> None:
        """Along lanes; NotVector where that cannot be."""
        ext = extent(node, place)
        if ext is None:
            raise NotVector("no constant bounds its extent from one start")
        if ext.most == 0:
            return
        chunks = self._chunks(ext.most, self._lanes(node))
        if ext.exact:
            for first, lanes in chunks:
                self._chunk(node, ext, first, Lanes(node.var, lanes), place)
            return
        if place.partial:
            self._masked(node, ext, chunks, place)
            return
        self.open(place, f"if ({self.scope(place).conditions(ext.needed)}) {{  // all {ext.most} of {self.names[node.var]}")
        inner = replace(place, depth=place.depth + 1)
        full = replace(inner, branch=self._branch()).knowing(ext.needed)
        for first, lanes in chunks:
            self._chunk(node, ext, first, Lanes(node.var, lanes), full)
        self.close(place, "} else {")
        self._masked(node, ext, chunks, replace(inner, branch=self._branch()))
        self.close(place)

    def _lanes(self, node: Loop) -> int:
        """How many lanes a register holds of the widest value inside; elements, where a loop only moves them."""
        widest, moves, registers = 4, 0, False
        for site in tree.sites(node.body):
            action = site.action
            if isinstance(action, Barrier | Commit | Wait):
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
        self.open(place, f"{{  // {self.names[node.var]} = {self._span(start, lanes.lanes, place)}") if mine else None
        self.nodes(node.body, replace(inner, depth=place.depth + (1 if mine else 0)), mine)
        if mine:
            self.close(place)

    def _span(self, start: Aff, lanes: int, place: Place) -> str:
        scope = self.scope(place)
        return scope.aff(start) if lanes == 1 else f"{scope.aff(start)} … {scope.aff(start + (lanes - 1))}"

    def _masked(self, node: Loop, ext: Extent, chunks: list[tuple[int, int]], place: Place) -> None:
        """Vectors of which the first lanes are active."""
        scope = self.scope(place)
        total = self.new(f"n_{self.names[node.var]}")
        gaps = [scope.aff(g) for g in ext.gaps if not (g.is_const and g.const >= ext.most)]
        if any(LANE in g.names for g in ext.gaps):
            raise NotVector("a bound differs between lanes")
        text = str(ext.most)
        for g in gaps:
            text = f"{self.helpers.index('min_i')}({text}, {g})"
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
                rest = rest if first + lanes >= ext.most else f"{self.helpers.index('min_i')}({lanes}, {rest})"
                self.line(inner, f"const i64 {count} = {rest};")
            self._chunk(node, ext, first, Lanes(node.var, lanes, count, key), inner)
            self.close(place)

    def _fullness(self, body: tuple[Node, ...], place: Place) -> list[Constraint]:
        """Conditions on what is known here under which the written-out and vector loops inside have constant bounds."""
        found: dict[Constraint, None] = {}

        def go(nodes: tuple[Node, ...], inner: Mapping[str, Range]) -> None:
            for node in nodes:
                if isinstance(node, Guard):
                    go(node.body, inner)
                elif isinstance(node, Loop):
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

    # storage ---------------------------------------------------------------------------------------------------------
