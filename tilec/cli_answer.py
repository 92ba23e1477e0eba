"""What a command hands back, and how it tells about long work while it runs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, TextIO


@dataclass(frozen=True)
class Answer:
    """The same answer for a person and for a program; `code` is the exit status (1: the answer is no)."""

    text: str
    data: dict[str, Any]
    code: int = 0


@dataclass
class Progress:
    """One line on standard error, rewritten while work goes on; nothing where that is no terminal. Remembers what was done."""

    stream: TextIO
    quiet: bool = False
    done: list[str] = field(default_factory=list)
    _shown: int = 0
    _last: float = 0.0
    _now: str = ""

    def doing(self, text: str) -> None:
        """What is being done, for the summary only."""
        self._now = text

    def now(self, text: str) -> None:
        """What is being done; at most ten times a second on the screen."""
        self._now = text
        if self.quiet or not self.stream.isatty() or time.monotonic() - self._last < 0.1:
            return
        self._last = time.monotonic()
        self.stream.write("\r" + text.ljust(self._shown))
        self._shown = len(text)
        self.stream.flush()

    def finished(self, text: str) -> None:
        self.done.append(text)
        self._now = ""

    def end(self) -> None:
        """Clear the line."""
        if self._shown:
            self.stream.write("\r" + " " * self._shown + "\r")
            self._shown = 0
            self.stream.flush()

    def summary(self) -> str:
        parts = list(self.done) + ([f"stopped while {self._now}"] if self._now else [])
        return "; ".join(parts) if parts else "nothing was done or changed"
