"""`@kernel`: a Python function of plain loops as an original Program."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType

from tilec.errors import LanguageError
from tilec.ir.program import Program
from tilec.lang.python import read_function


@dataclass(frozen=True)
class Definition:
    """A kernel as written: its original program, parameters in call order, and where it stands.

    source: the text of the function, None for kernels made by the builder. file, line: where the text begins.
    """

    name: str
    program: Program
    parameters: tuple[str, ...]
    source: str | None = None
    file: str | None = None
    line: int | None = None
    doc: str | None = None


def kernel(function: Callable[..., object]) -> Definition:
    """Decorator: read `function`'s source as a kernel. Raises LanguageError at file, line and column.

    Names that the function does not declare (sizes, dtypes, functions, numbers) are looked up where it is defined, now.
    """
    return define(function, sys._getframe(1).f_locals)


def define(function: Callable[..., object], scope: Mapping[str, object] | None = None) -> Definition:
    """What `kernel` does, with the local names of the place of definition given as `scope`."""
    if not isinstance(function, FunctionType):
        raise LanguageError(f"kernel: expected a function, got {type(function).__name__}.")
    name = function.__name__
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise LanguageError(
            f"kernel '{name}': its source text is not available (defined through exec or at a prompt?).\n"
            "  Put it into a file, give the text to tilec.lang.from_source, or use tilec.lang.builder."
        ) from None
    cells = function.__closure__ or ()
    closure = {n: c.cell_contents for n, c in zip(function.__code__.co_freevars, cells, strict=True) if not _is_empty(c)}
    namespace = ChainMap(closure, dict(scope or {}), function.__globals__, dict(vars(builtins)))
    text = "".join(lines)
    indented = text[:1].isspace()
    # an indented definition is parsed inside a block, so that the columns stay those of the file
    try:
        tree = ast.parse("if 1:\n" + text if indented else text)
    except SyntaxError:
        raise LanguageError(f"kernel '{name}': expected a `def`, with @kernel in the line above.") from None
    return _definition(tree, name, namespace, inspect.getsourcefile(function) or "<unknown>", first - 1 - indented, text)


def from_source(text: str, namespace: Mapping[str, object], name: str | None = None, file: str = "<text>") -> Definition:
    """The kernel `name` (default: the only function) of the Python text; `namespace` resolves sizes, dtypes and constants."""
    try:
        tree = ast.parse(text)
    except SyntaxError as e:
        raise LanguageError(f"this is no Python: {e.msg}", file, e.lineno, e.offset) from None
    found = [n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    if len(found) != 1 if name is None else name not in found:
        wanted = f"no function '{name}'" if name is not None else "expected one function, or its name"
        raise LanguageError(f"{file}: {wanted}. Functions here: {', '.join(found) or 'none'}.")
    return _definition(tree, name or found[0], ChainMap(dict(namespace), dict(vars(builtins))), file, 0, text)


def _definition(tree: ast.Module, name: str, namespace: Mapping[str, object], file: str, line: int, text: str) -> Definition:
    nodes = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == name]
    if not nodes:
        raise LanguageError(f"kernel '{name}': expected a `def`, with @kernel in the line above.")
    node = nodes[0]
    program, parameters = read_function(node, namespace, file, line)
    return Definition(name, program, tuple(parameters), text, file, line + node.lineno, ast.get_docstring(node))


def _is_empty(cell: object) -> bool:
    try:
        cell.cell_contents  # type: ignore[attr-defined]  # noqa: B018
    except ValueError:
        return True
    return False
