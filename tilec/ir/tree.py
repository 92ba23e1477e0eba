"""Walking and rewriting the loop tree. A position is the tuple of child indices from the root; every function is pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TypeAlias

from tilec.ir.affine import Aff, AffLike, Constraint
from tilec.ir.program import (
    Action,
    Address,
    Barrier,
    Buffer,
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

Position: TypeAlias = tuple[int, ...]
Body: TypeAlias = tuple[Node, ...]


@dataclass(frozen=True)
class Site:
    """An action with what stands around it, outermost first."""

    position: Position
    path: tuple[Loop | Guard, ...]
    action: Action

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        return tuple(n for n in self.path if isinstance(n, Loop))

    @cached_property
    def conditions(self) -> tuple[Constraint, ...]:
        """Bounds and guards: exactly the iterations that execute."""
        out: list[Constraint] = []
        for node in self.path:
            out += node.conditions if isinstance(node, Guard) else loop_conditions(node)
        return tuple(out)


def loop_conditions(loop: Loop) -> list[Constraint]:
    return list(_between(loop.var, loop.lower, loop.upper))


@lru_cache(maxsize=4096)
def _between(var: str, lower: tuple[Aff, ...], upper: tuple[Aff, ...]) -> tuple[Constraint, ...]:
    return (*(Constraint.ge(var, e) for e in lower), *(Constraint.lt(var, e) for e in upper))


def sites(body: Body, position: Position = (), path: tuple[Loop | Guard, ...] = ()) -> Iterator[Site]:
    """Every action in the order of the text."""
    for n, node in enumerate(body):
        if isinstance(node, Loop | Guard):
            yield from sites(node.body, (*position, n), (*path, node))
        else:
            yield Site((*position, n), path, node)


def owning_loops(buffer: Buffer, around: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """Of the loops around an access, outermost first, those at or above the buffer's owner; () where the program owns it."""
    depth = next((n for n, loop in enumerate(around, 1) if loop.var == buffer.owner), 0)
    return around[:depth]


def loops(body: Body, position: Position = ()) -> Iterator[tuple[Position, Loop]]:
    """Every loop with its position, outermost first."""
    for n, node in enumerate(body):
        if isinstance(node, Loop | Guard):
            if isinstance(node, Loop):
                yield (*position, n), node
            yield from loops(node.body, (*position, n))


def at(body: Body, position: Position) -> Node:
    node = body[position[0]]
    for n in position[1:]:
        assert isinstance(node, Loop | Guard)
        node = node.body[n]
    return node


def path_to(body: Body, position: Position) -> tuple[Loop | Guard, ...]:
    """The loops and guards strictly above `position`, outermost first."""
    out: list[Loop | Guard] = []
    for n in position[:-1]:
        node = body[n]
        assert isinstance(node, Loop | Guard)
        out.append(node)
        body = node.body
    return tuple(out)


def put(body: Body, position: Position, new: Body) -> Body:
    """Replace the node at `position` by the nodes `new`; loops and guards left empty above it disappear."""
    n, rest = position[0], position[1:]
    if not rest:
        return (*body[:n], *new, *body[n + 1 :])
    node = body[n]
    assert isinstance(node, Loop | Guard)
    inner = put(node.body, rest, new)
    return (*body[:n], *((replace(node, body=inner),) if inner else ()), *body[n + 1 :])


def transform(body: Body, f: Callable[[Node], Body]) -> Body:
    """Bottom-up: every node, its children already rewritten, becomes f(node); empty loops and guards disappear."""
    out: list[Node] = []
    for node in body:
        if isinstance(node, Loop | Guard):
            inner = transform(node.body, f)
            if inner:
                out += f(replace(node, body=inner))
        else:
            out += f(node)
    return tuple(out)


def subs_address(a: Address, values: Mapping[str, AffLike]) -> Address:
    return Address(a.buffer, tuple(e.subs(values) for e in a.index))


def subs_read(read: Read, values: Mapping[str, AffLike]) -> Read:
    if isinstance(read, Address):
        return subs_address(read, values)
    return Inline(read.statement, tuple(e.subs(values) for e in read.instance), tuple(subs_read(r, values) for r in read.reads))


def subs_action(action: Action, values: Mapping[str, AffLike]) -> Action:
    def affs(es: tuple[Aff, ...]) -> tuple[Aff, ...]:
        return tuple(e.subs(values) for e in es)

    match action:
        case Leaf():
            return replace(
                action,
                instance=affs(action.instance),
                target=subs_address(action.target, values),
                reads=tuple(subs_read(r, values) for r in action.reads),
            )
        case Prefetch():
            return replace(action, address=subs_address(action.address, values))
        case Copy():
            return replace(
                action, dst=subs_address(action.dst, values), src=subs_address(action.src, values), cell=affs(action.cell)
            )
        case Identity():
            return replace(action, dst=subs_address(action.dst, values), cell=affs(action.cell))
        case Merge():
            return replace(
                action,
                dst=subs_address(action.dst, values),
                src=subs_address(action.src, values),
                cell=affs(action.cell),
                src_cell=affs(action.src_cell),
            )
        case Barrier() | Commit() | Wait():
            return action


def without_hints(program: Program) -> Program:
    """The program without prefetches: what it computes, and what every reader but a backend for CPUs looks at."""
    if not any(isinstance(s.action, Prefetch) for s in sites(program.body)):
        return program
    return replace(program, body=transform(program.body, lambda node: () if isinstance(node, Prefetch) else (node,)))


def subs(body: Body, values: Mapping[str, AffLike]) -> Body:
    """Replace variables and sizes by expressions in bounds, guards and actions; loop headers keep their names."""
    if not values:
        return body
    out: list[Node] = []
    for node in body:
        match node:
            case Loop():
                inner = {k: v for k, v in values.items() if k != node.var}
                out.append(
                    replace(
                        node,
                        lower=tuple(e.subs(values) for e in node.lower),
                        upper=tuple(e.subs(values) for e in node.upper),
                        body=subs(node.body, inner),
                    )
                )
            case Guard():
                out.append(Guard(tuple(c.subs(values) for c in node.conditions), subs(node.body, values)))
            case _:
                out.append(subs_action(node, values))
    return tuple(out)


def map_addresses(action: Action, f: Callable[[Address, tuple[Aff, ...], bool], Read], program: Program) -> Action:
    """Rewrite every physical access: f(address, logical index in its root buffer, is it a write) -> the new read.

    A write must come back as an Address. The target of an updating Leaf or Merge is visited once, as a write.
    """

    def read(r: Read, logical: tuple[Aff, ...]) -> Read:
        if isinstance(r, Inline):
            statement = program.statement[r.statement]
            return Inline(r.statement, r.instance, reads(r.reads, r.statement, r.instance, statement.loops))
        return f(r, logical, False)

    def reads(rs: tuple[Read, ...], statement: str, instance: tuple[Aff, ...], names: tuple[str, ...]) -> tuple[Read, ...]:
        env = dict(zip(names, instance, strict=True))
        accesses = program.statement[statement].reads
        return tuple(read(r, tuple(e.subs(env) for e in a.index)) for r, a in zip(rs, accesses, strict=True))

    def write(a: Address, logical: tuple[Aff, ...]) -> Address:
        new = f(a, logical, True)
        assert isinstance(new, Address)
        return new

    match action:
        case Leaf():
            statement = program.statement[action.statement]
            env = dict(zip(statement.loops, action.instance, strict=True))
            return replace(
                action,
                target=write(action.target, tuple(e.subs(env) for e in statement.target.index)),
                reads=reads(action.reads, action.statement, action.instance, statement.loops),
            )
        case Copy():
            src = f(action.src, action.cell, False)
            assert isinstance(src, Address)
            return replace(action, src=src, dst=write(action.dst, action.cell))
        case Identity():
            return replace(action, dst=write(action.dst, action.cell))
        case Merge():
            src = f(action.src, action.src_cell, False)
            assert isinstance(src, Address)
            return replace(action, src=src, dst=write(action.dst, action.cell))
        case Barrier() | Commit() | Wait() | Prefetch():
            return action


def addresses(action: Action, program: Program) -> list[tuple[Address, tuple[Aff, ...], bool]]:
    """Every physical access of an action: (address, logical index in its root buffer, is it a write), reads first.

    The old value that an updating Leaf or a Merge reads has its target's address and is not listed apart.
    """
    found: list[tuple[Address, tuple[Aff, ...], bool]] = []

    def note(a: Address, logical: tuple[Aff, ...], is_write: bool) -> Address:
        found.append((a, logical, is_write))
        return a

    map_addresses(action, note, program)
    return sorted(found, key=lambda t: t[2])


def updates(action: Action, program: Program) -> bool:
    """Does the action read its target's old value?"""
    if isinstance(action, Leaf):
        return program.statement[action.statement].op != "="
    return isinstance(action, Merge)


def rename_loop(body: Body, old: str, new: str) -> Body:
    """Rename every loop `old` in `body` and its uses."""

    def f(node: Node) -> Body:
        if isinstance(node, Loop) and node.var == old:
            return (replace(node, var=new, body=subs(node.body, {old: new})),)
        return (node,)

    return transform(body, f)
