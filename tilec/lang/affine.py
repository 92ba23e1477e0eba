"""Python expressions read as affine ones: subscripts, loop bounds, conditions, shapes."""

from __future__ import annotations

import ast
from collections.abc import Callable

from tilec.errors import LanguageError
from tilec.ir.affine import Aff, Constraint

ALLOWED = (
    "Affine here means: loop variables, sizes and integers with +, -, * by an integer constant, "
    "and // or % by a positive integer constant."
)


class Located(LanguageError):
    """A LanguageError that knows its syntax node; the front end turns it into file, line and column."""

    def __init__(self, text: str, node: ast.AST | None):
        super().__init__(text)
        self.node = node


class Reader:
    """Reads affine expressions, bounds and conditions; `resolve` gives a name's value or raises."""

    def __init__(self, resolve: Callable[[ast.Name], Aff], other: Callable[[ast.expr], Aff | None] = lambda _: None):
        self.resolve, self.other = resolve, other

    def aff(self, node: ast.expr) -> Aff:
        match node:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                return Aff(value)
            case ast.Name():
                return self.resolve(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self.aff(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.aff(operand)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.aff(left) + self.aff(right)
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self.aff(left) - self.aff(right)
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                a, b = self.aff(left), self.aff(right)
                if b.is_const:
                    return a * b.const
                if a.is_const:
                    return b * a.const
                raise Located(f"'{ast.unparse(node)}' is not affine: it multiplies two variables.\n  {ALLOWED}", node)
            case ast.BinOp(left=left, op=(ast.FloorDiv() | ast.Mod()) as op, right=right):
                a, b = self.aff(left), self.aff(right)
                if not b.is_const or b.const <= 0:
                    sign = "//" if isinstance(op, ast.FloorDiv) else "%"
                    what = f"{sign} needs a positive integer constant on its right, not '{ast.unparse(right)}'"
                    raise Located(f"'{ast.unparse(node)}' is not affine: {what}.\n  {ALLOWED}", node)
                return a // b.const if isinstance(op, ast.FloorDiv) else a % b.const
        found = self.other(node)
        if found is not None:
            return found
        raise Located(f"'{ast.unparse(node)}' is not affine.\n  {ALLOWED}", node)

    def bounds(self, node: ast.expr, kind: str) -> list[Aff]:
        """The expressions whose `kind` ("min" or "max") is `node`; sums and differences distribute over min and max."""
        other = "max" if kind == "min" else "min"
        match node:
            case ast.Call(func=ast.Name(id=("min" | "max") as name), args=args, keywords=[]) if args:
                if name != kind:
                    side = "lower bound of a loop or the smaller" if kind == "max" else "upper bound of a loop or the larger"
                    raise Located(f"'{ast.unparse(node)}': the {side} side of a condition may be a {kind}, not a {name}.", node)
                return [e for a in args for e in self.bounds(a, kind)]
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return [a + b for a in self.bounds(left, kind) for b in self.bounds(right, kind)]
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return [a - b for a in self.bounds(left, kind) for b in self.bounds(right, other)]
        return [self.aff(node)]

    def condition(self, node: ast.expr) -> list[Constraint]:
        """The conjunction of constraints that `node` states."""
        match node:
            case ast.BoolOp(op=ast.And(), values=values):
                return [c for v in values for c in self.condition(v)]
            case ast.BoolOp(op=ast.Or()):
                raise Located(
                    f"'{ast.unparse(node)}': a condition is a conjunction; write one `if` for each side of `or`, "
                    "with conditions that exclude each other.",
                    node,
                )
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                out: list[Constraint] = []
                for op, a, b in zip(ops, [left, *comparators], comparators, strict=False):
                    out += self._compare(op, a, b, node)
                return out
        raise Located(
            f"'{ast.unparse(node)}' is no affine condition; compare affine expressions joined by `and`.\n  {ALLOWED}",
            node,
        )

    def _compare(self, op: ast.cmpop, a: ast.expr, b: ast.expr, node: ast.expr) -> list[Constraint]:
        match op:
            case ast.Lt():
                return [Constraint.lt(x, y) for x in self.bounds(a, "max") for y in self.bounds(b, "min")]
            case ast.LtE():
                return [Constraint.ge(y, x) for x in self.bounds(a, "max") for y in self.bounds(b, "min")]
            case ast.Gt():
                return self._compare(ast.Lt(), b, a, node)
            case ast.GtE():
                return self._compare(ast.LtE(), b, a, node)
            case ast.Eq():
                return [Constraint.eq(self.aff(a), self.aff(b))]
            case ast.NotEq():
                equal = Constraint.eq(self.aff(a), self.aff(b))
                negated = negate_at_edge(equal, {})
                if negated is not None:
                    return [negated]
                raise Located(
                    f"'{ast.unparse(node)}': != is two cases; write one `if` with < and one with >.",
                    node,
                )
        raise Located(f"'{ast.unparse(node)}': allowed comparisons are <, <=, >, >= and ==.", node)


def negate(condition: Constraint, ranges: dict[str, tuple[Aff, Aff]]) -> Constraint | None:
    """not `condition` as one constraint, or None; `ranges` are the loop variables' lowest and highest values."""
    if not condition.equal:
        return Constraint(-condition.expr - 1)
    return negate_at_edge(condition, ranges)


def negate_at_edge(condition: Constraint, ranges: dict[str, tuple[Aff, Aff]]) -> Constraint | None:
    """`e != 0` is one inequality where e cannot be negative, or cannot be positive."""
    low, high = extreme(condition.expr, ranges, False), extreme(condition.expr, ranges, True)
    if nonnegative(low):
        return Constraint(condition.expr - 1)
    if nonnegative(-high):
        return Constraint(-condition.expr - 1)
    return None


def nonnegative(e: Aff) -> bool:
    """Certainly >= 0 for all sizes >= 1 (a sufficient test)."""
    total = e.const
    for atom, c in e.terms:
        if c < 0:
            return False
        total += c if isinstance(atom, str) else c * _least(atom.num, atom.den)
    return total >= 0


def _least(num: Aff, den: int) -> int:
    """A lower bound of floor(num / den), very negative where none is seen."""
    if any(c < 0 or not isinstance(a, str) for a, c in num.terms):
        return -(1 << 62)
    return (num.const + sum(c for _, c in num.terms)) // den


def extreme(e: Aff, ranges: dict[str, tuple[Aff, Aff]], high: bool) -> Aff:
    """An upper (`high`) or lower bound of `e`, affine in the sizes, over the loop variables' `ranges`; exact on boxes."""
    out = Aff(e.const)
    e = Aff(0, e.terms)
    for atom, c in e.terms:  # f·(x mod d) lies in 0 .. f·(d-1)
        if not isinstance(atom, str) and c < 0 and c % atom.den == 0:
            whole = atom.num * (-c // atom.den)
            have = dict(e.terms)
            if all(have.get(a) == k for a, k in whole.terms):
                e = e - Aff(0, whole.terms) - Aff(0, ((atom, c),))
                # the constant inside the division moved nothing: (x + k) mod d has it in `out` with the other sign
                out = out - whole.const + (Aff((-c // atom.den) * (atom.den - 1)) if high else Aff(0))
    for atom, c in e.terms:
        up = high == (c > 0)
        if isinstance(atom, str):
            bound = ranges[atom][up] if atom in ranges else Aff.of(atom)
        else:
            bound = extreme(atom.num, ranges, up) // atom.den
        out = out + bound * c
    return out
