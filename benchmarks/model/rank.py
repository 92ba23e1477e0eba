"""Predicted times of every row of a GEMM tuning space, and how well their order agrees with the measured one."""

from __future__ import annotations

import csv
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.model.section import rows
from benchmarks.model.xgemm import FACTORS, KNOBS, SWITCHES, scheduled, xgemm
from tilec.cost.block import CONSTANTS, Constants, block_figures
from tilec.cost.launches import launches
from tilec.cost.products import Products
from tilec.cost.requests import CUDA, OPENCL
from tilec.cost.threadwork import ThreadWork, thread_work
from tilec.schedule.schedule import start
from tilec.schedule.sizes import bind
from tilec.search.unproved import Memo, unproved
from tilec.targets import Target, load

SIZE = 4096
LARGEST_KNOB = 2**20
FAILED = ("", "nan", "inf", "infinity", "-inf", "-infinity")
READER = Products.of(FACTORS)


def structure(switches: Mapping[str, int], memo: Memo | None = None) -> ThreadWork:
    """What a thread does under these switches, as formulas in the other knobs and the sizes M, N, K."""
    numbers = READER.values
    fresh = unproved(start(xgemm.program, contract=True), {} if memo is None else memo)
    fresh = replace(fresh, program=bind(fresh.program, {n: numbers[n] for n in ("M", "N", "K")}))
    program = scheduled(fresh, {k: switches[k] if k in SWITCHES else numbers[k] for k in KNOBS}).program
    work = thread_work(program, launches(program)[0], READER)
    assert work is not None
    return work


class Structures:
    """The structures read so far."""

    def __init__(self) -> None:
        self._memo: Memo = {}
        self._known: dict[tuple[int, ...], ThreadWork] = {}

    def of(self, switches: Sequence[int]) -> ThreadWork:
        key = tuple(int(x) for x in switches)
        if key not in self._known:
            self._known[key] = structure(dict(zip(SWITCHES, key, strict=True)), self._memo)
        return self._known[key]


# what the kernel requires: each number a multiple of the product that follows
MULTIPLES = (
    ("MWG", ("MDIMC", "VWM")),
    ("NWG", ("NDIMC", "VWN")),
    ("MWG", ("MDIMA", "VWM")),
    ("NWG", ("NDIMB", "VWN")),
    ("KWG", ("KWI",)),
)


def check_knobs(knobs: Mapping[str, np.ndarray], where: str) -> None:
    """ValueError for a row that the kernel does not have, with its number (from 1) and what is wrong."""
    for k in KNOBS:
        wrong = np.flatnonzero((knobs[k] < 0) | (knobs[k] > 1)) if k in SWITCHES else np.flatnonzero(knobs[k] < 1)
        if len(wrong):
            what = "a switch is 0 or 1" if k in SWITCHES else "a knob is at least 1"
            raise ValueError(f"{where}: row {wrong[0] + 1} has {k}={knobs[k][wrong[0]]}: {what}")
    threads = knobs["MDIMC"] * knobs["NDIMC"]
    rules = [(whole, parts, knobs[whole], np.prod([knobs[p] for p in parts], axis=0)) for whole, parts in MULTIPLES]
    for across, stage in (("MDIMA", "SA"), ("NDIMB", "SB")):
        used = knobs[stage] == 1
        rules.append(("MDIMC·NDIMC", (across,), np.where(used, threads, knobs[across]), knobs[across]))
        rules.append(
            ("KWG", (f"(MDIMC·NDIMC ÷ {across})",), knobs["KWG"], np.where(used, np.maximum(1, threads // knobs[across]), 1))
        )
    for whole, parts, value, unit in rules:
        wrong = np.flatnonzero(value % unit)
        if len(wrong):
            raise ValueError(
                f"{where}: row {wrong[0] + 1}: {whole}={value[wrong[0]]} is no multiple of {'·'.join(parts)}={unit[wrong[0]]}"
            )


@dataclass(frozen=True)
class Space:
    """The rows of a file: knobs as arrays, measured times in ms (inf where a set failed), the front end of its compiler."""

    name: str
    knobs: Mapping[str, np.ndarray]
    measured: np.ndarray
    front: str

    @property
    def count(self) -> int:
        return len(self.measured)

    def take(self, rows: np.ndarray) -> Space:
        """These rows only."""
        return Space(self.name, {k: v[rows] for k, v in self.knobs.items()}, self.measured[rows], self.front)


def read(file: str | Path, front: str | None = None) -> Space:
    """A file with the columns KNOBS and time_ms. front: "opencl" or "cuda"; None: CUDA where the columns of CLBlast's second
    kernel (GEMMK, KREG) are there, as in its port to CUDA C++, else OpenCL. ValueError for a missing column, no usable row, or an
    entry that is no whole number (a time: above 0)."""
    try:
        table = rows(Path(file) if Path(file).exists() else file)
    except (EOFError, zlib.error, csv.Error, UnicodeError) as e:  # cut off or damaged
        raise ValueError(f"{file} can't be read as a table: {e}") from None
    if not table:
        raise ValueError(f"{file}: no rows")
    missing = [k for k in (*KNOBS, "time_ms") if k not in table[0]]
    if missing:
        raise ValueError(f"{file}: no column {missing[0]!r}. A space has the columns {', '.join((*KNOBS, 'time_ms'))}")
    for n, r in enumerate(table, 1):
        if None in r.values() or None in r:
            raise ValueError(f"{file}: row {n} has more or fewer entries than there are columns")
    lines = [(n, r) for n, r in enumerate(table, 1) if r.get("status", "ok") in ("ok", "")]
    lines = [(n, r) for n, r in lines if str(r["time_ms"]).strip().lower() not in FAILED]
    lines = [(n, r) for n, r in lines if int(_number(file, n, "GEMMK", r.get("GEMMK") or "0")) == 0]
    if not lines:
        raise ValueError(f"{file}: no row with a measured time (of kernel 0)")
    measured = np.array([_number(file, n, "time_ms", r["time_ms"]) for n, r in lines])
    if not np.all(measured > 0):
        n, r = lines[int(np.flatnonzero(measured <= 0)[0])]
        raise ValueError(f"{file}: row {n}: time_ms={r['time_ms']} is no time")
    knobs = {k: np.array([_whole(file, n, k, r[k]) for n, r in lines], dtype=np.int64) for k in KNOBS}
    check_knobs(knobs, str(file))
    return Space(
        name=Path(file).name.removesuffix(".gz").removesuffix(".csv").removeprefix("gemm_space_"),
        knobs=knobs,
        measured=measured,
        front=front or (CUDA if "GEMMK" in table[0] else OPENCL),
    )


def _number(file: str | Path, row: int, column: str, text: str | None) -> float:
    try:
        value = float(text) if isinstance(text, str) else float("nan")
    except ValueError:
        value = float("nan")
    if not abs(value) < float("inf"):
        raise ValueError(f"{file}: row {row}: {column}={text!r} is no number")
    return value


def _whole(file: str | Path, row: int, column: str, text: str | None) -> int:
    value = _number(file, row, column, text)
    if value != int(value) or abs(value) > LARGEST_KNOB:
        raise ValueError(f"{file}: row {row}: {column}={text!r} is no whole number up to {LARGEST_KNOB}")
    return int(value)


def predict(
    space: Space,
    target: str | Target,
    structures: Structures,
    constants: Constants = CONSTANTS,
    without: frozenset[str] = frozenset(),
    size: int = SIZE,
) -> np.ndarray:
    """Seconds per row; inf where a block does not fit on the machine. ValueError for a size that is no multiple of the tiles,
    TargetError for a machine without SMs or without a rate in f32."""
    machine = load(target)
    machine.lanes("f32")
    for tile in ("MWG", "NWG", "KWG"):
        if np.any(size % space.knobs[tile]):
            wrong = space.knobs[tile][np.flatnonzero(size % space.knobs[tile])[0]]
            raise ValueError(f"size {size} is no multiple of {tile}={wrong}")
    code = sum(space.knobs[k] << bit for bit, k in enumerate(SWITCHES))
    out = np.zeros(space.count)
    for number in np.unique(code):
        kind = [int(number) >> bit & 1 for bit in range(len(SWITCHES))]
        mine = np.flatnonzero(code == number)
        knobs = {k: v[mine] for k, v in space.knobs.items() if k not in SWITCHES}
        environment = {**knobs, "M": size, "N": size, "K": size}
        out[mine] = block_figures(structures.of(kind), machine, environment, space.front, constants, without).seconds
    return out


@dataclass(frozen=True)
class Agreement:
    """spearman: rank correlation over the space. first_pick, best_of_ten: measured time of the model's first, and of the best of
    its first ten, ÷ the best measured one. recall: share of the truly best 1 % among the predicted best 5 %. scale: median of
    measured ÷ predicted."""

    spearman: float
    first_pick: float
    best_of_ten: float
    recall: float
    scale: float


def agreement(predicted: np.ndarray, measured: np.ndarray) -> Agreement:
    """How well predictions order a space; ties keep the order of the rows."""
    order = np.argsort(predicted, kind="stable")
    best = measured.min()
    few = max(1, len(measured) // 100)
    truly = set(np.argsort(measured, kind="stable")[:few].tolist())
    found = truly & set(order[: max(1, len(measured) // 20)].tolist())
    return Agreement(
        spearman=float(np.corrcoef(_ranks(predicted), _ranks(measured))[0, 1]),
        first_pick=float(measured[order[0]] / best),
        best_of_ten=float(measured[order[:10]].min() / best),
        recall=len(found) / few,
        scale=float(np.median(measured / predicted)),
    )


def _ranks(values: np.ndarray) -> np.ndarray:
    """Ranks, equal values sharing the mean of theirs."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[which.ravel()]
