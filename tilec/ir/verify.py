"""The tree rules of DESIGN 3. A program that breaks one is a fault of tilec, never of the person who wrote the kernel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilec.errors import InternalError
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES
from tilec.ir.expr import Index, Load, Scalar, walk
from tilec.ir.program import (
    BLOCK_KINDS,
    MEMORIES,
    ORDERED_KINDS,
    THREAD_KINDS,
    UNORDERED_KINDS,
    UPDATE_OPS,
    Action,
    Address,
    Barrier,
    Buffer,
    Commit,
    Copy,
    Guard,
    Identity,
    Leaf,
    Loop,
    Merge,
    Node,
    Prefetch,
    Program,
    Read,
    Statement,
    Wait,
)
from tilec.ir.tree import Position

KINDS = frozenset((*ORDERED_KINDS, *UNORDERED_KINDS))
ROLES = ("param", "temp", "cache", "partial")

# rule -> what it says; the key is what an InternalError names
RULES = {
    "names": "sizes, scalars, buffers and statements have distinct names; no loop variable equals one of them",
    "declaration": "every buffer is declared once, with a known role, memory and dtype, its shape affine in the sizes",
    "parameter": "a parameter is global, owned by nobody, and as in the original",
    "temporary": "a temporary has the dtype of the original's, a partial that of its root, a cache that or its arithmetic type",
    "statement": "a statement's domain, accesses and value use its loops, the sizes and its reads only",
    "original": "sizes, scalars, statements and permissions on sizes are the original's; the original has none itself",
    "own instance": "a leaf of an original program executes its own instance at its own accesses",
    "empty": "loops and guards have a body, loops at least one bound on each side, guards a condition",
    "variable": "a loop variable occurs once on a path",
    "scope": "bounds, guards, instances and addresses use sizes and the loops around them only",
    "kind": "a loop's kind is known",
    "axis": "a block or thread axis is not nested in itself",
    "block": "a block loop stands under block loops only, and is the only child of one",
    "sync": "barrier, commit and wait stand under no thread loop and no guard",
    "wait": "a wait leaves zero or more groups in flight",
    "arity": "a leaf or an inlined statement has one coordinate per loop and one read per access of its statement",
    "inline": "only a statement with '=' is inlined, in place of a read of its target",
    "rank": "an address has as many indices as its buffer has dimensions, a cell as many as its root",
    "buffer": "an address is in a declared buffer: the accessed one, or a cache or partial of it",
    "copy": "a copy moves values between buffers of one root, unchanged: of one dtype, or into the arithmetic type of the source",
    "op": "identity and merge are for an updating operation",
    "owner": "a buffer's owner is a loop around all its accesses",
    "team": "a team loop runs once, under no parallel or bound loop and no other team",
    "prefetch": "a prefetch names a cell of a declared buffer that still exists where it stands, and a cache level of 1, 2 or 3",
    "shared": "a shared buffer is not owned at or below a thread loop",
}


def verify(program: Program) -> None:
    """Raise InternalError, naming the rule of RULES and the position, unless `program` is well formed."""
    _declarations(program)
    if program.original is None:
        for statement in program.statements:
            _statement(program, statement)
    else:
        _original(program, program.original)
    walk_ = _Walk(program)
    walk_.nodes(program.body, (), ())
    _owners(program, walk_.around)


def _fail(rule: str, fact: str, position: Position | None = None, path: tuple[Loop | Guard, ...] = ()) -> InternalError:
    where = ""
    if position is not None:
        names = [node.var if isinstance(node, Loop) else "if" for node in path]
        where = f"\n  at {'.'.join(map(str, position))}" + (f" (under {', '.join(names)})" if names else "")
    return InternalError(f"verify: {rule}: {fact}; the rule: {RULES[rule]}{where}")


def _duplicate(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _declarations(p: Program) -> None:
    twice = _duplicate(b.name for b in p.buffers)
    if twice is not None:
        raise _fail("declaration", f"buffer {twice!r} is declared twice")
    names = [*p.sizes, *(n for n, _ in p.bound), *(n for n, _ in p.scalars), *p.buffer, *(s.name for s in p.statements)]
    twice = _duplicate(names)
    if twice is not None:
        raise _fail("names", f"{twice!r} names two things")
    sizes = frozenset(p.sizes)
    for c in p.where:
        if not c.names <= sizes:
            raise _fail("scope", f"the assumption {c} uses {_list(c.names - sizes)}")
    for b in p.buffers:
        if b.role not in ROLES or b.memory not in MEMORIES or b.dtype not in DTYPES:
            raise _fail("declaration", f"buffer {b.name!r} has role {b.role!r}, memory {b.memory!r} and dtype {b.dtype!r}")
        outside = frozenset().union(*(e.names for e in b.shape)) - sizes if b.shape else frozenset()
        if outside:
            raise _fail("declaration", f"the shape of {b.name!r} uses {_list(outside)}")
        if b.role == "param" and (b.memory != "global" or b.owner is not None):
            raise _fail("parameter", f"{b.name!r} is in {b.memory}, owned by {b.owner or 'the program'}")
        _derived(p, b)


def _derived(p: Program, b: Buffer) -> None:
    source = p.source.buffer
    if b.role == "param" and source.get(b.name) != b:
        raise _fail("parameter", f"{b.name!r} differs from the original's")
    if b.role == "temp" and (b.name not in source or source[b.name].dtype != b.dtype):
        raise _fail("temporary", f"the original has no temporary {b.name!r} of dtype {b.dtype}")
    root = source.get(b.root or "")
    fits = () if root is None else (root.dtype, DTYPES[root.dtype].arithmetic) if b.role == "cache" else (root.dtype,)
    if b.role in ("cache", "partial") and b.dtype not in fits:
        raise _fail("temporary", f"the {b.role} {b.name!r} of dtype {b.dtype} has no root {b.root!r} of that dtype")


def _statement(p: Program, s: Statement) -> None:
    known = frozenset((*s.loops, *p.sizes))
    if _duplicate(s.loops) is not None or s.op not in ("=", *UPDATE_OPS):
        raise _fail("statement", f"{s.name} has loops {s.loops} and the operation {s.op!r}")
    for c in s.domain:
        if not c.names <= known:
            raise _fail("statement", f"the domain of {s.name} uses {_list(c.names - known)}")
    for a in (s.target, *s.reads):
        if a.buffer not in p.buffer or len(a.index) != len(p.buffer[a.buffer].shape):
            raise _fail("statement", f"{s.name} accesses {a.buffer!r} with {len(a.index)} indices")
        for e in a.index:
            if not e.names <= known:
                raise _fail("statement", f"an access of {s.name} to {a.buffer!r} uses {_list(e.names - known)}")
    scalars = {name for name, _ in p.scalars}
    for e in walk(s.value):
        match e:
            case Load(n=n) if not 0 <= n < len(s.reads):
                raise _fail("statement", f"{s.name} loads read {n} of {len(s.reads)}")
            case Index(aff=aff) if not aff.names <= known:
                raise _fail("statement", f"the value of {s.name} uses {_list(aff.names - known)}")
            case Scalar(name=name) if name not in scalars:
                raise _fail("statement", f"the value of {s.name} uses the scalar {name!r}")


def _original(p: Program, original: Program) -> None:
    if original.original is not None:
        raise _fail("original", "the original program has an original itself")
    for what in ("sizes", "where", "scalars", "bound", "statements"):
        mine, theirs = getattr(p, what), getattr(original, what)
        if mine is not theirs and mine != theirs:
            raise _fail("original", f"{what} differ from the original's")
    params = {b.name for b in p.buffers if b.role == "param"}
    for b in original.buffers:
        if b.role == "param" and b.name not in params:
            raise _fail("parameter", f"{b.name!r} is missing")


def _list(names: Iterable[str]) -> str:
    return ", ".join(repr(n) for n in sorted(names))


@dataclass
class _Walk:
    """One pass over the tree; `around` collects, per buffer, the loops around all its accesses, with their positions."""

    program: Program
    around: dict[str, tuple[tuple[Position, Loop], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        p = self.program
        self.sizes = frozenset(p.sizes)
        self.taken = frozenset(
            (*p.sizes, *(n for n, _ in p.bound), *(n for n, _ in p.scalars), *(b.name for b in p.source.buffers), *p.buffer)
        )

    def nodes(self, body: tuple[Node, ...], path: tuple[Loop | Guard, ...], position: Position) -> None:
        loops = [(position[: n + 1], node) for n, node in enumerate(path) if isinstance(node, Loop)]
        scope = self.sizes | {loop.var for _, loop in loops}
        for n, node in enumerate(body):
            here = (*position, n)
            match node:
                case Loop():
                    self._loop(node, path, here, scope, alone=len(body) == 1)
                    self.nodes(node.body, (*path, node), here)
                case Guard():
                    if not node.conditions or not node.body:
                        raise _fail("empty", "a guard without condition or body", here, path)
                    self._scope([c.expr for c in node.conditions], "a guard", here, path, scope)
                    self.nodes(node.body, (*path, node), here)
                case Prefetch(address=a, level=level):
                    if a.buffer not in self.program.buffer or len(a.index) != len(self.program.buffer[a.buffer].shape):
                        raise _fail("prefetch", f"{a.buffer!r} with {len(a.index)} indices", here, path)
                    if level not in (1, 2, 3):
                        raise _fail("prefetch", f"level {level}", here, path)
                    self._scope(a.index, f"the prefetched address in {a.buffer!r}", here, path, scope)
                case Barrier() | Commit() | Wait():
                    for outer in path:
                        if isinstance(outer, Guard) or outer.kind in THREAD_KINDS:
                            what = "a guard" if isinstance(outer, Guard) else f"the {outer.kind} loop {outer.var!r}"
                            raise _fail("sync", f"{type(node).__name__.lower()} under {what}", here, path)
                    if isinstance(node, Wait) and node.n < 0:
                        raise _fail("wait", f"wait({node.n})", here, path)
                case _:
                    self._action(node, path, here, scope, tuple(loops))

    def _loop(self, loop: Loop, path: tuple[Loop | Guard, ...], here: Position, scope: frozenset[str], alone: bool) -> None:
        if not loop.lower or not loop.upper or not loop.body:
            raise _fail("empty", f"loop {loop.var!r} without bounds or body", here, path)
        if loop.var in self.taken:
            raise _fail("names", f"loop {loop.var!r} has the name of a size, scalar or buffer", here, path)
        outer = [node for node in path if isinstance(node, Loop)]
        if any(node.var == loop.var for node in outer):
            raise _fail("variable", f"loop {loop.var!r} under a loop of that name", here, path)
        self._scope([*loop.lower, *loop.upper], f"the bounds of {loop.var!r}", here, path, scope)
        if loop.kind not in KINDS:
            raise _fail("kind", f"loop {loop.var!r} is {loop.kind!r}", here, path)
        if loop.kind == "team":
            around = [node.var for node in outer if node.kind in (*UNORDERED_KINDS, "team")]
            if around or loop.lower != (Aff(0),) or loop.upper != (Aff(1),):
                where = f"under {around[0]!r}" if around else "with more than one iteration"
                raise _fail("team", f"the team loop {loop.var!r} {where}", here, path)
        if loop.kind in THREAD_KINDS or loop.kind in BLOCK_KINDS:
            for node in outer:
                if node.kind == loop.kind:
                    raise _fail("axis", f"{loop.var!r} is bound to {loop.kind} under {node.var!r}", here, path)
        if loop.kind in BLOCK_KINDS:
            if not all(isinstance(node, Loop) and node.kind in BLOCK_KINDS for node in path):
                raise _fail("block", f"the block loop {loop.var!r} is not outermost", here, path)
            if path and not alone:
                raise _fail("block", f"the block loop {loop.var!r} has siblings in {outer[-1].var!r}", here, path)

    def _scope(self, es: Iterable[Aff], what: str, here: Position, path: tuple[Loop | Guard, ...], scope: frozenset[str]) -> None:
        for e in es:
            if not e.names <= scope:
                raise _fail("scope", f"{what} use {_list(e.names - scope)}", here, path)

    def _action(
        self,
        action: Action,
        path: tuple[Loop | Guard, ...],
        here: Position,
        scope: frozenset[str],
        loops: tuple[tuple[Position, Loop], ...],
    ) -> None:
        p = self.program

        def address(a: Address, accessed: str | None) -> None:
            if a.buffer not in p.buffer:
                raise _fail("buffer", f"buffer {a.buffer!r} is not declared", here, path)
            b = p.buffer[a.buffer]
            if accessed is not None and b.name != accessed and b.root != accessed and b.role != "partial":
                raise _fail("buffer", f"{b.name!r} stands for {accessed!r}", here, path)
            if len(a.index) != len(b.shape):
                raise _fail("rank", f"{b.name!r} has {len(b.shape)} dimensions, the address {len(a.index)}", here, path)
            self._scope(a.index, f"the address in {b.name!r}", here, path, scope)
            known = self.around.get(b.name)
            self.around[b.name] = loops if known is None else _common(known, loops)

        def arity(name: str, instance: tuple[Aff, ...], reads: tuple[Read, ...]) -> Statement:
            s = p.statement.get(name)
            if s is None or len(instance) != len(s.loops) or len(reads) != len(s.reads):
                raise _fail("arity", f"{name} with {len(instance)} coordinates and {len(reads)} reads", here, path)
            self._scope(instance, f"the instance of {name}", here, path, scope)
            return s

        def read_all(s: Statement, reads: tuple[Read, ...]) -> None:
            for r, a in zip(reads, s.reads, strict=True):
                if isinstance(r, Address):
                    address(r, a.buffer)
                    continue
                inner = arity(r.statement, r.instance, r.reads)
                if inner.op != "=" or inner.target.buffer != a.buffer:
                    raise _fail("inline", f"{inner.name} ({inner.target.buffer} {inner.op} …) for {a.buffer!r}", here, path)
                read_all(inner, r.reads)

        def cell(index: tuple[Aff, ...], a: Address) -> None:
            root = p.source.buffer.get(p.buffer[a.buffer].root or a.buffer)
            if root is not None and p.buffer[a.buffer].role != "partial" and len(index) != len(root.shape):
                raise _fail("rank", f"a cell of {len(index)} indices in {root.name!r} of {len(root.shape)}", here, path)
            self._scope(index, f"the cell of {a.buffer!r}", here, path, scope)

        match action:
            case Leaf():
                s = arity(action.statement, action.instance, action.reads)
                read_all(s, action.reads)
                address(action.target, s.target.buffer)
                if p.original is None:
                    _own_instance(s, action, here, path)
            case Copy():
                address(action.src, None)
                address(action.dst, None)
                src, dst = p.buffer[action.src.buffer], p.buffer[action.dst.buffer]
                same = dst.dtype in (src.dtype, DTYPES[src.dtype].arithmetic)
                if not same or (src.root or src.name) != (dst.root or dst.name):
                    raise _fail("copy", f"{dst.name}: {dst.dtype} = {src.name}: {src.dtype}", here, path)
                cell(action.cell, action.dst)
            case Identity() | Merge():
                if action.op not in UPDATE_OPS:
                    raise _fail("op", f"{type(action).__name__.lower()} of {action.op!r}", here, path)
                address(action.dst, None)
                cell(action.cell, action.dst)
                if isinstance(action, Merge):
                    address(action.src, None)
                    cell(action.src_cell, action.src)


def _own_instance(s: Statement, leaf: Leaf, here: Position, path: tuple[Loop | Guard, ...]) -> None:
    own = tuple(Aff.of(v) for v in s.loops)
    reads = tuple(Address(a.buffer, a.index) for a in s.reads)
    if leaf.instance != own or leaf.target != Address(s.target.buffer, s.target.index) or leaf.reads != reads:
        raise _fail("own instance", f"{s.name} of the original program", here, path)


def _common(a: tuple[tuple[Position, Loop], ...], b: tuple[tuple[Position, Loop], ...]) -> tuple[tuple[Position, Loop], ...]:
    n = 0
    while n < min(len(a), len(b)) and a[n][0] == b[n][0]:
        n += 1
    return a[:n]


def _owners(p: Program, around: dict[str, tuple[tuple[Position, Loop], ...]]) -> None:
    for b in p.buffers:
        if b.owner is None:
            continue
        loops = [loop for _, loop in around.get(b.name, ())]
        names = [loop.var for loop in loops]
        if b.owner not in names:
            have = ", ".join(names) or "none"
            raise _fail("owner", f"{b.name!r} is owned by {b.owner!r}; the loops around all its accesses: {have}")
        if b.memory == "shared":
            for loop in loops[: names.index(b.owner) + 1]:
                if loop.kind in THREAD_KINDS:
                    raise _fail("shared", f"{b.name!r}, owned by {b.owner!r}, lies under the {loop.kind} loop {loop.var!r}")
