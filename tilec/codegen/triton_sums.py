"""Products and reductions of tiles as lines of Triton; what needs the permission to add in another order."""

from __future__ import annotations

import re

from tilec.codegen.triton_operation import OVER, Operation
from tilec.codegen.triton_state import Dot
from tilec.codegen.triton_text import call
from tilec.codegen.triton_value import F8, Number, identity_text
from tilec.ir.dtypes import DTYPES, promote
from tilec.ir.program import Address, Leaf, Statement
from tilec.lower.instructions import Tile, matmul_factors


class Sum(Operation):
    """Any operation; those along reduced axes are done here."""

    def summed(self, s: Statement, leaf: Leaf) -> None:
        """tl.dot where it is a product of matrices, tl.sum or tl.reduce otherwise."""
        if self.op.kind == "matmul":
            self.matmul(s, leaf)
        else:
            self.reduce(s, leaf)

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
            k.used[f"of_{dtype}"] += 1
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
        k.summed.add(leaf.target.buffer)
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
            return self.fetched(a)
        return self.held(a).name

    def factor(self, a: Address, first: int, second: int) -> str:
        """An operand as a matrix of those two axes, zero outside the bounds of the summed axis."""
        k = self.k
        order = self.order_of(a)
        summed = self.axes[2]
        bounds = k.bounds(summed)
        if self.program.buffer[a.buffer].memory == "global":
            among = self.axes_of(a)
            text, zero, order = self.fetched(a), bounds, among
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
                k.used[OVER[s.op]] += 1
                text = f"tl.reduce({text}, {n}, _{OVER[s.op]})"
        k.used["reduction"] += 1
        self.reads.clear()
        done = Operation(k, Tile("map", self.op.axes, (), leaf), whole=False)  # the update behind it, along the target's axes
        done.bases = self.bases
        old = done.read(leaf.target)
        new = Number(done.keep(text), frozenset(range(len(self.op.axes))))
        done.write(leaf.target, done.evaluator.stored(done.combined(s.op, old, new, arithmetic), arithmetic, dtype))
