"""Operations on values of one width as C text, written alike for scalars and vectors."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.codegen import c_lanes
from tilec.codegen.c_helpers import Helpers


@dataclass(frozen=True)
class Width:
    helpers: Helpers
    lanes: int

    def type(self, short: str) -> str:
        return self.helpers.type(short, self.lanes)

    def constant(self, short: str, text: str) -> str:
        """A scalar text as a value of all lanes."""
        return text if self.lanes == 1 else f"{c_lanes.splat(self.helpers, short, self.lanes)}({text})"

    def convert(self, to: str, short: str, x: str) -> str:
        return c_lanes.convert(self.helpers, to, short, self.lanes, x)

    def resize(self, to: str, short: str, x: str) -> str:
        """Integers, to more bits or to fewer that hold them."""
        return f"({to}){x}" if self.lanes == 1 else f"{c_lanes.resize(self.helpers, to, short, self.lanes)}({x})"

    def bits(self, to: str, short: str, x: str) -> str:
        """The same bits as another type."""
        return f"{c_lanes.bits(self.helpers, to, short)}({x})" if self.lanes == 1 else f"({self.type(to)})({x})"

    def where(self, short: str, kind: str, p: str, op: str, q: str, a: str, b: str) -> str:
        """p op q ? a : b, p and q of type `kind`, a and b of type `short`; q may be a scalar."""
        if self.lanes == 1:
            return f"({p} {op} {q} ? {a} : {b})"
        whole = q if q == p else self.constant(kind, q)
        return f"{c_lanes.where(self.helpers, short, kind, op, self.lanes)}({p}, {whole}, {a}, {b})"
