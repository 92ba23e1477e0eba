"""What the words on the command line mean: kernels and schedules from the library or a file, sizes as `M=1024`."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tilec.api import Kernel, Schedule, workload
from tilec.errors import LanguageError, ScheduleError, TilecError
from tilec.lang.kernel import Definition
from tilec.schedule.trace import Trace


@dataclass(frozen=True)
class Place:
    """`file.py:name`; `name` may be missing where the file holds only one candidate."""

    path: Path
    name: str | None

    def __str__(self) -> str:
        return f"{self.path}:{self.name}" if self.name else str(self.path)


def as_place(text: str) -> Place | None:
    """A place in a file, or None when the text is a plain name."""
    head, colon, tail = text.rpartition(":")
    if colon and head.endswith((".py", ".json")):
        return Place(Path(head), tail)
    return Place(Path(text), None) if text.endswith((".py", ".json")) else None


def _line_of(error: BaseException, path: Path) -> int | None:
    """The last line of `path` on the way to the error."""
    wanted = path.resolve()
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename).resolve() == wanted]
    return lines[-1] if lines else None


def guarded(path: Path, what: str, action: Any) -> Any:
    """action(), with whatever a person's file raises turned into one error that names the file and the line."""
    try:
        with contextlib.redirect_stdout(sys.stderr):  # what a file prints is no part of the answer
            return action()
    except TilecError as e:
        line = _line_of(e, path)
        if not (isinstance(e, LanguageError) and e.file):
            e.add_note(f"raised at {path}:{line}" if line else f"raised in {path}")
        raise
    except SyntaxError as e:
        raise LanguageError(f"not valid Python: {e.msg}", str(path), e.lineno or 1, e.offset or 1) from e
    except (Exception, SystemExit) as e:
        line = _line_of(e, path)
        place = f"{path}:{line}" if line else str(path)
        text = str(e).splitlines()[0] if str(e) else ""
        raise ScheduleError(f"{place}: {what} raised {type(e).__name__}{': ' + text if text else ''}") from e


def load_module(path: Path) -> ModuleType:
    if not path.is_file():
        raise LanguageError(f"no file {path}. A kernel is a library name (tilec list) or file.py:name")
    name = f"tilec_file_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LanguageError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look their module up
    loader = spec.loader
    guarded(path, "the file", lambda: loader.exec_module(module))
    return module


def pick(module: ModuleType, place: Place, kinds: tuple[type, ...] | None, what: str) -> Any:
    """The named object of the file, or the only one of its kinds."""
    kinds_text = f"a {what}"
    candidates = {
        k: v
        for k, v in vars(module).items()
        if (isinstance(v, kinds) if kinds else _may_schedule(v, module)) and not k.startswith("_")
    }
    if place.name is not None:
        if not hasattr(module, place.name):
            have = ", ".join(candidates) or "none"
            raise ScheduleError(f"{place.path} has no name '{place.name}'. Names in it that are {kinds_text}: {have}")
        return getattr(module, place.name)
    if len(candidates) == 1:
        return next(iter(candidates.values()))
    if not candidates:
        raise ScheduleError(f"{place.path} holds nothing that is {kinds_text}: write {place.path}:name")
    raise ScheduleError(f"{place.path} holds {', '.join(candidates)}: write {place.path}:{next(iter(candidates))}")


def _may_schedule(value: object, module: ModuleType) -> bool:
    """A schedule, or a function that the file itself defines."""
    return isinstance(value, Schedule) or (isinstance(value, FunctionType) and value.__module__ == module.__name__)


def load_kernel(text: str) -> Kernel | Schedule:
    """A kernel of the library or of a file; a file's name may also be a finished schedule."""
    place = as_place(text)
    if place is None:
        return workload(text)
    found = pick(load_module(place.path), place, (Kernel, Schedule, Definition), "kernel or a schedule")
    if isinstance(found, Definition):  # made by tilec.lang or the builder
        return Kernel(found)
    if isinstance(found, Kernel | Schedule):
        return found
    raise ScheduleError(f"{place} is a {type(found).__name__}, neither a kernel (@tilec.kernel) nor a schedule")


def load_schedule(kernel: Kernel | Schedule, text: str | None, sizes: dict[str, int], **options: Any) -> Schedule:
    """The kernel's schedule: its own, or what `text` makes of it.

    `text` names a trace (`.json`), a Schedule, or a function that gets a fresh Schedule and returns one.
    """
    if isinstance(kernel, Schedule):
        if text is not None:
            raise ScheduleError(f"'{kernel.program.name}' is a schedule already: name its kernel to apply another one")
        return kernel
    start = kernel.schedule(**{n: v for n, v in sizes.items() if n in kernel.program.sizes}, **options)
    if text is None:
        return start
    place = as_place(text)
    if place is None:
        raise ScheduleError(f"'{text}' is no schedule: write file.py:name or trace.json")
    if place.path.suffix == ".json":
        if not place.path.is_file():
            raise ScheduleError(f"no file {place.path}")
        return guarded(place.path, "the trace", lambda: Trace.from_json(place.path.read_text()).apply(start))
    found = pick(load_module(place.path), place, None, "function from schedule to schedule")
    if isinstance(found, Schedule):
        return _of(kernel, found, f"{place}")
    if not callable(found):
        raise ScheduleError(f"{place} is a {type(found).__name__}, neither a schedule nor a function that returns one")
    made = guarded(place.path, f"{getattr(found, '__name__', place.name)}(schedule)", lambda: found(start))
    if not isinstance(made, Schedule):
        raise ScheduleError(f"{place} returned a {type(made).__name__}, not a schedule: does it end in `return s`?")
    return _of(kernel, made, f"what {place} returned")


def _of(kernel: Kernel, s: Schedule, what: str) -> Schedule:
    """`s`, which must schedule the kernel that was named."""
    same = s.kernel is not None and (s.kernel is kernel or str(s.kernel.program) == str(kernel.program))
    if not same:
        raise ScheduleError(f"{what} is a schedule of {s.program.name}, not of {kernel.name}: start from the given schedule")
    return s


def parse_sizes(words: list[str]) -> dict[str, int]:
    """`["M=1024", "N=64"]`; `1k`, `1_000` and `2**10` are not guessed at."""
    out: dict[str, int] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            raise ScheduleError(f"'{word}' is no size: write M=1024")
        try:
            number = int(value)
        except ValueError:
            raise ScheduleError(f"{word}: '{value}' is no integer: write {name}=1024") from None
        if number < 1:
            raise ScheduleError(f"{word}: a size is >= 1")
        if number >= 2**31:
            raise ScheduleError(f"{word}: a size is below 2^31")
        if out.setdefault(name, number) != number:
            raise ScheduleError(f"size {name} is given twice: {out[name]} and {number}")
    return out
