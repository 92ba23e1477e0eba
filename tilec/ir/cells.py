"""Storage while a program runs: the cells of each buffer, the lanes that are active, and how an address finds its cells."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any, NoReturn

import numpy as np

from tilec.errors import InternalError
from tilec.ir.affine import Aff
from tilec.ir.arithmetic import EXACT, Exact
from tilec.ir.dtypes import DType


@dataclass
class Store:
    """The cells of one buffer: one copy per lane that was active at its owner, lane axes `lanes` first."""

    raw: np.ndarray  # flat
    shape: tuple[int, ...]
    dtype: DType
    lanes: tuple[Aff, ...] = ()
    strides: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.strides = tuple(prod(self.shape[n + 1 :]) for n in range(len(self.shape)))


@dataclass
class State:
    """Where execution stands: the value of every name (an int, or an array over the lanes) and the lane axes, oldest first.

    axes[name] = (axis, first): the name is first + position along that axis. positions: a name per axis for the position itself.
    """

    env: dict[str, Any]
    axes: dict[str, tuple[int, int]]
    extents: tuple[int, ...]
    positions: tuple[str, ...]
    made: int = 0  # axes made so far on the way here: stores keep naming old ones after lanes were dropped

    @property
    def shape(self) -> tuple[int, ...]:
        return self.extents[::-1]

    def enter(self, var: str, first: int, extent: int) -> State:
        axis = len(self.extents)
        place = f"#{self.made}"
        shape = (extent, *(1,) * axis)
        env, axes = dict(self.env), dict(self.axes)
        env[place] = np.arange(extent).reshape(shape)
        env[var] = env[place] + first
        axes[place], axes[var] = (axis, 0), (axis, first)
        return State(env, axes, (*self.extents, extent), (*self.positions, place), self.made + 1)

    def only(self, mask: Any) -> State | None:
        """The lanes where `mask` holds; None when there are none."""
        if not np.ndim(mask):
            return self if mask else None
        if mask.all():
            return self
        shape = self.shape
        mask = np.broadcast_to(mask, shape).T  # transposed: the newest loop varies fastest
        count = int(np.count_nonzero(mask))
        if not count:
            return None
        env = {n: np.broadcast_to(v, shape).T[mask] if isinstance(v, np.ndarray) else v for n, v in self.env.items()}
        place = f"#{self.made}"
        env[place] = np.arange(count)
        return State(env, {place: (0, 0)}, (count,), (place,), self.made + 1)

    def value(self, e: Aff) -> Any:
        return e.eval(self.env)


@dataclass(frozen=True)
class Where:
    """A buffer and the full index of its cells: thread coordinates first (see lanes.physical)."""

    buffer: str
    index: tuple[Aff, ...]


class Memory:
    """The stores of one run by buffer name, read and written for all active lanes at once."""

    def __init__(self, program: str, arithmetic: Exact = EXACT):
        self.program = program  # its name, for errors
        self.arithmetic = arithmetic
        self.stores: dict[str, Store] = {}

    def read_raw(self, where: Where, state: State) -> Any:
        """The bits at every lane (DTYPES[...].raw), as an array that broadcasts over the lanes; may be a view."""
        store, offset, steps = self._locate(where, state)
        if steps is None:
            return store.raw.take(offset)
        return _view(store, offset, steps, state) if steps else store.raw[offset]

    def write_raw(self, where: Where, state: State, raw: Any) -> None:
        store, offset, steps = self._locate(where, state)
        if steps:
            _view(store, offset, steps, state)[...] = raw
        else:
            store.raw[offset] = raw

    def read(self, where: Where, state: State) -> Any:
        """Arithmetic values."""
        return self.arithmetic.decode(self.stores[where.buffer].dtype.name, self.read_raw(where, state))

    def write(self, where: Where, state: State, value: Any) -> None:
        """Rounds arithmetic values to the buffer's dtype."""
        self.write_raw(where, state, self.arithmetic.encode(self.stores[where.buffer].dtype.name, value))

    def _locate(self, where: Where, state: State) -> tuple[Store, Any, list[int] | None]:
        """(store, offset, steps): cell offset + Σ step·position over the lane axes; steps None: offset is an array of cells."""
        store = self.stores[where.buffer]
        offset: Any = 0
        if not state.extents:  # one iteration at a time
            for e, n, stride in zip(where.index, store.shape, store.strides, strict=True):
                v = e.eval(state.env)
                if not 0 <= v < n:
                    self._leaves(where, v, v, n)
                offset += v * stride
            return store, offset, []
        steps = [0] * len(state.extents)
        general = False
        for e, n, stride in zip((*store.lanes, *where.index), store.shape, store.strides, strict=True):
            affine = _along_axes(e, state)
            if affine is None:
                v = state.value(e)
                a, b = (int(v), int(v)) if np.ndim(v) == 0 else (int(v.min()), int(v.max()))
                general |= np.ndim(v) > 0
                offset = offset + v * stride
            else:
                first, along = affine
                a = b = first
                offset = offset + first * stride
                for axis, c in along:
                    reach = c * (state.extents[axis] - 1)
                    a, b = a + min(reach, 0), b + max(reach, 0)
                    steps[axis] += c * stride
            if a < 0 or b >= n:
                self._leaves(where, a, b, n)
        if not general:
            return store, int(offset), steps
        for axis, step in enumerate(steps):
            if step:
                offset = offset + state.env[state.positions[axis]] * step
        return store, offset, None

    def _leaves(self, where: Where, low: int, high: int, extent: int) -> NoReturn:
        text = f"{where.buffer}[{', '.join(map(str, where.index))}]"
        raise InternalError(f"{self.program}: {text} leaves {where.buffer}: {low}..{high}, the extent is {extent}")


def _along_axes(e: Aff, state: State) -> tuple[int, list[tuple[int, int]]] | None:
    """`e` as (value at the first lane, [(axis, coefficient)]); None when it is not affine in the lane axes."""
    first = e.const
    along: list[tuple[int, int]] = []
    for atom, c in e.terms:
        if not isinstance(atom, str):
            return None
        place = state.axes.get(atom)
        if place is not None:
            along.append((place[0], c))
            first += c * place[1]
        else:
            v = state.env[atom]
            if isinstance(v, np.ndarray):
                return None
            first += c * v
    return first, along


def _view(store: Store, offset: int, steps: list[int], state: State) -> np.ndarray:
    size = store.raw.itemsize
    shape = [n if s else 1 for n, s in zip(state.extents, steps, strict=True)]
    return np.ndarray(shape[::-1], store.raw.dtype, store.raw.data, offset * size, [s * size for s in steps[::-1]])
