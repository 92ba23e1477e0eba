"""Pages whose code is run: what a python or console block prints must be the text block (or the lines) that follow it.

```python            runs; blocks of one page share their names, like one session
```text              directly after a python block: exactly what it printed
```console           `$ tilec …` lines, each followed by exactly what the command printed (standard output, then error)
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilec.api import Primitive, primitives
from tilec.cli import main
from tilec.schedule.core import argument_text

ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Block:
    kind: str
    first: int  # index of the first line inside the fences
    lines: list[str]

    @property
    def last(self) -> int:
        return self.first + len(self.lines)


@dataclass
class Outcome:
    """Lines [first, last) of the page show `expected`; running the page printed `actual`."""

    line: int
    first: int
    last: int
    expected: list[str]
    actual: list[str]


def blocks(text: str) -> Iterator[Block]:
    open_block: Block | None = None
    for n, line in enumerate(text.split("\n")):
        if open_block is None:
            found = re.fullmatch(r"```(\w+)", line)
            if found:
                open_block = Block(found[1], n + 1, [])
        elif line == "```":
            yield open_block
            open_block = None
        else:
            open_block.lines.append(line)
    assert open_block is None, "a fence is not closed"


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def printed(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip("\n").split("\n")] if text.strip() else []


def command(line: str) -> list[str]:
    """What `tilec …` prints, run in this process from the root of the checkout."""
    words = shlex.split(line)
    assert words[0] == "tilec", f"only tilec is run on a page, not {words[0]}"
    out, err = io.StringIO(), io.StringIO()
    stopped = contextlib.suppress(SystemExit)  # argparse: a usage error or --help
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), inside(ROOT), stopped:
        main(words[1:])
    return printed(out.getvalue() + err.getvalue())


def run(page: Path) -> list[Outcome]:
    """Run every block of a page, in order."""
    found = list(blocks(page.read_text()))
    outcomes: list[Outcome] = []
    names: dict[str, object] = {"__name__": "__page__"}
    with tempfile.TemporaryDirectory() as folder:
        for n, block in enumerate(found):
            if block.kind == "console":
                outcomes += console(block)
            if block.kind != "python":
                continue
            # the kernels' source is read from a file: one with the page's line numbers
            source = Path(folder) / f"{page.stem}_{block.first}.py"
            source.write_text("\n" * block.first + "\n".join(block.lines) + "\n")
            out = io.StringIO()
            with contextlib.redirect_stdout(out), inside(ROOT):
                exec(compile(source.read_text(), str(source), "exec"), names)
            actual = printed(out.getvalue())
            after = found[n + 1] if n + 1 < len(found) else None
            follows = after is not None and after.kind == "text" and after.first - block.last <= 3
            if follows and after is not None:
                outcomes.append(Outcome(block.first + 1, after.first, after.last, after.lines, actual))
            elif actual:
                outcomes.append(Outcome(block.first + 1, block.last + 1, block.last + 1, [], actual))
    return outcomes


def console(block: Block) -> Iterator[Outcome]:
    starts = [n for n, line in enumerate(block.lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(block.lines)], strict=True):
        shown = block.lines[start + 1 : end]
        actual = command(block.lines[start][2:])
        if end < len(block.lines) and shown and not shown[-1]:
            actual = [*actual, ""]  # an empty line before the next command
        yield Outcome(block.first + start + 1, block.first + start + 1, block.first + end, shown, actual)


def call(p: Primitive) -> str:
    """`split(loop, factor, into=None, tail="min")`."""
    parts: list[str] = []
    for v in p.signature.parameters.values():
        star = "*" if v.kind is v.VAR_POSITIONAL else ""
        if v.kind is v.KEYWORD_ONLY and "*" not in "".join(parts):
            parts.append("*")
        parts.append(star + v.name + ("" if v.default is v.empty else f"={argument_text(v.default)}"))
    return f"{p.name}({', '.join(parts)})"


def primitives_page() -> str:
    """docs/primitives.md, from the docstrings of the registry."""
    families: dict[str, list[str]] = {}
    for p in sorted(primitives().values(), key=lambda p: (p.family, p.name)):
        families.setdefault(p.family, []).append(f"### {call(p)}\n\n```text\n{p.doc.strip()}\n```\n")
    head = (
        "# Primitives\n\nGenerated from the docstrings (`make docs`). Every primitive is a method of a schedule; it returns a "
        "new schedule, proved, or raises and changes nothing.\n"
    )
    return head + "".join(f"\n## {family}\n\n" + "\n".join(texts) for family, texts in families.items())
