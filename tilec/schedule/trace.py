"""The trace: the steps that made a schedule, as data. To Python text and JSON and back, and onto another kernel."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tilec.errors import ScheduleError
from tilec.schedule.core import call_text, find, normalise


class Schedulable(Protocol):
    """Anything with the primitives as methods: a Schedule."""

    def apply(self, name: str, /, *args: Any, **kwargs: Any) -> Schedulable: ...


S = TypeVar("S", bound=Schedulable)


@dataclass(frozen=True)
class Step:
    """One primitive with its arguments: None, bool, int, str and tuples of these."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = field(default=())

    @staticmethod
    def of(name: str, args: Any = (), kwargs: Any = None) -> Step:
        """A step with its arguments normalised; ScheduleError for an argument that no trace can hold."""
        return Step(name, tuple(normalise(a) for a in args), tuple((k, normalise(v)) for k, v in (kwargs or {}).items()))

    def __str__(self) -> str:
        return call_text(self.name, self.args, dict(self.kwargs))


@dataclass(frozen=True)
class Trace:
    """Steps in order. `str(trace)` is the Python text."""

    steps: tuple[Step, ...] = ()

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def __getitem__(self, n: int) -> Step:
        return self.steps[n]

    def then(self, step: Step) -> Trace:
        """The trace with one more step."""
        return Trace((*self.steps, step))

    def __str__(self) -> str:
        return self.to_python()

    def to_python(self, variable: str = "s") -> str:
        """One line per step, `s = s.split("i", 64)`: runs as it stands where `s` is a Schedule."""
        return "\n".join(f"{variable} = {variable}.{step}" for step in self.steps)

    def to_json(self) -> str:
        """`[{"name": …, "args": […], "kwargs": {…}}, …]`, keys in a fixed order."""
        return json.dumps([{"name": s.name, "args": s.args, "kwargs": dict(s.kwargs)} for s in self.steps])

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace that `to_json` wrote; ScheduleError when the text is none."""
        if not isinstance(text, str | bytes):
            raise ScheduleError(f"trace: JSON is a text, not {text!r}")
        try:
            data = json.loads(text)
        except json.JSONDecodeError as e:
            raise ScheduleError(f"trace: no JSON (line {e.lineno}, column {e.colno}): {e.msg}") from None
        except (RecursionError, UnicodeDecodeError) as e:
            raise ScheduleError(f"trace: no JSON: {e}") from None
        if not isinstance(data, list):
            raise ScheduleError("trace: the JSON must be a list of steps {name, args, kwargs}")
        steps = []
        for n, item in enumerate(data):
            if not isinstance(item, dict) or not isinstance(item.get("name"), str) or set(item) - {"name", "args", "kwargs"}:
                raise ScheduleError(f"trace: step {n} must be an object with the keys name, args, kwargs")
            args, kwargs = item.get("args", []), item.get("kwargs", {})
            if not isinstance(args, list) or not isinstance(kwargs, dict):
                raise ScheduleError(f"trace: step {n}: args must be a list and kwargs an object")
            find(item["name"])
            steps.append(Step.of(item["name"], args, kwargs))
        return Trace(tuple(steps))

    @staticmethod
    def from_python(text: str) -> Trace:
        """The steps in Python text: lines `s = s.split(…)`, or one chain `s.split(…).reorder(…)`, literal arguments only.

        The text is parsed, never executed. ScheduleError names the line that is no step.
        """
        if not isinstance(text, str):
            raise ScheduleError(f"trace: Python is a text, not {text!r}")
        try:
            module = ast.parse(text)
        except SyntaxError as e:
            raise ScheduleError(f"trace: no Python (line {e.lineno}): {e.msg}") from None
        steps: list[Step] = []
        for line in module.body:
            if not isinstance(line, ast.Assign | ast.Expr):
                raise ScheduleError(f"trace: line {line.lineno} is no step: s = s.primitive(arguments)")
            steps += _chain(line.value)
        return Trace(tuple(steps))

    def apply(self, schedule: S) -> S:
        """Replay every step on another schedule (of this kernel or another one); errors are those of the primitives."""
        for step in self.steps:
            schedule = schedule.apply(step.name, *step.args, **dict(step.kwargs))  # type: ignore[assignment]
        return schedule


def _chain(node: ast.expr) -> list[Step]:
    """s.a(…).b(…) as [a, b]; the schedule itself is a name, possibly called (`kernel.schedule(M=4)`)."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr != "schedule":
        before = _chain(node.func.value)
        find(node.func.attr)
        try:
            args = [ast.literal_eval(a) for a in node.args]
            kwargs = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg is not None}
            if len(kwargs) < len(node.keywords):
                raise ValueError("**")
        except ValueError:
            raise ScheduleError(f"trace: line {node.lineno}: the arguments of {node.func.attr} must be literals") from None
        return [*before, Step.of(node.func.attr, args, kwargs)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    base: ast.expr = node
    while isinstance(base, ast.Attribute):
        base = base.value
    if isinstance(base, ast.Name):
        return []
    raise ScheduleError(f"trace: line {node.lineno} is no step: s = s.primitive(arguments)")
