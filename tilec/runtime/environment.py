"""What a measured time depends on besides the program: machine, compiler, flags, threads, versions."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping

from tilec.runtime.backends import Options, find
from tilec.targets.detect import detect


def environment(backend: str, options: Options) -> Mapping[str, str]:
    """By name. `machine` is the CPU's key (its model, cores, caches and instruction sets), not the computer's name."""
    found = detect()
    return {
        "machine": found.key,
        "cpu": found.model,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "tilec": sys.modules["tilec"].__version__,
        "backend": backend,
        "threads": str(options.threads),
        **find(backend).facts(options),
    }


def digest(text: str) -> str:
    """A short name of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
