"""Threads count from the lower bound: what thread 3 of one phase left in a register, thread 3 of the next reads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests import handbuilt as h
from tilec.ir.affine import Aff
from tilec.ir.interp import run
from tilec.ir.program import Address, Buffer, Copy, Leaf, Program
from tilec.poly.prove import prove
from tilec.runtime.numpy_run import runner


def two_phases(first: int) -> Program:
    """t[i] = 2·x[i] into registers of threads 0…, copied out by a phase whose loop starts at `first`."""
    original = h.neighbours()
    s0, s1 = original.statements
    i, q = Aff.of("i"), Aff.of("q") - first
    write = Leaf("S0", (i,), h.address("r", i), tuple(Address(a.buffer, a.index) for a in s0.reads))
    out = Copy(h.address("t", q), h.address("r", q), (q,))
    return replace(
        original,
        original=original,
        buffers=(*original.buffers, Buffer("r", "f32", h.affs("N"), "cache", "register", "b", root="t")),
        body=(
            h.loop(
                "b",
                1,
                h.loop("i", "N", write, kind="thread.x"),
                h.loop("q", Aff.of("N") + first, out, kind="thread.x", lower=first),
                kind="block.x",
            ),
            h.loop("i", "N", h.own_leaf(s1), lower=1),
        ),
    )


def test_threads_count_from_the_lower_bound() -> None:
    x = np.arange(7, dtype=np.float32)
    for first in (0, 3):
        program = two_phases(first)
        assert prove(program.source, program).status == "legal"
        expected = run(program.source, {"x": x})["y"]
        assert np.array_equal(run(program, {"x": x})["y"], expected)
        assert np.array_equal(run(program, {"x": x}, vectorize=False)["y"], expected)
        assert np.array_equal(runner(program)({"x": x, "y": np.zeros(7, np.float32)}, {"N": 7}, {})["y"], expected)
