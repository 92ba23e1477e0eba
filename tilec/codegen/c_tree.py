"""The tree of a program, node by node; below the owner of variables, versions for full tiles and for those that a bound cuts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.codegen import c_arithmetic
from tilec.codegen.c_face import pack_entry
from tilec.codegen.c_helpers import ELEMENT
from tilec.codegen.c_loops import Loops
from tilec.codegen.c_place import NotVector, Place, everywhere, extent
from tilec.codegen.c_scope import LANE, Range, bounds
from tilec.ir.affine import Constraint
from tilec.ir.printer import owned
from tilec.ir.program import Barrier, Buffer, Commit, Copy, Guard, Identity, Leaf, Loop, Merge, Node, Prefetch, Wait
from tilec.ir.tree import sites
from tilec.lower.nests import written_buffers

LARGEST = 2**31 - 1


class Tree(Loops):
    """Everything: nodes, guards and versions on top of the loops."""

    def run(self) -> None:
        """Write the whole program."""
        place = Place(ranges={n: (1, LARGEST) for n in self.program.sizes})
        declared = owned(self.program, (), None)
        packed = [b for b in declared if b.prepacked]
        if not packed:
            self.nodes(self.program.body, place, declared)
            return
        for b in declared:
            place = self.declare(b, place)
        for node in self.program.body:
            filled = next((b for b in packed if b.name in written_buffers(node)), None)
            if filled is not None:
                self._packing(node, filled, place)
            else:
                self.loads = {}
                self._versions((node,), place)

    def _packing(self, node: Node, b: Buffer, place: Place) -> None:
        """A nest that fills a copy which the caller may bring: lines of a function of its own, and its call."""
        outer, self.lines = self.lines, []
        self._versions((node,), place)
        mine, self.lines = self.lines, outer
        before = self.packs.get(b.name)
        self.packs[b.name] = [*(before or []), *mine]
        if before is None:  # not the rest of a peeled loop
            name = self.names[b.name]
            given = [self.names[b.root or ""], *(self.names[n] for n in self.program.sizes), f"({ELEMENT[b.dtype]} *){name}"]
            call = f"{pack_entry(self.program, b.name)}({', '.join([*given, 'threads'])});"
            self.line(place, f"if ({name}_packed == NULL) {call}")

    def nodes(self, body: tuple[Node, ...], place: Place, declared: list[Buffer]) -> None:
        for b in declared:
            place = self.declare(b, place)
        tile = any(b.shape and self.storage.in_variables(b) for b in declared)
        self._versions(body, replace(place, tile=place.tile or tile))

    def _versions(self, body: tuple[Node, ...], place: Place) -> None:
        """Below the owner of variables: full tiles, those that only the first bound (of rows) cuts, the rest."""
        needed = self._fullness(body, place) if place.tile and not place.partial else {}
        if not needed:
            self.each(body, place)
            return
        loops = list(needed.values())
        all_ = [f"all {self._full(x, place)} of {x.var}" for x in loops]
        self.open(place, f"if ({self.scope(place).conditions(needed)}) {{  // a full tile: {', '.join(all_)}")
        inside, branch = replace(place, depth=place.depth + 1, tile=False), self.branch()
        self.each(body, inside.version(branch, 0).knowing(needed))
        first, *others = needed
        if others:
            rows = replace(inside.version(branch, 1), partial=True).knowing([*others, Constraint(-first.expr - 1)])
            note = ", ".join([self._cut(loops[0], place, rows), *all_[1:]])
            self.close(place, f"}} else if ({self.scope(place).conditions(others)}) {{  // {note}")
            self.each(body, rows)
        last = Constraint(-list(needed)[-1].expr - 1)
        rest = replace(inside.version(branch, 2), partial=True).knowing([last] if len(needed) <= 2 else [])
        note = self._cut(loops[-1], place, rest) if len(needed) <= 2 else "the rest"
        self.close(place, f"}} else {{  // {note}")
        self.each(body, rest)
        self.close(place)

    def _full(self, node: Loop, place: Place) -> int:
        """Its iterations in a full tile."""
        ext = extent(node, place)
        assert ext is not None
        return ext.most

    def _cut(self, node: Loop, place: Place, inside: Place) -> str:
        """What is left of a loop in a tile that is not full."""
        ext = extent(node, inside)
        if ext is not None and ext.exact:
            return f"the last {ext.most} of {node.var}"
        return f"fewer than {self._full(node, place)} of {node.var}"

    def _fullness(self, body: tuple[Node, ...], place: Place) -> dict[Constraint, Loop]:
        """Conditions on what is known here under which written-out and vector loops inside have constant bounds: whose."""
        found: dict[Constraint, Loop] = {}

        def go(nodes: tuple[Node, ...], inner: Mapping[str, Range]) -> None:
            for node in nodes:
                if isinstance(node, Loop):  # guards tell their own versions apart
                    ext = extent(node, place)
                    ranges: Range = (float("-inf"), float("inf"))
                    if ext is not None:
                        low, high = bounds(ext.start, {**place.ranges, **inner})
                        ranges = (low, high + ext.most - 1)
                        if node.kind == "vector" or self.written_out(node, ext):
                            for c in ext.needed:
                                least = everywhere(c.expr, inner)
                                if least is not None and not least.is_const:
                                    known = found.get(Constraint(least))
                                    if known is None or (_computes(node) and not _computes(known)):
                                        found[Constraint(least)] = node
                    go(node.body, {**inner, node.var: ranges})

        go(body, {})
        return {c: loop for c, loop in found.items() if place.holds(c) is None}

    def each(self, body: tuple[Node, ...], place: Place) -> None:
        for node in body:
            match node:
                case Loop():
                    self.loop(node, place)
                case Guard():
                    self._guard(node, place)
                case Barrier() | Commit() | Wait():
                    what = f"wait({node.n})" if isinstance(node, Wait) else type(node).__name__.lower()
                    self.line(place, f"// {what}: everything before is done already")
                case Prefetch():
                    self.prefetch(node, place)
                case Leaf():
                    self.leaf(node, place)
                case Copy() | Identity() | Merge():
                    self.move(node, place)

    def _guard(self, node: Guard, place: Place) -> None:
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


def _computes(node: Loop) -> bool:
    """Is a statement inside, which is better to name than what copies around it?"""
    return any(isinstance(site.action, Leaf) for site in sites(node.body))
