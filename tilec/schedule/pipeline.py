"""pipeline: the copies of later iterations run during the compute of this one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.layouts import triples
from tilec.ir.program import THREAD_KINDS, Address, Buffer, Commit, Copy, Guard, Layout, Loop, Node, Program, Wait
from tilec.ir.tree import Body, Position, loop_conditions, loops, map_addresses, path_to, put, rename_loop, sites, subs, transform
from tilec.poly.bounds import simplify
from tilec.schedule.core import integer, primitive
from tilec.schedule.names import find_loop, free_name, loop_at, taken
from tilec.schedule.nest import guarded, simple
from tilec.schedule.placement_uses import conditions_to, inside, loops_to, uses


@primitive("storage")
def pipeline(program: Program, loop: str, stages: int) -> Program:
    """Give the buffers that copies directly under a loop fill `stages` slots, and copy `stages - 1` iterations ahead.

    1. `stages` is an integer >= 1; 1 changes nothing.
    2. The loop is serial, has one lower bound, and stands under no thread loop and no guard.
    3. Directly under it stand nests of copies into caches that it owns, filled by nothing else, from something that is neither
       itself pipelined here nor owned by the loop.

        for ko:                              A_shared: bf16[2, 64, 32]
            A_shared: bf16[64, 32]           async A_shared[0, ..] = A[.., 0]; commit
            A_shared = A[.., ko]      ->     for ko:                                    # pipelined
            compute(A_shared)                    wait(0)
                                                 if ko + 1 < ..: async A_shared[(ko + 1) % 2, ..] = A[.., ko + 1]
                                                 commit
                                                 compute(A_shared[ko % 2, ..])

    The slot of an iteration is `ko % stages`. The copy for ko + stages - 1 is issued after the compute of ko - 1, whose slot it
    takes, and may run during the compute of ko. Every iteration commits one group, an empty one where nothing is left to copy.
    """
    position = find_loop(program, loop)
    stages = integer(stages, "stages")
    node = loop_at(program, position)
    if node.kind != "serial":
        raise ScheduleError(f"'{loop}' is {node.kind}: only a serial loop can be pipelined")
    if len(node.lower) != 1:
        raise ScheduleError(f"'{loop}' starts at max({', '.join(map(str, node.lower))}): a pipelined loop needs one lower bound")
    threads = [x.var for x in loops_to(program.body, position) if x.kind in THREAD_KINDS]
    if threads:
        raise ScheduleError(
            f"'{loop}' is under the thread loop '{threads[0]}': the whole block waits, so pipeline stands outside threads"
        )
    if any(isinstance(n, Guard) for n in path_to(program.body, position)):
        raise ScheduleError(f"'{loop}' is under a guard: commit and wait may not be skipped")
    filled = _filled(program, position, node)
    if not filled:
        raise ScheduleError(
            f"no nest of copies directly under '{loop}' fills a cache that '{loop}' owns. Use cache_read(…, at=\"{loop}\") first"
        )
    if stages == 1:
        return program
    return _Pipeline(program, position, node, stages, filled).rewritten()


def _filled(program: Program, position: Position, node: Loop) -> dict[int, list[str]]:
    """Children of the loop that only copy into caches it owns -> those caches."""
    candidates: dict[int, list[Copy]] = {}
    for n, child in enumerate(node.body):
        actions = [s.action for s in sites((child,))]
        copies = [a for a in actions if isinstance(a, Copy) and not a.asynchronous]
        if len(copies) == len(actions) and all(_owned(program, a.dst.buffer, node.var) for a in copies):
            candidates[n] = copies
    while True:
        names = {a.dst.buffer for copies in candidates.values() for a in copies}
        # filled elsewhere too, or from what an iteration makes for itself or fetches ahead: stays with the compute
        bad = {
            n
            for n, copies in candidates.items()
            if any(a.src.buffer in names or program.buffer[a.src.buffer].owner == node.var for a in copies)
        }
        for name in names:
            for u in uses(program, name):
                if u.write and not (inside(u.position, position) and u.position[len(position)] in candidates):
                    bad |= {n for n, copies in candidates.items() if any(a.dst.buffer == name for a in copies)}
        if not bad:
            return {n: list(dict.fromkeys(a.dst.buffer for a in copies)) for n, copies in candidates.items()}
        candidates = {n: copies for n, copies in candidates.items() if n not in bad}


def _owned(program: Program, name: str, var: str) -> bool:
    b = program.buffer[name]
    return b.role == "cache" and b.owner == var


class _Pipeline:
    """The rewrite; `ahead` is how many iterations a copy runs before its compute."""

    def __init__(self, program: Program, position: Position, node: Loop, stages: int, filled: dict[int, list[str]]):
        self.program, self.position, self.node, self.stages = program, position, node, stages
        self.ahead = stages - 1
        self.names = {name for names in filled.values() for name in names}
        slotted = transform(node.body, self.with_slot)
        self.copies = transform(tuple(n for k, n in enumerate(slotted) if k in filled), _asynchronous)
        self.compute = tuple(n for k, n in enumerate(slotted) if k not in filled)
        self.known = conditions_to(program.body, position[:-1])

    def rewritten(self) -> Program:
        var = self.node.var
        ahead = self.fetched(Aff.of(var) + self.ahead, (*self.known, *conditions_to(self.program.body, self.position)))
        body = (Wait(self.stages - 2), *ahead, Commit(), *self.compute)
        main = replace(self.node, body=body, kind="pipelined")
        around = loops_to(self.program.body, self.position[:-1])
        owner = around[-1].var if around else None
        buffers = tuple(self.slots(b, owner) if b.name in self.names else b for b in self.program.buffers)
        return replace(self.program, buffers=buffers, body=put(self.program.body, self.position, (*self.prologue(), main)))

    def slots(self, b: Buffer, owner: str | None) -> Buffer:
        return replace(b, shape=(Aff(self.stages), *b.shape), owner=owner, layout=_behind_slot(b.layout))

    def with_slot(self, node: Node) -> Body:
        if isinstance(node, Loop | Guard):
            return (node,)
        slot = Aff.of(self.node.var) % self.stages

        def address(a: Address, logical: tuple[Aff, ...], write: bool) -> Address:
            return Address(a.buffer, (slot, *a.index)) if a.buffer in self.names else a

        return (map_addresses(node, address, self.program),)

    def fetched(self, iteration: Aff, known: Sequence[Constraint]) -> Body:
        """The copies of that iteration, where the loop has it."""
        inside_ = [Constraint.lt(iteration, up) for up in self.node.upper]
        guards = simplify(inside_, known, self.program.sizes, self.program.where)
        body = subs(self.copies, {self.node.var: iteration})
        return guarded(guards, self.trimmed(body, [*known, *inside_]))

    def trimmed(self, body: Body, known: Sequence[Constraint]) -> Body:
        """Without the bounds that say nothing in those iterations."""
        out: list[Node] = []
        for node in body:
            if isinstance(node, Loop):
                node = simple(self.program, node, known)
                node = replace(node, body=self.trimmed(node.body, [*known, *loop_conditions(node)]))
            elif isinstance(node, Guard):
                node = replace(node, body=self.trimmed(node.body, [*known, *node.conditions]))
            out.append(node)
        return tuple(out)

    def prologue(self) -> Body:
        """The first stages - 1 groups; their copies' loops get names of their own."""
        low = self.node.lower[0]
        if self.ahead == 1:
            body = (*self.fetched(low, self.known), Commit())
        else:
            var = free_name(self.program, f"{self.node.var}_pre")
            known = (*self.known, Constraint.ge(var, 0), Constraint.lt(var, self.ahead))
            body = (Loop(var, (Aff(0),), (Aff(self.ahead),), (*self.fetched(low + var, known), Commit())),)
        for name in dict.fromkeys(x.var for _, x in loops(self.copies)):
            if name in taken(self.program):
                body = rename_loop(body, name, free_name(self.program, f"{name}_pre"))
        return body


def _asynchronous(node: Node) -> Body:
    return (replace(node, asynchronous=True),) if isinstance(node, Copy) else (node,)


def _behind_slot(layout: Layout | None) -> Layout | None:
    """The layout with its dimensions counted behind the slot axis."""
    if layout is None:
        return None
    if layout.name == "digits":
        return replace(layout, args=(0, 1, 0, *(n for d, e, m in triples(layout.args) for n in (d + 1, e, m))))
    first, second = layout.args
    return replace(layout, args=(first + 1, second + (layout.name == "xor")))
