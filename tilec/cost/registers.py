"""Registers per thread of a launch where no compiler has said how many, and the bytes that spilling them moves.

- Thread loops are bound: what the thread keeps, fragments, values on their way, addresses (block.py).
- A block of tile operations whose products run on the matrix unit: lines fitted to compiled blocks (tile_fit.py).
- One whose products run on the vector unit: accumulators, the rows and columns of a square thread tile, addresses.
- Elementary functions of a tile, behind products or alone: what they keep per output (tile_fit.py).
- Other blocks: the outputs of a thread and addresses (of 8 row kernels that Triton 3.9 compiled for sm_90 right for four, 14 to
  23 % low for the others).
- Where the threads are not known: the bytes that the schedule keeps in registers, a floor.

A compiler gives a thread no more than the machine allows; the rest is spilled: written and read again once per step of the
block's loop, or once where only the epilogue is too large. What the schedule itself keeps in registers always counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilec.cost.block import CONSTANTS, demanded
from tilec.cost.blockterms import BlockTerms
from tilec.cost.residents import most_registers
from tilec.cost.term import Term
from tilec.cost.threadwork import ThreadWork
from tilec.cost.tile_fit import LEAST_ROWS, MMA, TENSOR_ROWS, TMEM, epilogue_registers, loop_registers, matrix_unit
from tilec.lower.slices import keeps_values, slices
from tilec.targets import Target

WORD = 4


@dataclass(frozen=True)
class Demand:
    """Numbers or arrays. registers: per thread, 0 where the threads are unknown; kept: bytes in registers of a block, where they
    are; spilled: bytes that a block writes and reads again. rule: "fitted" to compiled blocks, "counted" (values and addresses),
    "kept" and "block" (floors, per thread and of a block), or "": none."""

    registers: Any
    kept: Any
    spilled: Any
    rule: str

    @property
    def words(self) -> str:
        """Of one launch, in words; "" where nothing is known or a compiler has said it."""
        if self.rule == "block":
            return f"at least {int(self.kept):,} B of registers per block, for what it keeps"
        if self.rule == "kept":
            return f"at least {int(self.registers)} registers per thread, for what it keeps"
        if not self.rule:
            return ""
        why = "as compilers give such tiles" if self.rule == "fitted" else "with fragments and addresses"
        spilled = f"; {int(self.spilled):,} B of spills per block" if self.spilled else ""
        return f"about {int(self.registers)} registers per thread, {why}{spilled}"


def demand(
    machine: Target,
    terms: BlockTerms,
    work: ThreadWork | None,
    environment: Mapping[str, Any],
    kept: Any,
    threads: Any,
    value: Any,
) -> Demand:
    """kept: bytes in registers, per thread where `threads` are known (> 0), else per block. value: a term as number or array."""
    limits = machine.limits
    assert limits is not None
    threads = np.asarray(threads)
    if not np.all(threads > 0):
        return Demand(0, kept, 0, "block" if np.any(np.asarray(kept) > 0) else "")
    words = -(-np.asarray(kept) // WORD)
    most = most_registers(limits, threads)
    steps = np.maximum(np.asarray(value(terms.steps), dtype=float), 1.0)
    if work is not None:
        loop, epilogue, rule = demanded(work, environment).reshape(threads.shape or (-1,)), np.asarray(0.0), "counted"
        loop = loop if threads.shape else loop[0]
    else:
        loop, epilogue, rule = _tile(machine, terms, words, threads, value)
    loop, epilogue = np.rint(loop).astype(np.int64), np.rint(epilogue).astype(np.int64)
    wanted = np.maximum(np.maximum(loop, epilogue), words)
    given = np.maximum(np.minimum(wanted, most), np.minimum(words, limits.registers_per_thread))
    over = steps * np.maximum(0, loop - given) + np.maximum(0, epilogue - given)
    rule = rule if np.any(wanted > words) or not np.any(words > 0) else "kept"
    return Demand(given[()], 0, (2 * WORD * threads * over)[()], rule if np.any(given > 0) else "")


def _tile(machine: Target, terms: BlockTerms, words: Any, threads: Any, value: Any) -> tuple[Any, Any, str]:
    """(registers in the loop, behind it, by which rule) of a block of tile operations."""
    assert machine.limits is not None

    def number(t: Term) -> Any:
        return np.asarray(value(t), dtype=float)

    outputs, rank = np.asarray(0.0), 0
    for s in terms.streams:
        if s.direction == "write":
            rank = max(rank, s.rank)
            for _, c in s.distinct:
                outputs = np.maximum(outputs, (number(c.full) if c.full is not None else 0.0) / threads)
    functions = sum(n for key, n, _ in terms.work if keeps_values(key.kind))
    divisions = sum(n for key, n, _ in terms.work if key.kind == "div")
    products = {c.target: c for c in terms.contractions}
    functions = functions if rank > 1 else 0
    if not products:
        epilogue = np.asarray(epilogue_registers(0, functions, divisions, outputs))
        return np.asarray(0.0) if functions else outputs + CONSTANTS.addresses, epilogue, "fitted" if functions else "counted"
    sizes = {target: (number(c.m), number(c.n), number(c.k)) for target, c in products.items()}
    sums = np.maximum(sum(m * n for m, n, _ in sizes.values()) / threads, words)
    first = terms.contractions[0]
    rows, columns, _ = sizes[first.target]
    capability = int(float(machine.limits.compute_capability) * 10)
    apart = (rows == TENSOR_ROWS) & (matrix_unit(capability) == TMEM)
    epilogue = np.asarray(epilogue_registers(len(products), functions, divisions, outputs, columns, apart))
    if first.matrix is None or machine.peak("matrix", first.matrix) is None:
        square = sum(2 * np.sqrt(m * n / threads) for m, n, _ in sizes.values())
        return sums + square + CONSTANTS.addresses, epilogue, "counted"
    operands: dict[str, Any] = {}
    for target, c in products.items():
        m, n, k = sizes[target]
        operands |= {c.operands[0]: m * k * c.operand_bytes, c.operands[1]: n * k * c.operand_bytes}
    share = sum(operands.values()) / WORD / threads
    if functions:  # what lies apart is fetched slice by slice
        sums = sums / np.where(apart, slices(outputs, columns), 1)
    eight = any(c.operand_bytes == 1 for c in products.values())
    wide, narrow = (loop_registers(u, capability, sums, share, eight) for u in (matrix_unit(capability), MMA))
    return np.where(rows >= LEAST_ROWS, wide, narrow), epilogue, "fitted"
