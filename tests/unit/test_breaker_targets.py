"""Machine files that once ended in a foreign traceback, or in a time that is no number."""

from __future__ import annotations

import pytest

from tilec.errors import TargetError
from tilec.targets.load import parse

HEAD = 'name = "t"\ntitle = "T"\nkind = "cpu"\n'
BODY = """[sources]
s = "x"
[figures]
cores = { value = 4, unit = "count", source = "s" }
bandwidth = { value = 10, unit = "GB/s", source = "s" }
[vector]
f32 = { value = 1, unit = "TFLOP/s", source = "s" }
"""


def test_the_file_itself_is_fine():
    assert parse(HEAD + BODY, "t.toml").bandwidth == 10e9


@pytest.mark.parametrize("table", ["figures", "sources", "matrix", "vector", "paths", "threads"])
@pytest.mark.parametrize("value", ["3", "[1]", '"abs"'])
def test_a_table_is_a_table(table, value):
    rest = BODY.replace(f"[{table}]", "[matrix]" if table != "matrix" else "[vector]")
    with pytest.raises(TargetError, match=rf"t.toml: '{table}' is .*write \[{table}\]"):
        parse(f"{HEAD}{table} = {value}\n{rest}", "t.toml")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('4, unit = "count"', '4, unit = ["count"]', "is not a unit"),
        ('4, unit = "count", source = "s"', '4, unit = "count", source = ["s"]', "is not in"),
        ('s = "x"', "s = 3", "source 's' is not a text"),
        ("value = 4", "value = 1" + "0" * 400, "is no figure of a machine|is not a positive number"),
        ("value = 4", "value = 1" + "0" * 5000, "is not valid TOML"),
        ("value = 10", "value = 1e308", "1e.308 GB/s is no figure of a machine"),
        ("value = 10", "value = 1e-320", "is no figure of a machine"),
        ("value = 1,", "value = 1e-300,", "is no figure of a machine"),
        ("value = 10", 'value = 10, estimate = "no"', "estimate is true or false"),
        ("value = 10", "value = 10, estimte = true", "unknown key 'estimte'"),
        ("[sources]", "note = 3\n[sources]", "'note' is not a text"),
        ("[sources]", "machine = [3]\n[sources]", "'machine' is not a text"),
        ("[vector]", '[threads."²"]\n[vector]', "named by a number of threads"),
        ("[vector]", f"[threads.{'9' * 5000}]\n[vector]", "named by a number of threads"),
        ("[sources]", f"note = {'[' * 5000}\n[sources]", "is not valid TOML"),
    ],
)
def test_what_stands_in_a_file_is_checked(old, new, words):
    assert old in BODY
    with pytest.raises(TargetError, match=words):
        parse(HEAD + BODY.replace(old, new, 1), "t.toml")
