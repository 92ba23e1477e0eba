"""The pictures that README and docs show: `python -m tests.pictures` writes them again (with matplotlib as pinned)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import tilec
from tests.pages import ROOT
from tilec.api import Cost, Tuned
from tilec.report.canvas import Picture
from tilec.report.plots import front_plot, occupancy_plot, pipeline_plot, roofline_plot, waves_plot

FOLDER = ROOT / "docs" / "pictures"
SIZES = {"M": 1024, "N": 12288, "K": 4096}
TARGET = "h100-sxm"


@cache
def tuned() -> Tuned:
    return tilec.tune(tilec.workload("gemm_silu"), SIZES, TARGET)


@cache
def picked() -> Cost:
    return tuned().best.cost


def waves() -> Picture:
    found = picked().launch[0].waves(tilec.target(TARGET))
    assert found is not None
    return waves_plot(found)


def occupancy() -> Picture:
    return occupancy_plot(tilec.occupancy(TARGET, threads=256, registers=128, shared_bytes=96 * 1024))


PICTURES: dict[str, Callable[[], Picture]] = {
    "front": lambda: front_plot(tuned()),
    "roofline": lambda: roofline_plot(picked()),
    "occupancy": occupancy,
    "pipeline": lambda: pipeline_plot(tilec.pipeline_time(2, 3, 6, slots=2), slots=2),
    "waves": waves,
}


def write(folder: Path = FOLDER) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        print(picture().save(folder / f"{name}.svg"))


if __name__ == "__main__":
    write()
