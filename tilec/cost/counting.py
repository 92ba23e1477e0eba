"""How often the actions of a program run, and the traffic and operations that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilec.cost.amounts import Flow
from tilec.cost.launches import Launch
from tilec.cost.operations import Key, operations
from tilec.errors import CountError
from tilec.ir.affine import Constraint
from tilec.ir.closed import Closed, total
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import DISTANCE, Action, Barrier, Buffer, Copy, Program
from tilec.ir.tree import Site, addresses, updates
from tilec.poly.count import Counter, NotClosed, evaluate


class Runs:
    """Counts executions, each once. Without a closed form a count is made at the given sizes, and noted."""

    def __init__(self, program: Program, sizes: Mapping[str, int]):
        self.program, self.sizes = program, dict(sizes)
        self.counter = Counter(program.sizes, program.where)
        self.notes: list[str] = []
        self._known: dict[tuple[tuple[str, ...], tuple[Constraint, ...]], Closed] = {}

    def of(self, site: Site) -> Closed:
        """How often the action at the site is executed."""
        return self.points(tuple(loop.var for loop in site.loops), site.conditions, f"the runs of {describe(site)}")

    def points(self, variables: tuple[str, ...], conditions: tuple[Constraint, ...], what: str) -> Closed:
        """Integer points of { variables : conditions }; CountError, about `what`, where they cannot be counted exactly."""
        key = (variables, conditions)
        if key not in self._known:
            self._known[key] = self._count(variables, conditions, what)
        return self._known[key]

    def _count(self, variables: tuple[str, ...], conditions: tuple[Constraint, ...], what: str) -> Closed:
        try:
            count = self.counter.points(variables, conditions)
            if count.names <= set(self.sizes):
                evaluate(count, self.sizes)  # a finite sum may be too long
            return count
        except NotClosed as e:
            missing = [n for n in self.program.sizes if n not in self.sizes]
            if missing:
                raise CountError(
                    f"cost: {what} have no closed form in {', '.join(self.program.sizes)}: {e}.\n"
                    f"  With numbers they may: give {', '.join(missing)}"
                ) from None
            try:
                number = self.counter.points_at(variables, conditions, self.sizes)
            except NotClosed as again:
                raise CountError(f"cost: {what} can't be counted exactly at these sizes: {again}") from None
            self.notes.append(f"{what} have no closed form ({e}): counted at these sizes")
            return Closed.of(number)

    def distinct_failed(self, name: str, reason: NotClosed) -> CountError:
        return CountError(f"cost: the distinct elements of '{name}' can't be counted exactly: {reason}")


def describe(site: Site) -> str:
    """`the leaf under io, jo`, for messages."""
    names = ", ".join(loop.var for loop in site.loops) or "no loop"
    return f"the {type(site.action).__name__.lower()} under {names}"


@dataclass(frozen=True)
class Move:
    """What one execution of an action moves between a buffer and what is nearer to the arithmetic."""

    buffer: Buffer
    direction: str  # "read" or "write"
    fill: bool  # the nearer end of a copy

    @property
    def bytes(self) -> int:
        """Of one element."""
        return DTYPES[self.buffer.dtype].bytes


def moves(program: Program, action: Action) -> list[Move]:
    """Every access, at the memory that holds its buffer.

    Of a copy the end farther from the arithmetic is traffic (both, if equally far), the nearer end is fill. An update reads and
    writes its target.
    """
    found = [(program.buffer[a.buffer], is_write) for a, _, is_write in addresses(action, program)]
    far = max((DISTANCE[b.memory] for b, _ in found), default=0)
    out: list[Move] = []
    for b, is_write in found:
        fill = isinstance(action, Copy) and DISTANCE[b.memory] < far
        out.append(Move(b, "write" if is_write else "read", fill))
        if is_write and updates(action, program):
            out.append(Move(b, "read", fill))
    return out


def flows(program: Program, steps: Iterable[Launch], runs: Runs) -> tuple[Flow, ...]:
    """The moves of every execution, summed per memory, buffer, direction and launch."""
    sums: dict[tuple[str, str, str, bool, int], list[Closed]] = {}
    for step in steps:
        for site in step.sites:
            found = moves(program, site.action)
            count = runs.of(site) if found else Closed()
            for m in found:
                key = (m.buffer.memory, m.buffer.name, m.direction, m.fill, step.number)
                sums.setdefault(key, []).append(count * m.bytes)
    return tuple(Flow(m, b, d, f, total(parts), n) for (m, b, d, f, n), parts in sums.items())


def work(program: Program, step: Launch, runs: Runs) -> dict[Key, Closed]:
    """Operations of one launch."""
    sums: dict[Key, list[Closed]] = {}
    for site in step.sites:
        found = operations(program, site.action)
        if found:
            count = runs.of(site)
            for key, n in found.items():
                sums.setdefault(key, []).append(count * n)
    return {key: total(parts) for key, parts in sums.items()}


def barriers(step: Launch, runs: Runs) -> Closed:
    """Barrier executions, summed over the blocks."""
    return total(runs.of(site) for site in step.sites if isinstance(site.action, Barrier))
