"""Random order primitives on kernels all of whose orders are legal: a refusal or another result is a fault of a rewrite."""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np

from tilec.errors import LegalityError, ScheduleError
from tilec.ir.interp import run
from tilec.ir.program import Program
from tilec.lang.builder import Builder
from tilec.schedule.schedule import Schedule, start


def triangle() -> Program:
    """B[i, j] = 2·A[i, j] for j ≤ i."""
    b = Builder("triangle")
    n = b.size("N")
    x, y = b.param("A", "f32", [n, n]), b.param("B", "f32", [n, n])
    with b.loop("i", 0, n) as i, b.loop("j", 0, i + 1) as j:
        b.store(y, [i, j], "=", x[i, j] * 2)
    return b.program()


def band() -> Program:
    """B[i, j] = A[i, j] + 1 for max(0, i-2) ≤ j < min(M, i+3): several bounds on both sides."""
    b = Builder("band")
    n, m = b.size("N"), b.size("M")
    x, y = b.param("A", "f32", [n, m]), b.param("B", "f32", [n, m])
    with b.loop("i", 0, n) as i, b.loop("j", [0, i - 2], [m, i + 3]) as j:
        b.store(y, [i, j], "=", x[i, j] + 1)
    return b.program()


def counts() -> Program:
    """C[i] += 1 over a box (integers: every order is legal, every instance counts), with values before and after."""
    b = Builder("counts")
    n, m = b.size("N"), b.size("M")
    out, last = b.param("C", "i32", [n]), b.param("D", "i32", [n])
    acc = b.temp("acc", "i32", [n])
    with b.loop("i", 0, n) as i:
        b.store(acc, [i], "=", i * 3)
        with b.loop("j", 0, m) as j, b.loop("k", j, m) as k:
            b.store(acc, [i], "+=", j * 7 + k)
        b.store(out, [i], "=", acc[i])
        b.store(last, [i], "=", i + 1)
    return b.program()


def chain() -> Program:
    """Two neighbouring nests without a dependence between them, of different extents."""
    b = Builder("chain")
    n = b.size("N")
    x, y, z = b.param("A", "f32", [n + 3]), b.param("B", "f32", [n]), b.param("C", "f32", [n + 3])
    with b.loop("i", 0, n) as i:
        b.store(y, [i], "=", x[i] * 3)
    with b.loop("p", 0, n + 3) as p:
        b.store(z, [p], "=", x[p] - 1)
    return b.program()


KERNELS = {f.__name__: f for f in (triangle, band, counts, chain)}


def arrays(program: Program, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Distinct small values for every parameter that is read."""
    read = {a.buffer for s in program.statements for a in s.reads}
    read |= {s.target.buffer for s in program.statements if s.op != "="}
    out = {}
    for b in program.buffers:
        if b.role == "param" and b.name in read:
            shape = tuple(e.eval(sizes) for e in b.shape)
            kind = {"f32": np.float32, "i32": np.int32}[b.dtype]
            out[b.name] = (np.arange(np.prod(shape)).reshape(shape) % 97 + 1).astype(kind)
    return out


def same(s: Schedule, sizes: Mapping[str, int]) -> bool:
    program = s.program.source
    given = arrays(program, sizes)
    want, got = run(program, given, dict(sizes)), run(s.program, given, dict(sizes))
    return all(want[name].tobytes() == got[name].tobytes() for name in want)


def step(s: Schedule, rng: random.Random) -> tuple[str, tuple, dict]:
    """A random call; most have arguments that can work."""
    names = s.loops
    one = rng.choice(names)
    often = ("split", "reorder", "reorder", "fuse", "peel", "skew", "shift", "reverse")
    kind = rng.choice(("split", *often, "distribute", "fuse_siblings", "reorder_siblings", "unroll", "parallel"))
    if kind == "split":
        return kind, (one, rng.choice([1, 2, 3, 5, 8])), {"tail": rng.choice(["min", "min", "guard", "peel"])}
    if kind == "reorder":
        return kind, tuple(rng.sample(names, min(len(names), rng.choice([2, 2, 3])))), {}
    if kind in ("fuse", "fuse_siblings", "reorder_siblings"):
        return kind, tuple(rng.sample(names, 2)) if len(names) > 1 else (one, one), {}
    if kind == "peel":
        return kind, (one,), {"n": rng.choice([1, 2]), "end": rng.choice(["front", "back"])}
    if kind == "skew":
        return kind, (one, rng.choice(names)), {"factor": rng.choice([-2, -1, 1, 2])}
    if kind == "shift":
        return kind, (one, rng.choice([-3, 2])), {}
    return kind, (one,), {}


def walk(kernel: str, seed: int, steps: int = 8, tries: int = 60) -> tuple[Schedule, list[str]]:
    """Up to `steps` successful steps; the texts of refusals by the proof (none is expected)."""
    rng = random.Random(f"{kernel} {seed}")
    s, refused, done = start(KERNELS[kernel](), proof_budget=1_000_000), [], 0
    for _ in range(tries):
        name, args, kwargs = step(s, rng)
        if kernel == "counts" and name in ("parallel", "reorder_siblings"):
            continue  # the accumulator makes these illegal
        try:
            s = s.apply(name, *args, **kwargs)
            done += 1
        except ScheduleError:
            pass
        except LegalityError as e:
            if e.witness is None:
                continue  # out of budget
            refused.append(f"{s.trace}\n{e}\n{s}")
        if done == steps:
            break
    return s, refused
