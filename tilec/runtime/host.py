"""Measuring the rates of this computer's CPU once, by generated probes, into the file that the target "host" is read from."""

from __future__ import annotations

import ctypes
import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib import resources
from pathlib import Path

from tilec.errors import MeasureError
from tilec.runtime.compiler import Compiler, find
from tilec.runtime.process import Workplace, run_killable, workplace
from tilec.targets.detect import Detected, detect
from tilec.targets.host import cache_file, to_toml
from tilec.targets.load import unmeasured
from tilec.targets.target import RATES, Figure, Target

SECONDS = 0.25  # per rate and number of threads
FLAGS = ("-O3", "-march=native", "-fopenmp")
STRICT_FLAGS = ("-DSTRICT", "-ffp-contract=off")
_SHOWN = {"ops/s": "GFLOP/s", "bytes/s": "GB/s", "s": "us"}


def measure_host(compiler: str | None = None, seconds: float = SECONDS, say: Callable[[str], None] = lambda text: None) -> Target:
    """The host with measured rates, not kept. compiler: its name (default: see `compiler.find`); seconds: per rate.

    Takes about 40 × `seconds`. Raises MeasureError without a compiler, and where the probes do not compile or run.
    """
    found = detect()
    cc = find(compiler)
    with workplace("tilec-host-") as place:
        say("compiling the probes")
        program, library = _compile(cc, place)
        say("measuring: this takes some seconds, and wants an idle machine")
        rates = _run(program, found, seconds, place)
        rates[1]["call"] = _call(library)
    return _target(found, rates, f"measured by tilec, best of repeats, compiled by {cc.version}, {time.strftime('%Y-%m-%d')}")


def keep(measured: Target) -> Path:
    """Write the figures where `target("host")` finds them, at once or not at all; MeasureError when that cannot be."""
    path = cache_file(detect())
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=path.stem, suffix=".part", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as f:
                f.write(to_toml(measured))
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as e:
        raise MeasureError(
            f"the measured figures can't be kept in {path}: {e.strerror or e}. TILEC_CACHE names another folder"
        ) from None
    return path


def _compile(cc: Compiler, place: Workplace) -> tuple[Path, Path]:
    """(the program, the library with an empty function)."""
    folder = place.folder
    source = folder / "probes.c"
    source.write_text(resources.files("tilec.runtime").joinpath("probes.c").read_text(encoding="utf-8"), encoding="utf-8")
    strict, program, library = folder / "strict.o", folder / "probes", folder / "probes.so"
    steps = (
        [cc.path, *FLAGS, *STRICT_FLAGS, "-fPIC", "-c", source, "-o", strict],
        [cc.path, *FLAGS, "-ffp-contract=fast", source, strict, "-o", program],
        [cc.path, *FLAGS, "-fPIC", "-shared", source, strict, "-o", library],
    )
    for step in steps:
        done = run_killable(step, timeout=60, cwd=folder, janitor=place.janitor)
        if done.reason is not None:
            first = done.err.strip().splitlines()[0] if done.err.strip() else "no message"
            raise MeasureError(f"{cc.path} does not compile the probes ({done.reason}): {first}")
    return program, library


def _run(program: Path, found: Detected, seconds: float, place: Workplace) -> dict[int, dict[str, float]]:
    """Values in base units by threads and name."""
    sizes = [found.cache(n) for n in (1, 2, 3)]
    l1, l2 = (c.size if c else default for c, default in zip(sizes[:2], (32 << 10, 256 << 10), strict=True))
    argv = [str(program), str(l1), str(l2), str(sizes[2].size if sizes[2] else 0), str(found.cores), str(seconds)]
    places = {"OMP_PROC_BIND": "spread", "OMP_PLACES": "cores", "OMP_DYNAMIC": "false"}
    patience = 60 + 100 * seconds * (1 + found.cores.bit_length())
    done = run_killable(argv, timeout=patience, env=places, janitor=place.janitor)
    if done.reason is not None:
        raise MeasureError(f"the probes failed ({done.reason}): {done.err.strip()[:200] or 'no message'}")
    rates: dict[int, dict[str, float]] = {}
    for line in done.out.splitlines():
        row = json.loads(line)
        value = float(row["value"])
        if not 0 < value < float("inf"):
            raise MeasureError(f"the probes gave {row['name']} = {row['value']} at {row['threads']} threads: measure again")
        rates.setdefault(int(row["threads"]), {})[row["name"]] = value
    if not {"fma_f32", "read", "clock"} <= set(rates.get(1, ())):
        raise MeasureError("the probes printed no figures")
    return rates


def _call(library: Path) -> float:
    """Seconds of one call with three pointers from Python, the best of repeats."""
    function = ctypes.CDLL(str(library)).tilec_empty
    function.argtypes = [ctypes.c_void_p] * 3
    best = float("inf")
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(1000):
            function(1, 2, 3)
        best = min(best, (time.perf_counter() - began) / 1000)
    return best


def _target(found: Detected, rates: dict[int, dict[str, float]], source: str) -> Target:
    base = unmeasured()
    figures = dict(base.figures)
    figures["clock"] = Figure.of(rates[1]["clock"], "MHz", f"{source}: one dependent addition a cycle")
    if "dram_latency" in rates[1]:
        figures["dram_latency"] = Figure.of(rates[1]["dram_latency"], "ns", f"{source}: a chain of loads in random order")
    figures["bandwidth"] = Figure.of(max(r["read"] for r in rates.values()), "GB/s", f"{source}: the best read of any threads")
    threads = tuple(
        (n, tuple((name, Figure.of(r[name], _SHOWN[RATES[name]], source)) for name in RATES if name in r))
        for n, r in sorted(rates.items())
    )
    peaks = []
    for dtype, name in (("f32", "fma_f32"), ("f64", "fma_f64"), ("bf16", "dot_bf16"), ("i8", "dot_i8")):
        best = max((r[name] for r in rates.values() if name in r), default=None)
        if best is not None:
            peaks.append((dtype, Figure.of(best, "GFLOP/s", f"{source}: the best of any threads")))
    return replace(base, figures=tuple(figures.items()), threads=threads, vector_peaks=tuple(peaks), note=None)
