"""A progress bar on a terminal; nothing where there is none."""

from __future__ import annotations

from types import TracebackType
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress


class Bar:
    """`bar(stage, done, total)` while a search runs, as `tune(progress=…)` calls it; gone when the `with` block ends."""

    def __init__(self, stream: TextIO, quiet: bool = False, title: str = "") -> None:
        self.title = title
        self.bar: RichProgress | None = None
        self.task: TaskID | None = None
        if not quiet and stream.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self.bar = RichProgress(*columns, console=Console(file=stream), transient=True)

    def __enter__(self) -> Bar:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task(self.title, total=None)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, description=f"{self.title}: {stage}", completed=done, total=max(1, total))
