"""The tree of a nest as the model of CPUs reads it: extents at sampled iterations, what an action touches, conditions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias, Union

import numpy as np

from tilec.ir.affine import Constraint
from tilec.ir.program import Action, Address, Copy, Guard, Inline, Leaf, Loop, Node, Program, Read

POINTS = 16  # sampled iterations of outer loops
GUARD = "if"

Values: TypeAlias = "np.ndarray"
Tree: TypeAlias = Union["Nest", "Act"]


@dataclass
class Act:
    """An action: how often one execution of the loop around it runs it (1), and what it touches."""

    action: Action
    loops: tuple[Nest, ...]
    touched: tuple[tuple[Address, bool, bool], ...]  # address, is it written, past the caches
    guards: tuple[tuple[frozenset[str], Values], ...] = ()  # names in a condition around it, the share in which it holds


@dataclass
class Nest:
    """A loop with its extent at each sampled iteration of those around it; or a condition with the share that it lets pass."""

    var: str
    kind: str
    extent: Values
    children: list[Tree] = field(default_factory=list)
    acts: list[Act] = field(default_factory=list)  # every action inside, with the loops below this one's parent


class Builder:
    """Makes the tree of one top-level node at numbers for all sizes."""

    def __init__(self, program: Program, sizes: Mapping[str, int]) -> None:
        self.program, self.sizes = program, sizes
        self.ranges: dict[str, tuple[Values, Values]] = {}  # of loops: where they start, how far they go

    def tree(self, node: Node) -> Nest:
        """Below a loop without a name that runs once."""
        env: dict[str, Any] = {n: np.full(POINTS, float(v)) for n, v in self.sizes.items()}
        top = Nest("", "serial", np.ones(POINTS))
        self._build((node,), env, top, (top,))
        return top

    def _build(
        self,
        nodes: Iterable[Node],
        env: dict[str, Any],
        parent: Nest,
        path: tuple[Nest, ...],
        guards: tuple[tuple[frozenset[str], Values], ...] = (),
    ) -> None:
        for node in nodes:
            if isinstance(node, Loop):
                low = np.max([np.broadcast_to(e.eval(env), POINTS) for e in node.lower], axis=0)
                high = np.min([np.broadcast_to(e.eval(env), POINTS) for e in node.upper], axis=0)
                extent = np.maximum(high - low, 0.0)
                nest = Nest(node.var, node.kind, extent)
                parent.children.append(nest)
                place = (np.arange(POINTS) * (0.618034 + 0.1 * (len(path) % 5)) + 0.37 * len(path)) % 1.0
                inner = {**env, node.var: low + np.floor(place * np.maximum(extent, 1.0))}
                self.ranges[node.var] = (low, extent)
                self._build(node.body, inner, nest, (*path, nest), guards)
            elif isinstance(node, Guard):
                parts = [(c.names, self._part(c, env)) for c in node.conditions]
                guard = Nest(GUARD, "serial", np.prod([p for _, p in parts], axis=0))
                parent.children.append(guard)
                self._build(node.body, env, guard, path, (*guards, *parts))
            else:
                touched = tuple(self._touched(node))
                act = Act(node, path, touched, guards)
                parent.children.append(act)
                for nest in path:
                    nest.acts.append(act)

    def _part(self, c: Constraint, env: Mapping[str, Any]) -> Values:
        """The share of iterations in which a condition holds: counted along one loop, else looked up at the sampled ones."""
        names = [n for n in c.names if n in self.ranges]
        step = c.expr.coefficient(names[0]) if len(names) == 1 else 0
        if not step:
            value = np.broadcast_to(c.expr.eval(dict(env)), POINTS)
            return ((value == 0) if c.equal else (value >= 0)).astype(float)
        low, extent = self.ranges[names[0]]
        extent = np.maximum(extent, 1.0)
        if c.equal:
            return 1 / extent
        zero = -np.broadcast_to(c.expr.eval({**env, names[0]: 0}), POINTS) / step
        count = low + extent - np.ceil(zero) if step > 0 else np.floor(zero) - low + 1
        return np.clip(count / extent, 0.0, 1.0)

    def _touched(self, action: Action) -> Iterable[tuple[Address, bool, bool]]:
        """Addresses in memory (not in registers)."""
        past = getattr(action, "streaming", False)

        def reads(found: tuple[Read, ...]) -> Iterable[Address]:
            for r in found:
                if isinstance(r, Inline):
                    yield from reads(r.reads)
                else:
                    yield r

        out: list[tuple[Address, bool, bool]] = []
        if isinstance(action, Leaf):
            out += [(r, False, False) for r in reads(action.reads)]
            out.append((action.target, True, past))
        elif isinstance(action, Copy):
            out += [(action.src, False, False), (action.dst, True, past)]
        else:
            for name in ("src", "dst"):
                if isinstance(found := getattr(action, name, None), Address):
                    out.append((found, name == "dst", False))
        return [t for t in out if self.program.buffer[t[0].buffer].memory != "register"]
