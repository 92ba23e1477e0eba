"""Reading machine files. An unknown unit, a missing source, a figure that isn't positive or is absurd: TargetError."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any

from tilec.errors import TargetError
from tilec.targets.detect import detect
from tilec.targets.host import cache_file, detected
from tilec.targets.target import RATES, UNITS, Figure, Limits, Target

# what each figure measures
_FIGURES = {
    "sms": "count",
    "cores": "count",
    "clock": "Hz",
    "bandwidth": "bytes/s",
    "memory": "bytes",
    "l1": "bytes",
    "l2": "bytes",
    "l2_bandwidth": "bytes/s",
    "l3": "bytes",
    "shared_per_core": "bytes",
    "dram_latency": "s",
    "launch_overhead": "s",
    "line": "bytes",
    "l1_ways": "count",
    "l2_ways": "count",
    "vector_bytes": "bytes",
    "vector_registers": "count",
}
_REQUIRED = {"gpu": ("sms", "clock", "bandwidth"), "cpu": ("cores", "bandwidth"), "accelerator": ("cores", "bandwidth")}
_KEYS = {
    "name",
    "title",
    "kind",
    "compute_capability",
    "note",
    "sources",
    "figures",
    "matrix",
    "vector",
    "paths",
    "features",
    "threads",
    "machine",
}
_FIGURE_KEYS = ("value", "unit", "source", "estimate")
_LEAST, _MOST = 1e-18, 1e24  # in base units: no figure of a machine lies outside, and times made of them stay finite and positive
_LIMIT_KEYS = [f for f in Limits.__dataclass_fields__ if f not in ("compute_capability", "source", "shared_configs")]


def names() -> tuple[str, ...]:
    """The machines tilec knows, without the bare compute capabilities."""
    found = [p.name.removesuffix(".toml") for p in _package().iterdir() if p.name.endswith(".toml")]
    return tuple(sorted(n for n in found if n != "limits"))


def capabilities() -> tuple[str, ...]:
    """Compute capabilities that serve as targets for occupancy."""
    return tuple(_limits_table())


def load(name_or_path: str | os.PathLike[str] | Target) -> Target:
    """The machine of that name, of that TOML file (a path with a slash or ending in .toml), or a bare compute capability ("8.6").

    Raises TargetError for an unknown name (listing the known ones) and for a file with a wrong figure.
    """
    if isinstance(name_or_path, Target):
        return name_or_path
    if not isinstance(name_or_path, str | os.PathLike):
        raise TargetError(f"target {name_or_path!r}: give the name of a machine or of a file.\n  Targets: {', '.join(names())}")
    text = os.fsdecode(name_or_path)
    if text.endswith(".toml") or "/" in text or os.sep in text:
        path = Path(text)
        if not path.is_file():
            raise TargetError(f"no target file {text!r}.\n  Targets by name: {', '.join(names())}")
        try:
            content = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise TargetError(f"target file {text!r} can't be read: {e}") from None
        return parse(content, path.name)
    if re.fullmatch(r"\d+\.\d+", text):
        limits = _limits(text, f"target {text!r}")
        return Target(name=text, title=f"compute capability {text}", kind="limits", limits=limits)
    if text not in names():
        starts = sorted((n for n in names() if text and n.startswith(text.lower())), key=lambda n: not n.endswith("-sxm"))
        close = starts or difflib.get_close_matches(text.lower(), names(), n=1, cutoff=0.5)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise TargetError(
            f"unknown target {text!r}.{hint}\n"
            f"  Targets: {', '.join(names())}; or a compute capability: {', '.join(capabilities())}"
        )
    if text == "host":
        return host()
    return parse((_package() / f"{text}.toml").read_text(encoding="utf-8"), f"{text}.toml")


def parse(text: str, file: str) -> Target:
    """A machine file's text as a Target; TargetError names the file and the key."""
    data = _read(text, file)
    unknown = sorted(set(data) - _KEYS)
    if unknown:
        raise TargetError(f"{file}: unknown key {unknown[0]!r}.\n  Keys: {', '.join(sorted(_KEYS))}")
    for key in ("name", "title", "kind"):
        if not isinstance(data.get(key), str):
            raise TargetError(f"{file}: {key!r} is missing or not a text")
    kind = data["kind"]
    if kind not in _REQUIRED:
        raise TargetError(f"{file}: kind {kind!r} is not known.\n  Kinds: {', '.join(_REQUIRED)}")
    for key in ("note", "machine"):
        if key in data and not isinstance(data[key], str):
            raise TargetError(f"{file}: {key!r} is not a text")
    sources = _table(data, "sources", file)
    figures = {}
    for key, entry in _table(data, "figures", file).items():
        if key not in _FIGURES:
            raise TargetError(f"{file}: unknown figure {key!r}.\n  Figures: {', '.join(_FIGURES)}")
        figures[key] = _figure(entry, _FIGURES[key], sources, f"{file}: figures.{key}")
    for key in _REQUIRED[kind]:
        if key not in figures:
            raise TargetError(f"{file}: figure {key!r} is missing; kind {kind} needs {', '.join(_REQUIRED[kind])}")
    tables = {}
    for table in ("matrix", "vector"):
        tables[table] = tuple(
            (k, _figure(e, "ops/s", sources, f"{file}: {table}.{k}")) for k, e in _table(data, table, file).items()
        )
    if not tables["matrix"] and not tables["vector"]:
        raise TargetError(f"{file}: no peak rate; give [matrix] or [vector] with a rate per dtype")
    features = data.get("features", [])
    if not isinstance(features, list) or not all(isinstance(x, str) for x in features):
        raise TargetError(f"{file}: 'features' must be a list of texts")
    paths = []
    for k, e in _table(data, "paths", file).items():
        found = _figure(e, "share", sources, f"{file}: paths.{k}")
        if found.value > 1:
            raise TargetError(f"{file}: paths.{k}: {found.text} is no share: above 0 and up to 1")
        paths.append((k, found))
    capability = data.get("compute_capability")
    if kind == "gpu" and capability is None:
        raise TargetError(f"{file}: 'compute_capability' is missing; a gpu needs it for its per-SM limits")
    return Target(
        name=data["name"],
        title=data["title"],
        kind=kind,
        figures=tuple(figures.items()),
        matrix_peaks=tables["matrix"],
        vector_peaks=tables["vector"],
        limits=_limits(str(capability), file) if capability is not None else None,
        note=data.get("note"),
        features=tuple(features),
        threads=_threads(_table(data, "threads", file), sources, file),
        machine=data.get("machine"),
        matrix_paths=tuple(paths),
    )


def _table(data: dict[str, Any], key: str, file: str) -> dict[str, Any]:
    """A table of the file, empty where it is not there."""
    found = data.get(key, {})
    if not isinstance(found, dict):
        raise TargetError(f"{file}: {key!r} is {found!r}; it is a table: write [{key}]")
    return found


def _threads(table: dict[str, Any], sources: dict[str, Any], file: str) -> tuple[tuple[int, tuple[tuple[str, Figure], ...]], ...]:
    """[threads.1], [threads.2], …: rates at that many threads."""
    out = {}
    for count, entries in table.items():
        if not re.fullmatch("[1-9][0-9]{0,8}", count) or not isinstance(entries, dict):
            raise TargetError(f"{file}: [threads.{count}]: tables of rates are named by a number of threads, as in [threads.2]")
        rows = []
        for name, entry in entries.items():
            if name not in RATES:
                raise TargetError(f"{file}: unknown rate {name!r} in [threads.{count}].\n  Rates: {', '.join(RATES)}")
            rows.append((name, _figure(entry, RATES[name], sources, f"{file}: threads.{count}.{name}")))
        out[int(count)] = tuple(rows)
    return tuple(sorted(out.items()))


def _package() -> Any:
    return resources.files("tilec.targets")


def _read(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as e:  # also integers of too many digits, and too many brackets
        raise TargetError(f"{file} is not valid TOML: {e}") from None


def _figure(entry: Any, measures: str, sources: dict[str, Any], where: str) -> Figure:
    if not isinstance(entry, dict) or not {"value", "unit", "source"} <= set(entry):
        raise TargetError(f"{where} must be {{ value = …, unit = …, source = … }}")
    unknown = sorted(set(entry) - set(_FIGURE_KEYS))
    if unknown:
        raise TargetError(f"{where}: unknown key {unknown[0]!r}.\n  Keys: {', '.join(_FIGURE_KEYS)}")
    value, unit, source, estimate = entry["value"], entry["unit"], entry["source"], entry.get("estimate", False)
    possible = ", ".join(u for u, (_, m) in UNITS.items() if m == measures)
    if not isinstance(unit, str) or unit not in UNITS or UNITS[unit][1] != measures:
        raise TargetError(f"{where}: unit {unit!r} is not a unit of it.\n  Units: {possible}")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise TargetError(f"{where}: {value!r} is not a positive number")
    if value > _MOST or not _LEAST <= value * UNITS[unit][0] <= _MOST:
        raise TargetError(f"{where}: {value!r} {unit} is no figure of a machine")
    if measures == "count" and value != int(value):
        raise TargetError(f"{where}: {value!r} is not a whole number")
    if not isinstance(source, str) or source not in sources:
        raise TargetError(f"{where}: source {source!r} is not in [sources]: {', '.join(sources) or 'none'}")
    if not isinstance(sources[source], str):
        raise TargetError(f"{where}: source {source!r} is not a text")
    if not isinstance(estimate, bool):
        raise TargetError(f"{where}: estimate is true or false, not {estimate!r}")
    return Figure(value * UNITS[unit][0], f"{value} {unit}", sources[source], estimate)


@lru_cache(maxsize=1)  # a file of this package: it does not change while tilec runs
def _limits_table() -> dict[str, Any]:
    return _read((_package() / "limits.toml").read_text(encoding="utf-8"), "limits.toml")


def _limits(capability: str, where: str) -> Limits:
    table = _limits_table()
    if capability not in table:
        raise TargetError(f"{where}: unknown compute capability {capability!r}.\n  Known: {', '.join(table)}")
    row = table[capability]
    return Limits(
        compute_capability=capability,
        source=row["source"],
        shared_configs=tuple(k * 1024 for k in row["shared_configs_KiB"]),
        **{key: row[key] for key in _LIMIT_KEYS},
    )


def host() -> Target:
    """This computer's CPU: its file of measured figures where there is one, else what the system says with estimates.

    A file of another CPU is not used. Raises TargetError for a file that cannot be read.
    """
    found = detect()
    path = cache_file(found)
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        text = None
    except (OSError, UnicodeDecodeError) as e:
        raise TargetError(f"the measured figures in {path} can't be read: {e}.\n  {_AGAIN}") from None
    if text is not None:
        try:
            measured = parse(text, str(path))
        except TargetError as e:
            raise TargetError(f"{e}\n  {_AGAIN}") from None
        if measured.machine == found.key and measured.kind == "cpu":
            return measured
    return unmeasured()


def unmeasured() -> Target:
    """The same without the file."""
    return detected(defaults(), detect())


def defaults() -> Target:
    """The figures that stand for a CPU of which nothing is known."""
    return parse((_package() / "host.toml").read_text(encoding="utf-8"), "host.toml")


_AGAIN = "Measure again with `tilec target host --measure`, or remove the file"
