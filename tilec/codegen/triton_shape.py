"""The shape in which a program becomes Triton text: a rewriting Program -> Program that keeps every value.

Triton pipelines a loop itself (`num_stages`) and has no index into a tile held in registers. So

1. a pipelined loop becomes the plain loop it came from: its copies run in their own iteration, the slots, waits and the copies
   ahead of the loop are gone, and the number of slots is remembered;
2. a loop over single elements with several actions becomes one loop per action, what it owns getting one cell per iteration;
   and so does every loop around nests of elements that are not one tile operation.

Both are undone only in the form that `pipeline` gives and by a syntactic rule; anything else is refused. Tests have every
rewritten program proved equal to the original by `poly.prove`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.errors import ScheduleError
from tilec.ir import tree
from tilec.ir.affine import Aff, Constraint, Div
from tilec.ir.program import (
    BLOCK_KINDS,
    THREAD_KINDS,
    Address,
    Barrier,
    Buffer,
    Commit,
    Copy,
    Guard,
    Loop,
    Node,
    Program,
    Wait,
)
from tilec.ir.tree import Body, sites
from tilec.lower.nests import constant_extent


@dataclass(frozen=True)
class Shaped:
    """The program without slots, and per pipelined loop (its variable) how many slots its buffers had."""

    program: Program
    stages: dict[str, int]


def shaped(program: Program) -> Shaped:
    """Raises ScheduleError where a loop is pipelined in another form than `pipeline` makes, or a layout is set by hand."""
    plain = _Unpipelined(tree.without_hints(program)).rewritten()
    return Shaped(_Distributed(plain.program).rewritten(), plain.stages)


class _Unpipelined:
    def __init__(self, program: Program):
        self.program = program
        self.stages: dict[str, int] = {}
        self.owner: dict[str, str] = {}  # slotted buffer -> the loop that fills it

    def rewritten(self) -> Shaped:
        body = self.body(self.program.body)
        buffers = tuple(self.buffer(b) for b in self.program.buffers)
        return Shaped(replace(self.program, body=body, buffers=buffers), self.stages)

    def buffer(self, b: Buffer) -> Buffer:
        if b.name not in self.owner:
            return b
        return replace(b, shape=b.shape[1:], owner=self.owner[b.name], layout=None)

    def body(self, body: Body) -> Body:
        out: list[Node] = []
        for node in body:
            if isinstance(node, Loop) and node.kind == "pipelined":
                node, ahead = self.loop(node)
                before = [n for n in out if not _fills(n, set(ahead))]
                self.check_prologue([n for n in out if _fills(n, set(ahead))], node, ahead)
                out = [n for n in before if not isinstance(n, Commit)]
            if isinstance(node, Loop | Guard):
                node = replace(node, body=self.body(node.body))
            out.append(node)
        return tuple(out)

    def loop(self, node: Loop) -> tuple[Loop, dict[str, Body]]:
        """The plain loop, and per slotted buffer the nest that fills it."""
        filled = {s.action.dst.buffer for s in sites(node.body) if isinstance(s.action, Copy) and s.action.asynchronous}
        counts = {self.program.buffer[b].shape[0] for b in filled}
        if not filled or len(counts) != 1 or not (count := next(iter(counts))).is_const:
            raise ScheduleError(f"emit(\"triton\"): '{node.var}' is pipelined in a form that pipeline(…) does not make")
        stages = count.const
        slot = Aff.of(node.var) % stages
        back = {node.var: Aff.of(node.var) - (stages - 1)}
        bounds = tree.loop_conditions(node)
        copies: list[Node] = []
        rest: list[Node] = []
        for child in node.body:
            if isinstance(child, Wait | Commit):
                continue
            if _fills(child, filled):
                copies += self.unslotted(_unguarded(tree.subs((child,), back), bounds), filled, slot, node.var)
            else:
                rest += self.unslotted((child,), filled, slot, node.var)
        self.stages[node.var] = stages
        self.owner |= dict.fromkeys(filled, node.var)
        by_buffer: dict[str, Body] = {}
        for name in filled:
            by_buffer[name] = tuple(n for n in copies if _fills(n, {name}))
        return replace(node, body=(*copies, *rest)), by_buffer

    def unslotted(self, body: Body, filled: set[str], slot: Aff, var: str) -> Body:
        def address(a: Address, logical: tuple[Aff, ...], write: bool) -> Address:
            if a.buffer not in filled:
                return a
            if a.index[0] != slot:
                raise ScheduleError(
                    f"emit(\"triton\"): {a.buffer} is used in slot {a.index[0]} under '{var}'; "
                    f"Triton's pipeline has slot {slot} only"
                )
            return Address(a.buffer, a.index[1:])

        def f(node: Node) -> Body:
            if isinstance(node, Loop | Guard):
                return (node,)
            new = tree.map_addresses(node, address, self.program)
            return (replace(new, asynchronous=False) if isinstance(new, Copy) and new.dst.buffer in filled else new,)

        return tree.transform(body, f)

    def check_prologue(self, nodes: list[Node], loop: Loop, ahead: dict[str, Body]) -> None:
        """The copies before the loop must be those of its first iterations: the ones dropped with them."""
        stages = self.stages[loop.var]
        low = loop.lower[0]
        for site in sites(tuple(nodes)):
            copy = site.action
            if not isinstance(copy, Copy):
                continue
            own = next((s for s in sites(ahead[copy.dst.buffer])), None)
            assert own is not None and isinstance(own.action, Copy)
            names = dict(zip((x.var for x in reversed(own.loops)), (x.var for x in reversed(site.loops)), strict=False))
            outer = [x.var for x in site.loops if x.var not in names.values()]
            iterations = [Aff.of(v) + low for v in outer[-1:]] or [low + n for n in range(stages - 1)]
            iterations += [Aff.of(v) for v in outer[-1:]]
            found = [own_at for at in iterations for own_at in [[e.subs({loop.var: at, **names}) for e in own.action.src.index]]]
            if list(copy.src.index) not in found:
                raise ScheduleError(
                    f"emit(\"triton\"): what is copied into {copy.dst.buffer} before '{loop.var}' is not what its first "
                    "iterations copy: pipeline(…) alone makes loops that Triton can pipeline"
                )


def _fills(node: Node, names: set[str]) -> bool:
    return any(isinstance(s.action, Copy) and s.action.dst.buffer in names for s in sites((node,)))


def _unguarded(body: Body, known: list[Constraint]) -> Body:
    """Without guards that the loop's own bounds say."""

    def f(node: Node) -> Body:
        if isinstance(node, Guard):
            left = tuple(c for c in node.conditions if c not in known)
            return (replace(node, conditions=left),) if left else node.body
        return (node,)

    return tree.transform(body, f)


class _Distributed:
    """Loops over single elements with several actions, one loop per action."""

    def __init__(self, program: Program):
        self.program = program

    def rewritten(self) -> Program:
        changed = True
        while changed:
            changed = False
            for position, loop in reversed(list(tree.loops(self.program.body))):
                around = tuple(n for n in tree.path_to(self.program.body, position) if isinstance(n, Loop))
                if self.splits(loop, around):
                    self.split(position, loop, around)
                    changed = True
                    break
        return self.program

    def splits(self, loop: Loop, around: tuple[Loop, ...]) -> bool:
        if loop.kind in (*BLOCK_KINDS, *THREAD_KINDS) or loop.kind == "pipelined":
            return False
        if len(loop.body) == 1 and not (self.owned(loop) and isinstance(loop.body[0], Loop | Guard)):
            return False
        return self.by_element(loop) and self.apart(loop) and any(x.kind in BLOCK_KINDS for x in around)

    def owned(self, loop: Loop) -> list[Buffer]:
        names = {a.buffer for s in sites(loop.body) for a, _, _ in tree.addresses(s.action, self.program)}
        return [b for b in self.program.buffers if b.owner == loop.var and b.name in names]

    def by_element(self, loop: Loop) -> bool:
        """Does the loop stand for one dimension, element by element, of what is written in it; are its own buffers scalars?"""
        if any(b.shape for b in self.owned(loop)):
            return False
        for s in sites(loop.body):
            written = [a for a, _, is_write in tree.addresses(s.action, self.program) if is_write]
            for a in written:
                if any(e.coefficient(loop.var) == 1 for e in a.index):
                    return True
        return False

    def apart(self, loop: Loop) -> bool:
        """May each action run over the whole loop before the next? What two of them touch and one writes is either the loop's
        own, or accessed in some dimension by one and the same index with the variable, and no variable of a loop inside."""
        inside = {x.var for _, x in tree.loops(loop.body)}
        if any(isinstance(s.action, Barrier | Commit | Wait) for s in sites(loop.body)):
            return False
        mine = {b.name for b in self.owned(loop)}
        touched: dict[str, list[tuple[int, tuple[Aff, ...]]]] = {}
        changed: set[str] = set()
        for n, child in enumerate(loop.body):
            for s in sites((child,)):
                for a, _, is_write in tree.addresses(s.action, self.program):
                    touched.setdefault(a.buffer, []).append((n, a.index))
                    changed |= {a.buffer} if is_write else set()
        for name in changed - mine:
            if len({n for n, _ in touched[name]}) == 1:
                continue
            (_, first), *others = touched[name]
            if not any(
                e.coefficient(loop.var)
                and not _divided(e, loop.var)
                and not e.names & inside
                and all(o[d] == e for _, o in others)
                for d, e in enumerate(first)
            ):
                return False
        return True

    def split(self, position: tuple[int, ...], loop: Loop, around: tuple[Loop, ...]) -> None:
        owned = {b.name: b for b in self.owned(loop)}
        extent = constant_extent(loop)
        gaps = [u - low for u in loop.upper for low in loop.lower]
        size = Aff(extent) if extent is not None else next((g for g in gaps if g.names <= set(self.program.sizes)), None)
        if owned and size is None:
            return
        lane = Aff.of(loop.var) - (loop.lower[0] if len(loop.lower) == 1 else 0)

        def address(a: Address, logical: tuple[Aff, ...], write: bool) -> Address:
            return Address(a.buffer, (lane, *a.index)) if a.buffer in owned else a

        def f(node: Node) -> Body:
            return (node,) if isinstance(node, Loop | Guard) else (tree.map_addresses(node, address, self.program),)

        body = tree.transform(loop.body, f) if owned else loop.body
        apart = tuple(replace(loop, body=(child,)) for child in body)
        owner = around[-1].var if around else None
        buffers = tuple(
            replace(b, shape=(size, *b.shape), owner=owner, placed=True) if b.name in owned and size is not None else b
            for b in self.program.buffers
        )
        self.program = replace(self.program, buffers=buffers, body=tree.put(self.program.body, position, apart))


def _divided(e: Aff, name: str) -> bool:
    return any(name in a.num.names for a, _ in e.terms if isinstance(a, Div))
