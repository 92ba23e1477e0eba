"""Numbers for the sizes of a program: those that a schedule binds, and those that a cost is asked at."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

from tilec.errors import ScheduleError
from tilec.ir.affine import Constraint
from tilec.ir.program import Program

LARGEST_SIZE = 2**31 - 1  # a size is an i32 value


def check_numbers(program: Program, sizes: Mapping[str, Any], call: str) -> dict[str, int]:
    """The sizes given to `call` as ints, without those that are bound to the same number already.

    ScheduleError for a name that is no size, a number that is no integer from 1 to 2^31 - 1, another number than the bound one,
    and numbers that an assumption of the kernel excludes.
    """
    bound = dict(program.bound)
    out: dict[str, int] = {}
    for name, value in sizes.items():
        if name not in program.sizes and name not in bound:
            known = ", ".join((*program.sizes, *bound)) or "none"
            raise ScheduleError(f"{call}({name}={value!r}): no size '{name}'. Sizes of {program.name}: {known}.")
        try:
            number = None if isinstance(value, bool) else index(value)
        except TypeError:
            number = None
        if number is None:
            raise ScheduleError(f"{call}({name}={value!r}): a size must be an integer, not {type(value).__name__}")
        if not 1 <= number <= LARGEST_SIZE:
            raise ScheduleError(f"{call}({name}={number}): a size must be between 1 and 2^31 - 1")
        if name not in bound:
            out[name] = number
        elif bound[name] != number:
            raise ScheduleError(f"{call}({name}={number}): the size {name} is already bound to {bound[name]}")
    for c in program.where:
        if c.subs(out).expr.is_const and not c.subs(out).holds({}):
            given = ", ".join(f"{n}={out[n]}" for n in sorted(c.names) if n in out)
            raise ScheduleError(f"{call}({given}): the kernel assumes {assumption_text(c)}")
    return out


def assumption_text(c: Constraint) -> str:
    """`M % 64 == 0` for an equality that is a remainder, else the plain constraint."""
    text = str(c.expr)
    return f"{text} == 0" if c.equal and "%" in text else str(c)
