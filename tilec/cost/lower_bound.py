"""How many bytes any schedule of a kernel must move between a fast memory of given capacity and the memory around it.

Compulsory: inputs once, outputs once. Capacity (Hong and Kung, I/O complexity: the red-blue pebble game, 1981, in the form of
IOLB, Olivry et al., PLDI 2020, and IOOpt, PLDI 2021): cut an execution into segments that move T bytes each. In a segment only
values that were in fast memory (S bytes), or were moved, can be used: at most S + T bytes. A sum `target += f(reads)` over a
domain D with projections φ_j onto its arrays executes in one segment at most

    U = max Π x_j^s_j   over   Σ b_j·x_j <= S + T            b_j bytes per element, s_j Brascamp-Lieb exponents

instances, so all of them take at least T·(|D| / U - 1) bytes; T = S / (σ - 1) with σ = Σ s_j > 1 is the best choice. For equal
elements of one word and a matrix product this is 2·M·N·K / sqrt(S) - 2·S words. Two reads of one array may use the same cells and
share one x_j. A value that is neither an input nor moved, because it is computed in the segment (a sum started from a constant, a
temporary), is charged as if moved, once, and taken off the bound; this assumes that nothing is computed twice. Statements that
share an array may share its moves: of each such group the largest bound counts, over groups they add up.

Elementwise chains reuse nothing (σ = 1): their bound is the compulsory one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import networkx as nx

from tilec.cost.subspaces import exponents
from tilec.ir.affine import Aff
from tilec.ir.closed import Closed, total
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Access, Leaf, Program, Statement
from tilec.ir.tree import Site, addresses, sites
from tilec.poly.count import Counter, Image, NotClosed
from tilec.targets import Target


@dataclass(frozen=True)
class SumBound:
    """The bound of one sum. groups: per array its name, bytes of an element, its exponent; then |D| and what is taken off."""

    statement: str
    groups: tuple[tuple[str, int, Fraction], ...]
    instances: Closed
    computed: Closed  # bytes computed rather than moved

    @property
    def sigma(self) -> Fraction:
        """Σ s_j: a segment of K bytes holds at most about K^σ instances."""
        return sum((s for _, _, s in self.groups), Fraction(0))

    def per_segment(self, held_bytes: float, words: bool = False) -> float:
        """U: instances that fit into a segment that may use `held_bytes` (or words, every element taken as one)."""
        log = sum(
            float(s) * math.log(float(s) * held_bytes / (float(self.sigma) * (1 if words else b))) for _, b, s in self.groups
        )
        return math.exp(log)

    def coefficient(self, words: bool = False) -> float:
        """κ in κ·|D| / S^(σ - 1), the leading term."""
        more = float(self.sigma) - 1
        return (1 / more) / self.per_segment(1 + 1 / more, words)

    def at(self, capacity_bytes: int, sizes: Mapping[str, int]) -> float:
        """Bytes, at least 0."""
        moved = capacity_bytes / (float(self.sigma) - 1)
        segments = float(self.instances.eval(sizes)) / self.per_segment(capacity_bytes + moved) - 1
        return max(0.0, moved * segments - float(self.computed.eval(sizes)))

    def leading(self, words: bool = False) -> str:
        """`2*K*M*N/sqrt(S)`, S in words, or in bytes; `capacity` in place of S where a size has that name."""
        power = self.sigma - 1
        s = "S" if "S" not in self.instances.names else "capacity"
        below = f"sqrt({s})" if power == Fraction(1, 2) else s if power == 1 else f"{s}^({power})"
        k = self.coefficient(words)
        plain = Fraction(k).limit_denominator(8)
        body = str(self.instances * plain) if abs(plain - k) < 1e-9 * k else f"{k:.4g}*({self.instances})"
        return f"({body})/{below}" if " " in body or "/" in body else f"{body}/{below}"


@dataclass(frozen=True)
class CapacityBound:
    """What any schedule must move across the edge of a fast memory of `capacity_bytes`, next to what one does.

    compulsory, capacity: the two bounds; bytes: the larger; moved: by the schedule at hand. parts: per sum its bound and formula.
    """

    capacity_bytes: int
    compulsory: int
    capacity: int
    moved: int | None
    parts: tuple[tuple[SumBound, float], ...]
    compulsory_from: int | None  # from this capacity on only the compulsory bytes are left of the bound
    same_as: int | None  # a perfect schedule would move as much with only this capacity

    @property
    def bytes(self) -> int:
        """The larger of the two bounds."""
        return max(self.compulsory, self.capacity)

    @property
    def gap(self) -> float | None:
        """Bytes moved ÷ bound; 1 is perfect. None without a schedule's traffic or a bound."""
        return None if self.moved is None or not self.bytes else self.moved / self.bytes

    @property
    def formula(self) -> str:
        """Leading term of the capacity bound in bytes, S the capacity in bytes; "0" without sums."""
        return " + ".join(p.leading() for p, n in self.parts if n) or "0"


def fast_memory(machine: Target) -> tuple[int, str] | None:
    """(bytes, what they are) of what one core keeps near its arithmetic: shared memory and registers of an SM, else what the
    machine's file says; None where it says nothing."""
    if machine.limits is not None:
        return machine.limits.shared_per_sm + 4 * machine.limits.registers_per_sm, "an SM's shared memory and registers"
    found = machine.shared_capacity
    return None if found is None else (found, "a core's own memory")


class Bounds:
    """The bounds of one kernel: derived once, evaluated for any capacity."""

    def __init__(self, program: Program, sizes: Mapping[str, int]):
        self.sums = sum_bounds(program.source)
        self.sizes = dict(sizes)

    def capacity(self, capacity_bytes: int) -> tuple[float, tuple[tuple[SumBound, float], ...]]:
        """(bytes, the sums that make it up): of every group that shares arrays the largest."""
        out: list[tuple[SumBound, float]] = []
        for group in grouped(self.sums):
            values = [(s, s.at(capacity_bytes, self.sizes)) for s in group]
            out.append(max(values, key=lambda v: v[1]))
        return sum(n for _, n in out), tuple(out)

    def smallest(self, bytes_: int) -> int | None:
        """The least capacity at which the capacity bound is no more than `bytes_`; None where there are no sums."""
        if not self.sums:
            return None
        low, high = 1, 1
        while self.capacity(high)[0] > bytes_:
            high *= 2
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self.capacity(middle)[0] <= bytes_ else (middle + 1, high)
        return high


def sum_bounds(source: Program) -> tuple[SumBound, ...]:
    """Of an original program, every sum whose domain and projections are known to bound it."""
    every = list(sites(source.body))
    counter = Counter(source.sizes, source.where)
    out: list[SumBound] = []
    for s in source.statements:
        if s.op == "=" or not s.loops:
            continue
        try:
            found = _sum_bound(source, s, every, counter)
        except NotClosed:
            continue  # leaving a sum out keeps the bound valid
        if found is not None:
            out.append(found)
    return tuple(out)


def grouped(sums: Sequence[SumBound]) -> list[list[SumBound]]:
    """Sums that have an array in common."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(sums)))
    for a in range(len(sums)):
        for b in range(a):
            if {n for n, _, _ in sums[a].groups} & {n for n, _, _ in sums[b].groups}:
                graph.add_edge(a, b)
    return [[sums[n] for n in sorted(part)] for part in nx.connected_components(graph)]


def _sum_bound(source: Program, s: Statement, every: Sequence[Site], counter: Counter) -> SumBound | None:
    refs = list(dict.fromkeys((s.target, *s.reads)))
    if any(not e.names <= set(s.loops) | set(source.sizes) or _divides(e) for a in refs for e in a.index):
        return None
    maps = [[[e.coefficient(v) for v in s.loops] for e in a.index] for a in refs]
    name = {a: f"{a.buffer} (sum)" if a == s.target else a.buffer for a in refs}
    size = {a: DTYPES[source.buffer[a.buffer].dtype].bytes for a in refs}
    best: SumBound | None = None
    instances = counter.points(s.loops, s.domain)
    computed = total(_computed(source, s, a, every, counter) for a in {a.buffer: a for a in refs}.values())
    for powers in exponents(maps, len(s.loops)):
        groups: dict[str, tuple[int, Fraction]] = {}
        for a, p in zip(refs, powers, strict=True):
            groups[name[a]] = size[a], groups.get(name[a], (0, Fraction(0)))[1] + p
        used = tuple((n, b, p) for n, (b, p) in groups.items() if p)
        if sum((p for _, _, p in used), Fraction(0)) <= 1:
            return None
        found = SumBound(s.name, used, instances, computed)
        if best is None or found.per_segment(1.0) < best.per_segment(1.0):
            best = found
    return best


def _divides(e: Aff) -> bool:
    return any(not isinstance(a, str) for a, _ in e.terms)


def _computed(source: Program, s: Statement, a: Access, every: Sequence[Site], counter: Counter) -> Closed:
    """Bytes of an array's values that may come into being in fast memory: none of an argument that nothing else writes; the
    finished values of what other statements write; every instance's where unfinished ones may be read."""
    b = source.buffer[a.buffer]
    writers = [w for w in source.statements if w.target.buffer == b.name]
    if b.role == "param" and all(w == s for w in writers):
        if not writers or all(r.buffer != b.name or r == s.target for r in s.reads):
            return Closed()
    bytes_ = DTYPES[b.dtype].bytes
    mine = next(x for x in every if isinstance(x.action, Leaf) and x.action.statement == s.name)
    finished = True
    for w in writers:
        at = next(x for x in every if isinstance(x.action, Leaf) and x.action.statement == w.name)
        shared = {p.var for p, q in zip(at.loops, mine.loops, strict=False) if p is q}
        named = frozenset[str]().union(*(e.names for e in w.target.index))
        if w is not s and not shared <= named:
            finished = False  # written again while the sum runs
        if w is s and any(r.buffer == b.name and r != s.target for r in s.reads):
            finished = False
    if not finished:
        return total(counter.points(w.loops, w.domain) for w in writers) * bytes_
    images: dict[Image, None] = {}
    for x in every:
        for address, logical, is_write in addresses(x.action, source):
            if is_write and address.buffer == b.name:
                images[Image(tuple(loop.var for loop in x.loops), x.conditions, logical)] = None
    return counter.distinct(list(images)) * bytes_
