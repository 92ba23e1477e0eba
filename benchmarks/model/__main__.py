"""`python -m benchmarks.model --space FILE.csv --target NAME`: rank a GEMM tuning space, and hold the ranking against its times.

FILE has the columns of CLBlast's Xgemm (MWG, NWG, …, SA, SB) and time_ms, plain or .gz. NAME is a machine that tilec knows or the
path of a machine's TOML file. The report of all measurements is `python -m benchmarks.model.report`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from benchmarks.model.rank import SIZE, Space, Structures, agreement, predict, read
from benchmarks.model.xgemm import KNOBS
from tilec.cost.requests import CUDA, OPENCL
from tilec.errors import TilecError


def _row(space: Space, n: int) -> str:
    return " ".join(f"{k}={space.knobs[k][n]}" for k in KNOBS)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.model", description=__doc__)
    parser.add_argument("--space", required=True, metavar="FILE", help="a CSV file of knobs and measured times (.gz allowed)")
    parser.add_argument("--target", required=True, metavar="NAME", help="a machine by name, or the path of its TOML file")
    parser.add_argument(
        "--front", choices=(OPENCL, CUDA), help="what the kernel was compiled from (default: CUDA if GEMMK is a column)"
    )
    parser.add_argument("--size", type=int, default=SIZE, metavar="N", help=f"M = N = K (default {SIZE})")
    parser.add_argument("--top", type=int, default=10, metavar="K", help="rows of the ranking to print (default 10)")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    options = parser.parse_args(argv)
    try:
        space = read(options.space, options.front)
        predicted = predict(space, options.target, Structures(), size=options.size)
    except (TilecError, OSError, ValueError) as e:
        print(e, file=sys.stderr)
        return 2
    found = agreement(predicted * 1e3, space.measured)
    order = np.argsort(predicted, kind="stable")[: options.top]
    if options.json:
        picks = [{k: int(space.knobs[k][n]) for k in KNOBS} for n in order]
        print(json.dumps({"space": space.name, "rows": space.count, **asdict(found), "picks": picks}, indent=1))
        return 0
    print(f"{space.name}: {space.count:,} rows, {options.target}, {space.front}")
    print(f"rank correlation (Spearman)               {found.spearman:.4f}")
    print(f"first pick ÷ best                         {found.first_pick:.3f}")
    print(f"best of the first ten ÷ best              {found.best_of_ten:.3f}")
    print(f"of the best 1 %, predicted in the best 5 % {found.recall:.0%}")
    print(f"measured ÷ predicted, median              {found.scale:.3f}")
    print("\npredicted ms  measured ms")
    for n in order:
        print(f"{predicted[n] * 1e3:12.3f}  {space.measured[n]:11.3f}  {_row(space, n)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
