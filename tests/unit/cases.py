"""For the tests of known miscompilations: a refused step is illegal for the judge too, a legal one computes the same bits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.property.brute import judge
from tests.unit.scheduled import same
from tilec.errors import LegalityError, Witness
from tilec.lang.kernel import Definition
from tilec.schedule.core import rewrite
from tilec.schedule.schedule import Schedule, start


def scheduled(kernel: Definition, reassociate: str | None = None, **sizes: int) -> Schedule:
    return start(kernel.program, sizes, reassociate, False, None)


def refused(s: Schedule, name: str, *args: Any, **kwargs: Any) -> Witness:
    """The witness of a step that must be illegal; the judge finds the rewritten program wrong at the witness's sizes."""
    with pytest.raises(LegalityError) as caught:
        s.apply(name, *args, **kwargs)
    witness = caught.value.witness
    assert witness is not None, caught.value
    wrong = rewrite(s.program, name, args, kwargs)
    found = judge(wrong.source, wrong, {n: witness.sizes[n] for n in wrong.sizes})
    assert not found.legal, f"the judge accepts {name}{args}"
    return witness


def legal(s: Schedule, *tried: dict[str, int], bits: bool = True) -> Schedule:
    """The judge finds the schedule right at the tried sizes, and it runs to the same bits."""
    for sizes in tried or ({},):
        found = judge(s.program.source, s.program, sizes)
        assert found.legal, f"{sizes}: {found}"
        if bits:
            same(s.program, **sizes)
    return s
