"""Vectors made of others as C helpers: spread, chosen by lanes, joined, of wider or narrower elements, of another type."""

from __future__ import annotations

from tilec.codegen.c_helpers import BYTES, MASK, REGISTERS, Helpers, under, vector

# of a compare: its name, and the predicates of AVX-512 for floats and for integers
_ORDER = {
    "==": ("eq", "_CMP_EQ_OQ", "_MM_CMPINT_EQ"),
    "<": ("lt", "_CMP_LT_OQ", "_MM_CMPINT_LT"),
    "<=": ("le", "_CMP_LE_OQ", "_MM_CMPINT_LE"),
    ">": ("gt", "_CMP_GT_OQ", "_MM_CMPINT_NLE"),
    ">=": ("ge", "_CMP_GE_OQ", "_MM_CMPINT_NLT"),
}


def splat(h: Helpers, short: str, lanes: int) -> str:
    t = h.type(short, lanes)
    return h.define(f"splat_{t}", t, f"{short} x", f"return ({t}){{{', '.join(['x'] * lanes)}}};")


def select(h: Helpers, short: str, lanes: int) -> str:
    """m ? a : b by lanes."""
    t, size = h.type(short, lanes), BYTES[short] * lanes
    kind = MASK.get(short, "i32" if BYTES[short] == 4 else f"i{8 * BYTES[short]}")
    m = h.type(kind, lanes)
    plain = f"return ({t})((m & ({m})a) | (~m & ({m})b));"
    if BYTES[short] >= 4 and size in (16, 32):
        r, macro = REGISTERS[size], "__AVX__" if size == 32 else "__SSE4_1__"
        real, suffix = r.real(BYTES[short])
        fast = f"return ({t}){r.prefix}_blendv_{suffix}(({real})b, ({real})a, ({real})m);"
        plain = under(macro, fast, plain)
    return h.define(f"select_{t}", t, f"{m} m, {t} a, {t} b", plain)


def where(h: Helpers, short: str, kind: str, op: str, lanes: int) -> str:
    """p op q ? a : b by lanes, p and q of the 4-byte type `kind`, a and b of the 4-byte type `short`."""
    t, x, choose = h.type(short, lanes), h.type(kind, lanes), select(h, short, lanes)
    name, real, whole = _ORDER[op]
    body = f"return {choose}(p {op} q, a, b);"
    if lanes in (4, 8, 16):
        r = REGISTERS[4 * lanes]
        compare, order, cast = ("ps", real, r.floats) if kind == "f32" else (f"ep{kind[0]}32", whole, r.whole)
        mask = f"{r.prefix}_cmp_{compare}_mask(({cast})p, ({cast})q, {order})"
        body = under("__AVX512VL__", f"return ({t}){r.prefix}_mask_blend_epi32({mask}, ({r.whole})b, ({r.whole})a);", body)
    return h.define(f"where_{name}_{x}_{t}", t, f"{x} p, {x} q, {t} a, {t} b", body)


def join(h: Helpers, short: str, lanes: int) -> str:
    """Two vectors of `lanes` as one of twice as many."""
    t, x = h.type(short, 2 * lanes), h.type(short, lanes)
    order = ", ".join(map(str, range(2 * lanes)))
    body = (
        "#if defined(__has_builtin) && (defined(__clang__) || __GNUC__ >= 12)\n"
        f"return __builtin_shufflevector(a, b, {order});\n#else\n{t} y;\nmemcpy(&y, &a, sizeof a);\n"
        f"memcpy((char *)&y + sizeof a, &b, sizeof b);\nreturn y;\n#endif"
    )
    return h.define(f"join_{t}", t, f"{x} a, {x} b", body)


def narrow(h: Helpers, to: str, short: str, lanes: int) -> str:
    """Vectors of 4-byte integers, one behind the other, as one of fewer bytes that hold their values."""
    count = 4 // BYTES[to]
    t, x = h.type(to, count * lanes), h.type(short, lanes)

    def body() -> str:
        values = [f"{resize(h, to, short, lanes)}({v})" for v in "abcd"[:count]]
        n = lanes
        while len(values) > 1:
            values = [f"{join(h, to, n)}({v}, {w})" for v, w in zip(values[::2], values[1::2], strict=True)]
            n *= 2
        plain = f"return {values[0]};"
        if lanes not in (8, 16):
            return plain
        r, macro = REGISTERS[4 * lanes], "__AVX512BW__" if lanes == 16 else "__AVX2__"
        pack = "packus" if to == "u16" else "packs"
        pairs = [f"{r.prefix}_{pack}_epi32(({r.whole}){v}, ({r.whole}){w})" for v, w in ("ab", "cd")[: count // 2]]
        packed = pairs[0] if count == 2 else f"{r.prefix}_pack{'us' if to == 'u8' else 's'}_epi16({', '.join(pairs)})"
        groups = lanes // 4  # packing works in groups of 16 bytes: what lies in each belongs apart
        words = 4 // count
        order = ", ".join(str(4 * g + words * v + w) for v in range(count) for g in range(groups) for w in range(words))
        permuted = "permutexvar_epi32" if lanes == 16 else "permutevar8x32_epi32"
        index = f"({r.whole})({h.type('i32', lanes)}){{{order}}}"
        args = f"{index}, {packed}" if lanes == 16 else f"{packed}, {index}"
        return under(macro, f"return ({t}){r.prefix}_{permuted}({args});", plain)

    return h.define(f"{t}_of_{x}s", t, ", ".join(f"{x} {v}" for v in "abcd"[:count]), body)


def resize(h: Helpers, to: str, short: str, lanes: int) -> str:
    """Integers to more bits, or to fewer that hold their values; vectors (the compiler's own conversion splits them up)."""
    t, x = h.type(to, lanes), h.type(short, lanes)

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
        pack = "us" if sign == "u" else "s"  # the values fit, so saturation changes none
        if n == 16:
            return under("__AVX2__", f"return ({t})_mm_pack{pack}_epi32({half});", plain)
        line = f"const __m128i y = _mm_packs_epi32({half});\nconst __m128i z = _mm_pack{pack}_epi16(y, y);\n"
        return under("__AVX2__", f"{line}{t} r;\nmemcpy(&r, &z, sizeof r);\nreturn r;", plain)

    return h.define(f"{t}_of_{x}", t, f"{x} x", body)


def convert(h: Helpers, to: str, short: str, lanes: int, text: str) -> str:
    """Values of another type, each rounded once where it must be; scalars and vectors.

    Sixteen f64 out of i32 in two halves: at -O0, GCC 12 has no instruction for the conversion as a whole and dies.
    """
    if lanes == 1:
        return f"({to}){text}"
    t = h.type(to, lanes)
    if (to, short) != ("f64", "i32") or lanes < 16:
        return f"__builtin_convertvector({text}, {t})"
    x, half = h.type(short, lanes), lanes // 2
    one = f"__builtin_convertvector(h[%d], {h.type(to, half)})"
    body = (
        f"{h.type(short, half)} h[2];\nmemcpy(h, &x, sizeof h);\n"
        f"const {vector(to, half)} y[2] = {{{one % 0}, {one % 1}}};\n{t} r;\nmemcpy(&r, y, sizeof r);\nreturn r;"
    )
    return f"{h.define(f'{t}_of_{x}', t, f'{x} x', body)}({text})"


def bits(h: Helpers, to: str, short: str) -> str:
    """The same bits, scalars (vectors cast)."""
    return h.define(f"{to}_bits", to, f"{short} x", f"{to} y;\nmemcpy(&y, &x, sizeof y);\nreturn y;")
