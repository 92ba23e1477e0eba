"""The expressions of the Python front end: names, affine expressions and values, each error at its place."""

from __future__ import annotations

import ast
import difflib
import numbers
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from tilec.errors import LanguageError
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES, check_rule
from tilec.ir.functions import FUNCTIONS
from tilec.lang import values
from tilec.lang.affine import ALLOWED, Located, Reader
from tilec.lang.assembler import Assembler
from tilec.lang.types import Elementary, Size, Type
from tilec.lang.values import Value

BINARY: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
COMPARE: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!="}


class Expressions:
    """Reads the expressions of one function; knows what is declared so far and where errors stand."""

    def __init__(self, node: ast.FunctionDef, namespace: Mapping[str, object], file: str, line: int):
        self.node, self.namespace, self.file, self.line = node, namespace, file, line
        self.asm = Assembler(node.name)
        self.scalars: dict[str, Value] = {}
        self.affine = Reader(self._affine_name, self._affine_other)

    # places and names

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Errors raised inside get the place of `node`, unless they know a better one."""
        try:
            yield
        except LanguageError as e:
            if e.file is not None:
                raise
            where = e.node if isinstance(e, Located) and e.node is not None else node
            line, column = getattr(where, "lineno", 1), getattr(where, "col_offset", 0)
            raise LanguageError(str(e), self.file, self.line + line, column + 1) from None

    def fail(self, text: str, node: ast.AST) -> NoReturn:
        with self.at(node):
            raise LanguageError(text)
        raise AssertionError

    def object(self, node: ast.expr) -> object:
        """What a (dotted) name outside the kernel stands for; KeyError if nothing."""
        match node:
            case ast.Name(id=name):
                return self.namespace[name]
            case ast.Attribute(value=value, attr=attr):
                owner = self.object(value)
                if isinstance(owner, types.ModuleType) and hasattr(owner, attr):
                    return getattr(owner, attr)
        raise KeyError(ast.unparse(node))

    def is_local(self, name: str) -> bool:
        return name in self.asm.buffers or name in self.scalars or name in {v.var for v in self.asm.loops}

    def number(self, node: ast.expr) -> int | float | Size | None:
        """A size or a Python number defined outside the kernel."""
        try:
            found = self.object(node)
        except KeyError:
            return None
        if isinstance(found, Size):
            return found
        if isinstance(found, bool) or not isinstance(found, numbers.Real):
            return None
        return int(found) if isinstance(found, numbers.Integral) else float(found)

    def _size(self, size: Size) -> Aff:
        return self.asm.size(size.name, size.where, size.together)

    # affine expressions

    def _affine_name(self, node: ast.Name) -> Aff:
        name = node.id
        if name in {v.var for v in self.asm.loops}:
            return Aff.of(name)
        if name in self.scalars:
            raise Located(
                f"'{name}' is a scalar parameter, known only at run time; bounds, conditions and subscripts may use sizes.", node
            )
        if name in self.asm.buffers:
            raise self._element(node, f"'{name}' is a value in memory")
        found = self.number(node)
        if isinstance(found, Size):
            return self._size(found)
        if isinstance(found, int):
            return Aff(found)
        if isinstance(found, float):
            raise Located(f"'{name}' is the float {found}; bounds, conditions and subscripts are integers.\n  {ALLOWED}", node)
        raise Located(f"'{name}' is no loop variable around this place, no size and no integer constant.\n  {ALLOWED}", node)

    def _affine_other(self, node: ast.expr) -> Aff | None:
        if isinstance(node, ast.Subscript):
            raise self._element(node, f"'{ast.unparse(node)}' is a value in memory")
        found = self.number(node) if isinstance(node, ast.Attribute) else None
        if isinstance(found, Size):
            return self._size(found)
        return Aff(found) if isinstance(found, int) else None

    @staticmethod
    def _element(node: ast.AST, what: str) -> Located:
        return Located(
            f"{what}; bounds, conditions and subscripts depend on loop variables and sizes only. "
            "To choose by a value, write `x = a if c else b`.",
            node,
        )

    # values

    def value(self, node: ast.expr) -> Value:
        with self.at(node):
            return self._read_value(node)

    def _read_value(self, node: ast.expr) -> Value:
        match node:
            case ast.Constant(value=(int() | float()) as v) if not isinstance(v, bool):
                return values.lift(v)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as v)) if not isinstance(v, bool):
                return values.lift(-v)  # -2147483648 is an i32, 2147483648 is none
            case ast.Name():
                return self._name(node)
            case ast.Attribute():
                found = self.number(node)
                if found is not None:
                    return self._constant(found)
            case ast.Subscript(value=ast.Name(id=name)):
                if not self.is_local(name):
                    raise LanguageError(f"'{name}' is not declared. {self.asm.declared_text()}")
                if name not in self.asm.buffers:
                    raise LanguageError(f"'{name}' is a single value and takes no subscript.")
                return self.asm.read(name, self.index(node))
            case ast.Subscript(value=ast.Subscript()):
                raise LanguageError(f"'{ast.unparse(node)}': write all subscripts in one pair of brackets, A[i, j].")
            case ast.BinOp(left=a, op=op, right=b):
                if type(op) not in BINARY:
                    hint = " (write x * x)" if isinstance(op, ast.Pow) else ""
                    raise LanguageError(f"'{ast.unparse(node)}': operators are +, -, *, /, // and %{hint}.")
                x, y = self.value(a), self.value(b)
                return values.binary(BINARY[type(op)], x, y)
            case ast.UnaryOp(op=ast.USub(), operand=x):
                return values.negative(self.value(x))
            case ast.UnaryOp(op=ast.UAdd(), operand=x):
                return self.value(x)
            case ast.UnaryOp(op=ast.Not(), operand=x):
                return values.logical("not", self.value(x))
            case ast.BoolOp(op=op, values=parts):
                return values.logical("and" if isinstance(op, ast.And) else "or", *[self.value(p) for p in parts])
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                if any(type(op) not in COMPARE for op in ops):
                    raise LanguageError(f"'{ast.unparse(node)}': comparisons are <, <=, >, >=, == and !=.")
                sides = [self.value(x) for x in (left, *comparators)]
                pairs = [values.compare(COMPARE[type(op)], sides[n], sides[n + 1]) for n, op in enumerate(ops)]
                return pairs[0] if len(pairs) == 1 else values.logical("and", *pairs)
            case ast.IfExp(test=test, body=a, orelse=b):
                return values.select(self.value(test), self.value(a), self.value(b))
            case ast.Call():
                return self._call(node)
        raise LanguageError(
            f"{_quoted(node)} is no value of the language: numbers, elements, loop variables, sizes, "
            "+ - * / // %, comparisons, `a if c else b` and functions."
        )

    def _name(self, node: ast.Name) -> Value:
        name = node.id
        if name in {v.var for v in self.asm.loops}:
            return values.lift(Aff.of(name))
        if name in self.scalars:
            return self.scalars[name]
        if name in self.asm.buffers:
            self.asm.check_visible(name)
            if self.asm.rank(name):
                raise LanguageError(self.needs_subscripts(name))
            return self.asm.read(name)
        found = self.number(node)
        if found is None:
            raise LanguageError(f"'{name}' is not declared. {self.asm.declared_text()}")
        return self._constant(found)

    def _constant(self, found: int | float | Size) -> Value:
        return values.lift(self._size(found)) if isinstance(found, Size) else values.lift(found)

    def _call(self, node: ast.Call) -> Value:
        text = ast.unparse(node.func)
        try:
            f = self.object(node.func)
        except KeyError:
            f = Elementary(text) if text in FUNCTIONS or text == "sqrt" else None
        if f is not abs and f is not min and f is not max and not isinstance(f, Type | Elementary):
            instead = {"float": " Write f32(x).", "int": " Write i32(x), which rounds to nearest."}.get(text, "")
            near = difflib.get_close_matches(text.rpartition(".")[2], ["abs", "min", "max", "sqrt", *FUNCTIONS, *DTYPES], 1)
            instead = instead or (f" Did you mean {near[0]}?" if near else "")
            raise LanguageError(f"'{text}' is no function of the language.{instead}\n  {values.functions_text()}")
        if node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
            raise LanguageError(f"'{ast.unparse(node)}': functions take plain arguments.")
        if isinstance(f, Type):
            return self._cast(node, f)
        args = [self.value(a) for a in node.args]
        if f is min or f is max:
            if len(args) < 2:
                raise LanguageError(f"'{ast.unparse(node)}': {text} takes two or more values.")
            return (values.minimum if f is min else values.maximum)(*args)
        if len(args) != 1:
            raise LanguageError(f"'{ast.unparse(node)}': {text} takes one value.")
        return values.call(f, args[0]) if isinstance(f, Elementary) else values.absolute(args[0])

    def _cast(self, node: ast.Call, f: Type) -> Value:
        match node.args:
            case [x]:
                return values.cast(f.name, self.value(x))
            case [x, ast.Constant(value=str() as rule)]:
                check_rule(f.name, rule)
                return values.cast(f.name, self.value(x), rule)
        raise LanguageError(f"'{ast.unparse(node)}': a cast is {f.name}(x) or {f.name}(x, \"rule\").")

    def needs_subscripts(self, name: str) -> str:
        b = self.asm.buffers[name]
        shape = ", ".join(map(str, b.shape[b.private :]))
        return f"'{name}' is an array of shape [{shape}]; name one element, {name}[…]."

    def index(self, node: ast.Subscript) -> list[Aff]:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        out: list[Aff] = []
        for part in parts:
            if isinstance(part, ast.Slice):
                self.fail("slices are not in the language; write a loop over the elements.", part)
            with self.at(part):
                out.append(self.affine.aff(part))
        return out


def _quoted(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if text[:1] in "'\"" else f"'{text}'"
