"""What the language refuses: test_language.txt holds one program per error and the whole text of its refusal."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import tilec.lang
from tilec.errors import LanguageError
from tilec.lang import from_source, sizes

NAMES: dict[str, object] = {n: getattr(tilec.lang, n) for n in ("f64", "f32", "bf16", "i32", "exp")}
NAMES |= {"M": sizes("M"), "N": sizes("N"), "PI": 3.14, "math": math}


def cases() -> list[tuple[str, str, str]]:
    """(name, program, text) of every `=== name` section; `---` stands between program and text."""
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    out: list[tuple[str, str, str]] = []
    for section in text.split("=== ")[1:]:
        name, _, rest = section.partition("\n")
        program, _, refusal = rest.partition("---\n")
        out.append((name, program, refusal.strip()))
    return out


@pytest.mark.parametrize(("program", "text"), [pytest.param(p, t, id=n) for n, p, t in cases()])
def test_refused(program: str, text: str) -> None:
    with pytest.raises(LanguageError) as e:
        from_source(program, NAMES, file="k.py")
    assert str(e.value) == text


def test_every_case_has_both_parts() -> None:
    names = [n for n, program, text in cases() if program.startswith("def ") and text.startswith("k.py:")]
    assert len(names) == len(set(names)) == len(cases()) > 80
