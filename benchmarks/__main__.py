"""`python -m benchmarks [--json] [--repeats N] [--only WORD] [--write PAGE]`: measure, and print a table."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from benchmarks import other, steps
from benchmarks.measure import Figure

SUBJECTS: dict[str, Callable[[int], list[Figure]]] = {
    "primitives": steps.primitives,
    "replay": steps.replay,
    "import": other.imports,
    "tune": other.search,
    "price": other.prices,
    "interpreter": other.interpreter,
}

CPU_SECTION = "<!-- benchmarks.cpu -->"

PAGE = """# Performance

How long tilec itself takes. `make bench` measures and writes this page; `python -m benchmarks` prints the table alone,
`--json` as data, `--only WORD` one subject of {subjects}.

Every repeat starts with empty caches and without the last one's garbage, as a fresh session does; the steps of one schedule
share what their proofs made ([the proof](proof.md)), so a step costs what it changes. A figure is judged by its *process
time*: the machine that wrote this page was shared, so wall time also holds what others did (and process time still holds the
shared cores and caches).
p95 is over all steps and repeats: one step in twenty takes longer. The p95 of the steps' medians stands beside it.

{table}

{machine}.
"""


def table(figures: list[Figure]) -> str:
    """A Markdown table, as wide as its content."""
    rows = [["measured", "statistic", "process", "wall", "target", "aim", "", "samples", "of what"]]
    for f in figures:
        limit, aim = (f"{_ms(x)}" if x is not None else "" for x in (f.target, f.aim))
        rows.append([f.name, f.statistic, _ms(f.process), _ms(f.wall), limit, aim, f.verdict, str(f.samples), f.detail])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    rows.insert(1, ["-" * w for w in widths])
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in rows)


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:,.0f} ms" if seconds >= 0.01 else f"{1e3 * seconds:.1f} ms"


def kept(page: Path) -> str:
    """The sections of benchmarks.cpu and benchmarks.tuning, which those write themselves."""
    text = page.read_text(encoding="utf-8") if page.exists() else ""
    starts = [at for at in map(text.find, (CPU_SECTION, "<!-- tuning")) if at >= 0]
    return f"\n{text[min(starts) :]}" if starts else ""


def machine() -> str:
    load = os.getloadavg()[0]
    return f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}, load average {load:.1f}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the figures as JSON, times in seconds")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="repeats of each measurement (default 5)")
    parser.add_argument("--only", choices=sorted(SUBJECTS), help="one subject")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the page with the table there")
    options = parser.parse_args(argv)
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: measure at least once")
    figures: list[Figure] = []
    for name, measure in SUBJECTS.items():
        if options.only in (None, name):
            print(f"{name} …", file=sys.stderr)
            figures += measure(options.repeats)
    if options.write is not None:
        page = PAGE.format(subjects=", ".join(SUBJECTS), table=table(figures), machine=machine())
        options.write.write_text(page + kept(options.write))
    if options.json:
        print(json.dumps({"machine": machine(), "figures": [{**asdict(f), "verdict": f.verdict} for f in figures]}, indent=1))
    else:
        print(table(figures), machine(), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
