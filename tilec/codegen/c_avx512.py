"""Elementary functions with AVX-512's own instructions: compares into masks, a power of two in one multiplication.

The bits are those of the steps; only a NaN's sign and payload may differ, which are not part of the semantics.
"""

from __future__ import annotations

import numpy as np

from tilec.codegen import c_lanes
from tilec.codegen.c_helpers import REGISTERS, Helpers, number
from tilec.ir.functions import Operand, Step

_COMPARE = {"lt": "LT_OQ", "gt": "GT_OQ", "eq": "EQ_OQ"}
_NEAREST = 12582912.0  # 1.5·2^23: added, it leaves no bits for a fraction
_EXACT_BITS = 16  # of a constant whose product with a whole number within ±250 has 24 bits at most


def operand(h: Helpers, a: Operand, lanes: int, whole: bool = False) -> str:
    """A step's argument as text; whole: constants as a value of all lanes."""
    if isinstance(a, str):
        return a
    short = "f32" if isinstance(a, float) else "i32"
    text = number(a, short)
    return f"{c_lanes.splat(h, short, lanes)}({text})" if whole and lanes > 1 else text


def masked_step(h: Helpers, s: Step, lanes: int) -> str | None:
    """The step as an AVX-512 instruction; None where plain vectors say the same. A bool is a mask register."""
    r, t = REGISTERS[4 * lanes], h.type(s.dtype if s.dtype != "bool" else "f32", lanes)
    prefix = r.prefix

    def arg(n: int, kind: str = r.floats) -> str:
        return f"({kind}){operand(h, s.args[n], lanes, True)}"

    match s.op:
        case "lt" | "gt" | "eq":
            return f"{prefix}_cmp_ps_mask({arg(0)}, {arg(1)}, _CMP_{_COMPARE[s.op]})"
        case "ieq":
            return f"{prefix}_cmpeq_epi32_mask({arg(0, r.whole)}, {arg(1, r.whole)})"
        case "select":
            return f"({t}){prefix}_mask_blend_ps({s.args[0]}, {arg(2)}, {arg(1)})"
        case "nearest":
            return f"({t}){prefix}_roundscale_ps({arg(0)}, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)"
        case "less_product":
            return f"({t}){prefix}_fnmadd_ps({arg(1)}, {arg(2)}, {arg(0)})"
        case "scale":
            return f"({t}){prefix}_scalef_ps({arg(0)}, {arg(1)})"
        case "mul_where":
            return f"({t}){prefix}_mask_mul_ps({arg(1)}, {s.args[0]}, {arg(1)}, {arg(2)})"
        case "scale_where":
            return f"({t}){prefix}_mask_scalef_ps({arg(1)}, {s.args[0]}, {arg(1)}, {arg(2)})"
    return None


def scaled(steps: list[Step]) -> list[Step]:
    """The steps with instructions that AVX-512 has. The names of the results stay; steps that nothing reads any more stay too.

    (y + 1.5·2^23) - 1.5·2^23                            nearest(y)
    a - k·c, the product exact                           less_product(a, k, c) = a - k·c, rounded once
    p·2^(k>>1)·2^(k-(k>>1)), p near 1                    scale(p, k) = p·2^k, rounded once, as the first product is exact
    (m ? w·p·2^(k>>1) : w) / d · (m ? 2^(k-(k>>1)) : 1)  scale_where(m, mul_where(m, w, p) / d, k): where k is not 0, w is of
                                                         ordinary size, and a power of two commutes with the roundings
    """
    known = {s.name: s for s in steps}
    powers = _powers(known)
    whole = {k for k, _ in powers.values()}
    new: dict[str, Step] = {}

    def step(x: Operand, op: str) -> Step | None:
        s = known.get(x) if isinstance(x, str) else None
        return s if s is not None and s.op == op else None

    def power(x: Operand, half: int) -> str | None:
        k, which = powers.get(x, ("", None)) if isinstance(x, str) else ("", None)
        return k if which == half else None

    def low(x: Operand) -> tuple[Operand, str] | None:
        """(p, k) where x is p·2^(k>>1)."""
        m = step(x, "mul")
        k = power(m.args[1], 0) if m is not None else None
        return (m.args[0], k) if m is not None and k is not None else None

    for s in steps:
        if s.op == "sub" and s.args[1] == _NEAREST:
            y = step(s.args[0], "add")
            if y is not None and y.args[1] == _NEAREST:
                new[s.name] = Step(s.name, "nearest", y.args[:1], "f32")
        elif s.op == "sub":
            m = step(s.args[1], "mul")
            if m is not None and m.args[0] in whole and isinstance(m.args[1], float) and _bits(m.args[1]) <= _EXACT_BITS:
                new[s.name] = Step(s.name, "less_product", (s.args[0], *m.args), "f32")
        elif s.op == "mul":
            part, k = low(s.args[0]), power(s.args[1], 1)
            if part is not None and part[1] == k:
                new[s.name] = Step(s.name, "scale", part, "f32")
            last, quotient = step(s.args[1], "select"), step(s.args[0], "div")
            top = step(quotient.args[0], "select") if quotient is not None else None
            k = power(last.args[1], 1) if last is not None else None
            if last is None or quotient is None or top is None or k is None or last.args[2] != 1.0 or top.args[0] != last.args[0]:
                continue
            m, weighted, plain = top.args
            product = step(weighted, "mul")
            part = low(weighted) or (low(product.args[1]) if product is not None and product.args[0] == plain else None)
            if part is None or part[1] != k or (low(weighted) is not None and plain != 1.0):
                continue
            kind, args = ("select", (m, part[0], 1.0)) if low(weighted) is not None else ("mul_where", (m, plain, part[0]))
            new[top.name] = Step(top.name, kind, args, "f32")
            new[s.name] = Step(s.name, "scale_where", (m, quotient.name, k), "f32")
    return [new.get(s.name, s) for s in steps]


def _powers(known: dict[str, Step]) -> dict[str, tuple[str, int]]:
    """Steps that are 2^(k>>1) (0) and 2^(k-(k>>1)) (1) of an f32 k that is a whole number or NaN."""
    out: dict[str, tuple[str, int]] = {}

    def step(x: Operand, op: str, *rest: Operand) -> Step | None:
        s = known.get(x) if isinstance(x, str) else None
        return s if s is not None and s.op == op and s.args[1:] == rest else None

    for s in known.values():
        shifted = step(s.args[0], "shl", 23) if s.op == "from_bits" else None
        biased = step(shifted.args[0], "iadd", 127) if shifted is not None else None
        if biased is None:
            continue
        half = step(biased.args[0], "sar", 1)
        rest = known.get(str(biased.args[0])) if half is None else None
        if rest is not None and (
            rest.op != "isub" or step(rest.args[1], "sar", 1) != Step(str(rest.args[1]), "sar", (rest.args[0], 1), "i32")
        ):
            continue
        n = step((half or rest or s).args[0], "int")
        chosen = known.get(str(n.args[0])) if n is not None else None
        if chosen is not None and chosen.op == "select" and step(chosen.args[0], "eq", chosen.args[1]) and chosen.args[2] == 0.0:
            out[s.name] = (str(chosen.args[1]), 0 if half is not None else 1)
    return out


def _bits(c: float) -> int:
    """Significant bits of an f32 constant."""
    mantissa = (int(np.float32(c).view(np.uint32)) & 0x7FFFFF) | 0x800000
    return 24 - ((mantissa & -mantissa).bit_length() - 1)
