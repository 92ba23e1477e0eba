"""A structure: a way to schedule in which only tile sizes are open. Legality and cost formulas are found once for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilec.cost.bulk import Formulas, formulas
from tilec.cost.separable import Markers, NotSeparable
from tilec.errors import LegalityError, ResourceError, ScheduleError, TilecError
from tilec.ir.affine import Aff, Constraint
from tilec.ir.program import Guard, Loop, Program
from tilec.ir.tree import Body
from tilec.poly.verdict import Verdict
from tilec.schedule.refusal import refuse
from tilec.schedule.schedule import Schedule
from tilec.schedule.sizes import bind
from tilec.search.space import Knobs, Space
from tilec.search.unproved import Memo, unproved

Apply = Callable[[Schedule, Mapping[str, Any]], Schedule]


@dataclass(frozen=True)
class Structure:
    """name: for tables. choices: what is fixed. space: the tile sizes that are left. apply: schedule and knobs -> schedule.
    fits: is a candidate worth pricing?"""

    name: str
    choices: Mapping[str, Any]
    space: Space
    apply: Apply
    sentence: str = "the schedule as given"
    fits: Callable[[Mapping[str, Any]], bool] = lambda knobs: True


@dataclass(frozen=True)
class Judged:
    """A structure with what is known of it: its formulas, or why there are none; why it is refused, if it is."""

    structure: Structure
    formulas: Formulas | None
    apart: str | None  # why candidates have to be priced one by one
    refusal: TilecError | None
    skeleton: Any = None  # the loops that the formulas were derived for


def candidate(judged: Judged, opened: Schedule, bound: Schedule, knobs: Mapping[str, Any], memo: Memo) -> Schedule:
    """One candidate at numbers for all sizes, unproved, with the loops that its structure was judged by.

    A function may do something else where a tile covers the whole array; then sizes are put into the schedule with open sizes.
    """
    made = unproved_schedule(judged.structure.apply, bound, knobs, memo)
    if judged.skeleton is None or skeleton(made.program) == judged.skeleton:
        return made
    made = unproved_schedule(judged.structure.apply, opened, knobs, memo)
    return replace(made, program=bind(made.program, {n: v for n, v in bound.program.bound if n in made.program.sizes}))


def skeleton(p: Program) -> Any:
    """Loops and actions without bounds and guards."""

    def body(nodes: Body) -> tuple[Any, ...]:
        out: list[Any] = []
        for n in nodes:
            if isinstance(n, Loop):
                out.append((n.var, n.kind, body(n.body)))
            elif isinstance(n, Guard):
                out += body(n.body)
            else:
                out.append(type(n).__name__)
        return tuple(out)

    return body(p.body)


def split_structures(name: str, space: Space, apply: Apply, fresh: Schedule, memo: Memo) -> list[Structure]:
    """Fix every knob that changes the shape of the tree; the rest only change numbers in it.

    A knob is structural when it has values that are no integers, or when two of its values, the others at their first, give trees
    of different shape.
    """
    base = {n: values[0] for n, values in space.axes}
    fixed: list[tuple[str, tuple[Any, ...]]] = []
    free: list[tuple[str, tuple[Any, ...]]] = []
    for knob, values in space.axes:
        numeric = all(isinstance(v, int) and not isinstance(v, bool) and v >= 1 for v in values)
        if not numeric or _changes_shape(knob, values, base, apply, fresh, memo):
            fixed.append((knob, values))
        else:
            free.append((knob, values))
    out = []
    for choice in Space(tuple(fixed)):
        label = ", ".join(f"{k}={v}" for k, v in choice.items())
        out.append(Structure(label or name, choice, Space(tuple(free)), _bind(apply, choice)))
    return out


def _bind(apply: Apply, choice: Knobs) -> Apply:
    return lambda s, knobs: apply(s, {**choice, **knobs})


def _changes_shape(knob: str, values: Sequence[int], base: Knobs, apply: Apply, fresh: Schedule, memo: Memo) -> bool:
    shapes = set()
    for v in dict.fromkeys((values[0], values[len(values) // 2], values[-1])):
        try:
            shapes.add(shape(unproved_schedule(apply, fresh, {**base, knob: v}, memo).program))
        except TilecError as e:
            shapes.add(type(e).__name__)
    return len(shapes) > 1


def unproved_schedule(apply: Apply, fresh: Schedule, knobs: Mapping[str, Any], memo: Memo) -> Schedule:
    """The rewrites of one candidate without proofs; ScheduleError unless the function returns a schedule."""
    made = apply(unproved(fresh, memo), knobs)
    if not isinstance(made, Schedule):
        raise ScheduleError(f"tune(schedule=…): the function returned {type(made).__name__}; it must return the schedule")
    if made.program.name != fresh.program.name or made.program.source.statements != fresh.program.source.statements:
        raise ScheduleError(
            f"tune(schedule=…): the function returned a schedule of {made.program.name} that it did not get; "
            "it must return the given schedule, scheduled further"
        )
    return made


def shape(p: Program) -> Any:
    """The tree without its numbers."""

    def aff(e: Aff) -> Any:
        return tuple(sorted(e.names))

    def body(nodes: Body) -> Any:
        out = []
        for n in nodes:
            if isinstance(n, Loop):
                out.append((n.var, n.kind, tuple(map(aff, n.lower)), tuple(map(aff, n.upper)), body(n.body)))
            elif isinstance(n, Guard):
                out.append((tuple(_names(c) for c in n.conditions), body(n.body)))
            else:
                out.append((type(n).__name__, getattr(n, "n", None)))
        return tuple(out)

    return body(p.body), tuple((b.name, b.memory, b.owner, len(b.shape)) for b in p.buffers)


def _names(c: Constraint) -> Any:
    return tuple(sorted(c.names))


def judge(structure: Structure, fresh: Schedule, memo: Memo) -> Judged:
    """Derive the structure's formulas at marker numbers, and prove it there for all sizes; where that cannot be, at its first
    candidate. fresh: a schedule, with open sizes where possible.

    The proof at one set of numbers stands for its structure in the ranking only: what is shown is proved itself.
    """
    apart: str | None = None
    found: Formulas | None = None
    made: Schedule | None = None
    try:
        markers = Markers.of(structure.space.names)
        made = unproved_schedule(structure.apply, fresh, dict(markers.values), memo)
        found = formulas(made.program, markers)
    except (NotSeparable, TilecError) as e:
        apart = str(e).splitlines()[0]
    try:
        if found is None or made is None:
            made = unproved_schedule(structure.apply, fresh, structure.space.at(0), memo)
        verdict: Verdict = made.check()
    except (ScheduleError, LegalityError, ResourceError) as e:
        return Judged(structure, None, None, e)
    if verdict.status != "legal":
        return Judged(structure, None, None, refuse(f"structure {structure.name}", made.program, verdict))
    return Judged(structure, found, apart, None, skeleton(made.program) if found is not None else None)
