"""What the predicted time was held against (docs/model.md), and in what a program is outside of it.

Checked: sums of products on NVIDIA GPUs, one launch. Seconds: in f32 on the vector unit, over whole tuning spaces and a library's
launches. In f16 and bf16 on the matrix unit: the order of the kernels of published tables, not the seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.targets import Target

if TYPE_CHECKING:
    from tilec.cost.cost import Cost

# By generation: on which machine's public measurements times were compared, over which capability they stand.
MEASURED = {
    "8.0": "A100",
    "8.6": "RTX 3090, RTX A6000",
    "10.0": "B200",
    "12.0": "RTX 5090",
}
DTYPES = ("f32", "f16", "bf16")
TIMED = ("8.0", "8.6")  # capabilities on which seconds were held against SEEN.rows kernels, all of products in f32


@dataclass(frozen=True)
class Seen:
    """Of `rows` measured kernels the share `held` took `low` to `high` times what was predicted without a fitted constant."""

    low: float
    high: float
    held: float
    rows: int


SEEN = Seen(0.7, 1.5, 0.93, 54_220)  # docs/model.md, "The range"; a test holds it against the measurements


def likely(c: Cost) -> tuple[float, float] | None:
    """Seconds between which the share `SEEN.held` of measured kernels would lie, within the cost's bounds; None where no
    measured seconds stand behind the prediction."""
    time = c.estimate
    if time is None or c.target is None or c.target.kind != "gpu" or unchecked(c) or untimed(c):
        return None
    return max(time.low, SEEN.low * time.seconds), min(time.high, SEEN.high * time.seconds)


def untimed(c: Cost) -> str:
    """Where a GPU kernel is of a kind whose order was compared, but not its seconds: what they were compared on; else ""."""
    if c.target is None or c.target.kind != "gpu" or c.estimate is None or unchecked(c):
        return ""
    if _capability(c.target) in TIMED and _products(c) == {"f32"}:
        return ""
    have = ", ".join(f"{k} ({MEASURED[k]})" for k in TIMED)
    return f"seconds were compared for products in f32 on compute capability {have}; of kernels like this one only the order"


def unchecked(c: Cost) -> tuple[str, ...]:
    """Why no public measurement stands behind this prediction; () where some does."""
    machine = c.target
    if machine is None:
        return ()
    if machine.kind == "cpu" and machine.measured:
        return ()  # held against this computer's own runs (tuning measures them)
    if machine.kind == "cpu":
        return ("this CPU's rates were not measured: `tilec target host --measure`",)
    if machine.kind != "gpu":
        return (f"no measurement of a program on {machine.name} was compared ({machine.kind}, roofline only)",)
    return tuple([*_machine(machine), *_program(c)])


def _capability(machine: Target) -> str:
    return machine.limits.compute_capability if machine.limits is not None else ""


def _products(c: Cost) -> set[str]:
    """The types whose products are summed."""
    return {key.matrix for one in c.launch for key, _ in one.work if key.matrix}


def _machine(machine: Target) -> list[str]:
    capability = _capability(machine)
    if capability in MEASURED:
        return []
    have = ", ".join(f"{k} ({v})" for k, v in MEASURED.items())
    return [f"no measurement on compute capability {capability} was compared, only on {have}"]


def _program(c: Cost) -> list[str]:
    out: list[str] = []
    matrix = _products(c)
    if not matrix:
        out.append("no measurement of a kernel without a sum of products was compared")
    elif not matrix <= set(DTYPES):
        out.append(f"products in {', '.join(sorted(matrix - set(DTYPES)))}; compared were {', '.join(DTYPES)}")
    if not all(one.is_bound for one in c.launch):
        out.append("loops that are not bound to blocks")
    if sum(one.is_bound for one in c.launch) > 1:
        out.append("several launches: they are added up, and what a cache keeps between them is not seen")
    return out
