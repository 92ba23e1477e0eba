"""Amounts with their formulas: traffic by memory, buffer and direction; bytes held by memory. A formula gives a number when every
size is known; asking for a number while a size is open is a ResourceError that names it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tilec.errors import ResourceError
from tilec.ir.closed import Closed, total
from tilec.ir.program import MEMORIES


class Bytes(int):
    """Bytes of one buffer; `.read` and `.write` are its two directions."""

    read: int
    write: int

    def __new__(cls, read: int, write: int) -> Bytes:
        self = super().__new__(cls, read + write)
        self.read, self.write = read, write
        return self

    def __reduce__(self) -> tuple[type[Bytes], tuple[int, int]]:
        return Bytes, (self.read, self.write)


@dataclass(frozen=True)
class Flow:
    """Bytes that one buffer's accesses move in one direction. `fill`: the nearer end of a copy, reported apart."""

    memory: str
    buffer: str
    direction: str  # "read" or "write"
    fill: bool
    bytes: Closed
    launch: int


@dataclass(frozen=True)
class Traffic:
    """Bytes crossing each memory's edge, re-reads included; nothing here assumes a cache."""

    flows: tuple[Flow, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)

    def total(self, memory: str = "global", direction: str | None = None) -> int:
        """Bytes read and written (or one of the two)."""
        return number(self.formula(memory, direction), self.sizes, f"traffic of {memory} memory")

    def by_buffer(self, memory: str = "global") -> dict[str, Bytes]:
        """Bytes per buffer; each is an int with `.read` and `.write`."""
        names = dict.fromkeys(f.buffer for f in self._of(memory))
        return {n: Bytes(*(self._number(memory, n, d) for d in ("read", "write"))) for n in names}

    def formula(self, memory: str = "global", direction: str | None = None, buffer: str | None = None) -> Closed:
        """The same in terms of the sizes; `str(...)` to read, `.eval({...})` for numbers or arrays of candidates."""
        return total(f.bytes for f in self._of(memory) if direction in (None, f.direction) and buffer in (None, f.buffer))

    def fill(self, memory: str) -> int:
        """Bytes that copies move at their nearer end, not part of the total."""
        return number(total(f.bytes for f in self._of(memory, True)), self.sizes, f"fill of {memory} memory")

    def fill_by_buffer(self, memory: str) -> dict[str, int]:
        """Bytes filled, per buffer."""
        names = dict.fromkeys(f.buffer for f in self._of(memory, True))
        return {
            n: number(total(f.bytes for f in self._of(memory, True) if f.buffer == n), self.sizes, f"fill of {n}") for n in names
        }

    @property
    def memories(self) -> tuple[str, ...]:
        """The memories that something crosses, in the order of MEMORIES."""
        found = {f.memory for f in self.flows}
        return tuple(m for m in MEMORIES if m in found)

    def launch(self, n: int) -> Traffic:
        """The flows of one launch alone."""
        return Traffic(tuple(f for f in self.flows if f.launch == n), self.sizes)

    def _of(self, memory: str, fill: bool = False) -> list[Flow]:
        _known(memory)
        return [f for f in self.flows if f.memory == memory and f.fill == fill]

    def _number(self, memory: str, buffer: str, direction: str) -> int:
        return number(self.formula(memory, direction, buffer), self.sizes, f"traffic of {buffer}")


@dataclass(frozen=True)
class Held(Mapping[str, int]):
    """Bytes per memory, with what they are made of: (memory, buffer, formula). A memory without buffers holds 0."""

    parts: tuple[tuple[str, str, Closed], ...]
    sizes: Mapping[str, int] = field(default_factory=dict)
    marks: tuple[str, ...] = ()  # what the numbers rest on, where it isn't the plain rule

    def __getitem__(self, memory: str) -> int:
        return number(self.formula(memory), self.sizes, f"bytes in {memory} memory")

    def __iter__(self) -> Iterator[str]:
        found = {m for m, _, _ in self.parts}
        return (m for m in MEMORIES if m in found)

    def __len__(self) -> int:
        return len({m for m, _, _ in self.parts})

    def __hash__(self) -> int:
        return hash((self.parts, self.marks))

    def formula(self, memory: str) -> Closed:
        """The bytes in the sizes."""
        _known(memory)
        return total(c for m, _, c in self.parts if m == memory)

    def known(self, memory: str) -> int | None:
        """The bytes, or None while they depend on an open size."""
        formula = self.formula(memory)
        return int(formula.eval(self.sizes)) if formula.names <= set(self.sizes) else None

    def by_buffer(self, memory: str) -> dict[str, int]:
        """Bytes per buffer held in that memory."""
        _known(memory)
        return {b: number(c, self.sizes, f"bytes of {b}") for m, b, c in self.parts if m == memory}


@dataclass(frozen=True)
class WorkingSet(Mapping[str, int]):
    """Peak of live bytes in global memory over the steps; `timeline` has the live bytes during each step."""

    live: tuple[tuple[str, ...], ...]  # the buffers alive during each step
    buffers: Mapping[str, Closed]
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def timeline(self) -> tuple[int, ...]:
        """Live bytes during each step."""
        return tuple(number(total(self.buffers[n] for n in names), self.sizes, "working set") for names in self.live)

    @property
    def formulas(self) -> tuple[Closed, ...]:
        """The same in the sizes."""
        return tuple(total(self.buffers[n] for n in names) for names in self.live)

    def __getitem__(self, memory: str) -> int:
        if memory != "global":
            raise KeyError(memory)
        return max(self.timeline, default=0)

    def __iter__(self) -> Iterator[str]:
        return iter(("global",))

    def __len__(self) -> int:
        return 1

    def __hash__(self) -> int:
        return hash(self.live)


def number(formula: Closed, sizes: Mapping[str, int], what: str) -> int:
    """The formula's value; ResourceError names the sizes that are still open."""
    missing = sorted(formula.names - set(sizes))
    if missing:
        raise ResourceError(
            f"{what} depends on {' and '.join(missing)}: give cost({missing[0]}=…), or read its formula: {formula}"
        )
    value: Any = formula.eval(sizes)
    return int(value)


def _known(memory: str) -> None:
    if memory not in MEMORIES:
        raise ResourceError(f"no memory {memory!r}. Memories: {', '.join(MEMORIES)}")
