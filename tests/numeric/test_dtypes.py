"""Number formats: exhaustive tables, ml_dtypes after clamping, an exact reference for double rounding, every named rule."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from tilec.errors import LanguageError
from tilec.ir.dtypes import DTYPES, RULES, promote, round_through, to_arithmetic, to_storage

# NumPy warns of NaN and overflow in the casts that make the test values
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in cast:RuntimeWarning")

NARROW = ("f16", "bf16", "f8e4m3", "f8e5m2")


def bits(a: np.ndarray) -> np.ndarray:
    return a.view(f"u{a.dtype.itemsize}")


def finite_values(name: str) -> np.ndarray:
    """Every finite value of the format, ascending, as f64 (one zero)."""
    d = DTYPES[name]
    patterns = np.arange(1 << d.bits, dtype=np.uint32).astype(f"u{d.bytes}").view(d.numpy)
    values = patterns.astype(np.float64)
    return np.unique(values[np.isfinite(values)])


def interesting(name: str) -> np.ndarray:
    """f64: every value of the format, every midpoint, their f64 and f32 neighbours, specials."""
    v = finite_values(name)
    middle = (v[1:] + v[:-1]) / 2
    top = np.array([v[-1] + (v[-1] - v[-2]) / 2])
    base = np.concatenate([v, middle, top, -top, [1e30, 1e-40, 5e-324, 1e308, np.inf]])
    base = np.concatenate([base, -base])
    f32 = base.astype(np.float32)
    near32 = np.concatenate([np.nextafter(f32, np.float32(np.inf)), np.nextafter(f32, np.float32(-np.inf))]).astype(np.float64)
    return np.concatenate([base, np.nextafter(base, np.inf), np.nextafter(base, -np.inf), near32])


def nearest_even(name: str, x: np.ndarray) -> np.ndarray:
    """The reference in a different way: search the table of all values; a tie takes the even pattern. Saturates everywhere."""
    v = finite_values(name)
    pattern = bits(v.astype(np.float32).astype(DTYPES[name].numpy))
    x = np.clip(x, v[0], v[-1])
    right = np.clip(np.searchsorted(v, x), 1, len(v) - 1)
    a, b = v[right - 1], v[right]
    # x - a and b - x are exact near a tie (Sterbenz), so the comparison decides ties right
    to_right = (b - x < x - a) | ((b - x == x - a) & (pattern[right] % 2 == 0))
    return np.where(to_right, b, a)


@pytest.mark.parametrize("name", NARROW)
def test_every_pattern_survives_a_load_and_a_store(name: str) -> None:
    d = DTYPES[name]
    every = np.arange(1 << d.bits, dtype=np.uint32).astype(f"u{d.bytes}").view(d.numpy)
    values = to_arithmetic(name, every)
    assert values.dtype == np.float32
    assert np.array_equal(values, every.astype(np.float32), equal_nan=True)
    for arithmetic in (values, values.astype(np.float64)):
        back = to_storage(name, arithmetic, "no_saturate")
        number = ~np.isnan(values)
        assert np.array_equal(bits(back)[number], bits(every)[number])
        assert len(set(bits(back)[~number].tolist())) == 1, "one NaN per format"
    assert np.isnan(to_arithmetic(name, to_storage(name, np.float32([np.nan, -np.nan])))).all()


@pytest.mark.parametrize("name", NARROW)
def test_stores_round_to_nearest_even_once(name: str) -> None:
    d = DTYPES[name]
    x = interesting(name)
    x = x[np.abs(x) <= d.largest]
    got = to_storage(name, x)
    assert np.array_equal(got.astype(np.float64), nearest_even(name, x))
    assert np.array_equal(np.signbit(got.astype(np.float32)), np.signbit(x)), "a result that is zero keeps the sign"
    x32 = x.astype(np.float32)
    assert np.array_equal(to_storage(name, x32).astype(np.float64), nearest_even(name, x32.astype(np.float64)))


@pytest.mark.parametrize("name", NARROW)
def test_f32_stores_equal_ml_dtypes_after_clamping(name: str) -> None:
    d = DTYPES[name]
    x = np.concatenate([np.arange(0, 1 << 32, 9973, dtype=np.uint32).view(np.float32), interesting(name).astype(np.float32)])
    x = x[~np.isnan(x)]
    clamped = np.clip(x, np.float32(d.lowest), np.float32(d.largest)) if d.saturates else x
    with np.errstate(over="ignore"):
        reference = clamped.astype(d.numpy)
    assert np.array_equal(bits(to_storage(name, x)), bits(reference))
    wide = to_storage(name, x.astype(np.float64))  # the same values by the general path
    assert np.array_equal(bits(wide), bits(reference))


@pytest.mark.parametrize("name", NARROW)
def test_no_saturate_equals_ml_dtypes(name: str) -> None:
    x = interesting(name).astype(np.float32)
    with np.errstate(all="ignore"):
        reference = x.astype(DTYPES[name].numpy).astype(np.float32)
    assert np.array_equal(to_storage(name, x, "no_saturate").astype(np.float32), reference, equal_nan=True)


def test_f64_rounds_once_where_two_steps_differ() -> None:
    # just above the midpoint of two bf16 values: through f32 it becomes the midpoint, then the even neighbour below
    x = np.array([1 + 2.0**-8 + 2.0**-40])
    assert to_storage("bf16", x.astype(np.float32))[0] == 1.0
    assert to_storage("bf16", x)[0] == 1 + 2.0**-7
    assert to_storage("f16", np.array([1 + 2.0**-11 + 2.0**-40]))[0] == np.float16(1 + 2.0**-10)
    assert to_storage("f32", np.array([1 + 2.0**-24 + 2.0**-50]))[0] == np.float32(1 + 2.0**-23)


@pytest.mark.parametrize("name", NARROW)
def test_i32_rounds_once(name: str) -> None:
    d = DTYPES[name]
    x = np.concatenate([np.arange(-70_000, 70_000, 7), 2 ** np.arange(31) + 1, [2**31 - 1, -(2**31)]]).astype(np.int32)
    inside = x[np.abs(x.astype(np.float64)) <= d.largest]
    assert np.array_equal(to_storage(name, inside).astype(np.float64), nearest_even(name, inside.astype(np.float64)))
    top = to_storage(name, np.int32([2**31 - 1])).astype(np.float64)[0]
    assert top == {"f16": np.inf, "bf16": 2.0**31, "f8e4m3": 448, "f8e5m2": 57344}[name]


def test_published_conversions() -> None:
    def store(name: str, *values: float) -> list[float]:
        return [float(v) for v in to_storage(name, np.float32(values)).astype(np.float32)]

    assert store("f8e4m3", 1.0625001, 400.1996) == [1.125, 416]  # never through f16, which would give 1 and 384
    assert store("f8e4m3", np.inf, -np.inf, 1e9, 44.8) == [448, -448, 448, 44]
    assert store("f8e5m2", np.inf, -1e9) == [57344, -57344]
    assert store("f16", 65520, 65519) == [np.inf, 65504]
    assert float(to_storage("bf16", np.int32([259]))[0]) == 260
    assert to_storage("i8", np.float32([127.6, -128.7, np.nan, np.inf, -np.inf, 2.5, 3.5, -0.5])).tolist() == [
        *(127, -128, 0, 127, -128, 2, 4, 0)
    ]
    assert to_storage("i32", np.float32([3e9, -3e9, np.nan, 0.5, 1.5])).tolist() == [2**31 - 1, -(2**31), 0, 0, 2]
    assert to_storage("i8", np.int32([300, -300, 5])).tolist() == [127, -128, 5]


def test_ledger_number_formats() -> None:
    one, tiny = np.float32(1), np.float32(2.0**-24)
    assert (one + tiny) + tiny == 1 and one + (tiny + tiny) == np.float32(1.00000011920929)
    tenth = to_storage("bf16", np.float32([0.1]))
    assert float(tenth[0]) == 0.10009765625 and f"{int(bits(tenth)[0]):016b}" == "0011110111001101"
    assert float(round_through("bf16", np.float32([70000]))[0]) == 70144
    assert [DTYPES[n].largest for n in ("f16", "f8e4m3", "f8e5m2")] == [65504, 448, 57344]
    assert DTYPES["bf16"].largest == pytest.approx(3.38953138925154e38, rel=1e-12)
    assert float(ml_dtypes.finfo(ml_dtypes.float4_e2m1fn).max) == 6 and float(ml_dtypes.finfo(ml_dtypes.float8_e4m3).max) == 240
    bf16 = finite_values("bf16")
    at = {x: float(np.diff(bf16[np.searchsorted(bf16, x) :][:2])[0]) for x in (100, 10000)}
    assert at == {100: 0.5, 10000: 64}
    assert round_through("bf16", np.float32([1001, 257])).tolist() == [1000, 256]
    assert round_through("f16", np.float32([2048, 2049])).tolist() == [2048, 2048]
    total = {n: np.float32(0) for n in ("f32", "f16", "bf16")}
    for _ in range(10_000):  # add in f32, store every step; 0.01 is itself stored
        for n in total:
            total[n] = round_through(n, total[n] + round_through(n, np.float32(0.01)))
    assert float(total["f32"]) == pytest.approx(100.002952575684, rel=1e-9)
    assert (float(total["f16"]), float(total["bf16"])) == (32, 4)


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("rule", ["toward_zero", "floor", "up"])
def test_directed_rules(name: str, rule: str) -> None:
    v = finite_values(name)
    x = interesting(name)
    x = x[np.abs(x) < v[-1]]
    below, above = v[np.searchsorted(v, x, side="right") - 1], v[np.searchsorted(v, x)]
    expected = {"floor": below, "up": above, "toward_zero": np.where(x > 0, below, above)}[rule]
    assert np.array_equal(to_storage(name, x, rule).astype(np.float64), expected)


def test_directed_rules_beyond_the_largest_value() -> None:
    x = np.float32([1e6, -1e6, np.inf, -np.inf])
    inf = np.inf
    assert to_storage("f16", x, "toward_zero").tolist() == [65504, -65504, inf, -inf]
    assert to_storage("f16", x, "floor").tolist() == [65504, -inf, inf, -inf]
    assert to_storage("f16", x, "up").tolist() == [inf, -65504, inf, -inf]
    assert to_storage("f16", x, "saturate").tolist() == [65504, -65504, 65504, -65504]
    assert to_storage("f8e4m3", x, "floor").astype(np.float32).tolist() == [448, -448, 448, -448]
    assert to_storage("f32", np.array([inf, 1e300, -1e300]), "saturate").tolist() == [
        float(np.finfo(np.float32).max) * s for s in (1, 1, -1)
    ]


def test_integer_rules() -> None:
    x = np.float32([2.7, -2.7, 300.0, -129.0, np.nan, np.inf])
    assert to_storage("i8", x, "toward_zero").tolist() == [2, -2, 127, -128, 0, 127]
    assert to_storage("i8", x, "floor").tolist() == [2, -3, 127, -128, 0, 127]
    assert to_storage("i8", x, "up").tolist() == [3, -2, 127, -128, 0, 127]
    assert to_storage("i8", x, "no_saturate").tolist() == [3, -3, 44, 127, 0, 0]
    assert to_storage("i32", np.array([2.0**32 + 5, -(2.0**31) - 1]), "no_saturate").tolist() == [5, 2**31 - 1]


def test_f32_from_wider_values_against_fractions() -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.standard_normal(300) * 10.0 ** rng.integers(-44, 38, 300), [2.0**-149, 2.0**-150, 1.5 * 2.0**-149]])
    down, up = to_storage("f32", x, "floor"), to_storage("f32", x, "up")
    for v, a, b, n in zip(x.tolist(), down.tolist(), up.tolist(), to_storage("f32", x).tolist(), strict=True):
        assert Fraction(a) <= Fraction(v) <= Fraction(b)
        assert a == b or np.nextafter(np.float32(a), np.float32(np.inf)) == np.float32(b)
        gap_a, gap_b = Fraction(v) - Fraction(a), Fraction(b) - Fraction(v)
        assert n == (a if gap_a < gap_b else b) or gap_a == gap_b


def test_names() -> None:
    sizes = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "f8e4m3": 1, "f8e5m2": 1, "i32": 4, "i8": 1}
    assert {n: d.bytes for n, d in DTYPES.items()} == sizes
    assert (promote("i32", "f32"), promote("f64", "f32"), promote("i32", "i32")) == ("f32", "f64", "i32")
    with pytest.raises(LanguageError) as e:
        to_storage("bf16", np.float32([1]), "truncate")
    assert str(e.value) == f"bf16(x, 'truncate'): no rounding rule 'truncate'. Rules: {', '.join(RULES)}"
    with pytest.raises(LanguageError) as e:
        to_storage("fp8", np.float32([1]))
    assert str(e.value) == "no number format 'fp8'. Formats: f64, f32, f16, bf16, f8e4m3, f8e5m2, i32, i8"
