"""compute_inline: a producer evaluated in place of every read of its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff
from tilec.ir.program import Address, Buffer, Copy, Guard, Inline, Leaf, Loop, Node, Program, Read, Statement
from tilec.ir.tree import Body, Position, map_addresses, put, transform
from tilec.poly.regions import Piece, injective
from tilec.schedule.core import primitive
from tilec.schedule.names import find_buffer
from tilec.schedule.placement_region import inlined
from tilec.schedule.placement_uses import Use, addressing, all_uses, inside, loops_to, owner_position


@primitive("placement")
def compute_inline(program: Program, buffer: str) -> Program:
    """Evaluate a producer where its value is read, and drop its store.

    1. `buffer` is a temporary (an output must be stored).
    2. One leaf writes it, and its statement is a plain `=`; the rounding of its store stays.
    3. Something reads it, and no copy does (inline before caching).
    4. Each loop of the statement can be told from the index of its target.
    5. What the producer reads is in memory that the readers can reach.

        for i: C[i] = f(A[i])
        for i: Y[i] = g(C[i])      ->    for i: Y[i] = g(bf16(f(A[i])))
    """
    b = find_buffer(program, buffer)
    if b.role != "temp":
        what = "a parameter" if b.role == "param" else f"a {b.role}"
        raise ScheduleError(f"'{buffer}' is {what}: only a temporary of the kernel can be inlined")
    everything = all_uses(program)
    found = everything.get(buffer, [])
    writes = [u for u in found if u.write]
    producer = _producer(program, b, writes)
    readers = [u for u in found if not u.write]
    if not readers:
        raise ScheduleError(f"nothing reads '{buffer}'")
    copies = [u.site.action for u in readers if isinstance(u.site.action, Copy)]
    if copies:
        raise ScheduleError(f"'{buffer}' is copied into '{copies[0].dst.buffer}': inline before caching")
    statement = program.statement[producer.statement]
    inverse(statement, tuple(Aff.of(f"#{n}") for n in range(len(statement.target.index))))  # precondition 4, before any change
    inliner = _Inliner(program, everything)
    new = replace(program, body=inliner.inlined(buffer, producer, {u.position for u in readers}))
    new = replace(new, body=put(new.body, writes[0].position, ()))
    again = program.recomputed
    if _repeated(program, statement, readers):
        again = again | {statement.name, *inlined(producer.reads)}
    return replace(new, buffers=tuple(x for x in program.buffers if x.name != buffer), recomputed=again)


def _producer(program: Program, b: Buffer, writes: Sequence[Use]) -> Leaf:
    leaves = [u.site.action for u in writes]
    if len(leaves) != 1:
        names = ", ".join(a.statement if isinstance(a, Leaf) else type(a).__name__.lower() for a in leaves) or "nothing"
        raise ScheduleError(f"'{b.name}' is written by {names}: one plain assignment must write it")
    leaf = leaves[0]
    if not isinstance(leaf, Leaf) or program.statement[leaf.statement].op != "=":
        by = f"{leaf.statement} (`{program.statement[leaf.statement].op}`)" if isinstance(leaf, Leaf) else "a copy"
        raise ScheduleError(f"'{b.name}' is written by {by}: one plain assignment must write it")
    return leaf


def inverse(statement: Statement, logical: tuple[Aff, ...]) -> tuple[Aff, ...]:
    """The instance that writes the target's cell `logical`; ScheduleError when the index does not tell."""
    known: dict[str, Aff] = {}
    pending = list(zip(statement.target.index, logical, strict=True))
    for _ in range(len(statement.loops)):
        for e, value in pending:
            unknown = [v for v in statement.loops if v in e.names and v not in known]
            if len(unknown) == 1 and e.coefficient(unknown[0]):
                v = unknown[0]
                c = e.coefficient(v)
                rest = e - Aff.of(v) * c
                if v not in rest.names:  # a cell that was written is a multiple of c away from the rest
                    distance = value - rest.subs(known)
                    known[v] = distance // c if c > 0 else (-distance) // -c
    missing = [v for v in statement.loops if v not in known]
    if missing:
        at = f"[{', '.join(map(str, statement.target.index))}]" if statement.target.index else ""
        raise ScheduleError(
            f"{statement.name} writes {statement.target.buffer}{at}: "
            f"the cell does not tell '{missing[0]}', so no single instance can be inlined"
        )
    return tuple(known[v] for v in statement.loops)


class _Inliner:
    """Rewrites reads of one buffer; the addresses of what the producer reads are worked out at each reader."""

    def __init__(self, program: Program, everything: dict[str, list[Use]]):
        self.program, self.everything = program, everything

    def inlined(self, buffer: str, producer: Leaf, positions: set[Position]) -> Body:
        def at_reader(a: Address, logical: tuple[Aff, ...], write: bool) -> Read:
            if a.buffer != buffer or write:
                return a
            return self.evaluate(producer.statement, logical, producer.reads)

        def rewrite(node: Node) -> Body:
            return (node,) if isinstance(node, Loop | Guard) else (map_addresses(node, at_reader, self.program),)

        for position in positions:
            self.check_reach(producer, position)
        return transform(self.program.body, rewrite)

    def evaluate(self, name: str, logical: tuple[Aff, ...], reads: Sequence[Read]) -> Inline:
        statement = self.program.statement[name]
        instance = inverse(statement, logical)
        env = dict(zip(statement.loops, instance, strict=True))
        new: list[Read] = []
        for access, read in zip(statement.reads, reads, strict=True):
            index = tuple(e.subs(env) for e in access.index)
            if isinstance(read, Inline):
                new.append(self.evaluate(read.statement, index, read.reads))
            else:
                new.append(Address(read.buffer, self.physical(read.buffer, index)))
        return Inline(name, instance, tuple(new))

    def physical(self, name: str, logical: tuple[Aff, ...]) -> tuple[Aff, ...]:
        b = self.program.buffer[name]
        if b.role == "param" or (b.role == "temp" and not b.placed):
            return logical  # an unplaced temporary is addressed anew by the default placement
        return addressing(self.everything[name], self.fixed(name)).physical(logical)

    def fixed(self, name: str) -> list[str]:
        owner = owner_position(self.program, self.program.buffer[name], self.everything[name])
        return [*self.program.sizes, *(loop.var for loop in loops_to(self.program.body, owner))]

    def check_reach(self, producer: Leaf, position: Position) -> None:
        for name in _read_buffers(producer.reads):
            b = self.program.buffer[name]
            if not inside(position, owner_position(self.program, b, self.everything[name])):
                raise ScheduleError(
                    f"the producer reads '{name}', which lives in one iteration of '{b.owner}', and a reader is outside. "
                    f"Inline before '{name}' is placed"
                )


def _read_buffers(reads: Sequence[Read]) -> list[str]:
    out: list[str] = []
    for r in reads:
        out += [r.buffer] if isinstance(r, Address) else _read_buffers(r.reads)
    return out


def _repeated(program: Program, statement: Statement, readers: Sequence[Use]) -> bool:
    """May an instance of the inlined statement be evaluated more than once?"""
    if len(readers) > 1:
        return True
    (u,) = readers
    variables = [loop.var for loop in u.site.loops]
    index = inverse(statement, u.logical)
    return not injective(Piece(index, u.site.conditions), variables, program.sizes, program.where)
