"""A program as executable NumPy source, bit for bit what ir/interp computes.

Loops that are vector axes of a perfect nest (lower/nests.py) run as one array operation, also over bound loops; a reduction into
one cell runs as an ordered sum; every other loop is a Python loop. Asynchronous copies run at once; barriers are comments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilec.codegen import numpy_support
from tilec.codegen.python_text import PythonScope, Span, identifiers, quoted
from tilec.ir import tree
from tilec.ir.affine import Aff, Constraint
from tilec.ir.arguments import signature, written
from tilec.ir.dtypes import DTYPES, promote, round_through
from tilec.ir.evaluate import neutral
from tilec.ir.functions import FUNCTIONS
from tilec.ir.printer import Scope, owned
from tilec.ir.program import Barrier, Buffer, Commit, Copy, Guard, Identity, Leaf, Loop, Merge, Node, Program, Wait
from tilec.lower.cells import Cells
from tilec.lower.nests import Split, bound_names, independent, perfect, reads_of, split, target_of

INDENT = "    "
DEEPEST = 16  # Python refuses more than 20 loops inside one another: the rest becomes a function
_OVER = {"+=": "add_in_order", "*=": "multiply_in_order", "max=": "maximum_over", "min=": "minimum_over"}


def parameters(program: Program) -> list[str]:
    """What the generated function takes, in order: arrays, scalars, free sizes."""
    arrays = [b.name for b in program.buffers if b.role == "param"]
    return [*arrays, *(name for name, _ in program.scalars), *program.sizes]


def entry(program: Program) -> str:
    """The name of the generated function."""
    return _names(program)[program.name]


def emit(program: Program) -> str:
    """A module with one function that takes `parameters(program)` by position and updates the written arrays in place.

    Arrays hold elements of the parameters' dtypes; scalars are arithmetic values. The arrays must not overlap.
    """
    program = tree.without_hints(program)
    emitter = _Emitter(program)
    params = [b for b in program.buffers if b.role == "param"]
    outputs, name = set(written(program)), emitter.names
    for b in params:
        mine = name[b.name]
        load = f"{mine} = {emitter.scope(_Place()).call('values', mine, quoted(b.dtype))}"
        keep = f"{mine}_array = {mine}" if b.name in outputs else None
        emitter.lines += [INDENT + line for line in (keep, load) if line]
    emitter.nodes(program.body, _Place(), owned(program, (), None))
    for b in params:
        if b.name in outputs:
            mine = name[b.name]
            emitter.lines.append(f"{INDENT}{mine}_array[...] = {emitter.scope(_Place()).call('stored', mine, quoted(b.dtype))}")
    arguments = ", ".join(name[p] for p in parameters(program))
    head = [
        f'"""{program.name}, executable NumPy."""',
        "",
        "import numpy as np",
        "",
        f"from {numpy_support.__name__} import {', '.join(sorted(emitter.used))}",
        "",
        "",
        '@np.errstate(all="ignore")',
        f"def {name[program.name]}({arguments}):",
        f'{INDENT}"""{signature(program)}"""',
    ]
    return "\n".join(head + emitter.lines) + "\n"


def _names(program: Program) -> dict[str, str]:
    reserved = {n for n in dir(numpy_support) if not n.startswith("__")} | set(FUNCTIONS)
    loops = [loop.var for _, loop in tree.loops(program.body)]
    arrays = [b.name for b in program.buffers]
    ends = [name for v in loops for name in (f"{v}_start", f"{v}_end")]
    taken = [f"{n}_array" for n in arrays]
    return identifiers([program.name, *parameters(program), *arrays, *loops, *ends], {*reserved, *taken})


@dataclass(frozen=True)
class _Place:
    """Where lines are added: the loops around, those of them that run as array axes, and the storage that follows them."""

    path: tuple[Loop, ...] = ()
    lanes: tuple[Loop, ...] = ()
    spans: Mapping[str, Span] = field(default_factory=dict)
    widened: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # a scalar with one value per lane
    depth: int = 1
    nested: int = 0  # Python loops around, in this function
    scalars: frozenset[str] = frozenset()  # Python variables assigned by the functions around

    def into(self, loop: Loop) -> _Place:
        return replace(self, path=(*self.path, loop), depth=self.depth + 1, nested=self.nested + 1)


@dataclass
class _Emitter:
    program: Program
    lines: list[str] = field(default_factory=list)
    used: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.cells = Cells.of(self.program)
        self.names = _names(self.program)
        self.variables = frozenset(
            b.name for b in self.program.buffers if b.role != "param" and not b.shape and not self.cells.coordinates.get(b.name)
        )

    def scope(self, place: _Place, axes: tuple[str, ...] = (), spans: Mapping[str, Span] | None = None) -> PythonScope:
        order = Scope.of(self.program, place.path).order
        known = {**place.spans, **(spans or {})}
        return PythonScope(
            self.program, order, self.names, self.cells, place.path, self.variables, self.used, axes, known, place.widened
        )

    def line(self, place: _Place, text: str) -> None:
        self.lines.append(INDENT * place.depth + text)

    def nodes(self, body: tuple[Node, ...], place: _Place, declared: list[Buffer]) -> None:
        start = len(self.lines)
        if place.lanes:
            widened = {b.name: tuple(loop.var for loop in place.lanes) for b in declared}
            place = replace(place, widened={**place.widened, **widened})
        for b in declared:
            self.line(place, self._allocate(b, place))
        place = replace(place, scalars=place.scalars | {b.name for b in declared if b.name in self.variables})
        if place.nested >= DEEPEST:
            self._function(body, place)
            return
        for node in body:
            nest = None if isinstance(node, Barrier | Commit | Wait) else perfect(self.program, node, place.path)
            ready = None if nest is None else split(nest, self.cells)
            if ready is not None and place.nested + len(ready.explicit) < 20:
                self._nest(ready, place)
                continue
            match node:
                case Loop():
                    mine = owned(self.program, place.path, node)
                    if independent(node, place.path, self.cells, self.variables):
                        spans = self._spans((node,), place, replace(place, path=(*place.path, node)))
                        inner = replace(place.into(node), depth=place.depth, lanes=(*place.lanes, node))
                        self.nodes(node.body, replace(inner, spans={**place.spans, **spans}), mine)
                    else:
                        self._for(node, place)
                        self.nodes(node.body, place.into(node), mine)
                case Guard():
                    self._if(node.conditions, place)
                    self.nodes(node.body, replace(place, depth=place.depth + 1), [])
                case Wait():
                    self.line(place, f"# wait({node.n})")
                case Barrier() | Commit():
                    self.line(place, f"# {type(node).__name__.lower()}")
        if all(line.lstrip().startswith("#") for line in self.lines[start:]):
            self.line(place, "pass")

    def _function(self, body: tuple[Node, ...], place: _Place) -> None:
        self.line(place, "def deeper():")
        inner = replace(place, depth=place.depth + 1, nested=0)
        if place.scalars:
            self.line(inner, f"nonlocal {', '.join(sorted(self.names[n] for n in place.scalars))}")
        self.nodes(body, inner, [])
        self.line(place, "deeper()")

    def _for(self, loop: Loop, place: _Place) -> None:
        kind = "" if loop.kind == "serial" else f"  # {loop.kind}"
        self.line(place, f"for {self.names[loop.var]} in {self.scope(place).range_of(loop)}:{kind}")

    def _if(self, conditions: tuple[Constraint, ...], place: _Place) -> None:
        self.line(place, f"if {' and '.join(map(self.scope(place).constraint, conditions))}:")

    def _allocate(self, b: Buffer, place: _Place) -> str:
        scope = self.scope(place)
        lanes = [place.spans[v] for v in place.widened.get(b.name, ())]
        extents = [scope.aff(span.end - span.start) for span in lanes]
        for c in self.cells.coordinates.get(b.name, ()):
            found = [scope.aff(e) for e in c.extents]
            extents.append(found[0] if len(found) == 1 else f"max({', '.join(found)})")
        extents += map(scope.aff, b.shape)
        shape = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
        return f"{self.names[b.name]} = {scope.call('undefined', shape, quoted(b.dtype))}  # {b.memory}"

    def _spans(self, axes: tuple[Loop, ...], place: _Place, inner: _Place) -> dict[str, Span]:
        """The axes' ranges; a line assigns the ends that are not plain."""
        scope = self.scope(inner)
        spans: dict[str, Span] = {}
        assigned: list[tuple[str, str]] = []
        for loop in axes:
            start, end = loop.lower[0], loop.upper[0]
            if len(loop.lower) > 1:
                start = Aff.of(f"{loop.var}_start")
                assigned.append((self.names[f"{loop.var}_start"], scope.lower(loop)))
            plain = start.is_const and start.const <= 1 and end.single in self.program.sizes  # sizes are at least 1
            plain = plain or (start.is_const and end.is_const and start.const <= end.const)
            if len(loop.upper) > 1 or not plain:
                end = Aff.of(f"{loop.var}_end")
                low = scope.aff(start)  # an empty range must not become an end before the start
                assigned.append((self.names[f"{loop.var}_end"], f"max({low}, {scope.upper(loop)})"))
            spans[loop.var] = Span(start, end)
        if any(n in re.findall(r"\w+", t) for n, _ in assigned for _, t in assigned):  # an end uses its start
            for n, t in assigned:
                self.line(place, f"{n} = {t}")
        elif assigned:
            self.line(place, f"{', '.join(n for n, _ in assigned)} = {', '.join(t for _, t in assigned)}")
        return spans

    def _nest(self, s: Split, place: _Place) -> None:
        """Ends of the axes first when they don't depend on the explicit loops, then those loops, then the operation."""
        explicit, along = s.explicit, None
        if not s.vector and not place.lanes and explicit and self._sums(s, explicit[-1]):
            explicit, along = explicit[:-1], explicit[-1]
        axes = (*s.vector, *((along,) if along else ()))
        inner = replace(place, path=s.nest.around)
        hoisted = not any(bound_names(axis) & {loop.var for loop in explicit} for axis in axes)
        text = self._operation(s, place, inner, axes, along) if hoisted else None
        known = {loop.var for loop in place.path}
        pending = list(s.nest.conditions)
        for loop in (None, *explicit):
            if loop is not None:
                self._for(loop, replace(inner, depth=place.depth))
                known.add(loop.var)
                place = replace(place, depth=place.depth + 1)
            here = tuple(c for c in pending if not c.names - known - set(self.program.sizes))
            if here:
                self._if(here, replace(inner, depth=place.depth))
                pending = [c for c in pending if c not in here]
                place = replace(place, depth=place.depth + 1)
        self.line(place, text or self._operation(s, place, inner, axes, along))

    def _operation(self, s: Split, place: _Place, inner: _Place, axes: tuple[Loop, ...], along: Loop | None) -> str:
        """The line of the action; lines with the ends of its axes, and with their index arrays where it needs them, are added."""
        spans = self._spans(axes, place, inner)
        target = target_of(s.nest.action)
        dimensions = [loop.var for loop in (*place.lanes, *axes)]
        if target.buffer not in place.widened:
            dimensions.sort(key=lambda v: next((d for d, e in enumerate(target.index) if v in e.names), -1))
        scope = self.scope(inner, tuple(dimensions), spans)
        text = self._action(s, scope, along)
        if scope.arrays:
            ranges = [f"range({scope.aff(scope.spans[v].start)}, {scope.aff(scope.spans[v].end)})" for v in dimensions]
            names = ", ".join(self.names[v] for v in dimensions)
            self.line(place, f"{names} = {scope.call('axis' if len(ranges) == 1 else 'axes', *ranges)}")
        notes = [f"{loop.var} on {loop.kind}" for loop in (*place.lanes, *axes) if loop.kind not in ("serial", "pipelined")]
        return ", ".join([text, *notes])

    def _sums(self, s: Split, loop: Loop) -> bool:
        """Is the innermost loop a reduction into one cell in the target's own type, its terms independent of that cell?"""
        action, program = s.nest.action, self.program
        if not isinstance(action, Leaf) or any(loop.var in c.names for c in s.nest.conditions):
            return False
        statement, dtype = program.statement[action.statement], program.buffer[action.target.buffer].dtype
        written_ = self.cells.index(action.target, s.nest.around)
        return (
            statement.op in _OVER
            and promote(DTYPES[dtype].arithmetic, statement.value.dtype) == dtype
            and not any(loop.var in e.names for e in written_)
            and all(a.buffer != action.target.buffer for a in reads_of(program, action))
        )

    def _action(self, s: Split, scope: PythonScope, along: Loop | None) -> str:
        action, program = s.nest.action, self.program
        target = target_of(action)
        dtype = program.buffer[target.buffer].dtype
        match action:
            case Copy():
                note = "copy, asynchronous" if action.asynchronous else "copy"
                return f"{scope.address(target)} = {scope.address(action.src)}  # {note}"
            case Identity():
                kept = round_through(dtype, neutral(action.op, dtype)).item()
                value = scope.number(kept, DTYPES[dtype].arithmetic)
                return f"{scope.address(target)} = {value}  # identity of {action.op}"
            case Merge():
                source = DTYPES[program.buffer[action.src.buffer].dtype].arithmetic
                arithmetic = promote(DTYPES[dtype].arithmetic, source)
                term = scope.address(action.src)
                term = term if source == arithmetic else scope.call(arithmetic, term)
                return f"{scope.update(target, action.op, arithmetic, term, term)}  # merge"
            case Leaf():
                statement = program.statement[action.statement]
                env = dict(zip(statement.loops, action.instance, strict=True))
                if statement.op == "=":
                    value = scope.as_stored(statement.value, dtype, env, action.reads)
                    return f"{scope.address(target)} = {value}  # {statement.name}"
                arithmetic = promote(DTYPES[dtype].arithmetic, statement.value.dtype)
                term, operand = (scope.python(statement.value, arithmetic, env, action.reads, level) for level in (0, 7))
                if along is not None:
                    t = scope.address(target)
                    span = scope.spans[along.var]
                    total = scope.call(_OVER[statement.op], t, term, scope.aff(span.end - span.start))
                    return f"{t} = {total}  # {statement.name}"
                return f"{scope.update(target, statement.op, arithmetic, term, operand)}  # {statement.name}"
