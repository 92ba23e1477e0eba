"""The Schedule as a value: how it starts, what it knows, what it never changes."""

from __future__ import annotations

import inspect
import pickle

import numpy as np
import pytest

from tilec.errors import LegalityError, ScheduleError
from tilec.ir.interp import run
from tilec.ir.printer import text
from tilec.lang.builder import Builder
from tilec.schedule import core
from tilec.schedule.schedule import Schedule, start
from tilec.workloads.gemm_silu import gemm_silu


class Louder(Schedule):
    """A subclass with something of its own, as the face has."""

    def shout(self) -> str:
        return text(self.program).upper()


def test_a_start_has_the_default_placement_and_the_original():
    s = start(gemm_silu)
    acc = s.program.buffer["acc"]
    assert (acc.memory, acc.owner, acc.shape) == ("register", "j", ())
    assert s.program.source == gemm_silu.program
    assert s.buffers == ("A", "W", "Y", "C", "acc")
    assert s.statements == ("S0", "S1", "S2", "S3")
    assert s.verdict.status == "legal" and len(s.trace) == 0


def test_bound_sizes_are_numbers_everywhere():
    s = start(gemm_silu, {"M": np.int64(3), "K": 5})
    assert s.program.sizes == ("N",) and dict(s.program.bound) == {"M": 3, "K": 5}
    assert dict(s.program.source.bound) == {"M": 3, "K": 5}
    assert "for i in 0..3:" in str(s) and "A: bf16[3, 5]" in str(s)
    assert s.split("k", 2, tail="peel").verdict.status == "legal"


def test_index_values_are_bound_too():
    b = Builder("index")
    n = b.size("N")
    x = b.param("x", "i32", [n])
    with b.loop("i", 0, n) as i:
        b.store(x, [i], "=", n * 10 + i)
    s = start(b.program(), {"N": 3})
    assert run(s.program, {})["x"].tolist() == [30, 31, 32]


def test_a_size_is_bound_once():
    s = start(gemm_silu, {"M": 4})
    assert start(s.program, {"M": 4, "N": 2}).program.sizes == ("K",)
    with pytest.raises(ScheduleError, match=r"schedule\(M=5\): the size M is already bound to 4"):
        start(s.program, {"M": 5})


def test_a_failing_step_changes_nothing():
    s = start(gemm_silu).split("k", 4)
    before = (s.program, s.trace, str(s))
    with pytest.raises(ScheduleError):
        s.split("k_o", 0)
    with pytest.raises(LegalityError):
        s.reorder("k_i", "k_o")
    assert (s.program, s.trace, str(s)) == before


def test_every_primitive_is_a_method_with_its_own_signature_and_text():
    s = start(gemm_silu)
    for name, p in core.primitives().items():
        method = getattr(s, name)
        assert name in dir(s) and method.__doc__ == p.doc and inspect.signature(method) == p.signature
        assert "program" not in p.signature.parameters
        assert "1." in p.doc and "->" in p.doc.replace("→", "->"), f"{name}: numbered preconditions, before -> after"


def test_unknown_methods_are_attribute_errors_with_a_hint():
    with pytest.raises(AttributeError, match="Did you mean 'reorder'"):
        start(gemm_silu).reorderr  # noqa: B018


def test_subclasses_stay_subclasses():
    s = start(gemm_silu)
    louder = Louder(s.program, s.trace, s.proof_budget)
    assert "FOR K_O IN" in louder.split("k", 4).shout()


def test_a_schedule_is_a_value():
    s, t = (start(gemm_silu).split("k", 4) for _ in range(2))
    assert s == t and hash(s) == hash(t)
    assert pickle.loads(pickle.dumps(s)) == s
    with pytest.raises(AttributeError):
        s.program = t.program  # type: ignore[misc]


def test_check_is_the_full_proof_and_keeps_the_budget():
    s = start(gemm_silu, proof_budget=50_000_000).split("k", 4)
    assert s.proof_budget == 50_000_000
    assert s.check().status == "legal" and s.check().method == "full"
    with pytest.raises(LegalityError) as e:
        start(gemm_silu, proof_budget=1).split("k", 4)
    assert e.value.witness is None and e.value.reason is not None and "budget" in e.value.reason


def test_loops_are_named_outermost_first_and_without_ambiguity():
    s = start(gemm_silu)
    assert s.loops == ("acc.i", "acc.j", "k", "Y.i", "Y.j")
    s = s.reorder("k", "acc.i", "acc.j")
    assert s.loops == ("S0.i", "S0.j", "k", "S1.i", "S1.j", "C.i", "C.j", "Y.i", "Y.j")
    for name in s.loops:
        assert s.shift(name, 0).program == s.program
    with pytest.raises(ScheduleError, match=r"'acc\.i' names 2 loops: S0\.i, S1\.i"):
        s.split("acc.i", 4)
