"""Who wrote what each access reads: last writers, copies resolved, and the contributions of reductions.

Feautrier's exact dataflow, by operations on isl relations. Every relation here goes from the reader to the writer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from tilec.ir.arguments import written
from tilec.ir.program import Buffer, Copy, Leaf, Merge, Program
from tilec.ir.tree import updates
from tilec.poly.access import Relations, Tagged
from tilec.poly.isl import Map, Solver, T, UnionMap, UnionSet, lexmax, mangle, pieces_of_map, pieces_of_set
from tilec.poly.matrices import Frozen
from tilec.poly.verdict import Unresolved


class Endless(Unresolved):
    """A chain of copies without an exact closure; `known` is the flow of the reads whose chain is short."""

    def __init__(self, known: UnionMap):
        super().__init__("a chain of copies whose length depends on the sizes has no exact closure")
        self.known = known


@dataclass(frozen=True)
class Flow:
    """sources: { read -> write }; undefined: reads that no write reaches."""

    sources: UnionMap
    undefined: UnionSet


def flow(r: Relations, sinks: UnionMap, must: UnionMap, may: UnionMap) -> Flow:
    """The must-source that is last before each sink, and the may-sources between the two. Relations are { access -> cell }.

    Every sink is compared with one writer at a time, then the last of the writers' last ones is taken: each step is an exact
    operation on small relations. isl's own `compute_flow` does the same and is not used: it loses reads whose cells no write of
    a strided set reaches (seen in isl 0.27; tests/property has the program).
    """
    musts, mays = _by_cell(must), _by_cell(may)
    sources = sinks.empty(sinks.get_space())
    reached = sources.domain()
    for sink in pieces_of_map(sinks):
        cell = _range_name(sink)
        last = _latest(r, [(_last(m), at) for m, at in _earlier(r, sink, sorted(musts.get(cell, ()), key=_is_written))])
        for m, _ in last:
            sources = sources.union(m.to_union_map())
            reached = reached.union(m.domain().to_union_set())
        for m, at in _earlier(r, sink, mays.get(cell, ())):
            for before, when in last:  # a may-source counts where it comes after the last must-source
                m = m.subtract(before.apply_range(r.later(when, at)))
            sources = sources.union(m.to_union_map())
    return Flow(sources, sinks.domain().subtract(reached))


def _earlier(r: Relations, sink: Map, writes: Iterable[Map]) -> Iterator[tuple[Map, str]]:
    """For each writer { sink -> its writes of the same cell before }, where there are any, and the writer's tag."""
    for write in writes:
        same = sink.apply_range(write.reverse())
        if not same.is_empty():
            tag = write.get_tuple_name(T.in_) or ""
            pairs = same.intersect(r.later(sink.get_tuple_name(T.in_) or "", tag))
            if not pairs.is_empty():
                yield pairs, tag


def _last(pairs: Map) -> Map:
    """Of one writer's executions the last: they follow each other as their coordinates do."""
    final = (pairs.get_tuple_name(T.in_) or "").startswith("E_")  # most final elements are written once
    once = pairs.plain_is_single_valued() or (final and pairs.is_single_valued())
    return pairs if once else lexmax(pairs)


def _latest(r: Relations, last: list[tuple[Map, str]]) -> list[tuple[Map, str]]:
    """Of several writers' last executions the latest, for each sink."""
    for n in range(len(last)):
        for k in range(n):
            (a, at), (b, when) = last[k], last[n]
            both = a.domain().intersect(b.domain())
            if both.is_empty():
                continue
            beaten = both if at.startswith("I_") else a.intersect(b.apply_range(r.later(when, at))).domain()
            last[k] = a.subtract_domain(beaten), at
            last[n] = b.subtract_domain(both.subtract(beaten)), when
    return [(m, tag) for m, tag in last if not m.is_empty()]


def _by_cell(accesses: UnionMap) -> dict[str, list[Map]]:
    out: dict[str, list[Map]] = {}
    for piece in pieces_of_map(accesses):
        out.setdefault(_range_name(piece), []).append(piece)
    return out


def _is_written(write: Map) -> bool:
    """False for an argument's initial contents, which come before everything."""
    return not (write.get_tuple_name(T.in_) or "").startswith("I_")


def _range_name(piece: Map) -> str:
    return piece.get_tuple_name(T.out) or ""


def value_flow(r: Relations) -> Flow:
    """{ access -> the write it receives its value from }, for every read, old value and final value."""
    changed = {a.address.buffer for a in r.tagged if a.role == "write"} | set(written(r.program))
    reads = r.cells(a for a in r.tagged if a.role != "write" and a.address.buffer in changed).union(r.final)
    starts = (r.whole("I", b.name) for b in r.program.buffers if b.role == "param" and b.name in changed)
    writes = r.cells(a for a in r.tagged if a.role == "write").union(r.union(starts))
    found = flow(r, reads, writes, r.solver.empty())
    # nothing comes between an argument that is never written and its readers
    constant = r.cells(a for a in r.tagged if a.role != "write" and a.address.buffer not in changed)
    direct = constant.apply_range(r.initial.reverse())
    return Flow(found.sources.union(direct), found.undefined.union(constant.domain().subtract(direct.domain())))


def only(r: Relations, kinds: type | tuple[type, ...]) -> list[int]:
    return [n for n, s in enumerate(r.sites) if isinstance(s.action, kinds)]


def through(r: Relations, numbers: Iterable[int]) -> UnionMap:
    """{ L{n}w[v] -> L{n}r0[v] }: from what a copy or merge writes to what it read."""
    out: list[UnionMap] = []
    for n in numbers:
        domain = r.domains[n]
        write = domain.set_tuple_name(f"L{n}w").to_union_set()
        pair = domain.set_tuple_name(f"L{n}r0").identity().set_tuple_name(T.in_, f"L{n}w")
        out.append(pair.to_union_map().intersect_domain(write))
    return r.union(out)


def spaces(r: Relations, numbers: Iterable[int], suffix: str = "w") -> UnionSet:
    return r.set_union(r.domains[n].set_tuple_name(f"L{n}{suffix}") for n in numbers)


def resolve_copies(r: Relations, found: Flow) -> UnionMap:
    """The same flow with every copy replaced by the writer of what it copied."""
    copies = only(r, Copy)
    if not copies:
        return found.sources
    copied = spaces(r, copies)
    step = through(r, copies).apply_range(found.sources)
    result = found.sources.subtract_range(copied)
    pending = found.sources.intersect_range(copied)
    for _ in range(len(copies) + 1):
        if pending.is_empty():
            return result
        pending = pending.apply_range(step)
        result = result.union(pending.subtract_range(copied))
        pending = pending.intersect_range(copied)
    if pending.is_empty():
        return result
    meant = transparent(r, found)
    if meant is not None:
        return meant
    closure, exact = step.intersect_range(copied).transitive_closure()
    if not exact:
        raise Endless(result)
    long = pending.apply_range(closure).union(pending).apply_range(step)
    return result.union(long.subtract_range(copied))


def element_ends(r: Relations) -> tuple[UnionMap, UnionMap]:
    """({ I_A[x] -> element }, { E_Y[x] -> element })."""
    to_element = r.union(
        r.solver.read_map(f"{{ C_{mangle(b.name)}[{_dims(b)}] -> X_{mangle(b.name)}[{_dims(b)}] }}")
        for b in r.program.buffers
        if b.role == "param"
    )
    return r.initial.apply_range(to_element), r.final.apply_range(to_element)


def _dims(b: Buffer) -> str:
    return ", ".join(f"d{k}" for k in range(len(b.shape)))


def transparent(r: Relations, found: Flow) -> UnionMap | None:
    """The flow over elements with all copies left out, where it is the same; None where some access sees an old copy.

    Suppose every access takes its value from the last write of its element, or from a copy made since that write from a place
    that the same holds of. By induction over time the caches then always show what the elements are.
    """
    copies = only(r, Copy)
    real = [a for a in r.tagged if a.role == "write" and a.site not in set(copies)]
    sinks = [a for a in r.tagged if a.role != "write"]
    start, end = element_ends(r)
    writes = r.elements(real)
    meant = flow(r, r.elements(sinks).union(end), writes.union(start), r.solver.empty())
    copied = spaces(r, copies)
    direct = found.sources.subtract_range(copied)
    via = found.sources.intersect_range(copied).apply_range(through(r, copies)).apply_range(meant.sources)
    if not found.undefined.is_empty() or not direct.union(via).is_subset(meant.sources):
        return None
    if not found.sources.domain().is_subset(meant.sources.domain()):
        return None
    return meant.sources


# -- the original, once ----------------------------------------


@dataclass(frozen=True)
class Reference:
    """The original's flow in its own vocabulary."""

    wanted: Frozen  # { S r{k}[i] or S o[i] or E_Y[x] -> S'[i'] or I_A[x] }


@lru_cache(maxsize=256)
def reference(original: Program, budget: int | None = None) -> Reference:
    r = Relations(Solver(original.sizes, original.where, budget), original)
    found = value_flow(r)
    wanted = r.reader_instance.reverse().apply_range(found.sources).apply_range(r.writer_instance)
    return Reference(Frozen.of(wanted.coalesce()))


# -- reductions ----------------------------------------


def is_free(program: Program, buffer: str) -> bool:
    """May updates of this original buffer be reordered: by nature (max, min, wrapping integers) or by permission?"""
    ops = {s.op for s in program.statements if s.target.buffer == buffer and s.op != "="}
    return len(ops) == 1 and (not needs_permission(program, buffer) or buffer in program.reassociate)


def needs_permission(program: Program, buffer: str) -> bool:
    """Does the result depend on the order of the updates?

    A float added to an integer is rounded at every store, and NaN, which wins a max, is stored there as 0.
    """
    updates = [s for s in program.statements if s.target.buffer == buffer and s.op != "="]
    dtype = program.source.buffer[buffer].dtype
    if dtype in ("i32", "i8") and any(s.value.dtype in ("f32", "f64") for s in updates):
        return True
    return dtype != "i32" and not {s.op for s in updates} <= {"max=", "min="}


def root_of(program: Program, buffer: str) -> str:
    return program.buffer[buffer].root or buffer


@dataclass(frozen=True)
class Contributions:
    """readers: { read of the reduction -> every statement instance that contributes to its value, base included }.

    twice: { read -> the statement instance that arrives twice }; undefined: reads of an accumulator that holds nothing.
    """

    readers: UnionMap
    twice: UnionMap
    undefined: UnionSet


def contributions(r: Relations, root: str, *, over_elements: bool = False) -> Contributions:
    """Follow every path from each reader of `root` back to the updates that reach it.

    over_elements: leave the copies out, as `transparent` allows.

    The last plain write, copy or identity is the base of a cell; the updates after it all count. A copy stands for what it
    read, a merge for its target's contributions and those of its source.
    """
    program = r.program
    held = {b.name for b in program.buffers if b.name == root or b.root == root}
    mine = [a for a in r.tagged if a.address.buffer in held]
    kinds, where, whole = (Copy, Merge), r.cells, r.whole
    if over_elements:
        mine = [a for a in mine if not isinstance(r.sites[a.site].action, Copy)]
        kinds, where = (Merge,), r.elements

        def whole(tag: str, name: str) -> UnionMap:
            start, end = element_ends(r)
            return (start if tag == "I" else end).intersect_domain(r.whole(tag, name).domain())

    def updating(a: Tagged) -> bool:
        return updates(r.sites[a.site].action, program)

    must = where(a for a in mine if a.role == "write" and not updating(a))
    may = where(a for a in mine if a.role == "write" and updating(a))
    ends: list[UnionMap] = []
    if root in program.buffer and program.buffer[root].role == "param":
        must = must.union(whole("I", root))
        ends.append(whole("E", root))
    sinks = where(a for a in mine if a.role == "read").union(r.union(ends))
    found = flow(r, sinks, must, may)

    middle = only(r, kinds)
    middle_writes = spaces(r, middle)
    step = through(r, middle).apply_range(found.sources)
    loads = [f"L{n}r" for n in only(r, Leaf)]
    readers = _select(found.sources, lambda name: name.startswith("E_") or any(name.startswith(p) for p in loads))
    named = r.writer_instance

    result, twice, double = r.solver.empty(), r.solver.empty(), r.solver.empty()  # double: what of the frontier came two ways
    frontier = readers
    reached = _select_set(sinks.domain(), lambda name: name.startswith("E_") or any(name.startswith(p) for p in loads))
    for _ in range(len(middle) + 2):
        leaves = frontier.subtract_range(middle_writes).intersect_range(named.domain())
        twice = twice.union(result.union(double).intersect(leaves))
        result = result.union(leaves)
        inner = frontier.intersect_range(middle_writes)
        if inner.is_empty():
            break
        reached = reached.union(inner.range().apply(through(r, middle)))
        ways = inner.reverse().range_product(step).reverse()  # { [reader -> x] -> the copy or merge it came through }
        double = double.intersect(inner).apply_range(step).union(_not_single_valued(ways))
        frontier = inner.apply_range(step)
    else:
        raise Unresolved(f"the copies of {root} form a chain whose length depends on the sizes")
    per_instance = result.reverse().range_product(named).reverse()  # { [reader -> instance] -> execution }
    twice = twice.apply_range(named).union(_not_single_valued(per_instance))
    return Contributions(result.apply_range(named), twice, found.undefined.intersect(reached))


def _select(m: UnionMap, keep: Callable[[str], bool]) -> UnionMap:
    out = m.subtract(m)
    for piece in pieces_of_map(m):
        if keep(_domain_name(piece)):
            out = out.union(piece.to_union_map())
    return out


def _domain_name(piece: Map) -> str:
    if piece.domain().is_wrapping() or not piece.has_tuple_name(T.in_):
        return ""
    return piece.get_tuple_name(T.in_) or ""


def _select_set(s: UnionSet, keep: Callable[[str], bool]) -> UnionSet:
    out = s.subtract(s)
    for piece in pieces_of_set(s):
        if keep(piece.get_tuple_name() or ""):
            out = out.union(piece.to_union_set())
    return out


def _not_single_valued(ways: UnionMap) -> UnionMap:
    """Of { [reader -> x] -> way }, the { reader -> x } with two ways."""
    if ways.is_single_valued():
        return ways.domain().unwrap().subtract(ways.domain().unwrap())
    two = ways.range_product(ways)  # { key -> [way -> way'] }
    distinct = two.range().unwrap()
    same = distinct.domain().union(distinct.range()).identity()
    return two.intersect_range(distinct.subtract(same).wrap()).domain().unwrap()


__all__ = [
    "Contributions",
    "Flow",
    "Reference",
    "contributions",
    "flow",
    "is_free",
    "needs_permission",
    "reference",
    "resolve_copies",
    "root_of",
    "value_flow",
]
