"""Tuning with measurement: the model ranks, candidates are run, checked and timed in processes of their own, times are kept.

The NumPy backend stands in for compiled C here, so that the example needs no compiler: leave `backend` out to measure C.
"""

import tempfile
from pathlib import Path

import tilec

chain = tilec.workload("act_chain")


def rows_and_columns(s, BM, BN):
    s = s.compute_inline("T").compute_inline("Z")
    return s.split("i", BM, into=("io", "ii")).split("j", BN, into=("jo", "ji")).reorder("io", "jo", "ii", "ji")


def tune(database):
    return tilec.tune(
        chain,
        sizes={"M": 64, "N": 512},
        target="host",
        space={"BM": [16, 64], "BN": [64, 512]},
        schedule=rows_and_columns,
        measure=tilec.Measure(backend="numpy", repeats=3, candidates=3),
        database=database,
    )


with tempfile.TemporaryDirectory() as folder:
    first = tune(str(Path(folder) / "times.sqlite"))
    again = tune(str(Path(folder) / "times.sqlite"))

m = first.measurement
ranked_first = all(r.measured is not None for r in first.rows[:3])
print(f"{m.measured} of {m.tried} candidates measured, {len(first.rejected)} reasons to reject")
print(f"the best is {first.best.schedule.check().status}")
print(f"measured first: {ranked_first}, the rest by the model: {first.rows[3].measured is None}")
print(f"the second time {again.measurement.known} of {again.measurement.tried} were known")
print(f"regret of the model over {m.regret.candidates} candidates is a number: {m.regret.top1 >= 0}")
