"""The fast path: programs that only reorder the original's instances. It may accept; it never refuses.

A program of leaves, and of copies of arrays that nothing writes, is equal to the original when
- every statement runs as often as in the original, or is inlined wherever it is read                  (`_complete`, `_inlined`)
- every element of the original has a cell of its own for as long as it lives                          (`_in_place`, `_private`)
- every read of a copy finds a copy of the element it means                                            (`_copied`)
- every pair of accesses to one element, one of them a write, keeps its order                          (`_in_order`)

By induction over time each read then finds what the original's read finds: in its element's cell the last write is the
original's, as all writes that the original has before it come before and all others after (Allen and Kennedy's dependence
theorem); an element that nothing writes is the same at any time, so a copy of it is as good; an inlined statement reads where
its reader runs, so its reads are asked for their order there, and its result never lies in a cell.

What machines leave unordered (loops' kinds, asynchronous copies) is not asked here: the races are (concurrency.py).
Every answer is kept by the content it depends on, so a step of a chain asks what it changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from tilec.ir.affine import Aff
from tilec.ir.program import Barrier, Commit, Copy, Inline, Leaf, Program, Wait
from tilec.poly.access import Relations, Tagged, flat_reads
from tilec.poly.cells import cell
from tilec.poly.dataflow import flow
from tilec.poly.isl import Map, OutOfBudget, Solver, T
from tilec.poly.matrices import Frozen
from tilec.poly.precedence import after, comparison
from tilec.poly.verdict import Unresolved

KINDS = (("write", "read"), ("read", "write"), ("write", "write"))  # flow, anti, output


def order_kept(original: Program, program: Program, budget: int | None = None) -> bool:
    """Is the program one of these? False says nothing."""
    solver = Solver(program.sizes, program.where, budget)
    try:
        with solver.guard():
            return keeps_order(Relations(solver, program), original, budget)
    except (OutOfBudget, Unresolved):
        return False


def keeps_order(r: Relations, original: Program, budget: int | None = None) -> bool:
    """`order_kept` in a solver that may know answers already."""
    return (
        _plain(r, original)
        and _complete(r)
        and _in_place(r, original)
        and _private(r)
        and _copied(r)
        and _inlined(r, original, budget)
        and _in_order(r, original, budget)
    )


def _plain(r: Relations, original: Program) -> bool:
    """Leaves that write the original's buffers, and copies of arrays that nothing writes."""
    written = {s.target.buffer for s in original.statements}
    for site in r.sites:
        match site.action:
            case Leaf(target=target):
                if target.buffer not in original.buffer:
                    return False
            case Copy(dst=dst):
                root = r.program.buffer[dst.buffer].root
                if r.program.buffer[dst.buffer].role != "cache" or root in written or root not in original.buffer:
                    return False
            case Barrier() | Commit() | Wait():
                pass
            case _:
                return False
    return True


# -- what runs ----------------------------------------


@dataclass(frozen=True)
class _Run:
    """The leaf at site n runs `statement` at `instance`: as its own, or inlined."""

    n: int
    statement: str
    instance: tuple[Aff, ...]
    own: bool


def _runs(r: Relations) -> Iterator[_Run]:
    for n, leaf in r.leaves():
        yield _Run(n, leaf.statement, leaf.instance, True)
        for flat in flat_reads(leaf):
            if isinstance(flat.source, Inline):
                yield _Run(n, flat.source.statement, flat.source.instance, False)


def _at(r: Relations, run: _Run) -> Map:
    """{ [variables] -> S[instance] } over the executed iterations."""
    return r.map(run.n, "", run.statement, run.instance)


def _complete(r: Relations) -> bool:
    """Every original instance runs exactly once, or is inlined only; what is inlined runs once unless it may be recomputed."""
    for s in r.program.statements:
        runs = [x for x in _runs(r) if x.statement == s.name]
        once = s.name not in r.program.recomputed
        if not any(x.own for x in runs) and any(a.address.buffer == s.target.buffer for a in r.tagged):
            return False  # someone looks for its result in a cell
        if not any(x.own for x in runs) and r.program.source.buffer[s.target.buffer].role == "param":
            return False

        def right(s=s, runs=runs, once=once) -> bool:
            own = r.union(_at(r, x).set_tuple_name(T.in_, f"L{k}") for k, x in enumerate(runs) if x.own)
            inlined = r.union(_at(r, x).set_tuple_name(T.in_, f"I{k}") for k, x in enumerate(runs) if not x.own)
            if not (own.union(inlined) if once else own).is_injective():
                return False
            return not any(x.own for x in runs) or own.range().is_equal(r.statement_domain(s.name).to_union_set())

        key = ("complete", s.name, s.domain, once, *((r.content[x.n], x.instance, x.own) for x in runs))
        if not r.solver.once(key, right):
            return False
    return True


def _inlined(r: Relations, original: Program, budget: int | None) -> bool:
    """Every inlined load is of the instance whose value the original's load receives."""
    solver = r.solver
    for n, leaf in r.leaves():
        for flat in flat_reads(leaf):
            source = flat.source
            if isinstance(source, Inline):

                def right(n=n, flat=flat, source=source) -> bool:
                    wanted = received(original, flat.statement, flat.n, budget).thaw(solver.ctx)
                    reader = r.map(n, "", f"{flat.statement}r{flat.n}", flat.instance).to_union_map()
                    return r.map(n, "", source.statement, source.instance).to_union_map().is_subset(reader.apply_range(wanted))

                key = ("inlined", r.content[n], flat.statement, flat.n, flat.instance, source.statement, source.instance)
                if not solver.once(key, right):
                    return False
    return True


# -- where it is kept ----------------------------------------


def _in_place(r: Relations, original: Program) -> bool:
    """Every access is to its own buffer or a copy of it, inside it; an argument's at the original's element."""
    for a in r.tagged:
        action, buffer = r.sites[a.site].action, r.program.buffer[a.address.buffer]
        root, element = r.logical(a)
        if _meant(r, a) != (buffer.root if buffer.role == "cache" else buffer.name):
            return False
        same = list(a.address.index) == element
        if same and isinstance(action, Leaf) and buffer.role != "cache" and buffer.shape == original.buffer[buffer.name].shape:
            continue  # inside, as the original is
        if r.outside(a) is not None:
            return False
        if buffer.role == "param" and not same:
            here, there = (r.map(a.site, "", root, index) for index in (a.address.index, element))
            if not here.is_equal(there):
                return False
    return True


def _meant(r: Relations, a: Tagged) -> str | None:
    """The original's buffer that an access stands for."""
    match r.sites[a.site].action:
        case Leaf(statement=name) as leaf:
            if a.role != "read":
                return r.program.statement[name].target.buffer
            flat = flat_reads(leaf)[int(a.tag.rpartition("r")[2])]
            return r.program.statement[flat.statement].reads[flat.n].buffer
        case Copy(dst=dst):
            return r.program.buffer[dst.buffer].root
    return None


def _where(r: Relations, a: Tagged) -> tuple[Aff, ...]:
    return tuple(cell(r.program, r.sites[a.site], a.address, folded=False)[1])


def _content(r: Relations, a: Tagged) -> Hashable:
    """All that the relations of an access depend on, but its time."""
    return r.content[a.site], _where(r, a), tuple(r.logical(a)[1])


def _private(r: Relations) -> bool:
    """Within an owner iteration every cell holds one element of the original, and every element lives in one cell."""
    for b in r.program.buffers:
        if b.role == "temp":
            accesses = [a for a in r.tagged if a.address.buffer == b.name]

            def right(accesses=accesses) -> bool:
                where = r.union(r.map(a.site, a.tag, "C", _where(r, a)) for a in accesses)
                holds = where.reverse().apply_range(r.union(r.map(a.site, a.tag, "X", r.logical(a)[1]) for a in accesses))
                return holds.is_single_valued() and holds.is_injective()  # { cell -> element }

            if not r.solver.once(("private", frozenset(_content(r, a) for a in accesses)), right):
                return False
        elif b.role not in ("param", "cache"):
            return False
    return True


def _copied(r: Relations) -> bool:
    """Every read of a copy receives the last copy into its cell, and that is of the element it means."""
    caches = {b.name for b in r.program.buffers if b.role == "cache"}
    for a in r.tagged:
        if a.role == "write" or a.address.buffer not in caches:
            continue
        writes = [w for w in r.tagged if w.role == "write" and w.address.buffer == a.address.buffer]

        def right(a=a, writes=writes) -> bool:
            found = flow(r, r.cells([a]), r.cells(writes), r.solver.empty())
            return found.undefined.is_empty() and found.sources.apply_range(r.elements(writes)).is_subset(r.elements([a]))

        times = [comparison(*r.moments[x.tag], *r.moments[y.tag]) for x in (a, *writes) for y in writes]
        if not r.solver.once(("copied", _content(r, a), *(_content(r, w) for w in writes), *times), right):
            return False
    return True


# -- when it runs ----------------------------------------


def _in_order(r: Relations, original: Program, budget: int | None) -> bool:
    """Every dependence of the original runs forwards. An inlined statement only reads."""
    runs = list(_runs(r))
    for pair in dependences(original, budget):
        for x in runs:
            for y in runs:
                if x.statement == pair.first and y.statement == pair.second and (x.own or y.own):
                    part = "all" if x.own and y.own else "flow" if x.own else "anti"
                    if getattr(pair, part).any and not _forwards(r, pair, part, x, y):
                        return False
    return True


def _forwards(r: Relations, pair: Dependence, part: str, x: _Run, y: _Run) -> bool:
    """Does x run before y wherever the pair has the instance of the one before that of the other?"""
    names, others = r.variables(x.n), r.variables(y.n)
    time, other = r.brief_time(x.n, 0), r.brief_time(y.n, 0)

    def right() -> bool:
        instances = r.solver.once(("pairs", pair.first, pair.second, part), lambda: getattr(pair, part).thaw(r.solver.ctx))
        both = _at(r, x).to_union_map().apply_range(instances).apply_range(_at(r, y).reverse().to_union_map())
        wrong = after(r.solver, names, time, others, other)
        if x.n == y.n and not (x.own and y.own):  # one leaf's inlined read and its own write
            wrong = wrong.union(Map.identity(wrong.get_space()))
        return both.intersect(wrong.to_union_map()).is_empty()

    steps = comparison(names, time, others, other)
    ends = tuple((r.content[z.n], z.instance) for z in (x, y))
    return r.solver.once(("forwards", pair.first, pair.second, part, *ends, x.n == y.n, x.own and y.own, steps), right)


@dataclass(frozen=True)
class Dependence:
    """{ first's instance -> second's later instance } that access one element, one of them writing.

    flow: where the second reads what the first may have written; anti: where the first reads what the second writes; all: these,
    and where both write.
    """

    first: str
    second: str
    flow: Frozen
    anti: Frozen
    all: Frozen


@lru_cache(maxsize=256)
def dependences(original: Program, budget: int | None = None) -> tuple[Dependence, ...]:
    """Every pair of statements with accesses that must keep their order."""
    r = Relations(Solver(original.sizes, original.where, budget), original)
    cells = {a.tag: r.map(a.site, a.tag, *cell(original, r.sites[a.site], a.address, folded=False)) for a in r.tagged}
    found: dict[tuple[str, str], dict[str, Map]] = {}
    for first, second in KINDS:
        for a in r.tagged:
            for b in r.tagged:
                roles = [t.role if t.role == "write" else "read" for t in (a, b)]
                if roles == [first, second] and a.address.buffer == b.address.buffer:
                    pairs = cells[a.tag].apply_range(cells[b.tag].reverse()).intersect(r.later(b.tag, a.tag).reverse())
                    ends = _name(r, a), _name(r, b)
                    named = pairs.set_tuple_name(T.in_, ends[0]).set_tuple_name(T.out, ends[1])
                    if ends[0] == ends[1]:
                        named = named.subtract(named.domain().identity())
                    if not named.is_empty():
                        parts = found.setdefault(ends, {})
                        for part in {"write read": ("flow", "all"), "read write": ("anti", "all")}.get(" ".join(roles), ("all",)):
                            parts[part] = parts[part].union(named) if part in parts else named

    def frozen(parts: dict[str, Map], part: str) -> Frozen:
        return Frozen.of(parts[part].coalesce().to_union_map() if part in parts else r.solver.empty())

    return tuple(Dependence(*ends, *(frozen(parts, p) for p in ("flow", "anti", "all"))) for ends, parts in found.items())


@lru_cache(maxsize=256)
def received(original: Program, statement: str, n: int, budget: int | None = None) -> Frozen:
    """{ load r{n} of the statement -> the original's instance whose value it receives }."""
    r = Relations(Solver(original.sizes, original.where, budget), original)
    sink = next(a for a in r.tagged if a.role == "read" and a.tag.endswith(f"r{n}") and _name(r, a) == statement)
    name = sink.address.buffer
    writes = r.cells(a for a in r.tagged if a.role == "write" and a.address.buffer == name)
    if original.buffer[name].role == "param":
        writes = writes.union(r.whole("I", name))
    found = flow(r, r.cells([sink]), writes, r.solver.empty()).sources.apply_range(r.writer_instance)
    load = r.map(sink.site, sink.tag, f"{statement}r{n}", [Aff.of(v) for v in r.variables(sink.site)])
    return Frozen.of(load.reverse().to_union_map().apply_range(found).coalesce())


def _name(r: Relations, a: Tagged) -> str:
    """The statement of an access of the original, whose loops are its instance."""
    leaf = r.sites[a.site].action
    assert isinstance(leaf, Leaf) and tuple(e.single for e in leaf.instance) == r.variables(a.site)
    return leaf.statement
