"""The generated parts of docs/gpu.md, between their markers, from docs/gpu.json."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tilec.report.tables import number


def rendered(page: str, data: Mapping[str, Any]) -> str:
    """The page with every `<!-- NAME -->` … `<!-- end -->` filled again."""
    parts = {"summary": summary, "table": table, "timing": timing, "searched": searched, "chain": chain}

    def fill(found: re.Match[str]) -> str:
        return f"<!-- {found[1]} -->\n{parts[found[1]](data)}\n<!-- end -->"

    return re.sub(r"<!-- (\w+) -->\n.*?<!-- end -->", fill, page, flags=re.DOTALL)


def figures(triples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Agreement of the model with the compiler over the triples that compiled."""
    done = [t for t in triples if t["error"] is None]
    known = [t for t in done if t["registers_predicted"] is not None]
    errors = [abs(t["registers_predicted"] - t["registers_compiled"]) / t["registers_compiled"] for t in known]
    spilled = Counter((bool(t["spills_predicted"]), t["spills_compiled"] > 0) for t in known)
    return {
        "triples": len(triples),
        "kernels": len({t["kernel"] for t in triples}),
        "failed": len(triples) - len(done),
        "shared_equal": sum(t["shared_predicted"] == t["shared_compiled"] for t in done),
        "compiled": len(done),
        "registers_known": len(known),
        "registers_median_error": statistics.median(errors) if errors else None,
        "registers_within_15_percent": sum(e <= 0.15 for e in errors),
        "spill_hits": spilled[True, True] + spilled[False, False],
        "spill_unseen": spilled[False, True],
        "spill_false": spilled[True, False],
        "blocks_equal": sum(t["blocks_predicted"] == t["blocks_compiled"] for t in known),
        "no_matrix": sum(not t["matrix"] for t in known),
    }


def row(*cells: object) -> str:
    """A line of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def summary(data: Mapping[str, Any]) -> str:
    """The agreement: all triples, and each origin."""
    head = ("triples", "shared bytes equal", "registers: median error", "within 15 %", "spilling: hits", "unseen", "false")
    lines = [row(*head, "blocks/SM equal"), row("---", *["---:"] * 7)]
    for name, chosen in (
        ("all", data["triples"]),
        ("fixed tiles", [t for t in data["triples"] if t["origin"] == "table"]),
        ("from the search", [t for t in data["triples"] if t["origin"] == "search"]),
    ):
        f = figures(chosen)
        error = "-" if f["registers_median_error"] is None else f"{100 * f['registers_median_error']:.1f} %"
        of = f"of {f['registers_known']}"
        first = (f"{name}: {f['triples']} of {f['kernels']} kernels", f"{f['shared_equal']} of {f['compiled']}", error)
        hits = (f"{f['registers_within_15_percent']} {of}", f"{f['spill_hits']} {of}", f["spill_unseen"], f["spill_false"])
        lines.append(row(*first, *hits, f"{f['blocks_equal']} {of}"))
    return "\n".join(lines)


def table(data: Mapping[str, Any]) -> str:
    """The fixed tiles, a row each."""
    head = ("kernel", "tile", "warps", "target", "shared: predicted", "compiled", "registers: predicted", "compiled", "spills")
    lines = [row(*head, "blocks/SM: predicted, compiled", "matrix instructions")]
    lines.append(row("---", "---", "---:", "---", *["---:"] * 6, "---"))
    for t in data["triples"]:
        if t["origin"] != "table":
            continue
        matrix = ", ".join(f"{n} {name}" for name, n in t["matrix"].items()) or "-"
        want = "-" if t["registers_predicted"] is None else str(t["registers_predicted"])
        spills = f"{t['spills_compiled']}{' (predicted)' if t['spills_predicted'] else ''}"
        blocks = f"{t.get('blocks_predicted', '-')}, {t.get('blocks_compiled', '-')}"
        shared = (f"{t['shared_predicted']:,}", f"{t['shared_compiled']:,}")
        tile = (t["kernel"], t["tile"], t["warps"], t["target"])
        lines.append(row(*tile, *shared, want, t["registers_compiled"], spills, blocks, matrix))
    return "\n".join(lines)


def searched(data: Mapping[str, Any]) -> str:
    """What the search emitted, and what failed on its target."""
    mine = [t for t in data["triples"] if t["origin"] == "search"]
    lines = [row("target", "kernels emitted", "fail for resources", "spill", "largest shared bytes", "most registers")]
    lines.append(row("---", *["---:"] * 5))

    def failed(triples: Sequence[Mapping[str, Any]]) -> int:
        return sum(t["error"] is not None or not t.get("fits", False) for t in triples)

    for target in dict.fromkeys(t["target"] for t in mine):
        here = [t for t in mine if t["target"] == target]
        spill = sum(t["spills_compiled"] > 0 for t in here)
        largest, most = max(t["shared_compiled"] for t in here), max(t["registers_compiled"] for t in here)
        lines.append(row(target, len(here), failed(here), spill, f"{largest:,}", most))
    lines += ["", f"{len(mine)} kernels emitted, {failed(mine)} that fail for resources on their target."]
    return "\n".join(lines)


def timing(data: Mapping[str, Any]) -> str:
    """How long emitting and compiling take."""
    found = data.get("timing")
    if not found:
        return "Not measured yet: `python -m benchmarks.gpu_report --part timing`."
    emit, slowest = (f"{found[k] * 1e3:.0f} ms" for k in ("emit", "slowest"))
    return (
        f"Emitting {found['kernel']} takes {emit} (median of {found['repeats']}), the slowest of {found['cases']} kernels "
        f"{slowest}. {found['count']} candidates of its search on {found['target']} compile in {found['cold']:.0f} s on "
        f"{found['cpus']} cores with an empty cache, in {1e3 * found['cached']:.0f} ms with a full one "
        "(`python -m benchmarks.gpu_report --part timing`)."
    )


def chain(data: Mapping[str, Any]) -> str:
    """The picks of the chain, and the decision of rowquant_gemm."""
    found = data.get("chain")
    if not found:
        return ""
    lines = []
    for p in found["gemm_silu"]:
        knobs = ", ".join(f"{k} {v}" for k, v in p["knobs"].items())
        limit = "; ".join(f"{b} blocks per SM by {' and '.join(x)}" for b, x in zip(p["blocks"], p["limiters"], strict=True))
        matrix = ", ".join(f"{n} {name}" for m in p["matrix"] for name, n in m.items()) or "none"
        fell = ", ".join(f"{r['count']} {k}" for k, r in p["fell"].items()) or "none"
        registers, shared = ", ".join(map(str, p["registers"])), ", ".join(f"{s:,}" for s in p["shared"])
        f = p["first"]
        tile = "×".join(str(f["knobs"][n]) for n in ("BM", "BN", "BK"))
        lines += [
            f"**{p['target']}**. By traffic and throughput alone, before registers count, the model's first is {tile} in "
            f"{f['knobs']['stages']} stages: {number(1e6 * f['seconds'])} µs, {f['traffic'] / 2**20:,.1f} MiB. The pick that "
            f"neither misfits nor spills: {knobs}, {p['warps']} warps. {number(1e6 * p['seconds'])} µs by the model, bound by "
            f"{p['bound']}, {p['traffic'] / 2**20:,.1f} MiB of global traffic. Compiled: {registers} registers, {shared} B "
            f"shared; {limit}; matrix instructions: {matrix}. Fallen on the way: {fell}.",
            "",
            f"> The model of its first: {p['model']}",
            "",
        ]
    lines += [
        row("target", "quantised operand", "knobs", "time by the model", "global traffic"),
        row("---", "---", "---", "---:", "---:"),
    ]
    for d in found["rowquant_gemm"]:
        for choice in ("stored", "recomputed"):
            if choice in d:
                r = d[choice]
                knobs = " ".join(f"{k}={v}" for k, v in r["knobs"].items() if k in ("BM", "BN", "BK", "stages"))
                time, moved = f"{number(1e6 * r['seconds'])} µs", f"{r['traffic'] / 2**20:,.1f} MiB"
                lines.append(
                    row(d["target"], f"{choice} ({r['knobs'].get('partition', '')})".replace("|", "\\|"), knobs, time, moved)
                )
    return "\n".join(lines)
