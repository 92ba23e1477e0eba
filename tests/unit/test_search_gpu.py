"""Candidates of a search as Triton: what has a form and fits by the rules is kept, what falls is counted with its reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tilec
from tilec.errors import LegalityError
from tilec.schedule.schedule import Schedule
from tilec.search.gpu import emitted_candidates
from tilec.search.recipes import derive
from tilec.search.result import Candidate, Row, Tuned


def tiled(s: Schedule, BM: int, BN: int, stages: int) -> Schedule:
    name = f"C+Y; accumulator register; order i outside; stages {stages}"
    return next(r for r in derive(s.program) if r.name == name).apply(s, {"BM": BM, "BN": BN, "BK": 32})


def search(reassociate: str | None = "acc", space: dict[str, list[int]] | None = None) -> Tuned:
    knobs = space or {"BM": [8, 64, 128], "BN": [64, 256], "stages": [2]}
    kernel = tilec.workload("gemm_silu")
    return tilec.tune(kernel, {"M": 512, "N": 512, "K": 256}, "h100-sxm", knobs, tiled, reassociate=reassociate)


def test_kept_and_fallen() -> None:
    tuned = search()
    found, fallen = emitted_candidates(tuned, 10)
    assert {(b.candidate.knobs["BM"], b.candidate.knobs["BN"], b.emitted.num_warps) for b in found} == {
        *((64, 64, w) for w in (4, 8)),
        *((128, 64, w) for w in (4, 8)),
        *((64, 256, w) for w in (4, 8)),
        (128, 256, 8),
    }
    assert all(b.candidate.schedule.check().status == "legal" for b in found)
    assert fallen["no form in Triton"].count == 2 and "tl.dot of bf16 needs at least 16" in fallen["no form in Triton"].example
    # 256 sums per thread are more than it has registers
    assert fallen["would spill"].count == 1
    assert "BM=128 BN=256 stages=2 warps=4 wants 326" in fallen["would spill"].example
    assert "registers per thread and spills; h100-sxm allows 255" in fallen["would spill"].example
    order = [tuned.rows.index(next(r for r in tuned.rows if r.knobs == b.candidate.knobs)) for b in found]
    assert order == sorted(order)


def test_as_many_as_asked_for() -> None:
    found, _ = emitted_candidates(search(), 1)
    assert len(found) == 1
    (n,) = found[0].needs
    assert found[0].occupancies(predicted=True)[0].blocks >= 1 and n.shared > 0


def test_without_the_permission_nothing_has_a_form() -> None:
    found, fallen = emitted_candidates(search(reassociate=None), 3)
    assert found == [] and "schedule(reassociate" in fallen["no form in Triton"].example


def test_what_does_not_fit_is_dropped_before_it_is_compiled() -> None:
    found, fallen = emitted_candidates(search(space={"BM": [64], "BN": [64], "stages": [4]}), 9, "rtx-4090")
    assert found and not fallen
    assert [b.needs[0].shared for b in found] == [3 * 8192] * 2


def test_a_fault_is_no_rejection() -> None:
    """What only tilec can be blamed for ends the search; a candidate that a person's space makes illegal is counted."""

    def fault(row: Row) -> Candidate:
        raise ZeroDivisionError(row.structure)

    def refusal(row: Row) -> Candidate:
        raise LegalityError(row.structure)

    tuned = search(space={"BM": [64], "BN": [64], "stages": [2]})
    with pytest.raises(ZeroDivisionError):
        replace(tuned, build=fault).top(1)
    assert replace(tuned, build=refusal).top(1) == [] and tuned.rejected["unknown"].count == 1
