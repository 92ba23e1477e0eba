"""What the operating system says of this CPU: cores, caches, instruction sets. By Linux's files; elsewhere only the cores."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from dataclasses import asdict, dataclass
from pathlib import Path

# instruction sets that schedules and rates depend on, by the name that Linux prints, in the order they are shown
FEATURES = {
    "avx": "avx",
    "avx2": "avx2",
    "fma": "fma",
    "f16c": "f16c",
    "avx_vnni": "avx_vnni",
    "avx512f": "avx512f",
    "avx512bw": "avx512bw",
    "avx512dq": "avx512dq",
    "avx512vl": "avx512vl",
    "avx512_vnni": "avx512_vnni",
    "avx512_bf16": "avx512_bf16",
    "avx512_fp16": "avx512_fp16",
    "asimd": "neon",
    "asimddp": "dotprod",
    "bf16": "bf16",
    "i8mm": "i8mm",
    "sve": "sve",
}
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}


@dataclass(frozen=True)
class Cache:
    """One level as one core sees it: bytes, associativity (0: not said), bytes of a line, how many usable cores share it."""

    level: int
    size: int
    ways: int
    line: int
    shared_by: int


@dataclass(frozen=True)
class Detected:
    """model: the CPU's own name. cores: physical ones this process may use. clock: Hz, None where nothing says it."""

    model: str
    architecture: str
    cores: int
    features: tuple[str, ...]
    caches: tuple[Cache, ...]
    clock: float | None

    @property
    def key(self) -> str:
        """Twelve characters that tell this CPU, as far as this process may use it, from others; the clock of the moment and the
        name of the computer don't count."""
        facts = {k: v for k, v in asdict(self).items() if k != "clock"}
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register that the features name (16 where they say nothing: SSE2, NEON)."""
        if "avx512f" in self.features:
            return 64
        return 32 if "avx" in self.features else 16

    @property
    def vector_registers(self) -> int:
        """Vector registers that code can name."""
        return 32 if "avx512f" in self.features or self.architecture in ("aarch64", "arm64") else 16

    def cache(self, level: int) -> Cache | None:
        """That level, or None."""
        return next((c for c in self.caches if c.level == level), None)


def detect(root: Path = Path("/")) -> Detected:
    """This computer; `root` holds `proc` and `sys`."""
    text = _read(root / "proc/cpuinfo")
    field = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in text.splitlines()) if v}
    flags = set((field.get("flags") or field.get("Features") or "").split())
    usable = _usable()
    folders = [root / f"sys/devices/system/cpu/cpu{n}" for n in usable]
    siblings = {_read(f / "topology/thread_siblings_list") or f.name for f in folders}
    quota = _quota(root)
    cores = max(1, min(len(siblings), quota or len(siblings)))
    part = "/".join(field[k] for k in ("CPU implementer", "CPU part", "CPU variant") if k in field)
    return Detected(
        model=field.get("model name") or part or platform.processor() or "unknown",
        architecture=platform.machine(),
        cores=cores,
        features=tuple(name for flag, name in FEATURES.items() if flag in flags),
        caches=_caches(folders[0], set(usable)),
        clock=_clock(folders[0], field),
    )


def cpus() -> int:
    """How many logical CPUs this process may run on."""
    return len(_usable())


def _usable() -> list[int]:
    """Logical CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _quota(root: Path) -> int | None:
    """Whole CPUs that a control group grants, rounded up; None without a limit."""
    limit, _, period = _read(root / "sys/fs/cgroup/cpu.max").partition(" ")
    if limit.isdigit() and period.strip().isdigit() and int(period):
        return max(1, -(-int(limit) // int(period)))
    return None


def _caches(cpu: Path, usable: set[int]) -> tuple[Cache, ...]:
    found = {}
    for folder in sorted((cpu / "cache").glob("index*")):
        level, size = _read(folder / "level"), re.fullmatch(r"(\d+)([KMG]?)", _read(folder / "size"))
        if _read(folder / "type") == "Instruction" or not level.isdigit() or size is None:
            continue
        ways, line = (_number(folder / n) for n in ("ways_of_associativity", "coherency_line_size"))
        sharing = len(_cpu_list(_read(folder / "shared_cpu_list")) & usable)
        found[int(level)] = Cache(int(level), int(size[1]) * _UNITS[size[2]], ways, line or 64, max(1, sharing))
    return tuple(found[n] for n in sorted(found))


def _cpu_list(text: str) -> set[int]:
    """`0-3,8` as numbers."""
    out: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        if first.isdigit() and (last or first).isdigit():
            out |= set(range(int(first), int(last or first) + 1))
    return out


def _clock(cpu: Path, field: dict[str, str]) -> float | None:
    most = _number(cpu / "cpufreq/cpuinfo_max_freq")  # kHz
    if most:
        return most * 1e3
    try:
        return float(field["cpu MHz"]) * 1e6 or None
    except (KeyError, ValueError):
        return None


def _number(path: Path) -> int:
    text = _read(path)
    return int(text) if text.isdigit() else 0


def _read(path: Path) -> str:
    """A small text file, "" where it is missing or unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
