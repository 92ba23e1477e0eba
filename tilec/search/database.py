"""Measurements in one SQLite file: found again only for the same program, sizes, code, machine, compiler, flags and versions."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tilec.errors import MeasureError

FORMAT = 2  # of the file; 1 had no environment of its own and is read as empty
WAIT = 10.0  # seconds for another process that writes
_TABLE = """create table if not exists results (
    key text primary key, kernel text, sizes text, environment text, seconds real, spread real, samples integer,
    failure text, detail text, about text, made real)"""


@dataclass(frozen=True)
class Entry:
    """What is known of a candidate: seconds (median), spread (standard error of it), samples; or why it cannot be measured."""

    seconds: float | None
    spread: float = 0.0
    samples: int = 0
    failure: str | None = None
    detail: str = ""


@dataclass(frozen=True)
class Key:
    """kernel, sizes: for people. environment: machine, compiler, flags, versions. candidate: the program and its code, as
    text."""

    kernel: str
    sizes: Mapping[str, int]
    environment: Mapping[str, str]
    candidate: str

    @property
    def digest(self) -> str:
        """Everything as a fixed-length text."""
        text = json.dumps([FORMAT, self.kernel, dict(self.sizes), dict(self.environment), self.candidate], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def _sound(seconds: Any, spread: Any, samples: Any, failure: Any, detail: Any) -> bool:
    """Can a row be what `put` wrote?"""
    if not isinstance(detail, str) or not isinstance(samples, int) or not isinstance(spread, float):
        return False
    if failure is not None:
        return isinstance(failure, str) and seconds is None
    return isinstance(seconds, float) and 0 <= seconds < float("inf") and 0 <= spread < float("inf")


class Database:
    """Entries by key. Every one is committed at once, so that an interruption loses none. path None: nothing is kept on disk.

    What cannot be written (a locked file, a full disk) stays in memory, is tried again with the next entry and at the end, and is
    told by `unwritten`: a measurement is never lost to the run that made it. Raises MeasureError for a file that cannot be
    opened, is no database, is damaged, or was made by a newer tilec.
    """

    def __init__(self, path: str | None, wait: float | None = None):
        self.path, self.wait = path, WAIT if wait is None else wait
        self.connection: sqlite3.Connection | None = None
        self.memory: dict[str, Entry] = {}
        self.pending: dict[str, tuple[Any, ...]] = {}
        self.trouble: str | None = None

    def __enter__(self) -> Database:
        if self.path is not None:
            try:
                self.connection = sqlite3.connect(self.path, timeout=self.wait)
                (version,) = self.connection.execute("pragma user_version").fetchone()
                if version > FORMAT:
                    raise MeasureError(
                        f"database {self.path} was made by a newer tilec (format {version}, this one knows {FORMAT}). "
                        "Give another path, or update tilec"
                    )
                if version == 0:
                    self._refuse_strangers(self.connection)
                self.connection.execute(_TABLE)
                self.connection.execute("select key, seconds, spread, samples, failure, detail from results limit 1").fetchall()
                ((damage,),) = self.connection.execute("pragma quick_check(1)").fetchall()
                if damage != "ok":
                    raise ValueError(f"damaged: {' '.join(damage.split())}")
                if version < FORMAT:
                    self.connection.execute(f"pragma user_version = {FORMAT}")
                self.connection.commit()
            except (sqlite3.Error, TypeError, ValueError) as e:
                self._close()
                raise MeasureError(self._refusal(e)) from None
            except MeasureError:
                self._close()
                raise
        return self

    def _refuse_strangers(self, connection: sqlite3.Connection) -> None:
        """A file without a format number is empty, or of format 1 (one table, `measured`, by key); anything else is someone's."""
        tables = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table' order by name")]
        columns = {row[1] for row in connection.execute("pragma table_info(measured)")}
        if tables and not (tables == ["measured"] and "key" in columns):
            raise MeasureError(f"{self.path} holds tables of another program ({', '.join(tables)}). Give another path")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.pending and self.connection is not None:
            self._wait(self.wait)
        self._flush()
        self._close()

    def get(self, key: Key) -> Entry | None:
        """What is kept under that key, or None: also for an entry that makes no sense or that can't be read now (the file was
        sound when it was opened), which is then measured again."""
        digest = key.digest
        if digest in self.memory:
            return self.memory[digest]
        if self.connection is None:
            return None
        try:
            row = self.connection.execute(
                "select seconds, spread, samples, failure, detail from results where key = ?", (digest,)
            ).fetchone()
        except sqlite3.Error as e:
            self.trouble = str(e)
            return None
        return None if row is None or not _sound(*row) else Entry(*row)

    def put(self, key: Key, entry: Entry, about: Mapping[str, Any] | None = None) -> None:
        """Keep an entry, in place of an older one. about: plain data for people."""
        digest = key.digest
        self.memory[digest] = entry
        self.pending[digest] = (
            digest,
            key.kernel,
            json.dumps(dict(key.sizes)),
            json.dumps(dict(key.environment), sort_keys=True),
            entry.seconds,
            entry.spread,
            entry.samples,
            entry.failure,
            entry.detail,
            json.dumps(about or {}, default=str),
            time.time(),
        )
        self._flush()

    @property
    def unwritten(self) -> str | None:
        """How many entries are in memory only, and why; None where all are on disk, or no file was wanted."""
        if self.path is None or not self.pending:
            return None
        return f"{len(self.pending)} measurements could not be written to {self.path}: {self.trouble or 'interrupted'}"

    def _flush(self) -> None:
        if self.connection is None:
            return
        try:
            with self.connection:
                marks = ", ".join("?" * 11)
                self.connection.executemany(f"insert or replace into results values ({marks})", list(self.pending.values()))
        except sqlite3.Error as e:
            self.trouble = str(e)
            self._wait(min(self.wait, 0.1))  # the next one does not wait that long again, the last one does
        else:
            self.pending.clear()

    def _wait(self, seconds: float) -> None:
        assert self.connection is not None
        with contextlib.suppress(sqlite3.Error):
            self.connection.execute(f"pragma busy_timeout = {round(1000 * seconds)}")

    def _close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def _refusal(self, e: Exception) -> str:
        if "locked" in str(e):
            return f"database {self.path}: {e} by another process for more than {self.wait:g} s. Try again, or give another path"
        if "full" in str(e) or "I/O" in str(e):
            return f"database {self.path}: {e}. Make room, or give another path"
        return f"database {self.path}: {e}. Give another path, or remove the file if it is no tilec database"
