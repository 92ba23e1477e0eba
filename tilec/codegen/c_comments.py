"""Comments of the C text: which iterations of the source a loop runs over, and what stands below a heading."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tilec.codegen.c_place import Place, extent
from tilec.codegen.c_scope import Range, bounds
from tilec.ir import tree
from tilec.ir.affine import Aff
from tilec.ir.printer import Scope
from tilec.ir.program import Action, Copy, Guard, Identity, Leaf, Loop, Merge, Prefetch, Program

MOST_TERMS = 3  # of a bound that is still simple to say
_NOTED = re.compile(r"( *)(.*;)  // ([^;]*)")


# which iterations of the source ----------------------------------------------------------------------------------------


def runs_over(program: Program, path: tuple[Loop, ...], loop: Loop) -> str:
    """`i in 6*io..min(6*io + 6, 512)`: what of the source one iteration of a loop (inside `path`) runs over.

    Only what all statements inside agree on; "" where there is nothing simple, or the loop's header says it.
    """
    if len(loop.lower) == 1 and any(e - loop.lower[0] == Aff(1) for e in loop.upper):
        return ""
    scope = Scope.of(program, (*path, loop))
    found: dict[str, str | None] = {}
    for site in tree.sites((loop,)):
        if not isinstance(site.action, Leaf):
            continue
        statement = program.statement[site.action.statement]
        for var, value in zip(statement.loops, site.action.instance, strict=True):
            if loop.var in value.names:
                said = _range(program, statement.name, var, value, (*path, *site.loops), len(path) + 1, scope)
                found[var] = said if found.setdefault(var, said) == said else None
    return ", ".join(said for said in found.values() if said)


def _range(program: Program, name: str, var: str, value: Aff, loops: tuple[Loop, ...], fixed: int, scope: Scope) -> str | None:
    """The values of one variable of the source while the first loops stand still."""
    low = high = value
    for inner in reversed(loops[fixed:]):
        ends = [e for e in inner.upper if e.is_const] or list(inner.upper)
        if inner.var not in low.names | high.names:
            continue
        if len(inner.lower) != 1 or len(ends) != 1 or 0 in (low.coefficient(inner.var), high.coefficient(inner.var)):
            return None
        first, last = inner.lower[0], ends[0] - 1
        low = low.subs({inner.var: first if low.coefficient(inner.var) > 0 else last})
        high = high.subs({inner.var: last if high.coefficient(inner.var) > 0 else first})
    if max(len(low.terms), len(high.terms)) > MOST_TERMS or low.coefficient(loops[fixed - 1].var) == 0:
        return None
    if var in low.names | high.names:  # a loop of the schedule has the name: the same, or not to be told apart
        return None
    if low == high:
        return f"{var} = {scope.aff(low)}"
    ends = _end(program, name, var)
    if len(ends) != 1 or not ends[0].names <= {*program.sizes}:
        return None
    ranges: dict[str, Range] = dict.fromkeys(program.sizes, (1, float("inf")))
    for x in loops[:fixed]:
        within = [bounds(e, ranges) for e in x.upper]
        ranges[x.var] = (max(bounds(e, ranges)[0] for e in x.lower), min(b for _, b in within) - 1)
    stop = scope.aff(high + 1)
    if bounds(high + 1 - ends[0], ranges)[1] > 0:
        stop = f"min({stop}, {scope.aff(ends[0])})"
    return f"{var} in {scope.aff(low)}..{stop}"


def _end(program: Program, name: str, var: str) -> tuple[Aff, ...]:
    """The upper bounds of a loop as the source has it."""
    for site in tree.sites(program.source.body):
        if isinstance(site.action, Leaf) and site.action.statement == name:
            return next((x.upper for x in site.loops if x.var == var), ())
    return ()


# what stands written out -----------------------------------------------------------------------------------------------


def nest(loop: Loop) -> tuple[tuple[Loop, ...], Action] | None:
    """The loops down to the only action inside, where nothing else is."""
    loops: list[Loop] = []
    node = loop
    while isinstance(node, Loop | Guard):
        if isinstance(node, Loop):
            loops.append(node)
        if len(node.body) != 1:
            return None
        node = node.body[0]
    return (tuple(loops), node) if isinstance(node, Leaf | Copy | Identity | Merge | Prefetch) else None


def headed(program: Program, loop: Loop, place: Place, lines: list[str]) -> list[str]:
    """The lines that a nest of one action became, below a comment that says what they are, instead of one behind each line."""
    found = nest(loop)
    if found is None or place.lanes is not None or any("for (" in line for line in lines):
        return lines
    loops, action = found
    notes = [_note(line, action) for line in lines]
    run = longest = 0
    for line, note in zip(lines, notes, strict=True):
        run = 0 if line.endswith(("{", "}")) or ") {  //" in line else run + (note is not None)
        longest = max(longest, run)
    if longest < 2:
        return lines
    how = next((n.split(", ", 1)[1] for n in notes if n and ", " in n), None)
    what = said(program, action) + (f" by {how}" if how else "")
    ranges = ", ".join(f"{x.var} in {_extent(program, x, place)}" for x in loops)
    pad = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    plain = [line if note is None else line.removesuffix(f"  // {note}") for line, note in zip(lines, notes, strict=True)]
    return [f"{pad}// {what}, for {ranges}", *plain]


def said(program: Program, action: Action) -> str:
    """An action as the tree of loops has it."""
    match action:
        case Leaf():
            return f"{action.statement}: {action.target.buffer}"
        case Copy():
            return f"copy: {action.dst.buffer} = {action.src.buffer}"
        case Identity():
            return f"identity of {action.op}: {action.dst.buffer}"
        case Merge():
            return f"merge: {action.dst.buffer} {action.op} {action.src.buffer}"
        case Prefetch():
            return f"prefetch: {action.address.buffer}"
        case _:
            return ""


def _note(line: str, action: Action) -> str | None:
    """The comment behind a line that the heading makes needless: "" for a line of the action that has none."""
    if isinstance(action, Prefetch):
        return "" if line.lstrip().startswith("__builtin_prefetch(") else None
    m = _NOTED.fullmatch(line)
    if m is None:
        return None
    word = re.split(r"[ ,]", m[3])[0]
    mine = {Copy: "copy", Identity: "identity", Merge: "merge"}.get(type(action))
    return m[3] if word == (action.statement if isinstance(action, Leaf) else mine) else None


def _extent(program: Program, loop: Loop, place: Place) -> str:
    """Its range, in numbers where these are known here."""
    ext = extent(loop, place)
    if ext is not None and ext.exact and ext.start.is_const:
        return f"{ext.start.const}..{ext.start.const + ext.most}"
    here = Loop(loop.var, place.affs(loop.lower), place.affs(loop.upper), loop.body)
    return Scope.of(program, place.path).range(here)


def rows(variables: Mapping[str, str], width: int = 100) -> list[str]:
    """Declarations {name, perhaps with a value: type}: a line for each row (all but the last index the same) and type.

    Rows of one variable share lines.
    """
    out: list[str] = []
    before = ("", "")
    single = len({name.split(" ")[0].rpartition("_")[0] for name in variables}) == len(variables)
    for name, kind in variables.items():
        row = (kind, "" if single else name.split(" ")[0].rpartition("_")[0])
        if row == before and len(out[-1]) + len(name) < width:
            out[-1] += f", {name}"
        else:
            out.append(f"{kind} {name}")
        before = row
    return [f"{line};" for line in out]
