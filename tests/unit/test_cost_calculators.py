"""Plain calculators against the reference texts, and the pipeline's simulation against its closed form."""

from __future__ import annotations

from fractions import Fraction

import pytest

from tilec.cost.latency import bytes_in_flight, warps_needed, waves
from tilec.cost.pipeline import pipeline_formula, pipeline_time
from tilec.cost.roofline import ridge, roofline
from tilec.errors import ResourceError, TargetError


def test_pipeline_equals_its_formula():
    for copy in (1, 2, 3, Fraction(7, 3)):
        for compute in (1, 2, 5, Fraction(1, 2)):
            for blocks in (1, 2, 3, 7):
                for slots in (1, 2, 3, 4):
                    assert pipeline_time(copy, compute, blocks, slots).time == pipeline_formula(copy, compute, blocks, slots)


def test_pipeline_reference():
    copy, compute = 32768 / (3.35e12 / 132), 2097152 / (989.4e12 / 132)
    p = pipeline_time(copy, compute, 4, 2)
    assert p.time == pytest.approx(5.44441789596589e-6, rel=1e-6)
    assert p.computes[0][1] == pytest.approx(1.57094685118978e-6, rel=1e-6)
    assert p.copies[2][0] == pytest.approx(2.58231402985075e-6, rel=1e-6)
    assert p.idle[0] == pytest.approx((1.57094685118978e-6, 2.58231402985075e-6), rel=1e-6)
    assert p.compute_busy / p.time == pytest.approx(0.2056, rel=1e-2)
    assert pipeline_time(copy, compute, 4, 1).time == pytest.approx(6.2837874047591e-6, rel=1e-6)
    assert pipeline_time(copy, compute, 4, 3).time == p.time
    assert pipeline_time(20, 20, 100).time == 2020 and pipeline_time(20, 5, 100).time == 2005
    uneven = pipeline_time([3, 1, 1], [1, 4, 1], 3, 2)
    assert uneven.computes == ((3, 4), (4, 8), (8, 9)) and uneven.copies == ((0, 3), (3, 4), (4, 5))


def test_roofline():
    r = roofline("h100-sxm", 103079215104, 3096 * 2**20, "bf16")
    assert r.intensity == pytest.approx(31.7519, abs=1e-3) and r.bound == "global"
    assert r.intensity / r.ridge == pytest.approx(0.1075, abs=1e-3)
    assert r.attainable == pytest.approx(r.intensity * 3.35e12)
    assert str(r) == (
        "h100-sxm, matrix unit in bf16: compute 104.2 us, global 969.1 us, bound by global; 31.75 flop/B, ridge 295.3"
    )
    assert r.time == r.memory == 3096 * 2**20 / 3.35e12
    assert roofline("h100-sxm", 1e15, 1, "bf16").bound == "compute"
    f32 = roofline("h100-sxm", 1e9, 0, "f32")
    assert (f32.unit, f32.intensity, f32.bound) == ("vector", float("inf"), "compute")
    assert ridge("h100-sxm", "f32", "vector") == pytest.approx(20, abs=0.05)
    with pytest.raises(TargetError, match="no matrix rate for 'f32'"):
        roofline("h100-sxm", 1, 1, "f32", unit="matrix")
    with pytest.raises(ResourceError, match="efficiency"):
        roofline("h100-sxm", 1, 1, efficiency=0)


def test_latency_hiding_reference():
    f = bytes_in_flight("h100-sxm", 16, 4, 16, latency=600e-9)
    assert f.needed == pytest.approx(2.01e6) and f.needed_per_sm == pytest.approx(15227.27, abs=0.01)
    assert f.had_per_sm == 32768 and f.cover == pytest.approx(2.15192835820896)
    g = bytes_in_flight("h100-sxm", 16, 2, 16, latency=1000e-9)
    assert g.cover == pytest.approx(0.645578507462687)
    assert warps_needed("h100-sxm", 2, 16, latency=1000e-9) == 25
    assert bytes_in_flight("h200", 64, 1, latency=600e-9).needed == pytest.approx(2.88e6)
    with pytest.raises(ResourceError):
        warps_needed("h100-sxm", 0)


def test_waves():
    w = waves(132, 133)
    assert (w.waves, w.last, w.efficiency) == (2, 1, Fraction(133, 264))
    assert waves("h100-sxm", 1536, 2).waves == 6
    with pytest.raises(ResourceError):
        waves(132, 0)
