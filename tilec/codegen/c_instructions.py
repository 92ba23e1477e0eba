"""Nests that one machine instruction runs: the intrinsic where the compiler has it, plain vectors with its values elsewhere."""

from __future__ import annotations

from tilec.codegen.c_actions import Actions
from tilec.codegen.c_helpers import Helpers, under, vector
from tilec.codegen.c_place import NotVector, Place
from tilec.codegen.c_scope import LANE, simplified
from tilec.ir.instructions import INSTRUCTIONS, Instruction
from tilec.ir.program import Address, Leaf, Loop

_REGISTER = {4: "_mm", 8: "_mm256", 16: "_mm512"}
_INTEGER = {4: "__m128i", 8: "__m256i", 16: "__m512i"}


class Instructed(Actions):
    """Sums of pairs on top of the actions; an instruction of depth one is the fused multiply-add that `contract` gives anyway."""

    def runs_pairs(self, node: Loop) -> bool:
        return node.instruction is not None and INSTRUCTIONS[node.instruction].depth == 2

    def pairs(self, node: Loop, place: Place) -> None:
        """acc[lane] += a[0]·b[lane, 0] + a[1]·b[lane, 1], at the lanes of this place."""
        wanted = INSTRUCTIONS[node.instruction or ""]
        assert place.lanes is not None
        lanes = place.lanes.lanes
        inner = node.body[0]
        assert isinstance(inner, Loop) and isinstance(inner.body[0], Leaf)
        leaf = inner.body[0]
        start = inner.lower[0]
        at = [place.fixed(inner, start + d) for d in range(2)]
        reads = [r for r in leaf.reads if isinstance(r, Address)]
        moving = [LANE in frozenset().union(*(place.aff(e).names for e in r.index)) for r in reads]
        if lanes == 1 or sorted(moving) != [False, True]:
            raise NotVector("its operands do not lie as the instruction reads them")
        a, b = (reads[0], reads[1]) if moving[1] else (reads[1], reads[0])
        target = self.cell(leaf.target, at[0])
        if not target.wide or (place.lanes.count is not None and self.program.buffer[b.buffer].role == "param"):
            raise NotVector("its operands do not lie as the instruction reads them")
        left = self._loaded(wanted, self._first(a, at), lanes, place, True)
        right = self._loaded(wanted, self._first(b, at), lanes, place, False)
        old, _ = self.raw(target, place)
        name = product(self.helpers, wanted, lanes)
        self.put(target, f"{name}({old}, {left}, {right})", place, f"  // {leaf.statement}, {wanted.name}")

    def _first(self, a: Address, at: list[Place]) -> str:
        """A pointer to the element at position 0 of the first lane."""
        b, texts, last = self.program.buffer[a.buffer], [], []
        for place in at:
            index = [simplified(place.aff(e).subs({LANE: 0}), place.ranges) for e in self.cells.index(a, place.path)]
            plan = self.plan(b, index, place)
            last.append(plan.index[-1])
            texts.append(self._flat(plan, self.scope(place)))
        step = last[1] - last[0]
        flat = texts[1] if step.is_const and step.const < 0 else texts[0]
        return self.names[b.name] if flat == "0" else f"{self.names[b.name]} + {flat}"

    def _loaded(self, wanted: Instruction, pointer: str, lanes: int, place: Place, same: bool) -> str:
        """The pairs of all lanes, in 16-bit elements; `same`: one pair for all."""
        short = "i8" if wanted.operand == "i8" else "u16"
        load = pair(self.helpers, short, lanes) if same else self.helpers.load(short, 2 * lanes)
        text = f"{load}({pointer})"
        wide = "u16" if short == "u16" else "i16"
        kind = self.helpers.type(wide, 2 * lanes)
        if not same and short == "i8":
            text = f"__builtin_convertvector({text}, {kind})"
        return self.named(text, kind, pointer.split(" ")[0], place)


def pair(h: Helpers, short: str, lanes: int) -> str:
    """Two neighbours, as 16-bit elements, in every lane."""
    wide = "u16" if short == "u16" else "i16"
    t, i = h.type(wide, 2 * lanes), h.type("i32", lanes)
    if short == "u16":
        body = f"i32 v;\nmemcpy(&v, p, sizeof v);\nreturn ({t}){h.splat('i32', lanes)}(v);"
    else:
        body = f"const i32 v = (i32)((u32)(u16)(i16)p[0] | (u32)(i32)p[1] << 16);\nreturn ({t}){h.splat('i32', lanes)}(v);"
    del i
    return h.define(f"pair_{vector(short, 2 * lanes)}", t, f"const {short} *p", body)


def product(h: Helpers, wanted: Instruction, lanes: int) -> str:
    """The helper that adds both products to the accumulator, in the instruction's order."""
    bits = f"__AVX512VL__) && defined({_macro(wanted)}" if lanes < 16 else _macro(wanted)
    m, i = _REGISTER[lanes], h.type("i32", lanes)
    if wanted.name == "vdpbf16ps":
        t, p = h.type("f32", lanes), h.type("u16", 2 * lanes)
        single = {4: "__m128", 8: "__m256", 16: "__m512"}[lanes]
        fast = f"return ({t}){m}_dpbf16_ps(({single})acc, ({single}bh)a, ({single}bh)b);"
        fma = h.fma("f32", lanes)
        plain = (
            f"acc = {fma}(({t})(({i})a & -65536), ({t})(({i})b & -65536), acc);  // the odd element first\n"
            f"return {fma}(({t})(({i})a << 16), ({t})(({i})b << 16), acc);"
        )
    else:
        t, p = i, h.type("i16", 2 * lanes)
        integer = _INTEGER[lanes]
        if wanted.name == "vpdpwssd":
            fast = f"return ({t}){m}_dpwssd_epi32(({integer})acc, ({integer})a, ({integer})b);"
        else:
            fast = f"return acc + ({t}){m}_madd_epi16(({integer})a, ({integer})b);"
            bits = {4: "__SSE2__", 8: "__AVX2__", 16: "__AVX512BW__"}[lanes]
        plain = (
            f"const {i} x = ({i})a, y = ({i})b;\nreturn acc + (((x << 16) >> 16) * ((y << 16) >> 16) + (x >> 16) * (y >> 16));"
        )
    return h.define(f"{wanted.name}_{t}", t, f"{t} acc, {p} a, {p} b", under(bits, fast, plain))


def _macro(wanted: Instruction) -> str:
    return f"__{wanted.needs.upper()}__".replace("AVX512_", "AVX512")
