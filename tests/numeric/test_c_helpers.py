"""The helpers that generated C stands on, against ir/dtypes.py and ir/functions.py: every format, rule and function, as scalars
and as vectors. All of them are compiled in one file."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tests.numeric.compiled import needs_compiler, same_bits
from tilec.codegen import c_arithmetic, c_convert, c_functions, c_lanes, c_memory, c_rounding
from tilec.codegen.c_functions import simplified
from tilec.codegen.c_helpers import ELEMENT, HOLDS, Helpers
from tilec.ir import evaluate
from tilec.ir.dtypes import ARITHMETIC_NUMPY, DTYPES, RULES, decode, encode
from tilec.ir.functions import FUNCTIONS
from tilec.runtime.c_build import FLAGS
from tilec.runtime.compiler import find

pytestmark = needs_compiler
LANES = (1, 2, 4, 8, 16, 32)
PACKED = ("i8", "f8e4m3", "f8e5m2", "bf16", "f16")
Apply = Callable[[str, int, np.ndarray, type], np.ndarray]


def _values(source: str, count: int = 20_000) -> np.ndarray:
    """Random bits (all exponents, NaNs, infinities), the neighbourhood of every narrow value and of the halves between them."""
    rng = np.random.default_rng(7)
    if source == "i32":
        edge = np.array([0, 1, -1, 127, 128, -128, -129, 2**31 - 1, -(2**31), 1 << 24, (1 << 24) + 1], np.int64)
        return np.concatenate([edge, rng.integers(-(2**31), 2**31, count), rng.integers(-300, 300, 500)]).astype(np.int32)
    narrow: list[np.ndarray] = []
    for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
        narrow.append(np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32))
    narrow.append(np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)[::17])
    narrow.append(np.arange(65536, dtype=np.uint16).view(ml_dtypes.bfloat16).astype(np.float32)[::17])
    narrow.append(np.arange(-260, 260, dtype=np.float32) / 2)
    narrow.append(
        np.float32([2147483648.0, 2147483520.0, -2147483648.0, -2147483904.0, 8388607.5, 8388608.0, 4194303.5, 65519.99, 65520])
    )
    finite = np.concatenate(narrow)
    finite = finite[np.isfinite(finite)]
    with np.errstate(over="ignore"):
        middle = (np.sort(finite)[1:] + np.sort(finite)[:-1]) / np.float32(2)
        bits = rng.integers(0, 2**32, count, dtype=np.uint64).astype(np.uint32).view(np.float32)
        all_ = np.concatenate(
            [finite, middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf)), bits]
        )
    all_ = np.concatenate([all_, np.float32([np.inf, -np.inf, np.nan, 0.0, -0.0])])
    if source == "f32":
        return all_
    wide = rng.integers(0, 2**64, count, dtype=np.uint64).view(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = all_.astype(np.float64)
        return np.concatenate([exact, exact * (1 + 2.0**-40), wide])


def _conversions() -> list[tuple[str, str, str | None]]:
    return [(d, s, r) for d in DTYPES for s in ("f32", "f64", "i32") for r in (None, *RULES)]


@pytest.fixture(scope="module")
def apply(tmp_path_factory: pytest.TempPathFactory) -> Apply:
    """apply(name, lanes, values, dtype of the result): a helper over an array, in chunks of `lanes`."""
    h = Helpers()
    drivers: list[str] = []

    def driver(key: str, name: str, lanes: int, source: str, result: str) -> None:
        t, r = h.type(source, lanes), h.type(result, lanes)
        load, store = (
            (f"{c_memory.load(h, source, lanes)}(x + n)", f"{c_memory.store(h, result, lanes)}(y + n, ")
            if lanes > 1
            else ("x[n]", "y[n] = (")
        )
        if lanes == 1:
            body = f"y[n] = {name}(x[n]);"
        else:
            body = f"{t} v = {load}; {r} w = {name}(v); {store}w);"
        head = f"void {key}_{lanes}(const {source} *x, {result} *y, i64 all)"
        drivers.append(f"{head} {{ for (i64 n = 0; n < all; n += {lanes}) {{ {body} }} }}")

    for lanes in LANES:
        for dtype, source, rule in _conversions():
            name = c_convert.encode(h, dtype, source, lanes, rule)
            if name:
                driver(f"encode_{dtype}_{source}_{rule}", name, lanes, HOLDS[source], ELEMENT[dtype])
        for dtype in DTYPES:
            name = c_convert.decode(h, dtype, lanes)
            if name:
                driver(f"decode_{dtype}", name, lanes, ELEMENT[dtype], HOLDS[DTYPES[dtype].arithmetic])
            name = c_convert.through(h, dtype, lanes)
            if name:
                driver(f"through_{dtype}", name, lanes, "f32", "f32")
        for dtype in PACKED if lanes in (8, 16) else ():
            short, count = "i32" if dtype == "i8" else "u32", 4 // DTYPES[dtype].bytes
            whole, narrow = c_rounding.unpacked(h, dtype, lanes), c_lanes.narrow(h, ELEMENT[dtype], short, lanes)
            parts = ", ".join(f"{whole}({c_memory.load(h, 'f32', lanes)}(x + n + {lanes * part}))" for part in range(count))
            body = f"{c_memory.store(h, ELEMENT[dtype], count * lanes)}(y + n, {narrow}({parts}));"
            head = f"void packed_{dtype}_{lanes}(const f32 *x, {ELEMENT[dtype]} *y, i64 all)"
            drivers.append(f"{head} {{ for (i64 n = 0; n < all; n += {count * lanes}) {{ {body} }} }}")
        for f in FUNCTIONS:
            driver(f"call_{f}", c_functions.function(h, f, lanes), lanes, "f32", "f32")
        for short in ("f32", "f64", "i32"):
            for op in ("max", "min"):
                name = c_arithmetic.extreme(h, op, short, lanes)
                splat = f"{c_lanes.splat(h, short, lanes)}(c)" if lanes > 1 else "c"
                for c in ("0", "-0.0", "1", "NAN") if short != "i32" else ("0", "-7"):
                    key = f"{op}_{short}_{c.replace('-', 'm').replace('.', '_')}"
                    t = h.type(short, lanes)
                    h.define(f"{key}_{lanes}_", t, f"{t} x", f"const {short} c = {c};\nreturn {name}(x, {splat});")
                    driver(key, f"{key}_{lanes}_", lanes, short, short)
        c_arithmetic.divide(h, "//", lanes)
        c_arithmetic.divide(h, "%", lanes)
    folder = tmp_path_factory.mktemp("helpers")
    (folder / "all.c").write_text(h.text() + "\n" + "\n".join(drivers))
    flags = [f for f in FLAGS if f != "-O3"]
    command = [find().path, *flags, "-O0", "-shared", "-fPIC", "all.c", "-o", "all.so", "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[:2000]
    library = ctypes.CDLL(str(folder / "all.so"))

    def run(key: str, lanes: int, values: np.ndarray, result: type) -> np.ndarray:
        count = -(-len(values) // 64) * 64
        x = np.concatenate([values, np.zeros(count - len(values), values.dtype)])
        y = np.empty(count, result)
        getattr(library, f"{key}_{lanes}")(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data), ctypes.c_int64(count))
        return y[: len(values)]

    return run


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", list(DTYPES))
def test_every_conversion_has_the_bits_of_the_reference(apply: Apply, dtype: str, lanes: int) -> None:
    tried = 0
    for d, source, rule in _conversions():
        plain = DTYPES[d].direct and source == d and rule != "saturate"
        if d != dtype or plain:
            continue
        values = _values(source)
        want = encode(dtype, values, rule)
        got = apply(f"encode_{dtype}_{source}_{rule}", lanes, values, want.dtype.type)
        equal = got.view(f"u{got.itemsize}") == want.view(f"u{got.itemsize}")
        if dtype in ("f32", "f64"):
            equal |= np.isnan(got) & np.isnan(want)
        wrong = values[~equal]
        assert equal.all(), (
            f"{dtype} from {source}, {rule}: {len(wrong)} wrong, first {wrong[0]!r}: {got[~equal][0]} not {want[~equal][0]}"
        )
        tried += 1
    assert tried >= 15


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("dtype", PACKED)
def test_elements_packed_from_several_vectors_have_the_same_bits(apply: Apply, dtype: str, lanes: int) -> None:
    values = _values("f32")
    want = encode(dtype, values)
    got = apply(f"packed_{dtype}", lanes, values, want.dtype.type)
    raw = f"u{want.itemsize}"
    assert (got.view(raw) == want.view(raw)).all()


@pytest.mark.parametrize("lanes", LANES)
def test_every_element_loads_exactly(apply: Apply, lanes: int) -> None:
    for dtype, d in DTYPES.items():
        if not d.direct:
            raw = np.arange(1 << d.bits, dtype=np.uint32).astype(f"u{d.bytes}").view(d.raw)
            want = decode(dtype, raw)
            got = apply(f"decode_{dtype}", lanes, raw, want.dtype.type)
            assert same_bits(d.arithmetic, got, want).all(), dtype


@pytest.mark.parametrize("lanes", LANES)
def test_a_value_rounded_in_place_is_stored_and_loaded(apply: Apply, lanes: int) -> None:
    values = _values("f32")
    for dtype in ("bf16", "f16") if lanes in (4, 8, 16) else ("bf16",):
        want = decode(dtype, encode(dtype, values).view(DTYPES[dtype].raw))
        assert same_bits("f32", apply(f"through_{dtype}", lanes, values, np.float32), want).all(), dtype


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("name", list(FUNCTIONS))
def test_elementary_functions_are_the_reference_sequences(apply: Apply, name: str, lanes: int) -> None:
    values = np.concatenate([_values("f32"), np.linspace(-130, 130, 20_001, dtype=np.float32)])
    want = FUNCTIONS[name].evaluate(values)
    got = apply(f"call_{name}", lanes, values, np.float32)
    equal = same_bits("f32", got, want)
    assert equal.all(), f"{name}: {(~equal).sum()} differ, first at {values[~equal][0]!r}"


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("op", ["max", "min"])
def test_maximum_and_minimum_are_those_of_ieee_754_2019(apply: Apply, op: str, lanes: int) -> None:
    for short in ("f32", "f64", "i32"):
        values = _values(short)
        for c, value in (("0", 0), ("m0_0", -0.0), ("1", 1), ("NAN", np.nan)) if short != "i32" else (("0", 0), ("m7", -7)):
            with np.errstate(invalid="ignore"):
                want = evaluate.binary(op, short, values, ARITHMETIC_NUMPY[short].type(value))
            got = apply(f"{op}_{short}_{c}", lanes, values, want.dtype.type)
            assert same_bits(short, got, want).all(), (short, c)


def test_a_wrong_rounding_would_be_seen(apply: Apply) -> None:
    """The comparison can fail: bf16 by truncation is not bf16 by nearest even."""
    values = _values("f32")
    with np.errstate(all="ignore"):
        got = apply("encode_bf16_f32_toward_zero", 8, values, np.uint16)
    assert (got != encode("bf16", values)).sum() > 1000


def test_a_clamp_from_above_stays_only_where_it_can_bite() -> None:
    """silu's exponent is -|x|, never above 0: its clamp at 89 is nothing; exp's argument is anything."""
    above = {name: [s for s in simplified(FUNCTIONS[name])[0] if s.op == "gt" and s.args[1] == 89.0] for name in ("silu", "exp")}
    used = {name: {a for s in simplified(FUNCTIONS[name])[0] if s.op == "select" for a in s.args} for name in above}
    assert not any(s.name in used["silu"] for s in above["silu"])
    assert above["exp"] and all(s.name in used["exp"] for s in above["exp"])
