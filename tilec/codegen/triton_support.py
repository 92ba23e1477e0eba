"""The small device functions that emitted Triton kernels call: elementary functions, roundings, extremes, offsets.

Each is emitted only where used. Elementary functions are the fixed f32 sequences of ir/functions.py, so that their values are the
interpreter's bit for bit; divisions and square roots are the correctly rounded ones.
"""

from __future__ import annotations

from tilec.ir.functions import FUNCTIONS, Function, Operand, Step

_INFIX = {"add": "+", "sub": "-", "mul": "*", "lt": "<", "gt": ">", "eq": "==", "ieq": "=="}
_INFIX |= {"iadd": "+", "isub": "-", "iand": "&", "shl": "<<", "sar": ">>"}
_CALL = {"div": "tl.div_rn", "sqrt": "tl.sqrt_rn", "abs": "tl.abs", "select": "tl.where"}
_SUFFIX = {
    "int": ".to(tl.int32)",
    "float": ".to(tl.float32)",
    "bits": ".to(tl.int32, bitcast=True)",
    "from_bits": ".to(tl.float32, bitcast=True)",
}

OTHER: dict[str, str] = {
    "at": '''\
@triton.jit
def _at(index, stride):
    """An offset in elements; 64 bits, since an array may have more than 2^31."""
    return tl.cast(index, tl.int64) * stride
''',
    "maximum": '''\
@triton.jit
def _maximum(a, b):
    """NaN wins."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "minimum": '''\
@triton.jit
def _minimum(a, b):
    """NaN wins."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "product": """\
@triton.jit
def _product(a, b):
    return a * b
""",
    "floordiv": '''\
@triton.jit
def _floordiv(a, b):
    """Toward minus infinity (Triton's own // goes toward zero)."""
    q = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), q - 1, q)
''',
    "i8": '''\
@triton.jit
def _i8(x):
    """f32 to i8, nearest even, saturating; NaN becomes 0."""
    x = tl.where(x == x, x, 0.0)
    x = tl.where(x > 127.0, 127.0, tl.where(x < -128.0, -128.0, x))
    return ((x + 12582912.0) - 12582912.0).to(tl.int8)
''',
    "i8_of_i32": '''\
@triton.jit
def _i8_of_i32(x):
    """i32 to i8, saturating."""
    return tl.minimum(tl.maximum(x, -128), 127).to(tl.int8)
''',
    "f8e4m3": '''\
@triton.jit
def _f8e4m3(x):
    """f32 to the bits of E4M3FN, nearest even, saturating; for machines without that type."""
    bits = x.to(tl.int32, bitcast=True)
    sign = (bits >> 24) & 128
    a = tl.minimum(bits & 0x7FFFFFFF, 0x43E00000)
    normal = (a + 0x7FFFF + ((a >> 20) & 1) - 0x3C000000) >> 20
    tiny = (a.to(tl.float32, bitcast=True) + 16384.0).to(tl.int32, bitcast=True)
    value = tl.where(a < 0x3C800000, tiny - 0x46800000, normal)
    return tl.where(x == x, sign | value, 127).to(tl.uint8)
''',
    "of_f8e4m3": '''\
@triton.jit
def _of_f8e4m3(bits):
    """The bits of E4M3FN to f32, exactly."""
    b = bits.to(tl.int32)
    value = (((b & 127) << 20) + 0x3C000000).to(tl.float32, bitcast=True)
    value = tl.where((b & 120) == 0, (b & 7).to(tl.float32) * 0.001953125, value)
    value = tl.where((b & 127) == 127, float("nan"), value)
    return tl.where((b & 128) == 0, value, value * -1.0)
''',
    "f8e5m2": '''\
@triton.jit
def _f8e5m2(x):
    """f32 to the bits of E5M2, nearest even, saturating; for machines without that type."""
    bits = x.to(tl.int32, bitcast=True)
    sign = (bits >> 24) & 128
    a = tl.minimum(bits & 0x7FFFFFFF, 0x47600000)
    normal = (a + 0xFFFFF + ((a >> 21) & 1) - 0x38000000) >> 21
    tiny = (a.to(tl.float32, bitcast=True) + 128.0).to(tl.int32, bitcast=True)
    value = tl.where(a < 0x38800000, tiny - 0x43000000, normal)
    return tl.where(x == x, sign | value, 126).to(tl.uint8)
''',
    "of_f8e5m2": '''\
@triton.jit
def _of_f8e5m2(bits):
    """The bits of E5M2 to f32, exactly."""
    b = bits.to(tl.int32)
    value = (((b & 127) << 21) + 0x38000000).to(tl.float32, bitcast=True)
    value = tl.where((b & 124) == 0, (b & 3).to(tl.float32) * 0.0000152587890625, value)
    value = tl.where((b & 127) == 124, float("inf"), value)
    value = tl.where((b & 127) > 124, float("nan"), value)
    return tl.where((b & 128) == 0, value, value * -1.0)
''',
}


def support(used: set[str]) -> list[str]:
    """The text of the functions named, in a fixed order, each ending with a newline."""
    out = [text for name, text in OTHER.items() if name in used]
    return out + [_function(FUNCTIONS[name]) for name in FUNCTIONS if name in used]


def _function(f: Function) -> str:
    lines = ["@triton.jit", f"def _{f.name}(x):", f'    """{f.name} in f32: {f.error_bound}."""']
    lines += [f"    {step.name} = {_step(step)}" for step in f.steps]
    return "\n".join([*lines, f"    return {f.result}", ""])


def _step(step: Step) -> str:
    args = [_operand(a) for a in step.args]
    if step.op == "neg":
        return f"{args[0]} * -1.0"  # Triton's own minus is 0 - x, which loses the sign of zero
    if step.op in _SUFFIX:
        return args[0] + _SUFFIX[step.op]
    if step.op in _CALL:
        return f"{_CALL[step.op]}({', '.join(args)})"
    return f"{args[0]} {_INFIX[step.op]} {args[1]}"


def _operand(a: Operand) -> str:
    return number(a) if not isinstance(a, str) else a


def number(value: float | int | bool) -> str:
    """A constant as Python text; infinities and NaN through float()."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return repr(value)
