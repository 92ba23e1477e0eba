"""An emitted Triton file as a module. Triton reads the source of its kernels back, so the text has to lie in a file."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import types
from pathlib import Path


def load(text: str, folder: Path) -> types.ModuleType:
    """The module of a text, made once per process."""
    name = f"emitted_{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    if name in sys.modules:
        return sys.modules[name]
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[name] = module
    return module
