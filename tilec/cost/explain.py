"""A cost in words, as a comparison, and as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec.cost.checked import likely, unchecked
from tilec.cost.explain_time import no_time, time_lines, us
from tilec.cost.lower_bound import fast_memory
from tilec.errors import ResourceError
from tilec.ir.closed import Closed
from tilec.ir.closed_text import pretty_bytes

if TYPE_CHECKING:
    from tilec.cost.cost import Cost


def explain(c: Cost) -> str:
    """Every term on a line: number, formula, and for estimates the rule."""
    where = f" on {c.target.name}" if c.target is not None else ""
    sizes = ", ".join(f"{k}={v}" for k, v in c.sizes.items())
    lines = [f"cost of {c.name}{where}" + (f" at {sizes}" if sizes else "")]
    lines += [f"  does not fit: {p}" for p in dict.fromkeys(c.problems)]
    for memory in c.traffic.memories:
        formula = c.traffic.formula(memory)
        if not formula.terms:
            continue
        lines.append(f"  {memory} traffic {_bytes(formula, c)}" + _formula(formula, c))
        for b in dict.fromkeys(f.buffer for f in c.traffic.flows if f.memory == memory and not f.fill):
            for direction in ("read", "write"):
                part = c.traffic.formula(memory, direction, b)
                if part.terms:
                    lines.append(f"    {direction} {b} {_bytes(part, c)}" + _formula(part, c))
    lines += _bound_lines(c)
    for memory in c.footprint:
        per = {"global": "distinct bytes", "register": "per block" if c.footprint.marks else "per thread"}.get(
            memory, "per block"
        )
        lines.append(f"  {memory} footprint {_bytes(c.footprint.formula(memory), c)} ({per}): " + _parts(c, memory))
    lines += [f"    {m}" for m in c.footprint.marks]
    if c.working_set.live and _known(c, *c.working_set.formulas):
        lines.append(f"  working set {pretty_bytes(c.working_set['global'])} of global memory at the peak")
    if not _known(c, c.flops_formula):
        lines.append(f"  flops {c.flops_formula}")
    else:
        kinds = ", ".join(f"{k} {n:,}" for k, n in c.flops_by_kind.items())
        lines.append(f"  flops {c.flops:,}" + (f" ({kinds})" if kinds else ""))
        if _known(c, c.traffic.formula("global")) and c.traffic.total("global"):
            lines.append(f"  intensity {c.intensity('global'):.2f} flop/B of global traffic")
    lines.append(f"  launches {c.launches}" + (f", barriers {c.barriers:,}" if _barriers(c) else ""))
    if c.occupancy is not None:
        lines.append(f"  occupancy {c.occupancy}")
    lines += time_lines(c)
    lines += [f"  note: {n}" for n in c.notes]
    return "\n".join(lines)


def _bound_lines(c: Cost) -> list[str]:
    """What any schedule must move, and what this one moves in its place."""
    if not c.traffic.flows or not _known(c, c.lower_bound_formula(), c.traffic.formula("global")):
        return []
    least, moved = c.lower_bound("global"), c.traffic.total("global")
    ratio = f", the traffic is {moved / least:.3g} times that" if least and moved else ""
    lines = [f"  lower bound {pretty_bytes(least)} (inputs read once, outputs written once){ratio}"]
    near = None if c.target is None else fast_memory(c.target)
    if near is None:
        return lines
    bound = c.capacity_bound(near[0])
    if bound.capacity > least and bound.gap is not None:
        lines.append(
            f"    {pretty_bytes(bound.capacity)} with {pretty_bytes(near[0])} near the arithmetic ({near[1]}): {bound.formula} "
            f"and lower terms; the traffic is {bound.gap:.3g} times that"
        )
        lines.append(f"    a perfect schedule would move as much with {pretty_bytes(bound.same_as or 0)}")
    return lines


def compare(a: Cost, b: Cost) -> str:
    """Both costs term by term, and b ÷ a where that says something."""
    titles = (_title(a), _title(b))
    if titles[0] == titles[1]:  # schedules of one kernel, as the last line calls them
        titles = (f"first {titles[0]}", f"second {titles[1]}")
    rows: list[tuple[str, str, str, str]] = [("", *titles, "")]

    def row(name: str, x: float | None, y: float | None, show: Any = lambda v: f"{v:,}") -> None:
        if x is None or y is None or (x == 0 and y == 0):
            return
        ratio = f"×{y / x:.3g}" if x and x != y else ("same" if x == y else "")
        rows.append((name, show(x), show(y), ratio))

    memories = dict.fromkeys((*a.traffic.memories, *b.traffic.memories))
    for m in memories:
        row(f"{m} traffic", a.traffic.total(m), b.traffic.total(m), pretty_bytes)
        left, right = a.traffic.by_buffer(m), b.traffic.by_buffer(m)
        for n in dict.fromkeys((*left, *right)):
            row(f"  {n}", int(left.get(n, 0)), int(right.get(n, 0)), pretty_bytes)
    for m in dict.fromkeys((*a.footprint, *b.footprint)):
        row(f"{m} footprint", a.footprint[m], b.footprint[m], pretty_bytes)
    row("working set", a.working_set["global"], b.working_set["global"], pretty_bytes)
    row("flops", a.flops, b.flops)
    row("launches", a.launches, b.launches)
    row("barriers", a.barriers, b.barriers)
    row("intensity", a.intensity(), b.intensity(), lambda v: f"{v:.2f}")
    if a.occupancy is not None and b.occupancy is not None:
        row("blocks per SM", a.occupancy.blocks, b.occupancy.blocks)
    if a.estimate is not None and b.estimate is not None:
        row("time (estimate)", a.time, b.time, us)
        left, right = dict(a.estimate.terms), dict(b.estimate.terms)
        for level in dict.fromkeys((*left, *right)):
            row(f"  {level}", left.get(level, 0.0), right.get(level, 0.0), us)
        rows.append(("bound", a.bound, b.bound, "same" if a.bound == b.bound else ""))
    widths = [max(len(r[n]) for r in rows) for n in range(4)]
    lines = [f"{r[0]:<{widths[0]}}  {r[1]:>{widths[1]}}  {r[2]:>{widths[2]}}  {r[3]:>{widths[3]}}".rstrip() for r in rows]
    return "\n".join([*lines, *_verdict(a, b)])


def _verdict(a: Cost, b: Cost) -> list[str]:
    """What makes one beat the other: the level that binds the slower one, next to what it is in the faster one."""
    if a.estimate is None or b.estimate is None or not a.time or not b.time or a.time == b.time:
        return []
    fast, slow, words = (a, b, ("first", "second")) if a.time < b.time else (b, a, ("second", "first"))
    level = slow.bound
    there, here = dict(slow._time.terms)[level], dict(fast._time.terms).get(level, 0.0)
    return [
        f"the {words[0]} is {slow.time / fast.time:.3g} times as fast: the {words[1]} is bound by {level}, {us(there)}, which is "
        f"{us(here)} in the {words[0]}, bound by {fast.bound}"
    ]


def data(c: Cost) -> dict[str, Any]:
    """Stable keys; None where a number needs a size that is open, or a target."""

    def n(formula: Closed) -> int | None:
        return int(formula.eval(c.sizes)) if _known(c, formula) else None

    def memory(m: str) -> dict[str, Any]:
        formula = c.traffic.formula(m)
        names = dict.fromkeys(f.buffer for f in c.traffic.flows if f.memory == m and not f.fill)
        return {
            "total": n(formula),
            "formula": str(formula),
            "buffers": {
                b: {d: n(c.traffic.formula(m, d, b)) for d in ("read", "write")} | {"formula": str(c.traffic.formula(m, None, b))}
                for b in names
            },
        }

    known = _known(c, c.flops_formula, c.traffic.formula("global"))
    time = c.estimate
    live = c.working_set.formulas
    return {
        "name": c.name,
        "target": None if c.target is None else c.target.name,
        "sizes": dict(c.sizes),
        "traffic": {m: memory(m) for m in c.traffic.memories if c.traffic.formula(m).terms},
        "fill": {m: c.traffic.fill(m) for m in c.traffic.memories if known and c.traffic.fill_by_buffer(m)},
        "footprint": {
            m: {"bytes": n(c.footprint.formula(m)), "buffers": {b: n(f) for k, b, f in c.footprint.parts if k == m}}
            for m in c.footprint
        },
        "footprint_marks": list(c.footprint.marks),
        "working_set": {"global": c.working_set["global"] if _known(c, *live) else None},
        "working_set_timeline": [n(f) for f in live],
        "flops": n(c.flops_formula),
        "flops_by_kind": {k: n(f) for k, f in c.flops_by_kind_formula.items()},
        "intensity": {"global": c.intensity("global") if known and c.traffic.total("global") else None},
        "lower_bound": {"global": n(c.lower_bound_formula())},
        "launches": c.launches,
        "barriers": c.barriers if _barriers(c) is not None else None,
        "occupancy": None if c.occupancy is None else _occupancy(c),
        "time": None if time is None else time.seconds,
        "time_unknown": no_time(c) if time is None and c.target is not None else None,
        "time_range": None if time is None else [time.low, time.high],
        "time_likely": None if (within := likely(c)) is None else list(within),
        "bound": None if time is None else time.bound,
        "time_levels": None if time is None else dict(time.terms),
        "unchecked": list(unchecked(c)),
        "capacity_bound": _capacity_data(c),
        "launch": [
            {
                "name": one.name,
                "blocks": n(one.blocks_formula),
                "threads": one.threads,
                "traffic": {m: n(one.traffic.formula(m)) for m in one.traffic.memories if one.traffic.formula(m).terms},
                "footprint": {m: n(one.footprint.formula(m)) for m in one.footprint},
                "flops": n(one.flops_formula),
                "time": one.time,
                "bound": one.bound,
            }
            for one in c.launch
        ],
        "notes": list(c.notes),
        "problems": list(c.problems),
    }


def _capacity_data(c: Cost) -> dict[str, Any] | None:
    """The bound for what is near one core's arithmetic; None where that, or a size, is not known."""
    near = None if c.target is None else fast_memory(c.target)
    if near is None or not _known(c, c.lower_bound_formula(), c.traffic.formula("global")):
        return None
    b = c.capacity_bound(near[0])
    keys = ("capacity_bytes", "capacity", "bytes", "gap", "formula", "same_as", "compulsory_from")
    return {k: getattr(b, k) for k in keys}


def _occupancy(c: Cost) -> dict[str, Any]:
    o = c.occupancy
    assert o is not None
    return {
        "blocks": o.blocks,
        "warps": o.warps,
        "fraction": o.fraction,
        "limiters": list(o.limiters),
        "limits": dict(o.limits),
        "unknown": list(o.unknown),
        "gain": None if o.gain is None else str(o.gain),
    }


def _known(c: Cost, *formulas: Closed) -> bool:
    return all(f.names <= set(c.sizes) for f in formulas)


def _barriers(c: Cost) -> int | None:
    try:
        return c.barriers
    except ResourceError:
        return None


def _bytes(formula: Closed, c: Cost) -> str:
    if not _known(c, formula):
        return str(formula) + " B"
    n = int(formula.eval(c.sizes))
    text = pretty_bytes(n)
    return text if text.endswith(" B") else f"{text} ({n:,} B)"


def _formula(formula: Closed, c: Cost) -> str:
    return f" = {formula}" if formula.constant is None and _known(c, formula) else ""


def _parts(c: Cost, memory: str) -> str:
    return " + ".join(f"{b} {_bytes(f, c)}" for m, b, f in c.footprint.parts if m == memory)


def _title(c: Cost) -> str:
    return f"{c.name} on {c.target.name}" if c.target is not None else c.name
