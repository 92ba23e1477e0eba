"""Finding one's way in a rewritten program: loops by the statement they run and the original loop they stand for."""

from __future__ import annotations

from collections.abc import Collection

from tilec.ir.program import Leaf, Loop, Program
from tilec.ir.tree import Site, sites
from tilec.schedule.names import free_name
from tilec.schedule.placement_uses import Use, uses
from tilec.schedule.schedule import Schedule


def site(program: Program, statement: str) -> Site | None:
    """Where the statement runs (the first place), or None when it is inlined or gone."""
    for s in sites(program.body):
        if isinstance(s.action, Leaf) and s.action.statement == statement:
            return s
    return None


def loops_of(program: Program, statement: str, var: str) -> list[str]:
    """The loops around the statement that its original loop `var` is computed from, outermost first."""
    s = site(program, statement)
    assert s is not None and isinstance(s.action, Leaf), statement
    names = s.action.instance[program.statement[statement].loops.index(var)].names
    return [loop.var for loop in s.loops if loop.var in names]


def path_of(program: Program, statement: str) -> list[str]:
    """Every loop around the statement, outermost first."""
    s = site(program, statement)
    return [loop.var for loop in s.loops] if s is not None else []


def standing(program: Program, statements: Collection[str]) -> tuple[str, ...]:
    """Those statements that still run as leaves."""
    have = {s.action.statement for s in sites(program.body) if isinstance(s.action, Leaf)}
    return tuple(s for s in statements if s in have)


def outside_reads(program: Program, buffer: str, statements: Collection[str]) -> list[Use]:
    """Reads of the buffer by anything but those statements."""
    found = [u for u in uses(program, buffer) if u.reads]
    return [u for u in found if not (isinstance(u.site.action, Leaf) and u.site.action.statement in statements)]


def loop_named(program: Program, var: str) -> Loop:
    """The loop of that variable around the first action that has one."""
    return next(loop for s in sites(program.body) for loop in s.loops if loop.var == var)


def fresh(s: Schedule, *names: str) -> tuple[str, ...]:
    """Free names, close to the given ones."""
    out: list[str] = []
    for name in names:
        out.append(free_name(s.program, name, set(out)))
    return tuple(out)
