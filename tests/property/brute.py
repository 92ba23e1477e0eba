"""The independent judge of the proof: executes both programs at small sizes, instance by instance, and compares.

Nothing of tilec.poly is used, only the nodes of tilec.ir. A program is walked in tree order. Instead of a number every cell holds
its *content*, which says where the value comes from:

    None                        undefined
    ("init", buffer, index)     the value at the start of an array parameter's element
    (statement, instance)       what that instance of an original statement stored
    ("sum", op, contributions)  an order-free reduction: the multiset {content: how often} of all that has been combined

A copy moves a content. A read is right when it finds the content that the same read of the original program finds. For reductions
that may be reordered (`permitted`) an update adds itself to the multiset, so equality of contents is "each contribution
exactly once, the initial value as one of them". Storage: a content lives in a cell and belongs to one iteration of the buffer's
owner; in any other iteration the cell is undefined. Concurrency: any two accesses of one cell, one a write, must be ordered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, islice
from typing import Any, NamedTuple

from tilec.ir import program as ir
from tilec.ir.affine import Aff
from tilec.ir.tree import sites

Index = tuple[int, ...]
Env = dict[str, int]
Content = Any  # None or a tuple, as above
APART = ("parallel", "vector", *ir.BLOCK_KINDS)
NEVER = float("inf")  # the completion time of a copy that nobody waits for


class Fault(NamedTuple):
    kind: str  # wrong source, lost value, race, bounds, domain, repeated, missing, permission
    text: str


class Judgement(NamedTuple):
    faults: tuple[Fault, ...]

    @property
    def legal(self) -> bool:
        return not self.faults

    def __str__(self) -> str:
        return "; ".join(f"{f.kind}: {f.text}" for f in self.faults[:4]) or "legal"


class Step(NamedTuple):
    """One loop around an action, at one iteration."""

    position: Index  # which loop of the tree
    var: str
    kind: str
    value: int
    first: int  # the lower bound


Path = tuple[Step, ...]
Body = tuple[ir.Node, ...]


@dataclass
class Event:
    """One executed action that touches cells: it starts at `time` and is complete at `end` (later for asynchronous copies)."""

    time: int
    path: Path
    text: str
    end: float
    block: tuple  # the launch (top-level nest) and the block inside it
    thread: Index


def permitted(program: ir.Program) -> frozenset[str]:
    """The updating statements whose order is free: named float sums, max and min, wrapping i32 sums and products.

    An element updated by two different operations keeps its order: max(a + b, c) is not a + max(b, c).
    """
    free: set[str] = set()
    for buffer in program.source.buffer:
        updates = [s for s in program.statements if s.target.buffer == buffer and s.op != "="]
        ops = {s.op for s in updates}
        i32 = program.source.buffer[buffer].dtype == "i32"
        named = ops == {"+="} and buffer in program.reassociate
        if len(ops) == 1 and (named or i32 or ops <= {"max=", "min="}):
            free |= {s.name for s in updates}
    return frozenset(free)


def combine(op: str, *parts: Content) -> Content:
    """The multiset of everything in `parts`; combining a single contribution with the identity leaves that contribution."""
    total: Counter = Counter()
    for part in parts:
        if isinstance(part, tuple) and part[0] == "sum" and part[1] == op:
            total.update(dict(part[2]))
        else:
            total[part] += 1
    return next(iter(total)) if sum(total.values()) == 1 else ("sum", op, frozenset(total.items()))


def show(content: Content) -> str:
    if content is None:
        return "undefined"
    if content[0] == "sum":
        return f"{content[1]} of {{{', '.join(f'{n} x {show(c)}' for c, n in sorted(content[2], key=str))}}}"
    return f"the initial {instance_text(*content[1:])}" if content[0] == "init" else instance_text(*content)


def numbers(affs: tuple[Aff, ...], env: Env) -> Index:
    return tuple(e.eval(env) for e in affs)


def instance_text(name: str, index: Index) -> str:
    return f"{name}[{','.join(map(str, index))}]"


class Machine:
    """Executes one program at fixed sizes, and holds everything that happened."""

    def __init__(self, program: ir.Program, sizes: Mapping[str, int], free: frozenset[str]):
        self.program, self.sizes, self.free = program, dict(sizes), free
        self.reads: list[tuple[str, Index, int, Content, str]] = []  # n = -1: the old value
        self.executed: Counter = Counter()
        self.written: Counter = Counter()  # executions that stored their result (not inlined ones)
        self.touched: dict[tuple, list[tuple[Event, bool]]] = {}  # cell -> accesses (event, write?)
        self.barriers: dict[tuple, list[int]] = {}  # block -> times
        self.faults: list[Fault] = []
        self.cells: dict[tuple, tuple[tuple, Content]] = {}  # cell -> (owner iteration, content)
        self.time = 0
        self.open: dict[tuple, list[Event]] = {}  # crew -> asynchronous copies since the last commit
        self.groups: dict[tuple, list[list[Event]]] = {}  # crew -> groups in flight, oldest first
        sync = [s.position for s in sites(program.body) if isinstance(s.action, ir.Barrier | ir.Commit | ir.Wait)]
        self.syncing = {p[:n] for p in sync for n in range(1, len(p))}  # loops with such an action inside
        self.shape = {b.name: tuple(e.eval(self.sizes) for e in b.shape) for b in program.buffers}
        self.free_roots = {(program.statement[s].target.buffer, program.statement[s].op) for s in free}
        for action, position, path, env in self.walk(program.body, (), (), self.sizes):
            self.time += 1
            self.execute(action, position[0], path, env)
        params = {b.name for b in program.buffers if b.role == "param"}
        self.final = {cell[:2]: content for cell, (_, content) in self.cells.items() if cell[0] in params}

    def walk(self, body: Body, position: Index, path: Path, env: Env) -> Iterator[tuple[ir.Action, Index, Path, Env]]:
        for n, node in enumerate(body):
            here = (*position, n)
            if isinstance(node, ir.Guard):
                if all(c.holds(env) for c in node.conditions):
                    yield from self.walk(node.body, here, path, env)
            elif isinstance(node, ir.Loop):
                first = max(e.eval(env) for e in node.lower)
                for value in range(first, min(e.eval(env) for e in node.upper)):
                    step = Step(here, node.var, node.kind, value, first)
                    yield from self.walk(node.body, here, (*path, step), {**env, node.var: value})
            else:
                yield node, here, path, env

    def execute(self, action: ir.Action, launch: int, path: Path, env: Env) -> None:
        """`launch`: which top-level nest the action stands in."""
        block = (launch, *((s.kind, s.value) for s in path if s.kind in ir.BLOCK_KINDS))
        thread = tuple(next((s.value - s.first for s in path if s.kind == kind), 0) for kind in ir.THREAD_KINDS)
        dst = getattr(action, "dst", None)
        text = type(action).__name__ + (f" into {instance_text(dst.buffer, numbers(dst.index, env))}" if dst else "")
        crew = tuple(s for s in path if s.kind in APART and s.position in self.syncing)  # who shares groups of copies
        event = Event(self.time, path, text, self.time, block, thread)
        match action:
            case ir.Leaf():
                self.leaf(action, event, env)
            case ir.Copy():
                if action.asynchronous:
                    event.end = NEVER
                    self.open.setdefault(crew, []).append(event)
                self.store(action.dst, self.load(action.src, event, env), event, env)
            case ir.Identity():
                self.store(action.dst, ("sum", action.op, frozenset()), event, env)
            case ir.Merge():
                old, new = self.load(action.dst, event, env), self.load(action.src, event, env)
                buffer = self.program.buffer[action.dst.buffer]
                if (buffer.root or buffer.name, action.op) not in self.free_roots:
                    self.fault("permission", f"{event.text} combines with {action.op} what must keep its order")
                self.store(action.dst, combine(action.op, old, new), event, env)  # what is undefined stays in the multiset
            case ir.Barrier():
                self.barriers.setdefault(block, []).append(self.time)
            case ir.Commit():
                self.groups.setdefault(crew, []).append(self.open.pop(crew, []))
            case ir.Wait(n=n):
                groups = self.groups.setdefault(crew, [])
                for copy in (c for group in groups[: max(0, len(groups) - n)] for c in group):
                    copy.end = self.time
                del groups[: max(0, len(groups) - n)]

    def leaf(self, leaf: ir.Leaf, event: Event, env: Env) -> None:
        statement = self.program.statement[leaf.statement]
        instance = numbers(leaf.instance, env)
        event.text = instance_text(statement.name, instance)
        self.evaluate(leaf.statement, instance, leaf.reads, event, env)
        self.written[statement.name, instance] += 1
        content: Content = (statement.name, instance)
        old = self.load(leaf.target, event, env) if statement.op != "=" else None
        if statement.op != "=" and statement.name not in self.free:
            self.reads.append((statement.name, instance, -1, old, event.text))
        elif statement.op != "=":
            content = combine(statement.op, old, content)
        self.store(leaf.target, content, event, env)

    def evaluate(self, name: str, instance: Index, reads: tuple[ir.Read, ...], event: Event, env: Env) -> None:
        """One execution of a statement: its domain and its reads, inlined ones included."""
        statement = self.program.statement[name]
        self.executed[name, instance] += 1
        inside = {**self.sizes, **dict(zip(statement.loops, instance, strict=True))}
        if not all(c.holds(inside) for c in statement.domain):
            self.fault("domain", f"{instance_text(name, instance)} is not an instance of the original")
        for n, read in enumerate(reads):
            if isinstance(read, ir.Inline):
                inner = numbers(read.instance, env)
                self.evaluate(read.statement, inner, read.reads, event, env)
                content: Content = (read.statement, inner)
            else:
                content = self.load(read, event, env)
            self.reads.append((name, instance, n, content, event.text))

    def cell(self, address: ir.Address, event: Event, env: Env, write: bool) -> tuple[tuple, tuple]:
        """(what identifies the location, the owner iteration it belongs to now)."""
        buffer = self.program.buffer[address.buffer]
        index = numbers(address.index, env)
        above: Path = ()
        if buffer.owner is not None:  # the verifier of the tree sees to it that every access lies in its owner
            above = event.path[: [s.var for s in event.path].index(buffer.owner) + 1]
        if not all(0 <= x < extent for x, extent in zip(index, self.shape[buffer.name], strict=True)):
            self.fault("bounds", f"{event.text} accesses {instance_text(buffer.name, index)} outside its shape")
        private = tuple((s.kind, s.value) for s in above if s.kind in ir.UNORDERED_KINDS)
        threads = event.thread if buffer.memory == "register" else ()
        if buffer.owner is None and buffer.memory in ("shared", "register") and self.program.has_launches:
            private = (("launch", event.block[0]),)  # a launch leaves nothing there
        cell = (buffer.name, index, private, threads)
        self.touched.setdefault(cell, []).append((event, write))
        return cell, above

    def load(self, address: ir.Address, event: Event, env: Env) -> Content:
        cell, iteration = self.cell(address, event, env, write=False)
        if cell not in self.cells:
            return ("init", cell[0], cell[1]) if self.program.buffer[cell[0]].role == "param" else None
        owner, content = self.cells[cell]
        return content if owner == iteration else None

    def store(self, address: ir.Address, content: Content, event: Event, env: Env) -> None:
        cell, iteration = self.cell(address, event, env, write=True)
        self.cells[cell] = (iteration, content)

    def fault(self, kind: str, text: str) -> None:
        self.faults.append(Fault(kind, text))


def races(run: Machine) -> Iterator[Fault]:
    """Every pair of conflicting accesses that nothing orders, and copies into arguments that nothing awaits."""
    for cell, accesses in run.touched.items():
        for event, write in accesses:
            if write and event.end == NEVER and run.program.buffer[cell[0]].role == "param":
                yield Fault("race", f"{event.text} on {instance_text(cell[0], cell[1])} may still run at the end")
        for (first, write1), (second, write2) in combinations(accesses, 2):
            if (write1 or write2) and first is not second and not ordered(first, second, run):
                yield Fault("race", f"{first.text} and {second.text} on {instance_text(cell[0], cell[1])}")


def ordered(first: Event, second: Event, run: Machine) -> bool:
    """Is `first` complete before `second` starts, in every execution that the loop kinds and barriers allow?"""
    for a, b in zip(first.path, second.path, strict=False):
        if a != b:
            if a.position == b.position and a.kind in ("parallel", "vector"):
                return False
            break
    if first.block[0] == second.block[0]:
        if first.block != second.block:
            return False
        if first.thread != second.thread:
            return any(first.end < t < second.time for t in run.barriers.get(first.block, ()))
    return first.end < second.time


def judge(original: ir.Program, program: ir.Program, sizes: Mapping[str, int]) -> Judgement:
    """Is `program` equal to `original` at these sizes? Faults are listed in the order found, at most a few hundred."""
    free = permitted(program)
    want, have = Machine(original, sizes, free), Machine(program, sizes, free)
    assert not want.faults, want.faults
    faults = have.faults
    needs = {(name, instance, n): content for name, instance, n, content, _ in want.reads}
    for name, instance, n, content, by in have.reads:
        need = needs.get((name, instance, n))  # None outside the domain
        if content is None or content != need:
            text = f"read {n} of {instance_text(name, instance)} (in {by}) is {show(content)}, needs {show(need)}"
            faults.append(Fault("wrong source", text))
    for buffer, index in sorted(want.final.keys() | have.final.keys()):
        untouched = ("init", buffer, index)
        got, need = have.final.get((buffer, index), untouched), want.final.get((buffer, index), untouched)
        if got != need:
            faults.append(Fault("lost value", f"{instance_text(buffer, index)} ends as {show(got)}, needs {show(need)}"))
    for name, instance in want.written:
        if original.buffer[original.statement[name].target.buffer].role == "param" and not have.written[name, instance]:
            faults.append(Fault("missing", f"{instance_text(name, instance)} is never executed"))
    for (name, instance), times in have.executed.items():
        if times > 1 and name not in program.recomputed:
            faults.append(Fault("repeated", f"{instance_text(name, instance)} is executed {times} times"))
    return Judgement((*faults, *islice(races(have), 100)))
