"""One tile operation as lines of Triton: loads with masks, values, matrix products, reductions, stores."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilec.codegen.triton_state import Axis, Extent, Output, State, Value
from tilec.codegen.triton_text import INDENT, call, fits, joined
from tilec.codegen.triton_value import F8, LONG, Evaluator, Number, identity_text
from tilec.errors import InternalError
from tilec.ir import tree
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES, promote
from tilec.ir.expr import Const, Expr, Index
from tilec.ir.program import Address, Copy, Identity, Leaf, Merge, Read, Statement
from tilec.lower.instructions import Tile
from tilec.lower.nests import target_of

LITERAL = re.compile(r"-?[\d.e+-]+|float\(.*\)")
_SIGN = {"+=": "+", "*=": "*"}
OVER = {"max=": "maximum", "min=": "minimum", "*=": "product"}


class Operation:
    """One tile operation as lines. whole: at the extents of the tiles it reads, too; axes: given, for a part of the tile."""

    def __init__(self, kernel: State, op: Tile, whole: bool = True, axes: tuple[Axis, ...] | None = None):
        self.k, self.op, self.program = kernel, op, kernel.program
        self.axes = axes or kernel.axes(op, whole)
        self.position = {axis.loop.var: n for n, axis in enumerate(self.axes)}
        self.bases = self.offsets()
        self.reads: dict[Address, Number] = {}
        self.evaluator = Evaluator(self.no_read, self.index, self.scalar, self.keep, kernel.used, kernel.bits)

    def no_read(self, n: int) -> Number:
        raise AssertionError(n)

    def offsets(self) -> dict[str, dict[Aff, str]]:
        """Per axis, what is added to it where global memory is addressed, with a name for the sum."""
        out: dict[str, dict[Aff, str]] = {v: {} for v in self.position}
        for a, _, _ in tree.addresses(self.op.action, self.program):
            if self.program.buffer[a.buffer].memory != "global":
                continue
            for d, e in enumerate(a.index):
                for v in e.names & set(self.position):
                    out[v].setdefault(e - v, self.k.hint(a.buffer, d))
        return out

    @property
    def rank(self) -> int:
        return len(self.axes)

    def expand(self, text: str, mine: Sequence[int], among: Sequence[int]) -> str:
        """A tensor with the dimensions `mine` as one with the dimensions `among`."""
        if list(mine) == list(among) or not mine:
            return text
        return f"{text}[{', '.join(':' if n in mine else 'None' for n in among)}]"

    def keep(self, text: str) -> str:
        if len(text) <= LONG - len(INDENT) * (self.k.block.depth - 1):
            return text
        name = self.k.fresh("t")
        self.assign(name, text)
        return name

    def assign(self, name: str, text: str) -> None:
        head, paren, rest = text.partition("(")
        if len(text) + len(name) > 70 and paren and text.endswith(")") and re.fullmatch(r"[\w.]+", head) and rest.count(")") == 1:
            self.k.line(*call(f"{name} = {head}(", [rest[:-1]], ")", self.k.block.depth))
        else:
            self.k.put(f"{name} = {text}")

    def scalar(self, name: str) -> str:
        self.k.scalars.add(name)
        return self.k.names[name]

    def index(self, e: Aff) -> Number:
        axis = next((a for a in self.axes if a.loop.var in e.names), None)
        if axis is None:
            return Number(self.k.aff(e), level=7 if e.single or (e.is_const and e.const >= 0) else 5)
        raise self.k.refused(f"a value depends on '{axis.loop.var}' other than through an address; keep that loop apart")

    # addresses ---------------------------------------------------------------------------------------------------

    def short(self, name: str, parts: list[str], op: str, wrap: bool = False, head: str = "") -> str:
        """The parts joined, in a variable where they are too long for an argument."""
        depth = self.k.block.depth
        text = op.join(f"({p})" for p in parts) if wrap and len(parts) > 1 else op.join(parts)
        if fits(head + text, depth):
            return text
        variable = self.k.fresh(name)
        self.k.line(*joined(variable, [f"({p})" for p in parts] if wrap and len(parts) > 1 else parts, op, depth))
        return variable

    def pointer(self, a: Address, among: Sequence[int]) -> str:
        """Pointers to the elements along the axes `among`."""
        k = self.k
        k.touched[a.buffer] = None
        name = k.names[a.buffer]
        parts = [name]
        for d, e in enumerate(a.index):
            stride = f"{name}_{d}"
            axis = next((n for n in among if self.axes[n].loop.var in e.names), None)
            if axis is not None:
                v = self.axes[axis].loop.var
                vector = k.vector(e - v, self.axes[axis], k.hint(a.buffer, d))
                k.used["at"] += 1
                parts.append(f"_at({self.expand(vector, [axis], among)}, {stride})")
            elif e.is_const:
                parts += [] if e.const == 0 else [stride if e.const == 1 else f"{e.const} * {stride}"]
            else:
                k.used["at"] += 1
                parts.append(f"_at({k.aff(e)}, {stride})")
        return self.short(f"{name}_at", parts, " + ")

    def mask(self, among: Sequence[int]) -> str | None:
        found = []
        for n in among:
            for test in self.k.conditions(self.axes[n], self.bases[self.axes[n].loop.var]):
                left, sign, right = re.split(r" (<|>=) ", test, maxsplit=1)
                found.append(f"{self.expand(left, [n], among)} {sign} {right}")
        return self.short("inside", found, " & ", wrap=True, head="mask=") if found else None

    def axes_of(self, a: Address) -> list[int]:
        return sorted(self.position[v] for e in a.index for v in e.names if v in self.position)

    def fetched(self, a: Address, into: str | None = None) -> str:
        """A tile of global memory in a variable (of the buffer `into`); elements outside the bounds are zero.

        What the kernel only reads is not loaded again while the variable of an earlier load holds it.
        """
        k, b = self.k, self.program.buffer[a.buffer]
        if a.buffer in k.stored:
            k.put("tl.debug_barrier()  # what other warps stored is read")
            k.stored.clear()
            k.fetched.clear()
        k.fetched.add(a.buffer)
        among = self.axes_of(a)
        arguments = [self.pointer(a, among)]
        mask = self.mask(among)
        if mask is not None:
            zero = "0" if DTYPES[b.dtype].kind == "int" or (k.bits and b.dtype in F8) else "0.0"
            arguments += [f"mask={mask}", f"other={zero}"]
        held = next((b.loads[tuple(arguments)] for b in k.blocks if tuple(arguments) in b.loads), None)
        if held is not None and into is None:
            return held
        name = (
            k.fresh(f"{k.names[a.buffer]}_tile") if into is None else k.values[into].name if into in k.values else k.names[into]
        )
        if held is not None:
            k.put(f"{name} = {held}")
            return name
        k.line(*call(f"{name} = tl.load(", arguments, ")", k.block.depth))
        if a.buffer not in k.both and (into is None or into in k.once):
            k.block.loads[tuple(arguments)] = name
        return name

    def element(self, a: Address) -> Number:
        """A read as stored, with the dimensions of the operation's axes that it has, in their order."""
        if a in self.reads:
            return self.reads[a]
        mine = self.axes_of(a)
        b = self.program.buffer[a.buffer]
        if b.memory == "global":
            text = self.fetched(a)
            if any(loop.var in self.k.stages for loop in self.k.loops):
                self.k.fed.append((tuple(self.axes[n].extent for n in mine), b.dtype))
        else:
            text = self.held(a).name
            order = [
                n
                for e in a.index
                for n in [next((self.position[v] for v in e.names if v in self.position), None)]
                if n is not None
            ]
            if order != mine:
                where = [order.index(n) for n in mine]
                text = f"tl.trans({text})" if len(mine) == 2 else f"tl.permute({text}, {where})"
        found = self.reads[a] = Number(self.expand(text, mine, range(self.rank)), frozenset(mine))
        return found

    def held(self, a: Address) -> Value:
        if a.buffer not in self.k.values:
            raise self.k.refused(f"'{a.buffer}' is read before it was written as a whole tile")
        return self.k.values[a.buffer]

    # values ------------------------------------------------------------------------------------------------------

    def read(self, r: Read) -> Number:
        """A read in its arithmetic type; an inlined statement is rounded as its store would be."""
        if isinstance(r, Address):
            return self.evaluator.loaded(self.element(r), self.program.buffer[r.buffer].dtype)
        s = self.program.statement[r.statement]
        dtype = self.program.source.buffer[s.target.buffer].dtype
        value = self.stored_value(s, r.instance, r.reads, dtype)
        arithmetic = self.evaluator.loaded(value, dtype)
        name = self.k.fresh(s.target.buffer)
        self.assign(name, arithmetic.text)
        return Number(name, arithmetic.axes)

    def computed(self, s: Statement, instance: tuple[Aff, ...], reads: tuple[Read, ...], want: str | None = None) -> Number:
        env = dict(zip(s.loops, instance, strict=True))
        outer = self.evaluator
        loads: dict[int, Number] = {}

        def load(n: int) -> Number:
            if n not in loads:
                loads[n] = self.read(reads[n])
            return loads[n]

        self.evaluator = Evaluator(load, lambda e: self.index(e.subs(env)), self.scalar, self.keep, self.k.used, self.k.bits)
        out = self.evaluator.value(s.value, want or s.value.dtype)
        self.evaluator = outer
        return out

    def stored_value(self, s: Statement, instance: tuple[Aff, ...], reads: tuple[Read, ...], dtype: str) -> Number:
        direct = dtype in ("f32", "f64", "i32") and s.value.dtype == "i32" and _is_constant(s.value)
        if direct:
            return self.computed(s, instance, reads, dtype)
        return self.evaluator.stored(self.computed(s, instance, reads), s.value.dtype, dtype)

    # the operation -----------------------------------------------------------------------------------------------

    def emit(self) -> None:
        action = self.op.action
        target = target_of(action)
        lone = [a.loop.var for a in self.axes[: len(self.op.axes)] if not any(a.loop.var in e.names for e in target.index)]
        if lone:
            raise self.k.refused(f"every iteration of '{lone[0]}' writes the same elements of '{target.buffer}'")
        match action:
            case Copy(src=src):
                self.copy(target, src)
            case Identity(op=op):
                dtype = self.program.buffer[target.buffer].dtype
                arithmetic = DTYPES[dtype].arithmetic
                self.write(target, self.evaluator.stored(Number(identity_text(op, arithmetic)), arithmetic, dtype))
            case Merge(src=src, op=op):
                dtype = self.program.buffer[target.buffer].dtype
                arithmetic = DTYPES[dtype].arithmetic
                old, new = self.read(target), self.read(src)
                self.write(target, self.evaluator.stored(self.combined(op, old, new, arithmetic), arithmetic, dtype))
            case Leaf():
                self.leaf(action)

    def copy(self, target: Address, src: Address) -> None:
        k = self.k
        if self.program.buffer[target.buffer].memory == "global":
            self.write(target, self.element(src))
            return
        if self.program.buffer[src.buffer].memory == "global" and self.axes_of(src) == self.order_of(src):
            name = self.fetched(src, target.buffer)
            bounds = tuple(self.bounds_of(target))
            k.values[target.buffer] = Value(name, self.extents_of(target), bounds, bounds)
            k.copied.add(target.buffer)
            return
        self.write(target, self.element(src))

    def order_of(self, a: Address) -> list[int]:
        return [self.position[v] for e in a.index for v in e.names if v in self.position]

    def leaf(self, leaf: Leaf) -> None:
        s = self.program.statement[leaf.statement]
        dtype = self.program.buffer[leaf.target.buffer].dtype
        if self.op.reduced:
            self.summed(s, leaf)
        elif s.op == "=":
            self.write(leaf.target, self.stored_value(s, leaf.instance, leaf.reads, dtype))
        else:
            arithmetic = promote(DTYPES[dtype].arithmetic, s.value.dtype)
            new = self.computed(s, leaf.instance, leaf.reads, arithmetic)
            old = self.read(leaf.target)
            combined = self.combined(s.op, old, new, arithmetic)
            self.write(leaf.target, self.evaluator.stored(combined, arithmetic, dtype))

    def summed(self, s: Statement, leaf: Leaf) -> None:
        """An update along reduced axes: see triton_sums.py."""
        raise InternalError(f"{leaf.statement} sums, and this operation does not")

    def combined(self, op: str, a: Number, b: Number, arithmetic: str) -> Number:
        if op in _SIGN:
            return self.evaluator.infix(a, _SIGN[op], b, 5 if op == "+=" else 6)
        if arithmetic == "i32":
            return self.evaluator.made(f"tl.{OVER[op]}", (a, b))
        return self.evaluator.call(OVER[op], a, b)

    # targets -----------------------------------------------------------------------------------------------------

    def variable(self, a: Address) -> str:
        """The variable of a tile; the first write makes it."""
        if a.buffer in self.k.values:
            return self.k.values[a.buffer].name
        return self.k.names[a.buffer]

    def extents_of(self, a: Address) -> tuple[Extent, ...]:
        return tuple(self.k.extent(e) for e in self.program.buffer[a.buffer].shape)

    def bounds_of(self, a: Address) -> list[frozenset[Aff]]:
        out = []
        for e in a.index:
            axis = next((self.axes[self.position[v]] for v in e.names if v in self.position), None)
            out.append(self.k.bounds(axis) if axis is not None else frozenset())
        return out

    def note(self, a: Address, name: str) -> None:
        self.k.values[a.buffer] = Value(name, self.extents_of(a), tuple(self.bounds_of(a)))

    def write(self, a: Address, value: Number) -> None:
        """The value, in the storage type, into the target."""
        k, b = self.k, self.program.buffer[a.buffer]
        mine = list(range(self.rank))
        if b.memory == "global":
            if a.buffer in self.k.both and a.buffer in k.fetched:
                k.put("tl.debug_barrier()  # what other warps read is overwritten")
                k.fetched.clear()
                k.stored.clear()
            text = value.text
            if len(text) > 30:
                text = k.fresh(f"{k.names[a.buffer]}_tile")
                self.assign(text, value.text)
            k.outputs.append(Output(tuple(axis.extent for axis in self.axes), b.dtype))
            arguments = [self.pointer(a, mine), text]
            mask = self.mask(mine)
            k.line(*call("tl.store(", arguments if mask is None else [*arguments, f"mask={mask}"], ")", k.block.depth))
            if a.buffer in self.k.both:
                k.stored.add(a.buffer)
            return
        old = k.values.get(a.buffer)
        bounds = tuple(self.bounds_of(a))
        text = value.text
        extents = self.extents_of(a)
        shape = ", ".join(map(str, extents)) + ("," if len(extents) == 1 else "")
        if not value.axes and (extents or LITERAL.fullmatch(text)):
            text = f"tl.full(({shape}), {text}, {self.evaluator.storage(b.dtype)})"
        elif len(value.axes) < len(extents):
            text = f"tl.broadcast_to({text}, ({shape}))"
        name = self.variable(a)
        if old is not None and old.bounds != bounds and any(bounds):
            text = f"tl.where({self.mask(mine)}, {text}, {name})"
        self.assign(name, text)
        self.note(a, name)


def _is_constant(e: Expr) -> bool:
    return isinstance(e, Const | Index)
