"""The space of a search: knobs with values, enumerated or sampled in a fixed order."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from tilec.errors import ScheduleError

Knobs = dict[str, Any]


@dataclass(frozen=True)
class Space:
    """Knob names with their values, in the order given. A candidate is one value of each."""

    axes: tuple[tuple[str, tuple[Any, ...]], ...]

    @staticmethod
    def of(space: Mapping[str, Sequence[Any]]) -> Space:
        """Checked: every knob has a non-empty list of distinct plain values (int, str, bool or None)."""
        if not isinstance(space, Mapping):
            raise ScheduleError(f"tune(space={space!r}): a space is a dict of lists, as in {{'BM': [32, 64]}}")
        axes = []
        for name, values in space.items():
            if not isinstance(name, str) or not name.isidentifier():
                raise ScheduleError(f"tune(space=…): {name!r} is no name of a knob")
            if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
                raise ScheduleError(f"tune(space={{{name!r}: {values!r}}}): give a non-empty list of values")
            plain = tuple(int(v) if hasattr(v, "__index__") and not isinstance(v, bool) else v for v in values)
            bad = [v for v in plain if v is not None and not isinstance(v, bool | int | str)]
            if bad:
                raise ScheduleError(
                    f"tune(space=…): {name} has the value {bad[0]!r}; values are integers, strings, True, False, None"
                )
            if len(set(plain)) != len(plain):
                raise ScheduleError(f"tune(space=…): {name} lists a value twice: {list(values)}")
            axes.append((name, plain))
        return Space(tuple(axes))

    @property
    def names(self) -> tuple[str, ...]:
        """The knobs, in the order given."""
        return tuple(n for n, _ in self.axes)

    def __len__(self) -> int:
        return prod(len(v) for _, v in self.axes)

    def __iter__(self) -> Iterator[Knobs]:
        for values in product(*(v for _, v in self.axes)):
            yield dict(zip(self.names, values, strict=True))

    def at(self, index: int) -> Knobs:
        """The candidate of that number, as iteration counts them."""
        out: Knobs = {}
        for name, values in reversed(self.axes):
            index, k = divmod(index, len(values))
            out[name] = values[k]
        return {n: out[n] for n in self.names}

    def sample(self, most: int, seed: int) -> list[int]:
        """At most so many candidate numbers, ascending, the same for the same seed."""
        if most >= len(self):
            return list(range(len(self)))
        return sorted(random.Random(seed).sample(range(len(self)), most))
