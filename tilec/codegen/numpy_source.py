"""A program as executable NumPy source, bit for bit what ir/interp computes.

Loops that are vector axes of a perfect nest (lower/nests.py) run as one array operation, also over bound loops; a reduction into
one cell runs as an ordered sum; every other loop is a Python loop. Asynchronous copies run at once; barriers are comments.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilec.codegen import numpy_support
from tilec.codegen.python_text import PythonScope, identifiers, quoted
from tilec.ir import tree
from tilec.ir.affine import Constraint
from tilec.ir.arguments import signature, written
from tilec.ir.dtypes import DTYPES, promote
from tilec.ir.evaluate import neutral
from tilec.ir.functions import FUNCTIONS
from tilec.ir.printer import owned
from tilec.ir.program import Barrier, Buffer, Commit, Copy, Guard, Identity, Leaf, Loop, Merge, Node, Program, Wait
from tilec.lower.cells import Cells
from tilec.lower.nests import Split, bound_names, perfect, reads_of, split, target_of

INDENT = "    "
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
    emitter = _Emitter(program)
    params = [b for b in program.buffers if b.role == "param"]
    outputs, name = set(written(program)), emitter.names
    for b in params:
        mine = name[b.name]
        load = f"{mine} = {emitter.scope(()).call('values', mine, quoted(b.dtype))}"
        keep = f"{mine}_array = {mine}" if b.name in outputs else None
        emitter.lines += [INDENT + line for line in (keep, load) if line]
    emitter.nodes(program.body, (), owned(program, (), None), 1)
    for b in params:
        if b.name in outputs:
            mine = name[b.name]
            emitter.lines.append(f"{INDENT}{mine}_array[...] = {emitter.scope(()).call('stored', mine, quoted(b.dtype))}")
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
    taken = [f"{n}_array" for n in arrays]
    return identifiers([program.name, *parameters(program), *arrays, *loops], {*reserved, *taken})


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

    def scope(self, loops: tuple[Loop, ...]) -> PythonScope:
        return PythonScope.at(self.program, loops, self.names, self.cells, self.variables, self.used)

    def nodes(self, body: tuple[Node, ...], path: tuple[Loop, ...], declared: list[Buffer], depth: int) -> None:
        scope, pad, start = self.scope(path), INDENT * depth, len(self.lines)
        self.lines += [pad + self._allocate(b, scope) for b in declared]
        for node in body:
            nest = None if isinstance(node, Barrier | Commit | Wait) else perfect(self.program, node, path)
            if nest is not None:
                self._nest(split(nest, self.cells), path, depth)
                continue
            match node:
                case Loop():
                    self._for(node, scope, pad)
                    self.nodes(node.body, (*path, node), owned(self.program, path, node), depth + 1)
                case Guard():
                    self._if(node.conditions, scope, pad)
                    self.nodes(node.body, path, [], depth + 1)
                case Wait():
                    self.lines.append(f"{pad}# wait({node.n})")
                case Barrier() | Commit():
                    self.lines.append(f"{pad}# {type(node).__name__.lower()}")
        if all(line.lstrip().startswith("#") for line in self.lines[start:]):
            self.lines.append(f"{pad}pass")

    def _for(self, loop: Loop, scope: PythonScope, pad: str) -> None:
        kind = "" if loop.kind == "serial" else f"  # {loop.kind}"
        self.lines.append(f"{pad}for {self.names[loop.var]} in {scope.span(loop)}:{kind}")

    def _if(self, conditions: tuple[Constraint, ...], scope: PythonScope, pad: str) -> None:
        self.lines.append(f"{pad}if {' and '.join(map(scope.constraint, conditions))}:")

    def _allocate(self, b: Buffer, scope: PythonScope) -> str:
        extents = []
        for c in self.cells.coordinates.get(b.name, ()):
            found = [scope.aff(e) for e in c.extents]
            extents.append(found[0] if len(found) == 1 else f"max({', '.join(found)})")
        extents += map(scope.aff, b.shape)
        shape = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
        return f"{self.names[b.name]} = {scope.call('undefined', shape, quoted(b.dtype))}  # {b.memory}"

    def _nest(self, s: Split, path: tuple[Loop, ...], depth: int) -> None:
        """Axes first when they don't depend on the explicit loops, then those loops, then the operation."""
        scope = self.scope(s.nest.around)
        explicit, along = s.explicit, None
        if not s.vector and explicit and self._sums(s, explicit[-1]):
            explicit, along = explicit[:-1], explicit[-1]
        hoisted = not any(bound_names(axis) & {loop.var for loop in explicit} for axis in s.vector)
        if s.vector and hoisted:
            self.lines.append(INDENT * depth + self._axes(s.vector, scope))
        known = {loop.var for loop in path}
        pending = list(s.nest.conditions)
        for loop in (None, *explicit):
            if loop is not None:
                self._for(loop, scope, INDENT * depth)
                known.add(loop.var)
                depth += 1
            here = tuple(c for c in pending if not c.names - known - set(self.program.sizes))
            if here:
                self._if(here, scope, INDENT * depth)
                pending = [c for c in pending if c not in here]
                depth += 1
        if s.vector and not hoisted:
            self.lines.append(INDENT * depth + self._axes(s.vector, scope))
        if along is not None:
            self.lines.append(INDENT * depth + self._axes((along,), scope))
        self.lines.append(INDENT * depth + self._action(s, scope, along))

    def _axes(self, loops: tuple[Loop, ...], scope: PythonScope) -> str:
        names, spans = ", ".join(self.names[loop.var] for loop in loops), [scope.span(loop) for loop in loops]
        kinds = ", ".join(loop.kind for loop in loops) if any(loop.kind != "serial" for loop in loops) else ""
        return f"{names} = {scope.call('axis' if len(loops) == 1 else 'axes', *spans)}" + (f"  # {kinds}" if kinds else "")

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
                value = scope.number(neutral(action.op, dtype).item(), DTYPES[dtype].arithmetic)
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
                    total = scope.call(_OVER[statement.op], t, term, self.names[along.var])
                    return f"{t} = {total}  # {statement.name}"
                return f"{scope.update(target, statement.op, arithmetic, term, operand)}  # {statement.name}"
