"""How a buffer's cells lie inside its allocation, and in which type: layout, widen."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tilec.errors import InternalError, ScheduleError
from tilec.ir.dtypes import DTYPES
from tilec.ir.layouts import ARGUMENTS, address, allocated, digits_fault
from tilec.ir.program import Buffer, Copy, Layout, Program
from tilec.schedule.core import choice, integer, primitive
from tilec.schedule.names import find_buffer
from tilec.schedule.placement_uses import uses

MOST_CELLS = 1 << 20  # larger buffers rely on the rules alone


@primitive("storage")
def layout(
    program: Program, buffer: str, name: str, first: int | tuple[tuple[int, int, int], ...], second: int | None = None
) -> Program:
    """Lay a buffer's cells out differently; values and indices stay as they are.

    1. `buffer` is a cache or a placed temporary of at least one dimension (two for "xor").
    2. ("pad", dim, n): n >= 1 unused elements at the end of dimension dim. ("panels", dim, width): width >= 1.
       ("xor", row, column): two dimensions; the extent of `column` is constant and a power of two.
       ("digits", ((dim, divisor, modulus), …)): the digits (i_dim // divisor) mod modulus, outermost first, that together tell
       all indices apart; modulus 0 for the leading digit of a dimension, negative to run a digit backwards.
    3. Every cell has an address of its own inside the allocation (checked cell by cell up to a million).

        A_shared: bf16[64, 32] in shared    ->    A_shared: bf16[64, 32] in shared, pad(1, 8)
    """
    b = find_buffer(program, buffer)
    choice(name, "the layout", tuple(ARGUMENTS))
    if b.role == "param" or (b.role == "temp" and not b.placed):
        why = "is a parameter: its caller lays it out" if b.role == "param" else "is not placed yet: place it first"
        raise ScheduleError(f"'{b.name}' {why}")
    if name == "digits":
        new = Layout(name, _digits(b, first, second))
        _check_bijection(b, new)
        return _laid_out(program, b, new)
    if isinstance(first, tuple) or second is None:
        raise ScheduleError(f'"{name}" takes two integers, {ARGUMENTS[name][0]} and {ARGUMENTS[name][1]}')
    dims, amount = ((first, second), 0) if name == "xor" else ((first,), integer(second, ARGUMENTS[name][1]))
    for d, what in zip(dims, ARGUMENTS[name], strict=False):
        if integer(d, what, 0) >= len(b.shape):
            raise ScheduleError(f"there is no {what} {d}: '{b.name}' has the dimensions 0..{len(b.shape) - 1}")
    if name == "xor":
        _check_xor(b, first, second)
    new = Layout(name, (first, second if name == "xor" else amount))
    _check_bijection(b, new)
    return _laid_out(program, b, new)


@primitive("storage")
def widen(program: Program, buffer: str) -> Program:
    """Keep a copy in the arithmetic type of its elements, so that they are converted once, when they are copied.

    1. `buffer` is a cache that copies alone fill and nothing copies out of; no asynchronous copy fills it.
    2. Its dtype is a storage type (f8, f16, bf16, i8): the arithmetic type (f32, i32) holds every value exactly.

        W_scratch: bf16[512, 192] in scratch    ->    W_scratch: f32[512, 192] in scratch
    """
    b = find_buffer(program, buffer)
    wide = DTYPES[b.dtype].arithmetic
    if b.role != "cache":
        raise ScheduleError(f"'{b.name}' is no cache: cache_read makes one, of what is read often")
    if wide == b.dtype:
        raise ScheduleError(f"'{b.name}' is {b.dtype}, an arithmetic type, already")
    for u in uses(program, b.name):
        action = u.site.action
        if isinstance(action, Copy) and (not u.write or action.asynchronous):
            how = "copied asynchronously" if u.write else "copied out again"
            raise ScheduleError(f"'{b.name}' is {how}: it must keep its dtype")
        if u.write and not isinstance(action, Copy):
            raise ScheduleError(f"a statement writes '{b.name}', which rounds to {b.dtype}: it must keep its dtype")
    new = replace(b, dtype=wide)
    return replace(program, buffers=tuple(new if x.name == b.name else x for x in program.buffers))


def _laid_out(program: Program, b: Buffer, new: Layout) -> Program:
    return replace(program, buffers=tuple(replace(x, layout=new) if x.name == b.name else x for x in program.buffers))


def _digits(b: Buffer, given: Any, second: Any) -> tuple[int, ...]:
    example = '"digits" takes triples ((dim, divisor, modulus), …), outermost first'
    if second is not None or not isinstance(given, tuple) or not all(isinstance(t, tuple) and len(t) == 3 for t in given):
        raise ScheduleError(example)
    flat = tuple(n for t in given for n in t)
    if not all(isinstance(n, int) and not isinstance(n, bool) for n in flat):
        raise ScheduleError(f"{example}: integers only")
    fault = digits_fault(flat, len(b.shape))
    if fault:
        raise ScheduleError(f"{fault} ('{b.name}' has {len(b.shape)} dimensions)")
    return flat


def _check_xor(b: Buffer, row: int, column: int) -> None:
    if row == column:
        raise ScheduleError(f"xor needs two dimensions of '{b.name}', not {row} twice")
    extent = b.shape[column]
    if not extent.is_const or extent.const & (extent.const - 1):
        raise ScheduleError(
            f"the extent {extent} of dimension {column} of '{b.name}' is no constant power of two, which xor needs"
        )


def _check_bijection(b: Buffer, new: Layout) -> None:
    if not all(e.is_const for e in b.shape) or prod(e.const for e in b.shape) > MOST_CELLS:
        return
    extents = [e.const for e in b.shape]
    cells = np.indices(extents).reshape(len(extents), -1)
    found, room = address(new, extents, list(cells)), allocated(new, extents)
    if found.min() < 0 or found.max() >= room or np.bincount(found, minlength=room).max() > 1:
        raise InternalError(f"layout {new.name}{new.args} of {b.name}{extents} is no bijection")
