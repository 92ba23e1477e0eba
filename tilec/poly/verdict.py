"""What a proof says: legal, illegal with a witness, or unknown with a reason."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.errors import Witness


class Unresolved(Exception):
    """A question that the proof cannot answer exactly; str() is the reason."""


@dataclass(frozen=True)
class Verdict:
    """status: "legal", "illegal" or "unknown".

    sizes: the sizes for which the status holds, as readable text. permissions: those that the proof had to use. rounding: those
    given to what is generated (contract, hardware_rounding), whose results may then differ in their last bits.
    recomputed: statements that run more than once, with how. notes: what is worth knowing (a Wait that covers nothing, the merge
    tree of a reassociated sum). method: "full" (complete dataflow check) or "order" (the fast path on dependences).
    """

    status: str
    sizes: str = "all sizes"
    permissions: tuple[str, ...] = ()
    recomputed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str | None = None
    witness: Witness | None = None
    method: str = "full"
    rounding: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        raise TypeError("a Verdict has three values; compare .status with 'legal', 'illegal' or 'unknown'")

    def __str__(self) -> str:
        lines = [f"{self.status} for {self.sizes}"]
        if self.permissions:
            lines.append(f"  permissions used: {', '.join(self.permissions)}")
        if self.rounding:
            lines.append(f"  rounding permitted: {', '.join(self.rounding)} (results may differ from the program's bits)")
        if self.recomputed:
            lines.append(f"  recomputed: {', '.join(self.recomputed)}")
        lines += [f"  {line}" for line in (self.reason or "").splitlines()]
        if self.witness is not None:
            lines += [f"  {line}" for line in self.witness.text.splitlines()]
        lines += [f"  note: {n}" for n in self.notes]
        return "\n".join(lines)
