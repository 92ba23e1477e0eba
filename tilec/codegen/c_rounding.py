"""f32 rounded once to a number format, to nearest even, as C helpers: integer operations that work on scalars and vectors alike.

Each format's lines compute r, the element in 32 bits.
"""

from __future__ import annotations

import numpy as np

from tilec.codegen import c_arithmetic
from tilec.codegen.c_helpers import ELEMENT, Helpers, under
from tilec.codegen.c_width import Width
from tilec.ir.dtypes import DTYPES

# encoding of a quiet NaN, and the least f32 that rounds to infinity or the largest value, where larger ones saturate to it
_SMALL = {"f8e4m3": (0x7F, 448.0), "f8e5m2": (0x7E, 57344.0), "f16": (0x7E00, 65520.0)}


def unpacked(h: Helpers, dtype: str, lanes: int) -> str:
    """The helper that rounds f32 values once to `dtype`, of one or two bytes, and leaves the element in a 4-byte integer, which
    `c_lanes.narrow` packs; "" where there is none. What is too low for i8 may stay too low where packing saturates."""
    if dtype not in ("bf16", *_SMALL, "i8") or lanes not in (8, 16):
        return ""
    t, f = h.type("i32" if dtype == "i8" else "u32", lanes), h.type("f32", lanes)

    def body() -> str:
        plain = from_f32(h, dtype, lanes, whole=True)
        if dtype != "i8":
            return plain
        below = f"{c_arithmetic.clamp_one_side(h, lanes, True)}(x, {Width(h, lanes).constant('f32', '127.0f')})"
        if lanes == 8:
            return under("__AVX2__", f"return ({t})_mm256_cvtps_epi32((__m256){below}) & (x == x);", plain)
        real = "_mm512_cmp_ps_mask((__m512)x, (__m512)x, _CMP_ORD_Q)"
        return under("__AVX512BW__", f"return ({t})_mm512_maskz_cvtps_epi32({real}, (__m512){below});", plain)

    return h.define(f"{dtype}_bits_from_{f}", t, f"{f} x", body)


def from_f32(h: Helpers, dtype: str, lanes: int, whole: bool = False) -> str:
    """The body that returns x of type f32 as `dtype`. whole: the element stays in 32 bits."""
    w = Width(h, lanes)
    u, i, f = (w.type(short) for short in ("u32", "i32", "f32"))

    def packed(short: str, x: str) -> str:
        return f"return {x if whole else w.resize(ELEMENT[dtype], short, x)};"

    rounded = unpacked(h, dtype, lanes) if not whole else ""
    if rounded and dtype != "i8":
        return packed("u32", f"{rounded}(x)")
    if dtype == "bf16":
        return "\n".join(
            [
                f"{u} b = {w.bits('u32', 'f32', 'x')};",
                f"{u} r = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;",
                packed("u32", w.where("u32", "f32", "x", "==", "x", "r", w.constant("u32", "0x7fc0u"))),
            ]
        )
    if dtype in _SMALL:
        lines, r = _small(w, dtype, i)
        return "\n".join([*lines, packed("u32", r if lanes == 1 else f"({u}){r}")])
    if dtype == "i32":
        return _whole_number(w, i, f)
    plain = "\n".join([*_byte(w, i, f), packed("i32", "n")])
    if not rounded:
        return plain
    if lanes == 8:  # what is too low, packing saturates
        return under("__AVX2__", packed("i32", f"{rounded}(x)"), plain)
    return under("__AVX512BW__", f"return ({h.type('i8', 16)})_mm512_cvtsepi32_epi8((__m512i){rounded}(x));", plain)


def _small(w: Width, dtype: str, i: str) -> tuple[list[str], str]:
    """f16 and the formats of 8 bits: the lines, and what they end in."""
    d, (quiet, top) = DTYPES[dtype], _SMALL[dtype]
    drop, sign = 24 - d.precision, 32 - d.bits  # bits of the mantissa that go; the way of the sign
    # 1.5·2^drop times the value's power of two leaves the kept digits as the sum's last bits, once rounded to nearest even;
    # the power of two stands in the bits in front, so that with it shifted behind, the encoding is the sum's last bits
    magic = (drop << 23) + 0x400000 - ((127 + d.least) << (d.precision - 1))
    at_least, at_most = (c_arithmetic.extreme(w.helpers, op, "i32", w.lanes) for op in ("max", "min"))
    m = "b & 0x7fffffff"
    if dtype != "f16":
        m = f"{at_most}({m}, {w.constant('i32', f'{_bits(top):#x}')})"
    total = w.bits("i32", "f32", f"({w.bits('f32', 'i32', 'm')} + {w.bits('f32', 'i32', f'(e + {magic:#x})')})")
    power = f"{at_least}(m, {w.constant('i32', f'{_bits(2.0**d.least):#x}')})"
    lines = [
        f"{i} b = {w.bits('i32', 'f32', 'x')};",
        f"{i} m = {m};  // non-negative floats are in the order of their bits",
        f"{i} e = {power} & 0x7f800000;  // the power of two, at least that of the smallest normal number",
        f"{i} r = ({total} + (e >> {drop})) & {(1 << (d.bits - 1)) - 1:#x};",
    ]
    if dtype == "f16":
        lines.append(f"r = {w.where('i32', 'i32', 'm', '>=', f'{_bits(top):#x}', w.constant('i32', '0x7c00'), 'r')};")
    signed = f"r | ((b >> {sign}) & {1 << (d.bits - 1):#x})"
    return lines, w.where("i32", "f32", "x", "==", "x", signed, w.constant("i32", f"{quiet:#x}"))


def _byte(w: Width, i: str, f: str) -> list[str]:
    """i8: the lines that end in n."""
    low, top = (w.constant("f32", v) for v in ("-128.0f", "127.0f"))
    below, above = (c_arithmetic.clamp_one_side(w.helpers, w.lanes, upper) for upper in (True, False))
    return [
        f"{f} y = {below}({above}(x, {low}), {top});",
        f"{i} n = {w.bits('i32', 'f32', 'y + 12582912.0f')} - 0x4b400000;  // 1.5*2^23 leaves no bits for a fraction",
        f"n = {'x == x ? n : 0' if w.lanes == 1 else 'n & (x == x)'};",
    ]


def _whole_number(w: Width, i: str, f: str) -> str:
    """i32."""
    high, lowest, zero = (w.constant(*c) for c in (("i32", "INT32_MAX"), ("i32", "INT32_MIN"), ("f32", "0.0f")))
    inner = w.where("f32", "f32", "x", "<", "2147483648.0f", "r", zero)
    inner = w.where("f32", "f32", "x", ">", "-2147483648.0f", inner, zero)
    absolute = w.bits("f32", "u32", f"{w.bits('u32', 'f32', 'x')} & 0x7fffffffu")
    magic = w.bits("f32", "u32", f"({w.bits('u32', 'f32', 'x')} & 0x80000000u) | {_bits(8388608.0):#x}u")
    return "\n".join(
        [
            f"{f} magic = {magic};  // 2^23 with the sign of x",
            f"{f} r = {w.where('f32', 'f32', absolute, '<', '8388608.0f', '(x + magic) - magic', 'x')};",
            f"{i} n = {w.convert('i32', 'f32', inner)};",
            f"n = {w.where('i32', 'f32', 'x', '>=', '2147483648.0f', high, 'n')};",
            f"return {w.where('i32', 'f32', 'x', '<=', '-2147483648.0f', lowest, 'n')};",
        ]
    )


def _bits(value: float) -> int:
    """The bits of an f32 value."""
    return int(np.float32(value).view(np.uint32))
