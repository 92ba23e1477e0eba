"""Names that the emitted C, its headers or its macros use themselves: once a text that does not compile."""

from __future__ import annotations

import re
from pathlib import Path

import tilec
from tests.numeric.compiled import assert_same, function, needs_compiler
from tilec.codegen.c_face import header
from tilec.codegen.c_scope import identifiers
from tilec.lang.kernel import from_source

TEXT = """
def f(M_PI: f32[at], int64_t: f32[at], x_out: f32[at]):
    for omp_get_thread_num in range(at):
        x_out[omp_get_thread_num] = M_PI[omp_get_thread_num] * int64_t[omp_get_thread_num]
"""


def program():
    kernel = tilec.Kernel(from_source(TEXT, {"f32": tilec.f32, "at": tilec.sizes("at")}))
    s = kernel.schedule().split("omp_get_thread_num", 4, into=("memcpy", "INT64_MAX"))
    return s.cache_read("M_PI", "memcpy", "global").parallel("memcpy").program


@needs_compiler
def test_sizes_arrays_and_loops_of_those_names_compile(tmp_path: Path) -> None:
    p = program()
    assert_same(p, function(p, tmp_path, ("-O0",)), {"at": 7})


def test_names_with_a_part_of_a_helpers_end() -> None:
    given = ["round", "part_x", "x_of_y", "a_from_b", "tilec_x", "x_as_y", "xofy", "vxofy", "M_PI", "omp_x"]
    assert len(set(identifiers(given).values())) == len(given)  # once endless


def test_no_header_has_them() -> None:
    text = header(program())
    for name in ("at", "M_PI", "int64_t"):
        assert not re.search(rf"[ *]{name}[,)]", text)
