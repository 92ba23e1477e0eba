"""From a relation that must be empty to two instances with numbers that a person can check by hand."""

from __future__ import annotations

from tilec.errors import Witness
from tilec.ir.affine import Aff
from tilec.ir.program import Copy, Identity, Leaf, Merge, Program, Statement
from tilec.poly.access import Relations, Tagged
from tilec.poly.concurrency import Race
from tilec.poly.dataflow import Flow
from tilec.poly.isl import Set, UnionMap, UnionSet, lexmin, pieces_of_set
from tilec.poly.points import Point, as_set, coordinates, fix, image, named, points, smallest_sizes, time_of


class Refuted(Exception):
    """Control flow inside the proof: it is false for `params`, as `witness` shows."""

    def __init__(self, params: Set, witness: Witness):
        super().__init__(witness.text)
        self.params, self.witness = params, witness


def sizes_text(sizes: dict[str, int]) -> str:
    return "witness (" + ", ".join(f"{k}={v}" for k, v in sizes.items()) + "): " if sizes else "witness: "


def logical_element(program: Program, statement: Statement, tag: str, at: tuple[int, ...], sizes: dict[str, int]) -> str:
    """The original element of load `tag` ("o", "w" or "r2") of a statement instance."""
    access = statement.target if tag in ("o", "w") else statement.reads[int(tag[1:])]
    env = {**sizes, **dict(zip(statement.loops, at, strict=True))}
    return named(access.buffer, tuple(e.eval(env) for e in access.index))


def _split(name: str) -> tuple[str, str]:
    """S1r2 -> (S1, r2); S1o -> (S1, o); S1 -> (S1, w)."""
    for n in range(len(name) - 1, 0, -1):
        if name[n] in "ro":
            return name[:n], name[n:]
    return name, "w"


def _public(program: Program, p: Point) -> str:
    """How a person names a virtual or real instance."""
    if p.name.startswith("I_"):
        return f"the initial {named(p.name[2:-1], p.at)}"
    if p.name.startswith("E_"):
        return f"the final {named(p.name[2:-1], p.at)}"
    base, _ = _split(p.name)
    return named(base, p.at)


def first_in_time(r: Relations, u: UnionSet) -> Point:
    """The access of a set (sizes fixed) that executes first in the program's own order."""
    times = u.apply(r.clock)
    best = None
    for s in pieces_of_set(times):
        at = coordinates(lexmin(s))
        best = at if best is None or at < best else best
    assert best is not None
    when = r.solver.read_set(f"{{ [{', '.join(map(str, best))}] }}")
    return points(u.intersect(when.apply(r.clock.reverse())))[0]


def value_witness(
    r: Relations,
    original: Program,
    found: Flow | None,
    got: UnionMap,
    want: UnionMap,
    wrong: UnionMap,
    label: str | None = None,
    doubled: bool = False,
) -> Refuted:
    """A read (or final element) whose source differs. `label` names a reduction whose contributions are compared."""
    solver = r.solver
    params = wrong.params()
    sizes = smallest_sizes(solver, params)
    at_sizes = fix(solver, wrong, sizes)
    sink = first_in_time(r, at_sizes.domain())
    needed = points(as_set(solver, sink).apply(at_sizes))[0]
    reader = sink if sink.name.startswith("E_") else image(solver, sink, fix(solver, r.reader_instance, sizes))[0]
    final = reader.name.startswith("E_")
    if final:
        where = named(reader.name[2:-1], reader.at)
    else:
        base, tag = _split(reader.name)
        where = logical_element(original, original.statement[base], tag, reader.at, sizes)
    reader_text, needed_text = _public(r.program, reader), _public(r.program, needed)
    head = sizes_text(sizes)
    if label is not None:
        kind = "lost value" if not doubled else "wrong source"
        verb = "arrives more than once, or should not arrive" if doubled else "does not arrive"
        text = f"{head}the contribution of {needed_text} to {where} {verb} at {reader_text} (in {label})"
        return Refuted(params, Witness(needed_text, reader_text, where, kind, sizes, text, None, needed_text))
    arrived = points(as_set(solver, sink).apply(fix(solver, got, sizes)))
    received = arrived[0] if arrived else None
    raw = points(as_set(solver, sink).apply(fix(solver, found.sources, sizes))) if found is not None else []
    received_text = _public(r.program, received) if received else (_action_text(r, raw[0]) if raw else None)
    ran_before = _runs_before(r, needed, sink, sizes)
    kind, source, second, text = _classify(
        r, original, reader, needed, received, reader_text, needed_text, received_text, where, final, ran_before, sizes
    )
    return Refuted(params, Witness(source, second, where, kind, sizes, head + text, received_text or "nothing", needed_text))


def undefined_witness(r: Relations, undefined: UnionSet) -> Refuted:
    """A read inside a reduction that finds nothing: no identity, initial value or copy reached the cell."""
    params = undefined.params()
    sizes = smallest_sizes(r.solver, params)
    p = first_in_time(r, fix(r.solver, undefined, sizes))
    tagged = next((a for a in r.tagged if a.tag == p.name), None)
    if tagged is None:  # the final value of an argument
        where, who = named(p.name[2:-1], p.at), _public(r.program, p)
    else:
        env = {**sizes, **dict(zip(r.variables(tagged.site), p.at, strict=True))}
        where = named(tagged.address.buffer, tuple(e.eval(env) for e in tagged.address.index))
        who = _who(r, tagged.site, p.at, sizes)
    text = f"{sizes_text(sizes)}{who} reads {where}, where no initial value has been put"
    return Refuted(params, Witness(who, who, where, "lost value", sizes, text, "nothing", "an initial value"))


def _classify(
    r: Relations,
    original: Program,
    reader: Point,
    needed: Point,
    received: Point | None,
    reader_text: str,
    needed_text: str,
    received_text: str | None,
    where: str,
    final: bool,
    ran_before: bool,
    sizes: dict[str, int],
) -> tuple[str, str, str, str]:
    """(kind, source, sink, sentence); source and sink in the original's order."""
    if final:
        got = f"now {received_text} does" if received_text else "now its value is lost"
        return (
            "lost value",
            needed_text,
            received_text or reader_text,
            f"{needed_text} writes {where} last in the original; {got}",
        )
    base = r.solver
    origin = Relations(base, original)
    if received is None:
        if ran_before:
            what = f"what {received_text} left there" if received_text else "nothing: its contents are undefined there"
            text = f"{reader_text} reads {where}, needs the value of {needed_text} and receives {what}"
            return "lost value", needed_text, reader_text, text
        text = f"{needed_text} writes {where} and {reader_text} reads it; after the change the reader runs first"
        return "flow", needed_text, reader_text, text
    received_text = received_text or ""
    if _later(origin, received, reader, sizes):
        text = f"{reader_text} reads {where} before {received_text} overwrites it; after the change the write runs first"
        return "anti", reader_text, received_text, text
    if _same_sum(r.program, received, needed):
        text = f"{reader_text} reads {where}, receives the value after {received_text} and needs that after {needed_text}"
        return "wrong source", needed_text, reader_text, text
    if not ran_before:
        text = f"{needed_text} writes {where} and {reader_text} reads it; after the change the reader runs first"
        return "flow", needed_text, reader_text, text
    if _element_of(original, received, sizes) == where:
        text = f"{received_text} then {needed_text} write {where}, which {reader_text} reads; "
        text += f"after the change {received_text} is last"
        return "output", received_text, needed_text, text
    text = f"{reader_text} reads {where}, needs the value of {needed_text} and receives that of {received_text}"
    return "wrong source", needed_text, reader_text, text


def _same_sum(program: Program, a: Point, b: Point) -> bool:
    """Both are updates of the same reduction (or its initial value and an update)."""
    sa, sb = program.statement.get(a.name), program.statement.get(b.name)
    if sb is None or sb.op == "=" or sa is None:
        return False
    return sa.target.buffer == sb.target.buffer


def _element_of(original: Program, p: Point, sizes: dict[str, int]) -> str:
    if p.name.startswith("I_"):
        return named(p.name[2:-1], p.at)
    base, _ = _split(p.name)
    return logical_element(original, original.statement[base], "w", p.at, sizes)


def _later(origin: Relations, p: Point, reader: Point, sizes: dict[str, int]) -> bool:
    """Does the original run statement instance p after the reader?"""
    if p.name.startswith("I_"):
        return False
    solver = origin.solver
    writes = fix(solver, origin.clock, sizes)
    a = points(as_set(solver, p).apply(fix(solver, origin.writer_instance.reverse(), sizes)))
    b = points(as_set(solver, reader).apply(fix(solver, origin.reader_instance.reverse(), sizes)))
    if not a or not b:
        return False
    ta, tb = time_of(solver, a[0], writes), time_of(solver, b[0], writes)
    return ta is not None and tb is not None and ta > tb


def _runs_before(r: Relations, needed: Point, sink: Point, sizes: dict[str, int]) -> bool:
    """Does the rewritten program run some execution of `needed` before the access `sink`?"""
    if needed.name.startswith("I_"):
        return True
    clock = fix(r.solver, r.clock, sizes)
    tb = time_of(r.solver, sink, clock)
    runs = as_set(r.solver, needed).apply(fix(r.solver, r.writer_instance.reverse(), sizes))
    if tb is None or runs.is_empty():
        return False
    when = runs.apply(clock)
    return any(coordinates(lexmin(s)) < tb for s in pieces_of_set(when))


def _action_text(r: Relations, p: Point) -> str:
    """An access of an action that is no original statement."""
    n = int(p.name[1 : len(p.name) - 1].split("r")[0]) if p.name[0] == "L" else -1
    if n < 0:
        return _public(r.program, p)
    match r.sites[n].action:
        case Copy(dst=dst):
            return f"a copy into {dst.buffer}"
        case Identity(dst=dst):
            return f"the identity of {dst.buffer}"
        case Merge(dst=dst):
            return f"a merge into {dst.buffer}"
        case Leaf(statement=name):
            return name
        case _:
            return "an action"


# -- races ---------------------------------------------------------------


def race_witness(r: Relations, race: Race) -> Refuted:
    solver = r.solver
    pairs = race.pairs.to_union_map()
    params = pairs.params()
    sizes = smallest_sizes(solver, params)
    at_sizes = fix(solver, pairs, sizes)
    first = first_in_time(r, at_sizes.domain())
    second = first_in_time(r, as_set(solver, first).apply(at_sizes))
    address = race.first.address
    env = {**sizes, **dict(zip(r.variables(race.first.site), first.at, strict=True))}
    where = named(address.buffer, tuple(e.eval(env) for e in address.index))
    a, b = _who(r, race.first.site, first.at, sizes), _who(r, race.second.site, second.at, sizes)
    va, vb = _verb(race.first.role), _verb(race.second.role)
    here, there = _place(r, race.first.site, first.at), _place(r, race.second.site, second.at)
    text = f"{sizes_text(sizes)}{a} {va} {where} at {here}, {b} {vb} it at {there}: {race.why}"
    return Refuted(params, Witness(a, b, where, "race", sizes, text))


def _verb(role: str) -> str:
    return {"write": "writes", "read": "reads", "old": "reads"}[role]


def _who(r: Relations, n: int, at: tuple[int, ...], sizes: dict[str, int]) -> str:
    env = {**sizes, **dict(zip(r.variables(n), at, strict=True))}

    def numbers(es: tuple[Aff, ...]) -> str:
        return ",".join(str(e.eval(env)) for e in es)

    match r.sites[n].action:
        case Leaf(statement=name, instance=instance):
            return f"{name}[{numbers(instance)}]" if instance else name
        case Copy(dst=dst, cell=c):
            return f"the copy of [{numbers(c)}] into {dst.buffer}"
        case Identity(dst=dst):
            return f"the identity of {dst.buffer}[{numbers(dst.index)}]"
        case Merge(dst=dst, src=src):
            return f"the merge of {src.buffer}[{numbers(src.index)}] into {dst.buffer}"
        case _:
            return "an action"


def _place(r: Relations, n: int, at: tuple[int, ...]) -> str:
    return ", ".join(f"{v}={x}" for v, x in zip(r.variables(n), at, strict=True)) or "the top level"


def bounds_witness(r: Relations, a: Tagged, outside: Set) -> Refuted:
    """An access outside its buffer."""
    u = outside.to_union_set()
    sizes = smallest_sizes(r.solver, u.params())
    p = first_in_time(r, fix(r.solver, u, sizes))
    env = {**sizes, **dict(zip(r.variables(a.site), p.at, strict=True))}
    where = named(a.address.buffer, tuple(e.eval(env) for e in a.address.index))
    who = _who(r, a.site, p.at, sizes)
    shape = ", ".join(str(e.eval(sizes)) for e in r.program.buffer[a.address.buffer].shape)
    text = f"{sizes_text(sizes)}{who} {_verb(a.role)} {where} at {_place(r, a.site, p.at)}; "
    text += f"{a.address.buffer} has the shape [{shape}]"
    return Refuted(u.params(), Witness(who, who, where, "out of bounds", sizes, text))


def unfinished_witness(r: Relations, a: Tagged, copies: Set) -> Refuted:
    """An asynchronous copy into an argument that nothing waits for."""
    u = copies.to_union_set()
    sizes = smallest_sizes(r.solver, u.params())
    p = first_in_time(r, fix(r.solver, u, sizes))
    env = {**sizes, **dict(zip(r.variables(a.site), p.at, strict=True))}
    where = named(a.address.buffer, tuple(e.eval(env) for e in a.address.index))
    who = _who(r, a.site, p.at, sizes)
    text = f"{sizes_text(sizes)}{who} writes {where} at {_place(r, a.site, p.at)} and may still be in flight at the end: "
    return Refuted(u.params(), Witness(who, f"the final {where}", where, "race", sizes, text + "no wait covers it"))


def operation_witness(r: Relations, n: int, action: Identity | Merge, op: str) -> Refuted:
    """The neutral element of another operation than the reduction's, a combination by another, or with another's value."""
    u = r.domains[n].to_union_set()
    sizes = smallest_sizes(r.solver, u.params())
    at = points(fix(r.solver, u, sizes))[0].at
    env = {**sizes, **dict(zip(r.variables(n), at, strict=True))}
    where = named(action.dst.buffer, tuple(e.eval(env) for e in action.dst.index))
    who = _who(r, n, at, sizes)
    text = f"{sizes_text(sizes)}{who} is for {action.op}, the reduction's operation is {op}"
    if action.op == op and isinstance(action, Merge):
        text = f"{sizes_text(sizes)}{who} adds to the reduction what is no partial result of it"
    return Refuted(u.params(), Witness(who, who, where, "wrong source", sizes, text))


# -- instances ---------------------------------------------------------------


def instance_witness(r: Relations, statement: Statement, instances: UnionSet, why: str) -> Refuted:
    """An instance that is missing, or that the original does not have."""
    params = instances.params()
    sizes = smallest_sizes(r.solver, params)
    p = points(fix(r.solver, instances, sizes))[0]
    where = logical_element(r.program, statement, "w", p.at, sizes)
    name = str(p)
    text = f"{sizes_text(sizes)}{name} writes {where} in the original; {why}"
    if "no such" in why:
        text = f"{sizes_text(sizes)}{name} runs, but {why}"
    return Refuted(params, Witness(name, name, where, "lost value", sizes, text))


def twice_witness(r: Relations, statement: Statement, done: UnionMap) -> Refuted:
    """An instance that runs twice though nothing declared it recomputed."""
    # two executions of one instance: the pairs of a non-injective map off the diagonal
    pairs = done.apply_range(done.reverse())
    pairs = pairs.subtract(pairs.domain().identity())
    params = pairs.params()
    sizes = smallest_sizes(r.solver, params)
    p = points(fix(r.solver, pairs, sizes).domain().apply(fix(r.solver, done, sizes)))[0]
    where = logical_element(r.program, statement, "w", p.at, sizes)
    name = str(p)
    text = f"{sizes_text(sizes)}{name} runs more than once, and no step declared that {statement.name} may be recomputed"
    return Refuted(params, Witness(name, name, where, "wrong source", sizes, text))


__all__ = [
    "Refuted",
    "instance_witness",
    "operation_witness",
    "race_witness",
    "twice_witness",
    "undefined_witness",
    "unfinished_witness",
    "value_witness",
]
