"""What the command line says about bad input: the whole text, exit status 2, never a foreign traceback."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilec import cli, cli_commands

HEAD = """import tilec
from tilec import f32, sizes

N = sizes("N")


@tilec.kernel
def double(x: f32[N], y: f32[N]):
    for i in range(N):
        y[i] = 2 * x[i]


"""


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert cli.main([str(w) for w in words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err.rstrip("\n")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["show", "double", "N=x"], "ScheduleError: N=x: 'x' is no integer: write N=1024"),
        (["show", "gemm", "M=0"], "ScheduleError: M=0: a size is >= 1"),
        (["show", "gemm", "M=-4"], "ScheduleError: M=-4: a size is >= 1"),
        (["show", "gemm", "M=2147483648"], "ScheduleError: M=2147483648: a size is below 2^31"),
        (["show", "gemm", "M=4", "M=5"], "ScheduleError: size M is given twice: 4 and 5"),
        (["show", "gemm", "Q=4"], "ScheduleError: Q=4: no size 'Q'. Sizes of gemm: M, N, K"),
        (["show", "gemm", "64"], "ScheduleError: '64' is no size: write M=1024"),
        (
            ["show", "gemm", "--form", "cuda"],
            'ScheduleError: emit("cuda"): no such backend. Backends: pseudocode, tile, numpy, c, triton',
        ),
        (["show", "gemm", "--schedule", "mine"], "ScheduleError: 'mine' is no schedule: write file.py:name or trace.json"),
        (["show", "nowhere.py"], "LanguageError: no file nowhere.py. A kernel is a library name (tilec list) or file.py:name"),
        (["cost", "gemm", "M=4", "--target", "h200"], "ScheduleError: cost: the sizes N, K are open: add N=1024"),
        (["run", "gemm"], "ScheduleError: run: the sizes M, N, K are open: add M=64"),
        (["tune", "gemm", "--target", "h200", "M=4"], "ScheduleError: tune: the sizes N, K are open: add N=1024"),
        (
            ["show", "gemm", "--reassociate", "A"],
            "ScheduleError: schedule(reassociate=\"A\"): 'A' is no reduction. Possible: 'acc'",
        ),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_words(capsys: pytest.CaptureFixture[str], words: list[str], text: str) -> None:
    if words[1] == "double":
        words = [words[0], "gemm", *words[2:]]
    assert refused(capsys, *words) == text


def test_unknown_names_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(capsys, "show", "gem")
    assert text.startswith("LanguageError: no kernel 'gem' in the library.")
    assert "Did you mean 'gemm'?" in text
    text = refused(capsys, "cost", "gemm", "M=4", "K=4", "N=4", "--target", "h20")
    assert text.startswith("TargetError: unknown target 'h20'. Did you mean 'h200'?")


RAISING = [
    ("1 / 0\n", "ScheduleError: {file}:13: the file raised ZeroDivisionError: division by zero"),
    (
        "import nothing_of_that_name\n",
        "ScheduleError: {file}:13: the file raised ModuleNotFoundError: No module named 'nothing_of_that_name'",
    ),
    ("raise SystemExit(3)\n", "ScheduleError: {file}:13: the file raised SystemExit: 3"),
    ("def f(:\n", "LanguageError: {file}:13:7: not valid Python: invalid syntax"),
    (
        "def f(s):\n    return s.split('i', 0)\n",
        'ScheduleError: split("i", 0): the factor must be >= 1, not 0\n  raised at {file}:14',
    ),
    ("def f(s):\n    return s.spilt('i', 4)\n", None),
    (
        "def f(s):\n    s.split('i', 4)\n",
        "ScheduleError: {file}:f returned a NoneType, not a schedule: does it end in `return s`?",
    ),
    (
        "def f():\n    pass\n",
        "ScheduleError: {file}: f(schedule) raised TypeError: f() takes 0 positional arguments but 1 was given",
    ),
    ("f = 7\n", "ScheduleError: {file}:f is a int, neither a schedule nor a function that returns one"),
    ("g = 7\n", None),
]


@pytest.mark.parametrize(("tail", "text"), RAISING, ids=[str(n) for n in range(len(RAISING))])
def test_a_schedule_file_that_fails(capsys: pytest.CaptureFixture[str], tmp_path: Path, tail: str, text: str | None) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD + tail)
    found = refused(capsys, "show", "gemm", "--schedule", f"{file}:f")
    if (text is not None and 'split("i", 0)' in text) or text is not None:
        assert found == text.format(file=file)
    elif "spilt" in tail:
        assert found.startswith(f"ScheduleError: {file}:14: f(schedule) raised AttributeError: Schedule: no primitive 'spilt'.")
    else:
        assert found.startswith(f"ScheduleError: {file} has no name 'f'.")


def test_a_kernel_file_with_a_wrong_kernel(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD.replace("2 * x[i]", "x[i * i]"))
    found = refused(capsys, "show", f"{file}:double")
    assert found.startswith(f"LanguageError: {file}:10:")


def test_a_file_with_several_kernels(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD + "triple = double\n")
    assert refused(capsys, "show", file) == f"ScheduleError: {file} holds double, triple: write {file}:double"


def test_a_bad_trace(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.write_text("{")
    found = refused(capsys, "show", "gemm", "--schedule", file)
    assert found.startswith("ScheduleError: trace: no JSON (line 1, column 2)")


def test_errors_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "gemm", "Q=4", "--json"]) == 2
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert error["class"] == "ScheduleError"
    assert error["text"] in captured.err


def test_a_fault_of_tilec_is_called_one(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(options, progress):  # type: ignore[no-untyped-def]
        raise KeyError("i7")

    monkeypatch.setattr(cli_commands, "command_list", broken)
    assert cli.main(["list"]) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("InternalError: list failed with KeyError: 'i7'\n  This is a fault of tilec, not yours.")
    assert "Traceback" not in captured.err


def test_what_a_file_prints_does_not_spoil_the_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(HEAD + 'print("loaded")\n')
    assert cli.main(["show", f"{file}:double", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["kernel"] == "double"
    assert captured.err == "loaded\n"


def test_the_traceback_is_there_for_those_who_ask(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["show", "gemm", "Q=4", "--traceback"]) == 2
    assert "Traceback (most recent call last)" in capsys.readouterr().err
