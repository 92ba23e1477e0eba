"""Arithmetic that is no operator of C, as helpers: square roots, fma, clamps, extremes, integer division."""

from __future__ import annotations

from tilec.codegen.c_helpers import BYTES, REGISTERS, Helpers, by_lane, number, under
from tilec.codegen.c_lanes import bits, select, splat


def sqrt(h: Helpers, short: str, lanes: int) -> str:
    scalar = "sqrt" if short == "f64" else "sqrtf"
    if lanes == 1:
        return scalar
    t, size = h.type(short, lanes), BYTES[short] * lanes
    body = by_lane(t, lanes, f"{scalar}(x[l])")
    if size in REGISTERS:
        r = REGISTERS[size]
        real, suffix = r.real(BYTES[short])
        body = under(r.macro, f"return ({t}){r.prefix}_sqrt_{suffix}(({real})x);", body)
    return h.define(f"sqrt_{t}", t, f"{t} x", body)


def fma(h: Helpers, short: str, lanes: int) -> str:
    """a·b + c rounded once."""
    scalar = "__builtin_fma" if short == "f64" else "__builtin_fmaf"
    if lanes == 1:
        return scalar
    t, size = h.type(short, lanes), BYTES[short] * lanes
    body = by_lane(t, lanes, f"{scalar}(a[l], b[l], c[l])")
    if size in REGISTERS:
        r = REGISTERS[size]
        real, suffix = r.real(BYTES[short])
        macro = r.macro if size == 64 else "__FMA__"
        body = under(macro, f"return ({t}){r.prefix}_fmadd_{suffix}(({real})a, ({real})b, ({real})c);", body)
    return h.define(f"fma_{t}", t, f"{t} a, {t} b, {t} c", body)


def clamp_one_side(h: Helpers, lanes: int, upper: bool) -> str:
    """`x < c ? c : x` (upper: `x > c ? c : x`), NaN kept: the machine's max (min) with its operands in this order."""
    t = h.type("f32", lanes)
    name, sign, op = ("at_most", ">", "min") if upper else ("at_least", "<", "max")

    def body() -> str:
        plain = f"return x {sign} c ? c : x;"
        if lanes > 1:
            plain = f"return {select(h, 'f32', lanes)}(x {sign} c, c, x);"
        if lanes in (4, 8, 16):
            r = REGISTERS[4 * lanes]
            return under(r.macro, f"return ({t}){r.prefix}_{op}_ps(({r.floats})c, ({r.floats})x);", plain)
        return plain

    return h.define(f"{name}_{t}", t, f"{t} x, {t} c", body)


def extreme(h: Helpers, op: str, short: str, lanes: int) -> str:
    """IEEE 754-2019 maximum or minimum: NaN wins and is the quiet one, -0 < +0; of integers the larger or smaller."""
    t = h.type(short, lanes)
    sign = ">" if op == "max" else "<"
    return h.define(
        f"{'maximum' if op == 'max' else 'minimum'}_{t}",
        t,
        f"{t} a, {t} b",
        lambda: _extreme_i32(h, op, sign, lanes) if short == "i32" else _extreme_real(h, op, sign, short, lanes),
    )


def _extreme_i32(h: Helpers, op: str, sign: str, lanes: int) -> str:
    if lanes == 1:
        return f"return a {sign} b ? a : b;"
    plain = f"return {select(h, 'i32', lanes)}(a {sign} b, a, b);"
    if lanes not in (4, 8, 16):
        return plain
    r = REGISTERS[4 * lanes]
    macro = "__SSE4_1__" if lanes == 4 else r.macro
    return under(macro, f"return ({h.type('i32', lanes)}){r.prefix}_{op}_epi32(({r.whole})a, ({r.whole})b);", plain)


def _extreme_real(h: Helpers, op: str, sign: str, short: str, lanes: int) -> str:
    raw, nan, join = "i64" if short == "f64" else "i32", number(float("nan"), short), "&" if op == "max" else "|"
    if lanes == 1:
        to, back = bits(h, raw, short), bits(h, short, raw)
        return (
            f"if (a != a || b != b) return {nan};\nif (a == b) return {back}({to}(a) {join} {to}(b));\nreturn a {sign} b ? a : b;"
        )
    t, choose, spread, i = h.type(short, lanes), select(h, short, lanes), splat(h, short, lanes), h.type(raw, lanes)
    plain = (
        f"{t} r = {choose}(a {sign} b, a, b);\n"
        f"r = {choose}(a == b, ({t})(({i})a {join} ({i})b), r);\n"
        f"return {choose}((a == a) & (b == b), r, {spread}({nan}));"
    )
    if short != "f32" or lanes not in (4, 8, 16):
        return plain
    r = REGISTERS[4 * lanes]
    of = f"({r.floats})a, ({r.floats})b"
    fast = (  # the instruction orders zeros, but takes the other operand for a NaN
        f"const {r.floats} r = {r.prefix}_range_ps({of}, {5 if op == 'max' else 4});\n"
        f"return ({t}){r.prefix}_mask_blend_ps({r.prefix}_cmp_ps_mask({of}, _CMP_UNORD_Q), r, ({r.floats}){spread}({nan}));"
    )
    return under("__AVX512VL__ __AVX512DQ__", fast, plain)


def divide(h: Helpers, op: str, lanes: int) -> str:
    """i32 `//` and `%`: floor; by zero 0."""
    floor = "if (b == 0) return 0;\nif (b == -1) return (i32)(0u - (u32)a);\nreturn a / b - (a % b != 0 && (a < 0) != (b < 0));"
    one = h.define("floor_div_i32", "i32", "i32 a, i32 b", floor)
    if op == "%":
        rest = "return b == 0 || b == -1 ? 0 : (i32)((u32)a - (u32)b * (u32)floor_div_i32(a, b));"
        one = h.define("floor_mod_i32", "i32", "i32 a, i32 b", rest)
    if lanes == 1:
        return one
    t = h.type("i32", lanes)
    return h.define(f"{one}x{lanes}", t, f"{t} a, {t} b", by_lane(t, lanes, f"{one}(a[l], b[l])"))


def index(h: Helpers, what: str) -> str:
    """Helpers on 64-bit loop arithmetic: min_i, max_i, and floor_i, a division by a positive number."""
    bodies = {
        "min_i": "return a < b ? a : b;",
        "max_i": "return a > b ? a : b;",
        "floor_i": "return a >= 0 ? a / b : -((b - 1 - a) / b);",
    }
    return h.define(what, "i64", "i64 a, i64 b", bodies[what])
