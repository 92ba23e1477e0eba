"""Vectors to and from memory as C helpers: whole, in part, or past the caches."""

from __future__ import annotations

from tilec.codegen.c_helpers import BYTES, REGISTERS, Helpers, under


def load(h: Helpers, short: str, lanes: int) -> str:
    t = h.type(short, lanes)
    return h.define(f"load_{t}", t, f"const {short} *p", f"return *(const {t}_at *)p;")


def store(h: Helpers, short: str, lanes: int) -> str:
    t = h.type(short, lanes)
    return h.define(f"store_{t}", "void", f"{short} *p, {t} v", f"*({t}_at *)p = v;")


def load_part(h: Helpers, short: str, lanes: int) -> str:
    """The first n lanes (0 <= n <= lanes), zeros behind."""
    t = h.type(short, lanes)

    def body() -> str:
        plain = f"{t} v = {{0}};\nfor (i64 l = 0; l < n; ++l) v[l] = p[l];\nreturn v;"
        if BYTES[short] == 4 and lanes == 8:
            part = f"(__m256i){part_mask(h, 8)}(n)"
            return under("__AVX2__", f"return ({t})_mm256_maskload_epi32((const int *)p, {part});", plain)
        if macros := _masked(short, lanes):
            masked = f"{REGISTERS[BYTES[short] * lanes].prefix}_maskz_loadu_epi{8 * BYTES[short]}"
            return under(macros, f"return ({t}){masked}({_first(lanes)}, p);", plain)
        return plain

    return h.define(f"load_part_{t}", t, f"const {short} *p, i64 n", body)


def store_part(h: Helpers, short: str, lanes: int) -> str:
    """The first n lanes (0 <= n <= lanes)."""
    t = h.type(short, lanes)

    def body() -> str:
        plain = "for (i64 l = 0; l < n; ++l) p[l] = v[l];"
        if BYTES[short] == 4 and lanes == 8:
            part = f"(__m256i){part_mask(h, 8)}(n)"
            return under("__AVX2__", f"_mm256_maskstore_epi32((int *)p, {part}, (__m256i)v);", plain)
        if macros := _masked(short, lanes):
            r = REGISTERS[BYTES[short] * lanes]
            return under(macros, f"{r.prefix}_mask_storeu_epi{8 * BYTES[short]}(p, {_first(lanes)}, ({r.whole})v);", plain)
        return plain

    return h.define(f"store_part_{t}", "void", f"{short} *p, {t} v, i64 n", body)


def loaded(h: Helpers, short: str, lanes: int, pointer: str, count: str | None) -> str:
    """The text of a load of all lanes, or of the first `count`."""
    if count is None:
        return f"{load(h, short, lanes)}({pointer})"
    return f"{load_part(h, short, lanes)}({pointer}, {count})"


def stored(h: Helpers, short: str, lanes: int, pointer: str, value: str, count: str | None) -> str:
    """The text of a store of all lanes, or of the first `count`."""
    if count is None:
        return f"{store(h, short, lanes)}({pointer}, {value});"
    return f"{store_part(h, short, lanes)}({pointer}, {value}, {count});"


def _masked(short: str, lanes: int) -> str:
    """The macros under which AVX-512 moves such vectors under a mask; "" where loops do as well."""
    if BYTES[short] == 4 and lanes == 16:
        return "__AVX512F__"
    return "__AVX512BW__ __AVX512VL__" if BYTES[short] == 2 and lanes in (8, 16, 32) else ""


def _first(lanes: int) -> str:
    """The mask of the first n lanes."""
    return f"(__mmask{lanes})(({'1ull' if lanes == 32 else '1u'} << n) - 1)"


def part_mask(h: Helpers, lanes: int) -> str:
    """-1 in the first n lanes."""
    t = h.type("i32", lanes)
    iota = ", ".join(map(str, range(lanes)))
    return h.define(f"part_{lanes}", t, "i64 n", f"return ({t}){{{iota}}} < (i32)n;")


def stream(h: Helpers, short: str, lanes: int) -> str:
    """A whole vector past the caches where it lies on a multiple of its size, in pieces where it lies on one of 16 bytes (all
    that NumPy's allocation promises), else stored as usual."""
    t, size = h.type(short, lanes), BYTES[short] * lanes

    def body() -> str:
        plain = f"*({t}_at *)p = v;"
        if size == 8:
            word = "long long w; memcpy(&w, &v, 8); _mm_stream_si64((long long *)(void *)p, w);"
            return under("__x86_64__", f"if (((uintptr_t)p & 7) == 0) {{ {word} }} else {plain}", plain)
        if size not in REGISTERS:
            return plain
        r = REGISTERS[size]
        call = f"{r.prefix}_stream_si{r.bits}(({r.whole} *)(void *)p, ({r.whole})v);"
        part = {32: "_mm256_extractf128_si256", 64: "_mm512_extracti32x4_epi32"}.get(size)
        pieces = "".join(
            f"_mm_stream_si128((__m128i *)(void *)p + {n}, {part}(({r.whole})v, {n})); " for n in range(size // 16) if part
        )
        otherwise = f"if (((uintptr_t)p & 15) == 0) {{ {pieces}}} else {plain}" if part else plain
        macro = "__AVX__" if size == 32 else r.macro
        return under(macro, f"if (((uintptr_t)p & {size - 1}) == 0) {call}\nelse {otherwise}", plain)

    return h.define(f"stream_{t}", "void", f"{short} *p, {t} v", body)


def fence(h: Helpers) -> str:
    """Streamed stores are seen by others after it."""
    return h.define("stream_fence", "void", "void", under("__SSE2__", "_mm_sfence();", "__sync_synchronize();"))
