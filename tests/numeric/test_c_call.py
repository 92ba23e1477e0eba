"""Calling, saving and loading compiled schedules: what is accepted, what is refused with which words, what is left behind."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilec
from tests.numeric.compiled import needs_compiler
from tilec import f32, i32, sizes
from tilec.errors import LanguageError, MeasureError, ResourceError, ScheduleError
from tilec.runtime import c_build, c_run

M, N = sizes("M N")


@tilec.kernel
def scaled(X: f32[M, N], alpha: f32, Y: f32[M, N], Z: f32[N, 2 * M]):
    for i in range(M):
        for j in range(N):
            Y[i, j] = X[i, j] * alpha
    for j in range(N):
        for i in range(2 * M):
            Z[j, i] = 1


@tilec.kernel
def counted(A: i32[N], B: i32[N]):
    for i in range(N):
        A[i] += B[i]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def built(kernel: Any = scaled, **options: Any) -> Any:
    return kernel.schedule().build("c", flags=("-O1",), **options)


@needs_compiler
def test_a_call_takes_what_the_kernel_takes() -> None:
    f = built()
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y, z = f(x, 0.1)
    want_y, want_z = scaled(x, 0.1)
    assert (y == want_y).all() and (z == want_z).all()
    out_y, out_z = np.full((2, 3), 7, np.float32), np.full((3, 4), 7, np.float32)
    got = f(x, 0.1, out_y, out_z)
    assert got[0] is out_y and got[1] is out_z and (out_y == want_y).all()
    by_name = f(alpha=np.float32(0.1), X=x)
    assert (by_name[0] == want_y).all()
    assert (f(x, 3)[0] == scaled(x, 3)[0]).all()  # an integer for a float
    assert f.__name__ == "scaled" and "threads" in repr(f)


@needs_compiler
def test_an_array_that_is_read_and_written_is_updated_in_place() -> None:
    a, b = np.arange(5, dtype=np.int32), np.ones(5, np.int32)
    assert built(counted)(a, b) is None
    assert (a == np.arange(1, 6)).all()


@needs_compiler
def test_what_a_call_refuses() -> None:
    f, g = built(), built(counted)
    x, y, z = np.ones((2, 3), np.float32), np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)
    frozen = np.ones((2, 3), np.float32)
    frozen.setflags(write=False)
    off = np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    a = np.ones(5, np.int32)
    for call, words in (
        (lambda: f(x.astype(np.float64), 1.0), "X has dtype float64; f32[M, N] needs float32"),
        (lambda: f(x.T.copy().T, 1.0), "X has strides (4, 8), not those of a C-contiguous array"),
        (lambda: f(x[:, ::2], 1.0), "pass np.ascontiguousarray(X)"),
        (lambda: f(off, 1.0), "X has an unaligned address"),
        (lambda: f(x.ravel(), 1.0), "X has shape (6,); f32[M, N] has 2 dimensions"),
        (lambda: f(x, 1.0, y, z[:2].copy()), "Z has shape (2, 4); dimension 0 of f32[N, 2*M] is 3"),
        (lambda: f(x, 1.0, frozen, z), "Y is written, but its array is read-only. Pass a copy"),
        (lambda: f(x, 1.0, x, z), "X and Y share memory and Y is written"),
        (lambda: g(a[:4], a[1:]), "A and B share memory and A is written"),
        (lambda: f(x), "got 1 positional arguments"),
        (lambda: f(x, 10**400), "scalar alpha is an integer beyond every f32"),
        (lambda: f(x, "much"), "scalar alpha = 'much'; it must be a number (f32)"),
        (lambda: f([[1.0]], 1.0), "X is a list; it must be a NumPy array of float32"),
        (lambda: f(x, 1.0, beta=2), "no parameter or size 'beta'"),
    ):
        with pytest.raises(LanguageError) as caught:
            call()
        assert words in str(caught.value), (words, str(caught.value))
    f(x, 1.0, y, z)  # the same arrays, apart, are fine


@needs_compiler
def test_calls_from_several_threads_do_not_share_scratch_memory() -> None:
    """A temporary too large for the stack: every call in flight has its own."""
    s = tilec.workload("gemm_silu").schedule()
    f = s.build("c", flags=("-O1",))
    rng = np.random.default_rng(0)
    shapes = ((130, 70), (70, 150))
    inputs = [tuple(rng.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in shapes) for _ in range(4)]
    want = [f(a, w).view(np.uint16).copy() for a, w in inputs]
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(10):
            if (f(*inputs[n]).view(np.uint16) != want[n]).any():
                wrong.append(n)

    workers = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong
    assert 1 <= len(f.function._free) <= 4  # what calls gave back serves the next ones


@needs_compiler
def test_options_are_checked() -> None:
    s = scaled.schedule()
    for options, words in (
        ({"threads": 0}, "threads=0: it must be an integer from 1 to 4096"),
        ({"vector_bytes": 24}, "vector_bytes=24: vector registers have 16, 32, 64 bytes"),
        ({"vector_bytes": 16.0}, "vector_bytes=16.0: vector registers have"),
        ({"speed": 9}, "no option 'speed'. Options: compiler, threads, flags, vector_bytes, timeout"),
        ({"flags": "-O2"}, "build(\"c\")(flags='-O2'): a list of texts"),
        ({"flags": None}, "flags=None): a list of texts"),
        ({"flags": [2]}, "flags=[2]): a list of texts"),
        ({"flags": ["-O1\0"]}, "a list of texts"),
        ({"timeout": 0}, 'build("c")(timeout=0): a number of seconds > 0'),
        ({"timeout": "9"}, "timeout='9'): a number of seconds > 0"),
        ({"timeout": float("nan")}, "timeout=nan): a number of seconds > 0"),
        ({"timeout": 10**5000}, "timeout=a int): a number of seconds > 0, at most 1,000,000"),
    ):
        with pytest.raises(ScheduleError) as caught:
            s.build("c", **options)
        assert words in str(caught.value)
    with pytest.raises(ScheduleError, match=r'emit\("c"\): no option .flags.'):
        s.emit("c", flags=())
    for wrong in (24, 0, True, "32", 32.0, np.zeros(3)):
        with pytest.raises(ScheduleError, match="vector registers have 16, 32, 64 bytes"):
            s.emit("c", vector_bytes=wrong)
    for wrong in ("", 3, "gcc\0"):
        with pytest.raises(MeasureError, match="give the name or the path of a C compiler"):
            s.build("c", compiler=wrong)


def test_outputs_wants_arrays_by_name() -> None:
    s = counted.schedule()
    with pytest.raises(ScheduleError, match=r"outputs\(3\): a dict of arrays by the names of the parameters"):
        s.outputs(3)  # type: ignore[arg-type]
    with pytest.raises(LanguageError, match="A is a int"):
        s.outputs({"A": 1, "B": np.ones(3, np.int32)})  # type: ignore[dict-item]
    with pytest.raises(ScheduleError, match="no such backend"):
        s.outputs({"A": np.ones(3, np.int32), "B": np.ones(3, np.int32)}, np.zeros(2))  # type: ignore[arg-type]


def script(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@needs_compiler
def test_compilers_that_are_missing_fail_or_hang(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = c_build.find().path
    s = scaled.schedule()
    with pytest.raises(MeasureError, match=r"no C compiler 'nocc'. Install gcc or clang"):
        s.build("c", compiler="nocc")
    with pytest.raises(MeasureError, match=r"failed \(exit status 1\)(.|\n)*error: "):
        s.build("c", flags=("-fno-such-flag",))
    asked = "'-dM' in sys.argv or '--version' in sys.argv"
    hangs = f"import os, sys, time\nif {asked}: os.execv({real!r}, ['gcc', *sys.argv[1:]])\ntime.sleep(60)"
    with pytest.raises(MeasureError, match=r"timed out after 0.5 s, compiling"):
        s.build("c", compiler=script(tmp_path, "slowcc", hangs), timeout=0.5)
    assert not list(own_cache.rglob("compiling-*")), "nothing is left of what did not work"
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(MeasureError, match=r"no C compiler: none of gcc, clang, cc is there(.|\n)*The NumPy backend needs none"):
        s.build("c")
    assert (s.build()(np.ones((1, 1), np.float32), 2.0)[0] == 2).all()


@needs_compiler
def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "file"))
    with pytest.raises(MeasureError, match=r"can't be written to(.|\n)*TILEC_CACHE names another folder"):
        built()


@needs_compiler
def test_a_full_disk_is_said(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(28, "No space left on device", str(own_cache))

    monkeypatch.setattr(c_build.os, "replace", full)
    with pytest.raises(MeasureError, match=r"No space left on device"):
        built()
    assert not list(own_cache.rglob("compiling-*"))


@needs_compiler
def test_objects_come_out_of_the_cache(own_cache: Path) -> None:
    f = built()
    first = f.function.path.stat().st_mtime_ns
    g = built()
    assert g.function.path == f.function.path and g.function.path.stat().st_mtime_ns == first
    other = scaled.schedule().build("c", flags=("-O2",))
    assert other.function.path != f.function.path, "flags are part of the key"
    assert f.recipe.flags[-1] == "-O1" and "-ffp-contract=off" in f.recipe.flags


@needs_compiler
def test_a_damaged_object_in_the_cache_is_made_again() -> None:
    s = scaled.schedule()
    made = c_build.recipe(s.program, flags=("-O1",))
    c_build.compile_recipe(made).write_bytes(b"cut off")
    assert (c_run.load(made, s.program).path.read_bytes())[:4] != b"cut "


def test_memory_that_is_not_there() -> None:
    with pytest.raises(ResourceError, match=r"scratch memory"):
        c_run.Scratch(1 << 62)


# -- saved and loaded --------------------------------------------------------------------------------------------------------


@needs_compiler
def test_a_saved_schedule_runs_elsewhere(tmp_path: Path) -> None:
    s = scaled.schedule().split("S0.j", 4, into=("jo", "jl")).vectorize("jl")
    files = s.build("c", flags=("-O1",)).save(tmp_path / "kept")
    assert [f.name for f in files] == ["scaled.c", "scaled.h", "scaled.so", "scaled.json"]
    about = json.loads(files[3].read_text())
    assert [step["name"] for step in about["schedule"]] == ["split", "vectorize"] and about["cost"]["name"] == "scaled"
    code = f"""
import numpy as np, tilec
f = tilec.load({str(tmp_path / "kept")!r})
y, z = f(np.arange(6, dtype=np.float32).reshape(2, 3), 0.5)
assert (y == np.arange(6).reshape(2, 3) / 2).all() and z.shape == (3, 4) and (z == 1).all()
try:
    f(np.zeros((2, 3)), 0.5)
except tilec.errors.LanguageError as e:
    print(e)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert "X has dtype float64; f32[M, N] needs float32" in done.stdout


@needs_compiler
def test_a_header_is_c_and_the_saved_source_compiles_alone(tmp_path: Path) -> None:
    built().save(tmp_path)
    (tmp_path / "main.c").write_text(
        '#include "scaled.h"\n#include <stdio.h>\nint main(void) { float x[6] = {1, 2, 3, 4, 5, 6}, y[6], z[12];\n'
        "tilec_scaled(x, y, z, 2.0f, 2, 3, 0, 1);\n"
        'printf("%g %g\\n", y[5], z[11]); return tilec_scaled_scratch(2, 3, 1) != 0; }\n'
    )
    compiler = c_build.find().path
    command = [
        compiler,
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
        "main.c",
        "scaled.c",
        "-o",
        "main",
        "-lm",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([tmp_path / "main"], capture_output=True, text=True, timeout=10).stdout == "12 1\n"


@needs_compiler
def test_an_object_for_another_machine_is_compiled_again(tmp_path: Path) -> None:
    built().save(tmp_path)
    data = json.loads((tmp_path / "scaled.json").read_text())
    (tmp_path / "scaled.json").write_text(json.dumps({**data, "machine": "another"}))
    (tmp_path / "scaled.so").write_bytes(b"not for here")
    f = tilec.load(tmp_path)
    assert (f(np.ones((1, 2), np.float32), 3.0)[0] == 3).all() and f.function.path.parent != tmp_path


@needs_compiler
def test_folders_that_hold_no_schedule(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match=r"holds no saved schedule"):
        tilec.load(tmp_path / "nowhere")
    f = built()
    f.save(tmp_path)
    description = tmp_path / "scaled.json"
    whole = description.read_text()
    for text, words in (
        (whole[: len(whole) // 2], "is damaged"),
        (json.dumps({"format": 99}), "is of format 99, this tilec reads up to 1: use a newer tilec"),
        (json.dumps({"format": 1}), "is damaged: KeyError"),
        ("[]", "is damaged"),
    ):
        description.write_text(text)
        with pytest.raises(MeasureError, match=words):
            tilec.load(tmp_path)
    description.write_text(whole)
    (tmp_path / "scaled.so").write_bytes(b"broken")
    with pytest.raises(MeasureError, match=r"scaled.so can't be loaded"):
        tilec.load(tmp_path)
    with pytest.raises(MeasureError, match=r"save\(None\): the path of a folder"):
        f.save(None)
    with pytest.raises(MeasureError, match=r"can't be saved in"):
        f.save(description)


@needs_compiler
def test_what_was_loaded_can_be_saved_again(tmp_path: Path) -> None:
    scaled.schedule().build("c", flags=("-O1",)).save(tmp_path / "first")
    f = tilec.load(tmp_path / "first")
    assert f.recipe.text and "-O1" in f.recipe.flags
    f.save(tmp_path / "second")
    for ending in ("c", "h", "so", "json"):
        first, second = (tmp_path / folder / f"scaled.{ending}" for folder in ("first", "second"))
        assert first.read_bytes() == second.read_bytes(), ending


def put(keys: str, value: object) -> Callable[[dict], None]:
    """Change one entry of a description, named by its path."""

    def change(data: dict) -> None:
        *path, last = (int(k) if k.isdigit() else k for k in keys.split("."))
        for k in path:
            data = data[k]
        data[last] = value

    return change


@needs_compiler
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (put("format", True), "no format number"),
        (put("name", "../elsewhere"), "no name: '../elsewhere'"),
        (put("face.arrays.0.dtype", "f99"), "no dtype 'f99'"),
        (put("face.arrays.0.shape.0", [1.5]), "no whole numbers"),
        (put("face.arrays.0.shape.0", [0, [[[4], 0], 1]]), "no divisor: 0"),
        (put("face.arrays.0.shape.0", [0, ["Q", 1]]), "unknown sizes"),
        (put("face.arrays", []), "no arrays"),
        (put("face.order", ["X"]), "the order of the parameters"),
        (put("face.bound", [["P", -1]]), "a size or an alignment that is none"),
        (put("face.memory", [3, True]), "a size or an alignment that is none"),
        (put("entry", "main"), "entry 'main', not"),
        (put("flags", "-O2"), "flags are a list"),
        (put("flags", [2]), "are texts"),
    ],
)
def test_damaged_descriptions_are_said(change: Callable[[dict], None], says: str, tmp_path: Path) -> None:
    built().save(tmp_path)
    description = tmp_path / "scaled.json"
    data = json.loads(description.read_text())
    change(data)
    description.write_text(json.dumps(data))
    with pytest.raises(MeasureError, match=r"is damaged: ValueError") as caught:
        tilec.load(tmp_path)
    assert says in str(caught.value)


@needs_compiler
def test_a_description_nested_without_end(tmp_path: Path) -> None:
    built().save(tmp_path)
    (tmp_path / "scaled.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(MeasureError, match=r"is damaged: RecursionError"):
        tilec.load(tmp_path)
    with pytest.raises(MeasureError, match=r"load\(3\): the path of a folder"):
        tilec.load(3)  # type: ignore[arg-type]


@needs_compiler
def test_threads_of_a_callable_are_checked_when_they_change() -> None:
    f = built()
    for wrong in (0, 10**9, "2", 1.5, True):
        with pytest.raises(ScheduleError, match="it must be an integer from 1 to 4096"):
            f.threads = wrong
    f.threads = 2
    assert f.threads == 2
    f.threads = None
    assert f.threads >= 1


@needs_compiler
def test_a_masked_array_is_refused() -> None:
    x = np.ma.masked_array(np.ones((2, 3), np.float32), mask=[[True, False, False]] * 2)
    with pytest.raises(LanguageError, match="X is a masked array, whose mask would be ignored"):
        built()(x, 0.5)


@needs_compiler
def test_an_object_without_its_end_is_damaged(tmp_path: Path) -> None:
    scaled.schedule().build("c").save(tmp_path)
    whole = (tmp_path / "scaled.so").read_bytes()
    for kept in (0, 20, 4096, len(whole) - 1):
        (tmp_path / "scaled.so").write_bytes(whole[:kept])
        with pytest.raises(MeasureError, match="can't be loaded"):
            tilec.load(tmp_path)
    (tmp_path / "scaled.so").write_bytes(whole)
    assert tilec.load(tmp_path) is not None


@needs_compiler
@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing to fork")
def test_a_forked_process_does_not_wait_for_threads_that_it_has_not(tmp_path: Path) -> None:
    script = tmp_path / "forked.py"
    script.write_text(
        "import os\n"
        "import numpy as np\n"
        "import tilec\n"
        "from tilec import f32, sizes\n"
        "N = sizes('N')\n"
        "@tilec.kernel\n"
        "def doubled(X: f32[N], Y: f32[N]):\n"
        "    for i in range(N):\n"
        "        Y[i] = X[i] + X[i]\n"
        "f = doubled.schedule().parallel('i').build('c', threads=2)\n"
        "x = np.arange(100, dtype='f4')\n"
        "f(x)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os._exit(0 if (f(x) == 2 * x).all() else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "assert (f(x) == 2 * x).all()\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
