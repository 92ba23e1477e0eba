"""Names: what "io", "acc.k" and "S1.ii" mean in a program.

A loop is named by its variable `v`, by `buffer.v` (a loop v with a write of that buffer inside) or by `S1.v` (a loop v with an
instance of that statement inside). A qualified name is always accepted; a name that fits several loops is refused with the names
that tell them apart. Loops v that hold the same statements (the parts of a peeled loop) are v#1, v#2, … in the order of the text.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

from tilec.errors import ScheduleError
from tilec.ir.program import Buffer, Copy, Identity, Leaf, Loop, Merge, Program, Statement
from tilec.ir.tree import Body, Position, at, loops, sites


def written(node_body: Body) -> list[str]:
    """Buffers written inside, in the order of the text."""
    out: list[str] = []
    for site in sites(node_body):
        action = site.action
        if isinstance(action, Leaf):
            out.append(action.target.buffer)
        elif isinstance(action, Copy | Identity | Merge):
            out.append(action.dst.buffer)
    return list(dict.fromkeys(out))


def executed(node_body: Body) -> list[str]:
    """Statements whose leaves stand inside, in the order of the text."""
    return list(dict.fromkeys(s.action.statement for s in sites(node_body) if isinstance(s.action, Leaf)))


def _qualifiers(loop: Loop) -> list[str]:
    return [*written(loop.body), *executed(loop.body)]


def _scope(program: Program, qualifier: str) -> list[tuple[Position, Loop]]:
    return [(p, loop) for p, loop in loops(program.body) if qualifier in _qualifiers(loop)]


def display(program: Program, position: Position) -> str:
    """The shortest name that means this loop only: `v`, else `buffer.v`, else `S1.v`, else `v#2` (copies of one statement)."""
    loop = at(program.body, position)
    assert isinstance(loop, Loop)
    same = [(p, other) for p, other in loops(program.body) if other.var == loop.var]
    if len(same) == 1:
        return loop.var
    others = [q for p, other in same if p != position for q in _qualifiers(other)]
    for qualifier in _qualifiers(loop):
        if qualifier not in others:
            return f"{qualifier}.{loop.var}"
    return f"{loop.var}#{[p for p, _ in same].index(position) + 1}"


def loop_names(program: Program) -> list[str]:
    """Every loop, outermost first, each by its shortest unambiguous name."""
    return [display(program, p) for p, _ in loops(program.body)]


def _hint(wanted: str, known: list[str], qualifier: str = "") -> str:
    """Did you mean …: the name whose last part is closest; with the qualifier that was given, when it means something."""
    bare = {k.rpartition(".")[2]: k for k in reversed(known)}
    close = get_close_matches(wanted, known, 1, 0.5) or get_close_matches(wanted, bare, 1, 0.5)
    if not close:
        return ""
    found = bare.get(close[0], close[0])
    if qualifier and "." not in found:
        found = f"{qualifier}.{found}"
    return f" Did you mean '{found}'?"


def find_loop(program: Program, name: object) -> Position:
    """Where the loop of that name stands; ScheduleError when no loop or several have it."""
    if not isinstance(name, str):
        raise ScheduleError(f"a loop is named by a string, not {name!r}")
    everything = list(loops(program.body))
    matches = [p for p, loop in everything if loop.var == name]
    listed, missing, given = everything, name, ""
    numbered = re.fullmatch(r"([\w.]+)#(\d+)", name)
    if numbered:
        matches = [p for p, loop in everything if loop.var == numbered[1]]
        matches = matches[int(numbered[2]) - 1 : int(numbered[2])] if numbered[2] != "0" else []
    qualifier, dot, var = name.partition(".")
    if not matches and dot:
        matches = [p for p, loop in everything if loop.var == var and qualifier in _qualifiers(loop)]
        scope = [] if matches else _scope(program, qualifier)
        if scope:
            listed, missing, given = scope, var, qualifier
    if len(matches) == 1:
        return matches[0]
    if not matches:
        known = [display(program, p) for p, _ in listed]
        text = f"no loop '{missing}'."
        text += f" Loops, outermost first: {', '.join(known)}." if known else " The program has no loops."
        raise ScheduleError(text + _hint(missing, known, given))
    known = [display(program, p) for p in matches]
    raise ScheduleError(f"'{name}' names {len(matches)} loops: {', '.join(known)}. Use one of these names.")


def loop_at(program: Program, position: Position) -> Loop:
    """The loop at a position that has one."""
    node = at(program.body, position)
    assert isinstance(node, Loop)
    return node


def find_buffer(program: Program, name: object) -> Buffer:
    """The buffer of that name, else ScheduleError that lists the buffers."""
    if isinstance(name, str) and name in program.buffer:
        return program.buffer[name]
    known = list(program.buffer)
    raise ScheduleError(f"no buffer {_quoted(name)}. Buffers: {', '.join(known)}.{_hint(str(name), known)}")


def find_statement(program: Program, name: object) -> Statement:
    """The statement of that name, else ScheduleError that lists the statements."""
    if isinstance(name, str) and name in program.statement:
        return program.statement[name]
    known = list(program.statement)
    raise ScheduleError(f"no statement {_quoted(name)}. Statements: {', '.join(known)}.{_hint(str(name), known)}")


def _quoted(name: object) -> str:
    return f"'{name}'" if isinstance(name, str) else repr(name)


def taken(program: Program) -> set[str]:
    """Every name that a new loop or buffer may not have."""
    out = {loop.var for _, loop in loops(program.body)}
    out |= {*program.sizes, *(n for n, _ in program.bound), *(n for n, _ in program.scalars)}
    return out | set(program.buffer) | set(program.statement)


def new_name(program: Program, name: object, what: str = "into") -> str:
    """A name chosen by the person for something new, checked: an identifier, not taken."""
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name):
        raise ScheduleError(f"{what}: {name!r} is no identifier")
    if name in taken(program):
        raise ScheduleError(f"{what}: the name '{name}' is taken. Free: '{free_name(program, name)}'")
    return name


def free_name(program: Program, name: str, also: frozenset[str] | set[str] = frozenset()) -> str:
    """`name`, or `name` with the smallest number behind it that makes it free (defaults of `into`)."""
    used = taken(program) | also
    n, candidate = 1, name
    while candidate in used:
        n += 1
        candidate = f"{name}{n}"
    return candidate
