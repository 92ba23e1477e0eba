"""Recipes: the schedule structures that tune explores by itself, derived from what a program's nests are like.

A recipe fixes every structural choice (how the chain of nests is cut into groups, where sums are kept, which tile loop is
outside, pipeline stages, …) and leaves tile sizes open. No recipe knows a kernel's name. Nothing here decides legality: `apply`
runs primitives, each of which proves its step, and raises what they refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from tilec.errors import ScheduleError
from tilec.ir.dtypes import DTYPES
from tilec.ir.program import Program
from tilec.schedule.schedule import Schedule
from tilec.search.nests import Group, Nest, graph, independent, nests, partitions
from tilec.search.plan import Plan
from tilec.search.rows import by_rows, rowwise
from tilec.search.tiles import tile_knobs, tiled

TILES = (16, 32, 64, 128, 256)
DEPTHS = (16, 32, 64, 128)
CHUNKS = (1024, 4096, 16384, 65536)
STAGES = (1, 2, 3, 4)

Choice = str | int


@dataclass(frozen=True)
class Recipe:
    """name: unique in a program. choices: the structural decisions. space: the knobs that are left, with plausible values.
    apply: a fresh schedule and a value of each knob (any integers >= 1, dividing the sizes or not) -> the schedule, or the
    ScheduleError or LegalityError of the step that cannot be made. sentence: what the structure does. fits: is a candidate worth
    pricing?
    """

    name: str
    choices: dict[str, Choice]
    space: dict[str, tuple[int, ...]]
    apply: Callable[[Schedule, Mapping[str, int]], Schedule]
    sentence: str
    fits: Callable[[Mapping[str, int]], bool] = lambda knobs: True


def derive(program: Program) -> list[Recipe]:
    """Every recipe of a program (the original, or a fresh schedule's), in a fixed order, the most separate partition first."""
    source = program.source
    prefix, found = nests(source)
    if not any(nest.band or nest.kind == "sum" for nest in found):
        return [as_written()]
    if len(found) == 1 and found[0].kind == "sum":
        return whole_sum(program, found[0])
    out = []
    for cuts in partitions(len(found)):
        groups = tuple(tuple(found[n] for n in cut) for cut in cuts)
        for choices, plan in plans(source, groups, prefix):
            named = partition_choices(source, groups) | choices
            out.append(recipe(groups, named, plan))
    return out


def recipe(groups: Sequence[Group], choices: dict[str, Choice], plan: Plan) -> Recipe:
    """The recipe of one partition under one plan."""

    def apply(s: Schedule, knobs: Mapping[str, int]) -> Schedule:
        for group in groups:
            if by_rows(group):
                s = rowwise(s, group, plan)
            elif group[-1].band:
                s = tiled(s, group, knobs, plan)
            elif len(group) > 1:
                names = ", ".join(nest.name for nest in group[:-1])
                raise ScheduleError(
                    f"{names} cannot run at a tile of '{group[-1].name}': no loop of it writes elements of its own"
                )
        return s

    words = [f"{key} {value}" for key, value in choices.items() if key != "partition"]
    name = "; ".join([str(choices["partition"]), *words])
    return Recipe(name, choices, space(groups), apply, sentence(groups, choices))


def partition_choices(program: Program, groups: Sequence[Group]) -> dict[str, Choice]:
    """How the chain is cut, and whether what an elementwise nest makes for a sum is stored or made again in every tile."""
    out: dict[str, Choice] = {"partition": " | ".join("+".join(nest.name for nest in group) for group in groups)}
    everything = tuple(nest for group in groups for nest in group)
    for a, b in graph(everything).edges:
        maker, user = everything[a], everything[b]
        if maker.kind != "elementwise" or user.update is None:
            continue
        for access in program.statement[user.update].reads:
            if access.buffer in maker.written and any(v in e.names for e in access.index for v in user.sums):
                small = DTYPES[program.buffer[access.buffer].dtype].bytes == 1
                together = any(maker in group and user in group for group in groups)
                out["quantised operand" if small else "operand"] = "recomputed" if together else "stored"
    return out


def plans(program: Program, groups: Sequence[Group], prefix: tuple[str, ...]) -> list[tuple[dict[str, Choice], Plan]]:
    """The choices that matter in this partition, each with its plan."""
    sums = [nest for group in groups for nest in group if nest.kind == "contraction"]
    axes: dict[str, tuple[Choice, ...]] = {}
    orders: dict[Choice, str] = {}
    if sums:
        axes["accumulator"] = ("shared", "register")
        roots = [group[-1] for group in groups if any(nest in sums for nest in group) and group[-1].band]
        tiles = [[v for v in root.band if v in tile_knobs(program, root)] for root in roots]
        if two := [names for names in tiles if len(names) == 2]:
            a, b = two[-1]
            orders = {f"{a} outside": "i", f"{b} outside": "j"}
            axes["order"] = tuple(orders)
        if any(has_operands(program, nest) for nest in sums):
            axes["stages"] = STAGES
    if any(independent(group) for group in groups):
        axes["sums"] = ("in turn", "together")
    if any(not any(n.kind == "contraction" for n in group) and reads_again(program, group) for group in groups):
        axes["inputs"] = ("direct", "shared")
    out = []
    for values in product(*axes.values()):
        c = dict(zip(axes, values, strict=True))
        plan = Plan(
            accumulator=str(c.get("accumulator", "shared")),
            order=orders.get(c.get("order", ""), "i"),
            stages=int(c.get("stages", 1)),
            shared=c.get("inputs") == "shared",
            together=c.get("sums") == "together",
            prefix=prefix,
        )
        out.append((c, plan))
    return out


def has_operands(program: Program, nest: Nest) -> bool:
    """Does the sum read something by one access only, that some loop of its band leaves where it is?"""
    reads = program.statement[nest.update or ""].reads
    one = [a for a in reads if sum(b.buffer == a.buffer for b in reads) == 1]
    return any(any(v not in frozenset[str]().union(*(e.names for e in a.index)) for v in nest.band) for a in one)


def reads_again(program: Program, group: Group) -> bool:
    """Does some statement of the group read a buffer twice, without one of its loops, or across its rows; or two statements of a
    row the same one?"""
    statements = [program.statement[n] for nest in group for n in nest.statements]
    band = {v for nest in group for v in nest.band}
    if by_rows(group):
        seen = [b for s in statements for b in {a.buffer for a in s.reads if len({*s.loops}) > 1 and len(a.index) > 1}]
        return len(seen) > len(set(seen))
    for s in statements:
        buffers = [a.buffer for a in s.reads]
        for a in s.reads:
            names = frozenset[str]().union(*(e.names for e in a.index))
            last = s.target.index[-1].names & set(s.loops) if s.target.index else frozenset()
            broadcast = bool(a.index) and bool((band & set(s.loops)) - names)
            crossed = len(a.index) > 1 and bool(last & names) and not last & a.index[-1].names
            if buffers.count(a.buffer) > 1 or broadcast or crossed:
                return True
    return False


def space(groups: Sequence[Group]) -> dict[str, tuple[int, ...]]:
    """The tile sizes that these groups leave open."""
    open_ = [group for group in groups if not by_rows(group) and group[-1].band]
    out: dict[str, tuple[int, ...]] = {}
    if any(group[-1].kind == "rows" or len(group[-1].band) > 1 for group in open_):
        out["BM"] = TILES
    if any(group[-1].kind != "rows" or any(n.kind == "contraction" for n in group) for group in open_):
        out["BN"] = TILES
    if any(nest.kind == "contraction" for group in open_ for nest in group):
        out["BK"] = DEPTHS
    return out


def sentence(groups: Sequence[Group], choices: Mapping[str, Choice]) -> str:
    """One line: what runs where."""
    parts = []
    for group in groups:
        *before, last = (nest.name for nest in group)
        if by_rows(group):
            parts.append(f"{', '.join([*before, last])} row by row")
        elif not group[-1].band:
            parts.append(f"{last} as written")
        elif before:
            parts.append(f"{', '.join(before)} at the tile of {last}")
        else:
            parts.append(f"{last} in {'tiles of rows' if group[-1].kind == 'rows' else 'tiles'}")
    text = "; then ".join(parts)
    if "accumulator" in choices:
        text += f"; sums in {choices['accumulator']}"
    if choices.get("sums") == "together":
        text += ", their k loops merged"
    if int(choices.get("stages", 1)) > 1:
        text += f", operands fetched {int(choices['stages']) - 1} k block(s) ahead"
    for key in ("quantised operand", "operand"):
        if key in choices:
            text += f"; the {key} {choices[key]}"
    if choices.get("inputs") == "shared":
        text += "; inputs through shared memory"
    return text


def as_written() -> Recipe:
    """What is left for a program whose loops all carry dependences."""
    return Recipe("as written", {"partition": "as written"}, {}, lambda s, knobs: s, "every loop in its written order")


def whole_sum(program: Program, nest: Nest) -> list[Recipe]:
    """One number from a whole array: in order; and, where its sum may be reordered, by a partial sum in each block."""
    name = nest.name
    update = program.statement[nest.update or ""]
    first = Recipe(
        f"{name}; sum in order", {"partition": name, "sum": "in order"}, {}, lambda s, knobs: s, f"{name} by one serial sum"
    )
    exact = update.op in ("max=", "min=") or DTYPES[program.buffer[update.target.buffer].dtype].kind == "int"
    if update.target.buffer not in program.reassociate and not exact:
        return [first]

    def blocks(s: Schedule, knobs: Mapping[str, int]) -> Schedule:
        (v,) = nest.sums
        s = s.split(f"{update.name}.{v}", knobs["BN"], into=(f"{v}o", f"{v}i"))
        return s.split_reduction(update.target.buffer, f"{v}o").bind(f"{v}o", "block.x")

    choices: dict[str, Choice] = {"partition": name, "sum": "by blocks"}
    return [
        first,
        Recipe(
            f"{name}; sum by blocks", choices, {"BN": CHUNKS}, blocks, f"{name}: a partial sum in each block, merged in order"
        ),
    ]
