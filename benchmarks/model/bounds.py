"""Leading terms of I/O lower bounds: those of tilec beside IOLB's for PolyBench."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from benchmarks.model.polybench import KERNELS
from benchmarks.model.section import Section, markdown, rows
from tilec.api import Kernel
from tilec.cost.lower_bound import grouped, sum_bounds
from tilec.cost.price import compulsory
from tilec.ir.dtypes import DTYPES
from tilec.poly.count import Counter

LARGE = 10**7  # every size: leading terms are told from the rest
CAPACITY = 10**6  # words


@dataclass(frozen=True)
class Leading:
    """A kernel of the table: its published leading term, tilec's, and tilec's ÷ published at large sizes; None: not derived."""

    kernel: str
    published: str
    derived: str | None
    ratio: float | None


def published(text: str) -> float:
    """A formula of the table at large sizes."""
    python = re.sub(r"\^", "**", text)
    names = {n: LARGE for n in set(re.findall(r"[A-Z]+", python)) - {"S"}}
    return float(eval(python, {"__builtins__": {}}, {**names, "S": CAPACITY, "sqrt": math.sqrt}))


def derived(kernel: Kernel) -> tuple[str, float]:
    """tilec's leading term in words, as text and at large sizes: of the sums of most words, or the inputs read once."""
    source = kernel.program
    names = {n: LARGE for n in source.sizes}
    parts = []
    for group in grouped(sum_bounds(source)):
        values = [(b, b.coefficient(True) * float(b.instances.eval(names)) / CAPACITY ** (float(b.sigma) - 1)) for b in group]
        parts.append(max(values, key=lambda v: v[1]))
    sums = sum(v for _, v in parts)
    reads = {
        b: c.eval(names) / DTYPES[source.buffer[b].dtype].bytes
        for (b, d), c in compulsory(source, Counter(source.sizes, source.where)).items()
        if d == "read"
    }
    if sums > sum(reads.values()):
        return " + ".join(b.leading(True) for b, _ in parts), sums
    most = max(reads.values())
    large = [b for b, n in reads.items() if n > most / LARGE**0.5]
    return " + ".join(f"{b} once" for b in large), float(sum(reads.values()))


def leading() -> list[Leading]:
    out = []
    for r in rows("polybench_io_lower_bounds.csv"):
        text = r["iolb_pldi20_leading"]
        kernel = KERNELS.get(r["kernel"])
        if kernel is None:
            out.append(Leading(r["kernel"], text, None, None))
        else:
            words, value = derived(kernel)
            out.append(Leading(r["kernel"], text, words, value / published(text)))
    return out


def section() -> Section:
    found = leading()
    done = [f for f in found if f.ratio is not None]
    equal = sum(abs((f.ratio or 0) - 1) < 1e-3 for f in done)
    table = [(f.kernel, f.published, f.derived, f"{f.ratio:.4f}") for f in done]
    rest = ", ".join(f.kernel for f in found if f.ratio is None)
    text = (
        f"Leading terms of what any schedule moves, S words of fast memory, beside IOLB's for the kernels of PolyBench that are "
        f"sums over projections or read a matrix once ({len(done)} of {len(found)}). tilec derives them from the program "
        f"(`cost/lower_bound.py`): {equal} equal IOLB's.\n\n"
        + markdown(("kernel", "IOLB", "tilec", "tilec ÷ IOLB"), table)
        + "\n\nNot derived, as values feed back into the same array over time, so that only the compulsory bytes bound them: "
        f"{rest}."
    )
    return Section("bounds", "Lower bounds: PolyBench", text, {"kernels": len(found), "derived": len(done), "equal": equal})
