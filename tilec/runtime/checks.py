"""Values of options, checked: a wrong one is a ScheduleError that shows it and says what is possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilec.errors import ScheduleError
from tilec.targets.detect import cpus, detect

LONGEST = 1e6  # seconds: eleven days; the system's waits end not far above
MOST_THREADS = 4096


def check_whole(call: str, name: str, value: Any, least: int = 1, most: int | None = None) -> None:
    """ScheduleError unless it is a whole number within the bounds."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least or (most is not None and value > most):
        bounds = f">= {least}" if most is None else f"from {least} to {most}"
        raise ScheduleError(f"{call}({name}={shown(value)}): an integer {bounds}")


def check_seconds(call: str, name: str, value: Any) -> None:
    """ScheduleError unless it is a time > 0 that one can wait for."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LONGEST:
        raise ScheduleError(f"{call}({name}={shown(value)}): a number of seconds > 0, at most {LONGEST:,.0f}")


def check_flag(call: str, name: str, value: Any) -> None:
    """ScheduleError unless it is True or False."""
    if not isinstance(value, bool):
        raise ScheduleError(f"{call}({name}={shown(value)}): True or False")


def check_texts(call: str, name: str, values: Any) -> tuple[str, ...]:
    """A list of texts, none of them empty; a text alone is no list of its letters."""
    good = isinstance(values, Sequence) and not isinstance(values, str | bytes)
    if not good or not all(isinstance(v, str) and v and "\0" not in v for v in values):
        raise ScheduleError(f"{call}({name}={shown(values)}): a list of texts, as in ['-g', '-O1']")
    return tuple(values)


def check_cpus(call: str, name: str, value: Any) -> None:
    """ScheduleError for more threads than this process has CPUs: times of such a team say nothing."""
    most = max(cpus(), detect().cores)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        here = f": this process may use {most} CPU{'s' if most > 1 else ''}"
        raise ScheduleError(f"{call}({name}={shown(value)}): an integer from 1 to {most}{here}")


def shown(value: Any) -> str:
    """A value as people wrote it, cut where it is long."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
