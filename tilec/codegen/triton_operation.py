"""One tile operation as lines of Triton: loads with masks, values, matrix products, reductions, stores."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilec.codegen.triton_state import Dot, Extent, State, Value
from tilec.codegen.triton_text import INDENT, call, fits, joined
from tilec.codegen.triton_value import F8, LONG, Evaluator, Number, identity_text
from tilec.ir import tree
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES, promote
from tilec.ir.expr import Const, Expr, Index
from tilec.ir.program import Address, Copy, Identity, Leaf, Merge, Read, Statement
from tilec.lower.instructions import Tile, matmul_factors
from tilec.lower.nests import target_of

LITERAL = re.compile(r"-?[\d.e+-]+|float\(.*\)")
_SIGN = {"+=": "+", "*=": "*"}
_OVER = {"max=": "maximum", "min=": "minimum", "*=": "product"}


class Operation:
    """One tile operation as lines."""

    def __init__(self, kernel: State, op: Tile, whole: bool = True):
        self.k, self.op, self.program = kernel, op, kernel.program
        self.axes = kernel.axes(op, whole)
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
                k.used.add("at")
                parts.append(f"_at({self.expand(vector, [axis], among)}, {stride})")
            elif e.is_const:
                parts += [] if e.const == 0 else [stride if e.const == 1 else f"{e.const} * {stride}"]
            else:
                k.used.add("at")
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

    def fetched(self, a: Address, name: str) -> str:
        """A tile of global memory in a variable; elements outside the bounds are zero."""
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
        k.line(*call(f"{name} = tl.load(", arguments, ")", k.block.depth))
        return name

    def element(self, a: Address) -> Number:
        """A read as stored, with the dimensions of the operation's axes that it has, in their order."""
        if a in self.reads:
            return self.reads[a]
        mine = self.axes_of(a)
        b = self.program.buffer[a.buffer]
        if b.memory == "global":
            text = self.fetched(a, self.k.fresh(f"{self.k.names[a.buffer]}_tile"))
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
            name = self.variable(target)
            self.fetched(src, name)
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
        if self.op.kind == "matmul":
            self.matmul(s, leaf)
        elif self.op.reduced:
            self.reduce(s, leaf)
        elif s.op == "=":
            self.write(leaf.target, self.stored_value(s, leaf.instance, leaf.reads, dtype))
        else:
            arithmetic = promote(DTYPES[dtype].arithmetic, s.value.dtype)
            new = self.computed(s, leaf.instance, leaf.reads, arithmetic)
            old = self.read(leaf.target)
            combined = self.combined(s.op, old, new, arithmetic)
            self.write(leaf.target, self.evaluator.stored(combined, arithmetic, dtype))

    def combined(self, op: str, a: Number, b: Number, arithmetic: str) -> Number:
        if op in _SIGN:
            return self.evaluator.infix(a, _SIGN[op], b, 5 if op == "+=" else 6)
        if arithmetic == "i32":
            return self.evaluator.made(f"tl.{_OVER[op]}", (a, b))
        return self.evaluator.call(_OVER[op], a, b)

    def permitted(self, s: Statement, what: str) -> None:
        name = s.target.buffer
        if DTYPES[self.program.source.buffer[name].dtype].kind == "int" or name in self.program.reassociate:
            return
        raise self.k.refused(
            f"'{name}' is a float sum, and {what} promises no order inside a tile; allow it: "
            f'schedule(reassociate="{name}"). Nothing nearer keeps the written order'
        )

    def matmul(self, s: Statement, leaf: Leaf) -> None:
        k, program = self.k, self.program
        self.permitted(s, "tl.dot")
        x, y = matmul_factors(program, self.op)
        dtypes = [program.buffer[a.buffer].dtype for a in (x, y)]
        if dtypes[0] != dtypes[1] or dtypes[0] in ("f64", "i32"):
            raise k.refused(f"tl.dot multiplies two tiles of one type of at most 4 bytes, not {dtypes[0]} by {dtypes[1]}")
        dtype = dtypes[0]
        if dtype == "f32" and not program.contract:
            raise k.refused("tl.dot of f32 does not round the products; allow it: schedule(contract=True)")
        least = (16, 16, 32 if DTYPES[dtype].bytes == 1 else 16)
        for axis, n in zip((self.axes[0], self.axes[1], self.axes[2]), least, strict=True):
            if isinstance(axis.extent, int) and axis.extent < n:
                raise k.refused(
                    f"a tile of {axis.extent} along '{axis.loop.var}'; tl.dot of {dtype} needs at least {n}: split by {n}"
                )
        left, right = self.factor(x, 0, 2), self.factor(y, 2, 1)
        if k.bits and dtype in F8:
            k.used.add(f"of_{dtype}")
            left, right = (f"_of_{dtype}({t}).to(tl.float16)" for t in (left, right))
        old = self.stored_tile(leaf.target)
        out = program.buffer[leaf.target.buffer].dtype
        arguments = [left, right, old]
        if dtype == "f32":
            arguments.append('input_precision="ieee"')
        if dtype in F8 and not k.bits:
            arguments.append("max_num_imprecise_acc=32")
        if dtype == "i8":
            arguments.append("out_dtype=tl.int32")
        extents = " × ".join(str(a.extent) for a in self.axes)
        k.products.append(self.product(x, y))
        k.dots.append(f"{s.target.buffer} in tiles of {extents} ({dtype}, summed in {out})")
        if program.buffer[leaf.target.buffer].memory == "global":
            name = k.fresh(f"{k.names[leaf.target.buffer]}_new")
            k.line(*call(f"{name} = tl.dot(", arguments, ")", k.block.depth))
            self.write(leaf.target, Number(name, frozenset({0, 1})))
            return
        name = self.variable(leaf.target)
        k.line(*call(f"{name} = tl.dot(", arguments, ")", k.block.depth))
        self.note(leaf.target, name)

    def product(self, x: Address, y: Address) -> Dot:
        """The figures of a product; extents that only the launch tells count as 0."""
        k = self.k
        m, n, d = (a.extent if isinstance(a.extent, int) else 0 for a in self.axes)
        stages = next((k.stages[loop.var] for loop in reversed(k.loops) if loop.var in k.stages), 1)

        def operand(a: Address) -> tuple[str, str, bool]:
            b = self.program.buffer[a.buffer]
            return a.buffer, b.dtype, b.memory == "global" or a.buffer in k.copied

        return Dot(m, n, d, operand(x), operand(y), stages)

    def stored_tile(self, a: Address) -> str:
        """The tile itself, as a variable."""
        if self.program.buffer[a.buffer].memory == "global":
            return self.fetched(a, self.k.fresh(f"{self.k.names[a.buffer]}_tile"))
        return self.held(a).name

    def factor(self, a: Address, first: int, second: int) -> str:
        """An operand as a matrix of those two axes, zero outside the bounds of the summed axis."""
        k = self.k
        order = self.order_of(a)
        summed = self.axes[2]
        bounds = k.bounds(summed)
        if self.program.buffer[a.buffer].memory == "global":
            among = self.axes_of(a)
            text, zero, order = self.fetched(a, k.fresh(f"{k.names[a.buffer]}_tile")), bounds, among
        else:
            value = self.held(a)
            text = value.name
            d = next(d for d, e in enumerate(a.index) if summed.loop.var in e.names)
            zero = value.zero[d] if value.zero else frozenset()
        if order != [first, second]:
            text = f"tl.trans({text})"
        if not bounds <= zero:
            test = " & ".join(
                f"({self.expand(t.split(' ')[0], [2], [first, second])} {t.split(' ', 1)[1]})"
                for t in k.conditions(summed, self.bases[summed.loop.var])
            )
            zero_text = "0" if DTYPES[self.program.buffer[a.buffer].dtype].kind == "int" or k.bits else "0.0"
            name = k.fresh(f"{text.strip(')').split('(')[-1]}_inside")
            k.line(
                *call(f"{name} = tl.where(", [test.strip("()") if "&" not in test else test, text, zero_text], ")", k.block.depth)
            )
            text = name
        return text

    def reduce(self, s: Statement, leaf: Leaf) -> None:
        k, program = self.k, self.program
        dtype = program.buffer[leaf.target.buffer].dtype
        arithmetic = promote(DTYPES[dtype].arithmetic, s.value.dtype)
        if s.op in ("+=", "*="):
            self.permitted(s, "tl.sum" if s.op == "+=" else "tl.reduce")
            k.sums.append(f"{s.target.buffer} in pieces of {' × '.join(str(a.extent) for a in self.axes[len(self.op.axes) :])}")
        term = self.computed(s, leaf.instance, leaf.reads, arithmetic)
        summed = range(len(self.op.axes), self.rank)
        missing = [n for n in range(self.rank) if n not in term.axes]
        text = term.text
        if missing:
            shape = ", ".join(str(a.extent) for a in self.axes)
            text = f"tl.broadcast_to({text}, ({shape}{',' if self.rank == 1 else ''}))"
        tests = []
        for n in summed:
            for t in k.conditions(self.axes[n], self.bases[self.axes[n].loop.var]):
                left, sign, right = re.split(r" (<|>=) ", t, maxsplit=1)
                tests.append(f"{self.expand(left, [n], range(self.rank))} {sign} {right}")
        if tests:
            test = tests[0] if len(tests) == 1 else " & ".join(f"({t})" for t in tests)
            name = k.fresh("term")
            k.line(*call(f"{name} = tl.where(", [test, text, identity_text(s.op, arithmetic)], ")", k.block.depth))
            text = name
        for n in reversed(summed):
            if s.op == "+=":
                text = f"tl.sum({text}, axis={n})"
            else:
                k.used.add(_OVER[s.op])
                text = f"tl.reduce({text}, {n}, _{_OVER[s.op]})"
        self.reads.clear()
        done = Operation(k, Tile("map", self.op.axes, (), leaf), whole=False)  # the update behind it, along the target's axes
        done.bases = self.bases
        old = done.read(leaf.target)
        new = Number(done.keep(text), frozenset(range(len(self.op.axes))))
        done.write(leaf.target, done.evaluator.stored(done.combined(s.op, old, new, arithmetic), arithmetic, dtype))

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
            k.outputs.append((tuple(axis.extent for axis in self.axes), b.dtype))
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
