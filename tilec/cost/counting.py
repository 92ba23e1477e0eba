"""How often the actions of a program run, and the traffic and operations that follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilec.cost.amounts import Flow
from tilec.cost.launches import Launch
from tilec.cost.operations import Key, operations
from tilec.errors import CountError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.closed import Closed, total
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import DISTANCE, Barrier, Copy, Program
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
                values = {n: Aff(self.sizes[n]) for n in self.program.sizes}
                number = Counter().points(variables, [c.subs(values) for c in conditions])
                self.notes.append(f"{what} have no closed form ({e}): counted at these sizes")
                return Closed.of(evaluate(number, {}))
            except NotClosed as again:
                raise CountError(f"cost: {what} can't be counted exactly at these sizes: {again}") from None

    def distinct_failed(self, name: str, reason: NotClosed) -> CountError:
        return CountError(f"cost: the distinct elements of '{name}' can't be counted exactly: {reason}")


def describe(site: Site) -> str:
    """`the leaf under io, jo`, for messages."""
    names = ", ".join(loop.var for loop in site.loops) or "no loop"
    return f"the {type(site.action).__name__.lower()} under {names}"


def flows(program: Program, steps: Iterable[Launch], runs: Runs) -> tuple[Flow, ...]:
    """Every executed access at the memory that holds its buffer. Of a copy the end farther from the arithmetic is traffic (both,
    if equally far), the nearer end is fill. An update reads and writes its target."""
    sums: dict[tuple[str, str, str, bool, int], list[Closed]] = {}
    for step in steps:
        for site in step.sites:
            found = addresses(site.action, program)
            if not found:
                continue
            count = runs.of(site)
            far = max(DISTANCE[program.buffer[a.buffer].memory] for a, _, _ in found)
            for address, _, is_write in found:
                b = program.buffer[address.buffer]
                fill = isinstance(site.action, Copy) and DISTANCE[b.memory] < far
                moved = count * DTYPES[b.dtype].bytes
                directions = ["write" if is_write else "read"]
                if is_write and updates(site.action, program):
                    directions.append("read")
                for direction in directions:
                    sums.setdefault((b.memory, b.name, direction, fill, step.number), []).append(moved)
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
