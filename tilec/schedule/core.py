"""The registry of primitives and the one skeleton that runs them all.

A primitive is a pure function `f(program, *args, **kwargs) -> Program`, registered by `@primitive("family")` under its own name.
It only rewrites: it checks its numbered preconditions (raising ScheduleError with the text after `name(args): `, which the
skeleton puts in front) and returns the new tree. Everything that is common is done here, once:

    normalise arguments -> f -> default placement -> barriers -> tree verifier          `rewrite`
    ... -> proof -> LegalityError unless legal                                          `apply`
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from operator import index
from typing import Any

from tilec.errors import ScheduleError
from tilec.ir.program import Program

Function = Callable[..., Program]
SIZE_LIMIT = 2**31


@dataclass(frozen=True)
class Primitive:
    """A registered rewrite; `signature` is that of the function without its leading program."""

    name: str
    family: str
    function: Function
    signature: inspect.Signature
    doc: str


# Filled by the decorator while the modules of the families are imported, never later.
_REGISTERED: dict[str, Primitive] = {}


def primitive(family: str) -> Callable[[Function], Function]:
    """Register a pure `f(program, *args, **kwargs) -> Program` under its own name."""

    def register(f: Function) -> Function:
        signature = inspect.signature(f)
        parameters = list(signature.parameters.values())[1:]
        assert f.__name__ not in _REGISTERED, f.__name__
        _REGISTERED[f.__name__] = Primitive(
            f.__name__, family, f, signature.replace(parameters=parameters), inspect.getdoc(f) or ""
        )
        return f

    return register


def primitives() -> dict[str, Primitive]:
    """Every primitive by name (a copy)."""
    return dict(_REGISTERED)


def find(name: str) -> Primitive:
    """The primitive of that name, else ScheduleError with the closest names."""
    if name in _REGISTERED:
        return _REGISTERED[name]
    close = get_close_matches(name, _REGISTERED, 1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    raise ScheduleError(f"no primitive '{name}'. Primitives: {', '.join(sorted(_REGISTERED))}.{hint}")


def normalise(value: Any) -> Any:
    """Arguments as a trace holds them: None, bool, int, str and tuples of these."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Sequence | set | frozenset):
        return tuple(normalise(v) for v in (sorted(value) if isinstance(value, set | frozenset) else value))
    try:
        return index(value)  # NumPy's integers
    except TypeError:
        raise ScheduleError(f"{value!r} is no argument of a primitive: integers, strings, None and tuples of them are") from None


def argument_text(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, tuple):
        inner = ", ".join(map(argument_text, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def call_text(name: str, args: Iterable[Any], kwargs: Mapping[str, Any]) -> str:
    """`split("Y.i", 64, into=("io", "ii"))`, valid Python."""
    parts = [argument_text(a) for a in args] + [f"{k}={argument_text(v)}" for k, v in kwargs.items()]
    return f"{name}({', '.join(parts)})"


def rewrite(program: Program, name: str, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Program:
    """Run one primitive without a proof: the new program, or ScheduleError.

    The result is well formed but may compute something else: prove it before it is shown, priced or run.
    """
    p = find(name)
    kwargs = kwargs or {}
    try:
        args = [normalise(a) for a in args]
        kwargs = {k: normalise(v) for k, v in kwargs.items()}
        try:
            p.signature.bind(*args, **kwargs)
        except TypeError as e:
            raise ScheduleError(f"{e}. It is called as {name}{p.signature}".replace(" -> 'Program'", "")) from None
        new = p.function(program, *args, **kwargs)
    except ScheduleError as e:
        raise ScheduleError(f"{call_text(name, args, kwargs)}: {e}") from None
    return finish(new)


def finish(program: Program) -> Program:
    """What every step derives again: default placement, inserted barriers; then the tree verifier."""
    return program


def integer(value: Any, what: str, least: int = 1) -> int:
    """`value` as an int >= least, else ScheduleError naming `what`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScheduleError(f"{what} must be an integer >= {least}, not {value!r}")
    if value < least:
        raise ScheduleError(f"{what} must be >= {least}, not {value}")
    if value >= SIZE_LIMIT:
        raise ScheduleError(f"{what} must be below 2^31, not {value}")
    return value


def names(value: Any, what: str) -> tuple[str, ...]:
    """One name or several, as a tuple; they must differ."""
    given = (value,) if isinstance(value, str) else value
    if not isinstance(given, tuple) or not given or not all(isinstance(v, str) for v in given):
        raise ScheduleError(f"{what} must be a name or a tuple of names, not {value!r}")
    double = sorted({v for v in given if given.count(v) > 1})
    if double:
        raise ScheduleError(f"{what} names '{double[0]}' twice")
    return given


def choice(value: Any, what: str, allowed: Sequence[str]) -> str:
    if value not in allowed:
        raise ScheduleError(f"{what} must be one of {', '.join(repr(a) for a in allowed)}, not {value!r}")
    return value
