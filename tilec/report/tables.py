"""Plain tables and numbers for people: text only, the same on a terminal and in a file."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDEST = 4096  # no cell is ever folded: a pipe and a terminal get the same lines


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> str:
    """Aligned columns under a rule; cells that are numbers are right-aligned. Without rows: the header and '(none)'."""
    cells = [[cell(v) for v in row] for row in rows]
    values = [list(row) for row in zip(*cells, strict=True)] if cells else [[] for _ in columns]
    drawn = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title=None, header_style="")
    for name, column in zip(columns, values, strict=True):
        right = bool(column) and all(looks_numeric(v) for v in column)
        width = max(map(len, [name, *column]))
        drawn.add_column(Text(name + "\n" + "─" * width), justify="right" if right else "left", no_wrap=True)
    for row in cells:
        drawn.add_row(*[Text(v) for v in row])
    console = Console(file=io.StringIO(), width=WIDEST, color_system=None, legacy_windows=False)
    console.print(drawn)
    assert isinstance(console.file, io.StringIO)
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    return "\n".join(([title] if title else []) + lines + ([] if cells else ["(none)"]))


def cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number(value)
    return str(value)


def looks_numeric(text: str) -> bool:
    return text == "-" or text[:1].isdigit() or (text[:1] == "-" and text[1:2].isdigit())


def number(value: float, digits: int = 4) -> str:
    """At most `digits` significant digits, no exponent where it would not help."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if 1e3 <= abs(value) < 1e6:
        return f"{value:,.1f}"
    if 1e-3 <= abs(value) < 1e3:
        return f"{float(f'{value:.{digits}g}'):,}"
    return f"{value:.{digits - 1}e}"


def size(value: int | float) -> str:
    """Bytes in binary units with up to two decimals (`24 KiB`, `1.52 GiB`), below 1 MiB exact."""
    for unit, step in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(value) >= (step if unit != "GiB" else 16 * step) and (unit != "KiB" or value % 256 == 0):
            text = f"{value / step:,.2f}".rstrip("0").rstrip(".")
            return f"{text} {unit}"
    return f"{value:,} B" if isinstance(value, int) or value == int(value) else f"{value:,.2f} B"


def seconds(value: float) -> str:
    """A time with a unit that reads well (`1.93 ms`)."""
    for unit, step in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if abs(value) >= step:
            return f"{value / step:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"
