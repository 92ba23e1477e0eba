"""Perfect nests as operations on arrays: which loops of a nest may run as one array operation, in which order of the rest.

A loop is a *vector axis* when its iterations write disjoint rows of the target and read no row that another one writes: then it
may move inside every other loop of the nest, and every cell still sees its updates in the written order. The rule is syntactic:

1. one dimension of the target holds the loop's variable outside divisions, no other vector axis, and no variable of a loop
   inside this one that stays explicit;
2. no bound of another vector axis or of an explicit loop inside it uses the variable, nor does its own bound use a vector axis;
3. a read of the target's buffer has in that dimension the target's own index;
4. no condition that could not become a bound uses the variable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilec.ir import tree
from tilec.ir.affine import Aff, AffLike, Constraint, Div, ceil_div
from tilec.ir.printer import owned
from tilec.ir.program import BLOCK_KINDS, Barrier, Commit, Copy, Guard, Identity, Leaf, Loop, Merge, Node, Prefetch, Program, Wait
from tilec.lower.cells import Cells


@dataclass(frozen=True)
class Nest:
    """Loops (their own bodies don't matter) and conditions around one action, under the loops `outer`."""

    outer: tuple[Loop, ...]
    loops: tuple[Loop, ...]
    conditions: tuple[Constraint, ...]
    action: Leaf | Copy | Identity | Merge

    @property
    def around(self) -> tuple[Loop, ...]:
        return (*self.outer, *self.loops)


def perfect(program: Program, node: Node, outer: tuple[Loop, ...]) -> Nest | None:
    """The perfect nest that starts at `node`, its guards folded into bounds where possible; None when it is not one.

    Block loops and loops that own a buffer are left to their own line.
    """
    loops: list[Loop] = []
    conditions: list[Constraint] = []
    while isinstance(node, Loop | Guard):
        if len(node.body) != 1:
            return None
        if isinstance(node, Guard):
            conditions += node.conditions
        elif node.kind in BLOCK_KINDS or owned(program, (*outer, *loops), node):
            return None
        else:
            loops.append(node)
        node = node.body[0]
    if isinstance(node, Barrier | Commit | Wait | Prefetch):
        return None
    return _folded(Nest(outer, tuple(loops), tuple(conditions), node))


def _inside(e: Aff) -> frozenset[str]:
    """The names inside divisions."""
    return frozenset().union(*(a.num.names for a, _ in e.terms if isinstance(a, Div)))


def _folded(nest: Nest) -> Nest:
    loops = {loop.var: loop for loop in nest.loops}
    order = [loop.var for loop in nest.loops]
    rest: list[Constraint] = []
    for c in nest.conditions:
        inner = [v for v in order if v in c.names]
        if not inner or c.equal or inner[-1] in _inside(c.expr):
            rest.append(c)
            continue
        v = inner[-1]
        n, loop = c.expr.coefficient(v), loops[v]
        other = c.expr - Aff.of(v) * n
        if n > 0:  # v >= -other/n
            loops[v] = replace(loop, lower=_with(loop.lower, ceil_div(-other, n)))
        else:  # v <= other/-n
            loops[v] = replace(loop, upper=_with(loop.upper, other // -n + 1))
    return replace(nest, loops=tuple(loops[v] for v in order), conditions=tuple(rest))


def _with(bounds: tuple[Aff, ...], new: Aff) -> tuple[Aff, ...]:
    return bounds if new in bounds else (*bounds, new)


def bound_names(loop: Loop) -> frozenset[str]:
    return frozenset().union(*(e.names for e in (*loop.lower, *loop.upper)))


def constant_extent(loop: Loop, sizes: Mapping[str, AffLike] | None = None) -> int | None:
    """The least constant that bounds the number of iterations, by the form of the bounds (with numbers for the given sizes)."""
    gaps = [(u - low).subs(sizes or {}) for u in loop.upper for low in loop.lower]
    found = [g.const for g in gaps if g.is_const]
    return max(min(found), 0) if found else None


@dataclass(frozen=True)
class Split:
    """A nest in the order in which it may run: explicit loops, then vector axes all at once."""

    nest: Nest
    explicit: tuple[Loop, ...]
    vector: tuple[Loop, ...]


def target_of(action: Leaf | Copy | Identity | Merge):
    """The address written."""
    return action.target if isinstance(action, Leaf) else action.dst


def written_buffers(node: Node) -> set[str]:
    """What the actions below write."""
    actions = [node] if not isinstance(node, Loop | Guard) else [s.action for s in tree.sites(node.body)]
    return {target_of(a).buffer for a in actions if isinstance(a, Leaf | Copy | Identity | Merge)}


def reads_of(program: Program, action: Leaf | Copy | Identity | Merge):
    """Every address read, also by inlined statements; the old value of an update is not listed."""
    return [a for a, _, is_write in tree.addresses(action, program) if not is_write]


def split(nest: Nest, cells: Cells, plain: bool = False) -> Split:
    """Vector axes by the rule above, as many as possible from the innermost outward.

    `plain`: only axes that are also a plain slice of every read: at most one axis in a dimension, with coefficient 1.
    """
    program, around = cells.program, nest.around
    target = target_of(nest.action)
    written = cells.index(target, around)
    reads = [(a.buffer, cells.index(a, around)) for a in reads_of(program, nest.action)]
    aliases = [index for buffer, index in reads if buffer == target.buffer]
    stuck = frozenset().union(*(c.names for c in nest.conditions))
    vector: list[Loop] = []
    dimensions: set[int] = set()
    for n in reversed(range(len(nest.loops))):
        loop = nest.loops[n]
        v, deeper = loop.var, nest.loops[n + 1 :]
        axes = {axis.var for axis in vector}
        explicit = {inner.var for inner in deeper} - axes
        if v in stuck or any(v in bound_names(inner) for inner in deeper) or bound_names(loop) & axes:
            continue
        if any(v in written[d].names for d in dimensions):
            continue
        free = [
            d
            for d, e in enumerate(written)
            if e.coefficient(v) and v not in _inside(e) and not e.names & (axes | explicit) and all(r[d] == e for r in aliases)
        ]
        if not free or (plain and not all(is_plain(index, {*axes, v}) for index in (written, *(r for _, r in reads)))):
            continue
        vector.insert(0, loop)
        dimensions.add(free[0])
    axes = {axis.var for axis in vector}
    return Split(nest, tuple(loop for loop in nest.loops if loop.var not in axes), tuple(vector))


def independent(loop: Loop, outer: tuple[Loop, ...], cells: Cells, scalars: frozenset[str]) -> bool:
    """May all iterations of a loop over several actions run together, action by action, each over an array axis for the loop?

    Every buffer written inside is either a scalar (one of `scalars`) owned at or below the loop, which then gets one value per
    iteration (a tile per iteration would need too much memory), or it is accessed by one index in some dimension that holds the
    variable, and no variable of a loop inside.
    """
    program = cells.program
    inside = [node for _, node in tree.loops(loop.body)]
    if loop.kind in BLOCK_KINDS or len(loop.lower) > 1 or any(loop.var in bound_names(node) for node in inside):
        return False
    private = {node.var for node in (loop, *inside)}
    names = {node.var for node in inside}
    touched: dict[str, list[tuple[Aff, ...]]] = {}
    changed: set[str] = set()
    for site in tree.sites(loop.body, path=(*outer, loop)):
        conditions = [c for node in site.path if isinstance(node, Guard) for c in node.conditions]
        if isinstance(site.action, Barrier | Commit | Wait) or any(loop.var in c.names for c in conditions):
            return False
        for a, _, is_write in tree.addresses(site.action, program):
            touched.setdefault(a.buffer, []).append(cells.index(a, site.loops))
            if is_write:
                changed.add(a.buffer)
    for name in changed:
        if program.buffer[name].owner in private:
            if name not in scalars:
                return False
            continue
        first, *others = touched[name]
        if not any(
            e.coefficient(loop.var) and loop.var not in _inside(e) and not e.names & names and all(o[d] == e for o in others)
            for d, e in enumerate(first)
        ):
            return False
    return True


def is_plain(index: tuple[Aff, ...], axes: set[str]) -> bool:
    """Is an access a plain slice along `axes`? Each axis in at most one dimension, alone there, with coefficient 1."""
    seen: set[str] = set()
    for e in index:
        mine = e.names & axes
        if len(mine) > 1 or mine & seen or mine & _inside(e) or any(e.coefficient(v) != 1 for v in mine):
            return False
        seen |= mine
    return True
