"""Conversions between storage and arithmetic types as C helpers: the same bits as ir/dtypes.py, for scalars and vectors.

The usual roundings out of f32 are written in integer operations that work on scalars and vectors alike; everything else (other
rules, out of f64 or i32) goes through f64, which holds every f32 and i32, one lane after the other.
"""

from __future__ import annotations

import numpy as np

from tilec.codegen.c_helpers import BYTES, ELEMENT, HOLDS, Helpers, under, vector
from tilec.ir.dtypes import DTYPES

_MOST = "0x1.fffffffffffffp1023"  # the largest finite f64
_RULE = {
    "toward_zero": "trunc",
    "floor": "floor",
    "up": "ceil",
}
# bits of the mantissa dropped, exponent bias against f32's, magic number of the subnormal range, encoding of the largest, NaN
_F8 = {"f8e4m3": (20, 120, "16384.0f", 448.0, 0x7F), "f8e5m2": (21, 112, "128.0f", 57344.0, 0x7E)}


def _lanes(h: Helpers, lanes: int):
    """(cast of values, cast of bits, select, integers of another width) as text, the same for scalars and vectors."""

    def convert(to: str, short: str, x: str) -> str:
        return h.convert(to, short, lanes, x)

    def resize(to: str, short: str, x: str) -> str:
        """Integers, to more bits or to fewer that hold them."""
        return f"({to}){x}" if lanes == 1 else f"{h.resize(to, short, lanes)}({x})"

    def bits(to: str, short: str, x: str) -> str:
        return f"{h.bits(to, short)}({x})" if lanes == 1 else f"({h.type(to, lanes)})({x})"

    def select(short: str, m: str, a: str, b: str) -> str:
        if lanes == 1:
            return f"({m} ? {a} : {b})"
        h.type(short, lanes)
        return f"{h.select(short, lanes)}({m}, {a}, {b})"

    return convert, bits, select, resize


def constant(h: Helpers, short: str, lanes: int, text: str) -> str:
    """A scalar text as a value of `lanes` lanes."""
    return text if lanes == 1 else f"{h.splat(short, lanes)}({text})"


def decode(h: Helpers, dtype: str, lanes: int) -> str:
    """The helper that turns stored elements into arithmetic values, exactly; "" where they are the same."""
    if DTYPES[dtype].direct:
        return ""
    raw, to = ELEMENT[dtype], HOLDS[DTYPES[dtype].arithmetic]
    _, bits, select, resize = _lanes(h, lanes)
    t, u, f = h.type(raw, lanes), h.type("u32", lanes), h.type("f32", lanes)
    result = h.type(to, lanes)

    def body() -> str:
        if dtype == "i8":
            return f"return {resize('i32', 'i8', 'r')};"
        if dtype == "bf16":
            wide = resize("u32", raw, "r")
            return f"return {bits('f32', 'u32', f'{wide} << 16')};"
        drop, sign, top, scale, special = {
            "f16": (13, 16, 0x8000, "0x1p112f", 0x7C00),
            "f8e5m2": (21, 24, 0x80, "0x1p112f", 0x7C),
            "f8e4m3": (20, 24, 0x80, "0x1p120f", 0x7F),
        }[dtype]
        value = bits("f32", "u32", f"m << {drop}")
        lines = [
            f"{u} w = {resize('u32', raw, 'r')};",
            f"{u} m = w & {top - 1:#x}u;",
            f"{f} x = {value} * {scale};",
            f"{u} b = {bits('u32', 'f32', 'x')};",
            f"b = {select('u32', f'm >= {special:#x}u', f'(m << {drop}) | 0x7f800000u', 'b')};",
            f"return {bits('f32', 'u32', f'b | ((w & {top:#x}u) << {sign})')};",
        ]
        plain = "\n".join(lines)
        if dtype == "f16" and lanes in (4, 8, 16):
            macro, prefix, whole = {
                4: ("__F16C__", "_mm", "__m128i"),
                8: ("__F16C__", "_mm256", "__m128i"),
                16: ("__AVX512F__", "_mm512", "__m256i"),
            }[lanes]
            source = f"({whole})r" if lanes > 4 else "_mm_loadl_epi64((const __m128i *)&r)"
            return f"#if defined({macro})\nreturn ({f}){prefix}_cvtph_ps({source});\n#else\n{plain}\n#endif"
        return plain

    return h.define(f"{vector(to, lanes)}_from_{dtype}", result, f"{t} r", body)


def encode(h: Helpers, dtype: str, source: str, lanes: int, rule: str | None = None) -> str:
    """The helper that rounds arithmetic values of type `source` once to `dtype`; "" where nothing changes."""
    d, short = DTYPES[dtype], HOLDS[source]
    rule = None if rule == "nearest_even" else rule
    if d.direct and source in (dtype, "bool" if dtype == "i32" else dtype) and rule != "saturate":
        return ""
    t, x = h.type(ELEMENT[dtype], lanes), h.type(short, lanes)
    name = f"{dtype}_from_{x}" + (f"_{rule}" if rule else "")
    convert, _, _, _ = _lanes(h, lanes)

    def body() -> str:
        if rule is None and d.kind == "float" and dtype in ("f32", "f64"):
            return f"return {convert(dtype, short, 'x')};"
        if rule is None and source == "f32":
            return _from_f32(h, dtype, lanes)
        if rule is None and source in ("i32", "bool") and dtype == "i8":
            low, high = (constant(h, "i32", lanes, v) for v in ("-128", "127"))
            _, _, select, resize = _lanes(h, lanes)
            inner = select("i32", "x < -128", low, select("i32", "x > 127", high, "x"))
            return f"return {resize('i8', 'i32', inner)};"
        one = _general(h, dtype, rule)
        if lanes == 1:
            return f"return {one}((f64)x);"
        return f"{t} y;\nfor (int l = 0; l < {lanes}; ++l) y[l] = {one}((f64)x[l]);\nreturn y;"

    return h.define(name, t, f"{x} x", body)


def through(h: Helpers, dtype: str, lanes: int) -> str:
    """The helper that rounds f32 values to `dtype` and keeps them as f32: what a store and a load make of them; "" if none."""
    _, bits, select, _ = _lanes(h, lanes)
    f, u = h.type("f32", lanes), h.type("u32", lanes)
    if dtype == "bf16":

        def body() -> str:
            quiet = constant(h, "u32", lanes, "0x7fc00000u")
            kept = select("u32", "x == x", "r", quiet)
            return (
                f"{u} b = {bits('u32', 'f32', 'x')};\n{u} r = (b + 0x7fffu + ((b >> 16) & 1u)) & 0xffff0000u;\n"
                f"return {bits('f32', 'u32', kept)};"
            )

    elif dtype == "f16" and lanes in (4, 8, 16):

        def body() -> str:
            macro, prefix = {4: ("__F16C__", "_mm"), 8: ("__F16C__", "_mm256"), 16: ("__AVX512F__", "_mm512")}[lanes]
            plain = f"return {decode(h, 'f16', lanes)}({encode(h, 'f16', 'f32', lanes)}(x));"
            kind = {4: "__m128", 8: "__m256", 16: "__m512"}[lanes]
            return under(macro, f"return ({f}){prefix}_cvtph_ps({prefix}_cvtps_ph(({kind})x, _MM_FROUND_TO_NEAREST_INT));", plain)

    else:
        return ""
    return h.define(f"{f}_as_{dtype}", f, f"{f} x", body)


def _from_f32(h: Helpers, dtype: str, lanes: int) -> str:
    """Nearest even out of f32."""
    convert, bits, select, resize = _lanes(h, lanes)
    u, i, f = h.type("u32", lanes), h.type("i32", lanes), h.type("f32", lanes)

    def c(text: str) -> str:
        return constant(h, "u32", lanes, text)

    if dtype == "bf16":
        return "\n".join(
            [
                f"{u} b = {bits('u32', 'f32', 'x')};",
                f"{u} r = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;",
                f"return {resize('u16', 'u32', select('u32', 'x == x', 'r', c('0x7fc0u')))};",
            ]
        )
    if dtype in _F8 or dtype == "f16":
        if dtype == "f16":
            drop, bias, magic, quiet, sign = 13, 112, "0.5f", 0x7E00, 16
        else:
            drop, bias, magic, _, quiet = _F8[dtype]
            sign = 24
        least = 127 + DTYPES[dtype].least  # exponent field of the smallest normal number
        lines = [f"{u} b = {bits('u32', 'f32', 'x')};", f"{u} s = (b >> {sign}) & {0x8000 if dtype == 'f16' else 0x80:#x}u;"]
        if dtype in _F8:
            absolute = bits("f32", "u32", "b & 0x7fffffffu")
            top = constant(h, "f32", lanes, f"{_F8[dtype][3]!r}f")
            lines.append(f"{u} m = {bits('u32', 'f32', f'{h.clamp_one_side(lanes, True)}({absolute}, {top})')};")
        else:
            lines.append(f"{u} m = b & 0x7fffffffu;")
        rounding = ((1 << (drop - 1)) - 1 - (bias << 23)) % 2**32  # and the exponent's bias taken off
        signed = "(i32)m" if lanes == 1 else f"({i})m"
        lines += [
            f"{u} n = (m + {rounding:#x}u + ((m >> {drop}) & 1u)) >> {drop};",
            f"{f} tiny = {bits('f32', 'u32', 'm')} + {magic};",
            f"{u} t = {bits('u32', 'f32', 'tiny')} - {_bits(float(magic[:-1])):#x}u;",
            f"{u} r = {select('u32', f'{signed} < {least << 23:#x}', 't', 'n')};",
        ]
        if dtype == "f16":
            lines.append(f"r = {select('u32', f'm >= {_bits(65520.0):#x}u', c('0x7c00u'), 'r')};")
        last = select("u32", "x == x", "r | s", c(f"{quiet:#x}u"))
        lines.append(f"return {resize(ELEMENT[dtype], 'u32', last)};")
        return "\n".join(lines)
    top = constant(h, "f32", lanes, "127.0f" if dtype == "i8" else "0.0f")
    if dtype == "i8":
        low = constant(h, "f32", lanes, "-128.0f")
        last = "x == x ? n : 0" if lanes == 1 else "n & (x == x)"
        plain = "\n".join(
            [
                f"{f} y = {h.clamp_one_side(lanes, True)}({h.clamp_one_side(lanes, False)}(x, {low}), {top});",
                f"{i} n = {bits('i32', 'f32', 'y + 12582912.0f')} - 0x4b400000;  // 1.5*2^23 leaves no bits for a fraction",
                f"n = {last};",
                f"return {resize('i8', 'i32', 'n')};",
            ]
        )
        if lanes != 8:
            return plain
        below = f"{h.clamp_one_side(lanes, True)}(x, {top})"
        short = f"{i} n = ({i})_mm256_cvtps_epi32((__m256){below});  // what is too low is INT32_MIN, which packing saturates"
        return under("__AVX2__", f"{short}\nn = {last};\nreturn {resize('i8', 'i32', 'n')};", plain)
    assert dtype == "i32"
    high = constant(h, "i32", lanes, "INT32_MAX")
    lowest = constant(h, "i32", lanes, "INT32_MIN")
    zero = constant(h, "f32", lanes, "0.0f")
    inside = "(x > -2147483648.0f) & (x < 2147483648.0f)"
    absolute = bits("f32", "u32", f"{bits('u32', 'f32', 'x')} & 0x7fffffffu")
    magic = bits("f32", "u32", f"({bits('u32', 'f32', 'x')} & 0x80000000u) | {_bits(8388608.0):#x}u")
    return "\n".join(
        [
            f"{f} magic = {magic};  // 2^23 with the sign of x",
            f"{f} r = {select('f32', f'{absolute} < 8388608.0f', '(x + magic) - magic', 'x')};",
            f"{i} n = {convert('i32', 'f32', select('f32', inside, 'r', zero))};",
            f"n = {select('i32', 'x >= 2147483648.0f', high, 'n')};",
            f"return {select('i32', 'x <= -2147483648.0f', lowest, 'n')};",
        ]
    )


def _bits(value: float) -> int:
    """The bits of an f32 value."""
    return int(np.float32(value).view(np.uint32))


def _general(h: Helpers, dtype: str, rule: str | None) -> str:
    """f64 to `dtype` under any rule, one value: what ir/dtypes.py does, step by step."""
    d, raw = DTYPES[dtype], ELEMENT[dtype]
    round_to = _RULE.get(rule or "", "rint")
    name = f"round_{dtype}" + (f"_{rule}" if rule else "")
    if d.kind == "int":
        if rule == "no_saturate":
            whole = f"f64 w = rint(x);\nif (!(fabs(w) <= {_MOST})) return 0;\nreturn ({raw})(i64)fmod(w, 0x1p{d.bits});"
            return h.define(name, raw, "f64 x", whole)
        lines = [
            "if (x != x) return 0;",
            f"f64 w = {round_to}(x);",
            f"return w <= {d.lowest!r} ? ({raw}){int(d.lowest)}LL : w >= {d.largest!r} ? ({raw}){int(d.largest)}LL : ({raw})w;",
        ]
        return h.define(name, raw, "f64 x", "\n".join(lines))
    return h.define(name, raw, "f64 x", lambda: _general_float(h, dtype, rule, round_to))


def _general_float(h: Helpers, dtype: str, rule: str | None, round_to: str) -> str:
    d = DTYPES[dtype]
    saturates = rule == "saturate" or (d.saturates and rule != "no_saturate")
    lines = ["if (x != x) return NAN_;"]
    if dtype == "f64":
        lines.append("f64 r = x;")
    else:
        lines += [
            "int e = 0;",
            "if (fabs(x) <= 0x1.fffffffffffffp1023) frexp(x, &e);",
            f"const int last = (e - 1 > {d.least} ? e - 1 : {d.least}) - {d.precision - 1};",
            f"f64 r = copysign(ldexp({round_to}(ldexp(x, -last)), last), x);",
        ]
    beyond = f"fabs(r) > {d.largest!r}"
    if saturates:
        lines.append(f"if ({beyond}) r = copysign({d.largest!r}, x);")
    else:
        stays = {"toward_zero": "1", "floor": "x > 0", "up": "x < 0"}.get(rule or "", "0")
        finite = "fabs(x) <= 0x1.fffffffffffffp1023"
        lines.append(f"if ({beyond}) r = copysign({finite} && {stays} ? {d.largest!r} : (f64)INFINITY, x);")
    if dtype in ("f64", "f32"):
        lines.append(f"return ({dtype})r;")
        return "\n".join(lines).replace("NAN_", f"({dtype})NAN")
    quiet = {"f16": "0x7e00", "bf16": "0x7fc0", "f8e4m3": "0x7f", "f8e5m2": "0x7e"}[dtype]
    if dtype == "f8e4m3":
        lines.append(f"if (fabs(r) > {d.largest!r}) return {quiet};")
    lines.append(f"return {encode(h, dtype, 'f32', 1)}((f32)r);" if dtype != "f8e5m2" else "")
    if dtype == "f8e5m2":  # infinity is a value of the format, the f32 way saturates it
        lines[-1] = f"if (fabs(r) > {d.largest!r}) return r < 0 ? 0xfc : 0x7c;\nreturn {encode(h, dtype, 'f32', 1)}((f32)r);"
    return "\n".join(lines).replace("NAN_", quiet)


def widths(dtype: str, source: str) -> int:
    """The wider of an element and its arithmetic value, in bytes."""
    return max(BYTES[ELEMENT[dtype]], BYTES[HOLDS[source]])
