"""The command line: answers as text and as JSON, exit statuses, files, interruption."""

from __future__ import annotations

import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tilec
from tilec import cli, cli_commands
from tilec.cli_answer import Progress
from tilec.report.run import run_text
from tilec.runtime.compare import Difference

KERNEL = """
import tilec
from tilec import f32, sizes

N = sizes("N")


@tilec.kernel
def prefix(x: f32[N + 1]):
    for i in range(N):
        x[i + 1] += x[i]


@tilec.kernel
def double(x: f32[N], y: f32[N]):
    for i in range(N):
        y[i] = 2 * x[i]


def blocked(s):
    return s.split("i", 32)


def backwards(s):
    return s.reverse("i")


ready = double.schedule(N=8).reverse("i")
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    return path


def run(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> str:
    assert cli.main([str(w) for w in words]) == code
    captured = capsys.readouterr()
    assert captured.err == ""
    return captured.out


def data(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> dict:
    return json.loads(run(capsys, *words, "--json", code=code))


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(capsys, "list")
    for name in ("gemm_silu", "rtx-pro-6000", "compute_at"):
        assert name in text
    assert "gemm_silu" not in run(capsys, "list", "targets")
    found = data(capsys, "list", "kernels")
    assert list(found) == ["command", "kernels"]
    assert found["command"] == "list"
    gemm = next(k for k in found["kernels"] if k["name"] == "gemm")
    assert gemm["signature"] == "gemm(A: bf16[M, K], W: bf16[K, N], C: bf16[M, N])"
    assert gemm["summary"]


def test_show(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert "for i in 0..N:" in run(capsys, "show", f"{file}:double")
    assert "for i_o in 0..ceil(N/32):" in run(capsys, "show", f"{file}:double", "--schedule", f"{file}:blocked")
    assert "for i_o in 0..2:" in run(capsys, "show", f"{file}:double", "N=40", "--schedule", f"{file}:blocked")
    trace = run(capsys, "show", f"{file}:double", "--schedule", f"{file}:blocked", "--trace")
    assert trace == 's = s.split("i", 32)\n'
    assert "def double(" in run(capsys, "show", f"{file}:double", "--form", "numpy")
    found = data(capsys, "show", f"{file}:ready")
    assert found["kernel"] == "double"
    assert found["bound"] == {"N": 8}
    assert found["trace"] == ['reverse("i")']
    assert found["loops"] == ["i"]


def test_check(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    assert run(capsys, "check", f"{file}:prefix", "--schedule", f"{file}:blocked").startswith("legal")
    text = run(capsys, "check", f"{file}:prefix", "--schedule", f"{file}:backwards", code=1)
    assert text.startswith('illegal: reverse("i"): a read would run before the write it depends on.')
    assert f"raised at {file}:{KERNEL[: KERNEL.index('s.reverse')].count(chr(10)) + 1}" in text
    found = data(capsys, "check", f"{file}:prefix", "--schedule", f"{file}:backwards", code=1)
    assert found["verdict"]["status"] == "illegal"
    assert found["error"]["witness"]["kind"] == "flow"
    assert found["error"]["witness"]["sizes"] == {"N": 2}
    unknown = data(capsys, "check", f"{file}:prefix", "--schedule", f"{file}:blocked", "--proof-budget", 1, code=1)
    assert unknown["verdict"]["status"] == "unknown"
    assert unknown["error"]["witness"] is None


def test_a_trace_from_a_file(capsys: pytest.CaptureFixture[str], file: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text('[{"name": "split", "args": ["i", 16], "kwargs": {"into": ["a", "b"]}}]')
    assert "for a in 0..ceil(N/16):" in run(capsys, "show", f"{file}:double", "--schedule", trace)


def test_run(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    text = run(capsys, "run", f"{file}:double", "N=70", "--schedule", f"{file}:blocked")
    assert text.splitlines()[0] == "double(N=70) by numpy against the reference, random inputs from seed 0"
    assert text.splitlines()[-1] == "bit-identical"
    found = data(capsys, "run", "act_chain", "M=5", "N=7", "--seed", 3)
    assert found["identical"] is True
    assert found["outputs"][0]["shape"] == [5, 7]
    assert found["outputs"][0]["different"] == 0
    assert found["sizes"] == {"M": 5, "N": 7}


def test_a_wrong_backend_result_is_seen(capsys: pytest.CaptureFixture[str], file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = cli_commands.api.Schedule.outputs

    def wrong(self, arrays, backend="numpy", **rest):  # type: ignore[no-untyped-def]
        out = honest(self, arrays, backend, **rest)
        if backend == "numpy":
            out["y"][3] += 0.5
        return out

    monkeypatch.setattr(cli_commands.api.Schedule, "outputs", wrong)
    found = data(capsys, "run", f"{file}:double", "N=9", code=1)
    assert found["identical"] is False
    assert found["outputs"][0]["different"] == 1
    assert found["outputs"][0]["absolute"] == pytest.approx(0.5, rel=1e-6)


def test_occupancy(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("occupancy", "h100-sxm", "--threads", 256, "--registers", 128, "--shared", "96KiB")
    assert "2 blocks per SM, 16 warps (25.0%), limited by registers and shared" in run(capsys, *words)
    found = data(capsys, *words)
    assert (found["blocks"], found["warps"], found["limiters"]) == (2, 16, ["registers", "shared"])
    assert data(capsys, "occupancy", "8.6", "--threads", 2048, code=1)["blocks"] == 0


def test_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert "bandwidth" in run(capsys, "target", "rtx-pro-6000")
    found = data(capsys, "target", "h200")
    assert found["figures"]["bandwidth"]["value"] == 4.8e12
    assert found["limits"]["shared_per_block"] == 232448


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for name in ("list", "show", "check", "cost", "tune", "run", "occupancy", "target"):
        assert re.search(rf"^ +{name}\b", text, re.MULTILINE)
        assert hasattr(cli_commands, f"command_{name}")


def test_sizes_may_stand_behind_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert "sizes: M = 3, K = 4, N\n" in run(capsys, "show", "gemm", "M=3", "--form", "element", "K=4")
    with pytest.raises(SystemExit):
        cli.main(["show", "gemm", "--wrong"])
    assert "unrecognized arguments: --wrong" in capsys.readouterr().err


def test_interruption(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(options, progress):  # type: ignore[no-untyped-def]
        progress.finished("120 candidates were priced")
        progress.now("proving the best 8")
        raise KeyboardInterrupt

    monkeypatch.setattr(cli_commands, "command_list", interrupted)
    assert cli.main(["list"]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "interrupted: 120 candidates were priced; stopped while proving the best 8\n"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_one_line_on_a_terminal_and_nothing_elsewhere() -> None:
    pipe, terminal = io.StringIO(), Terminal()
    for stream in (pipe, terminal):
        progress = Progress(stream)
        progress.now("proving")
        progress.end()
        assert progress.summary() == "stopped while proving"
    assert pipe.getvalue() == ""
    assert terminal.getvalue() == "\rproving\r       \r"
    assert Progress(pipe).summary() == "nothing was done or changed"


def test_cost(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("cost", "act_chain", "--target", "h200", "M=1024", "N=12288")
    assert "global traffic 156 MiB" in run(capsys, *words)
    found = data(capsys, *words)
    assert found["cost"]["traffic"]["global"]["total"] == 156 * 2**20
    assert found["cost"]["working_set"]["global"] == 72 * 2**20


def test_tune(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("tune", "act_chain", "M=64", "N=96", "--target", "h200", "--top", 2)
    text = run(capsys, *words)
    assert "act_chain on h200, M=64, N=96" in text
    assert "steps:" in text
    found = data(capsys, *words)
    assert len(found["table"]) == 2
    assert found["table"][0]["knobs"] == found["best"]["knobs"]
    assert found["best"]["traffic"] == 64 * 96 * 5  # two bf16 inputs and one byte out, nothing in between
    assert found["considered"] >= len(found["table"])


def test_tune_where_nothing_fits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    honest = cli_commands.api.tune

    def nothing(kernel, sizes, target, **options):  # type: ignore[no-untyped-def]
        return honest(kernel, sizes, target, space={"B": [2**13, 2**14]}, schedule=lambda s, B: hopeless(s, B), **options)

    def hopeless(s, B):  # type: ignore[no-untyped-def]
        s = s.tile(("i", "j"), (B, B), into=(("io", "ii"), ("jo", "ji")))
        return s.cache_read("A", at="jo", memory="shared").bind("io", "block.y").bind("jo", "block.x")

    monkeypatch.setattr(cli_commands.api, "tune", nothing)
    text = run(capsys, "tune", "transpose", "M=32768", "N=32768", "--target", "h200", code=1)
    assert text.startswith("no candidate is legal and fits on h200")
    assert "of shared memory per block" in text


def test_a_real_interruption_leaves_130(tmp_path: Path) -> None:
    """SIGINT to a real process in the middle of a file that takes long."""
    file = tmp_path / "slow.py"
    file.write_text(KERNEL + "\nimport sys, time\nprint('started', flush=True)\ntime.sleep(60)\n")
    root = Path(__file__).resolve().parent.parent.parent
    process = subprocess.Popen(
        [sys.executable, "-m", "tilec", "show", f"{file}:double"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "started\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert out == ""
    assert err.startswith("interrupted: stopped while reading ")


def test_emit(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = run(capsys, "emit", "gemm", "M=4")
    assert text.startswith("/* C11 written by tilec.") and "void tilec_gemm(" in text
    found = data(capsys, "emit", "gemm", "--backend", "numpy")
    assert found["backend"] == "numpy" and "def gemm(" in found["text"]
    assert run(capsys, "emit", "gemm", "--vector-bytes", "64", "-o", tmp_path / "gemm.c").endswith(" lines\n")
    assert "void tilec_gemm(" in (tmp_path / "gemm.c").read_text()
    missing = tmp_path / "no" / "file.c"
    for words, said in (
        (("--backend", "tile", "--compile"), "emit: backend tile has no --compile. Backends that have: c, triton"),
        (("--compile",), "emit --compile: name a folder for the C source, header and shared object: -o FOLDER"),
        (("-o", missing), f"emit: {missing} can't be written: No such file or directory"),
    ):
        assert cli.main(["emit", "gemm", *map(str, words)]) == 2
        assert capsys.readouterr().err == f"ScheduleError: {said}\n"


def test_every_permission_can_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--reassociate", "acc", "--contract", "--hardware-rounding"]
    assert cli.main(["show", "gemm", *words]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("reassociate acc", "contract", "hardware_rounding"))


def test_a_difference_is_named_after_the_permission_that_allows_it() -> None:
    rows = [Difference("C", "bf16", (2, 2), 4, 1, 0.5, 0.1)]
    sizes = {"M": 2, "N": 2, "K": 2}
    for permission in ("contract", "hardware_rounding"):
        program = tilec.workload("gemm").schedule(**{permission: True}).program
        assert run_text(program, "c", 0, sizes, rows).endswith(f"not bit-identical; the schedule was permitted to: {permission}")
    strictly = run_text(tilec.workload("gemm").program, "c", 0, sizes, rows)
    assert strictly.endswith("NOT bit-identical, and no permission allows a difference")
