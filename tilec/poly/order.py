"""The fast path: programs that only reorder the original's instances. It may accept; it never refuses.

A program of plain leaves in ordered loops, which runs every instance once and gives every element of the original a cell
of its own for as long as the element lives, is equal to the original when every pair of accesses to one element, one of them
a write, keeps its order (Allen and Kennedy's dependence theorem). The pairs are computed once per original.
"""

from __future__ import annotations

from functools import lru_cache

from tilec.ir.affine import Aff
from tilec.ir.program import ORDERED_KINDS, Access, Address, Leaf, Loop, Program
from tilec.ir.tree import Body
from tilec.poly.access import Relations, Tagged
from tilec.poly.cells import cell
from tilec.poly.isl import OutOfBudget, Solver, T, UnionMap, isl
from tilec.poly.matrices import Frozen

KINDS = (("write", "read"), ("read", "write"), ("write", "write"))  # flow, anti, output


def order_kept(original: Program, program: Program, budget: int | None = None) -> bool:
    """Is the program one of these, with every dependence in order? False says nothing."""
    if not _plain(program.body):
        return False
    solver = Solver(program.sizes, program.where, budget)
    try:
        with solver.guard():
            r = Relations(solver, program)
            return _in_place(r, original) and _complete(r) and _private_cells(r) and _in_order(r, dependences(original, budget))
    except OutOfBudget:
        return False


def _plain(body: Body) -> bool:
    for node in body:
        if isinstance(node, Loop) and node.kind not in ORDERED_KINDS:
            return False
        if isinstance(node, Leaf) and not all(isinstance(r, Address) for r in node.reads):
            return False
        children = getattr(node, "body", None)
        if children is None and not isinstance(node, Leaf):
            return False
        if children is not None and not _plain(children):
            return False
    return True


def _complete(r: Relations) -> bool:
    """Every original instance runs exactly once."""
    for s in r.program.statements:
        done = r.union(r.executions(s.name))
        if not done.is_injective() or not done.range().is_equal(r.statement_domain(s.name).to_union_set()):
            return False
    return True


def _in_place(r: Relations, original: Program) -> bool:
    """Every access is to the original's own buffer, inside it; an argument's at the original's element."""
    for a in r.tagged:
        name, element = a.address.buffer, _logical(r, a)
        if _access(r, a).buffer != name:
            return False  # a cache, which nothing fills or copies out here
        if list(a.address.index) == element and r.program.buffer[name].shape == original.buffer[name].shape:
            continue  # inside, as the original is
        outside = r.outside(a)
        if outside is not None and not outside.is_empty():
            return False
        if r.program.buffer[name].role == "param" and not r.map(a.site, a.tag, "", a.address.index).is_equal(
            r.map(a.site, a.tag, "", element)
        ):
            return False
    return True


def _private_cells(r: Relations) -> bool:
    """Within an owner iteration every cell holds one element of the original, and every element lives in one cell."""
    cells, elements = [], []
    for a in r.tagged:
        site = r.sites[a.site]
        if r.program.buffer[a.address.buffer].role == "param":
            continue
        cells.append(r.map(a.site, a.tag, *cell(r.program, site, a.address, folded=False)))
        elements.append(r.map(a.site, a.tag, f"X_{a.address.buffer}_", _logical(r, a)))
    where, what = r.union(cells), r.union(elements)
    holds = where.reverse().apply_range(what)  # { cell -> element }
    return holds.is_single_valued() and holds.is_injective()


def _access(r: Relations, a: Tagged) -> Access:
    leaf = r.sites[a.site].action
    assert isinstance(leaf, Leaf)
    statement = r.program.statement[leaf.statement]
    return statement.reads[int(a.tag.rpartition("r")[2])] if a.role == "read" else statement.target


def _logical(r: Relations, a: Tagged) -> list[Aff]:
    leaf = r.sites[a.site].action
    assert isinstance(leaf, Leaf)
    env = dict(zip(r.program.statement[leaf.statement].loops, leaf.instance, strict=True))
    return [e.subs(env) for e in _access(r, a).index]


def _in_order(r: Relations, pairs: Frozen) -> bool:
    before = pairs.thaw(r.solver.ctx).intersect_params(r.solver.context)
    at = r.union(r.map(n, f"L{n}w", leaf.statement, leaf.instance) for n, leaf in r.leaves())  # { execution -> instance }
    when = r.union(r.map(n, f"L{n}w", "", r.brief_time(n, 0)) for n, _ in r.leaves())
    new = at.reverse().apply_range(when)  # { instance -> time }
    pulled = before.apply_domain(new).apply_range(new)  # { time -> time } of each pair
    return pulled.is_subset(_increasing(r, len(r.telling) + 1))


def _increasing(r: Relations, width: int) -> UnionMap:
    return isl.Map.lex_lt(isl.Space.set_alloc(r.solver.ctx, 0, width)).to_union_map()


@lru_cache(maxsize=256)
def dependences(original: Program, budget: int | None = None) -> Frozen:
    """{ instance -> later instance } over every pair of accesses to one element that must keep its order."""
    r = Relations(Solver(original.sizes, original.where, budget), original)
    cells = {a.tag: r.map(a.site, a.tag, *cell(original, r.sites[a.site], a.address, folded=False)) for a in r.tagged}
    found = r.solver.empty()
    for first, second in KINDS:
        for a in r.tagged:
            for b in r.tagged:
                roles = [t.role if t.role == "write" else "read" for t in (a, b)]
                if roles == [first, second] and a.address.buffer == b.address.buffer:
                    pairs = cells[a.tag].apply_range(cells[b.tag].reverse()).intersect(r.later(b.tag, a.tag).reverse())
                    if not pairs.is_empty():
                        named = pairs.set_tuple_name(T.in_, _name(r, a)).set_tuple_name(T.out, _name(r, b))
                        found = found.union(named.to_union_map())
    return Frozen.of(found.subtract(found.domain().identity()).coalesce())


def _name(r: Relations, a: Tagged) -> str:
    """The statement of an access of the original, whose loops are its instance."""
    leaf = r.sites[a.site].action
    assert isinstance(leaf, Leaf) and [e.single for e in leaf.instance] == r.variables(a.site)
    return leaf.statement
