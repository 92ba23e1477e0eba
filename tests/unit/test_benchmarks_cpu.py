"""benchmarks.cpu: rows, roofs, workers that fail or lie, the table. No time is asserted."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cpu import __main__ as face
from benchmarks.cpu import rows as all_rows
from benchmarks.cpu.kernels import KERNELS
from benchmarks.cpu.rows import Row, roof_ms
from benchmarks.cpu.run import PEERS, Result, Worker, _wrong, interpreters

ROWS = {r.name: r for r in all_rows.rows()}


def small(name: str, **sizes: int) -> Row:
    """A row at other sizes."""
    r = ROWS[name]
    old = {k: v for k, v in r.spec.items() if isinstance(v, int)}
    spec = {**r.spec, **sizes}
    replaced = {old[k]: v for k, v in sizes.items()}
    inputs = {n: (tuple(replaced.get(e, e) for e in shape), dtype) for n, (shape, dtype) in r.inputs.items()}
    return Row(name, spec, r.flops, r.bytes, r.calls, r.tolerance, r.reads_only, inputs)


def test_every_workload_and_shape_of_the_table_is_there():
    assert len(ROWS) == 16 + 4 + 2 + 3
    assert {"fp32_512", "bf16_1024", "fp32_m1", "act_e4m3_bf16", "int8_rowquant", "attention"} <= set(ROWS)
    for r in ROWS.values():
        kernel, _ = KERNELS[r.spec["kernel"]]
        assert set(r.inputs) <= set(kernel.parameters), r.name
        assert set(kernel.program.sizes) <= set(r.spec), r.name
        assert all(n in r.spec for n, _ in kernel.program.scalars), r.name


def test_a_roof_is_the_larger_of_bytes_and_arithmetic():
    r = ROWS["fp32_512"]
    assert roof_ms(r, 1e11, 1e12, 1e12) == pytest.approx(1e3 * (2 * 512**3 + 512**2 * 44 * 2) / 1e11)
    assert roof_ms(r, 1e15, 1e10, 1e9) == pytest.approx(1e3 * 3 * 4 * 512**2 / 1e9)
    assert roof_ms(ROWS["fp32_m1"], 1e15, 1e10, 1e9) == pytest.approx(1e3 * 4 * (4096 + 4096 * 12288 + 12288) / 1e10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def started(who: str, r: Row, folder: Path) -> tuple[Worker, dict]:
    for name, value in r.make().items():
        np.save(folder / f"{name}.npy", value)
    _, script, arguments = PEERS[who]
    worker = Worker(who, sys.executable, script, arguments, 1)
    return worker, worker.ask({"cmd": "prepare", "row": r.spec, "threads": 1, "folder": str(folder)}, 60)


@pytest.mark.parametrize("name", ["fp32_512", "rmsnorm", "softmax"])
def test_a_worker_computes_and_is_checked(name, folder):
    sizes = {"M": 24, "K": 20} if name == "rmsnorm" else {"M": 24, "N": 24} if name == "softmax" else {"M": 24, "K": 24, "N": 24}
    r = small(name, **sizes)
    worker, answer = started("numpy", r, folder)
    try:
        assert answer == {"ok": True}
        checked, want = r.reference(r.make())
        assert _wrong(worker, folder, checked, want, r) is None
        assert "ms" in worker.ask({"cmd": "run", "seconds": 0.0}, 30)
        assert "off by" in str(_wrong(worker, folder, checked, want * 1.001, r))
        assert "shape" in str(_wrong(worker, folder, checked, want[:, :3], r))
    finally:
        worker.close()


def test_a_peer_that_cannot_or_dies_is_said(folder):
    worker, answer = started("numpy", small("bf16_512", M=8, K=8, N=8), folder)
    assert "no way to do it" in answer["error"]
    worker.process.kill()
    worker.process.wait()
    assert worker.ask({"cmd": "run", "seconds": 0.0}, 30)["error"] == "the process ended"


def test_missing_environments_are_named(folder):
    found, missing = interpreters(["tilec", "torch", "numpy"], folder)
    assert list(found) == ["tilec", "numpy"] and missing == [f"torch (no {folder / 'torch' / 'bin' / 'python'})"]
    assert interpreters(["halide"], None)[1] == ["halide (--venvs names no folder)"]


def test_the_table_and_the_json():
    rs = [
        Result("fp32_512", 1, "tilec", 2.0, None, 1.25, 0.9),
        Result("fp32_512", 2, "tilec", 1.0, None, 1.5, 0.85),
        Result("fp32_512", 1, "numpy", 2.5, None, 0.8, 0.7),
        Result("fp32_512", 2, "numpy", error="the process ended"),
    ]
    shown = face.markdown(rs, [1, 2])
    assert "| fp32_512 | 2 / 1   | 2.5 / – | 1.25 / 1.50 | 0.90 / 0.85 |" in shown.replace("2 / 1 |", "2 / 1   |")
    assert set(json.loads(json.dumps(rs[0].to_dict()))) >= {
        "row",
        "threads",
        "who",
        "median_ms",
        "ratio_to_best_peer",
        "roof_share",
    }


def test_unknown_rows_are_refused(capsys):
    with pytest.raises(SystemExit):
        face.main(["--rows", "fp32_513"])
    assert "no 'fp32_513'. Rows: fp32_1024x4096x12288" in capsys.readouterr().err
