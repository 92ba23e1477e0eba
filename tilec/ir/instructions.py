"""Machine instructions as data: what each computes, in which order, from which layout.

`instruction(loop, name)` marks a nest that one of these runs. The nest is lanes × depth multiply-adds

    for lane in 0..lanes:  for d in 0..depth:  acc[lane] += a[d] * b[lane, d]

whose `depth` products of one lane are added in the declared `order`, with the declared roundings. A nest whose own order is the
declared one, over the operands as they lie, needs no more than `contract` (where a product is not rounded before it is added)
and `hardware_rounding` (where denormals are flushed); integer sums wrap, so their order is free.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Instruction:
    """operand: dtype of a and b as they lie in memory; result: dtype of the accumulator. depth: products added to one lane.
    order: the positions d in the order in which they are added. bits: of one register. needs: the CPU feature.
    contracted: a product is not rounded before it is added. flushes: denormal operands and results count as zero.
    source: where the semantics are written down.
    """

    name: str
    operand: str
    result: str
    depth: int
    order: tuple[int, ...]
    bits: int
    needs: str
    contracted: bool
    flushes: bool
    meaning: str
    source: str

    @property
    def lanes(self) -> int:
        """Accumulators in one register."""
        return self.bits // 32 if self.result in ("f32", "i32") else self.bits // 64


BIASED = "vpdpbusd"  # its left operand has no sign: sums over the right one are taken off

_MANUAL = "Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2"

INSTRUCTIONS = {
    i.name: i
    for i in (
        Instruction(
            "vfmadd231ps", "f32", "f32", 1, (0,), 256, "fma", True, False,
            "acc = round(acc + a·b), one rounding", f"{_MANUAL}, VFMADD231PS",
        ),
        Instruction(
            "vfmadd231pd", "f64", "f64", 1, (0,), 256, "fma", True, False,
            "acc = round(acc + a·b), one rounding", f"{_MANUAL}, VFMADD231PD",
        ),
        Instruction(
            "vpmaddwd", "i8", "i32", 2, (0, 1), 256, "avx2", False, False,
            "i8 widened to i16 first; acc = acc + (a0·b0 + a1·b1), wrapping: no product of two i8 pairs overflows i32",
            f"{_MANUAL}, PMADDWD",
        ),
        Instruction(
            "vpdpwssd", "i8", "i32", 2, (0, 1), 512, "avx512_vnni", False, False,
            "i8 widened to i16 first; acc = acc + a0·b0 + a1·b1, wrapping", f"{_MANUAL}, VPDPWSSD",
        ),
        Instruction(
            "vpdpbusd", "i8", "i32", 4, (0, 1, 2, 3), 512, "avx512_vnni", False, False,
            "a taken as a + 128, without sign; acc = acc + (a0 + 128)·b0 + … + (a3 + 128)·b3, wrapping, less 128·(b0 + … + b3)",
            f"{_MANUAL}, VPDPBUSD",
        ),
        Instruction(
            "vdpbf16ps", "bf16", "f32", 2, (1, 0), 512, "avx512_bf16", True, True,
            "acc = fma(a1, b1, acc), then fma(a0, b0, acc): the odd element first, each rounded once to nearest even",
            f"{_MANUAL}, VDPBF16PS",
        ),
    )
}  # fmt: skip
