"""Elementary functions as C helpers: the steps of ir/functions.py in their order, for scalars and vectors."""

from __future__ import annotations

from tilec.codegen.c_helpers import Helpers, number, vector
from tilec.ir.functions import FUNCTIONS, Operand, Step

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "iadd": "+", "isub": "-", "iand": "&", "shl": "<<", "sar": ">>"}
_COMPARE = {"lt": "<", "gt": ">", "eq": "==", "ieq": "=="}


def function(h: Helpers, name: str, lanes: int) -> str:
    """The helper's name: `silu_f32x8`."""
    t = h.type("f32", lanes)
    h.type("i32", lanes)
    f = FUNCTIONS[name]

    def body() -> str:
        # a bool is an int for scalars, a mask of i32 lanes for vectors
        types = {step.name: {"f32": "f32", "i32": "i32", "bool": "bool"}[step.dtype] for step in f.steps} | {"x": "f32"}
        steps = {step.name: step for step in f.steps}
        lines = [f"const {_type(types[s.name], lanes)} {s.name} = {_step(h, s, steps, types, lanes)};" for s in f.steps]
        return "\n".join([*lines, f"return {f.result};"])

    return h.define(f"{name}_{t}", t, f"{t} x", body)


def _type(dtype: str, lanes: int) -> str:
    if dtype == "bool":
        return "int" if lanes == 1 else vector("i32", lanes)
    return vector(dtype, lanes)


def _step(h: Helpers, s: Step, steps: dict[str, Step], types: dict[str, str], lanes: int) -> str:
    def arg(a: Operand, whole: bool = False) -> str:
        """whole: constants as a value of all lanes."""
        if isinstance(a, str):
            return a
        short = "f32" if isinstance(a, float) else "i32"
        text = number(a, short)
        return f"{h.splat(short, lanes)}({text})" if whole and lanes > 1 else text

    op, args = s.op, s.args
    if op in _INFIX or op in _COMPARE:
        a, b = args
        return f"{arg(a)} {(_INFIX | _COMPARE)[op]} {arg(b)}"
    match op:
        case "neg":
            return f"-{arg(args[0])}"
        case "abs":
            if lanes == 1:
                return f"fabsf({arg(args[0])})"
            return f"({vector('f32', lanes)})(({vector('i32', lanes)}){arg(args[0])} & 0x7fffffff)"
        case "sqrt":
            return f"{h.sqrt('f32', lanes)}({arg(args[0])})"
        case "int" | "float":
            to = "i32" if op == "int" else "f32"
            return f"({to}){arg(args[0])}" if lanes == 1 else f"__builtin_convertvector({arg(args[0])}, {vector(to, lanes)})"
        case "bits" | "from_bits":
            to, back = ("i32", "f32") if op == "bits" else ("f32", "i32")
            return f"{h.bits(to, back)}({arg(args[0])})" if lanes == 1 else f"({vector(to, lanes)}){arg(args[0])}"
        case "select":
            m, a, b = args
            clamp = _clamp(steps.get(str(m)), a, b)
            if clamp is not None and isinstance(b, str):
                return f"{h.clamp_one_side(lanes, clamp)}({b}, {arg(a, True)})"
            if lanes == 1:
                return f"{arg(m)} ? {arg(a)} : {arg(b)}"
            return f"{h.select(s.dtype, lanes)}({arg(m)}, {arg(a, True)}, {arg(b, True)})"
    raise AssertionError(op)


def _clamp(condition: Step | None, a: Operand, b: Operand) -> bool | None:
    """Is `condition ? a : b` the clamp of b by a constant a? False: from below, True: from above."""
    if condition is None or not isinstance(a, float) or condition.args != (b, a) or condition.op not in ("lt", "gt"):
        return None
    return condition.op == "gt"
