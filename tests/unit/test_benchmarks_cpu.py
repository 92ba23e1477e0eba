"""benchmarks.cpu: rows, roofs, workers that fail or lie, the table. No time is asserted."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.cpu import __main__ as face
from benchmarks.cpu import rows as all_rows
from benchmarks.cpu.kernels import KERNELS
from benchmarks.cpu.rows import Row, roof_ms
from benchmarks.cpu.run import PEERS, Result, Worker, _judge, _wrong, interpreters

ROWS = {r.name: r for r in all_rows.rows()}


def small(name: str, **sizes: int) -> Row:
    """A row at other sizes."""
    r = ROWS[name]
    old = {k: v for k, v in r.spec.items() if isinstance(v, int)}
    spec = {**r.spec, **sizes}
    replaced = {old[k]: v for k, v in sizes.items()}
    inputs = {n: (tuple(replaced.get(e, e) for e in shape), dtype) for n, (shape, dtype) in r.inputs.items()}
    return replace(r, spec=spec, inputs=inputs)


def test_every_workload_and_shape_of_the_table_is_there():
    assert len(ROWS) == 16 + 4 + 2 + 3
    assert {"fp32_512", "bf16_1024", "fp32_m1", "act_e4m3_bf16", "int8_rowquant", "attention"} <= set(ROWS)
    for r in ROWS.values():
        kernel, _ = KERNELS[r.spec["kernel"]]
        assert set(r.inputs) <= set(kernel.parameters), r.name
        assert set(kernel.program.sizes) <= set(r.spec), r.name
        assert all(n in r.spec for n, _ in kernel.program.scalars), r.name


def test_a_roof_is_the_larger_of_bytes_and_arithmetic():
    rates = {"fma": 1e11, "bf16": 2e11, "int8": 4e11, "silu": 4e9, "bytes": 1e12}
    square = 2 * 512**3
    assert roof_ms(ROWS["fp32_512"], rates) == pytest.approx(1e3 * (square / 1e11 + 512**2 / 4e9))
    assert roof_ms(ROWS["bf16_512"], rates) == pytest.approx(1e3 * (square / 2e11 + 512**2 / 4e9))
    assert roof_ms(ROWS["bf16_512"], {**rates, "bf16": 0.0}) == roof_ms(ROWS["fp32_512"], rates), (
        "no such instruction: f32's peak"
    )
    assert roof_ms(ROWS["int8_gemm"], rates) == pytest.approx(1e3 * 2 * 4096 * 4096 * 1536 / 4e11)
    slow = {**rates, "bytes": 1e9}
    assert roof_ms(ROWS["fp32_m1"], slow) == pytest.approx(1e3 * 4 * (4096 + 4096 * 12288 + 12288) / 1e9)


def test_the_mix_of_a_row_is_what_it_reads_for_a_byte_written():
    mixes = {
        "act_i8_fp32": 8,
        "act_i8_bf16": 4,
        "rmsnorm": 1,
        "softmax": 1,
        "fp32_512": 2,
        "fp32_m1": 0,
        "bf16_1024x4096x12288": 4,
    }
    assert {n: ROWS[n].mix for n in mixes} == mixes


def test_weights_packed_ahead_are_no_peers_of_weights_packed_in_the_call():
    class Rates:
        def rates(self, row, threads):
            return {"fma": 1e11, "silu": 4e9, "bytes": 1e12}

    times = {"tilec": 4.0, "tilec_packed": 2.0, "torch": 6.0, "torch_packed": 3.0}
    rs = [Result("fp32_512", 1, who, ms) for who, ms in times.items()]
    _judge(rs, list(ROWS.values()), Rates())  # pyright: ignore[reportArgumentType]
    assert {r.who: r.ratio_to_best_peer for r in rs} == {"tilec": 1.5, "tilec_packed": 1.5, "torch": 0.667, "torch_packed": 0.667}
    assert rs[0].roof_share == pytest.approx(1e3 * (2 * 512**3 / 1e11 + 512**2 / 4e9) / 4.0, abs=1e-3)


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
        ms = worker.ask({"cmd": "run", "seconds": 0.0}, 30)["ms"]
        assert len(ms) == 1 and ms[0] > 0
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


def test_a_peer_that_hangs_is_ended_with_what_it_started(folder, monkeypatch):
    script = folder / "hangs.py"
    script.write_text("import subprocess, sys\np = subprocess.Popen(['sleep', '60'])\nprint(p.pid, flush=True)\np.wait()\n")
    monkeypatch.setattr("benchmarks.cpu.run.HERE", folder)
    (folder / "peers").mkdir()
    script.rename(folder / "peers" / "hangs.py")
    worker = Worker("hangs", sys.executable, "hangs.py", (), 1)
    child = int(worker.answers.get(timeout=30))
    assert worker.ask({"cmd": "run"}, 0.2) == {"error": "no answer in 0 s"}
    assert not running(child)


def running(pid: int) -> bool:
    """Whether the process still runs, after at most five seconds."""
    for _ in range(100):
        try:
            if "Z" in Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0]:
                return False
        except FileNotFoundError:
            return False
        time.sleep(0.05)
    return True


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
