"""Random sequences of primitives on random kernels, without the proof: illegal programs are reached as often as legal ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.property.mutations import mutate
from tilec.errors import ScheduleError
from tilec.ir.program import Program
from tilec.ir.tree import sites
from tilec.schedule import schedule as _all_families  # noqa: F401 - imports every primitive into the registry
from tilec.schedule.core import call_text, rewrite
from tilec.schedule.names import loop_names

MOST_ACTIONS = 14
MEMORIES = ("shared", "register", "global")
AXES = ("block.x", "block.y", "thread.x", "thread.x", "thread.y")
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


def _loop(rng: Random, p: Program) -> str:
    return rng.choice(list(loop_names(p)))


def _buffer(rng: Random, p: Program, roles: tuple[str, ...] = ("temp", "param", "cache", "partial")) -> str:
    found = [b.name for b in p.buffers if b.role in roles] or [p.buffers[0].name]
    return rng.choice(found)


def _some_loops(rng: Random, p: Program, least: int = 2) -> tuple[str, ...]:
    names = list(loop_names(p))
    return tuple(rng.sample(names, min(len(names), rng.choice((least, least, 3)))))


def _siblings(rng: Random, p: Program) -> Call:
    return rng.choice(("fuse_siblings", "reorder_siblings")), (_loop(rng, p), _loop(rng, p)), {}


DRAWS: tuple[tuple[int, Callable[[Random, Program], Call]], ...] = (
    (3, lambda r, p: ("split", (_loop(r, p), r.choice((1, 2, 2, 3, 4, 8))), {"tail": r.choice(("min", "min", "guard"))})),
    (2, lambda r, p: ("tile", (_some_loops(r, p), r.choice((2, 2, 3))), {})),
    (3, lambda r, p: ("reorder", _some_loops(r, p), {})),
    (1, lambda r, p: ("fuse", _some_loops(r, p)[:2], {})),
    (1, lambda r, p: ("unroll", (_loop(r, p),), {})),
    (1, lambda r, p: ("peel", (_loop(r, p), r.choice((1, 2))), {"end": r.choice(("front", "back"))})),
    (1, lambda r, p: ("skew", _some_loops(r, p)[:2], {})),
    (1, lambda r, p: ("shift", (_loop(r, p), r.choice((-1, 1, 2))), {})),
    (1, lambda r, p: ("reverse", (_loop(r, p),), {})),
    (2, lambda r, p: ("distribute", (_loop(r, p),), {})),
    (5, _siblings),
    (3, lambda r, p: ("compute_at", (_buffer(r, p), _loop(r, p)), {})),
    (2, lambda r, p: ("reverse_compute_at", (_buffer(r, p), _loop(r, p)), {})),
    (2, lambda r, p: ("compute_inline", (_buffer(r, p),), {})),
    (1, lambda r, p: ("compute_root", (_buffer(r, p),), {})),
    (3, lambda r, p: ("place", (_buffer(r, p, ("temp", "cache", "partial")), r.choice(MEMORIES)), {})),
    (1, lambda r, p: ("place", (_buffer(r, p, ("temp", "cache")), r.choice(MEMORIES), _loop(r, p)), {})),
    (3, lambda r, p: ("cache_read", (_buffer(r, p), _loop(r, p), r.choice(MEMORIES)), {})),
    (3, lambda r, p: ("cache_write", (_buffer(r, p), _loop(r, p), r.choice(MEMORIES), r.choice(("auto", "auto", False))), {})),
    (1, lambda r, p: ("layout", (_buffer(r, p), "pad", r.choice((0, 1)), 1), {})),
    (3, lambda r, p: ("pipeline", (_loop(r, p), r.choice((1, 2, 2, 3))), {})),
    (2, lambda r, p: ("split_reduction", (_buffer(r, p),), {})),
    (2, lambda r, p: ("parallel", (_loop(r, p),), {})),
    (1, lambda r, p: ("vectorize", (_loop(r, p),), {})),
    (4, lambda r, p: ("bind", (r.choice((_loop(r, p), _some_loops(r, p))), r.choice(AXES)), {})),
    (1, lambda r, p: ("barrier", (_loop(r, p),), {"remove": r.random() < 0.4})),
)


def steps(rng: Random, program: Program, count: int) -> tuple[Program, list[str]]:
    """Up to `count` primitives whose preconditions hold, and their calls as text."""
    program, done = replace(program, original=program.source), []
    for _ in range(12 * count):
        if len(done) == count or not loop_names(program):
            break
        draw = rng.choices([d for _, d in DRAWS], [w for w, _ in DRAWS])[0]
        name, args, kwargs = draw(rng, program)
        try:
            new = rewrite(program, name, args, kwargs)
        except ScheduleError:
            continue
        if sum(1 for _ in sites(new.body)) <= MOST_ACTIONS:
            program = new
            done.append(call_text(name, args, kwargs))
    return program, done


def rewritten(rng: Random, program: Program) -> tuple[Program, list[str]]:
    """A random rewrite: mutations of the tree, primitives, or primitives followed by one or two mutations."""
    way = rng.random()
    if way < 0.4:
        return mutate(rng, program, rng.choice((1, 2, 2, 3, 4, 5)))
    program, done = steps(rng, program, rng.choice((1, 2, 3, 4)))
    if way < 0.6:
        program, more = mutate(rng, program, rng.choice((1, 1, 2)))
        done += more
    return program, done
