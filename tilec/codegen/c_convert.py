"""Conversions between storage and arithmetic types as C helpers: the same bits as ir/dtypes.py, for scalars and vectors.

The usual roundings out of f32 are written in integer operations that work on scalars and vectors alike; everything else (other
rules, out of f64 or i32) goes through f64, which holds every f32 and i32, one lane after the other.
"""

from __future__ import annotations

import numpy as np

from tilec.codegen import c_arithmetic, c_lanes
from tilec.codegen.c_helpers import BYTES, ELEMENT, HOLDS, REGISTERS, Helpers, by_lane, under, vector
from tilec.ir.dtypes import DTYPES

_MOST = "0x1.fffffffffffffp1023"  # the largest finite f64
_RULE = {
    "toward_zero": "trunc",
    "floor": "floor",
    "up": "ceil",
}
# encoding of a quiet NaN, and the least f32 that rounds to infinity or the largest value, where larger ones saturate to it
_SMALL = {"f8e4m3": (0x7F, 448.0), "f8e5m2": (0x7E, 57344.0), "f16": (0x7E00, 65520.0)}

_BF16 = {8: "__AVX512BF16__ __AVX512VL__", 16: "__AVX512BF16__"}  # of a compiler whose instructions round to bf16, by lanes


def _lanes(h: Helpers, lanes: int):
    """(cast of values, cast of bits, select, integers of another width) as text, the same for scalars and vectors."""

    def convert(to: str, short: str, x: str) -> str:
        return c_lanes.convert(h, to, short, lanes, x)

    def resize(to: str, short: str, x: str) -> str:
        """Integers, to more bits or to fewer that hold them."""
        return f"({to}){x}" if lanes == 1 else f"{c_lanes.resize(h, to, short, lanes)}({x})"

    def bits(to: str, short: str, x: str) -> str:
        return f"{c_lanes.bits(h, to, short)}({x})" if lanes == 1 else f"({h.type(to, lanes)})({x})"

    def select(short: str, kind: str, p: str, op: str, q: str, a: str, b: str) -> str:
        """p op q ? a : b; q may be a scalar."""
        if lanes == 1:
            return f"({p} {op} {q} ? {a} : {b})"
        whole = q if q == p else constant(h, kind, lanes, q)
        return f"{c_lanes.where(h, short, kind, op, lanes)}({p}, {whole}, {a}, {b})"

    return convert, bits, select, resize


def constant(h: Helpers, short: str, lanes: int, text: str) -> str:
    """A scalar text as a value of `lanes` lanes."""
    return text if lanes == 1 else f"{c_lanes.splat(h, short, lanes)}({text})"


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
            f"b = {select('u32', 'u32', 'm', '>=', f'{special:#x}u', f'(m << {drop}) | 0x7f800000u', 'b')};",
            f"return {bits('f32', 'u32', f'b | ((w & {top:#x}u) << {sign})')};",
        ]
        plain = "\n".join(lines)
        if dtype == "f16" and lanes in (4, 8, 16):
            half = "_mm_loadl_epi64((const __m128i *)&r)" if lanes == 4 else f"({REGISTERS[2 * lanes].whole})r"
            return under(_f16_macro(lanes), f"return ({f}){REGISTERS[4 * lanes].prefix}_cvtph_ps({half});", plain)
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
            plain = _from_f32(h, dtype, lanes)
            return _by_instruction(h, dtype, lanes, f"return ({t}){{prefix}}_cvtneps_pbh(({{whole}})x);", plain)
        if rule is None and source in ("i32", "bool") and dtype == "i8":
            low, high = (constant(h, "i32", lanes, v) for v in ("-128", "127"))
            _, _, select, resize = _lanes(h, lanes)
            inner = select("i32", "i32", "x", "<", "-128", low, select("i32", "i32", "x", ">", "127", high, "x"))
            return f"return {resize('i8', 'i32', inner)};"
        one = _general(h, dtype, rule)
        if lanes == 1:
            return f"return {one}((f64)x);"
        return by_lane(t, lanes, f"{one}((f64)x[l])")

    return h.define(name, t, f"{x} x", body)


def unpacked(h: Helpers, dtype: str, lanes: int) -> str:
    """The helper that rounds f32 values once to `dtype`, of one or two bytes, and leaves the element in a 4-byte integer, which
    `Helpers.narrow` packs; "" where there is none. What is too low for i8 may stay too low where packing saturates."""
    if dtype not in ("bf16", "f16", "f8e4m3", "f8e5m2", "i8") or lanes not in (8, 16):
        return ""
    short = "i32" if dtype == "i8" else "u32"
    t, f = h.type(short, lanes), h.type("f32", lanes)

    def body() -> str:
        if dtype != "i8":
            return _from_f32(h, dtype, lanes, whole=True)
        plain = _from_f32(h, "i8", lanes, whole=True)
        below = f"{c_arithmetic.clamp_one_side(h, lanes, True)}(x, {constant(h, 'f32', lanes, '127.0f')})"
        if lanes == 8:
            return under("__AVX2__", f"return ({t})_mm256_cvtps_epi32((__m256){below}) & (x == x);", plain)
        real = "_mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_ORD_Q)"
        return under("__AVX512BW__", f"return ({t})_mm512_maskz_cvtps_epi32({real}, (__m512){below});", plain)

    return h.define(f"{dtype}_bits_from_{f}", t, f"{f} x", body)


def paired(h: Helpers, dtype: str, lanes: int) -> str:
    """The helper that rounds two vectors of f32 to one of bf16, the first in front; "" where no instruction may."""
    if dtype != "bf16" or lanes not in _BF16 or not h.flushes:
        return ""
    f, t = h.type("f32", lanes), h.type("u16", 2 * lanes)

    def body() -> str:
        one = encode(h, "bf16", "f32", lanes)
        plain = f"return {c_lanes.join(h, 'u16', lanes)}({one}(a), {one}(b));"
        return _by_instruction(h, dtype, lanes, f"return ({t}){{prefix}}_cvtne2ps_pbh(({{whole}})b, ({{whole}})a);", plain)

    return h.define(f"bf16_from_two_{f}", t, f"{f} a, {f} b", body)


def _by_instruction(h: Helpers, dtype: str, lanes: int, fast: str, plain: str) -> str:
    """The instructions that round f32 to bf16, to nearest even with denormals taken for zero, where that is permitted."""
    if dtype != "bf16" or lanes not in _BF16 or not h.flushes:
        return plain
    r = REGISTERS[4 * lanes]
    return under(_BF16[lanes], fast.format(prefix=r.prefix, whole=r.floats), plain)


def through(h: Helpers, dtype: str, lanes: int) -> str:
    """The helper that rounds f32 values to `dtype` and keeps them as f32: what a store and a load make of them; "" if none."""
    _, bits, select, _ = _lanes(h, lanes)
    f, u = h.type("f32", lanes), h.type("u32", lanes)
    if dtype == "bf16":

        def body() -> str:
            quiet = constant(h, "u32", lanes, "0x7fc00000u")
            kept = select("u32", "f32", "x", "==", "x", "r", quiet)
            plain = (
                f"{u} b = {bits('u32', 'f32', 'x')};\n{u} r = (b + 0x7fffu + ((b >> 16) & 1u)) & 0xffff0000u;\n"
                f"return {bits('f32', 'u32', kept)};"
            )
            fast = f"return ({f}){{prefix}}_cvtpbh_ps({{prefix}}_cvtneps_pbh(({{whole}})x));"
            return _by_instruction(h, dtype, lanes, fast, plain)

    elif dtype == "f16" and lanes in (4, 8, 16):

        def body() -> str:
            r = REGISTERS[4 * lanes]
            plain = f"return {decode(h, 'f16', lanes)}({encode(h, 'f16', 'f32', lanes)}(x));"
            half = f"{r.prefix}_cvtps_ph(({r.floats})x, _MM_FROUND_TO_NEAREST_INT)"
            return under(_f16_macro(lanes), f"return ({f}){r.prefix}_cvtph_ps({half});", plain)

    else:
        return ""
    return h.define(f"{f}_as_{dtype}", f, f"{f} x", body)


def _f16_macro(lanes: int) -> str:
    """Of a compiler whose instructions convert f16 to f32 and back."""
    return "__AVX512F__" if lanes == 16 else "__F16C__"


def _from_f32(h: Helpers, dtype: str, lanes: int, whole: bool = False) -> str:
    """Nearest even out of f32. whole: the element stays in 32 bits."""
    convert, bits, select, resize = _lanes(h, lanes)
    u, i, f = h.type("u32", lanes), h.type("i32", lanes), h.type("f32", lanes)

    def c(text: str) -> str:
        return constant(h, "u32", lanes, text)

    def packed(short: str, x: str) -> str:
        return f"return {x if whole else resize(ELEMENT[dtype], short, x)};"

    if not whole and unpacked(h, dtype, lanes) and dtype != "i8":
        return packed("u32", f"{unpacked(h, dtype, lanes)}(x)")
    if dtype == "bf16":
        return "\n".join(
            [
                f"{u} b = {bits('u32', 'f32', 'x')};",
                f"{u} r = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;",
                packed("u32", select("u32", "f32", "x", "==", "x", "r", c("0x7fc0u"))),
            ]
        )
    if dtype in _SMALL:
        d, (quiet, top) = DTYPES[dtype], _SMALL[dtype]
        drop, sign = 24 - d.precision, 32 - d.bits  # bits of the mantissa that go; the way of the sign
        # 1.5·2^drop times the value's power of two leaves the kept digits as the sum's last bits, once rounded to nearest even;
        # the power of two stands in the bits in front, so that with it shifted behind, the encoding is the sum's last bits
        magic = (drop << 23) + 0x400000 - ((127 + d.least) << (d.precision - 1))
        least, most = ((_bits(v), c_arithmetic.extreme(h, op, "i32", lanes)) for v, op in ((2.0**d.least, "max"), (top, "min")))

        def limited(x: str, limit: tuple[int, str]) -> str:
            return f"{limit[1]}({x}, {constant(h, 'i32', lanes, f'{limit[0]:#x}')})"

        m = "b & 0x7fffffff" if dtype == "f16" else limited("b & 0x7fffffff", most)
        total = bits("i32", "f32", f"({bits('f32', 'i32', 'm')} + {bits('f32', 'i32', f'(e + {magic:#x})')})")
        lines = [
            f"{i} b = {bits('i32', 'f32', 'x')};",
            f"{i} m = {m};  // non-negative floats are in the order of their bits",
            f"{i} e = {limited('m', least)} & 0x7f800000;  // the power of two, at least that of the smallest normal number",
            f"{i} r = ({total} + (e >> {drop})) & {(1 << (d.bits - 1)) - 1:#x};",
        ]
        if dtype == "f16":
            lines.append(f"r = {select('i32', 'i32', 'm', '>=', f'{_bits(top):#x}', constant(h, 'i32', lanes, '0x7c00'), 'r')};")
        signed = f"r | ((b >> {sign}) & {1 << (d.bits - 1):#x})"
        last = select("i32", "f32", "x", "==", "x", signed, constant(h, "i32", lanes, f"{quiet:#x}"))
        lines.append(packed("u32", last if lanes == 1 else f"({u}){last}"))
        return "\n".join(lines)
    if dtype == "i8":
        low, top = (constant(h, "f32", lanes, v) for v in ("-128.0f", "127.0f"))
        below, above = (c_arithmetic.clamp_one_side(h, lanes, upper) for upper in (True, False))
        last = "x == x ? n : 0" if lanes == 1 else "n & (x == x)"
        plain = "\n".join(
            [
                f"{f} y = {below}({above}(x, {low}), {top});",
                f"{i} n = {bits('i32', 'f32', 'y + 12582912.0f')} - 0x4b400000;  // 1.5*2^23 leaves no bits for a fraction",
                f"n = {last};",
                packed("i32", "n"),
            ]
        )
        if whole or lanes not in (8, 16):
            return plain
        rounded = f"{unpacked(h, 'i8', lanes)}(x)"  # what is too low, packing saturates
        if lanes == 8:
            return under("__AVX2__", packed("i32", rounded), plain)
        return under("__AVX512BW__", f"return ({h.type('i8', 16)})_mm512_cvtsepi32_epi8((__m512i){rounded});", plain)
    assert dtype == "i32"
    high = constant(h, "i32", lanes, "INT32_MAX")
    lowest = constant(h, "i32", lanes, "INT32_MIN")
    zero = constant(h, "f32", lanes, "0.0f")
    inner = select("f32", "f32", "x", "<", "2147483648.0f", "r", zero)
    inner = select("f32", "f32", "x", ">", "-2147483648.0f", inner, zero)
    absolute = bits("f32", "u32", f"{bits('u32', 'f32', 'x')} & 0x7fffffffu")
    magic = bits("f32", "u32", f"({bits('u32', 'f32', 'x')} & 0x80000000u) | {_bits(8388608.0):#x}u")
    return "\n".join(
        [
            f"{f} magic = {magic};  // 2^23 with the sign of x",
            f"{f} r = {select('f32', 'f32', absolute, '<', '8388608.0f', '(x + magic) - magic', 'x')};",
            f"{i} n = {convert('i32', 'f32', inner)};",
            f"n = {select('i32', 'f32', 'x', '>=', '2147483648.0f', high, 'n')};",
            f"return {select('i32', 'f32', 'x', '<=', '-2147483648.0f', lowest, 'n')};",
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
