"""Number formats and the one rounding that a store or a written cast makes.

Storage types hold array elements: f64, f32, f16, bf16, f8e4m3 (E4M3FN), f8e5m2, i32, i8. Arithmetic types are what operations
work in: f64, f32, i32, bool. A load is exact (f16, bf16, f8 to f32; i8 to i32). A store rounds once, straight from the arithmetic
value: f64 holds every f32 and i32 exactly, so one rounding out of f64 serves all three, and nothing goes through f16 or f32.

Default rule of a format ("nearest_even"):
  f64, f32, f16, bf16   nearest even, overflow to infinity (IEEE 754)
  f8e4m3, f8e5m2        nearest even, then saturating: everything beyond, also ±inf, becomes the largest finite value
  i32, i8               nearest even, then saturating; NaN becomes 0. An i32 operation wraps, a conversion to i32 saturates
NaN stays NaN in floats; a narrowing store writes the one positive quiet NaN of its format (bf16 0x7FC0, f16 0x7E00, f8e4m3 0x7F,
f8e5m2 0x7E). Rules that a cast may name instead are in `RULES`.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tilec.errors import LanguageError

ARITHMETIC = ("bool", "i32", "f32", "f64")  # in the order of promotion
ARITHMETIC_NUMPY: dict[str, np.dtype] = {
    "f64": np.dtype(np.float64),
    "f32": np.dtype(np.float32),
    "i32": np.dtype(np.int32),
    "bool": np.dtype(np.bool_),
}

RULES: dict[str, str] = {
    "nearest_even": "the format's own rule: nearest even; f8 and integers saturate, wider floats overflow to infinity",
    "toward_zero": "drop the fraction; never past the largest finite value",
    "floor": "toward minus infinity",
    "up": "toward plus infinity",
    "saturate": "nearest even; anything beyond the largest finite value, infinity too, becomes that value",
    "no_saturate": "nearest even; overflow becomes infinity, NaN in f8e4m3 (it has no infinity); an integer keeps its low bits",
}


@dataclass(frozen=True)
class DType:
    """A storage type. `precision`: significant bits with the implicit one; `least`: exponent of the smallest normal number."""

    name: str
    bits: int
    kind: str  # "float" or "int"
    arithmetic: str  # the type a load gives
    numpy: np.dtype
    raw: np.dtype  # the NumPy type that holds the same bits (differs where NumPy itself has no such type)
    largest: float  # the largest finite value
    lowest: float  # the most negative finite value
    precision: int = 0
    least: int = 0
    saturates: bool = False

    @property
    def direct(self) -> bool:
        """Is the arithmetic type the storage type itself?"""
        return self.name == self.arithmetic

    @property
    def bytes(self) -> int:
        return self.bits // 8

    def __str__(self) -> str:
        return self.name


def _float(name: str, bits: int, arithmetic: str, numpy: type, raw: type, precision: int, least: int, saturates: bool) -> DType:
    info = ml_dtypes.finfo(numpy)
    top = float(info.max)
    return DType(name, bits, "float", arithmetic, np.dtype(numpy), np.dtype(raw), top, -top, precision, least, saturates)


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        _float("f64", 64, "f64", np.float64, np.float64, 53, -1022, False),
        _float("f32", 32, "f32", np.float32, np.float32, 24, -126, False),
        _float("f16", 16, "f32", np.float16, np.float16, 11, -14, False),
        _float("bf16", 16, "f32", ml_dtypes.bfloat16, np.uint16, 8, -126, False),
        _float("f8e4m3", 8, "f32", ml_dtypes.float8_e4m3fn, np.uint8, 4, -6, True),
        _float("f8e5m2", 8, "f32", ml_dtypes.float8_e5m2, np.uint8, 3, -14, True),
        DType("i32", 32, "int", "i32", np.dtype(np.int32), np.dtype(np.int32), 2.0**31 - 1, -(2.0**31), saturates=True),
        DType("i8", 8, "int", "i32", np.dtype(np.int8), np.dtype(np.int8), 127.0, -128.0, saturates=True),
    )
}

_F8_VALUES: dict[str, np.ndarray] = {
    name: np.arange(256, dtype=np.uint8).view(DTYPES[name].numpy).astype(np.float32) for name in ("f8e4m3", "f8e5m2")
}

_QUIET = {"f16": np.float16(np.nan), "bf16": np.uint16(0x7FC0), "f8e4m3": np.uint8(0x7F), "f8e5m2": np.uint8(0x7E)}


def promote(a: str, b: str) -> str:
    """The arithmetic type of an operation on arithmetic types a and b: f64 > f32 > i32 > bool."""
    return max(a, b, key=ARITHMETIC.index)


def check_rule(dtype: str, rule: str | None) -> None:
    """LanguageError when no such storage type or rounding rule exists; the text lists what does."""
    if dtype not in DTYPES:
        raise LanguageError(f"no number format {dtype!r}. Formats: {', '.join(DTYPES)}")
    if rule is not None and rule not in RULES:
        raise LanguageError(f"{dtype}(x, {rule!r}): no rounding rule {rule!r}. Rules: {', '.join(RULES)}")


def convert(values: np.ndarray, arithmetic: str) -> np.ndarray:
    """Arithmetic value to a wider or equal arithmetic type (i32 to f32 rounds once, nearest even)."""
    to = ARITHMETIC_NUMPY[arithmetic]
    return values if values.dtype == to else values.astype(to)


def to_storage(dtype: str, values: np.ndarray, rule: str | None = None) -> np.ndarray:
    """Arithmetic values (f64, f32, i32 or bool arrays) rounded once to `dtype`; an array of DTYPES[dtype].numpy."""
    return encode(dtype, values, rule).view(DTYPES[dtype].numpy)


def to_arithmetic(dtype: str, storage: np.ndarray) -> np.ndarray:
    """Stored elements, exactly, in the arithmetic type of `dtype`."""
    d = DTYPES[dtype]
    return decode(dtype, np.asarray(storage, dtype=d.numpy).view(d.raw))


def round_through(dtype: str, values: np.ndarray, rule: str | None = None) -> np.ndarray:
    """What a store to `dtype` followed by a load gives: the value of a written cast."""
    return decode(dtype, encode(dtype, values, rule))


def decode(dtype: str, raw: np.ndarray) -> np.ndarray:
    """Elements held as DTYPES[dtype].raw, in the arithmetic type."""
    if DTYPES[dtype].direct:
        return raw
    if dtype == "bf16":
        return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype in _F8_VALUES:
        return _F8_VALUES[dtype].take(raw)
    return raw.astype(ARITHMETIC_NUMPY[DTYPES[dtype].arithmetic])


def encode(dtype: str, values: np.ndarray, rule: str | None = None) -> np.ndarray:
    """Arithmetic values rounded once, as an array of DTYPES[dtype].raw."""
    if rule is not None or dtype not in DTYPES:
        check_rule(dtype, rule)
    d = DTYPES[dtype]
    if d.direct and rule != "saturate" and getattr(values, "dtype", None) == d.raw:
        return values
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if d.kind == "int":
            return _to_integer(d, values, rule)
        if rule in (None, "nearest_even"):
            if dtype == "bf16" and values.dtype == np.float32:
                return _f32_to_bf16(values)
            if dtype in ("f64", "f32"):
                return values.astype(d.raw)
            if dtype == "f16" and values.dtype != np.int32:
                return np.where(values == values, values.astype(np.float16), _QUIET["f16"])
            if d.bits == 8 and values.dtype == np.float32:
                raw = np.clip(values, np.float32(d.lowest), np.float32(d.largest)).astype(d.numpy).view(d.raw)
                return np.where(values == values, raw, _QUIET[dtype])
        return _to_float(d, values.astype(np.float64), rule)


def _f32_to_bf16(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32)
    up = (bits >> np.uint32(16)) & np.uint32(1)
    raw = ((bits + np.uint32(0x7FFF) + up) >> np.uint32(16)).astype(np.uint16)
    return np.where(values == values, raw, _QUIET["bf16"])


def _rounded(values: np.ndarray, rule: str | None) -> np.ndarray:
    match rule:
        case "toward_zero":
            return np.trunc(values)
        case "floor":
            return np.floor(values)
        case "up":
            return np.ceil(values)
        case _:
            return np.rint(values)


def _to_integer(d: DType, values: np.ndarray, rule: str | None) -> np.ndarray:
    if rule == "no_saturate":
        # modulo 2**bits is exact in f64, also for 1e300; inf and NaN have no low bits and become 0
        whole = np.rint(values.astype(np.float64))
        low = np.fmod(whole, 2.0**d.bits)
        return np.where(np.isfinite(whole), low, 0.0).astype(np.int64).astype(d.raw)
    whole = _rounded(values.astype(np.float64), rule)
    whole = np.where(whole == whole, whole, 0.0)
    return np.clip(whole, d.lowest, d.largest).astype(d.raw)


def _to_float(d: DType, values: np.ndarray, rule: str | None) -> np.ndarray:
    """f64 to `d`: scale so that the format's last place is 1, round to an integer, scale back; every step but one is exact."""
    _, exponent = np.frexp(values)
    exponent = np.where(np.isfinite(values), exponent, 0)  # frexp leaves it unspecified for inf and NaN
    last = np.maximum(exponent - 1, d.least) - (d.precision - 1)
    rounded = np.ldexp(_rounded(np.ldexp(values, -last), rule), last) if d.name != "f64" else values
    rounded = np.copysign(rounded, values)
    beyond = np.abs(rounded) > d.largest
    finite = np.isfinite(values)
    if rule == "saturate" or (d.saturates and rule != "no_saturate"):
        rounded = np.where(beyond, np.copysign(d.largest, values), rounded)
    else:
        # IEEE 754: a directed rounding stops at the largest finite value on the side it does not round toward
        kept = {
            "toward_zero": finite,
            "floor": finite & (values > 0),
            "up": finite & (values < 0),
        }.get(rule or "", np.zeros_like(finite))
        rounded = np.where(beyond, np.where(kept, np.copysign(d.largest, values), np.copysign(np.inf, values)), rounded)
    if d.name in ("f8e4m3", "f8e5m2", "bf16"):
        raw = rounded.astype(np.float32).astype(d.numpy).view(d.raw)  # exact: already a value of the format
    else:
        raw = rounded.astype(d.raw)
    if d.name in ("f64", "f32"):
        return raw
    lost = np.isnan(rounded) | (np.isinf(rounded) if d.name == "f8e4m3" else False)
    return np.where(lost, _QUIET[d.name], raw)
