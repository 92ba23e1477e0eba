"""The pseudocode in tile form: what a nest does to whole tiles, as a person would sketch a tiled kernel.

    A_shared = load_tile(A, at=(64*io, 32*ko), size=(64, 32))      copies toward the arithmetic; `at`: the first element
    acc = init_tile(0)
    acc = matmul_accumulate(acc, A_shared, W_shared)               acc[a,b] += Σ over k, in order
    m = max(m, reduce_max(abs(X), over=k))                         other reductions, along the axis k in order
    T = bf16(silu(G))                                              elementwise; S[:, None] is repeated along the second axis
    store_tile(Y, bf16(silu(bf16(acc))), at=(64*io, 64*jo), size=(64, 64))

A tile is clipped to its array: elements beyond it are neither loaded, computed nor stored. What is no tile operation stays in
element form. Rounding is written out as in the element form.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.ir.affine import Aff
from tilec.ir.printer import INDENT, Scope, declaration, header
from tilec.ir.program import Address, Buffer, Copy, Identity, Leaf, Loop, Merge, Program
from tilec.ir.tree import without_hints
from tilec.lower.instructions import Allocation, For, If, Instruction, Sync, Tile, lower, matmul_factors
from tilec.lower.nests import target_of

_REDUCTION = {"+=": "sum", "*=": "product", "max=": "max", "min=": "min"}


def text(program: Program) -> str:
    """The whole program in tile form, without a final newline."""
    program = without_hints(program)
    lowered = lower(program)
    lines = header(program)
    lines += [declaration(a.buffer, Scope.of(program)) for a in lowered.allocations]
    lines.append("")
    for launch in lowered.launches:
        _body(program, launch.body, (), (), 0, lines)
    return "\n".join(lines)


def _body(
    program: Program,
    body: tuple[Instruction, ...],
    path: tuple[Loop, ...],
    declared: tuple[Allocation, ...],
    depth: int,
    lines: list[str],
) -> None:
    pad, scope = INDENT * depth, Scope.of(program, path)
    lines += [pad + declaration(a.buffer, scope) for a in declared]
    for op in body:
        match op:
            case For(loop=loop):
                kind = "" if loop.kind == "serial" else f"  # {loop.kind}"
                lines.append(f"{pad}for {loop.var} in {scope.range(loop)}:{kind}")
                _body(program, op.body, (*path, loop), op.allocations, depth + 1, lines)
            case If():
                lines.append(f"{pad}if {' and '.join(map(scope.constraint, op.conditions))}:")
                _body(program, op.body, path, (), depth + 1, lines)
            case Sync():
                lines.append(pad + scope.action(op.action))
            case Tile():
                lines += [pad + line for line in _tile(program, op, path)]


def _tile(program: Program, tile: Tile, path: tuple[Loop, ...]) -> list[str]:
    scope = TileScope(program, Scope.of(program, (*path, *tile.axes, *tile.reduced)).order, tile)
    if tile.kind == "element":
        return [scope.action(tile.action)]
    names = {loop.var for loop in (*tile.axes, *tile.reduced)}
    lone = [v for v in names if not any(v in e.names for e in target_of(tile.action).index)]
    reduced = {loop.var for loop in tile.reduced}
    notes = [f"{loop.var} on {loop.kind}" for loop in (*tile.axes, *tile.reduced) if loop.kind not in ("serial", "pipelined")]
    # an axis that only the register cells of a thread tell apart would not show otherwise
    notes += [f"for each {v} in {scope.range(loop)}" for loop in tile.axes for v in lone if v == loop.var and v not in reduced]
    name = tile.action.statement if isinstance(tile.action, Leaf) else type(tile.action).__name__.lower()
    note = f"  # {', '.join([name, *notes])}" if notes or isinstance(tile.action, Leaf | Merge) else ""
    return [f"{scope.operation()}{note}"]


@dataclass(frozen=True)
class TileScope(Scope):
    """Addresses as tiles: an axis of the operation becomes a whole dimension."""

    tile: Tile

    @property
    def axes(self) -> dict[str, Loop]:
        return {loop.var: loop for loop in (*self.tile.axes, *self.tile.reduced)}

    def action(self, action):  # the element form: addresses as they are
        return Scope(self.program, self.order).action(action) if self.tile.kind == "element" else super().action(action)

    def operation(self) -> str:
        tile, action = self.tile, self.tile.action
        target = target_of(action)
        match action:
            case Copy():
                start = "async " if action.asynchronous else ""
                if tile.kind == "store":
                    return f"{start}store_tile({target.buffer}, {self.whole(action.src)}{self.place(target)})"
                load = f"load_tile({action.src.buffer}{self.place(action.src)})"
                return f"{start}{self.whole(target)} = {load if tile.kind == 'load' else self.whole(action.src)}"
            case Identity():
                return f"{self.whole(target)} = init_tile({self.identity(action)})"
            case Merge():
                return super().action(action).removesuffix("  # merge")
            case Leaf():
                return self._leaf(action)

    def _leaf(self, leaf: Leaf) -> str:
        tile, program = self.tile, self.program
        s = program.statement[leaf.statement]
        t = self.whole(leaf.target)
        if tile.kind == "matmul":
            x, y = matmul_factors(program, tile)
            rows, columns, k = (loop.var for loop in (*tile.axes, *tile.reduced))
            return f"{t} = matmul_accumulate({t}, {self.matrix(x, rows, k)}, {self.matrix(y, k, columns)})"
        if tile.kind == "reduce":
            name = _REDUCTION[s.op]
            along = ", ".join(loop.var for loop in tile.reduced)
            along = along if len(tile.reduced) == 1 else f"({along})"
            term = f"reduce_{name}({self.value(s, leaf.instance, leaf.reads)}, over={along})"
            return self._update(leaf.target, s.op, term, term, s.value.dtype)
        if tile.kind == "init":
            return f"{t} = init_tile({self.rounded(s, leaf.instance, leaf.reads)})"
        line = self.leaf(leaf)
        if tile.kind == "store" and s.op == "=":
            value = self.rounded(s, leaf.instance, leaf.reads)
            return f"store_tile({leaf.target.buffer}, {value}{self.place(leaf.target)})"
        return line

    # tiles -------------------------------------------------------------------------------------------------------

    def address(self, a: Address) -> str:
        """As an operand, aligned to the axes of the operation; the target stands for itself."""
        return self.whole(a) if a == target_of(self.tile.action) else self.aligned(a)

    def whole(self, a: Address) -> str:
        """The tile itself: `acc`, `A_shared[ko % 2]`, `X[8*i : 8*i + 8]`."""
        b = self.program.buffer[a.buffer]
        parts = [self._dimension(e, b, d) for d, e in enumerate(a.index)]
        while parts and parts[-1] == ":":
            parts.pop()
        return f"{a.buffer}[{', '.join(parts)}]" if parts else a.buffer

    def place(self, a: Address) -> str:
        """`, at=(64*io, 32*ko), size=(64, 32)`: first element, extent per dimension; nothing for the whole array."""
        b = self.program.buffer[a.buffer]
        at, size = [], []
        for d, e in enumerate(a.index):
            axis = self._axis(e)
            if axis is None:
                at.append(self.aff(e))
                size.append("1")
            else:
                at.append(self.aff(self._first(e, axis)))
                size.append(self._extent(axis, self._clip(e, axis, b, d)))
        if all(first == "0" for first in at) and size == [self.aff(e) for e in b.shape]:
            return ""
        return f", at={_tuple(at)}, size={_tuple(size)}"

    def matrix(self, a: Address, rows: str, columns: str) -> str:
        """A two-dimensional operand, transposed where its dimensions stand the other way round."""
        order = [axis.var for axis in map(self._axis, a.index) if axis is not None]
        return self.whole(a) + (".T" if order == [columns, rows] else "")

    def aligned(self, a: Address) -> str:
        """The tile as a value with `None` for the axes of the operation that it does not have."""
        mine = [axis.var for axis in map(self._axis, a.index) if axis is not None]
        order = [v for v in self.axes if v in mine]
        body = self.whole(a)
        if mine != order:
            body += ".T" if len(mine) == 2 else f".transpose({', '.join(str(mine.index(v)) for v in order)})"
        missing = [v not in mine for v in self.axes]
        if not mine or not any(missing) or all(not m for m in missing[missing.index(False) :]):
            return body  # a scalar, or axes missing in front only: NumPy's own broadcasting
        return f"{body}[{', '.join('None' if m else ':' for m in missing)}]"

    def _axis(self, e: Aff) -> Loop | None:
        return next((loop for v, loop in self.axes.items() if v in e.names), None)

    def _first(self, e: Aff, axis: Loop) -> Aff:
        base = e - axis.var
        return base + axis.lower[0] if len(axis.lower) == 1 else base

    def _clip(self, e: Aff, axis: Loop, b: Buffer, d: int) -> tuple[Aff, ...]:
        """The upper bounds that are not just the end of the array."""
        base = e - axis.var
        rest = tuple(u for u in axis.upper if base + u != b.shape[d])
        return rest or axis.upper

    def _extent(self, axis: Loop, upper: tuple[Aff, ...]) -> str:
        if len(axis.lower) == 1:
            upper = tuple(u - axis.lower[0] for u in upper)
        body = self._bound("min", upper)
        return body if len(axis.lower) == 1 else f"{body} - {self._bound('max', axis.lower)}"

    def _dimension(self, e: Aff, b: Buffer, d: int) -> str:
        axis = self._axis(e)
        if axis is None:
            return self.aff(e)
        first, base = self._first(e, axis), e - axis.var
        whole = [u for u in axis.upper if base + u == b.shape[d]]
        if first == Aff(0) and whole and (whole[0].is_const or len(axis.upper) == 1):
            return ":"  # a tile of constant shape may be cut short by the end of an array
        ends = [base + u for u in self._clip(e, axis, b, d)]
        return f"{self.aff(first)} : {self._bound('min', tuple(ends))}"


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
