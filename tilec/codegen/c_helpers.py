"""The inline functions that generated C stands on: vector types, loads and stores, selects, extremes, fma, integer division.

A type is `f32` or, with n lanes, `f32x8` (GCC and Clang vector extension); n = 1 is the scalar. Every helper exists for both, is
made when it is first asked for, and says nothing about the program. Masks are i32 lanes of 0 and -1 (i64 for f64 compares);
scalar booleans are int 0 and 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

BYTES = {"f64": 8, "f32": 4, "i64": 8, "u64": 8, "i32": 4, "u32": 4, "u16": 2, "i16": 2, "u8": 1, "i8": 1}
C_NAME = {
    "f64": "double",
    "f32": "float",
    **{f"{s}{n}": f"{'u' if s == 'u' else ''}int{n}_t" for s in "iu" for n in (8, 16, 32, 64)},
}
# what an element of a number format is in C, and the type its arithmetic value has
ELEMENT = {"f64": "f64", "f32": "f32", "f16": "u16", "bf16": "u16", "f8e4m3": "u8", "f8e5m2": "u8", "i32": "i32", "i8": "i8"}
HOLDS = {"f64": "f64", "f32": "f32", "i32": "i32", "bool": "i32"}
MASK = {"f64": "i64", "i64": "i64", "u64": "i64"}  # of compares; every other type's is i32

_PS = {16: ("__m128", "_mm", "__SSE2__"), 32: ("__m256", "_mm256", "__AVX2__"), 64: ("__m512", "_mm512", "__AVX512F__")}


# of a compare: its name, and the predicates of AVX-512 for floats and for integers
_ORDER = {
    "==": ("eq", "_CMP_EQ_OQ", "_MM_CMPINT_EQ"),
    "<": ("lt", "_CMP_LT_OQ", "_MM_CMPINT_LT"),
    "<=": ("le", "_CMP_LE_OQ", "_MM_CMPINT_LE"),
    ">": ("gt", "_CMP_GT_OQ", "_MM_CMPINT_NLE"),
    ">=": ("ge", "_CMP_GE_OQ", "_MM_CMPINT_NLT"),
}


def vector(short: str, lanes: int) -> str:
    """The name of the type: `f32`, `f32x8`."""
    return short if lanes == 1 else f"{short}x{lanes}"


def number(value: float | int, short: str) -> str:
    """A constant as a C literal that reads back as exactly this value."""
    if short in ("i32", "i64"):
        if value == -(2**31) and short == "i32":
            return "INT32_MIN"
        return str(int(value))
    if value != value:
        return "NAN" if short == "f32" else "(f64)NAN"
    if value in (np.inf, -np.inf):
        return f"{'-' if value < 0 else ''}INFINITY" if short == "f32" else f"{'-' if value < 0 else ''}(f64)INFINITY"
    text = str(np.float32(value)) if short == "f32" else repr(float(value))
    text = text if "." in text or "e" in text else text + ".0"
    return text + ("f" if short == "f32" else "")


@dataclass
class Helpers:
    """Definitions in the order of their need. A method returns the name to call; `vector_bytes` is the widest register.
    flushes: a conversion may take denormals for zero, where an instruction does."""

    vector_bytes: int = 32
    flushes: bool = False
    types: dict[tuple[str, int], None] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The prelude: includes, types, functions."""
        scalars = [f"typedef {C_NAME[s]} {s};" for s in ("f64", "f32", "i64", "u64", "i32", "u32", "i16", "u16", "i8", "u8")]
        vectors: list[str] = []
        for short, lanes in sorted(self.types, key=lambda t: (list(BYTES).index(t[0]), t[1])):
            size, name = BYTES[short] * lanes, vector(short, lanes)
            vectors.append(f"typedef {short} {name} __attribute__((vector_size({size})));")
            vectors.append(f"typedef {short} {name}_at __attribute__((vector_size({size}), aligned({BYTES[short]}), may_alias));")
        head = ["#include <math.h>", "#include <stddef.h>", "#include <stdint.h>", "#include <stdlib.h>", "#include <string.h>"]
        if any("_mm" in d for d in self.definitions.values()):
            head += ["#if defined(__x86_64__) || defined(__i386__)", "#include <immintrin.h>", "#endif"]
        return "\n".join([*head, "", *scalars, *vectors, "", *self.definitions.values()])

    def type(self, short: str, lanes: int) -> str:
        if lanes > 1:
            self.types.setdefault((short, lanes))
        return vector(short, lanes)

    def define(self, name: str, returns: str, parameters: str, body: Callable[[], str] | str) -> str:
        """`static inline returns name(parameters) { body }`, once. A callable body may ask for other helpers first."""
        if name not in self.definitions:
            lines = body if isinstance(body, str) else body()
            inner = "\n".join(
                ("    " + line) if line and not line.startswith("#") else line for line in lines.strip().split("\n")
            )
            self.definitions.pop(name, None)
            self.definitions[name] = f"static inline {returns} {name}({parameters})\n{{\n{inner}\n}}\n"
        return name

    # memory ----------------------------------------------------------------------------------------------------------

    def load(self, short: str, lanes: int) -> str:
        t = self.type(short, lanes)
        return self.define(f"load_{t}", t, f"const {short} *p", f"return *(const {t}_at *)p;")

    def store(self, short: str, lanes: int) -> str:
        t = self.type(short, lanes)
        return self.define(f"store_{t}", "void", f"{short} *p, {t} v", f"*({t}_at *)p = v;")

    def load_part(self, short: str, lanes: int) -> str:
        """The first n lanes (0 <= n <= lanes), zeros behind."""
        t = self.type(short, lanes)

        def body() -> str:
            plain = f"{t} v = {{0}};\nfor (i64 l = 0; l < n; ++l) v[l] = p[l];\nreturn v;"
            if BYTES[short] == 4 and lanes == 8:
                self.part_mask(8)
                cast = "(const int *)p"
                return under("__AVX2__", f"return ({t})_mm256_maskload_epi32({cast}, (__m256i)part_8(n));", plain)
            if BYTES[short] == 4 and lanes == 16:
                return under("__AVX512F__", f"return ({t})_mm512_maskz_loadu_epi32((__mmask16)((1u << n) - 1), p);", plain)
            if BYTES[short] == 2 and lanes in (8, 16, 32):
                bits = {8: "_mm", 16: "_mm256", 32: "_mm512"}[lanes]
                one = "1ull" if lanes == 32 else "1u"
                line = f"return ({t}){bits}_maskz_loadu_epi16((__mmask{lanes})(({one} << n) - 1), p);"
                return under("__AVX512BW__) && defined(__AVX512VL__", line, plain)
            return plain

        return self.define(f"load_part_{t}", t, f"const {short} *p, i64 n", body)

    def store_part(self, short: str, lanes: int) -> str:
        """The first n lanes (0 <= n <= lanes)."""
        t = self.type(short, lanes)

        def body() -> str:
            plain = "for (i64 l = 0; l < n; ++l) p[l] = v[l];"
            if BYTES[short] == 4 and lanes == 8:
                self.part_mask(8)
                return under("__AVX2__", "_mm256_maskstore_epi32((int *)p, (__m256i)part_8(n), (__m256i)v);", plain)
            if BYTES[short] == 4 and lanes == 16:
                return under("__AVX512F__", "_mm512_mask_storeu_epi32(p, (__mmask16)((1u << n) - 1), (__m512i)v);", plain)
            if BYTES[short] == 2 and lanes in (8, 16, 32):
                bits, whole = {8: ("_mm", "__m128i"), 16: ("_mm256", "__m256i"), 32: ("_mm512", "__m512i")}[lanes]
                one = "1ull" if lanes == 32 else "1u"
                line = f"{bits}_mask_storeu_epi16(p, (__mmask{lanes})(({one} << n) - 1), ({whole})v);"
                return under("__AVX512BW__) && defined(__AVX512VL__", line, plain)
            return plain

        return self.define(f"store_part_{t}", "void", f"{short} *p, {t} v, i64 n", body)

    def stream(self, short: str, lanes: int) -> str:
        """A whole vector past the caches where it lies on a multiple of its size, in pieces where it lies on one of 16 bytes (all
        that NumPy's allocation promises), else stored as usual."""
        t, size = self.type(short, lanes), BYTES[short] * lanes

        def body() -> str:
            plain = f"*({t}_at *)p = v;"
            if size == 8:
                word = "long long w;\nmemcpy(&w, &v, 8);\n_mm_stream_si64((long long *)(void *)p, w);"
                return under("__x86_64__", f"if (((uintptr_t)p & 7) == 0) {{ {word} }} else {plain}".replace("\n", " "), plain)
            if size not in _PS:
                return plain
            integer = {16: "__m128i", 32: "__m256i", 64: "__m512i"}[size]
            prefix, macro = {16: ("_mm", "__SSE2__"), 32: ("_mm256", "__AVX__"), 64: ("_mm512", "__AVX512F__")}[size]
            call = f"{prefix}_stream_si{8 * size}(({integer} *)(void *)p, ({integer})v);"
            part = {32: "_mm256_extractf128_si256", 64: "_mm512_extracti32x4_epi32"}.get(size)
            pieces = "".join(
                f"_mm_stream_si128((__m128i *)(void *)p + {n}, {part}(({integer})v, {n})); " for n in range(size // 16) if part
            )
            otherwise = f"if (((uintptr_t)p & 15) == 0) {{ {pieces}}} else {plain}" if part else plain
            return under(macro, f"if (((uintptr_t)p & {size - 1}) == 0) {call}\nelse {otherwise}", plain)

        return self.define(f"stream_{t}", "void", f"{short} *p, {t} v", body)

    def join(self, short: str, lanes: int) -> str:
        """Two vectors of `lanes` as one of twice as many."""
        t, x = self.type(short, 2 * lanes), self.type(short, lanes)
        order = ", ".join(map(str, range(2 * lanes)))
        body = (
            "#if defined(__has_builtin) && (defined(__clang__) || __GNUC__ >= 12)\n"
            f"return __builtin_shufflevector(a, b, {order});\n#else\n{t} y;\nmemcpy(&y, &a, sizeof a);\n"
            f"memcpy((char *)&y + sizeof a, &b, sizeof b);\nreturn y;\n#endif"
        )
        return self.define(f"join_{t}", t, f"{x} a, {x} b", body)

    def fence(self) -> str:
        """Streamed stores are seen by others after it."""
        return self.define("stream_fence", "void", "void", under("__SSE2__", "_mm_sfence();", "__sync_synchronize();"))

    def part_mask(self, lanes: int) -> str:
        """-1 in the first n lanes."""
        t = self.type("i32", lanes)
        iota = ", ".join(map(str, range(lanes)))
        return self.define(f"part_{lanes}", t, "i64 n", f"return ({t}){{{iota}}} < (i32)n;")

    # values ----------------------------------------------------------------------------------------------------------

    def splat(self, short: str, lanes: int) -> str:
        t = self.type(short, lanes)
        return self.define(f"splat_{t}", t, f"{short} x", f"return ({t}){{{', '.join(['x'] * lanes)}}};")

    def select(self, short: str, lanes: int) -> str:
        """m ? a : b by lanes."""
        t, size = self.type(short, lanes), BYTES[short] * lanes
        kind = MASK.get(short, "i32" if BYTES[short] == 4 else f"i{8 * BYTES[short]}")
        m = self.type(kind, lanes)

        def body() -> str:
            plain = f"return ({t})((m & ({m})a) | (~m & ({m})b));"
            if BYTES[short] == 4 and size in (16, 32):
                ps, prefix, _ = _PS[size]
                macro = "__AVX__" if size == 32 else "__SSE4_1__"
                return under(macro, f"return ({t}){prefix}_blendv_ps(({ps})b, ({ps})a, ({ps})m);", plain)
            if BYTES[short] == 8 and size in (16, 32):
                prefix, macro = ("_mm256", "__AVX__") if size == 32 else ("_mm", "__SSE4_1__")
                d = "__m256d" if size == 32 else "__m128d"
                return under(macro, f"return ({t}){prefix}_blendv_pd(({d})b, ({d})a, ({d})m);", plain)
            return plain

        return self.define(f"select_{t}", t, f"{m} m, {t} a, {t} b", body)

    def where(self, short: str, kind: str, op: str, lanes: int) -> str:
        """p op q ? a : b by lanes, p and q of the 4-byte type `kind`, a and b of the 4-byte type `short`."""
        t, x, select = self.type(short, lanes), self.type(kind, lanes), self.select(short, lanes)
        name = f"where_{_ORDER[op][0]}_{x}_{t}"

        def body() -> str:
            plain = f"return {select}(p {op} q, a, b);"
            if lanes not in (4, 8, 16):
                return plain
            prefix, whole = _PS[4 * lanes][1], f"__m{32 * lanes}i"
            floats = kind == "f32"
            compare, order, cast = ("ps", _ORDER[op][1], whole[:-1]) if floats else (f"ep{kind[0]}32", _ORDER[op][2], whole)
            mask = f"{prefix}_cmp_{compare}_mask(({cast})p, ({cast})q, {order})"
            return under("__AVX512VL__", f"return ({t}){prefix}_mask_blend_epi32({mask}, ({whole})b, ({whole})a);", plain)

        return self.define(name, t, f"{x} p, {x} q, {t} a, {t} b", body)

    def narrow(self, to: str, short: str, lanes: int) -> str:
        """Vectors of 4-byte integers, one behind the other, as one of fewer bytes that hold their values."""
        count = 4 // BYTES[to]
        t, x = self.type(to, count * lanes), self.type(short, lanes)

        def body() -> str:
            values = [f"{self.resize(to, short, lanes)}({v})" for v in "abcd"[:count]]
            n = lanes
            while len(values) > 1:
                values = [f"{self.join(to, n)}({v}, {w})" for v, w in zip(values[::2], values[1::2], strict=True)]
                n *= 2
            plain = f"return {values[0]};"
            if lanes not in (8, 16):
                return plain
            prefix, whole, macro = ("_mm512", "__m512i", "__AVX512BW__") if lanes == 16 else ("_mm256", "__m256i", "__AVX2__")
            pack = "packus" if to == "u16" else "packs"
            pairs = [f"{prefix}_{pack}_epi32(({whole}){v}, ({whole}){w})" for v, w in ("ab", "cd")[: count // 2]]
            packed = pairs[0] if count == 2 else f"{prefix}_pack{'us' if to == 'u8' else 's'}_epi16({', '.join(pairs)})"
            groups = lanes // 4  # packing works in groups of 16 bytes: what lies in each belongs apart
            words = 4 // count
            order = ", ".join(str(4 * g + words * v + w) for v in range(count) for g in range(groups) for w in range(words))
            permuted = "permutexvar_epi32" if lanes == 16 else "permutevar8x32_epi32"
            index = f"({whole})({self.type('i32', lanes)}){{{order}}}"
            args = f"{index}, {packed}" if lanes == 16 else f"{packed}, {index}"
            return under(macro, f"return ({t}){prefix}_{permuted}({args});", plain)

        return self.define(f"{t}_of_{x}s", t, ", ".join(f"{x} {v}" for v in "abcd"[:count]), body)

    def resize(self, to: str, short: str, lanes: int) -> str:
        """Integers to more bits, or to fewer that hold their values; vectors (the compiler's own conversion splits them up)."""
        t, x = self.type(to, lanes), self.type(short, lanes)

        def body() -> str:
            plain = f"return __builtin_convertvector(x, {t});"
            wide, narrow = (to, short) if BYTES[to] > BYTES[short] else (short, to)
            if BYTES[wide] != 4 or lanes not in (8, 16):
                return plain
            n, sign = 8 * BYTES[narrow], "i" if narrow[0] == "i" else "u"
            if wide == to and lanes == 16:
                register = "__m256i" if n == 16 else "__m128i"
                return under("__AVX512F__", f"return ({t})_mm512_cvtep{sign}{n}_epi32(({register})x);", plain)
            if wide == to:
                source = "(__m128i)x" if n == 16 else "_mm_loadl_epi64((const __m128i *)(const void *)&x)"
                return under("__AVX2__", f"return ({t})_mm256_cvtep{sign}{n}_epi32({source});", plain)
            if lanes == 16:
                return under("__AVX512F__", f"return ({t})_mm512_cvtepi32_epi{n}((__m512i)x);", plain)
            half = "_mm256_castsi256_si128((__m256i)x), _mm256_extracti128_si256((__m256i)x, 1)"
            if n == 16:  # the values fit, so saturation changes none
                pack = "us" if sign == "u" else "s"
                return under("__AVX2__", f"return ({t})_mm_pack{pack}_epi32({half});", plain)
            pack = "us" if sign == "u" else "s"
            line = f"const __m128i y = _mm_packs_epi32({half});\nconst __m128i z = _mm_pack{pack}_epi16(y, y);\n"
            return under("__AVX2__", f"{line}{t} r;\nmemcpy(&r, &z, sizeof r);\nreturn r;", plain)

        return self.define(f"{t}_of_{x}", t, f"{x} x", body)

    def convert(self, to: str, short: str, lanes: int, text: str) -> str:
        """Values of another type, each rounded once where it must be; scalars and vectors.

        Sixteen f64 out of i32 in two halves: at -O0, GCC 12 has no instruction for the conversion as a whole and dies.
        """
        if lanes == 1:
            return f"({to}){text}"
        t = self.type(to, lanes)
        if (to, short) != ("f64", "i32") or lanes < 16:
            return f"__builtin_convertvector({text}, {t})"
        x, half = self.type(short, lanes), lanes // 2
        one = f"__builtin_convertvector(h[%d], {self.type(to, half)})"
        body = (
            f"{self.type(short, half)} h[2];\nmemcpy(h, &x, sizeof h);\n"
            f"const {vector(to, half)} y[2] = {{{one % 0}, {one % 1}}};\n{t} r;\nmemcpy(&r, y, sizeof r);\nreturn r;"
        )
        return f"{self.define(f'{t}_of_{x}', t, f'{x} x', body)}({text})"

    def bits(self, to: str, short: str) -> str:
        """The same bits, scalars (vectors cast)."""
        return self.define(f"{to}_bits", to, f"{short} x", f"{to} y;\nmemcpy(&y, &x, sizeof y);\nreturn y;")

    def sqrt(self, short: str, lanes: int) -> str:
        if lanes == 1:
            return "sqrt" if short == "f64" else "sqrtf"
        t, size = self.type(short, lanes), BYTES[short] * lanes
        root = "sqrt" if short == "f64" else "sqrtf"

        def body() -> str:
            plain = f"{t} y;\nfor (int l = 0; l < {lanes}; ++l) y[l] = {root}(x[l]);\nreturn y;"
            if size not in _PS:
                return plain
            ps, prefix, macro = _PS[size]
            kind, suffix = (ps + "d", "pd") if short == "f64" else (ps, "ps")
            return under(macro, f"return ({t}){prefix}_sqrt_{suffix}(({kind})x);", plain)

        return self.define(f"sqrt_{t}", t, f"{t} x", body)

    def fma(self, short: str, lanes: int) -> str:
        """a·b + c rounded once."""
        scalar = "__builtin_fma" if short == "f64" else "__builtin_fmaf"
        if lanes == 1:
            return scalar
        t, size = self.type(short, lanes), BYTES[short] * lanes

        def body() -> str:
            plain = f"{t} y;\nfor (int l = 0; l < {lanes}; ++l) y[l] = {scalar}(a[l], b[l], c[l]);\nreturn y;"
            if size not in _PS:
                return plain
            ps, prefix, macro = _PS[size]
            kind, suffix = (ps + "d", "pd") if short == "f64" else (ps, "ps")
            macro = macro if size == 64 else "__FMA__"
            return under(macro, f"return ({t}){prefix}_fmadd_{suffix}(({kind})a, ({kind})b, ({kind})c);", plain)

        return self.define(f"fma_{t}", t, f"{t} a, {t} b, {t} c", body)

    def clamp_one_side(self, lanes: int, upper: bool) -> str:
        """`x < c ? c : x` (upper: `x > c ? c : x`), NaN kept: the machine's max (min) with its operands in this order."""
        t = self.type("f32", lanes)
        name, sign, op = ("at_most", ">", "min") if upper else ("at_least", "<", "max")

        def body() -> str:
            plain = f"return x {sign} c ? c : x;"
            if lanes > 1:
                select = self.select("f32", lanes)
                plain = f"return {select}(x {sign} c, c, x);"
            if lanes in (4, 8, 16):
                ps, prefix, macro = _PS[4 * lanes]
                return under(macro, f"return ({t}){prefix}_{op}_ps(({ps})c, ({ps})x);", plain)
            return plain

        return self.define(f"{name}_{t}", t, f"{t} x, {t} c", body)

    def extreme(self, op: str, short: str, lanes: int) -> str:
        """IEEE 754-2019 maximum or minimum: NaN wins and is the quiet one, -0 < +0; of integers the larger or smaller."""
        t = self.type(short, lanes)
        sign = ">" if op == "max" else "<"
        join = "&" if op == "max" else "|"
        name = f"{'maximum' if op == 'max' else 'minimum'}_{t}"

        def body() -> str:
            if short == "i32":
                if lanes == 1:
                    return f"return a {sign} b ? a : b;"
                plain = f"return {self.select('i32', lanes)}(a {sign} b, a, b);"
                if lanes not in (4, 8, 16):
                    return plain
                prefix, macro = _PS[4 * lanes][1], {4: "__SSE4_1__", 8: "__AVX2__", 16: "__AVX512F__"}[lanes]
                whole = f"__m{32 * lanes}i"
                return under(macro, f"return ({t}){prefix}_{op}_epi32(({whole})a, ({whole})b);", plain)
            raw = "i64" if short == "f64" else "i32"
            nan = number(float("nan"), short)
            if lanes == 1:
                to, back = self.bits(raw, short), self.bits(short, raw)
                return (
                    f"if (a != a || b != b) return {nan};\n"
                    f"if (a == b) return {back}({to}(a) {join} {to}(b));\nreturn a {sign} b ? a : b;"
                )
            select, splat, i = self.select(short, lanes), self.splat(short, lanes), self.type(raw, lanes)
            plain = (
                f"{t} r = {select}(a {sign} b, a, b);\n"
                f"r = {select}(a == b, ({t})(({i})a {join} ({i})b), r);\n"
                f"return {select}((a == a) & (b == b), r, {splat}({nan}));"
            )
            if short != "f32" or lanes not in (4, 8, 16):
                return plain
            ps, prefix, _ = _PS[4 * lanes]
            of = f"({ps})a, ({ps})b"
            fast = (  # the instruction orders zeros, but takes the other operand for a NaN
                f"const {ps} r = {prefix}_range_ps({of}, {5 if op == 'max' else 4});\n"
                f"return ({t}){prefix}_mask_blend_ps({prefix}_cmp_ps_mask({of}, _CMP_UNORD_Q), r, ({ps}){splat}({nan}));"
            )
            return under("__AVX512VL__) && defined(__AVX512DQ__", fast, plain)

        return self.define(name, t, f"{t} a, {t} b", body)

    def divide(self, op: str, lanes: int) -> str:
        """i32 `//` and `%`: floor; by zero 0."""
        floor = (
            "if (b == 0) return 0;\nif (b == -1) return (i32)(0u - (u32)a);\nreturn a / b - (a % b != 0 && (a < 0) != (b < 0));"
        )
        one = self.define("floor_div_i32", "i32", "i32 a, i32 b", floor)
        if op == "%":
            rest = "return b == 0 || b == -1 ? 0 : (i32)((u32)a - (u32)b * (u32)floor_div_i32(a, b));"
            one = self.define("floor_mod_i32", "i32", "i32 a, i32 b", rest)
        if lanes == 1:
            return one
        t = self.type("i32", lanes)
        body = f"{t} y;\nfor (int l = 0; l < {lanes}; ++l) y[l] = {one}(a[l], b[l]);\nreturn y;"
        return self.define(f"{one}x{lanes}", t, f"{t} a, {t} b", body)

    def index(self, what: str) -> str:
        """Helpers on 64-bit loop arithmetic: min_i, max_i, floor_i, ceil and mod by floor."""
        bodies = {
            "min_i": "return a < b ? a : b;",
            "max_i": "return a > b ? a : b;",
            "floor_i": "return a >= 0 ? a / b : -((b - 1 - a) / b);",
        }
        return self.define(what, "i64", "i64 a, i64 b", bodies[what])


def under(macro: str, fast: str, plain: str) -> str:
    """`fast` where the compiler defines the macro, else `plain`."""
    return f"#if defined({macro})\n{fast}\n#else\n{plain}\n#endif"
