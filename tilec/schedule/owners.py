"""Keeping `Buffer.owner` right when loops change.

A buffer's contents last for one iteration of its owner: of the set of loops at or above it. After a rewrite the owner is the
innermost loop on the common path of all accesses such that no loop outside the old set encloses it: the contents never end
earlier than before. Where the set became smaller the buffer holds more cells, so its box is derived again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.errors import ScheduleError
from tilec.ir.program import Buffer, Copy, Loop, Program
from tilec.ir.tree import Site, addresses, loops, sites
from tilec.schedule.placement_uses import uses
from tilec.schedule.storage import stored

Became = Mapping[str, tuple[str, ...]]  # an old loop -> the loops that together are it now


def access_sites(program: Program) -> dict[str, list[Site]]:
    """Per buffer the actions that read or write it."""
    out: dict[str, list[Site]] = {}
    for site in sites(program.body):
        for name in dict.fromkeys(a.buffer for a, _, _ in addresses(site.action, program)):
            out.setdefault(name, []).append(site)
    return out


def common_loops(found: list[Site]) -> list[Loop]:
    """The loops on the common path of all the actions, outermost first."""
    if not found:
        return []
    first = found[0].position
    depth = len(first) - 1
    for site in found[1:]:
        n = 0
        while n < min(depth, len(site.position) - 1) and site.position[n] == first[n]:
            n += 1
        depth = n
    return [node for node in found[0].path[:depth] if isinstance(node, Loop)]


def owning(buffer: Buffer, found: list[Site]) -> list[str]:
    """The loops at or above the owner, outermost first."""
    if buffer.owner is None:
        return []
    path = [loop.var for loop in common_loops(found)]
    return path[: path.index(buffer.owner) + 1] if buffer.owner in path else path


def repair(
    old: Program, new: Program, became: Became | None = None, joined: Mapping[tuple[str, str], str] | None = None
) -> Program:
    """`new` with every owner set by the rule above.

    `became`: the loops that replaced an old one (default: itself). `joined`: two old loops that are one now.
    """
    became, joined = became or {}, joined or {}
    before, after = access_sites(old), access_sites(new)
    out: list[Buffer] = []
    grown: list[str] = []
    for b in new.buffers:
        if b.owner is None or b.name not in old.buffer:
            out.append(b)
            continue
        around = common_loops(after.get(b.name, []))
        path = {loop.var for loop in around}
        held: set[str] = set()
        for var in owning(old.buffer[b.name], before.get(b.name, [])):
            # a loop of that name in another nest may be the one that changed
            elsewhere = var in path and not path.issuperset(became.get(var, ()))
            held |= {var} if elsewhere else set(became.get(var, (var,)))
        for (outer, inner), var in joined.items():
            if {outer, inner} <= held and not ({outer, inner} <= path and var not in path):
                held = held - {outer, inner} | {var}
        owner, kept = None, set()
        for loop in around:
            if loop.var not in held:
                break
            owner = loop.var
            kept.add(loop.var)
        out.append(replace(b, owner=owner))
        if kept != held:
            grown.append(b.name)
    program = replace(new, buffers=tuple(out))
    for name in grown:
        program = enlarge(program, name)
    return program


def enlarge(program: Program, name: str) -> Program:
    """Derive the box of a buffer again for its (coarser) owner; the default placement does so for temporaries nobody placed."""
    b = program.buffer[name]
    if b.role == "temp" and not b.placed:
        return program
    found = uses(program, name)
    if any(isinstance(u.site.action, Copy) and u.write and u.site.action.asynchronous for u in found):
        raise ScheduleError(f"'{name}' is filled by asynchronous copies, whose slots this would change: do it before pipeline")
    owner = ()
    for position, loop in loops(program.body):
        if loop.var == b.owner and found and found[0].position[: len(position)] == position:
            owner = position
    new = stored(program, b, b.memory, owner, found)
    same_rank = len(new.buffer[name].shape) == len(b.shape)
    kept = replace(new.buffer[name], placed=b.placed, layout=b.layout if same_rank else None)
    return replace(new, buffers=tuple(kept if x.name == name else x for x in new.buffers))
