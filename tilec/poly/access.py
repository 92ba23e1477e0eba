"""Programs as isl relations: who accesses which cell, when.

Every access of every action gets a tuple of its own, tagged by the site's number n in the order of the text:

    L{n}r{m}[loop variables]   the m-th read (reads of inlined statements are flattened, in order)
    L{n}o[loop variables]      the old value that an update reads
    L{n}w[loop variables]      the write
    I_{buffer}[index]          the virtual writer of an argument's initial contents, before everything
    E_{buffer}[index]          the virtual reader of a written argument, after everything

and in the vocabulary of the original program S{k}r{m}[instance] and S{k}[instance]. A cell is C_{buffer}[coordinates, index].
Time is [position, variable, position, variable, …, position, phase]: the tree's order, reads (0) before the write (1).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tilec.ir.affine import Aff, Constraint
from tilec.ir.arguments import written
from tilec.ir.program import (
    Address,
    Barrier,
    Buffer,
    Commit,
    Copy,
    Identity,
    Inline,
    Leaf,
    Loop,
    Merge,
    Prefetch,
    Program,
    Read,
    Wait,
)
from tilec.ir.tree import Site, sites, updates
from tilec.poly.cells import cell
from tilec.poly.isl import Map, Set, Solver, T, UnionMap, UnionSet, mangle, without_floor
from tilec.poly.matrices import basic_map, basic_set
from tilec.poly.precedence import after

ZERO = Aff(0)


@dataclass(frozen=True)
class FlatRead:
    """One load of a leaf, inlined ones included: the n-th read of `statement` at `instance`, from `source`."""

    statement: str
    instance: tuple[Aff, ...]
    n: int
    source: Read


def flat_reads(leaf: Leaf) -> list[FlatRead]:
    """Every load, an Inline itself before the loads inside it."""
    out: list[FlatRead] = []

    def go(statement: str, instance: tuple[Aff, ...], reads: tuple[Read, ...]) -> None:
        for n, read in enumerate(reads):
            out.append(FlatRead(statement, instance, n, read))
            if isinstance(read, Inline):
                go(read.statement, read.instance, read.reads)

    go(leaf.statement, leaf.instance, leaf.reads)
    return out


@dataclass(frozen=True)
class Tagged:
    """One access: its tuple name, site number, address and role (read, old, write)."""

    tag: str
    site: int
    address: Address
    role: str


class Relations:
    """A program's accesses as isl objects, in one solver."""

    def __init__(self, solver: Solver, program: Program):
        self.solver, self.program = solver, program
        self.sites: list[Site] = list(sites(program.body))
        self.depth = max((len(s.position) for s in self.sites), default=1)
        self.end = len(program.body) + 1
        self._logical: dict[str, tuple[str, list[Aff]]] = {}

    # -- pieces ----------------------------------------

    def variables(self, n: int) -> tuple[str, ...]:
        return self._contents[n][0]

    @cached_property
    def _contents(self) -> list[tuple[tuple[str, ...], tuple[Constraint, ...]]]:
        return [(tuple(loop.var for loop in s.loops), s.conditions) for s in self.sites]

    @cached_property
    def content(self) -> list[int]:
        """For each site a number for its executed iterations: sites with equal loops and guards have equal numbers."""
        return [self.solver.number(c) for c in self._contents]

    def time(self, n: int, phase: int) -> list[Aff]:
        return [*self._rows[n], Aff(phase)]

    @cached_property
    def _rows(self) -> list[list[Aff]]:
        """Of each site its time without the phase."""
        out: list[list[Aff]] = []
        for site in self.sites:
            row: list[Aff] = []
            for position, node in zip(site.position, [*site.path, None], strict=True):
                row.append(Aff(position))
                if node is not None:
                    row.append(Aff.of(node.var) if isinstance(node, Loop) else ZERO)
            out.append(row + [ZERO] * (2 * self.depth - 1 - len(row)))
        return out

    @cached_property
    def telling(self) -> list[int]:
        """The time dimensions that tell two actions apart: all but those that are the same constant everywhere."""
        rows = self._rows
        return [d for d in range(2 * self.depth - 1) if d == 0 or len({row[d] for row in rows}) > 1 or not rows[0][d].is_const]

    @cached_property
    def _brief_rows(self) -> list[list[Aff]]:
        return [[row[d] for d in self.telling] for row in self._rows]

    def brief_time(self, n: int, phase: int) -> list[Aff]:
        """`time` without the dimensions that tell nothing."""
        return [*self._brief_rows[n], Aff(phase)]

    @cached_property
    def domains(self) -> dict[int, Set]:
        """The executed iterations of each site, as L{n}[variables], made when they are asked for."""
        return _Domains(self)

    @cached_property
    def text(self) -> int:
        """A number for the whole program: equal bodies over equal buffers have equal numbers."""
        return self.solver.number((self.program.body, self.program.buffers))

    def set(self, name: str, variables: Sequence[str], conditions: Iterable[Constraint]) -> Set:
        """{ name[variables] : conditions }, within the assumptions on sizes."""
        solver, names, facts = self.solver, tuple(variables), tuple(conditions)

        def make() -> Set:
            found = basic_set(solver.ctx, solver.sizes, names, [without_floor(c) for c in facts])
            return Set.from_basic_set(found).intersect_params(solver.context)

        return solver.once(("set", names, facts), make).set_tuple_name(name)

    def free_map(self, tag: str, variables: Sequence[str], target: str, index: Sequence[Aff]) -> Map:
        """{ tag[variables] -> target[index] } for any values of the variables."""
        solver, names, where = self.solver, tuple(variables), tuple(index)

        def make() -> Map:
            return Map.from_basic_map(basic_map(solver.ctx, solver.sizes, names, where))

        return _named(solver.once(("map", names, where), make), tag, target)

    def map(self, n: int, tag: str, target: str, index: Iterable[Aff]) -> Map:
        """{ tag[variables] -> target[index] } over the executed iterations of site n."""
        where = tuple(index)

        def make() -> Map:
            return self.free_map("", self.variables(n), "", where).intersect_domain(self.domains[n].reset_tuple_id())

        return _named(self.solver.once(("executed", self.content[n], where), make), tag, target)

    def union(self, maps: Iterable[Map | UnionMap]) -> UnionMap:
        out = self.solver.empty()
        for m in maps:
            out = out.union(m if isinstance(m, UnionMap) else m.to_union_map())
        return out

    @cached_property
    def tagged(self) -> list[Tagged]:
        """Every access to storage."""
        out: list[Tagged] = []
        for n, site in enumerate(self.sites):
            match site.action:
                case Leaf() as leaf:
                    for m, flat in enumerate(flat_reads(leaf)):
                        if isinstance(flat.source, Address):
                            out.append(Tagged(f"L{n}r{m}", n, flat.source, "read"))
                    if updates(leaf, self.program):
                        out.append(Tagged(f"L{n}o", n, leaf.target, "old"))
                    out.append(Tagged(f"L{n}w", n, leaf.target, "write"))
                case Copy(dst=dst, src=src) | Merge(dst=dst, src=src):
                    out.append(Tagged(f"L{n}r0", n, src, "read"))
                    if isinstance(site.action, Merge):
                        out.append(Tagged(f"L{n}o", n, dst, "old"))
                    out.append(Tagged(f"L{n}w", n, dst, "write"))
                case Identity(dst=dst):
                    out.append(Tagged(f"L{n}w", n, dst, "write"))
                case Barrier() | Commit() | Wait() | Prefetch():
                    pass
        return out

    def logical(self, a: Tagged) -> tuple[str, list[Aff]]:
        """The element that an access means, wherever it is kept: (root buffer, logical index)."""
        if a.tag not in self._logical:
            self._logical[a.tag] = self._element(a)
        return self._logical[a.tag]

    def _element(self, a: Tagged) -> tuple[str, list[Aff]]:
        program, action = self.program, self.sites[a.site].action
        buffer = program.buffer[a.address.buffer]
        root = buffer.root if buffer.role == "cache" and buffer.root else buffer.name
        match action:
            case Leaf():
                if a.role == "read":
                    flat = flat_reads(action)[int(a.tag.rpartition("r")[2])]
                    s, at = program.statement[flat.statement], flat.instance
                    access = s.reads[flat.n]
                else:
                    s, at = program.statement[action.statement], action.instance
                    access = s.target
                if buffer.role == "partial":
                    index = list(a.address.index)  # a partial sum has no cell in the original: its own are its elements
                else:
                    env = dict(zip(s.loops, at, strict=True))
                    index = [e.subs(env) for e in access.index]
            case Copy(cell=c) | Identity(cell=c):
                index = list(a.address.index) if buffer.role == "partial" else list(c)
            case Merge(cell=c, src_cell=source):
                index = list(source if a.role == "read" else c)
                index = list(a.address.index) if buffer.role == "partial" else index
            case _:
                raise AssertionError(action)
        return f"X_{mangle(root)}", index

    def elements(self, accesses: Iterable[Tagged]) -> UnionMap:
        """{ access -> the element it means }."""
        return self.union(self.map(a.site, a.tag, *self.logical(a)) for a in accesses)

    def outside(self, a: Tagged) -> Set | None:
        """The iterations whose access leaves its buffer; None where there are none."""
        shape = self.program.buffer[a.address.buffer].shape
        if all(e.is_const and s.is_const and 0 <= e.const < s.const for e, s in zip(a.address.index, shape, strict=True)):
            return None

        def make() -> Set | None:
            inside = [c for e, s in zip(a.address.index, shape, strict=True) for c in (Constraint.ge(e, 0), Constraint.lt(e, s))]
            found = self.domains[a.site].subtract(self.set(f"L{a.site}", self.variables(a.site), inside))
            return None if found.is_empty() else found

        found = self.solver.once(("outside", self.content[a.site], a.address.index, shape), make)
        return None if found is None else found.set_tuple_name(a.tag)

    def cells(self, accesses: Iterable[Tagged], *, folded: bool = False) -> UnionMap:
        """{ access -> cell }."""
        return self.union(
            self.map(a.site, a.tag, *cell(self.program, self.sites[a.site], a.address, folded=folded)) for a in accesses
        )

    @cached_property
    def clock(self) -> UnionMap:
        """{ access -> time }, virtual writers and readers included."""
        maps: list[Map | UnionMap] = [
            self.times[a.tag].intersect_domain(self.domains[a.site].set_tuple_name(a.tag)) for a in self.tagged
        ]
        for n, leaf in self.leaves():  # inlined loads touch no storage but have a time
            for m, flat in enumerate(flat_reads(leaf)):
                if isinstance(flat.source, Inline):
                    maps.append(self.map(n, f"L{n}r{m}", "", self.brief_time(n, 0)))
        maps += [m for tag, m in self.times.items() if tag[0] in "IE"]
        return self.union(maps)

    @cached_property
    def moments(self) -> dict[str, tuple[Sequence[str], list[Aff]]]:
        """Of each access to storage by tag: its variables, and its time in these."""
        out: dict[str, tuple[Sequence[str], list[Aff]]] = {
            a.tag: (self.variables(a.site), self.brief_time(a.site, 1 if a.role == "write" else 0)) for a in self.tagged
        }
        for b in self.program.buffers:
            if b.role == "param":
                for name, at in (("I", -1), ("E", self.end)):
                    out[f"{name}_{mangle(b.name)}"] = coordinates(b), [Aff(at), *[ZERO] * len(self.telling)]
        return out

    @cached_property
    def times(self) -> dict[str, Map]:
        """{ access -> time } by tag, for any values of the variables, executed or not."""
        return {tag: self.free_map(tag, names, "", time) for tag, (names, time) in self.moments.items()}

    def later(self, a: str, b: str, alike: Collection[str] = ()) -> Map:
        """{ a -> b : a's time is after b's } of two tags, for any values of their variables; those in `alike` are equal."""
        (names, time), (others, other) = self.moments[a], self.moments[b]
        return _named(after(self.solver, names, time, others, other, alike), a, b)

    def whole(self, tag: str, name: str) -> UnionMap:
        """{ tag_name[index] -> cell } over a parameter's whole shape."""
        b = self.program.buffer[name]
        dims = coordinates(b)
        inside = [c for d, s in zip(dims, b.shape, strict=True) for c in (Constraint.ge(d, 0), Constraint.lt(d, s))]
        domain = self.set(f"{tag}_{mangle(name)}", dims, inside)
        found = self.free_map(f"{tag}_{mangle(name)}", dims, f"C_{mangle(name)}", [Aff.of(d) for d in dims])
        return found.intersect_domain(domain).to_union_map()

    @cached_property
    def initial(self) -> UnionMap:
        """{ I_A[index] -> cell } for every argument."""
        return self.union(self.whole("I", b.name) for b in self.program.buffers if b.role == "param")

    @cached_property
    def final(self) -> UnionMap:
        """{ E_Y[index] -> cell } for every written argument."""
        return self.union(self.whole("E", name) for name in written(self.program))

    # -- to the vocabulary of the original program ----------------------------------------

    def leaves(self) -> Iterator[tuple[int, Leaf]]:
        for n, site in enumerate(self.sites):
            if isinstance(site.action, Leaf):
                yield n, site.action

    @cached_property
    def writer_instance(self) -> UnionMap:
        """{ L{n}w[v] -> S[instance] } for leaves, and the virtual writers onto themselves."""
        maps: list[Map | UnionMap] = [self.map(n, f"L{n}w", leaf.statement, leaf.instance) for n, leaf in self.leaves()]
        return self.union(maps).union(self.initial.domain().identity())

    @cached_property
    def reader_instance(self) -> UnionMap:
        """{ L{n}r{m}[v] -> S r{k}[instance] } for every load of a leaf, { L{n}o -> S o }, virtual readers onto themselves."""
        maps: list[Map | UnionMap] = []
        for n, leaf in self.leaves():
            for m, flat in enumerate(flat_reads(leaf)):
                maps.append(self.map(n, f"L{n}r{m}", f"{flat.statement}r{flat.n}", flat.instance))
            if updates(leaf, self.program):
                maps.append(self.map(n, f"L{n}o", f"{leaf.statement}o", leaf.instance))
        return self.union(maps).union(self.final.domain().identity())

    @cached_property
    def inlined(self) -> UnionMap:
        """{ L{n}r{m}[v] -> S'[instance] } for every load that is an inlined statement."""
        maps: list[Map | UnionMap] = []
        for n, leaf in self.leaves():
            for m, flat in enumerate(flat_reads(leaf)):
                if isinstance(flat.source, Inline):
                    maps.append(self.map(n, f"L{n}r{m}", flat.source.statement, flat.source.instance))
        return self.union(maps)

    def executions(self, statement: str) -> list[Map]:
        """For every leaf (and inlined use) of a statement { L{n}[v] -> S[instance] }."""
        out: list[Map] = []
        for n, leaf in self.leaves():
            if leaf.statement == statement:
                out.append(self.map(n, f"L{n}w", statement, leaf.instance))
            for m, flat in enumerate(flat_reads(leaf)):
                if isinstance(flat.source, Inline) and flat.source.statement == statement:
                    out.append(self.map(n, f"L{n}r{m}", statement, flat.source.instance))
        return out

    def statement_domain(self, statement: str) -> Set:
        s = self.program.statement[statement]
        return self.set(statement, s.loops, s.domain)

    def set_union(self, sets: Iterable[Set | UnionSet]) -> UnionSet:
        out = self.solver.empty_set()
        for s in sets:
            out = out.union(s if isinstance(s, UnionSet) else s.to_union_set())
        return out


def _named(m: Map, tag: str, target: str) -> Map:
    m = m.set_tuple_name(T.in_, tag) if tag else m
    return m.set_tuple_name(T.out, target) if target else m


class _Domains(dict[int, Set]):
    def __init__(self, r: Relations):
        super().__init__()
        self.r = r

    def __missing__(self, n: int) -> Set:
        self[n] = self.r.set(f"L{n}", self.r.variables(n), self.r.sites[n].conditions)
        return self[n]


def coordinates(b: Buffer) -> list[str]:
    """Names for the dimensions of a buffer; no name of a program has a blank."""
    return [f"at {k}" for k in range(len(b.shape))]
