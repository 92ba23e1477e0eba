"""Measurements in one SQLite file: found again only for the same program, sizes, target, machine and versions."""

from __future__ import annotations

import hashlib
import json
import platform
import sqlite3
from types import TracebackType
from typing import Any

from tilec.errors import MeasureError

FORMAT = 1


def environment() -> str:
    """What a measurement depends on besides the program: this machine and the versions that produced it."""
    return json.dumps([platform.node(), platform.machine(), platform.processor(), platform.python_version(), FORMAT])


class Database:
    """Seconds by key. Every measurement is committed at once, so that an interruption loses none. path None: nothing is kept."""

    def __init__(self, path: str | None):
        self.path = path
        self.connection: sqlite3.Connection | None = None

    def __enter__(self) -> Database:
        if self.path is not None:
            try:
                self.connection = sqlite3.connect(self.path, timeout=10)
                self.connection.execute(
                    "create table if not exists measured (key text primary key, seconds real not null, wall real, about text)"
                )
                self.connection.execute("select key, seconds, wall, about from measured limit 1")
                self.connection.commit()
            except (sqlite3.Error, TypeError) as e:
                raise MeasureError(
                    f"database {self.path}: {e}. Give another path, or remove the file if it is no tilec database"
                ) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.connection is not None:
            self.connection.close()

    def get(self, key: tuple[Any, ...]) -> float | None:
        """The seconds kept under that key in this environment, or None."""
        if self.connection is None:
            return None
        row = self.connection.execute("select seconds from measured where key = ?", (digest(key),)).fetchone()
        return None if row is None else float(row[0])

    def put(self, key: tuple[Any, ...], seconds: float, wall: float) -> None:
        """Keep seconds; `wall` is how long the measurement took."""
        if self.connection is not None:
            about = json.dumps([key[0], key[1], key[2], environment()])
            self.connection.execute("insert or replace into measured values (?, ?, ?, ?)", (digest(key), seconds, wall, about))
            self.connection.commit()


def digest(key: tuple[Any, ...]) -> str:
    """The key, environment included, as a fixed-length text."""
    text = json.dumps([key, environment()], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()
