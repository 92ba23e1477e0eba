"""Refusals around the decorator, `sizes` and the builder: whole texts, and the place in this file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.errors import LanguageError
from tilec.ir.affine import Aff, Constraint
from tilec.lang import Builder, bf16, define, exp, f32, from_source, kernel, sizes
from tilec.lang.values import select

N = sizes("N")


def refusal(f, *args, **kwargs) -> str:
    with pytest.raises(LanguageError) as e:
        f(*args, **kwargs)
    return str(e.value)


def test_place_in_the_file() -> None:
    def indented(A: f32[N], B: f32[N]):
        for i in range(N):
            B[i] = A[i * i]

    with pytest.raises(LanguageError) as e:
        kernel(indented)
    here = Path(__file__).read_text(encoding="utf-8").splitlines()
    line = next(n for n, text in enumerate(here, 1) if text.endswith("B[i] = A[i * i]"))
    assert (Path(e.value.file or "").name, e.value.line, e.value.column) == (Path(__file__).name, line, 22)


def test_source_not_available() -> None:
    scope: dict[str, object] = {"f32": f32, "N": N}
    exec("def f(A: f32[N]):\n    A[0] = 1\n", scope)
    assert refusal(define, scope["f"]) == (
        "kernel 'f': its source text is not available (defined through exec or at a prompt?).\n"
        "  Put it into a file, give the text to tilec.lang.from_source, or use tilec.lang.builder."
    )


def test_not_a_function() -> None:
    assert refusal(define, 3) == "kernel: expected a function, got int."
    square = lambda x: x * x  # noqa: E731
    assert refusal(define, square) == "kernel '<lambda>': expected a `def`, with @kernel in the line above."


def test_from_source() -> None:
    text = "def f(A: f32[N]):\n    A[0] = 1\ndef g(A: f32[N]):\n    A[0] = 2\n"
    names = {"f32": f32, "N": N}
    assert from_source(text, names, "g").program.statements[0].line == 4
    assert refusal(from_source, text, names) == "<text>: expected one function, or its name. Functions here: f, g."
    assert refusal(from_source, text, names, "h", file="k.py") == "k.py: no function 'h'. Functions here: f, g."
    assert refusal(from_source, "def f(:\n", names, file="k.py") == "k.py:1:7: this is no Python: invalid syntax"


def test_sizes() -> None:
    assert refusal(sizes, "") == "sizes(''): expected one or more different names, as in sizes('M N K')."
    assert refusal(sizes, "M M") == "sizes('M M'): expected one or more different names, as in sizes('M N K')."
    bad = "is no name for a size; use letters, digits and single underscores."
    assert refusal(sizes, "M 2N") == f"sizes('M 2N'): '2N' {bad}"
    assert refusal(sizes, "a__b") == f"sizes('a__b'): 'a__b' {bad}"
    assert refusal(sizes, "M", where="K > 2") == "where='K > 2': 'K' is not among the sizes declared here: M."
    assert refusal(sizes, "M", where="M %") == "where='M %': not a condition; write for example where='M % 64 == 0 and N >= 3'."
    assert refusal(sizes, "M", where="M * M > 4") == (
        "where='M * M > 4': 'M * M' is not affine: it multiplies two variables.\n"
        "  Affine here means: loop variables, sizes and integers with +, -, * by an integer constant, "
        "and // or % by a positive integer constant."
    )
    assert refusal(sizes, "M", where="M == 2 or M == 4") == (
        "where='M == 2 or M == 4': 'M == 2 or M == 4': a condition is a conjunction; "
        "write one `if` for each side of `or`, with conditions that exclude each other."
    )


def test_markers_outside_kernels() -> None:
    assert refusal(bf16, 1.0) == "bf16(x) is a cast inside a kernel; outside one, convert with NumPy and ml_dtypes."
    assert refusal(exp, 1.0) == "exp(x) is a function inside kernels only; outside one, use NumPy."


def test_builder() -> None:
    b = Builder("k")
    n = b.size("N")
    a = b.param("A", "f32", [n])
    assert refusal(b.param, "A", "f32", [n]) == (
        "'A' is declared twice: it is already a parameter. Give this parameter a name of its own."
    )
    assert refusal(b.param, "B", "float", [n]) == ("no dtype 'float'. Dtypes: f64, f32, f16, bf16, f8e4m3, f8e5m2, i32, i8.")
    assert refusal(b.param, "not a name", "f32", [n]) == (
        "'not a name' is no name for a parameter: "
        "the letters a to z and A to Z, digits and single underscores, no keyword of Python."
    )
    assert refusal(b.store, a, [0, 0], "=", 1) == "'A' has shape [N] and takes 1 subscript, not 2."
    assert refusal(b.store, a, [0], "/=", 1) == "no assignment '/='. Assignments: = += -= *= max= min=."
    assert refusal(b.store, a, [0], "=", "x") == (
        "'x' is no number; values are int (i32), float (f32), elements, loop variables and sizes."
    )
    assert refusal(select, a[0], 1, 2) == (
        "the condition of a conditional expression is a comparison; a value of type f32 is none."
    )
    assert refusal(a.__getitem__, a[0]) == "Value: subscripts, bounds and extents are loop variables, sizes and integers."
    assert refusal(bool, a[0] > 1) == "a value is only known when the kernel runs; write select(c, a, b) to choose by it."
    with b.when(Constraint.ge(n, 3)):
        t = b.temp("t", "f32", initial=0)
    assert refusal(t.__getitem__, ()) == (
        "'t' is declared inside an `if` and is gone after it; declare it before that to use its value here."
    )
    assert refusal(b.loop("N", 0, Aff(3)).__enter__) == (
        "'N' is declared twice: it is already a size. Give this loop variable a name of its own."
    )
