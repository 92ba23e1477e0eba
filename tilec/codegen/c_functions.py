"""Elementary functions as C helpers: the steps of ir/functions.py in their order, for scalars and vectors."""

from __future__ import annotations

import re
from math import inf

from tilec.codegen import c_arithmetic, c_lanes
from tilec.codegen.c_avx512 import masked_step, operand, scaled
from tilec.codegen.c_helpers import REGISTERS, Helpers, under, vector
from tilec.errors import InternalError
from tilec.ir.functions import FUNCTIONS, Function, Operand, Step

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "iadd": "+", "isub": "-", "iand": "&", "shl": "<<", "sar": ">>"}
_COMPARE = {"lt": "<", "gt": ">", "eq": "==", "ieq": "=="}


def function(h: Helpers, name: str, lanes: int) -> str:
    """The helper's name: `silu_f32x8`."""
    t = h.type("f32", lanes)
    h.type("i32", lanes)
    steps, result = simplified(FUNCTIONS[name])

    def text(steps: list[Step], masks: bool) -> str:
        known = {step.name: step for step in steps}
        lines = [f"return {result};"]
        for s in reversed(steps):  # a compare that became part of a clamp is not needed any more
            line = _step(h, s, known, lanes, masks)
            if any(s.name in re.findall(r"\w+", other) for other in lines):
                kind = f"__mmask{max(8, lanes)}" if masks and s.dtype == "bool" else _type(s.dtype, lanes)
                lines.insert(0, f"const {kind} {s.name} = {line};")
        return "\n".join(lines)

    def body() -> str:
        # a bool is an int for scalars, a mask of i32 lanes for vectors, a mask register for AVX-512
        plain = text(steps, False)
        return under("__AVX512VL__", text(scaled(steps), True), plain) if 4 * lanes in REGISTERS else plain

    return h.define(f"{name}_{t}", t, f"{t} x", body)


def simplified(f: Function) -> tuple[list[Step], str]:
    """The steps with the same bits in fewer operations, and the name of the result.

    Equal steps are one. A clamp from above of what is never above is that itself.
    """
    out: list[Step] = []
    same: dict[str, str] = {}
    found: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {}
    known: dict[str, Step] = {}
    for s in f.steps:
        args = tuple(same.get(a, a) if isinstance(a, str) else a for a in s.args)
        key = (s.op, tuple((type(a).__name__, repr(a)) for a in args))  # by repr: -0.0 is not 0.0
        if key in found:
            same[s.name] = found[key]
            continue
        found[key] = s.name
        known[s.name] = made = Step(s.name, s.op, args, s.dtype)
        if s.op == "select" and isinstance(args[2], str) and _clamp(known.get(str(args[0])), args[1], args[2]):
            if _most(known, args[2]) <= float(args[1]):
                same[s.name] = args[2]
                continue
        out.append(made)
    return out, same.get(f.result, f.result)


def _most(known: dict[str, Step], name: str) -> float:
    """No value of this step is above that; NaN aside."""
    s = known.get(name)
    if s is None:
        return inf
    first = known.get(str(s.args[0]))
    if s.op == "neg" and first is not None and first.op == "abs":
        return 0.0
    if s.op == "select" and isinstance(s.args[2], str) and _clamp(first, s.args[1], s.args[2]) is not None:
        low = float(s.args[1])
        return min(low, _most(known, s.args[2])) if first is not None and first.op == "gt" else max(low, _most(known, s.args[2]))
    return inf


def _type(dtype: str, lanes: int) -> str:
    if dtype == "bool":
        return "int" if lanes == 1 else vector("i32", lanes)
    return vector(dtype, lanes)


def _step(h: Helpers, s: Step, steps: dict[str, Step], lanes: int, masks: bool) -> str:
    def arg(a: Operand, whole: bool = False) -> str:
        return operand(h, a, lanes, whole)

    op, args = s.op, s.args
    clamp = _clamp(steps.get(str(args[0])), *args[1:]) if op == "select" else None
    special = masked_step(h, s, lanes) if masks and clamp is None else None
    if special is not None:
        return special
    if op in _INFIX or op in _COMPARE:
        a, b = args
        return f"{arg(a)} {(_INFIX | _COMPARE)[op]} {arg(b)}"
    match op:
        case "neg":
            inner = steps.get(str(args[0]))
            if lanes > 1 and inner is not None and inner.op == "abs":
                return f"({vector('f32', lanes)})(({vector('i32', lanes)}){arg(inner.args[0])} | INT32_MIN)"
            return f"-{arg(args[0])}"
        case "abs":
            if lanes == 1:
                return f"fabsf({arg(args[0])})"
            return f"({vector('f32', lanes)})(({vector('i32', lanes)}){arg(args[0])} & 0x7fffffff)"
        case "sqrt":
            return f"{c_arithmetic.sqrt(h, 'f32', lanes)}({arg(args[0])})"
        case "int" | "float":
            to, short = ("i32", "f32") if op == "int" else ("f32", "i32")
            return c_lanes.convert(h, to, short, lanes, arg(args[0]))
        case "bits" | "from_bits":
            to, back = ("i32", "f32") if op == "bits" else ("f32", "i32")
            return f"{c_lanes.bits(h, to, back)}({arg(args[0])})" if lanes == 1 else f"({vector(to, lanes)}){arg(args[0])}"
        case "select":
            m, a, b = args
            if clamp is not None and isinstance(b, str):
                return f"{c_arithmetic.clamp_one_side(h, lanes, clamp)}({b}, {arg(a, True)})"
            if lanes == 1:
                return f"{arg(m)} ? {arg(a)} : {arg(b)}"
            return f"{c_lanes.select(h, s.dtype, lanes)}({arg(m)}, {arg(a, True)}, {arg(b, True)})"
    raise InternalError(f"no C for the step {op!r}")


def _clamp(condition: Step | None, a: Operand, b: Operand) -> bool | None:
    """Is `condition ? a : b` the clamp of b by a constant a? False: from below, True: from above."""
    if condition is None or not isinstance(a, float) or condition.args != (b, a) or condition.op not in ("lt", "gt"):
        return None
    return condition.op == "gt"
