"""The pseudocode of a program in element form: what a person reads in the terminal, in errors and in golden tests.

Every place where a value is rounded is written out (`bf16(…)`), also inside inlined reads; addresses are the physical ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilec.ir import tree
from tilec.ir.affine import Aff, Constraint, Div
from tilec.ir.dtypes import round_through
from tilec.ir.evaluate import neutral
from tilec.ir.expr import Cast, Const, Expr, Load
from tilec.ir.expr import text as expr_text
from tilec.ir.program import (
    Action,
    Address,
    Barrier,
    Buffer,
    Commit,
    Copy,
    Guard,
    Identity,
    Leaf,
    Loop,
    Merge,
    Node,
    Prefetch,
    Program,
    Read,
    Statement,
    Wait,
)

INDENT = "    "
_RANK = {"bool": 0, "i32": 1, "f32": 2, "f64": 3}
_ATOM = 8  # a precedence above every operator of expr.text


def text(program: Program) -> str:
    """The whole program as pseudocode, without a final newline."""
    lines = header(program)
    lines += [declaration(b, Scope.of(program)) for b in owned(program, (), None)]
    if lines:
        lines.append("")
    _nodes(program, program.body, (), (), 0, lines)
    return "\n".join(lines)


def loop_tree(
    program: Program,
    note: Callable[[Loop, tuple[Loop, ...]], str] = lambda loop, path: loop_note(loop),
    leaf: Callable[[Leaf, Scope], str] | None = None,
) -> str:
    """The short form: loops and statements only.

    note: what stands behind a loop, which has the others around it; leaf: what is said of a statement (otherwise its target).
    """
    lines: list[str] = []

    def go(body: tuple[Node, ...], path: tuple[Loop, ...], depth: int) -> None:
        scope = Scope.of(program, path)
        for node in body:
            pad = "  " * depth
            match node:
                case Loop():
                    lines.append(f"{pad}{node.var} in {scope.range(node)}{note(node, path)}")
                    go(node.body, (*path, node), depth + 1)
                case Guard():
                    go(node.body, path, depth)
                case Leaf():
                    what = leaf(node, scope) if leaf else program.statement[node.statement].target.buffer
                    lines.append(f"{pad}{node.statement}: {what}")
                case Copy():
                    lines.append(f"{pad}copy: {node.dst.buffer} = {node.src.buffer}")
                case Identity():
                    lines.append(f"{pad}identity: {node.dst.buffer}")
                case Merge():
                    lines.append(f"{pad}merge: {node.dst.buffer} {node.op} {node.src.buffer}")
                case _:
                    pass

    go(program.body, (), 0)
    return "\n".join(lines)


# ---------------------------------------------------------------------------------------------------------------------
# The parts, for other printers (the tile form) too


def header(program: Program) -> list[str]:
    """Name and parameters, sizes, assumptions, permissions: one line each, the optional ones only where they say something."""
    scope = Scope.of(program)
    parameters = {b.name: f"{b.name}: {b.dtype}{scope.shape(b)}" for b in program.buffers if b.role == "param"}
    parameters |= {name: f"{name}: {dtype}" for name, dtype in program.scalars}
    order = program.parameters or tuple(parameters)
    lines = [f"{program.name}({', '.join(parameters[name] for name in order)})"]
    sizes = [f"{name} = {value}" for name, value in program.bound] + list(program.sizes)
    if sizes:
        lines.append(f"sizes: {', '.join(sizes)}")
    if program.where:
        lines.append(f"where: {', '.join(scope.constraint(c) for c in program.where)}")
    allowed = [f"reassociate {name}" for name in sorted(program.reassociate)] + ["contract"] * program.contract
    allowed += ["hardware_rounding"] * program.hardware_rounding
    if allowed:
        lines.append(f"allowed: {', '.join(allowed)}")
    if program.recomputed:
        lines.append(f"recomputed: {', '.join(sorted(program.recomputed))}")
    return lines


def owned(program: Program, path: tuple[Loop, ...], loop: Loop | None) -> list[Buffer]:
    """The buffers to declare at the top of `loop` (None: of the program), a loop under the loops `path`."""
    if loop is None:
        return [b for b in program.buffers if b.role != "param" and b.owner is None]
    mine = [b for b in program.buffers if b.owner == loop.var]
    if not mine:
        return []
    # a loop name may repeat in sibling nests: the owner is the one around the buffer's accesses
    used = {a.buffer for site in tree.sites(loop.body) for a, _, _ in tree.addresses(site.action, program)}
    return [b for b in mine if b.name in used]


def declaration(b: Buffer, scope: Scope) -> str:
    """`A_shared: bf16[64, 32] in shared, pad(1, 8)`."""
    layout = f", {b.layout.name}({', '.join(map(str, b.layout.args))})" if b.layout else ""
    extra = f", aligned to {b.align} B" if b.align else ""
    extra += f", {b.pages} pages" if b.pages != "normal" else ""
    extra += ", packed ahead of the call where the caller has it" if b.prepacked else ""
    return f"{b.name}: {b.dtype}{scope.shape(b)} in {b.memory}{layout}{extra}"


def loop_note(loop: Loop) -> str:
    """The comment behind a loop's header: its kind and the instruction that runs it."""
    words = [loop.kind] * (loop.kind != "serial") + [loop.instruction or ""] * bool(loop.instruction)
    return f"  # {', '.join(words)}" if words else ""


@dataclass(frozen=True)
class Scope:
    """Text of everything that stands at one place of the tree: index terms are ordered sizes first, then outer loops first."""

    program: Program
    order: Mapping[str, int]

    @staticmethod
    def of(program: Program, loops: tuple[Loop, ...] = ()) -> Scope:
        names = [*program.sizes, *(loop.var for loop in loops)]
        return Scope(program, {name: n for n, name in enumerate(names)})

    def name(self, name: str) -> str:
        """A size, loop variable or buffer; other languages rename here."""
        return name

    # affine ------------------------------------------------------------------------------------------------------

    def aff(self, aff: Aff) -> str:
        return _sum(*self._items(aff))

    def constraint(self, c: Constraint) -> str:
        items, const = self._items(c.expr)
        positive = [i for i in items if i[0] > 0]
        negative = [(-n, body) for n, body in items if n < 0]
        left, right = max(-const, 0), max(const, 0)
        if c.equal:
            return f"{_sum(positive, right)} == {_sum(negative, left)}"
        if not negative:
            return f"{_sum(positive, right)} >= {left}"
        if left >= 1:  # a + 1 <= b reads better as a < b
            return f"{_sum(negative, left - 1)} < {_sum(positive, 0)}"
        return f"{_sum(negative, 0)} <= {_sum(positive, right)}"

    def _items(self, aff: Aff) -> tuple[list[tuple[int, str]], int]:
        """(coefficient, text) in printing order, and the constant; e - c·floor(e/c) becomes e % c."""
        rest, found = aff, list[tuple[int, int, str]]()
        for atom, c in aff.terms:
            if isinstance(atom, Div) and c % atom.den == 0:
                factor = -c // atom.den  # factor·(num mod den) needs factor·num in the sum
                have = dict(rest.terms)
                if all(have.get(a, 0) == k * factor for a, k in atom.num.terms):
                    rest = rest - atom.num * factor - Aff(0, ((atom, c),))
                    found.append((self._depth(atom), factor, f"{self._closed(atom.num)} % {atom.den}"))
        found = [(d, f, body if f == 1 else f"({body})") for d, f, body in found]
        for atom, c in rest.terms:
            found.append((self._depth(atom), c, self.name(atom) if isinstance(atom, str) else self._division(atom)))
        found.sort(key=lambda t: (t[1] < 0, t[0]))
        return [(c, body) for _, c, body in found], rest.const

    def _depth(self, atom: str | Div) -> int:
        names = (atom,) if isinstance(atom, str) else atom.num.names
        return min((self.order.get(n, len(self.order)) for n in names), default=len(self.order))

    def _division(self, atom: Div) -> str:
        # ceil(e/c) is how a person writes floor((e + c - 1)/c)
        if atom.num.const == atom.den - 1 and atom.num.terms:
            return f"ceil({self._closed(atom.num - atom.num.const)}/{atom.den})"
        return f"floor({self._closed(atom.num)}/{atom.den})"

    def _closed(self, aff: Aff) -> str:
        body = self.aff(aff)
        return body if re.fullmatch(r"\w+", body) else f"({body})"

    def range(self, loop: Loop) -> str:
        """`0..min(64, M - 64*io)`: the upper bound is exclusive."""
        lower, upper = self.lower(loop), self.upper(loop)
        if len(loop.lower) == 1 and " " in lower:
            lower = f"({lower})"
        return f"{lower}..{upper}"

    def lower(self, loop: Loop) -> str:
        return self._bound("max", loop.lower)

    def upper(self, loop: Loop) -> str:
        return self._bound("min", loop.upper)

    def _bound(self, function: str, bounds: tuple[Aff, ...]) -> str:
        body = ", ".join(map(self.aff, bounds))
        return body if len(bounds) == 1 else f"{function}({body})"

    def shape(self, b: Buffer) -> str:
        return f"[{', '.join(map(self.aff, b.shape))}]" if b.shape else ""

    def address(self, a: Address) -> str:
        return f"{self.name(a.buffer)}[{', '.join(map(self.aff, a.index))}]" if a.index else self.name(a.buffer)

    # values ------------------------------------------------------------------------------------------------------

    def read(self, read: Read) -> str:
        """An atom: an address, or an inlined statement with the rounding of its store."""
        if isinstance(read, Address):
            return self.address(read)
        statement = self.program.statement[read.statement]
        return self.rounded(statement, read.instance, read.reads, _ATOM)

    def value(self, statement: Statement, instance: tuple[Aff, ...], reads: tuple[Read, ...], level: int = 0) -> str:
        """The statement's expression at `instance`, before the store."""
        env = dict(zip(statement.loops, instance, strict=True))
        return expr_text(statement.value, lambda n: self.read(reads[n]), lambda e: self.aff(e.subs(env)), level)

    def rounded(self, statement: Statement, instance: tuple[Aff, ...], reads: tuple[Read, ...], level: int = 0) -> str:
        """The expression with the rounding of the statement's store, where there is one."""
        dtype = self._dtype(statement.target.buffer)
        if self._keeps(dtype, statement.value, reads):
            return self.value(statement, instance, reads, level)
        return f"{dtype}({self.value(statement, instance, reads)})"

    def _dtype(self, buffer: str) -> str:
        found = self.program.buffer.get(buffer) or self.program.source.buffer[buffer]
        return found.dtype

    def _keeps(self, dtype: str, value: Expr, reads: tuple[Read, ...]) -> bool:
        """Does storing `value` as `dtype` leave it as it is, by its form?"""
        match value:
            case Const(value=v) if not isinstance(v, bool) and v == v and abs(v) <= 8 and v == int(v):
                return True
            case Cast(to=to) if to == dtype:
                return True
            case Load(n=n):
                read = reads[n]
                name = read.buffer if isinstance(read, Address) else self.program.statement[read.statement].target.buffer
                if self._dtype(name) == dtype:
                    return True
        return _widens(value.dtype, dtype)

    # actions -----------------------------------------------------------------------------------------------------

    def action(self, action: Action) -> str:
        """One line, with its trailing comment."""
        match action:
            case Leaf():
                return f"{self.leaf(action)}  # {action.statement}{', streaming' if action.streaming else ''}"
            case Copy():
                start = "async " if action.asynchronous else ""
                how = ", streaming" if action.streaming else ""
                return f"{start}{self.address(action.dst)} = {self.address(action.src)}  # copy{how}"
            case Identity():
                return f"{self.address(action.dst)} = {self.identity(action)}  # identity of {action.op}"
            case Merge():
                src, dtype = self.address(action.src), self._dtype(action.src.buffer)
                arithmetic = dtype if dtype in _RANK else "f32" if dtype != "i8" else "i32"
                return f"{self._update(action.dst, action.op, src, src, arithmetic)}  # merge"
            case Prefetch():
                return f"prefetch {self.address(action.address)}  # to L{action.level}{', for a write' if action.write else ''}"
            case Barrier():
                return "barrier  # inserted" if action.inserted else "barrier"
            case Commit():
                return "commit"
            case Wait():
                return f"wait({action.n})"

    def identity(self, action: Identity) -> str:
        """The neutral element as the buffer holds it: f8e4m3 has no infinity."""
        dtype = self._dtype(action.dst.buffer)
        value = round_through(dtype, neutral(action.op, dtype)).item()
        return str(value) if isinstance(value, int) else f"{value:g}"

    def leaf(self, leaf: Leaf) -> str:
        """The assignment alone."""
        statement = self.program.statement[leaf.statement]
        if statement.op == "=":
            return f"{self.address(leaf.target)} = {self.rounded(statement, leaf.instance, leaf.reads)}"
        plain = self.value(statement, leaf.instance, leaf.reads)
        inner = self.value(statement, leaf.instance, leaf.reads, 7 if statement.op == "*=" else 6)
        return self._update(leaf.target, statement.op, plain, inner, statement.value.dtype)

    def _update(self, target: Address, op: str, plain: str, inner: str, arithmetic: str) -> str:
        """`plain` stands alone, `inner` is the same value as the right operand of the operator."""
        t, dtype = self.address(target), self._dtype(target.buffer)
        exact = dtype in _RANK and _RANK[arithmetic] <= _RANK[dtype]
        if op in ("+=", "*=") and exact:
            return f"{t} {op} {plain}"
        new = f"{op[:-1]}({t}, {plain})" if op in ("max=", "min=") else f"{t} {op[0]} {inner}"
        return f"{t} = {new}" if exact else f"{t} = {dtype}({new})"


def _widens(arithmetic: str, storage: str) -> bool:
    """Is an arithmetic value stored without a rounding that a person must see? An i32 becoming an f32 is one."""
    if storage not in _RANK:
        return False
    return arithmetic == storage or (storage == "f64" and arithmetic in _RANK)


def _sum(items: list[tuple[int, str]], const: int) -> str:
    leading = const if const > 0 and items and all(c < 0 for c, _ in items) else 0
    out, const = (str(leading), 0) if leading else ("", const)  # 1000 - 64*io, not -64*io + 1000
    for c, body in items:
        term = body if abs(c) == 1 else f"{abs(c)}*{body}"
        out += (" - " if c < 0 else " + ") + term if out else ("-" if c < 0 else "") + term
    if const or not out:
        out += f" {'-' if const < 0 else '+'} {abs(const)}" if out else str(const)
    return out


def _nodes(
    program: Program,
    body: tuple[Node, ...],
    path: tuple[Loop, ...],
    declared: tuple[Buffer, ...],
    depth: int,
    lines: list[str],
) -> None:
    scope, pad = Scope.of(program, path), INDENT * depth
    lines += [pad + declaration(b, scope) for b in declared]
    for node in body:
        match node:
            case Loop():
                kind = loop_note(node)
                lines.append(f"{pad}for {node.var} in {scope.range(node)}:{kind}")
                _nodes(program, node.body, (*path, node), tuple(owned(program, path, node)), depth + 1, lines)
            case Guard():
                lines.append(f"{pad}if {' and '.join(map(scope.constraint, node.conditions))}:")
                _nodes(program, node.body, path, (), depth + 1, lines)
            case _:
                lines.append(pad + scope.action(node))
