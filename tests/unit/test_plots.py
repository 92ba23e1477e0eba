"""Pictures: what they show, as text of the SVG; where they come from; what they refuse. matplotlib is the extra `plot`."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import tilec
from tests.pages import ROOT
from tests.pictures import FOLDER, PICTURES
from tilec import cli
from tilec.api import Cost
from tilec.errors import MeasureError, ResourceError, TargetError
from tilec.report import canvas, plots
from tilec.report.canvas import Panel, Picture

mpl = pytest.importorskip("matplotlib")
PINNED = re.findall(r"^matplotlib==(.*)$", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)[0]


def texts(path: Path) -> list[str]:
    """Every text of an SVG file, in order."""
    tree = ElementTree.parse(path)
    return ["".join(e.itertext()).strip() for e in tree.iter("{http://www.w3.org/2000/svg}text")]


def gemm(target: str = "h100-sxm", **rest: int) -> Cost:
    s = tilec.workload("gemm").schedule().split("i", 128, into=("io", "ii")).split("j", 128, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ii", "ji").split("acc.k", 32, into=("ko", "ki")).reorder("io", "jo", "ko", "ii", "ji", "ki")
    s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", "register")
    s = s.bind("io", "block.y").bind("jo", "block.x")
    return s.cost(target, M=1024, K=4096, N=12288, **rest)


def test_occupancy(tmp_path: Path) -> None:
    o = tilec.occupancy("h100-sxm", threads=256, registers=128, shared_bytes=96 * 1024)
    shown = texts(plots.occupancy_plot(o).save(tmp_path / "o.svg"))
    assert "one SM of h100-sxm with 2 resident blocks" in shown
    assert {"16 of 64 warps", "65,536 of 65,536", "194.0 of 228 KiB", "2 of 32"} <= set(shown)
    assert "limited by registers and shared (bold)" in shown
    assert any(t.startswith("one more block: registers") for t in shown)
    figure = plots.occupancy_plot(o).figure()
    figure.canvas.draw()
    label = figure.axes[0].xaxis.label.get_window_extent()
    assert figure.bbox.x0 <= label.x0 and label.x1 <= figure.bbox.x1  # nothing is cut off


def test_segments_are_the_resident_blocks() -> None:
    """One bar per resource for the SM, and one segment per block on it, side by side up to what is used."""
    o = tilec.occupancy("8.6", threads=128, registers=64, shared_bytes=8192)
    (axes,) = plots.occupancy_plot(o).figure().axes
    assert o.blocks > 2
    bars = [p for p in axes.patches if p.get_width() < 1]
    resources = ("threads", "registers", "shared", "blocks")
    assert len(bars) == len(resources) * o.blocks
    ends = [max(p.get_x() + p.get_width() for p in bars[n * o.blocks : (n + 1) * o.blocks]) for n in range(4)]
    m = o.machine
    assert o.warps is not None and o.allocated_registers is not None
    used = (o.blocks / m.blocks_per_sm, o.blocks * o.allocated_shared / o.shared_per_sm)
    assert ends == pytest.approx([*used, o.blocks * o.allocated_registers / m.registers_per_sm, o.warps / m.warps_per_sm])


def test_pipeline(tmp_path: Path) -> None:
    p = tilec.pipeline_time(5, 3, 4, slots=2)
    picture = plots.pipeline_plot(p, 2)
    (axes,) = picture.figure().axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["compute", "copy", "slot 0", "slot 1"]
    shown = texts(picture.save(tmp_path / "p.svg"))
    assert "4 blocks over 2 slots: 23 us" in shown and "time, us; hatched: the compute unit waits" in shown
    held = [b for b in axes.patches if b.get_alpha() == 0.45]
    assert [(b.get_x(), b.get_width()) for b in held] == [(a[0], b[1] - a[0]) for a, b in zip(p.copies, p.computes, strict=True)]
    with pytest.raises(ResourceError, match="500 blocks are too many to draw"):
        plots.pipeline_plot(tilec.pipeline_time(1, 1, 500), 2)


def test_waves() -> None:
    picture = plots.waves_plot(tilec.waves("h100-sxm", 1536, 8))
    (axes,) = picture.figure().axes
    assert axes.get_title(loc="left") == "1,536 blocks in 2 waves of 1,056, 480 in the last: 72.7% of the places filled"
    assert [p.get_height() for p in axes.patches] == [1056, 1056, 1056, 480]


def test_roofline() -> None:
    cost = gemm(threads=256)
    (axes,) = plots.roofline_plot(cost).figure().axes
    labels = [t.get_text() for t in axes.get_legend().get_texts()]
    assert labels[0].startswith("global: ") and "at 3,350 GB/s" in labels[0]
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert len(points) == len(labels)
    for line in points:
        assert line.get_ydata()[0] == pytest.approx(cost.flops / cost.time)
    assert {t.get_text() for t in axes.texts} == {"matrix bf16 989.4 TFLOP/s", "vector f32 66.9 TFLOP/s"}


def test_front_and_bound() -> None:
    found = tilec.tune(tilec.workload("gemm_silu"), {"M": 512, "N": 512, "K": 512}, "h100-sxm")
    (axes,) = plots.front_plot(found).figure().axes
    by = {line.get_label(): line for line in axes.lines}
    best = found.best.cost
    assert (by["picked"].get_xdata()[0], by["picked"].get_ydata()[0]) == (
        best.footprint["shared"] / 1024,
        best.traffic.total("global"),
    )
    assert set(by["lower bound: every byte once"].get_ydata()) == {best.lower_bound("global")}
    x, y = by["lower bound with that + registers"].get_data()
    assert y[3] == best.lower_bound("global", int(x[3] * 1024) + 4 * 65536)
    assert min(by["front"].get_ydata()) >= max(min(y), best.lower_bound("global"))  # nothing moves less than anything may


def test_the_same_numbers_give_the_same_bytes(tmp_path: Path) -> None:
    a, b = (PICTURES["pipeline"]().save(tmp_path / n) for n in ("a.svg", "b.svg"))
    assert a.read_bytes() == b.read_bytes()


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_of_the_pages(name: str, tmp_path: Path) -> None:
    """The files shown are those of the code; glyph positions may differ by version, the words may not."""
    kept = FOLDER / f"{name}.svg"
    made = PICTURES[name]().save(tmp_path / f"{name}.svg")
    assert texts(made) == texts(kept), "run `python -m tests.pictures` and look at the difference"
    if mpl.__version__ == PINNED:
        assert made.read_bytes() == kept.read_bytes()


def test_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "o.png"
    assert cli.main(["occupancy", "h100-sxm", "--threads", "256", "--plot", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"picture in {path}\n")
    assert path.read_bytes()[:4] == b"\x89PNG"
    path = tmp_path / "c.svg"
    words = ["cost", "gemm", "M=64", "N=64", "K=64", "--target", "h100-sxm", "--json", "--plot", str(path)]
    assert cli.main(words) == 0
    assert json.loads(capsys.readouterr().out)["plot"] == str(path)
    assert any("gemm on h100-sxm" in t for t in texts(path))


def test_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    picture = PICTURES["pipeline"]()
    with pytest.raises(MeasureError, match=r"'x.bmp' must end in .svg, .png, .pdf"):
        picture.save("x.bmp")
    with pytest.raises(MeasureError, match="can't be written: No such file"):
        picture.save(tmp_path / "none" / "x.svg")
    with pytest.raises(TargetError, match="has no roofline here"):
        plots.roofline_plot(tilec.workload("transpose").schedule().cost("h100-sxm", M=8, N=8))
    monkeypatch.setattr(canvas.importlib, "import_module", _missing)
    assert cli.main(["occupancy", "8.6", "--plot", str(tmp_path / "x.svg")]) == 2
    assert capsys.readouterr().err == (
        'MeasureError: plot: pictures need matplotlib.\n  Install it with the extra: pip install "tilec[plot]"\n'
    )


def _missing(name: str) -> None:
    raise ImportError(name)


def test_panels_stand_below_each_other() -> None:
    two = canvas.below([Picture((Panel("a", 1, lambda axes: None),)), Picture((Panel("b", 2, lambda axes: None),))])
    assert [a.get_title(loc="left") for a in two.figure().axes] == ["a", "b"]
