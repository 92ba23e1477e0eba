"""Files that commands write."""

from __future__ import annotations

from pathlib import Path

from tilec.errors import ScheduleError


def written(path: Path, text: str) -> str:
    """Write a text file; ScheduleError where that fails."""
    try:
        path.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
    except OSError as e:
        raise ScheduleError(f"emit: {path} can't be written: {e.strerror or e}") from None
    return f"{path}: {len(text.splitlines()):,} lines"
