"""What a program is: one screen of frozen nodes. isl-free and picklable.

    Program  ::= sizes, scalars, buffers, statements, body: Node*, original
    Node     ::= Loop(var, lower, upper, kind, Node*) | Guard(conditions, Node*) | Action
    Action   ::= Leaf(statement, instance, target, reads)       executes one instance of an original statement
               | Copy(dst, src, cell) | Identity(dst, op) | Merge(dst, src, op)
               | Barrier | Commit | Wait(n) | Prefetch(address, level)
    Read     ::= Address(buffer, index) | Inline(statement, instance, reads)

Semantics. A body runs in order. A Loop runs max(lower) <= var < min(upper); its kind says how iterations relate:
serial, unrolled and pipelined ones follow each other and reuse the same cells; parallel, vector, block.x/y/z and thread.x/y/z
ones are unordered, and have their own cells of every buffer owned at or below the loop. A Leaf evaluates its statement's
expression at the instance `instance(loop variables)`, n-th load from reads[n], and updates `target` (for `op` not "=" the
target's old value is a read too). An Inline evaluates another statement's expression in place, rounded to that statement's target
dtype. A buffer's contents are undefined at the start of each iteration of its owner, and what is in shared memory or registers
does not outlive a kernel launch (a top-level nest, where loops are bound); register cells also carry the
thread indices of the accessing action. An asynchronous Copy runs at any moment until a Wait that covers its Commit group.
A team loop has one iteration: the threads of a CPU start at its head and meet at its end, and at the end of each parallel loop
inside; what it holds beside parallel loops runs once. A Prefetch is a hint: it reads and writes nothing, and may name a cell
outside its buffer. `streaming` and `instruction` say how an action or a loop is executed, never what it computes.

Logical and physical. A statement's accesses are *logical* indices of the original buffers: a temporary declared inside loops has
one leading dimension per loop around the declaration (`Buffer.private` of them). An Address holds *physical* indices, after
`place` has subtracted the owner's base and dropped the dimensions of extent 1. The logical index of a Leaf's access is
its statement's access at `instance`; that of a Copy is `cell`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias, Union

from tilec.ir.affine import Aff, Constraint
from tilec.ir.expr import Expr

MEMORIES = ("global", "shared", "register", "scratch")
DISTANCE = {"register": 0, "shared": 1, "scratch": 1, "global": 2}  # from the arithmetic: which end of a copy is the far one
ORDERED_KINDS = ("serial", "unrolled", "pipelined", "team")
THREAD_KINDS = ("thread.x", "thread.y", "thread.z")
BLOCK_KINDS = ("block.x", "block.y", "block.z")
UNORDERED_KINDS = ("parallel", "vector", *BLOCK_KINDS, *THREAD_KINDS)
LAUNCH_KINDS = (*BLOCK_KINDS, *THREAD_KINDS)
APART_KINDS = ("parallel", "vector", *BLOCK_KINDS)  # unordered, and no barrier can order their iterations
PAGES = ("normal", "huge")
UPDATE_OPS = ("+=", "*=", "max=", "min=")


@dataclass(frozen=True)
class Layout:
    """A bijection of a buffer's cells onto addresses: ("pad", dim, n), ("xor", row, column), ("panels", dim, width) or
    ("digits", dim, divisor, modulus, …): see layouts.py."""

    name: str
    args: tuple[int, ...]


@dataclass(frozen=True)
class Buffer:
    """An array: where its cells are, and whose iterations own them."""

    name: str
    dtype: str
    shape: tuple[Aff, ...]  # physical extents: constants, or affine in the sizes
    role: str = "temp"  # param: an argument; temp: declared; cache: by cache_read or cache_write; partial: by split_reduction
    memory: str = "global"
    owner: str | None = (
        None  # the loop (its variable, on the common path of all accesses) whose iterations own it; None: the program
    )
    private: int = 0  # leading logical dimensions that stand for the loops around the declaration
    root: str | None = None  # of a cache: the original buffer whose logical indices it uses
    placed: bool = False  # `place` named it: the default placement keeps away
    layout: Layout | None = None
    align: int | None = None  # bytes, a power of two; None: the backend's choice
    pages: str = "normal"  # one of PAGES: what the allocation asks of the system
    prepacked: bool = False  # a copy of a parameter that the caller may have made ahead of the call


@dataclass(frozen=True)
class Access:
    """A logical access of an original statement: indices affine in its loop variables and the sizes."""

    buffer: str
    index: tuple[Aff, ...]


@dataclass(frozen=True)
class Statement:
    """target op value, once per instance of `loops` in `domain`; the original program's, never changed by a schedule."""

    name: str  # S0, S1, … in source order
    loops: tuple[str, ...]
    domain: tuple[Constraint, ...]
    target: Access
    op: str  # "=" or one of UPDATE_OPS
    value: Expr
    reads: tuple[Access, ...]
    line: int | None = None


@dataclass(frozen=True)
class Address:
    """A physical access."""

    buffer: str
    index: tuple[Aff, ...]


@dataclass(frozen=True)
class Inline:
    """An original statement evaluated in place of a read."""

    statement: str
    instance: tuple[Aff, ...]
    reads: tuple[Read, ...]


Read: TypeAlias = Union[Address, Inline]


@dataclass(frozen=True)
class Leaf:
    """One instance of an original statement: target op value, at physical addresses."""

    statement: str
    instance: tuple[Aff, ...]
    target: Address
    reads: tuple[Read, ...]
    streaming: bool = False  # the store goes past the caches


@dataclass(frozen=True)
class Copy:
    """dst = src exactly; `cell` is the logical index, in the root buffer, of the value moved."""

    dst: Address
    src: Address
    cell: tuple[Aff, ...]
    asynchronous: bool = False
    streaming: bool = False  # the store goes past the caches


@dataclass(frozen=True)
class Identity:
    """dst = the neutral element of `op`; `cell` is the logical index of dst."""

    dst: Address
    op: str
    cell: tuple[Aff, ...]


@dataclass(frozen=True)
class Merge:
    """dst = dst op src; `cell` is the logical index of dst in its root buffer, `src_cell` that of src."""

    dst: Address
    src: Address
    op: str
    cell: tuple[Aff, ...]
    src_cell: tuple[Aff, ...]


@dataclass(frozen=True)
class Barrier:
    """The threads of a block meet."""

    inserted: bool = False  # by tilec, derived again after every step


@dataclass(frozen=True)
class Commit:
    """Closes a group: the asynchronous copies issued since the last one."""


@dataclass(frozen=True)
class Wait:
    """For the groups of the issuing thread, all but the youngest `n`."""

    n: int  # at most n youngest groups stay in flight


@dataclass(frozen=True)
class Prefetch:
    """Ask for the cache line of a cell; no effect on any value. The cell may lie outside the buffer."""

    address: Address
    level: int = 1  # the cache it shall come to: 1, 2 or 3
    write: bool = False  # it will be written


@dataclass(frozen=True)
class Loop:
    """max(lower) <= var < min(upper), in steps of 1; `kind` is one of ORDERED_KINDS or UNORDERED_KINDS."""

    var: str
    lower: tuple[Aff, ...]  # max of these
    upper: tuple[Aff, ...]  # min of these, exclusive
    body: tuple[Node, ...]
    kind: str = "serial"
    instruction: str | None = None  # one machine instruction runs the nest that starts here: instructions.py


@dataclass(frozen=True)
class Guard:
    """The body runs where every condition holds."""

    conditions: tuple[Constraint, ...]  # all hold
    body: tuple[Node, ...]


Action: TypeAlias = Union[Leaf, Copy, Identity, Merge, Barrier, Commit, Wait, Prefetch]
Node: TypeAlias = Union[Loop, Guard, Action]


@dataclass(frozen=True)
class Program:
    """A kernel, as written (`original` None) or scheduled (`original` says what it must compute)."""

    name: str
    sizes: tuple[str, ...]  # symbolic sizes still free, each >= 1
    where: tuple[Constraint, ...]  # further assumptions on sizes
    scalars: tuple[tuple[str, str], ...]  # (name, dtype)
    buffers: tuple[Buffer, ...]
    statements: tuple[Statement, ...]
    body: tuple[Node, ...]
    parameters: tuple[str, ...] = ()  # arrays and scalars in the order of the call; (): arrays, then scalars
    bound: tuple[tuple[str, int], ...] = ()  # sizes given at schedule(...)
    reassociate: frozenset[str] = frozenset()  # buffers whose float sums may change their order
    contract: bool = False
    hardware_rounding: bool = False  # an instruction may flush denormals and round in its own order
    recomputed: frozenset[str] = frozenset()  # statements that compute_at or compute_inline allowed to run more than once
    original: Program | None = field(default=None, repr=False)  # None: this is the original

    @cached_property
    def buffer(self) -> dict[str, Buffer]:
        return {b.name: b for b in self.buffers}

    @cached_property
    def statement(self) -> dict[str, Statement]:
        return {s.name: s for s in self.statements}

    @cached_property
    def has_launches(self) -> bool:
        """Is some loop bound to blocks or threads, so that top-level nests are kernel launches?"""

        def bound(nodes: tuple[Node, ...]) -> bool:
            return any(
                isinstance(n, Loop | Guard) and ((isinstance(n, Loop) and n.kind in LAUNCH_KINDS) or bound(n.body)) for n in nodes
            )

        return bound(self.body)

    @property
    def source(self) -> Program:
        """The original program (itself, when it is one)."""
        return self.original if self.original is not None else self
