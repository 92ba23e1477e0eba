"""The text of a LegalityError: what would go wrong, between which instances in general, a witness, what is legal."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from tilec.errors import LegalityError, Witness
from tilec.ir.affine import Aff, AffLike
from tilec.ir.program import Access, Program, Statement
from tilec.poly.dataflow import is_free
from tilec.poly.prove import prove
from tilec.poly.verdict import Verdict

WHAT = {
    "flow": "a read would run before the write it depends on.",
    "anti": "a write would run before the read of the value it overwrites.",
    "output": "two writes would change places.",
    "race": "two accesses of one cell would not be ordered.",
    "lost value": "a value would be lost.",
    "wrong source": "a read would receive another value.",
    "out of bounds": "an access would leave its buffer.",
}


def permission_needed(program: Program, budget: int | None = None) -> tuple[str, ...]:
    """The reductions whose order must be free to make `program` legal; () when that is not what is missing."""
    updated = dict.fromkeys(s.target.buffer for s in program.statements if s.op != "=")
    missing = [b for b in updated if b not in program.reassociate and not is_free(program, b)]
    if not missing or prove(program.source, _allowing(program, missing), budget).status != "legal":
        return ()
    needed = list(missing)
    for b in missing:
        fewer = [n for n in needed if n != b]
        if fewer and prove(program.source, _allowing(program, fewer), budget).status == "legal":
            needed = fewer
    return tuple(needed)


def _allowing(program: Program, buffers: Sequence[str]) -> Program:
    return replace(program, reassociate=program.reassociate | frozenset(buffers))


def permission_text(sums: Sequence[str]) -> str:
    """`schedule(reassociate="acc")`."""
    names = ", ".join(f'"{b}"' for b in sums)
    return f"schedule(reassociate={names if len(sums) == 1 else f'({names})'})"


def refuse(call: str, program: Program, verdict: Verdict, advice: str | None = None, sums: Sequence[str] = ()) -> LegalityError:
    """The error for a verdict that is not "legal". `sums`: the reductions whose order alone would change."""
    if verdict.status == "unknown":
        reason = verdict.reason or "no reason given"
        return LegalityError(f"{call}: not proved: {reason}", None, reason, verdict)
    w = verdict.witness
    what = WHAT.get(w.kind, "the result would change.") if w else "the result would change."
    if sums:
        what = f"the order of the float reduction{'s' if len(sums) > 1 else ''} {', '.join(sums)} would change."
        advice = f"legal with the permission {permission_text(sums)}"
    lines = [f"{call}: {what}"]
    fact = verdict.reason or (dependence(program, w) if w else None)
    if fact:
        lines.append(f"  {fact}")
    if w:
        lines += [f"  {line}" for line in w.text.splitlines()]
    if verdict.sizes not in ("all sizes", "") and program.sizes:
        lines.append(f"  illegal for {verdict.sizes}")
    if advice:
        lines.append(f"  {advice}")
    return LegalityError("\n".join(lines), w, verdict.reason, verdict)


def dependence(program: Program, w: Witness) -> str | None:
    """`flow through a: S0[i,j] writes a[i,j], S0[i+1,j-1] reads it`, when the two instances have a constant distance."""
    if w.kind not in ("flow", "anti", "output"):
        return None
    ends = [_instance(program, w.source), _instance(program, w.sink)]
    if ends[0] is None or ends[1] is None:
        return None
    (s, at), (t, to) = ends[0], ends[1]
    buffer = w.element.partition("[")[0]
    first = [s.target] if w.kind != "anti" else [a for a in s.reads if a.buffer == buffer]
    second = [t.target] if w.kind != "flow" else [*(a for a in t.reads if a.buffer == buffer), t.target]
    if len(at) == len(to):
        move: dict[str, AffLike] = {v: Aff.of(u) + (q - p) for v, u, p, q in zip(t.loops, s.loops, at, to, strict=True)}
        for a in first:
            for b in second:
                if a.buffer == b.buffer == buffer and tuple(e.subs(move) for e in b.index) == a.index:
                    other = ",".join(_short(Aff.of(v).subs(move)) for v in t.loops)
                    verbs = {"flow": ("writes", "reads"), "anti": ("reads", "writes"), "output": ("writes", "writes")}[w.kind]
                    mine = f"{s.name}[{','.join(s.loops)}]"
                    return f"{w.kind} through {buffer}: {mine} {verbs[0]} {_access(a)}, {t.name}[{other}] {verbs[1]} it"
    return None


def _short(e: Aff) -> str:
    return str(e).replace(" ", "")


def _access(a: Access) -> str:
    return f"{a.buffer}[{','.join(map(_short, a.index))}]" if a.index else a.buffer


def _instance(program: Program, text: str) -> tuple[Statement, tuple[int, ...]] | None:
    found = re.fullmatch(r"(\w+)\[([-\d,]*)\]", text)
    if not found or found[1] not in program.statement:
        return None
    values = tuple(int(v) for v in found[2].split(",") if v)
    statement = program.statement[found[1]]
    return (statement, values) if len(values) == len(statement.loops) else None
