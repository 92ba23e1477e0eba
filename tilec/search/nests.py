"""What recipes know of a program: its nests, what each is like, who reads whose results, and how they may be grouped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import TypeAlias

import networkx as nx

from tilec.ir.program import Leaf, Loop, Node, Program, Statement
from tilec.ir.tree import Body, sites


@dataclass(frozen=True)
class Nest:
    """One nest of an original program.

    name: the buffer it is known by. kind: "elementwise" (every loop is in every target's index, plain or updating statements),
    "contraction" (two loops or more around one sum), "rows" (loops around several steps or one sum, each iteration on its own),
    "sum" (no loop is in the target's index) or "other".
    band: the loops whose iterations write different elements, outermost first. update, sums: the summing statement of a
    contraction and its other loops, outermost first.
    """

    name: str
    kind: str
    statements: tuple[str, ...]
    band: tuple[str, ...]
    written: tuple[str, ...]
    read: tuple[str, ...]
    ranges: tuple[tuple[str, str], ...]  # of the band's loops, as text
    update: str | None = None
    sums: tuple[str, ...] = ()

    @property
    def leading(self) -> str:
        """The statement whose name qualifies the nest's loops."""
        return self.update or self.statements[-1]


Group: TypeAlias = tuple[Nest, ...]


def nests(program: Program) -> tuple[tuple[str, ...], tuple[Nest, ...]]:
    """(the serial loops around everything, the nests inside them in order); nests among bare statements are one nest."""
    prefix: list[str] = []
    body = program.body
    while len(body) == 1 and isinstance(loop := body[0], Loop) and not _regular(program, loop):
        if not all(isinstance(child, Loop) for child in loop.body):
            break
        prefix.append(loop.var)
        body = loop.body
    if any(isinstance(node, Loop) for node in body) and not all(isinstance(node, Loop) for node in body):
        groups: list[Body] = [body]
    else:
        groups = [(node,) for node in body]
    found = [_nest(program, group, prefix) for group in groups]
    return tuple(prefix), tuple(_named(program, found))


def graph(found: tuple[Nest, ...]) -> nx.DiGraph:
    """Nodes: nests by position; an edge from a producer to each later consumer, with the buffers that pass."""
    g = nx.DiGraph()
    g.add_nodes_from(range(len(found)))
    for a, b in combinations(range(len(found)), 2):
        through = sorted(set(found[a].written) & set(found[b].read))
        if through:
            g.add_edge(a, b, buffers=tuple(through))
    return g


def partitions(n: int) -> list[tuple[tuple[int, ...], ...]]:
    """All 2^(n-1) cuts of a chain of n into contiguous groups, the most separate first."""
    out = []
    for joined in range(n):
        for kept in combinations(range(1, n), n - 1 - joined):
            edges = [0, *kept, n]
            out.append(tuple(tuple(range(a, b)) for a, b in pairwise(edges)))
    return out


def independent(group: Group) -> bool:
    """Are there several contractions over the same tiles of which none needs what another writes?"""
    g = graph(group)
    sums = [n for n, nest in enumerate(group) if nest.kind == "contraction"]
    apart = not any(nx.has_path(g, a, b) for a, b in combinations(sums, 2))
    return len(sums) > 1 and apart and len({group[n].ranges for n in sums}) == 1


def _statements(program: Program, body: Body) -> list[Statement]:
    names = dict.fromkeys(s.action.statement for s in sites(body) if isinstance(s.action, Leaf))
    return [program.statement[n] for n in names]


def _apart(loop: Loop, statements: list[Statement]) -> bool:
    """Is the loop in the index of everything that is written inside?"""
    return all(any(loop.var in e.names for e in s.target.index) for s in statements)


def _regular(program: Program, loop: Loop) -> bool:
    """Does the nest start with a band, or is it one statement that some loop of it writes apart?"""
    statements = _statements(program, (loop,))
    if _apart(loop, statements):
        return True
    return len(statements) == 1 and len(_perfect(loop)) == len(statements[0].loops) and bool(_split(statements[0])[0])


def _perfect(node: Node) -> list[Loop]:
    out: list[Loop] = []
    while isinstance(node, Loop):
        out.append(node)
        if len(node.body) != 1:
            break
        node = node.body[0]
    return out


def _split(s: Statement) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = frozenset().union(*(e.names for e in s.target.index))
    return tuple(v for v in s.loops if v in names), tuple(v for v in s.loops if v not in names)


def _nest(program: Program, body: Body, prefix: list[str]) -> Nest:
    statements = _statements(program, body)
    names = tuple(s.name for s in statements)
    written = tuple(dict.fromkeys(s.target.buffer for s in statements))
    read = tuple(dict.fromkeys(a.buffer for s in statements for a in s.reads))
    path = _perfect(body[0]) if len(body) == 1 else []

    def made(kind: str, band: tuple[str, ...], update: str | None = None, sums: tuple[str, ...] = ()) -> Nest:
        around = {loop.var: loop for loop in path}
        ranges = tuple((", ".join(map(str, around[v].lower)), ", ".join(map(str, around[v].upper))) for v in band)
        return Nest("", kind, names, band, written, read, ranges, update, sums)

    if len(statements) == 1 and statements[0].op != "=" and len(path) == len(statements[0].loops) - len(prefix):
        band, sums = (tuple(v for v in part if v not in prefix) for part in _split(statements[0]))
        if sums and len(band) >= 2:
            return made("contraction", band, names[0], sums)
    band_loops = []
    for loop in path:
        if not _apart(loop, statements):
            break
        band_loops.append(loop)
    band = tuple(loop.var for loop in band_loops)
    deep = [s for s in statements if set(s.loops) - {*prefix, *band}]
    if not band:
        summed = [s for s in statements if s.op != "=" and s.loops and not _split(s)[0]]
        one = len(summed) == 1 and len(summed[0].loops) == 1 and len(deep) == 1
        return made("sum", (), summed[0].name, summed[0].loops) if one else made("other", ())
    if not deep:
        return made("elementwise", band)
    if len(deep) == 1 and deep[0].op != "=" and len(band) >= 2 and not set(_split(deep[0])[0]) - set(band):
        return made("contraction", band, deep[0].name, tuple(v for v in deep[0].loops if v not in (*prefix, *band)))
    return made("rows", band)


def _named(program: Program, found: list[Nest]) -> list[Nest]:
    out: list[Nest] = []
    for n, nest in enumerate(found):
        elsewhere = {b for m, other in enumerate(found) if m != n for b in other.read}
        shown = [b for b in nest.written if b in elsewhere or program.buffer[b].role == "param"] or list(nest.written)
        name = shown[-1] if shown else f"nest {n}"
        if any(other.name == name for other in out):
            name = f"{name}@{nest.statements[-1]}"
        out.append(replace(nest, name=name))
    return out
