"""The target "host": what the system says of this CPU, its rates estimated by simple rules; and the file of measured ones."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from tilec.targets.detect import Detected
from tilec.targets.target import Figure, Target

SYSTEM = "the operating system"
NOT_MEASURED = "rates are estimates: `tilec target host --measure` measures them (it needs a C compiler)"


def cache_folder() -> Path:
    """$TILEC_CACHE, or `tilec` in the user's cache folder ($XDG_CACHE_HOME)."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(os.environ.get("TILEC_CACHE") or os.path.join(home, "tilec"))


def cache_file(found: Detected) -> Path:
    """Where the measured figures of that CPU are kept. One file per CPU: a home folder may be shared by different computers."""
    return cache_folder() / f"host-{found.key}.toml"


def detected(default: Target, found: Detected) -> Target:
    """`default` with what the system says, and rates estimated from it: every one marked.

    Arithmetic: two vectors of multiply-adds a cycle and core. Caches: two, one and half a vector read a cycle. Memory and
    overheads: the defaults.
    """
    figures = dict(default.figures)

    def set_(name: str, value: float, unit: str) -> None:
        figures[name] = Figure.of(value, unit, SYSTEM)

    set_("cores", found.cores, "count")
    set_("vector_bytes", found.vector_bytes, "B")
    set_("vector_registers", found.vector_registers, "count")
    if found.clock:
        set_("clock", found.clock, "MHz")
    for name, cache in (("l1", found.cache(1)), ("l2", found.cache(2)), ("l3", found.cache(3))):
        if cache is not None:
            set_(name, cache.size, "KiB")
            set_("line", cache.line, "B")
            if cache.ways and name != "l3":
                set_(f"{name}_ways", cache.ways, "count")
    if found.caches and found.cache(3) is None:
        figures.pop("l3", None)
    figures["shared_per_core"] = replace(figures["l2"], source="the second-level cache of a core")

    clock, width = figures["clock"].value, found.vector_bytes
    rates = dict(dict(default.threads).get(1, ()))
    fused = "fma" in found.features or "neon" in found.features
    for dtype, size in (("f32", 4), ("f64", 8)):
        ops, rule = 2 * (width // size) * clock, f"estimate: 2 vectors of {width} B a cycle"
        rates[f"fma_{dtype}"] = Figure.of(ops * (2 if fused else 1), "GFLOP/s", rule, True)
        rates[f"mul_add_{dtype}"] = Figure.of(ops, "GFLOP/s", rule, True)
    for name, share in (("read_l1", 2.0), ("read_l2", 1.0), ("read_l3", 0.5)):
        rates[name] = Figure.of(share * width * clock, "GB/s", f"estimate: {share * width:g} B a cycle", True)
    vector = tuple(
        (d, Figure.of(f.value * found.cores, "GFLOP/s", f.source, True))
        for d, f in (("f32", rates["fma_f32"]), ("f64", rates["fma_f64"]))
    )
    return replace(
        default,
        title=f"this computer's CPU: {found.model}, {found.cores} cores",
        figures=tuple(figures.items()),
        vector_peaks=vector,
        features=found.features,
        threads=((1, tuple(rates.items())),),
        machine=found.key,
        note=NOT_MEASURED,
    )


def to_toml(t: Target) -> str:
    """A machine file with the figures of `t`: `parse` gives the target back."""
    sources = list(dict.fromkeys(f.source for rows in _tables(t) for _, f in rows[1]))
    lines = ["# Written by `tilec target host --measure`. Remove it, or measure again, when the computer changes."]
    lines += [f"{key} = {_text(value)}" for key, value in (("name", t.name), ("title", t.title), ("kind", t.kind))]
    if t.machine:
        lines.append(f"machine = {_text(t.machine)}")
    if t.note:
        lines.append(f"note = {_text(t.note)}")
    lines += [f"features = [{', '.join(map(_text, t.features))}]", "", "[sources]"]
    lines += [f"s{n} = {_text(source)}" for n, source in enumerate(sources)]
    for title, rows in _tables(t):
        lines += ["", f"[{title}]"]
        for name, f in rows:
            value, _, unit = f.text.partition(" ")
            mark = ", estimate = true" if f.estimate else ""
            lines.append(f'{name} = {{ value = {value}, unit = "{unit}", source = "s{sources.index(f.source)}"{mark} }}')
    return "\n".join(lines) + "\n"


def _tables(t: Target) -> list[tuple[str, tuple[tuple[str, Figure], ...]]]:
    return [
        ("figures", t.figures),
        *([("matrix", t.matrix_peaks)] if t.matrix_peaks else []),
        ("vector", t.vector_peaks),
        *((f"threads.{n}", rates) for n, rates in t.threads),
    ]


def _text(s: str) -> str:
    """A TOML basic string."""
    escaped = s.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else " " for c in escaped) + '"'
