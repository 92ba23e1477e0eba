"""The face: kernels are called with arrays, schedules are started from kernels, names are found lazily."""

from __future__ import annotations

import inspect
import pickle
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilec
from tilec import bf16, f32, i32, sizes
from tilec.errors import LanguageError, ScheduleError
from tilec.schedule.core import primitives

M, N = sizes("M N")


@tilec.kernel
def scale_rows(x: f32[M, N], s: f32[M], alpha: f32, y: f32[M, N]):
    """Each row times its factor."""
    for i in range(M):
        for j in range(N):
            y[i, j] = alpha * (s[i] * x[i, j])


@tilec.kernel
def accumulate(x: f32[N], total: f32[1], count: i32[1]):
    for i in range(N):
        total[0] += x[i]
        count[0] = i + 1


def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((3, 5), dtype=np.float32), rng.random(3, dtype=np.float32)


def test_a_call_takes_arguments_by_position_and_name() -> None:
    x, s = rows()
    expected = np.float32(2) * (s[:, None] * x)
    np.testing.assert_array_equal(scale_rows(x, s, 2.0), expected)
    np.testing.assert_array_equal(scale_rows(alpha=2.0, s=s, x=x), expected)
    np.testing.assert_array_equal(scale_rows(x, s=s, alpha=2.0), expected)


def test_a_passed_output_is_written_and_returned() -> None:
    x, s = rows()
    y = np.full((3, 5), 7, np.float32)
    out = scale_rows(x, s, 2.0, y)
    assert out is y
    np.testing.assert_array_equal(y, np.float32(2) * (s[:, None] * x))


def test_in_out_is_updated_in_place_and_not_returned() -> None:
    total = np.array([10], np.float32)
    count = accumulate(np.array([1, 2, 3], np.float32), total)
    assert total[0] == 16
    assert count.dtype == np.int32
    assert count[0] == 3
    with pytest.raises(LanguageError, match="total"):
        accumulate(x=np.array([1, 2, 3], np.float32))


def test_several_outputs_are_a_tuple() -> None:
    @tilec.kernel
    def split_sign(x: f32[N], up: f32[N], down: f32[N]):
        for i in range(N):
            up[i] = max(x[i], 0)
            down[i] = min(x[i], 0)

    up, down = split_sign(np.array([1, -2], np.float32))
    assert up.tolist() == [1, 0]
    assert down.tolist() == [0, -2]


def test_sizes_that_no_shape_gives_are_keywords() -> None:
    @tilec.kernel
    def constant(y: f32[N]):
        for i in range(N):
            y[i] = 5

    assert constant(N=3).tolist() == [5, 5, 5]
    with pytest.raises(LanguageError, match="N"):
        constant()


def test_positional_arguments_are_counted() -> None:
    x, s = rows()
    with pytest.raises(LanguageError) as caught:
        scale_rows(x)
    assert str(caught.value) == (
        "scale_rows: got 1 positional arguments; expected 3 (x, s, alpha), or 4 with y\n"
        "  expected: scale_rows(x: f32[M, N], s: f32[M], alpha: f32, y: f32[M, N])"
    )
    with pytest.raises(LanguageError, match="no parameter or size 'beta'"):
        scale_rows(x, s, 2.0, beta=1)


def test_a_read_only_output_is_refused() -> None:
    x, s = rows()
    y = np.zeros((3, 5), np.float32)
    y.flags.writeable = False
    with pytest.raises(LanguageError, match="read-only"):
        scale_rows(x, s, 2.0, y)


def test_the_same_array_twice_is_refused() -> None:
    x, s = rows()
    with pytest.raises(LanguageError, match="share memory"):
        scale_rows(x, s, 2.0, x)


def test_out_of_bounds_is_refused_at_the_first_use_with_its_line() -> None:
    @tilec.kernel
    def shifted(x: f32[N], y: f32[N]):
        for i in range(N):
            y[i] = x[i + 1]

    line = inspect.getsourcelines(test_out_of_bounds_is_refused_at_the_first_use_with_its_line)[1] + 4
    for use in (lambda: shifted(np.zeros(3, np.float32)), shifted.schedule):
        with pytest.raises(LanguageError) as caught:
            use()
        assert str(caught.value).startswith(f"{__file__}:{line}: S0[0] reads x[1]; x has 1 element (N=1)")


def test_schedule_keeps_the_face_through_every_step() -> None:
    s = scale_rows.schedule(M=3)
    t = s.reorder("j", "i")
    assert isinstance(t, tilec.Schedule)
    assert t.kernel is scale_rows
    assert [str(step) for step in t.trace] == ['reorder("j", "i")']
    assert not s.trace.steps
    x, factors = rows()
    np.testing.assert_array_equal(t.run(x, factors, 2.0), scale_rows(x, factors, 2.0))
    np.testing.assert_array_equal(t.build("interpreter")(x, factors, 2.0), scale_rows(x, factors, 2.0))


def test_bound_sizes_are_checked_at_the_call() -> None:
    s = scale_rows.schedule(M=4)
    x, factors = rows()
    with pytest.raises(LanguageError, match="4"):
        s.run(x, factors, 2.0)


def test_outputs_leaves_the_arrays_alone() -> None:
    total = np.array([10], np.float32)
    arrays = {"x": np.array([1, 2], np.float32), "total": total}
    for backend in ("reference", "numpy", "interpreter"):
        found = accumulate.schedule().outputs(arrays, backend)
        assert list(found) == ["total", "count"]
        assert found["total"].tolist() == [13]
    assert total.tolist() == [10]


def test_emit_names_its_backends() -> None:
    s = scale_rows.schedule()
    assert s.emit("pseudocode") == str(s)
    assert "def scale_rows(" in s.emit("numpy")
    with pytest.raises(ScheduleError) as caught:
        s.emit("cuda")
    assert str(caught.value) == 'emit("cuda"): no such backend. Backends: pseudocode, tile, numpy, c, triton'
    with pytest.raises(ScheduleError, match="Backends: numpy, interpreter"):
        s.build("tile")


def test_kernel_says_what_it_is() -> None:
    assert scale_rows.signature == "scale_rows(x: f32[M, N], s: f32[M], alpha: f32, y: f32[M, N])"
    assert scale_rows.summary == "Each row times its factor."
    assert repr(scale_rows) == f"<tilec.Kernel {scale_rows.signature}>"
    assert str(scale_rows).startswith("scale_rows(")
    assert tilec.workload("gemm").summary


def test_a_workload_is_found_by_name() -> None:
    gemm = tilec.workload("gemm")
    rng = np.random.default_rng(0)
    A, W = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((4, 6), (6, 5)))
    product = gemm(A, W)
    assert product.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(product.astype(np.float32), A.astype(np.float32) @ W.astype(np.float32), rtol=2**-7, atol=2**-7)
    with pytest.raises(LanguageError, match="Did you mean 'gemm_silu'"):
        tilec.workload("gem_silu")


def test_schedules_can_be_pickled() -> None:
    s = tilec.workload("gemm").schedule().split("k", 8)
    back = pickle.loads(pickle.dumps(s))
    assert str(back) == str(s)
    assert back.trace == s.trace


def test_the_face_is_complete() -> None:
    for name in [*tilec.__all__, "silu", "exp", "sqrt"]:
        assert getattr(tilec, name) is not None
        assert name in dir(tilec)
    assert bf16.name == "bf16"
    with pytest.raises(AttributeError, match="tilec has no 'silly'"):
        _ = tilec.silly


def test_methods_show_the_primitives_documentation() -> None:
    s = scale_rows.schedule()
    assert set(primitives()) <= set(dir(s))
    assert "1." in (s.split.__doc__ or "")
    assert list(inspect.signature(s.split).parameters)[:2] == ["loop", "factor"]


def test_any_order_of_imports_works() -> None:
    """A submodule imported first does not shadow a name of the face, and the other way round."""
    root = Path(__file__).resolve().parent.parent.parent
    for first in ("import tilec.workloads.gemm", "import tilec.lang.kernel, tilec.schedule.schedule", "from tilec import tune"):
        code = f"{first}; import tilec; print(callable(tilec.kernel), tilec.workload('dot').name, tilec.silu.name)"
        out = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
        assert out.stdout == "True dot silu\n"


def test_an_array_read_before_part_of_it_is_written_must_be_passed() -> None:
    @tilec.kernel
    def partly(x: f32[N], Y: f32[N], Z: f32[N]):
        for i in range(1, N):
            Y[i] = x[i]
        for i in range(N):
            Z[i] = Y[i]

    x = np.arange(4, dtype=np.float32)
    with pytest.raises(tilec.errors.LanguageError, match="Y"):
        partly(x)
    assert partly(x, np.full(4, 9, np.float32)).tolist() == [9, 1, 2, 3]
