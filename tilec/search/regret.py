"""How well a model ranks: rank correlation with what was measured, and what trusting it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tilec.errors import ScheduleError


@dataclass(frozen=True)
class Regret:
    """candidates: with both a predicted and a measured time. correlation: Spearman's, ties at their mean rank; NaN below three or
    where all are equal. top1, top8: the best of the model's first one and eight over the best of all, less one (0.05: 5 %
    slower). error: the median of |predicted ÷ measured - 1|.
    """

    candidates: int
    correlation: float
    top1: float
    top8: float
    error: float

    def __str__(self) -> str:
        if not self.candidates:
            return "nothing was measured"
        ranks = "" if self.correlation != self.correlation else f"rank correlation {self.correlation:.2f}, "
        return (
            f"model against measurement over {self.candidates} candidates: {ranks}"
            f"the model's first is {self.top1:.1%} slower than the best, the best of its first eight {self.top8:.1%}; "
            f"predicted times are off by {self.error:.0%} (median)"
        )


def regret(predicted: Sequence[float], measured: Sequence[float]) -> Regret:
    """Of candidates in any order; ScheduleError for sequences of different lengths or times that are not positive."""
    if len(predicted) != len(measured):
        raise ScheduleError(f"regret: {len(predicted)} predicted and {len(measured)} measured times")
    p, m = np.asarray(predicted, float), np.asarray(measured, float)
    if not len(p):
        return Regret(0, float("nan"), float("nan"), float("nan"), float("nan"))
    if not (np.isfinite(p).all() and np.isfinite(m).all() and (p > 0).all() and (m > 0).all()):
        raise ScheduleError("regret: times are positive, finite seconds")
    best = m.min()
    order = np.argsort(p, kind="stable")

    def first(count: int) -> float:
        """The best measured of the first `count`; of those that the model cannot tell apart at its end, a random choice."""
        if count >= len(p):
            return 0.0
        limit = p[order[count - 1]]
        sure, tied = m[p < limit], m[p == limit]
        if len(sure):
            tied = np.minimum(tied, sure.min())
        return _mean_of_best(tied, count - len(sure)) / float(best) - 1

    return Regret(len(p), spearman(p, m), first(1), first(8), float(np.median(np.abs(p / m - 1))))


def spearman(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> float:
    """Rank correlation, equal values at their mean rank; NaN below three values or where one side is constant."""
    x, y = _ranks(np.asarray(a, float)), _ranks(np.asarray(b, float))
    if len(x) < 3 or x.std() == 0 or y.std() == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[inverse]


def _mean_of_best(values: np.ndarray, picked: int) -> float:
    """The expected minimum of `picked` of the values, drawn at random without replacement."""
    ordered, n = np.sort(values), len(values)
    left, expected = 1.0, 0.0
    for k, v in enumerate(ordered[: n - picked + 1]):
        chance = picked / (n - k)  # that the k-th smallest is picked, given that none before was
        expected += left * chance * v
        left *= 1 - chance
    return expected
