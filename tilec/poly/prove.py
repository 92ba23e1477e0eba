"""The proof: does a rewritten program give every read, and every result, the value that the original gives?

Values    every load of every executed instance receives the instance that the original's load receives; every final
          element has the original's last writer; nothing is missing, doubled or made up  (`_Proof`)
Order     every pair of conflicting accesses is ordered on the machine, not only in the tree  (concurrency.py)
Sums      where a reduction may be reordered, each contribution arrives exactly once  (dataflow.contributions)

Running out of the isl budget is *unknown*, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tilec.ir.program import Identity, Leaf, Merge, Program
from tilec.ir.tree import without_hints
from tilec.poly.access import Relations, Tagged, flat_reads
from tilec.poly.concurrency import HappensBefore, happens_before, is_concurrent
from tilec.poly.dataflow import (
    Endless,
    Flow,
    contributions,
    is_free,
    needs_permission,
    reference,
    resolve_copies,
    root_of,
    transparent,
    value_flow,
)
from tilec.poly.isl import Memory, OutOfBudget, Solver, UnionMap, mangle
from tilec.poly.order import keeps_order
from tilec.poly.points import describe
from tilec.poly.verdict import Unresolved, Verdict
from tilec.poly.witness import (
    Refuted,
    bounds_witness,
    instance_witness,
    operation_witness,
    race_witness,
    twice_witness,
    undefined_witness,
    unfinished_witness,
    value_witness,
)


def prove(original: Program, program: Program, budget: int | None = None) -> Verdict:
    """The complete check, for all sizes at once. budget: isl operations, default isl.DEFAULT_BUDGET."""
    return _prove(original, without_hints(program), budget)


def prove_step(original: Program, program: Program, budget: int | None = None, memory: Memory | None = None) -> Verdict:
    """The fast path where it accepts, else the complete check: a refusal always comes from the latter.

    memory: what earlier steps of the same chain made; only the fast path uses it.
    """
    program = without_hints(program)
    try:
        memory = memory or Memory()
        with memory.lend(program, budget) as solver, solver.guard():
            hb, notes = happens_before(memory, solver, program), list[str]()
            if keeps_order(hb.r, original, budget) and next(machine_order(hb, notes), None) is None:
                text = solver.once("sizes", lambda: describe(solver.context, solver.sizes))
                recomputed = tuple(sorted(program.recomputed))
                return Verdict("legal", text, (), recomputed, tuple(notes), method="order", rounding=_rounding(program))
    except (OutOfBudget, Unresolved):
        pass
    return prove(original, program, budget)


def _rounding(program: Program) -> tuple[str, ...]:
    return ("contract=True",) * program.contract + ("hardware_rounding=True",) * program.hardware_rounding


@lru_cache(maxsize=512)
def _prove(original: Program, program: Program, budget: int | None) -> Verdict:
    solver = Solver(program.sizes, program.where, budget)
    try:
        with solver.guard():
            return _Proof(solver, original, program, budget).verdict()
    except OutOfBudget as e:
        return Verdict(
            "unknown", reason=f"the proof ran out of its budget of isl operations ({e}); raise proof_budget or bind sizes"
        )
    except Unresolved as e:
        return Verdict("unknown", reason=str(e))


class _Proof:
    def __init__(self, solver: Solver, original: Program, program: Program, budget: int | None):
        self.solver, self.original, self.program = solver, original, program
        self.r = Relations(solver, program)
        self.notes: list[str] = []
        self.permissions: list[str] = []
        self.wanted = reference(original, budget).wanted.thaw(solver.ctx).intersect_params(solver.context)

    def verdict(self) -> Verdict:
        found: list[Refuted] = []
        sizes = None
        try:
            # what a read receives tells more than that an instance runs twice; all are asked, as one may fail where another holds
            for check in (self.instances, self.bounds, self.values, self.order, self.repeated):
                for fault in check():
                    found.append(fault)
        except (OutOfBudget, Unresolved):
            if not found:
                raise
            sizes = "and perhaps more"
        if found:
            params = found[0].params
            for other in found[1:]:
                params = params.union(other.params)
            first = min(found, key=lambda e: (sum(e.witness.sizes.values()), tuple(e.witness.sizes.values())))
            text = describe(params, self.solver.sizes)
            text = f"{text} {sizes}" if sizes and text != "all sizes" else text
            return Verdict("illegal", text, notes=tuple(self.notes), witness=first.witness)
        return Verdict(
            "legal",
            describe(self.solver.context, self.solver.sizes),
            tuple(self.permissions),
            tuple(sorted(self.program.recomputed)),
            tuple(self.notes),
            rounding=_rounding(self.program),
        )

    # -- which instances run ----------------------------------------

    def instances(self) -> Iterator[Refuted]:
        """Nothing outside the original's domain, nothing of a result missing."""
        arguments = {b.name for b in self.original.buffers if b.role == "param"}
        for s in self.original.statements:
            domain = self.r.statement_domain(s.name).to_union_set()
            runs = self.r.executions(s.name)
            done = self.r.union(runs)
            extra = done.range().subtract(domain)
            if not extra.is_empty():
                yield instance_witness(self.r, s, extra, "the original has no such instance")
            if s.target.buffer in arguments:
                missing = domain.subtract(done.range())
                if not missing.is_empty():
                    yield instance_witness(self.r, s, missing, "it is never executed")

    def repeated(self) -> Iterator[Refuted]:
        """Nothing runs twice unless a step declared that it may be recomputed."""
        for s in self.original.statements:
            done = self.r.union(self.r.executions(s.name))
            if s.name not in self.program.recomputed and not done.is_injective():
                yield twice_witness(self.r, s, done)

    # -- where it reads and writes ----------------------------------------

    def bounds(self) -> Iterator[Refuted]:
        """Every access stays inside its buffer."""
        for a in self.r.tagged:
            if self.in_place(a):
                continue
            outside = self.r.outside(a)
            if outside is not None and not outside.is_empty():
                yield bounds_witness(self.r, a, outside)

    def in_place(self, a: Tagged) -> bool:
        """A leaf's access to the original's element of the original's buffer is inside, as the original is."""
        before, now = self.original.buffer.get(a.address.buffer), self.program.buffer[a.address.buffer]
        if before is None or before.shape != now.shape or not isinstance(self.r.sites[a.site].action, Leaf):
            return False
        name, element = self.r.logical(a)
        return name == f"X_{mangle(a.address.buffer)}" and element == list(a.address.index)

    # -- what each read receives ----------------------------------------

    def values(self) -> Iterator[Refuted]:
        r = self.r
        found = value_flow(r)
        want = r.reader_instance.apply_range(self.wanted)
        try:
            resolved = resolve_copies(r, found)
        except Endless as e:
            yield from self.refute_known(found, e.known, want)
            raise
        # Identity and Merge have no instance in the original: reads of theirs can only be right as contributions
        got = resolved.apply_range(r.writer_instance).union(r.inlined)
        wrong = want.subtract(got)
        if wrong.is_empty():
            return
        roots = self.reorderable()
        for root in roots:
            wrong = wrong.subtract_domain(self.readers_of(root))
        if not wrong.is_empty():
            yield value_witness(r, self.original, found, got, want, wrong)
        for root in roots:
            touched = want.subtract(got).intersect_domain(self.readers_of(root))
            if not touched.is_empty():
                yield from self.reduction(root)

    def refute_known(self, found: Flow, known: UnionMap, want: UnionMap) -> Iterator[Refuted]:
        """Though some chains of copies have no end, a read with a short chain may already be wrong."""
        got = known.apply_range(self.r.writer_instance)
        wrong = want.intersect_domain(known.domain()).subtract(got)
        for root in self.reorderable():
            wrong = wrong.subtract_domain(self.readers_of(root))
        if not wrong.is_empty():
            yield value_witness(self.r, self.original, found, got, want, wrong)

    def reorderable(self) -> list[str]:
        return [b.name for b in self.original.buffers if is_free(self.program, b.name)]

    def readers_of(self, root: str):
        """Every read access (loads, old values, final values) whose value belongs to the reduction `root`."""
        tags: list[str] = []
        for n, leaf in self.r.leaves():
            statement = self.program.statement[leaf.statement]
            if statement.op != "=" and statement.target.buffer == root:
                tags.append(f"L{n}o")
        keep = self.r.set_union(self.r.domains[int(t[1:-1])].set_tuple_name(t) for t in tags)
        for tag, n in self.loads_of(root):
            keep = keep.union(self.r.domains[n].set_tuple_name(tag).to_union_set())
        if self.original.buffer[root].role == "param":
            keep = keep.union(self.r.whole("E", root).domain())
        return keep

    def loads_of(self, root: str) -> list[tuple[str, int]]:
        out: list[tuple[str, int]] = []
        for n, leaf in self.r.leaves():
            for m, flat in enumerate(flat_reads(leaf)):
                if self.program.statement[flat.statement].reads[flat.n].buffer == root:
                    out.append((f"L{n}r{m}", n))
        return out

    def reduction(self, root: str) -> Iterator[Refuted]:
        faults = list(self.contributed(root))
        if not faults and needs_permission(self.program, root):
            self.permissions.append(f'reassociate="{root}"')
            self.notes.append(self.merge_tree(root))
        yield from faults

    def contributed(self, root: str) -> Iterator[Refuted]:
        """Each original contribution of `root` reaches each reader exactly once, the initial value included."""
        try:
            mine = contributions(self.r, root)
        except Unresolved:
            if transparent(self.r, value_flow(self.r)) is None:
                raise
            mine = contributions(self.r, root, over_elements=True)
        (op,) = {s.op for s in self.original.statements if s.target.buffer == root and s.op != "="}
        for n, site in enumerate(self.r.sites):
            if isinstance(site.action, Identity | Merge) and root_of(self.program, site.action.dst.buffer) == root:
                foreign = isinstance(site.action, Merge) and root_of(self.program, site.action.src.buffer) != root
                if (site.action.op != op or foreign) and not self.r.domains[n].is_empty():
                    yield operation_witness(self.r, n, site.action, op)
        theirs = contributions(Relations(self.solver, self.original), root)
        base = Relations(self.solver, self.original)
        per_read = base.reader_instance.reverse().apply_range(theirs.readers)
        want = self.r.reader_instance.apply_range(per_read)
        label = f"the sum of {root}" if root in self.program.reassociate else f"the reduction of {root}"
        if not mine.undefined.is_empty():
            yield undefined_witness(self.r, mine.undefined)
        got = mine.readers.union(self.r.inlined)  # an inlined load is its statement's value, with nothing added
        lost = want.subtract(got)
        if not lost.is_empty():
            yield value_witness(self.r, self.original, None, got, want, lost, label)
        gained = got.intersect_domain(want.domain()).subtract(want)
        for extra in (gained, mine.twice.intersect_domain(want.domain())):
            if not extra.is_empty():
                yield value_witness(self.r, self.original, None, got, want, extra, label, doubled=True)

    def merge_tree(self, root: str) -> str:
        """How a reassociated sum is combined, and what its result depends on."""
        partials = [b.name for b in self.program.buffers if b.role == "partial" and b.root == root]
        shape = "one running sum in the order of the loops"
        if partials:
            shape = f"identity, each contribution once into {', '.join(partials)}, partial sums merged in the order of the loops"
        return f"{root}: {shape}; two runs give the same bits, other loop factors may not"

    def order(self) -> Iterator[Refuted]:
        return machine_order(HappensBefore(self.r), self.notes)


def machine_order(hb: HappensBefore, notes: list[str]) -> Iterator[Refuted]:
    """Every pair of conflicting accesses is ordered on the machine; `notes` gains what is worth knowing."""
    r = hb.r
    for n in hb.idle_waits():
        notes.append(f"the wait at {'.'.join(map(str, r.sites[n].position))} covers no copy")
    if not is_concurrent(r.program):
        return
    for race in hb.races():
        yield race_witness(r, race)
    for a, open_copies in hb.unfinished_results():
        yield unfinished_witness(r, a, open_copies)


__all__ = ["Verdict", "prove", "prove_step"]
