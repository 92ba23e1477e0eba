"""Conversions between storage and arithmetic types as C helpers: the same bits as ir/dtypes.py, for scalars and vectors.

The usual roundings out of f32 are those of c_rounding, or an instruction's; everything else (other rules, out of f64 or i32) goes
through f64, which holds every f32 and i32, one lane after the other.
"""

from __future__ import annotations

from tilec.codegen import c_lanes
from tilec.codegen.c_helpers import ELEMENT, HOLDS, REGISTERS, Helpers, Register, by_lane, under
from tilec.codegen.c_rounding import from_f32
from tilec.codegen.c_width import Width
from tilec.ir.dtypes import DTYPES

_MOST = "0x1.fffffffffffffp1023"  # the largest finite f64
_RULE = {"toward_zero": "trunc", "floor": "floor", "up": "ceil"}
_BF16 = {8: "__AVX512BF16__ __AVX512VL__", 16: "__AVX512BF16__"}  # of a compiler whose instructions round to bf16, by lanes


def decode(h: Helpers, dtype: str, lanes: int) -> str:
    """The helper that turns stored elements into arithmetic values, exactly; "" where they are the same."""
    if DTYPES[dtype].direct:
        return ""
    raw, to = ELEMENT[dtype], HOLDS[DTYPES[dtype].arithmetic]
    w = Width(h, lanes)
    t, u, f, result = w.type(raw), w.type("u32"), w.type("f32"), w.type(to)

    def body() -> str:
        if dtype == "i8":
            return f"return {w.resize('i32', 'i8', 'r')};"
        wide = w.resize("u32", raw, "r")
        if dtype == "bf16":
            return f"return {w.bits('f32', 'u32', f'{wide} << 16')};"
        drop, sign, top, scale, special = {
            "f16": (13, 16, 0x8000, "0x1p112f", 0x7C00),
            "f8e5m2": (21, 24, 0x80, "0x1p112f", 0x7C),
            "f8e4m3": (20, 24, 0x80, "0x1p120f", 0x7F),
        }[dtype]
        value = w.bits("f32", "u32", f"m << {drop}")
        lines = [
            f"{u} w = {wide};",
            f"{u} m = w & {top - 1:#x}u;",
            f"{f} x = {value} * {scale};",
            f"{u} b = {w.bits('u32', 'f32', 'x')};",
            f"b = {w.where('u32', 'u32', 'm', '>=', f'{special:#x}u', f'(m << {drop}) | 0x7f800000u', 'b')};",
            f"return {w.bits('f32', 'u32', f'b | ((w & {top:#x}u) << {sign})')};",
        ]
        plain = "\n".join(lines)
        if dtype == "f16" and lanes in (4, 8, 16):
            half = "_mm_loadl_epi64((const __m128i *)&r)" if lanes == 4 else f"({REGISTERS[2 * lanes].whole})r"
            return under(_f16_macro(lanes), f"return ({f}){REGISTERS[4 * lanes].prefix}_cvtph_ps({half});", plain)
        return plain

    return h.define(f"{result}_from_{dtype}", result, f"{t} r", body)


def encode(h: Helpers, dtype: str, source: str, lanes: int, rule: str | None = None) -> str:
    """The helper that rounds arithmetic values of type `source` once to `dtype`; "" where nothing changes."""
    d, short = DTYPES[dtype], HOLDS[source]
    rule = None if rule == "nearest_even" else rule
    if d.direct and source in (dtype, "bool" if dtype == "i32" else dtype) and rule != "saturate":
        return ""
    w = Width(h, lanes)
    t, x = w.type(ELEMENT[dtype]), w.type(short)
    name = f"{dtype}_from_{x}" + (f"_{rule}" if rule else "")

    def body() -> str:
        if rule is None and d.kind == "float" and dtype in ("f32", "f64"):
            return f"return {w.convert(dtype, short, 'x')};"
        if rule is None and source == "f32":
            plain, r = from_f32(h, dtype, lanes), _rounds(h, dtype, lanes)
            return under(_BF16[lanes], f"return ({t}){r.prefix}_cvtneps_pbh(({r.floats})x);", plain) if r else plain
        if rule is None and source in ("i32", "bool") and dtype == "i8":
            low, high = (w.constant("i32", v) for v in ("-128", "127"))
            inner = w.where("i32", "i32", "x", "<", "-128", low, w.where("i32", "i32", "x", ">", "127", high, "x"))
            return f"return {w.resize('i8', 'i32', inner)};"
        one = _general(h, dtype, rule)
        if lanes == 1:
            return f"return {one}((f64)x);"
        return by_lane(t, lanes, f"{one}((f64)x[l])")

    return h.define(name, t, f"{x} x", body)


def paired(h: Helpers, dtype: str, lanes: int) -> str:
    """The helper that rounds two vectors of f32 to one of bf16, the first in front; "" where no instruction may."""
    r = _rounds(h, dtype, lanes)
    if r is None:
        return ""
    f, t = h.type("f32", lanes), h.type("u16", 2 * lanes)

    def body() -> str:
        one = encode(h, "bf16", "f32", lanes)
        plain = f"return {c_lanes.join(h, 'u16', lanes)}({one}(a), {one}(b));"
        return under(_BF16[lanes], f"return ({t}){r.prefix}_cvtne2ps_pbh(({r.floats})b, ({r.floats})a);", plain)

    return h.define(f"bf16_from_two_{f}", t, f"{f} a, {f} b", body)


def _rounds(h: Helpers, dtype: str, lanes: int) -> Register | None:
    """The register whose instructions round f32 to bf16, to nearest even; permitted where denormals may count as zero."""
    return REGISTERS[4 * lanes] if dtype == "bf16" and lanes in _BF16 and h.flushes else None


def through(h: Helpers, dtype: str, lanes: int) -> str:
    """The helper that rounds f32 values to `dtype` and keeps them as f32: what a store and a load make of them; "" if none."""
    w = Width(h, lanes)
    f, u = w.type("f32"), w.type("u32")
    if dtype == "bf16":

        def body() -> str:
            kept = w.where("u32", "f32", "x", "==", "x", "r", w.constant("u32", "0x7fc00000u"))
            plain = (
                f"{u} b = {w.bits('u32', 'f32', 'x')};\n{u} r = (b + 0x7fffu + ((b >> 16) & 1u)) & 0xffff0000u;\n"
                f"return {w.bits('f32', 'u32', kept)};"
            )
            r = _rounds(h, dtype, lanes)
            fast = f"return ({f}){r.prefix}_cvtpbh_ps({r.prefix}_cvtneps_pbh(({r.floats})x));" if r else ""
            return under(_BF16[lanes], fast, plain) if r else plain

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
            f"if (fabs(x) <= {_MOST}) frexp(x, &e);",
            f"const int last = (e - 1 > {d.least} ? e - 1 : {d.least}) - {d.precision - 1};",
            f"f64 r = copysign(ldexp({round_to}(ldexp(x, -last)), last), x);",
        ]
    beyond = f"fabs(r) > {d.largest!r}"
    if saturates:
        lines.append(f"if ({beyond}) r = copysign({d.largest!r}, x);")
    else:
        stays = {"toward_zero": "1", "floor": "x > 0", "up": "x < 0"}.get(rule or "", "0")
        lines.append(f"if ({beyond}) r = copysign(fabs(x) <= {_MOST} && {stays} ? {d.largest!r} : (f64)INFINITY, x);")
    if dtype in ("f64", "f32"):
        lines.append(f"return ({dtype})r;")
        return "\n".join(lines).replace("NAN_", f"({dtype})NAN")
    quiet = {"f16": "0x7e00", "bf16": "0x7fc0", "f8e4m3": "0x7f", "f8e5m2": "0x7e"}[dtype]
    if dtype == "f8e4m3":
        lines.append(f"if (fabs(r) > {d.largest!r}) return {quiet};")
    if dtype == "f8e5m2":  # infinity is a value of the format, the f32 way saturates it
        lines.append(f"if (fabs(r) > {d.largest!r}) return r < 0 ? 0xfc : 0x7c;")
    lines.append(f"return {encode(h, dtype, 'f32', 1)}((f32)r);")
    return "\n".join(lines).replace("NAN_", quiet)
