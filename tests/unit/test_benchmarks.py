"""Each benchmark runs once at its smallest setting. Nothing is said of times: the machine may be busy."""

from __future__ import annotations

import json

import pytest

from benchmarks import other, steps
from benchmarks.__main__ import SUBJECTS, main, table
from benchmarks.measure import Figure, Time, forget, median, p95, quantile
from benchmarks.schedules import CHAIN, CHAIN_ON_THREADS, JACOBI, LU, Case
from tests.unit.scheduled import same
from tilec.poly.prove import _prove, prove
from tilec.schedule.trace import Trace


@pytest.mark.parametrize("case", [CHAIN, CHAIN_ON_THREADS, JACOBI, LU], ids=["chain", "threads", "jacobi2d", "lu"])
def test_every_timed_schedule_is_legal_and_computes_the_same(case: Case) -> None:
    s = Trace(case.steps).apply(case.start())
    assert prove(s.program.source, s.program).status == "legal"
    sizes = {"M": 9, "N": 7, "K": 10} if "K" in s.program.sizes else {n: 9 for n in s.program.sizes}
    same(s.program, {name: 0.5 for name, _ in s.program.scalars}, **sizes)


def test_the_chains_have_the_steps_that_are_promised() -> None:
    for case in (CHAIN, CHAIN_ON_THREADS):
        names = [step.name for step in case.steps]
        assert len(names) >= 20 and {"cache_read", "place", "bind", "pipeline", "compute_at"} <= set(names)


def test_every_step_of_every_repeat_is_timed() -> None:
    times = steps.step_times(LU, 2)
    assert [name for name, _ in times] == [str(step) for step in LU.steps] * 2
    assert all(t.process > 0 for _, t in times)


def test_replay() -> None:
    assert [f.samples for f in steps.replay(1)] == [1, 1]


def test_import_price_and_interpreter() -> None:
    assert other.imports(1)[0].process > 0
    assert [f.name for f in other.prices(1)] == ["price, collective blocks", "price, bound to threads"]
    assert other.interpreter(1, 8)[0].name == "interpret gemm 8³"


def test_search() -> None:
    (figure,) = other.search(1, 5)
    assert figure.name == "tune over 20 candidates"
    full = other.space(1)
    assert len(full["BM"]) * len(full["BN"]) * len(full["BK"]) * len(full["stages"]) == 10_000


def test_statistics() -> None:
    times = [Time(n, 2 * n) for n in range(1, 101)]
    assert (p95("x", times).process, p95("x", times).wall) == (95, 190)
    assert median("x", times).process == 50.5
    assert quantile([3, 1, 2], 0.5) == 2 and quantile([7], 0.95) == 7
    slow, good, near = (Figure("x", "p95", p, 9, 1, 2.0, 1.0) for p in (2.1, 0.9, 1.5))
    assert [f.verdict for f in (slow, good, near)] == ["above target", "within aim", "within target"]


def test_caches_are_emptied() -> None:
    s = CHAIN.start()
    s.split("Q.i", 8)
    assert _prove.cache_info().currsize > 0
    forget()
    assert _prove.cache_info().currsize == 0


def test_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUBJECTS, "price", lambda repeats: [Figure("price", "median", 0.002, 0.003, repeats)])
    assert main(["--only", "price", "--repeats", "1", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["figures"][0]["name"] == "price" and data["figures"][0]["samples"] == 1
    assert main(["--only", "price"]) == 0
    assert capsys.readouterr().out.startswith("| measured")
    assert "2.0 ms" in table([Figure("price", "median", 0.002, 0.003, 1)])
    with pytest.raises(SystemExit):
        main(["--repeats", "0"])
