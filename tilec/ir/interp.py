"""The interpreter: runs the tree of any Program, original or scheduled, in its order, on its physical cells.

It is the reference of every backend. Each action follows DESIGN's numerics exactly; loops that `lanes` shows independent run all
iterations of an action at once in NumPy, which changes no bit of any result. `vectorize=False` runs one iteration at a time.

Lanes. Inside such loops every loop variable is an integer array; each loop adds one leading axis, so outer arrays broadcast.
Addresses that are affine in the axes become strided views, others integer index arrays. Bounds and guards that differ between
lanes drop those that do not run, after which the remaining ones form a single axis. A buffer has one copy per lane of its owner.

Every iteration of a buffer's owner starts with fresh contents: NaN (integers: 0xA5 in every byte) under `poison`, else zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tilec.errors import InternalError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.arguments import check_arrays, check_scalars, check_sizes, written
from tilec.ir.arithmetic import EXACT, Exact
from tilec.ir.cells import Memory, State, Store, Where
from tilec.ir.dtypes import ARITHMETIC_NUMPY, DTYPES, encode, promote
from tilec.ir.expr import Index, walk
from tilec.ir.lanes import Interval, Touch, foldable, independent, interval, loop_range, physical
from tilec.ir.program import (
    Address,
    Barrier,
    Commit,
    Copy,
    Guard,
    Identity,
    Inline,
    Leaf,
    Loop,
    Merge,
    Node,
    Prefetch,
    Program,
    Read,
    Wait,
)
from tilec.ir.tree import Site

LANES = 1 << 16  # lanes at once: the operands of one action stay in cache
CELLS = 1 << 23  # cells of all lanes' copies of one buffer
FOLD_LANES = 1 << 11  # above, a fold gains nothing over running its iterations in turn


def run(
    program: Program,
    arrays: Mapping[str, np.ndarray],
    sizes: Mapping[str, int] | None = None,
    scalars: Mapping[str, float] | None = None,
    *,
    vectorize: bool = True,
    poison: bool = True,
    arithmetic: Exact = EXACT,
) -> dict[str, np.ndarray]:
    """Every written parameter after the program ran, as new arrays; the arguments are not modified.

    arrays: parameter name -> array of exactly the parameter's dtype (`DTYPES[...].numpy`) and shape. Outputs that are assigned
    before they are read may be left out and start at zero. sizes: those the shapes do not determine; others are checked.
    arithmetic: what is computed in place of stored elements and exact roundings (ir/arithmetic.py).
    Raises LanguageError for arguments that do not fit the parameters, InternalError for an access outside its buffer.
    """
    given = check_arrays(program, arrays)
    known = check_sizes(program, given, sizes)
    values = check_scalars(program, scalars)
    memory = Memory(program.name, arithmetic)
    stores = memory.stores
    outputs = written(program)
    plan = _Plan(program, known, values, vectorize, poison, memory)
    for b in program.buffers:
        if b.role == "param":
            shape = tuple(e.eval(known) for e in b.shape)
            d = DTYPES[b.dtype]
            if b.name in given:
                raw = np.ascontiguousarray(given[b.name]).view(d.raw).reshape(-1)
                raw = raw.copy() if b.name in outputs else raw
            else:
                raw = np.zeros(prod(shape), d.raw)
            raw = arithmetic.enter(d, raw)
            stores[b.name] = Store(raw, shape, d)
    nodes = plan.body(program.body, (), {})
    state = State(dict(known), {}, (), ())
    plan.allocate(plan.owned(None), state)
    with np.errstate(all="ignore"):
        for node in nodes:
            node(state)
    return {n: arithmetic.leave(stores[n].dtype, stores[n].raw).reshape(stores[n].shape) for n in outputs}


_Run = Callable[[State], None]


class _Plan:
    """Turns the tree into closures over a state, once per run."""

    def __init__(
        self,
        program: Program,
        sizes: dict[str, int],
        scalars: dict[str, Any],
        vectorize: bool,
        poison: bool,
        memory: Memory,
    ):
        self.program, self.sizes, self.scalars = program, sizes, scalars
        self.vectorize, self.poison, self.memory = vectorize, poison, memory
        self.arithmetic = memory.arithmetic
        outputs = written(program)
        self.inputs = frozenset(b.name for b in program.buffers if b.role == "param" and b.name not in outputs)
        self.touches: list[Touch] = []  # of the actions planned so far, in order
        self.threads: dict[str, list[Interval]] = {}  # of each register buffer: the ranges of its thread coordinates

    # -- buffers ----------------------------------------------------------------------------------------------------------

    def owned(self, var: str | None) -> list[str]:
        return [b.name for b in self.program.buffers if b.owner == var and b.role != "param"]

    def cells(self, name: str) -> int:
        own = prod(max(e.eval(self.sizes), 0) for e in self.program.buffer[name].shape)
        return own * prod(high - low + 1 for low, high in self.threads.get(name, ()))

    def allocate(self, names: list[str], state: State) -> None:
        for name in names:
            b = self.program.buffer[name]
            d = DTYPES[b.dtype]
            threads = [high + 1 for _, high in self.threads.get(name, ())]
            shape = (*state.extents, *threads, *(max(e.eval(self.sizes), 0) for e in b.shape))  # none, at sizes too small
            fill = (np.nan if d.kind == "float" else -1515870811 if d.bits == 32 else -91) if self.poison else 0
            with np.errstate(all="ignore"):
                value = encode(b.dtype, np.asarray(fill, ARITHMETIC_NUMPY[d.arithmetic]))
            raw = self.arithmetic.enter(d, np.full(prod(shape), value, d.raw))
            self.memory.stores[name] = Store(raw, shape, d, tuple(Aff.of(p) for p in state.positions))

    # -- nodes ------------------------------------------------------------------------------------------------------------

    def body(self, nodes: tuple[Node, ...], path: tuple[Loop | Guard, ...], ranges: dict[str, Interval]) -> list[_Run]:
        out: list[_Run] = []
        for node in nodes:
            match node:
                case Loop():
                    out.append(self.loop(node, path, ranges))
                case Guard():
                    out.append(self.guard(node, path, ranges))
                case Barrier() | Commit() | Wait() | Prefetch():
                    pass  # the interpreter runs in the order of the tree
                case _:
                    out.append(self.action(node, Site((), path, node), ranges))
        return out

    def guard(self, node: Guard, path: tuple[Loop | Guard, ...], ranges: dict[str, Interval]) -> _Run:
        conditions = [Constraint(c.expr.subs(self.sizes), c.equal) for c in node.conditions]
        inner = self.body(node.body, (*path, node), ranges)

        def execute(state: State) -> None:
            narrowed: State | None = state
            for c in conditions:
                v = narrowed.value(c.expr)
                narrowed = narrowed.only(v == 0 if c.equal else v >= 0)
                if narrowed is None:
                    return
            for step in inner:
                step(narrowed)

        return execute

    def loop(self, node: Loop, path: tuple[Loop | Guard, ...], ranges: dict[str, Interval]) -> _Run:
        node = replace(
            node, lower=tuple(e.subs(self.sizes) for e in node.lower), upper=tuple(e.subs(self.sizes) for e in node.upper)
        )
        outer = frozenset(n.var for n in path if isinstance(n, Loop))
        start = len(self.touches)
        inner = self.body(node.body, (*path, node), {**ranges, node.var: loop_range(node, ranges)})
        touches = self.touches[start:]
        names = {t.buffer for t in touches}
        fresh = [n for n in self.owned(node.var) if n in names]
        inside = frozenset((*fresh, *(n for n in names if self._owner_within(n, node))))
        lanes = self.vectorize and independent(node.var, outer, touches, inside)
        folds = self.vectorize and not lanes and not fresh and foldable(node, self.program)
        fold = self._fold(node, path, ranges) if folds else None
        cells = max((self.cells(n) for n in inside), default=1)
        lower, upper, var = node.lower, node.upper, node.var

        def once(state: State) -> None:
            if fresh:
                self.allocate(fresh, state)
            for step in inner:
                step(state)

        def execute(state: State) -> None:
            low, high = state.value(lower[0]), state.value(upper[0])
            for e in lower[1:]:
                low = np.maximum(low, state.value(e))
            for e in upper[1:]:
                high = np.minimum(high, state.value(e))
            ragged = bool(np.ndim(low) or np.ndim(high))
            first, last = (int(np.min(low)), int(np.max(high))) if ragged else (int(low), int(high))
            if last <= first:
                return
            active = prod(state.extents)
            if lanes and last - first > 1:
                step = max(1, min(LANES // active, CELLS // (active * cells)))
                for begin in range(first, last, step):
                    s: State | None = state.enter(var, begin, min(step, last - begin))
                    if ragged:
                        v = s.env[var]
                        s = s.only((v >= low) & (v < high))
                    if s is not None:
                        once(s)
                return
            if fold is not None and not ragged and last - first > 3 and active <= FOLD_LANES:
                step = max(1, LANES // active)
                for begin in range(first, last, step):
                    fold(state, state.enter(var, begin, min(step, last - begin)))
                return
            state = replace(state, env=dict(state.env))
            for v in range(first, last):
                if ragged:
                    s = state.only((low <= v) & (v < high))
                    if s is None:
                        continue
                    if s is not state:
                        s.env[var] = v
                        once(s)
                        continue
                state.env[var] = v
                once(state)

        return execute

    def _owner_within(self, buffer: str, node: Loop) -> bool:
        owner = self.program.buffer[buffer].owner
        return owner is not None and owner != node.var and _has_loop(node.body, owner)

    # -- actions ----------------------------------------------------------------------------------------------------------

    def touch(self, address: Address, site: Site, ranges: dict[str, Interval], write: bool) -> Where:
        index = physical(address, self.program, site, self.sizes)
        if write and address.buffer in self.inputs:
            raise InternalError(f"{self.program.name}: the tree writes {address.buffer}, which no statement of the kernel writes")
        self.touches.append(Touch(address.buffer, index, write, ranges))
        threads = len(index) - len(address.index)
        if threads:
            mine = [interval(e, ranges) for e in index[:threads]]
            old = self.threads.get(address.buffer, [(0, 0)] * threads)
            self.threads[address.buffer] = [(min(a, c, 0), max(b, d)) for (a, b), (c, d) in zip(old, mine, strict=True)]
        return Where(address.buffer, index)

    def action(self, node: Node, site: Site, ranges: dict[str, Interval]) -> _Run:
        match node:
            case Leaf():
                return self.leaf(node, site, ranges)
            case Copy():
                src, dst = self.touch(node.src, site, ranges, False), self.touch(node.dst, site, ranges, True)
                same = self.program.buffer[src.buffer].dtype == self.program.buffer[dst.buffer].dtype

                def copy(state: State) -> None:
                    if same:
                        self.memory.write_raw(dst, state, self.memory.read_raw(src, state))
                    else:
                        self.memory.write(dst, state, self.memory.read(src, state))

                return copy
            case Identity():
                dst = self.touch(node.dst, site, ranges, True)
                value = self.arithmetic.neutral(node.op, self.program.buffer[dst.buffer].dtype)
                return lambda state: self.memory.write(dst, state, value)
            case Merge():
                src, dst = self.touch(node.src, site, ranges, False), self.touch(node.dst, site, ranges, True)
                kind = promote(*(DTYPES[self.program.buffer[n].dtype].arithmetic for n in (src.buffer, dst.buffer)))
                op = node.op.rstrip("=")
                return lambda state: self.memory.write(
                    dst, state, self.arithmetic.update(op, kind, self.memory.read(dst, state), self.memory.read(src, state))
                )
        raise InternalError(f"{self.program.name}: no way to run {node!r}")

    def leaf(self, node: Leaf, site: Site, ranges: dict[str, Interval]) -> _Run:
        value = self.value(node.statement, node.instance, node.reads, site, ranges)
        target = self.touch(node.target, site, ranges, True)
        statement = self.program.statement[node.statement]
        if statement.op == "=":
            return lambda state: self.memory.write(target, state, value(state))
        op = statement.op.rstrip("=")
        kind = promote(DTYPES[self.program.buffer[target.buffer].dtype].arithmetic, statement.value.dtype)
        update = self.arithmetic.update
        return lambda state: self.memory.write(target, state, update(op, kind, self.memory.read(target, state), value(state)))

    def value(
        self, name: str, instance: tuple[Aff, ...], reads: tuple[Read, ...], site: Site, ranges: dict[str, Interval]
    ) -> Callable[[State], Any]:
        """The statement's expression at an instance, not yet rounded to its target."""
        statement = self.program.statement[name]
        at = dict(zip(statement.loops, (e.subs(self.sizes) for e in instance), strict=True))
        loads = [self.load(r, site, ranges) for r in reads]
        affs = {x.aff: x.aff.subs(self.sizes).subs(at) for x in walk(statement.value) if isinstance(x, Index)}
        evaluate = self.arithmetic.evaluate

        def result(state: State) -> Any:
            return evaluate(statement.value, [f(state) for f in loads], lambda e: state.value(affs[e]), self.scalars)

        return result

    def load(self, read: Read, site: Site, ranges: dict[str, Interval]) -> Callable[[State], Any]:
        if isinstance(read, Inline):
            statement = self.program.statement[read.statement]
            if statement.op != "=":
                raise InternalError(f"{self.program.name}: {read.statement} updates its target and cannot be inlined")
            value = self.value(read.statement, read.instance, read.reads, site, ranges)
            # a fully inlined temporary is no buffer of the scheduled program any more
            dtype = self.program.source.buffer[statement.target.buffer].dtype
            arithmetic = self.arithmetic
            return lambda state: arithmetic.decode(dtype, arithmetic.encode(dtype, value(state)))
        where = self.touch(read, site, ranges, False)
        return lambda state: self.memory.read(where, state)

    def _fold(self, node: Loop, path: tuple[Loop | Guard, ...], ranges: dict[str, Interval]) -> Callable[[State, State], None]:
        leaf = node.body[0]
        assert isinstance(leaf, Leaf)
        keep = len(self.touches)
        site = Site((), (*path, node), leaf)
        inside = {**ranges, node.var: loop_range(node, ranges)}
        value = self.value(leaf.statement, leaf.instance, leaf.reads, site, inside)
        target = self.touch(leaf.target, site, inside, True)
        del self.touches[keep:]  # they were noted when the body was planned
        statement = self.program.statement[leaf.statement]
        kind = DTYPES[self.program.buffer[target.buffer].dtype].arithmetic
        op = statement.op.rstrip("=")
        accumulate = self.arithmetic.accumulate

        def fold(state: State, lanes: State) -> None:
            old = self.memory.read(target, state)
            self.memory.write(target, state, accumulate(op, kind, old, value(lanes), state.shape, lanes.shape))

        return fold


def _has_loop(nodes: tuple[Node, ...], var: str) -> bool:
    return any((isinstance(n, Loop) and n.var == var) or (isinstance(n, Loop | Guard) and _has_loop(n.body, var)) for n in nodes)
