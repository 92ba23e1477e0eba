"""A verdict and a witness as data with stable keys."""

from __future__ import annotations

from typing import Any

from tilec.errors import LanguageError, LegalityError, TilecError, Witness
from tilec.poly.verdict import Verdict


def witness_data(w: Witness | None) -> dict[str, Any] | None:
    """source, sink, element, kind, sizes, received, needed, text; None without a witness."""
    if w is None:
        return None
    return {
        "source": w.source,
        "sink": w.sink,
        "element": w.element,
        "kind": w.kind,
        "sizes": dict(w.sizes),
        "received": w.received,
        "needed": w.needed,
        "text": w.text,
    }


def verdict_data(v: Verdict) -> dict[str, Any]:
    """status, sizes, method, permissions, rounding, recomputed, notes, reason, witness."""
    return {
        "status": v.status,
        "sizes": v.sizes,
        "method": v.method,
        "permissions": list(v.permissions),
        "rounding": list(v.rounding),
        "recomputed": list(v.recomputed),
        "notes": list(v.notes),
        "reason": v.reason,
        "witness": witness_data(v.witness),
    }


def error_data(e: TilecError) -> dict[str, Any]:
    """class, text, notes; file, line, column of a LanguageError; witness and reason of a LegalityError."""
    data: dict[str, Any] = {"class": type(e).__name__, "text": str(e), "notes": list(getattr(e, "__notes__", []))}
    if isinstance(e, LanguageError):
        data |= {"file": e.file, "line": e.line, "column": e.column}
    if isinstance(e, LegalityError):
        data |= {"witness": witness_data(e.witness), "reason": e.reason}
    return data
