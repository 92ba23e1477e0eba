"""Values of statements as C text: one scalar, or the lanes of a vector; each operation rounds once in its arithmetic type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilec.codegen import c_arithmetic, c_convert, c_functions, c_lanes
from tilec.codegen.c_helpers import HOLDS, MASK, Helpers, number
from tilec.errors import InternalError
from tilec.ir.affine import Aff
from tilec.ir.dtypes import DTYPES, promote
from tilec.ir.expr import Binary, Call, Cast, Compare, Const, Expr, Index, Load, Scalar, Select, Unary
from tilec.ir.program import Read

_LEVEL = {"+": 5, "-": 5, "*": 6, "/": 6}
ATOM = 9


@dataclass(frozen=True)
class Value:
    """Text of a value of arithmetic type `dtype`; `wide`: it has all lanes, else it is the same scalar in each."""

    text: str
    dtype: str
    wide: bool
    level: int = ATOM

    def closed(self, least: int = ATOM) -> str:
        return self.text if self.level >= least else f"({self.text})"


@dataclass(frozen=True)
class Values:
    """load(read) gives the arithmetic value of a read, index(aff) that of an affine expression, at the lanes of this place."""

    helpers: Helpers
    lanes: int
    load: Callable[[Read], Value]
    index: Callable[[Aff], Value]
    scalar: Callable[[str], str]
    contract: bool = False

    def whole(self, v: Value) -> str:
        """The text of a value with all lanes."""
        if v.wide or self.lanes == 1:
            return v.text
        if v.dtype == "bool":
            return f"{c_lanes.splat(self.helpers, 'i32', self.lanes)}(-({v.text}))"
        return f"{c_lanes.splat(self.helpers, HOLDS[v.dtype], self.lanes)}({v.text})"

    def _n(self, *vs: Value) -> int:
        return self.lanes if any(v.wide for v in vs) else 1

    def convert(self, v: Value, want: str) -> Value:
        """To a wider or equal arithmetic type; i32 to f32 rounds once."""
        if v.dtype == want:
            return v
        if v.dtype == "bool":
            v = Value(f"{v.closed()} & 1", "i32", True, 2) if v.wide else Value(v.text, "i32", False, v.level)
            if want == "i32":
                return v
        if v.wide:
            return Value(c_lanes.convert(self.helpers, HOLDS[want], HOLDS[v.dtype], self.lanes, v.text), want, True)
        return Value(f"({HOLDS[want]}){v.closed()}", want, False, 8)

    def rounded(self, v: Value, dtype: str, rule: str | None = None) -> Value:
        """Stored as `dtype` and loaded again."""
        n = self._n(v)
        short = c_convert.through(self.helpers, dtype, n) if v.dtype == "f32" and rule in (None, "nearest_even") else ""
        if short:
            return Value(f"{short}({v.text})", "f32", v.wide)
        raw = self.stored(v, dtype, rule)
        back = c_convert.decode(self.helpers, dtype, n)
        arithmetic = DTYPES[dtype].arithmetic
        return Value(f"{back}({raw})" if back else raw, arithmetic, v.wide, ATOM if back or raw.endswith(")") else 0)

    def stored(self, v: Value, dtype: str, rule: str | None = None) -> str:
        """The element that a store of `v` to `dtype` leaves, all lanes of it where `v` is wide."""
        n = self._n(v)
        if v.dtype == "bool":
            v = self.convert(v, "i32")
        name = c_convert.encode(self.helpers, dtype, v.dtype, n, rule)
        return f"{name}({v.text})" if name else v.text

    def value(self, e: Expr, env: Mapping[str, Aff], reads: tuple[Read, ...]) -> Value:
        """The value of `e` in its own arithmetic type."""

        def go(x: Expr, want: str | None = None) -> Value:
            if want is not None and isinstance(x, Const) and x.dtype == "i32" and want in ("f32", "f64"):
                return Value(number(float(x.value), want), want, False, 7 if x.value < 0 else ATOM)
            v = self.value(x, env, reads)
            return v if want is None else self.convert(v, want)

        match e:
            case Const(value=value, dtype=dtype):
                text = ("1" if value else "0") if dtype == "bool" else number(value, HOLDS[dtype])
                return Value(text, dtype, False, 7 if text.startswith("-") else ATOM)
            case Load(n=n):
                return self.load(reads[n])
            case Index(aff=aff):
                return self.index(aff.subs(env))
            case Scalar(name=name, dtype=dtype):
                return Value(self.scalar(name), dtype, False)
            case Unary(op=op, x=x, dtype=dtype):
                return self.unary(op, dtype, go(x, dtype))
            case Binary(op=op, a=a, b=b, dtype=dtype):
                fused = self._fused(e, go) if self.contract and op in "+-" and dtype in ("f32", "f64") else None
                return fused or self.binary(op, dtype, go(a, dtype), go(b, dtype))
            case Compare(op=op, a=a, b=b):
                common = promote(a.dtype, b.dtype)
                return self._compare(op, go(a, common), go(b, common))
            case Select(cond=c, a=a, b=b, dtype=dtype):
                return self._select(go(c, "bool"), go(a, dtype), go(b, dtype))
            case Call(function=function, args=(x,)):
                v = go(x, "f32")
                return Value(f"{c_functions.function(self.helpers, function, self._n(v))}({v.text})", "f32", v.wide)
            case Cast(to=to, x=x, rule=rule):
                return self.rounded(go(x), to, rule)
        raise InternalError(f"no C text for {e!r}")

    def unary(self, op: str, dtype: str, v: Value) -> Value:
        h, n, short = self.helpers, self._n(v), HOLDS[dtype]
        match op:
            case "-":
                return Value(f"-{v.closed(8)}" if not v.text.startswith("-") else f"-({v.text})", dtype, v.wide, 7)
            case "not":
                return Value(f"~{v.closed()}" if v.wide else f"!{v.closed()}", dtype, v.wide, 8)
            case "sqrt":
                return Value(f"{c_arithmetic.sqrt(h, short, n)}({v.text})", dtype, v.wide)
            case "abs" if dtype == "i32":
                if n == 1:
                    return Value(f"({v.closed()} < 0 ? -{v.closed()} : {v.closed()})", dtype, False)
                return Value(f"{c_lanes.select(h, 'i32', n)}({v.closed()} < 0, -{v.closed()}, {v.text})", dtype, True)
            case "abs":
                if n == 1:
                    return Value(f"{'fabs' if dtype == 'f64' else 'fabsf'}({v.text})", dtype, False)
                i = h.type(MASK.get(dtype, "i32"), n)
                keep = "0x7fffffffffffffff" if dtype == "f64" else "0x7fffffff"
                return Value(f"({h.type(short, n)})(({i}){v.closed()} & {keep})", dtype, True)
        raise InternalError(f"no C text for the operation {op!r}")

    def binary(self, op: str, dtype: str, a: Value, b: Value) -> Value:
        """a op b, both of arithmetic type `dtype`."""
        h, n, wide, short = self.helpers, self._n(a, b), a.wide or b.wide, HOLDS[dtype]
        if op in _LEVEL:
            mine = _LEVEL[op]
            right = b.closed(mine + 1)
            right = f"({right})" if right.startswith("-") else right
            return Value(f"{a.closed(mine)} {op} {right}", dtype, wide, mine)
        if op in ("and", "or"):
            if not wide:
                return Value(f"{a.closed()} {'&&' if op == 'and' else '||'} {b.closed()}", dtype, False, 2)
            x, y = (v.closed() if v.wide else self.whole(v) for v in (a, b))
            return Value(f"{x} {'&' if op == 'and' else '|'} {y}", dtype, True, 2)
        name = c_arithmetic.extreme(h, op, short, n) if op in ("max", "min") else c_arithmetic.divide(h, op, n)
        x, y = (self.whole(v) if wide else v.text for v in (a, b))
        return Value(f"{name}({x}, {y})", dtype, wide)

    def fma(self, dtype: str, a: Value, b: Value, c: Value) -> Value:
        """a·b + c rounded once."""
        wide = a.wide or b.wide or c.wide
        x, y, z = (self.whole(v) if wide else v.text for v in (a, b, c))
        return Value(f"{c_arithmetic.fma(self.helpers, HOLDS[dtype], self._n(a, b, c))}({x}, {y}, {z})", dtype, wide)

    def _fused(self, e: Binary, go: Callable[..., Value]) -> Value | None:
        """A multiply-add under `contract`: a·b ± c or c ± a·b."""
        dtype = e.dtype
        for product, other, left in ((e.a, e.b, True), (e.b, e.a, False)):
            if isinstance(product, Binary) and product.op == "*" and product.dtype == dtype:
                a, b, c = go(product.a, dtype), go(product.b, dtype), go(other, dtype)
                if e.op == "-" and left:
                    c = self.unary("-", dtype, c)
                elif e.op == "-":
                    a = self.unary("-", dtype, a)
                return self.fma(dtype, a, b, c)
        return None

    def _compare(self, op: str, a: Value, b: Value) -> Value:
        text = f"{a.closed(5)} {op} {b.closed(5)}"
        if not (a.wide or b.wide):
            return Value(text, "bool", False, 3)
        if a.dtype == "bool":  # masks are 0 and -1: compare what they stand for
            text = f"{self.convert(Value(self.whole(a), 'bool', True), 'i32').closed()} {op} "
            text += self.convert(Value(self.whole(b), "bool", True), "i32").closed()
        if a.dtype == "f64":
            text = f"__builtin_convertvector({text}, {self.helpers.type('i32', self.lanes)})"
            return Value(text, "bool", True)
        return Value(text, "bool", True, 3)

    def _select(self, c: Value, a: Value, b: Value) -> Value:
        dtype, wide = a.dtype, c.wide or a.wide or b.wide
        x, y = (self.whole(v) if wide else v.closed(3) for v in (a, b))
        if not c.wide:
            return Value(f"({c.closed(3)} ? {x} : {y})", dtype, wide)
        short, n = HOLDS[dtype], self.lanes
        mask = c.text
        if MASK.get(short):
            mask = f"__builtin_convertvector({mask}, {self.helpers.type('i64', n)})"
        if dtype == "bool":
            x, y = (self.whole(v) for v in (a, b))
        return Value(f"{c_lanes.select(self.helpers, short, n)}({mask}, {x}, {y})", dtype, True)
