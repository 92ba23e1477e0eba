"""A program as its launches (top-level nests), each with its actions, blocks and threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tilec.ir.affine import Constraint
from tilec.ir.program import BLOCK_KINDS, THREAD_KINDS, Guard, Loop, Program
from tilec.ir.tree import Site, addresses, loop_conditions, sites
from tilec.lower.nests import constant_extent


@dataclass(frozen=True)
class Launch:
    """One top-level nest. `bound`: it has block or thread loops."""

    number: int
    sites: tuple[Site, ...]

    @cached_property
    def loops(self) -> tuple[Loop, ...]:
        """Every loop of the nest, once."""
        found: dict[int, Loop] = {}
        for s in self.sites:
            for loop in s.loops:
                found[id(loop)] = loop
        return tuple(found.values())

    @property
    def bound(self) -> bool:
        """Is it a kernel launch: has it block or thread loops?"""
        return any(loop.kind in BLOCK_KINDS or loop.kind in THREAD_KINDS for loop in self.loops)

    @property
    def collective(self) -> bool:
        """No thread loops: a block's work is spread over threads by the backend."""
        return not any(loop.kind in THREAD_KINDS for loop in self.loops)

    @cached_property
    def block_domain(self) -> tuple[tuple[str, ...], tuple[Constraint, ...]]:
        """The block loops and the conditions on them (with those of loops and guards above them)."""
        site = next((s for s in self.sites if any(loop.kind in BLOCK_KINDS for loop in s.loops)), None)
        if site is None:
            return (), ()
        last = max(n for n, node in enumerate(site.path) if isinstance(node, Loop) and node.kind in BLOCK_KINDS)
        names: list[str] = []
        conditions: list[Constraint] = []
        for node in site.path[: last + 1]:
            if isinstance(node, Guard):
                conditions += node.conditions
            else:
                names.append(node.var)
                conditions += loop_conditions(node)
        return tuple(names), tuple(conditions)

    def threads(self, sizes: Mapping[str, int]) -> dict[str, int] | None:
        """The largest extent bound to each thread axis; None where one isn't known at these sizes."""
        out: dict[str, int] = {}
        for loop in self.loops:
            if loop.kind in THREAD_KINDS:
                extent = constant_extent(loop, sizes)
                if extent is None:
                    return None
                out[loop.kind] = max(out.get(loop.kind, 1), extent)
        return out

    def buffers(self, program: Program) -> dict[str, list[Site]]:
        """Every buffer accessed, with the sites that access it."""
        out: dict[str, list[Site]] = {}
        for s in self.sites:
            for a, _, _ in addresses(s.action, program):
                found = out.setdefault(a.buffer, [])
                if not found or found[-1] is not s:
                    found.append(s)
        return out

    @property
    def name(self) -> str:
        """The variable of its outermost loop; "straight" for a lone statement."""
        first = self.sites[0]
        return first.path[0].var if first.path and isinstance(first.path[0], Loop) else "straight"


def launches(program: Program) -> tuple[Launch, ...]:
    """The top-level nests in order. In a program with bound loops, nests without any still are steps of their own."""
    out: list[Launch] = []
    for n, node in enumerate(program.body):
        found = tuple(sites((node,), ()))
        if found:
            out.append(Launch(n, found))
    return tuple(out)
