"""The line of imports (say it, write it, prove it, shape it, lower it, price it, print it, run it, choose it, show it), enforced.

The rules are read off the source text: nothing is imported. `violations` is tested itself on small bad trees.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINE = (
    ("ir",),
    ("lang",),
    ("workloads",),
    ("poly",),
    ("schedule",),
    ("lower",),
    ("cost", "codegen"),
    ("runtime",),
    ("search",),
    ("report",),
    ("api",),
    ("cli",),
    ("__init__", "__main__"),
)
RANK = {name: n for n, names in enumerate(LINE) for name in names}
LEAVES = ("errors", "targets")
# Beyond the order: what a package must not know although it stands to its left, or is a leaf.
FORBIDDEN = {
    "cost": {"schedule": "cost reads the Program, never the Schedule"},
    "codegen": {"schedule": "codegen reads the Program, never the Schedule"},
    "lower": {"schedule": "lower reads the Program, never the Schedule"},
    "poly": {"targets": "legal and fitting are different questions", "workloads": "the proof knows no particular kernel"},
    "schedule": {"targets": "legal and fitting are different questions", "workloads": "a primitive knows no particular kernel"},
}
ONLY_IN = {
    "islpy": ("poly/isl.py",),
    "triton": ("runtime/",),
    "torch": ("runtime/",),
    "ctypes": ("runtime/",),
    "subprocess": ("runtime/",),
    "matplotlib": ("report/canvas.py",),
}
# Where a module is loaded by name: the lazy face and library, an extra, and what a person or a worker process names.
BY_NAME = ("__init__.py", "workloads/__init__.py", "report/canvas.py", "runtime/backends.py", "runtime/triton_")
LONG = 400


def room(path: Path, root: Path) -> str:
    """The package or file a module belongs to: `cost` for tilec/cost/x.py, `cli` for tilec/cli.py and tilec/cli_x.py."""
    parts = path.relative_to(root).parts
    name = parts[0].removesuffix(".py")
    return "cli" if name.startswith("cli_") else name


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str, bool]]:
    """(statement, imported module's dotted name, stands it inside a function), for every import in the file."""

    def walk(node: ast.AST, inside: bool) -> Iterator[tuple[ast.stmt, str, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield child, alias.name, inside
            elif isinstance(child, ast.ImportFrom):
                if child.module == "tilec" and not child.level:  # from tilec import ir: the names are the modules
                    for alias in child.names:
                        yield child, f"tilec.{alias.name}", inside
                else:
                    yield child, child.module or "", inside
            yield from walk(child, inside or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda))

    yield from walk(tree, False)


def violations(root: Path) -> list[str]:
    """Every breach of the rules below `root` (the package's folder), as `file:line: what`."""
    found: list[str] = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root).as_posix()
        me = room(path, root)
        tree = ast.parse(path.read_text(encoding="utf-8"))

        def note(node: ast.AST, text: str, relative: str = relative) -> None:
            found.append(f"{relative}:{getattr(node, 'lineno', 1)}: {text}")

        if me not in RANK and me not in LEAVES:
            note(tree, f"'{me}' has no place in the line of imports")
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Global):
                note(node, f"process-wide state: global {', '.join(node.names)}")
            if isinstance(node, ast.ImportFrom) and node.level:
                note(node, "relative import: write the module's full name")
            if isinstance(node, ast.ImportFrom) and any(a.name == "*" for a in node.names):
                note(node, f"star import of {node.module}")
            if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in ("import_module", "__import__"):
                if not relative.startswith(BY_NAME):
                    note(node, f"a module loaded by name: only in {', '.join(BY_NAME)}")
        for node, module, inside in imports(tree):
            if inside and relative != "__init__.py":
                note(node, f"import of {module} inside a function")
            top, *rest = module.split(".")
            for places in [ONLY_IN[top]] if top in ONLY_IN else []:
                if not any(relative == p or (p.endswith("/") and relative.startswith(p)) for p in places):
                    note(node, f"{top} is imported only in {', '.join(places)}")
            if top != "tilec":
                continue
            other = rest[0] if rest else "__init__"
            if other.startswith("cli_"):
                other = "cli"
            if other == me:
                continue
            if other in FORBIDDEN.get(me, {}):
                note(node, f"{me} imports {other}: {FORBIDDEN[me][other]}")
            elif other in LEAVES:
                if me in LEAVES and other == "targets":
                    note(node, f"the leaf {me} imports {other}")
            elif me in LEAVES:
                note(node, f"the leaf {me} imports {other}")
            elif other not in RANK and me != "__init__":  # from tilec import silu: a name of the lazy face
                note(node, f"'{other}' comes from the package's face: import it from its own module")
            elif me != "__init__" and RANK[other] >= RANK[me]:
                note(node, f"{me} imports {other}, which does not stand to its left")
    return found


def test_the_line_holds() -> None:
    assert violations(ROOT / "tilec") == []


def test_the_line_is_not_checked_on_nothing() -> None:
    rooms = {room(p, ROOT / "tilec") for p in (ROOT / "tilec").rglob("*.py")}
    assert {"ir", "lang", "poly", "schedule", "cost", "codegen", "search", "api", "cli", "errors", "targets"} <= rooms
    for row in LINE:
        for name in row:
            assert (ROOT / "tilec" / name).exists() or (ROOT / "tilec" / f"{name}.py").exists(), f"{name} does not exist"


BAD = [
    ("ir/x.py", "from tilec.poly import isl\n", "ir/x.py:1: ir imports poly, which does not stand to its left"),
    ("ir/x.py", "import tilec.lang.kernel\n", "ir/x.py:1: ir imports lang, which does not stand to its left"),
    ("ir/x.py", "from tilec import poly\n", "ir/x.py:1: ir imports poly, which does not stand to its left"),
    ("cost/x.py", "from tilec.codegen import tile\n", "cost/x.py:1: cost imports codegen, which does not stand to its left"),
    ("codegen/x.py", "import tilec.cost\n", "codegen/x.py:1: codegen imports cost, which does not stand to its left"),
    ("cost/x.py", "from tilec.schedule.schedule import Schedule\n", "cost/x.py:1: cost imports schedule: cost reads"),
    ("codegen/x.py", "from tilec.schedule import schedule\n", "codegen/x.py:1: codegen imports schedule: codegen reads"),
    ("poly/x.py", "from tilec.targets import load\n", "poly/x.py:1: poly imports targets: legal and fitting"),
    ("schedule/x.py", "from tilec.targets import load\n", "schedule/x.py:1: schedule imports targets: legal and fitting"),
    ("schedule/x.py", "from tilec.cost import price\n", "schedule/x.py:1: schedule imports cost, which does not stand"),
    ("poly/x.py", "from tilec.cost import price\n", "poly/x.py:1: poly imports cost, which does not stand"),
    ("schedule/x.py", "import islpy as isl\n", "schedule/x.py:1: islpy is imported only in poly/isl.py"),
    ("poly/x.py", "from islpy import Set\n", "poly/x.py:1: islpy is imported only in poly/isl.py"),
    ("codegen/x.py", "import triton.language\n", "codegen/x.py:1: triton is imported only in runtime/"),
    ("report/x.py", "import matplotlib\n", "report/x.py:1: matplotlib is imported only in report/canvas.py"),
    ("search/x.py", "import subprocess\n", "search/x.py:1: subprocess is imported only in runtime/"),
    (
        "ir/x.py",
        "import importlib\ndef f():\n    importlib.import_module('json')\n",
        "ir/x.py:3: a module loaded by name: only in __init__.py",
    ),
    ("ir/x.py", "def f():\n    import json\n", "ir/x.py:2: import of json inside a function"),
    ("ir/x.py", "class C:\n    def f(self):\n        from json import loads\n", "ir/x.py:3: import of json inside a function"),
    ("ir/x.py", "from json import *\n", "ir/x.py:1: star import of json"),
    ("ir/x.py", "from . import affine\n", "ir/x.py:1: relative import"),
    ("ir/x.py", "n = 0\ndef f():\n    global n\n    n = 1\n", "ir/x.py:3: process-wide state: global n"),
    ("errors.py", "from tilec.ir import affine\n", "errors.py:1: the leaf errors imports ir"),
    ("targets/x.py", "from tilec.cost import price\n", "targets/x.py:1: the leaf targets imports cost"),
    ("workloads/x.py", "from tilec import silu\n", "workloads/x.py:1: 'silu' comes from the package's face"),
    ("report/x.py", "from tilec.cli_show import show\n", "report/x.py:1: report imports cli, which does not stand to its left"),
    ("api.py", "import tilec\n", "api.py:1: api imports __init__, which does not stand to its left"),
    ("helpers/x.py", "x = 1\n", "helpers/x.py:1: 'helpers' has no place in the line of imports"),
    (
        "ir/x.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from tilec.cost import price\n",
        "ir/x.py:3: ir imports cost",
    ),
]


@pytest.mark.parametrize(("file", "text", "expected"), BAD, ids=[f"{n}-{b[0].replace('/', '.')}" for n, b in enumerate(BAD)])
def test_a_bad_import_is_caught(tmp_path: Path, file: str, text: str, expected: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    found = violations(tmp_path)
    assert len(found) == 1
    assert found[0].startswith(expected)


GOOD = [
    ("poly/isl.py", "import islpy as isl\n"),
    ("poly/x.py", "from tilec.ir.affine import Aff\nfrom tilec.errors import InternalError\nfrom tilec.poly.isl import Set\n"),
    ("cost/x.py", "from tilec.targets.load import target\nfrom tilec.lower import lanes\n"),
    ("targets/x.py", "from tilec.errors import TargetError\nimport tomllib\n"),
    ("__init__.py", "def __getattr__(name):\n    import importlib\n    from tilec.api import kernel\n"),
    ("cli_show.py", "from tilec.api import Kernel\nfrom tilec.cli_args import parser\n"),
]


@pytest.mark.parametrize(("file", "text"), GOOD, ids=[g[0] for g in GOOD])
def test_what_is_allowed_passes(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert violations(tmp_path) == []


def test_files_have_one_subject() -> None:
    """A file rarely needs more than 400 lines: longer ones are shown as a warning, and none may grow past twice that."""
    length = {p.relative_to(ROOT).as_posix(): len(p.read_text().splitlines()) for p in (ROOT / "tilec").rglob("*.py")}
    for name, n in sorted(length.items()):
        if n > LONG:
            warnings.warn(f"{name} has {n} lines: has it more than one subject?", stacklevel=1)
    assert max(length.values()) <= 2 * LONG


def test_import_is_lazy() -> None:
    """`import tilec` loads none of the heavy modules."""
    code = "import sys, tilec; print(sorted({'numpy', 'islpy', 'networkx', 'rich', 'ml_dtypes'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_import_is_fast() -> None:
    """The processor time of `import tilec` itself, the least of three processes: the machine may be busy."""
    code = "import time; t = time.process_time(); import tilec; print(time.process_time() - t)"
    times = [
        float(subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(times) < 0.2
