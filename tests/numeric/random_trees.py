"""Random trees for the interpreter: every kind of node, bound and address, legal as programs or not (only the order counts)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np

from tilec.ir.affine import Aff, Constraint
from tilec.ir.dtypes import DTYPES, to_storage
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Index, Load, Select
from tilec.ir.lanes import interval, loop_range
from tilec.ir.program import (
    UPDATE_OPS,
    Access,
    Address,
    Barrier,
    Buffer,
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
    Statement,
)

KINDS = ("serial", "serial", "parallel", "unrolled", "block.x", "thread.x", "thread.y", "vector")


@dataclass
class _Made:
    ranks: dict[str, int]
    pool: dict[str, list[tuple[Aff, ...]]] = field(default_factory=dict)
    extents: dict[str, list[int]] = field(default_factory=dict)
    paths: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    variables: int = 0


def random_program(seed: int) -> tuple[Program, dict[str, np.ndarray]]:
    """A program without sizes, and arrays for its parameters."""
    rng = random.Random(seed)
    dtypes = {n: rng.choice(("f32", "f32", "bf16", "i32", "f8e4m3")) for n in "pqrtuv"}
    made = _Made({n: rng.choice((1, 2, 2)) for n in dtypes})

    def aff(path: list[Loop], ranges: dict[str, tuple[int, int]]) -> Aff:
        e = Aff(0)
        for loop in rng.sample(path, min(len(path), rng.choice((1, 1, 1, 1, 2)))):
            v = Aff.of(loop.var)
            e = e + rng.choice((*[v] * 7, v * 3, -v, v // 2, v % 2, (v + 1) * 2))
        return e + (rng.choice((0, 0, 0, 0, 0, 1)) - interval(e, ranges)[0])

    def address(name: str, path: list[Loop], ranges: dict[str, tuple[int, int]]) -> Address:
        names = {loop.var for loop in path}
        known = [index for index in made.pool.get(name, []) if all(e.names <= names for e in index)]
        if known and rng.random() < 0.85:
            index = rng.choice(known)
        else:
            index = tuple(aff(path, ranges) for _ in range(made.ranks[name]))
            made.pool.setdefault(name, []).append(index)
        ends = [interval(e, ranges) for e in index]
        if min(a for a, _ in ends) < 0:  # a known index under a loop with other bounds
            index = tuple(e - min(a, 0) for e, (a, _) in zip(index, ends, strict=True))
            ends = [interval(e, ranges) for e in index]
        old = made.extents.setdefault(name, [1] * made.ranks[name])
        made.extents[name] = [max(o, b + 1) for o, (_, b) in zip(old, ends, strict=True)]
        made.paths.setdefault(name, []).append(tuple(loop.var for loop in path))
        return Address(name, index)

    def expression(loads: list[Expr], path: list[Loop]) -> Expr:
        e: Expr = loads[0]
        for other in loads[1:]:
            kind = max((e.dtype, other.dtype), key=("i32", "f32").index)
            op = rng.choice(("+", "*", "-", "max", "min"))
            e = Binary(op, e, other, kind)
        match rng.randrange(6):
            case 0 if path:
                loop = rng.choice(path)
                e = Binary("+", e, Index(Aff.of(loop.var) * 2 + 1), e.dtype)
            case 1:
                e = Call("sigmoid", (e,), "f32")
            case 2:
                e = Select(Compare("<", e, Const(1, "i32")), e, Const(0.75, "f32"), "f32")
            case 3:
                e = Cast("f8e5m2", e, "f32", rng.choice((None, "toward_zero")))
            case _:
                pass
        return e

    def load(n: int, name: str) -> Load:
        return Load(n, DTYPES[dtypes[name]].arithmetic)

    def statement(target: Address, op: str, value: Expr, reads: list[Access], path: list[Loop]) -> Statement:
        s = Statement(
            f"S{len(made.statements)}",
            tuple(n.var for n in path),
            (),
            Access(target.buffer, target.index),
            op,
            value,
            tuple(reads),
        )
        made.statements.append(s)
        return s

    def action(path: list[Loop], ranges: dict[str, tuple[int, int]]) -> Node:
        name, other = rng.choice("tuv"), rng.choice("qrtuvp")
        match rng.randrange(12):
            case 0:
                return Copy(address(name, path, ranges), address(other, path, ranges), ())
            case 1:
                return Identity(address(name, path, ranges), rng.choice(UPDATE_OPS), ())
            case 2:
                return Merge(address(name, path, ranges), address(other, path, ranges), rng.choice(("+=", "max=")), (), ())
            case 3:
                return Barrier()
            case 4:  # an inlined temporary of its own
                hidden = Address("h", (Aff(0),))
                source = address(other, path, ranges)
                inner = statement(hidden, "=", Binary("*", load(0, other), Const(1.5, "f32"), "f32"), [Access(other, ())], [])
                target = address(name, path, ranges)
                outer = statement(target, "=", Load(0, "f32"), [Access("h", ())], path)
                read: Read = Inline(inner.name, (), (source,))
                return Leaf(outer.name, tuple(Aff.of(n.var) for n in path), target, (read,))
            case _:
                names = [rng.choice("qrtuvp") for _ in range(rng.choice((1, 1, 2)))]
                sources = [address(n, path, ranges) for n in names]
                value = expression([load(n, b) for n, b in enumerate(names)], path)
                target = address(rng.choice("prtuv"), path, ranges)
                op = rng.choice(("=", "=", "+=", "max=", "+="))
                s = statement(target, op, value, [Access(a.buffer, a.index) for a in sources], path)
                return Leaf(s.name, tuple(Aff.of(n.var) for n in path), target, tuple(sources))

    def nodes(path: list[Loop], ranges: dict[str, tuple[int, int]], depth: int) -> tuple[Node, ...]:
        out: list[Node] = []
        for _ in range(rng.choice((1, 1, 2, 2, 3))):
            pick = rng.random()
            if depth and pick < 0.75:
                var = f"v{made.variables}"
                made.variables += 1
                lower, upper = [Aff(rng.choice((0, 0, 0, 1, -1)))], [Aff(rng.choice((1, 2, 3, 5)))]
                if path and rng.random() < 0.35:
                    o = Aff.of(rng.choice(path).var)
                    (upper if rng.random() < 0.6 else lower).append(rng.choice((o, o + 2, 4 - o, -o, o // 2)))
                kind = rng.choice(KINDS)
                lower = [Aff(0)] if kind.startswith("thread") else lower
                loop = Loop(var, tuple(lower), tuple(upper), (), kind)
                inner = nodes([*path, loop], {**ranges, var: loop_range(loop, ranges)}, depth - 1)
                out.append(replace(loop, body=inner))
            elif path and 0.75 <= pick < 0.82:
                v = Aff.of(rng.choice(path).var)
                c = rng.choice((Constraint.ge(v, 1), Constraint.eq(v % 2, 0), Constraint.lt(v * 2, Aff.of(path[0].var) + 3)))
                out.append(Guard((c,), nodes(path, ranges, 0)))
            else:
                out.append(action(path, ranges))
        return tuple(out)

    body = nodes([], {}, rng.choice((2, 3, 4)))
    buffers: list[Buffer] = []
    arrays: dict[str, np.ndarray] = {}
    noise = np.random.default_rng(seed)
    for name, extents in made.extents.items():
        shape = tuple(Aff(n) for n in extents)
        if name in "pqr":
            buffers.append(Buffer(name, dtypes[name], shape, "param"))
            values = noise.standard_normal(extents).astype(np.float32)
            arrays[name] = to_storage(dtypes[name], values * 3 if dtypes[name] == "i32" else values)
        else:
            owner: str | None = None
            common = [v for v in made.paths[name][0] if all(v in p for p in made.paths[name])]
            if common and rng.random() < 0.7:
                owner = rng.choice(common)
            buffers.append(Buffer(name, dtypes[name], shape, "temp", rng.choice(("global", "register", "shared")), owner))
    hidden = Buffer("h", "bf16", (Aff(1),))
    program = Program("random", (), (), (), (*buffers, hidden), tuple(made.statements), body)
    return program, arrays
