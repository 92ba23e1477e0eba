"""Direct rewrites of the tree that need no primitive and keep nothing legal on purpose: half of what they make is wrong.

Each takes (random, program) and returns a new program, or None where it does not apply. Results may break a rule of the tree;
the caller asks tilec.ir.verify.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from random import Random

from tilec.errors import InternalError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import (
    Access,
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
    Program,
    Read,
    Wait,
)
from tilec.ir.tree import Position, addresses, at, loops, map_addresses, path_to, put, sites, subs, transform
from tilec.ir.verify import verify

Mutation = Callable[[Random, Program], Program | None]


def with_body(p: Program, body: tuple[Node, ...]) -> Program:
    return replace(p, body=body, original=p.source)


def pick_loop(rng: Random, p: Program, want: Callable[[Loop], bool] = lambda _: True) -> tuple[Position, Loop] | None:
    found = [(position, loop) for position, loop in loops(p.body) if want(loop)]
    return rng.choice(found) if found else None


def bodies(p: Program) -> list[tuple[Position, tuple[Node, ...]]]:
    """Every list of siblings with the position of the node that holds it (() is the root)."""
    out: list[tuple[Position, tuple[Node, ...]]] = [((), p.body)]

    def go(nodes: tuple[Node, ...], position: Position) -> None:
        for n, node in enumerate(nodes):
            if isinstance(node, Loop | Guard):
                out.append(((*position, n), node.body))
                go(node.body, (*position, n))

    go(p.body, ())
    return out


def set_body(p: Program, position: Position, body: tuple[Node, ...]) -> Program:
    if not position:
        return with_body(p, body)
    node = at(p.body, position)
    assert isinstance(node, Loop | Guard)
    return with_body(p, put(p.body, position, (replace(node, body=body),)))


def fresh(p: Program, base: str) -> str:
    taken = {loop.var for _, loop in loops(p.body)} | set(p.buffer)
    return next(f"{base}{n}" for n in range(100) if f"{base}{n}" not in taken)


# -- order ------------------------------------------------------------------------------------------------------------------


def swap_siblings(rng: Random, p: Program) -> Program | None:
    options = [(position, body) for position, body in bodies(p) if len(body) > 1]
    if not options:
        return None
    position, body = rng.choice(options)
    n = rng.randrange(len(body) - 1)
    return set_body(p, position, (*body[:n], body[n + 1], body[n], *body[n + 2 :]))


def reverse_loop(rng: Random, p: Program) -> Program | None:
    found = pick_loop(rng, p, lambda x: len(x.lower) == len(x.upper) == 1)
    if not found:
        return None
    position, loop = found
    turned = loop.lower[0] + loop.upper[0] - 1 - loop.var
    return with_body(p, put(p.body, position, (replace(loop, body=subs(loop.body, {loop.var: turned})),)))


def interchange(rng: Random, p: Program) -> Program | None:
    def perfect(x: Loop) -> bool:
        inner = x.body[0]
        return len(x.body) == 1 and isinstance(inner, Loop) and all(x.var not in e.names for e in (*inner.lower, *inner.upper))

    found = pick_loop(rng, p, perfect)
    if not found:
        return None
    position, outer = found
    inner = outer.body[0]
    assert isinstance(inner, Loop)
    return with_body(p, put(p.body, position, (replace(inner, body=(replace(outer, body=inner.body),)),)))


def split_loop(rng: Random, p: Program) -> Program | None:
    found = pick_loop(rng, p, lambda x: len(x.lower) == 1)
    if not found:
        return None
    position, loop = found
    factor, o, i = rng.choice((2, 2, 3)), fresh(p, "o"), fresh(p, "q")
    low = loop.lower[0]
    value = low + Aff.of(o) * factor + i
    inside: tuple[Node, ...] = subs(loop.body, {loop.var: value})
    if rng.random() < 0.5:
        inner = Loop(i, (Aff(0),), (Aff(factor), *(e - low - Aff.of(o) * factor for e in loop.upper)), inside, loop.kind)
    else:
        inner = Loop(
            i, (Aff(0),), (Aff(factor),), (Guard(tuple(Constraint.lt(value, e) for e in loop.upper), inside),), loop.kind
        )
    outer = Loop(o, (Aff(0),), tuple((e - low + factor - 1) // factor for e in loop.upper), (inner,), loop.kind)
    owners = tuple(replace(b, owner=rng.choice((o, i))) if b.owner == loop.var else b for b in p.buffers)
    return replace(with_body(p, put(p.body, position, (outer,))), buffers=owners)


def sink(rng: Random, p: Program) -> Program | None:
    """After a split: exchange the two halves' order, the loop between moving outwards (strip-mine and interchange)."""
    tiled = split_loop(rng, p)
    return interchange(rng, tiled) if tiled else None


def distribute(rng: Random, p: Program) -> Program | None:
    found = pick_loop(rng, p, lambda x: len(x.body) > 1)
    if not found:
        return None
    position, loop = found
    n = rng.randrange(1, len(loop.body))
    return with_body(p, put(p.body, position, (replace(loop, body=loop.body[:n]), replace(loop, body=loop.body[n:]))))


def fuse_siblings(rng: Random, p: Program) -> Program | None:
    options: list[tuple[Position, tuple[Node, ...], int]] = []
    for position, body in bodies(p):
        for n, (a, b) in enumerate(pairwise(body)):
            if isinstance(a, Loop) and isinstance(b, Loop):
                options.append((position, body, n))
    if not options:
        return None
    position, body, n = rng.choice(options)
    a, b = body[n], body[n + 1]
    assert isinstance(a, Loop) and isinstance(b, Loop)
    second = subs(b.body, {b.var: Aff.of(a.var)})
    if (a.lower, a.upper) == (b.lower, b.upper):
        merged = replace(a, body=a.body + second)
    elif len(a.lower) == len(b.lower) == len(a.upper) == len(b.upper) == 1 and a.lower == b.lower:
        # over the second one's range, the first one guarded: drops iterations where the first is longer
        first = (Guard((Constraint.lt(a.var, a.upper[0]),), a.body),)
        merged = replace(a, upper=b.upper, body=first + second)
    else:
        return None
    return set_body(p, position, (*body[:n], merged, *body[n + 2 :]))


def shift_body(rng: Random, p: Program) -> Program | None:
    """Run part of a loop's body one iteration later (or earlier), guards explicit."""
    found = pick_loop(rng, p, lambda x: len(x.body) > 1 and len(x.lower) == len(x.upper) == 1)
    if not found:
        return None
    position, loop = found
    n, by = rng.randrange(1, len(loop.body)), rng.choice((1, -1))
    moved = subs(loop.body[n:], {loop.var: Aff.of(loop.var) - by})
    low, high = loop.lower[0], loop.upper[0]
    first = Guard((Constraint.ge(loop.var, low), Constraint.lt(loop.var, high)), loop.body[:n])
    second = Guard((Constraint.ge(loop.var, low + by), Constraint.lt(loop.var, high + by)), moved)
    new = replace(loop, lower=(low + min(by, 0),), upper=(high + max(by, 0),), body=(first, second))
    return with_body(p, put(p.body, position, (new,)))


def change_bound(rng: Random, p: Program) -> Program | None:
    found = pick_loop(rng, p)
    if not found:
        return None
    position, loop = found
    if rng.random() < 0.5:
        new = replace(loop, upper=tuple(e + rng.choice((-1, 1)) for e in loop.upper))
    else:
        new = replace(loop, lower=tuple(e + rng.choice((-1, 1)) for e in loop.lower))
    return with_body(p, put(p.body, position, (new,)))


# -- instances and accesses ---------------------------------------------------------------------------------------------------


def drop_leaf(rng: Random, p: Program) -> Program | None:
    site = rng.choice(list(sites(p.body)))
    body = put(p.body, site.position, ())
    return with_body(p, body) if body else None


def duplicate_node(rng: Random, p: Program) -> Program | None:
    site = rng.choice(list(sites(p.body)))
    cut = site.position[: rng.randint(1, len(site.position))]
    node = at(p.body, cut)
    out = with_body(p, put(p.body, cut, (node, node)))
    names = {a.statement for a in (s.action for s in sites((node,))) if isinstance(a, Leaf)}
    return replace(out, recomputed=p.recomputed | names) if rng.random() < 0.7 else out


def shift_address(rng: Random, p: Program) -> Program | None:
    site = rng.choice(list(sites(p.body)))
    places = [a for a, _, _ in addresses(site.action, p) if a.index]
    if not places:
        return None
    wanted, by = rng.choice(places), rng.choice((1, -1))
    d = rng.randrange(len(wanted.index))

    def moved(a: Address, logical: tuple[Aff, ...], write: bool) -> Read:
        return Address(a.buffer, tuple(e + (by if n == d else 0) for n, e in enumerate(a.index))) if a == wanted else a

    return with_body(p, put(p.body, site.position, (map_addresses(site.action, moved, p),)))


def everywhere(p: Program, f: Callable[[Address, tuple[Aff, ...], bool], Read]) -> tuple[Node, ...]:
    return transform(p.body, lambda n: (n,) if isinstance(n, Loop | Guard) else (map_addresses(n, f, p),))


# -- storage --------------------------------------------------------------------------------------------------------------------


def fold(rng: Random, p: Program) -> Program | None:
    """Keep only the last few cells of one dimension of a temporary."""
    options = [(b, d) for b in p.buffers if b.role != "param" for d in range(len(b.shape))]
    if not options:
        return None
    b, d = rng.choice(options)
    slots = rng.choice((1, 1, 2, 3))

    def folded(a: Address, logical: tuple[Aff, ...], write: bool) -> Read:
        return Address(a.buffer, tuple(e % slots if n == d else e for n, e in enumerate(a.index))) if a.buffer == b.name else a

    shape = tuple(Aff(slots) if n == d else e for n, e in enumerate(b.shape))
    new = replace(b, shape=shape)
    return replace(with_body(p, everywhere(p, folded)), buffers=tuple(new if x is b else x for x in p.buffers))


def change_owner(rng: Random, p: Program) -> Program | None:
    """Another owner, or another memory, for a buffer that is no parameter."""
    options = [b for b in p.buffers if b.role != "param"]
    if not options:
        return None
    b = rng.choice(options)
    around = [s.loops for s in sites(p.body) if any(a.buffer == b.name for a, _, _ in addresses(s.action, p))]
    if not around:
        return None
    common: list[str] = []
    for level in zip(*around, strict=False):
        if any(x is not level[0] for x in level):
            break
        common.append(level[0].var)
    memory = rng.choice(("global", "shared", "register"))
    new = replace(b, owner=rng.choice([None, *common, *common]), memory=memory)
    return replace(p, buffers=tuple(new if x is b else x for x in p.buffers), original=p.source)


def contract(rng: Random, p: Program) -> Program | None:
    """What `place` does: one cell per innermost common loop, or per another loop around all accesses."""
    owned = change_owner(rng, p)
    folded = owned
    for _ in range(rng.choice((1, 2, 3))):
        folded = (fold(rng, folded) or folded) if folded else None
    return folded


def cache(rng: Random, p: Program) -> Program | None:
    """Read a buffer through a copy of the row that a loop's body uses; the copy may stand too early, or hold too little."""
    found = pick_loop(rng, p)
    readable = [b for b in p.buffers if b.shape and b.role != "cache"]
    if not found or not readable:
        return None
    position, loop = found
    b, name = rng.choice(readable), fresh(p, "C")
    copies = [fresh(p, f"c{d}_") for d in range(len(b.shape))]
    index = tuple(Aff.of(v) for v in copies)
    moved = Copy(Address(name, index), Address(b.name, index), index)
    nodes: tuple[Node, ...] = (moved,)
    for v, extent in reversed(list(zip(copies, b.shape, strict=True))):
        nodes = (Loop(v, (Aff(0),), (extent - rng.choice((0, 0, 0, 0, 0, 1)),), nodes),)
    if any(b.owner is not None and b.owner not in [x.var for x in path_to(p.body, position) if isinstance(x, Loop)] for b in [b]):
        return None

    written = {x.target.buffer for x in p.statements}
    writes_too = rng.random() < 0.4 and (b.root or b.name) in written

    def through(a: Address, logical: tuple[Aff, ...], write: bool) -> Read:
        return Address(name, a.index) if a.buffer == b.name and (writes_too or not write) else a

    def redirect(n: Node) -> tuple[Node, ...]:
        return (n,) if isinstance(n, Loop | Guard) else (map_addresses(n, through, p),)

    inside = transform(loop.body, redirect)
    back: tuple[Node, ...] = ()
    if writes_too:
        back = transform(nodes, lambda n: (replace(n, dst=n.src, src=n.dst),) if isinstance(n, Copy) else (n,))
        if rng.random() < 0.2:
            nodes = ()
    # a whole array copied in and out by every iteration is a chain of copies without a closed form: rarely
    owner_here = rng.random() < (0.1 if writes_too else 0.7)
    before, after = (nodes, back) if owner_here else ((), ())
    new: tuple[Node, ...] = (replace(loop, body=(*before, *inside, *after)),)
    if not owner_here:
        new = (*nodes, *new, *back)
    memory = rng.choice(("global", "shared", "register"))
    made = Buffer(name, b.dtype, b.shape, "cache", memory, loop.var if owner_here else None, root=b.root or b.name)
    return replace(with_body(p, put(p.body, position, new)), buffers=(*p.buffers, made))


def inline(rng: Random, p: Program) -> Program | None:
    """Evaluate the only `=` writer of a buffer in place of a read, where its target's indices are its own variables."""
    options = []
    for site in sites(p.body):
        if isinstance(site.action, Leaf):
            statement = p.statement[site.action.statement]
            env = dict(zip(statement.loops, site.action.instance, strict=True))
            for n, access in enumerate(statement.reads):
                for producer in p.statements:
                    found = inverse(
                        producer.target, producer.loops, Access(access.buffer, tuple(e.subs(env) for e in access.index))
                    )
                    if producer.op == "=" and found is not None and isinstance(site.action.reads[n], Address):
                        options.append((site, n, producer, found))
    if not options:
        return None
    site, n, producer, instance = rng.choice(options)
    env = dict(zip(producer.loops, instance, strict=True))
    reads = tuple(Address(a.buffer, tuple(e.subs(env) for e in a.index)) for a in producer.reads)
    if any(p.buffer[a.buffer].shape != p.source.buffer[a.buffer].shape for a in reads):
        return None  # placed: physical addresses differ
    leaf = site.action
    assert isinstance(leaf, Leaf)
    new = replace(leaf, reads=(*leaf.reads[:n], Inline(producer.name, instance, reads), *leaf.reads[n + 1 :]))
    return replace(with_body(p, put(p.body, site.position, (new,))), recomputed=p.recomputed | {producer.name})


def inverse(target: Access, variables: tuple[str, ...], wanted: Access) -> tuple[Aff, ...] | None:
    """The instance whose target is the wanted cell, when each target index is variable + constant and every variable occurs."""
    if target.buffer != wanted.buffer:
        return None
    found: dict[str, Aff] = {}
    for mine, want in zip(target.index, wanted.index, strict=True):
        names = [v for v in variables if mine.coefficient(v) == 1]
        if len(names) == 1 and not (mine - names[0]).terms:
            found[names[0]] = want - (mine - names[0]).const
    return tuple(found[v] for v in variables) if set(found) == set(variables) else None


def recompute_nest(rng: Random, p: Program) -> Program | None:
    """Run a whole nest again, at the start of a later loop's body."""
    found = pick_loop(rng, p)
    if not found or len(p.body) < 2:
        return None
    position, loop = found
    if position[0] == 0:
        return None
    source = p.body[rng.randrange(position[0])]
    clash = {x.var for _, x in loops((source,))} & {x.var for x in (*path_to(p.body, position), loop) if isinstance(x, Loop)}
    if clash:
        for v in clash:
            renamed = fresh(p, "r")
            source = transform((source,), lambda n, v=v, r=renamed: rename(n, v, r))[0]
    names = {s.action.statement for s in sites((source,)) if isinstance(s.action, Leaf)}
    new = replace(loop, body=(source, *loop.body))
    return replace(with_body(p, put(p.body, position, (new,))), recomputed=p.recomputed | names)


def rename(n: Node, old: str, new: str) -> tuple[Node, ...]:
    if isinstance(n, Loop) and n.var == old:
        return (replace(n, var=new, body=subs(n.body, {old: Aff.of(new)})),)
    return (n,)


# -- reductions -------------------------------------------------------------------------------------------------


def reassociate(rng: Random, p: Program) -> Program | None:
    sums = [s.target.buffer for s in p.statements if s.op == "+="]
    return replace(p, reassociate=p.reassociate | {rng.choice(sums)}, original=p.source) if sums else None


def partials(rng: Random, p: Program) -> Program | None:
    """Split one update over partial results: identity, update into slot v mod n, merge; sometimes one of the three is missing."""
    options = []
    for position, loop in loops(p.body):
        for n, node in enumerate(loop.body):
            if isinstance(node, Leaf) and p.statement[node.statement].op != "=":
                options.append((position, loop, n, node))
    if not options:
        return None
    position, loop, n, leaf = rng.choice(options)
    if any(loop.var in e.names for e in leaf.target.index):
        return None
    statement, name, v = p.statement[leaf.statement], fresh(p, "P"), fresh(p, "w")
    slots = rng.choice((1, 2, 3))
    logical = tuple(e.subs(dict(zip(statement.loops, leaf.instance, strict=True))) for e in statement.target.index)
    path = path_to(p.body, position)
    where = [x.var for x in path if isinstance(x, Loop)]
    root = statement.target.buffer
    made = Buffer(name, p.source.buffer[root].dtype, (Aff(slots),), "partial", "global", where[-1] if where else None, root=root)
    slot = Address(name, (Aff.of(v),))
    start: Node = Loop(v, (Aff(0),), (Aff(slots),), (Identity(slot, statement.op, logical),))
    end: Node = Loop(v, (Aff(0),), (Aff(slots),), (Merge(leaf.target, slot, statement.op, logical, logical),))
    inside = replace(leaf, target=Address(name, (Aff.of(loop.var) % slots,)))
    body = (*loop.body[:n], inside, *loop.body[n + 1 :])
    nodes: list[Node] = [start, replace(loop, body=body), end]
    for m in (2, 0):
        if rng.random() < 0.08:
            del nodes[m]
    out = replace(with_body(p, put(p.body, position, tuple(nodes))), buffers=(*p.buffers, made))
    return replace(out, reassociate=out.reassociate | {root}) if statement.op == "+=" and rng.random() < 0.8 else out


# -- concurrency ------------------------------------------------------------------------------------------------


def change_kind(rng: Random, p: Program) -> Program | None:
    kinds = ("parallel", "parallel", "vector", "thread.x", "thread.x", "thread.y", "block.x", "block.y", "serial", "unrolled")
    kind = rng.choice(kinds)
    found = pick_loop(rng, p, lambda x: x.kind != kind)
    if not found:
        return None
    position, loop = found
    out = with_body(p, put(p.body, position, (replace(loop, kind=kind),)))
    if kind.startswith("thread") and rng.random() < 0.7:  # the other phases of the same nest too
        everyone = [q for q, x in loops(out.body) if len(q) == len(position) and q[:-1] == position[:-1] and x.kind == "serial"]
        for q in everyone:
            other = at(out.body, q)
            assert isinstance(other, Loop)
            out = with_body(out, put(out.body, q, (replace(other, kind=kind),)))
    return out


def insert_sync(rng: Random, p: Program) -> Program | None:
    position, body = rng.choice(bodies(p))
    n = rng.randrange(len(body) + 1)
    return set_body(p, position, (*body[:n], Barrier(), *body[n:]))


def barriers_everywhere(rng: Random, p: Program) -> Program | None:
    """A barrier between all siblings of every body that may hold one, and at the end; later mutations drop some."""

    def fill(n: Node) -> tuple[Node, ...]:
        return (replace(n, body=spread(n.body)),) if isinstance(n, Loop) and "thread" not in n.kind else (n,)

    def spread(body: tuple[Node, ...]) -> tuple[Node, ...]:
        return tuple(x for node in body for x in (node, Barrier()))

    out = with_body(p, transform(p.body, fill))
    while True:  # none under a thread loop or a guard
        bad = next((s for s in sites(out.body) if isinstance(s.action, Barrier) and not may_sync(s.path)), None)
        if bad is None:
            return out
        out = with_body(out, put(out.body, bad.position, ()))


def may_sync(path: tuple[Loop | Guard, ...]) -> bool:
    return not any(isinstance(n, Guard) or n.kind.startswith("thread") for n in path)


def drop_sync(rng: Random, p: Program) -> Program | None:
    found = [s for s in sites(p.body) if isinstance(s.action, Barrier | Commit | Wait)]
    return with_body(p, put(p.body, rng.choice(found).position, ())) if found else None


def asynchronous(rng: Random, p: Program) -> Program | None:
    """Make copies asynchronous, with a commit after their nest and a wait somewhere behind it."""
    found = [s for s in sites(p.body) if isinstance(s.action, Copy)]
    if not found:
        return None
    site = rng.choice(found)
    assert isinstance(site.action, Copy)
    out = with_body(p, put(p.body, site.position, (replace(site.action, asynchronous=True),)))
    cut = next((n for n in range(1, len(site.position) + 1) if not may_sync(site.path[:n])), len(site.position) + 1) - 1
    cut = min(max(1, cut), len(site.position))
    depth = rng.choice((cut, max(1, cut - 1), max(1, len(site.position) - len(site.action.cell))))
    position = site.position[: min(depth, cut)]
    siblings = dict(bodies(out))[position[:-1]]
    n = position[-1] + 1
    m = rng.choice((n, n, rng.randrange(n, len(siblings) + 1)))
    wait: tuple[Node, ...] = (Wait(rng.choice((0, 0, 0, 1, 2))),) if rng.random() < 0.95 else ()
    tail = (Barrier(),) if rng.random() < 0.4 else ()
    body = (*siblings[:n], Commit(), *siblings[n:m], *wait, *tail, *siblings[m:])
    return set_body(out, position[:-1], body)


def change_wait(rng: Random, p: Program) -> Program | None:
    found = [s for s in sites(p.body) if isinstance(s.action, Wait)]
    return with_body(p, put(p.body, rng.choice(found).position, (Wait(rng.choice((0, 1, 2))),))) if found else None


ORDER: tuple[Mutation, ...] = (
    swap_siblings, reverse_loop, interchange, split_loop, sink, distribute, fuse_siblings, shift_body,
)  # fmt: skip
WRONG: tuple[Mutation, ...] = (change_bound, drop_leaf, duplicate_node, shift_address)
STORAGE: tuple[Mutation, ...] = (fold, change_owner, contract, cache, cache, inline, recompute_nest)
REDUCTION: tuple[Mutation, ...] = (reassociate, partials)
CONCURRENCY: tuple[Mutation, ...] = (
    change_kind,
    change_kind,
    insert_sync,
    barriers_everywhere,
    drop_sync,
    asynchronous,
    change_wait,
)
FAMILIES: dict[str, tuple[tuple[Mutation, ...], int]] = {
    "order": (ORDER, 6),
    "wrong": (WRONG, 1),
    "storage": (STORAGE, 4),
    "reduction": (REDUCTION, 2),
    "concurrency": (CONCURRENCY, 4),
}


def mutate(rng: Random, program: Program, steps: int) -> tuple[Program, list[str]]:
    """Up to `steps` random mutations that keep the rules of the tree, and their names."""
    done: list[str] = []
    tries = 0
    while len(done) < steps and tries < 12 * steps:
        tries += 1
        family = rng.choices(list(FAMILIES), [weight for _, weight in FAMILIES.values()])[0]
        mutation = rng.choice(FAMILIES[family][0])
        new = mutation(rng, program)
        if new is None or sum(1 for _ in sites(new.body)) > 12:
            continue
        try:
            verify(new)
        except InternalError:
            continue
        program = new
        done.append(mutation.__name__)
    return program, done
