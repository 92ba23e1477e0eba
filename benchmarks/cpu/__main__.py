"""`python -m benchmarks.cpu [--rows A,B] [--peers a,b] [--threads 1,2] [--venvs FOLDER] [--json FILE] [--write PAGE]`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from benchmarks.cpu import rows as table_rows
from benchmarks.cpu.run import PEERS, Result, interpreters, run

BEGIN = "<!-- benchmarks.cpu -->"
PAGE = """{begin}
## Generated C against what else runs here

`python -m benchmarks.cpu --venvs FOLDER --write docs/performance.md` writes this section. A peer that needs more than NumPy has
an environment of its own: `python -m venv FOLDER/torch && FOLDER/torch/bin/pip install torch numpy`, and likewise `halide` and
`exo` (`exo-lang`).

Medians of the calls of {repeats} interleaved turns in ms (1 / 2 threads side by side where both were run); weights are packed
inside the call, but in `tilec_packed` and `torch_packed`, which are no peers of the others. *ratio*: the best peer's time ÷
tilec's, above 1 is faster. *roof*: the share of the least time that the probes of the same run allow (bytes at the bandwidth of
the same mix of reading and writing, or the multiply-adds at the peak of their unit and then the epilogue). tilec's schedules are
its own pick; {permissions}

{table}

{missing}
{machine}.
"""
NO_WAY = "no way to do it"  # how serve.Missing begins: a dash in the table says as much
PERMISSIONS = (
    "gemm and chains run under `contract` (bf16 gemm under `hardware_rounding` too), row sums also under `reassociate`, "
    "integers under none."
)


def markdown(results: list[Result], threads: list[int]) -> str:
    """One line for each row: every contender's medians, tilec's ratio to the best peer and its share of the roof."""
    who = list(dict.fromkeys(r.who for r in results))
    head = ["row", *who, "ratio", "roof"]
    lines = [head, ["---"] * len(head)]
    for name in dict.fromkeys(r.row for r in results):
        mine = {(r.who, r.threads): r for r in results if r.row == name}
        cells = [name]
        for w in who:
            cells.append(" / ".join(_cell(mine.get((w, t))) for t in threads))
        tilec = [mine.get(("tilec", t)) for t in threads]
        cells.append(" / ".join(f"{r.ratio_to_best_peer:.2f}" if r and r.ratio_to_best_peer else "–" for r in tilec))
        cells.append(" / ".join(f"{r.roof_share:.2f}" if r and r.roof_share else "–" for r in tilec))
        lines.append(cells)
    widths = [max(len(line[n]) for line in lines) for n in range(len(head))]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines)


def _cell(r: Result | None) -> str:
    if r is None or r.median_ms is None:
        return "–"
    return f"{r.median_ms:.3g}" if r.median_ms < 100 else f"{r.median_ms:.0f}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu", description=__doc__)
    parser.add_argument("--rows", help="names, separated by commas; default all")
    parser.add_argument("--peers", help=f"of {', '.join(p for p in PEERS if p != 'tilec')}; default all that are installed")
    parser.add_argument("--threads", default="1,2", help="numbers of threads")
    parser.add_argument(
        "--venvs", type=Path, default=os.environ.get("TILEC_BENCH_VENVS"), help="a folder with environments torch, halide, exo"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the results as a list")
    parser.add_argument("--write", type=Path, help="write the table into this page")
    parser.add_argument("--list", action="store_true", help="print the names of the rows")
    o = parser.parse_args(argv)
    every = table_rows.rows()
    if o.list:
        print("\n".join(r.name for r in every))
        return 0
    names = o.rows.split(",") if o.rows else [r.name for r in every]
    unknown = [n for n in names if n not in {r.name for r in every}]
    peers = o.peers.split(",") if o.peers else [p for p in PEERS if p != "tilec"]
    unknown += [p for p in peers if p not in PEERS]
    if unknown:
        parser.error(f"no {unknown[0]!r}. Rows: {', '.join(r.name for r in every)}. Peers: {', '.join(PEERS)}")
    try:
        threads = [int(t) for t in o.threads.split(",")]
    except ValueError:
        parser.error(f"--threads {o.threads}: numbers separated by commas")
    pythons, missing = interpreters(["tilec", *(p for p in peers if p != "tilec")], Path(o.venvs) if o.venvs else None)
    chosen = [r for r in every if r.name in names]

    def keep(results: list[Result]) -> None:
        if o.json:
            text = json.dumps([r.to_dict() for r in results], indent=1) + "\n"
            part = o.json.with_name(o.json.name + ".part")
            part.write_text(text, encoding="utf-8")
            part.replace(o.json)

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    results = run(chosen, pythons, threads, max(1, o.repeats), say, keep)
    table = markdown(results, threads)
    failed = [f"{r.row}, {r.threads} threads, {r.who}: {r.error}" for r in results if r.error and NO_WAY not in r.error]
    absent = f"Missing: {'; '.join(missing)}." if missing else "Every peer was there."
    print("\n".join([table, "", absent, *failed]))
    if o.write:
        machine = f"{os.cpu_count()} CPUs, load average {os.getloadavg()[0]:.1f} (other work ran on the machine)"
        section = PAGE.format(
            begin=BEGIN, repeats=o.repeats, permissions=PERMISSIONS, table=table, missing=absent + " ", machine=machine
        )
        before = o.write.read_text(encoding="utf-8").split(BEGIN)[0].rstrip() if o.write.exists() else ""
        o.write.write_text(f"{before}\n\n{section}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
