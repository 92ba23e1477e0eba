"""Loops, renumbering iterations: skew, shift, reverse."""

from __future__ import annotations

from dataclasses import replace

from tilec.errors import ScheduleError
from tilec.ir.affine import Aff
from tilec.ir.program import Loop, Program
from tilec.ir.tree import loops, subs
from tilec.schedule.core import SIZE_LIMIT, primitive
from tilec.schedule.names import display, find_loop, loop_at
from tilec.schedule.nest import range_text, swap


@primitive("loops")
def skew(program: Program, loop: str, by: str, factor: int = 1) -> Program:
    """Number a loop's iterations from `factor` times an enclosing loop's variable on.

    1. `by` stands around `loop`.
    2. `factor` is an integer other than 0.

        for i in 0..N:                for i in 0..N:
            for j in 0..M: S[i,j] ->      for j in i..M + i: S[i, j - i]
    The order does not change: a following reorder or tile is what the skew makes legal.
    """
    position, outer = find_loop(program, loop), find_loop(program, by)
    node = loop_at(program, position)
    factor = _whole(factor, "factor")
    if outer == position or outer != position[: len(outer)]:
        around = [display(program, p) for p, _ in loops(program.body) if p != position and p == position[: len(p)]]
        raise ScheduleError(f"by: '{by}' is not around '{loop}'. Around it: {', '.join(around) or 'no loop'}")
    if factor == 0:
        raise ScheduleError("factor must not be 0")
    return swap(program, position, _moved(node, Aff.of(loop_at(program, outer).var) * factor))


@primitive("loops")
def shift(program: Program, loop: str, amount: int) -> Program:
    """Add a constant to a loop's variable.

    1. `amount` is an integer.

        for i in 0..N: S[i]    ->    for i in 2..N + 2: S[i - 2]
    """
    position = find_loop(program, loop)
    return swap(program, position, _moved(loop_at(program, position), Aff(_whole(amount, "amount"))))


def _moved(node: Loop, distance: Aff) -> Loop:
    return replace(
        node,
        lower=tuple(e + distance for e in node.lower),
        upper=tuple(e + distance for e in node.upper),
        body=subs(node.body, {node.var: Aff.of(node.var) - distance}),
    )


@primitive("loops")
def reverse(program: Program, loop: str) -> Program:
    """Run a loop's iterations backwards.

    1. The loop is not pipelined.

        for i in 0..N: S[i]    ->    for i in 0..N: S[N - i - 1]
    With several bounds on one side the variable is negated instead: i in max(a, b)..c becomes i in 1 - c..min(1 - a, 1 - b).
    """
    position = find_loop(program, loop)
    node = loop_at(program, position)
    if node.kind == "pipelined":
        raise ScheduleError(f"'{loop}' ({range_text(node)}) is pipelined: reverse it before it is pipelined")
    if len(node.lower) == len(node.upper) == 1:
        mirrored = node.lower[0] + node.upper[0] - 1 - node.var
        return swap(program, position, replace(node, body=subs(node.body, {node.var: mirrored})))
    new = replace(
        node,
        lower=tuple(1 - e for e in node.upper),
        upper=tuple(1 - e for e in node.lower),
        body=subs(node.body, {node.var: -Aff.of(node.var)}),
    )
    return swap(program, position, new)


def _whole(value: object, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ScheduleError(f"{what} must be an integer, not {value!r}")
    if abs(value) >= SIZE_LIMIT:
        raise ScheduleError(f"{what} must be below 2^31 in size, not {value}")
    return value
