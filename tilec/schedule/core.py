"""The registry of primitives and the one skeleton that runs them all.

A primitive is a pure function `f(program, *args, **kwargs) -> Program`, registered by `@primitive("family")` under its own name.
It only rewrites: it checks its numbered preconditions (raising ScheduleError with the text after `name(args): `, which the
skeleton puts in front) and returns the new tree. Everything that is common is done here, once:

    normalise arguments -> f -> default placement -> barriers -> tree verifier          `rewrite`
    ... -> proof -> LegalityError unless legal                                          `apply`
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from operator import index
from typing import Any, TypeVar

from tilec.errors import InternalError, LegalityError, ScheduleError
from tilec.ir.program import Barrier, Node, Program
from tilec.ir.tree import Body, sites, transform
from tilec.ir.verify import verify
from tilec.poly.barriers import insert_barriers
from tilec.poly.bounds import NotConvex
from tilec.poly.isl import Memory, OutOfBudget
from tilec.poly.prove import prove, prove_step
from tilec.poly.verdict import Verdict
from tilec.schedule.defaults import derive
from tilec.schedule.refusal import permission_needed, permission_text, refuse

T = TypeVar("T")

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
    keeps_barriers: bool = False  # it is about barriers: the inserted ones are neither hidden from it nor derived after it


# Filled by the decorator while the modules of the families are imported, never later.
_REGISTERED: dict[str, Primitive] = {}


def primitive(family: str, keeps_barriers: bool = False) -> Callable[[Function], Function]:
    """Register a pure `f(program, *args, **kwargs) -> Program` under its own name."""

    def register(f: Function) -> Function:
        signature = inspect.signature(f)
        parameters = list(signature.parameters.values())[1:]
        assert f.__name__ not in _REGISTERED, f.__name__
        _REGISTERED[f.__name__] = Primitive(
            f.__name__, family, f, signature.replace(parameters=parameters), inspect.getdoc(f) or "", keeps_barriers
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
    """An argument as Python text, strings in double quotes."""
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


def rewrite(
    program: Program,
    name: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    memory: Memory | None = None,
) -> Program:
    """Run one primitive without a proof: the new program, or ScheduleError.

    The result is well formed but may compute something else: prove it before it is shown, priced or run.
    memory: what earlier steps of the same chain found.
    """
    p = find(name)
    kwargs = kwargs or {}
    try:
        args = [normalise(a) for a in args]
        kwargs = {k: normalise(v) for k, v in kwargs.items()}
        try:
            p.signature.bind(*args, **kwargs)
        except TypeError as e:
            raise ScheduleError(f"{e}. It is called as {name}{shape(p.signature)}") from None
        new = p.function(program if p.keeps_barriers else without_inserted(program), *args, **kwargs)
        return finish(new, p.keeps_barriers, memory)
    except ScheduleError as e:
        raise ScheduleError(f"{call_text(name, args, kwargs)}: {e}") from None
    except NotConvex as e:
        raise ScheduleError(f"{call_text(name, args, kwargs)}: no loops with explicit bounds run these iterations: {e}") from None
    except OutOfBudget as e:
        reason = f"deriving bounds or barriers ran out of isl operations ({e}); bind sizes, or use smaller steps"
        raise LegalityError(f"{call_text(name, args, kwargs)}: not proved: {reason}", None, reason) from None


def finish(program: Program, keeps_barriers: bool = False, memory: Memory | None = None) -> Program:
    """What every step derives again: default placement, inserted barriers; then the tree verifier."""
    program = derive(program)
    if not keeps_barriers:
        program = insert_barriers(program, memory=memory)
    try:
        verify(program)
    except InternalError as e:
        # rules that say what a GPU can run, not what a tree is: a step that breaks one was asked for too late or too early
        found = re.match(r"verify: (axis|block|sync|shared): ([^\n]*)", str(e))
        if found is None:
            raise
        raise ScheduleError(f"the result could not run: {found[2]}. Possible: do it before the loops are bound") from None
    return program


def without_inserted(program: Program) -> Program:
    """The program without the barriers that tilec inserted: primitives see the person's tree."""
    if not any(isinstance(s.action, Barrier) and s.action.inserted for s in sites(program.body)):
        return program

    def f(node: Node) -> Body:
        return () if isinstance(node, Barrier) and node.inserted else (node,)

    return replace(program, body=transform(program.body, f))


def apply(
    program: Program,
    name: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    budget: int | None = None,
    memory: Memory | None = None,
) -> tuple[Program, Verdict]:
    """Run one primitive and prove the result: (new program, its verdict), or ScheduleError, or LegalityError.

    memory: what earlier steps of the same chain found; it gains what this one finds.
    """
    memory = memory or Memory()
    new = rewrite(program, name, args, kwargs, memory)
    verdict = prove_step(program.source, new, budget, memory)
    if verdict.status != "legal":
        values = tuple(normalise(a) for a in args)
        named = {k: normalise(v) for k, v in (kwargs or {}).items()}
        sums = permission_needed(new, budget) if verdict.status == "illegal" else ()
        advice = None
        if verdict.status == "illegal" and not sums:
            advice = alternative(program, name, values, named, budget)
        raise refuse(call_text(name, values, named), program, verdict, advice, sums)
    return new, verdict


def alternative(program: Program, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], budget: int | None) -> str | None:
    """A legal way to what was refused, when one is cheap to try: skew before reorder, split_reduction before parallel loops."""
    first, permission = None, ""
    if name == "reorder" and len(args) == 2:
        first = ("skew", (args[0],), {"by": args[1]})
    elif name in ("parallel", "bind", "vectorize") and args and isinstance(args[0], str):
        first = ("split_reduction", (args[0],), {})
    if first is None:
        return None
    try:
        new = rewrite(rewrite(program, *first), name, args, kwargs)
    except (ScheduleError, LegalityError):
        return None
    if prove(program.source, new, budget).status != "legal":
        sums = permission_needed(new, budget)
        if not sums:
            return None
        permission = f" and with {permission_text(sums)}"
    return f"legal after {call_text(*first)}{permission}: {call_text(name, args, kwargs)}"


def shape(signature: inspect.Signature) -> str:
    """A signature as a person reads it, without annotations."""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(inspect.Signature(bare))


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
        raise ScheduleError(f"'{double[0]}' is named twice")
    return given


def choice(value: Any, what: str, allowed: Sequence[T]) -> T:
    """`value` if it is one of `allowed`, else ScheduleError naming `what`."""
    if value not in allowed:
        raise ScheduleError(f"{what} must be one of {', '.join(repr(a) for a in allowed)}, not {value!r}")
    return value
