"""The Python front end: the syntax tree of one function, read statement by statement into an Assembler."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from tilec.errors import LanguageError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import Program
from tilec.lang.affine import Located, negate
from tilec.lang.expressions import BINARY, Expressions
from tilec.lang.types import Size, Type

STATEMENTS = (
    "A kernel consists of declarations (C: bf16[M, N], acc: f32 = 0), for loops over range, if, "
    "and assignments =, +=, -=, *= to one element."
)
UPDATE: dict[type[ast.operator], str] = {ast.Add: "+=", ast.Sub: "-=", ast.Mult: "*="}


def read_function(node: ast.FunctionDef, namespace: Mapping[str, object], file: str, line: int = 0) -> tuple[Program, list[str]]:
    """The original program of `node` and its parameters in order; `line` is added to the tree's line numbers.

    namespace resolves the names that the function does not define: sizes, dtypes, functions, constants.
    """
    reader = _Function(node, namespace, file, line)
    return reader.program(), reader.asm.parameters


class _Function(Expressions):
    # declarations

    def _annotation(self, node: ast.expr) -> tuple[str, list[Aff]]:
        """dtype and shape of `bf16[M, K]` or `f32`."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            node = self._quoted_annotation(node, node.value)
        base = node.value if isinstance(node, ast.Subscript) else node
        try:
            found = self.object(base)
        except KeyError:
            found = None
        if not isinstance(found, Type):
            self.fail(f"'{ast.unparse(node)}' is no type; write a dtype with a shape, bf16[M, K], or a scalar, f32.", node)
        if not isinstance(node, ast.Subscript):
            return found.name, []
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        shape: list[Aff] = []
        for part in parts:
            with self.at(part):
                e = self.affine.aff(part)
                used = e.names & {v.var for v in self.asm.loops}
                if used:
                    raise LanguageError(f"the extent '{e}' depends on loop variable '{min(used)}'; extents are made of sizes.")
                if e.is_const and e.const < 1:
                    raise LanguageError(f"the extent {e} is not positive.")
                shape.append(e)
        return found.name, shape

    def _quoted_annotation(self, node: ast.expr, text: str) -> ast.expr:
        try:
            inner = ast.parse(text, mode="eval").body
        except SyntaxError:
            self.fail(f"{text!r} is no type; write a dtype with a shape, bf16[M, K], or a scalar, f32.", node)
        for n in ast.walk(inner):
            ast.copy_location(n, node)
        return inner

    def program(self) -> Program:
        node = self.node
        a = node.args
        if a.posonlyargs or a.kwonlyargs or a.vararg or a.kwarg or a.defaults:
            self.fail(f"kernel '{node.name}': parameters are plain `name: dtype[shape]`, without *, ** and defaults.", node)
        for arg in a.args:
            if arg.annotation is None:
                self.fail(f"parameter '{arg.arg}' has no type; write {arg.arg}: bf16[M, K], or {arg.arg}: f32 for a scalar.", arg)
            dtype, shape = self._annotation(arg.annotation)
            with self.at(arg):
                if shape:
                    self.asm.parameter(arg.arg, dtype, shape)
                else:
                    self.scalars[arg.arg] = self.asm.scalar(arg.arg, dtype)
        body = node.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and isinstance(body[0].value.value, str):
            body = body[1:]
        self._body(body)
        with self.at(node):
            return self.asm.program()

    # statements

    def _body(self, body: Sequence[ast.stmt]) -> None:
        for stmt in body:
            self._statement(stmt)

    def _statement(self, stmt: ast.stmt) -> None:
        match stmt:
            case ast.Pass():
                pass
            case ast.AnnAssign():
                self._declaration(stmt)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, "=", value, stmt)
            case ast.Assign():
                self.fail("a statement writes one element; write one assignment for each.", stmt)
            case ast.AugAssign(target=target, op=op, value=value):
                if type(op) not in UPDATE:
                    text = ast.unparse(target)
                    sign = BINARY.get(type(op), "op")
                    hint = f"write {text} = {text} {sign} …" if type(op) in BINARY else "assignments are =, +=, -=, *="
                    self.fail(f"'{ast.unparse(stmt)}' is no update of the language; {hint}.", stmt)
                self._assign(target, UPDATE[type(op)], value, stmt)
            case ast.For():
                self._for(stmt)
            case ast.If():
                self._if(stmt)
            case ast.While():
                self.fail(
                    "`while` is not in the language: the number of iterations must follow from the sizes; write for … range.",
                    stmt,
                )
            case ast.Return():
                self.fail("`return` is not in the language: a kernel writes its results into parameters.", stmt)
            case _:
                what = f"'{ast.unparse(stmt).splitlines()[0]}'" + (" alone" if isinstance(stmt, ast.Expr) else "")
                self.fail(f"{what} is no statement of the language.\n  {STATEMENTS}", stmt)

    def _declaration(self, stmt: ast.AnnAssign) -> None:
        if not isinstance(stmt.target, ast.Name):
            self.fail("a declaration names one variable: acc: f32 = 0, or C: bf16[M, N].", stmt)
        name = stmt.target.id
        dtype, shape = self._annotation(stmt.annotation)
        if shape and stmt.value is not None:
            self.fail(f"the array '{name}' cannot be given a value where it is declared; fill it in a loop.", stmt)
        value = self.value(stmt.value) if stmt.value is not None else None
        with self.at(stmt):
            self.asm.temporary(name, dtype, shape, self.line + stmt.lineno)
            if value is not None:
                self.asm.store(name, [], "=", value, self.line + stmt.lineno)

    def _assign(self, target: ast.expr, op: str, value: ast.expr, stmt: ast.stmt) -> None:
        match target:
            case ast.Name(id=name):
                index: list[Aff] = []
            case ast.Subscript(value=ast.Name(id=name)):
                index = self.index(target)
            case ast.Tuple() | ast.List():
                self.fail("a statement writes one element; write one assignment for each.", target)
            case _:
                self.fail(f"'{ast.unparse(target)}' cannot be assigned; the target is a scalar or an element, C[i, j].", target)
        if not self.is_local(name):
            number = self.number(ast.Name(name))
            what = (
                f"'{name}' is a {'size' if isinstance(number, Size) else 'constant'} and cannot be assigned."
                if number is not None
                else ""
            )
            declare = f"'{name}' is not declared; declare it first, as in {name}: f32 = 0. {self.asm.declared_text()}"
            self.fail(what or declare, target)
        with self.at(target):
            if name in self.asm.buffers and not index and self.asm.rank(name):
                raise LanguageError(self.needs_subscripts(name))
        v = self.value(value)
        with self.at(stmt):
            self.asm.store(name, index, op, v, self.line + stmt.lineno)

    def _for(self, stmt: ast.For) -> None:
        if not isinstance(stmt.target, ast.Name):
            self.fail(f"'{ast.unparse(stmt.target)}': a loop has one variable.", stmt.target)
        if stmt.orelse:
            self.fail("`else` of a loop is not in the language.", stmt.orelse[0])
        call = stmt.iter
        is_range = (
            isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range" and not call.keywords
        )
        if not (is_range and isinstance(call, ast.Call)):
            self.fail(f"'{ast.unparse(call)}': a loop runs over range(n) or range(lo, hi).", call)
        if len(call.args) == 3:
            self.fail(
                "range with a step is not in the language; run over the count and multiply: for q in range(n): … 2*q …", call
            )
        if len(call.args) not in (1, 2):
            self.fail(f"'{ast.unparse(call)}': a loop runs over range(n) or range(lo, hi).", call)
        with self.at(call):
            lower = self.affine.bounds(call.args[0], "max") if len(call.args) == 2 else [Aff(0)]
            upper = self.affine.bounds(call.args[-1], "min")
        with self.at(stmt.target), self.asm.loop(stmt.target.id, lower, upper):
            self._body(stmt.body)

    def _if(self, stmt: ast.If) -> None:
        with self.at(stmt.test):
            conditions = self._condition(stmt.test)
        with self.asm.guard(conditions):
            self._body(stmt.body)
        if not stmt.orelse:
            return
        negated = negate(conditions[0], self.asm.ranges()) if len(conditions) == 1 else None
        if negated is None:
            self.fail(
                f"`else` of '{ast.unparse(stmt.test)}': the opposite is no single conjunction; "
                "write the other cases as ifs of their own, with conditions that exclude each other.",
                stmt.orelse[0],
            )
        with self.asm.guard([negated]):
            self._body(stmt.orelse)

    def _condition(self, test: ast.expr) -> list[Constraint]:
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._condition(test.operand)
            negated = negate(inner[0], self.asm.ranges()) if len(inner) == 1 else None
            if negated is None:
                raise Located(
                    f"'{ast.unparse(test)}': the opposite is no single conjunction; write the cases as ifs of their own.", test
                )
            return [negated]
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.NotEq):
            equal = ast.copy_location(ast.Compare(test.left, [ast.Eq()], test.comparators), test)
            negated = negate(self.affine.condition(equal)[0], self.asm.ranges())
            if negated is not None:
                return [negated]
        return self.affine.condition(test)
