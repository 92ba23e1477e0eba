"""The proof: does a rewritten program give every read, and every result, the value that the original gives?

Values    every load of every executed instance receives the instance that the original's load receives; every final
          element has the original's last writer; nothing is missing, doubled or made up  (`_Proof`)
Order     every pair of conflicting accesses is ordered on the machine, not only in the tree  (concurrency.py)
Sums      where a reduction may be reordered, each contribution arrives exactly once  (dataflow.contributions)

Running out of the isl budget is *unknown*, never a guess.
"""

from __future__ import annotations

from functools import lru_cache

from tilec.ir.affine import Constraint
from tilec.ir.program import Program
from tilec.poly.access import Relations, flat_reads
from tilec.poly.concurrency import HappensBefore, is_concurrent
from tilec.poly.dataflow import (
    Endless,
    Flow,
    Unresolved,
    contributions,
    is_free,
    needs_permission,
    reference,
    resolve_copies,
    transparent,
    value_flow,
)
from tilec.poly.isl import OutOfBudget, Solver, UnionMap
from tilec.poly.order import order_kept
from tilec.poly.points import describe, smallest_sizes
from tilec.poly.verdict import Verdict
from tilec.poly.witness import (
    Refuted,
    bounds_witness,
    instance_witness,
    race_witness,
    twice_witness,
    undefined_witness,
    value_witness,
)


def prove(original: Program, program: Program, budget: int | None = None) -> Verdict:
    """The complete check, for all sizes at once. budget: isl operations, default isl.DEFAULT_BUDGET."""
    return _prove(original, program, budget)


def prove_step(original: Program, program: Program, budget: int | None = None) -> Verdict:
    """The fast path where it accepts, else the complete check: a refusal always comes from the latter."""
    if order_kept(original, program, budget):
        solver = Solver(program.sizes, program.where)
        return Verdict("legal", describe(solver.context, solver.sizes), method="order")
    return prove(original, program, budget)


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
        self.wanted = UnionMap.read_from_str(solver.ctx, reference(original, budget).wanted).intersect_params(solver.context)

    def verdict(self) -> Verdict:
        try:
            self.instances()
            self.bounds()
            self.values()
            self.order()
        except Refuted as e:
            return Verdict("illegal", describe(e.params, self.solver.sizes), notes=tuple(self.notes), witness=e.witness)
        return Verdict(
            "legal",
            describe(self.solver.context, self.solver.sizes),
            tuple(self.permissions),
            tuple(sorted(self.program.recomputed)),
            tuple(self.notes),
        )

    # -- which instances run ----------------------------------------

    def instances(self) -> None:
        """Nothing outside the original's domain, nothing of a result missing, nothing twice unless recomputation allows it."""
        arguments = {b.name for b in self.original.buffers if b.role == "param"}
        for s in self.original.statements:
            domain = self.r.statement_domain(s.name).to_union_set()
            runs = self.r.executions(s.name)
            done = self.r.union(runs)
            extra = done.range().subtract(domain)
            if not extra.is_empty():
                raise instance_witness(self.r, s, extra, "the original has no such instance")
            if s.target.buffer in arguments:
                missing = domain.subtract(done.range())
                if not missing.is_empty():
                    raise instance_witness(self.r, s, missing, "it is never executed")
            if s.name not in self.program.recomputed and not done.is_injective():
                raise twice_witness(self.r, s, done)

    # -- where it reads and writes ----------------------------------------

    def bounds(self) -> None:
        """Every access stays inside its buffer."""
        for a in self.r.tagged:
            shape = self.program.buffer[a.address.buffer].shape
            if all(e.is_const and s.is_const and 0 <= e.const < s.const for e, s in zip(a.address.index, shape, strict=True)):
                continue
            inside = [c for e, s in zip(a.address.index, shape, strict=True) for c in (Constraint.ge(e, 0), Constraint.lt(e, s))]
            allowed = self.solver.set(f"L{a.site}", self.r.variables(a.site), inside)
            outside = self.r.domains[a.site].subtract(allowed)
            if not outside.is_empty():
                raise bounds_witness(self.r, a, outside.set_tuple_name(a.tag))

    # -- what each read receives ----------------------------------------

    def values(self) -> None:
        r = self.r
        found = value_flow(r)
        want = r.reader_instance.apply_range(self.wanted)
        try:
            resolved = resolve_copies(r, found)
        except Endless as e:
            self.refute_known(found, e.known, want)
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
            raise value_witness(r, self.original, found, got, want, wrong)
        for root in roots:
            touched = want.subtract(got).intersect_domain(self.readers_of(root))
            if not touched.is_empty():
                self.reduction(root)

    def refute_known(self, found: Flow, known: UnionMap, want: UnionMap) -> None:
        """Though some chains of copies have no end, a read with a short chain may already be wrong."""
        got = known.apply_range(self.r.writer_instance)
        wrong = want.intersect_domain(known.domain()).subtract(got)
        for root in self.reorderable():
            wrong = wrong.subtract_domain(self.readers_of(root))
        if not wrong.is_empty():
            raise value_witness(self.r, self.original, found, got, want, wrong)

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

    def reduction(self, root: str) -> None:
        """Each original contribution of `root` reaches each reader exactly once, the initial value included."""
        try:
            mine = contributions(self.r, root)
        except Unresolved:
            if transparent(self.r, value_flow(self.r)) is None:
                raise
            mine = contributions(self.r, root, over_elements=True)
        theirs = contributions(Relations(self.solver, self.original), root)
        base = Relations(self.solver, self.original)
        per_read = base.reader_instance.reverse().apply_range(theirs.readers)
        want = self.r.reader_instance.apply_range(per_read)
        label = f"the sum of {root}" if root in self.program.reassociate else f"the reduction of {root}"
        if not mine.undefined.is_empty():
            raise undefined_witness(self.r, mine.undefined)
        got = mine.readers.union(self.r.inlined)  # an inlined load is its statement's value, with nothing added
        lost = want.subtract(got)
        if not lost.is_empty():
            raise value_witness(self.r, self.original, None, got, want, lost, label)
        gained = got.intersect_domain(want.domain()).subtract(want)
        for extra in (gained, mine.twice.intersect_domain(want.domain()).apply_range(self.r.writer_instance)):
            if not extra.is_empty():
                raise value_witness(self.r, self.original, None, got, want, extra, label, doubled=True)
        if needs_permission(self.program, root):
            self.permissions.append(f'reassociate="{root}"')
            self.notes.append(self.merge_tree(root))

    def merge_tree(self, root: str) -> str:
        """How a reassociated sum is combined, and what its result depends on."""
        partials = [b.name for b in self.program.buffers if b.role == "partial" and b.root == root]
        shape = "one running sum in the order of the loops"
        if partials:
            shape = f"identity, each contribution once into {', '.join(partials)}, partial sums merged in the order of the loops"
        return f"{root}: {shape}; two runs give the same bits, other loop factors may not"

    # -- what the machine orders ----------------------------------------

    def order(self) -> None:
        hb = HappensBefore(self.r)
        for n in hb.idle_waits():
            self.notes.append(f"the wait at {'.'.join(map(str, self.r.sites[n].position))} covers no copy")
        if not is_concurrent(self.program):
            return
        races = [race_witness(self.r, race) for race in hb.races()]
        if races:
            params = races[0].params
            for other in races[1:]:
                params = params.union(other.params)
            sizes = smallest_sizes(self.solver, params)
            raise Refuted(params, next(e.witness for e in races if e.witness.sizes == sizes))


__all__ = ["Verdict", "prove", "prove_step"]
