"""The proof against the independent judge, on random kernels and random rewrites, in both directions.

    legal      the judge finds nothing at every tried size, and both programs compute the same bits
    illegal    the judge refuses it at exactly the witness's sizes, and the two named instances exist there
    unknown    allowed for at most 1 % of the pairs

TILEC_PROPERTY_PAIRS sets how many pairs are drawn (2,000 by default, 20,000 in the long check).
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

from tests import handbuilt as h
from tests.property.brute import Machine, judge
from tests.property.generator import TRIED, random_program, sizes_of
from tests.property.sequences import rewritten
from tilec.errors import Witness
from tilec.ir.affine import Aff
from tilec.ir.dtypes import to_storage
from tilec.ir.expr import Load
from tilec.ir.interp import run
from tilec.ir.printer import text
from tilec.ir.program import Address, Barrier, Buffer, Leaf, Program
from tilec.ir.tree import sites
from tilec.poly.access import Relations
from tilec.poly.concurrency import HappensBefore
from tilec.poly.isl import Memory, Solver
from tilec.poly.prove import prove, prove_step
from tilec.poly.verdict import Unresolved

PAIRS = int(os.environ.get("TILEC_PROPERTY_PAIRS", "2000"))
CHUNKS = 40
BUDGET = 2_000_000  # isl operations; what needs more is unknown, which the share below limits


def instance_exists(original: Program, program: Program, name: str, sizes: dict[str, int]) -> bool:
    """Is `S1[0,2]` executed by either program? Names of other things (initial and final values, copies) pass."""
    found = re.fullmatch(r"(\w+)(?:\[([-\d,]*)\])?", name)
    if not found or found[1] not in original.statement:
        return True
    index = tuple(int(x) for x in (found[2] or "").split(",") if x)
    return any((found[1], index) in Machine(p, sizes, frozenset()).executed for p in (original, program))


def arguments(rng: Random, program: Program, sizes: dict[str, int]) -> dict[str, np.ndarray]:
    values = np.random.default_rng(rng.randrange(2**32))
    out = {}
    for b in program.source.buffers:
        if b.role == "param":
            shape = tuple(e.eval(sizes) for e in b.shape)
            drawn = (
                values.integers(-9, 9, shape).astype(np.int32)
                if b.dtype == "i32"
                else values.normal(0, 2, shape).astype(np.float32)
            )
            out[b.name] = to_storage(b.dtype, drawn)
    return out


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit for bit; any NaN equals any NaN (its payload is not defined by the language)."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    nan = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
    width = f"u{a.dtype.itemsize}"
    return bool(np.all(nan | (np.ascontiguousarray(a).view(width) == np.ascontiguousarray(b).view(width))))


def check_pair(seed: int) -> str:
    """Draw one pair, compare proof, judge and execution; the verdict's status."""
    rng = Random(seed)
    original = random_program(rng)
    program, done = rewritten(rng, original)
    if not done:
        return "unchanged"
    verdict = prove(original, program, BUDGET)
    context = f"\nseed {seed}: {done}\n{text(original)}\n{text(program)}\n{verdict}"
    step = prove_step(original, program, BUDGET)
    if step.method == "order":  # the fast path only accepts, and only what the complete check accepts
        assert step.status == "legal" and (verdict.status == "unknown" or step == replace(verdict, method="order")), context
        verdict = step
    if verdict.status == "legal":
        tried = {tuple(sizes_of(original, t).items()): sizes_of(original, t) for t in TRIED}
        for sizes in tried.values():
            found = judge(original, program, sizes)
            assert found.legal, f"the proof accepts, at {sizes} the judge finds {found}{context}"
        if not verdict.permissions:
            sizes = sizes_of(original, TRIED[-1])
            arrays = arguments(rng, original, sizes)
            want, have = run(original, arrays, sizes), run(program, arrays, sizes)
            for name, array in want.items():
                assert same_bits(array, have[name]), f"{name} differs at {sizes}:\n{array}\n{have[name]}{context}"
    elif verdict.status == "illegal":
        witness = verdict.witness
        assert isinstance(witness, Witness), context
        assert set(witness.sizes) >= set(original.sizes), f"the witness has no sizes{context}"
        found = judge(original, program, {n: witness.sizes[n] for n in original.sizes})
        assert not found.legal, f"the proof refuses, at {witness.sizes} the judge finds nothing{context}"
        for name in (witness.source, witness.sink):
            assert instance_exists(original, program, name, witness.sizes), f"{name} is no instance{context}"
    return verdict.status


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_proof_agrees_with_the_judge(chunk: int, record_property) -> None:
    seen: Counter[str] = Counter()
    for seed in range(chunk, PAIRS, CHUNKS):
        seen[check_pair(seed)] += 1
    total = sum(seen.values())
    record_property("verdicts", dict(seen))
    print(f"chunk {chunk}: {total} pairs, {', '.join(f'{k} {v / total:.1%}' for k, v in sorted(seen.items()))}")
    if total >= 40:  # a chunk of the default run or more: both verdicts occur, and few are open
        assert seen["legal"] and seen["illegal"], seen
    assert seen["unknown"] <= max(3, 0.03 * total), seen  # a chunk's share scatters; `main` prints that of all pairs


@pytest.mark.parametrize("seed", range(40))
def test_what_a_chain_remembers_changes_no_answer(seed: int) -> None:
    """Rewrites of one program, asked one after the other with a shared memory, and each alone."""
    rng, memory = Random(100_000 + seed), Memory()
    original = random_program(rng)
    for _ in range(5):
        program, done = rewritten(rng, original)
        fresh = prove_step(original, program, BUDGET)
        assert prove_step(original, program, BUDGET, memory) == fresh, f"{done}\n{text(original)}\n{text(program)}\n{fresh}"


def test_fences_are_barriers_between() -> None:
    """Where the text alone says that barriers order two accesses, the relations say so, too."""
    fenced, races = 0, 0
    for seed in range(400):
        rng = Random(200_000 + seed)
        original = random_program(rng)
        program, done = rewritten(rng, original)
        if not any(isinstance(s.action, Barrier) for s in sites(program.body)):
            continue
        hb = HappensBefore(Relations(Solver(program.sizes, program.where), program))
        for a, b in hb.conflicts():
            try:
                found = list(hb._threads(a, b))
            except Unresolved:
                continue
            races += bool(found)
            if hb.fenced(a, b):
                fenced += 1
                assert not found, f"{a} {b} {done}\n{text(program)}"
    assert fenced > 40 and races > 5, (fenced, races)


def test_strided_reads_are_not_forgotten() -> None:
    """isl's compute_flow reports no source, and no lack of one, for reads of the odd cells here."""
    n = Aff.of("i")
    s0 = h.statement("S0", {"i": 4}, h.access("B", n * 2), "=", Load(0, "f32"), h.access("B", n + 1))
    body = (h.loop("i", 4, h.own_leaf(s0)),)
    original = Program("strided", (), (), (), (Buffer("B", "f32", (Aff(8),), "param"),), (s0,), body)
    at = Aff.of("q") + Aff.of("o") * 2
    leaf = Leaf("S0", (at,), Address("B", (at * 2,)), (Address("B", (at + 1,)),))
    program = replace(original, original=original, body=(h.loop("q", 2, h.loop("o", 2, leaf)),))
    assert judge(original, program, {}).legal
    assert prove(original, program).status == "legal"


def main() -> None:
    """`python -m tests.property.test_proof`: all pairs in one process, and the shares of the verdicts."""
    seen = Counter(check_pair(seed) for seed in range(PAIRS))
    total = sum(seen.values())
    print(f"{total} pairs, no disagreement: {', '.join(f'{k} {v / total:.2%}' for k, v in sorted(seen.items()))}")


@pytest.mark.parametrize("seed", [16800, 25369])
def test_a_slot_that_trips_isl_is_still_proved(seed: int) -> None:
    """isl's lexmax (lexmin) fails on a relation of this pair as it comes: cells modulo 3, copied after a reversed loop."""
    assert check_pair(seed) in ("legal", "illegal")


def test_a_statement_whose_loop_is_empty_is_missed() -> None:
    """The fast path once took a leaf that never runs for a statement that is inlined everywhere."""
    assert check_pair(7385) == "illegal"


if __name__ == "__main__":
    main()
