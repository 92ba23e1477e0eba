"""Is the kernel as written meaningful: no access out of bounds, no read of a temporary's cell that nothing has written?

Exact for all sizes at once (Feautrier's dataflow through isl). Both sides of a conditional expression count as reads, whatever
the condition: a value that must not be read is kept away by an `if` with an affine condition.
"""

from __future__ import annotations

import re
from functools import lru_cache

from tilec.errors import LanguageError, LegalityError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import Access, Program, Statement
from tilec.poly.access import Relations
from tilec.poly.dataflow import value_flow
from tilec.poly.isl import OutOfBudget, Set, Solver, lexmin, pieces_of_map, pieces_of_set
from tilec.poly.points import coordinates, fix, smallest_sizes


def check(program: Program, file: str | None = None, budget: int | None = None) -> None:
    """Raise LanguageError with a witness at the smallest sizes (least sum, then lexicographic) for the first fault.

    In the order of the statements: accesses out of bounds, then reads of temporaries' cells that nothing has written before.
    What is checked is `program`'s original.

    file: where the kernel stands, for the message. LegalityError with a reason when isl's operation `budget` does not suffice.
    """
    original = program.source
    solver = Solver(original.sizes, original.where, budget)
    try:
        with solver.guard():
            _bounds(solver, original, file)
            _written(solver, original, file)
    except OutOfBudget:
        raise LegalityError(
            f"check of kernel '{original.name}': not decided within the operation budget.\n"
            "  give more with proof_budget=…, or bind some of the sizes",
            reason="the operation budget is spent",
        ) from None


@lru_cache(maxsize=256)
def initial_reads(program: Program, budget: int | None = None) -> frozenset[str]:
    """The array parameters of which some read receives the initial contents: the inputs, and of the written ones the in/outs."""
    original = program.source
    solver = Solver(original.sizes, original.where, budget)
    with solver.guard():
        out: set[str] = set()
        for piece in pieces_of_map(value_flow(Relations(solver, original)).sources):
            source, reader = piece.range().get_tuple_name() or "", piece.domain().get_tuple_name() or ""
            if source.startswith("I_") and not reader.startswith("E_"):
                out.add(source[2:-1])
        return frozenset(out)


def _accesses(s: Statement) -> list[tuple[Access, str]]:
    """(access, verb), reads first."""
    return [(a, "reads") for a in s.reads] + [(s.target, "writes" if s.op == "=" else "updates")]


def _bounds(solver: Solver, program: Program, file: str | None) -> None:
    for s in program.statements:
        for access, verb in _accesses(s):
            buffer = program.buffer[access.buffer]
            outside: Set | None = None
            # the private dimensions hold the loops' whole ranges by construction
            for index, extent in list(zip(access.index, buffer.shape, strict=True))[buffer.private :]:
                for wrong in (Constraint.lt(index, 0), Constraint.ge(index, extent)):
                    found = solver.set(s.name, s.loops, (*s.domain, wrong))
                    if not found.is_empty():
                        outside = found if outside is None else outside.union(found)
            if outside is None:
                continue
            sizes, at = _smallest(solver, outside)
            element = _element(program, access, s, at, sizes)
            shape = [e.eval(sizes) for e in buffer.shape[buffer.private :]]
            if len(shape) == 1:
                has = f"{access.buffer} has {shape[0]} element{'' if shape[0] == 1 else 's'}"
            else:
                has = f"{access.buffer} has shape {shape}"
            _fail(program, s, at, f"{verb} {element}; {has}", sizes, file)


def _written(solver: Solver, program: Program, file: str | None) -> None:
    r = Relations(solver, program)
    undefined = pieces_of_set(value_flow(r).undefined)
    if not undefined:
        return
    order = {f"L{n}": n for n in range(len(r.sites))}
    tags = {p.get_tuple_name() or "": p for p in undefined}
    tag = min(tags, key=lambda t: (order[t.rstrip("o").split("r")[0]], t))
    match = re.fullmatch(r"L(\d+)(?:r(\d+)|o)", tag)
    assert match is not None
    s = program.statements[int(match[1])]  # the original tree holds the statements in order, one leaf each
    access = s.target if match[2] is None else s.reads[int(match[2])]
    sizes, at = _smallest(solver, tags[tag])
    element = _element(program, access, s, at, sizes)
    verb = "updates" if match[2] is None else "reads"
    buffer = program.buffer[access.buffer]
    scalar = len(buffer.shape) == buffer.private
    hint = (
        f"give it a first value, as in {buffer.name}: {buffer.dtype} = 0" if scalar else "write every element before it is read"
    )
    _fail(program, s, at, f"{verb} {element}, which nothing has written before", sizes, file, hint)


def _smallest(solver: Solver, found: Set) -> tuple[dict[str, int], tuple[int, ...]]:
    """The smallest sizes of a set of instances, and its first instance there."""
    sizes = smallest_sizes(solver, found.params())
    (piece,) = pieces_of_set(fix(solver, found.to_union_set(), sizes))
    return sizes, coordinates(lexmin(piece))


def _element(program: Program, access: Access, s: Statement, at: tuple[int, ...], sizes: dict[str, int]) -> str:
    """The element with the subscripts that a person wrote."""
    env = {**sizes, **dict(zip(s.loops, at, strict=True))}
    index = _numbers(access.index[program.buffer[access.buffer].private :], env)
    return f"{access.buffer}[{index}]" if index else access.buffer


def _numbers(es: tuple[Aff, ...], env: dict[str, int]) -> str:
    return ",".join(str(e.eval(env)) for e in es)


def _fail(
    program: Program, s: Statement, at: tuple[int, ...], what: str, sizes: dict[str, int], file: str | None, hint: str = ""
) -> None:
    shown = {**dict(program.bound), **sizes}
    where = f" ({', '.join(f'{k}={v}' for k, v in shown.items())})" if shown else ""
    instance = f"{s.name}[{','.join(map(str, at))}]" if at else s.name
    raise LanguageError(f"{instance} {what}{where}" + (f"\n  {hint}" if hint else ""), file, s.line)
