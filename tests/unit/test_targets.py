"""Machine files: the reference figures, every figure's source, and what a wrong file says."""

from __future__ import annotations

import csv
import pickle
from pathlib import Path

import pytest

from tilec.errors import TargetError
from tilec.targets import load, names
from tilec.targets.load import capabilities, parse

DATA = Path(__file__).parent.parent / "data"

GOOD = """
name = "toy"
title = "a toy"
kind = "accelerator"
[sources]
paper = "a paper"
[figures]
cores = { value = 2, unit = "count", source = "paper" }
bandwidth = { value = 1.5, unit = "GB/s", source = "paper" }
shared_per_core = { value = 64, unit = "KiB", source = "paper" }
[vector]
f32 = { value = 3, unit = "GFLOP/s", source = "paper" }
"""


def test_names_and_reference_figures():
    assert set(names()) >= {"v100", "a100-sxm", "h100-sxm", "h200", "b200", "rtx-3090", "rtx-4090", "rtx-pro-6000", "host"}
    h100 = load("h100-sxm")
    assert h100.peak("matrix", "bf16") == (989.4e12, "bf16")
    assert (h100.bandwidth, h100.cores) == (3.35e12, 132)
    pro = load("rtx-pro-6000")
    assert pro.peak("matrix", "bf16") == (503.8e12, "bf16")
    assert (pro.bandwidth, pro.cores, pro.limits.shared_per_sm) == (1792e9, 188, 102400)
    assert abs(h100.ridge("bf16") - 295) < 0.5
    assert abs(load("a100-sxm").ridge("bf16") - 153.016) < 0.01
    assert load("b200").ridge("bf16") == 281.25
    assert load("h100-sxm").shared_capacity == 232448 and load("rtx-3090").shared_capacity == 101376


def test_every_figure_has_a_source_and_every_gpu_its_clock_times_width():
    for name in names():
        target = load(name)
        for _, figure in (*target.figures, *target.matrix_peaks, *target.vector_peaks):
            assert figure.source and figure.value > 0
        if target.kind == "gpu":  # three independent figures agree: 64 or 128 f32 lanes per SM, one multiply-add each a cycle
            # (Hopper's f32 rate is printed at its 1980 MHz boost, its matrix rates at 1830 MHz)
            lanes = target.peak("vector", "f32")[0] / (2 * target.cores * target.clock)
            assert min(abs(lanes / 64 - 1), abs(lanes / 128 - 1)) < 0.09, (name, lanes)
        assert pickle.loads(pickle.dumps(target)) == target or name == "host"


def test_limits_equal_the_public_table():
    with open(DATA / "arch_limits.csv", encoding="utf-8") as f:
        rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
    assert {r["cc"] for r in rows} <= set(capabilities())
    for r in rows:
        limits = load(r["cc"]).limits
        assert limits.threads_per_sm == int(r["threads_per_sm"]) and limits.warps_per_sm == int(r["warps_per_sm"])
        assert limits.blocks_per_sm == int(r["blocks_per_sm"])
        assert limits.registers_per_sm == int(r["regs_per_sm"]) and limits.registers_per_block == int(r["regs_per_block"])
        assert limits.registers_per_thread == int(r["max_regs_per_thread"]) and limits.register_unit == int(r["reg_alloc_unit"])
        assert limits.shared_per_sm == int(r["smem_per_sm"]) and limits.shared_per_block == int(r["smem_per_block_optin"])
        assert limits.shared_reserved == int(r["smem_reserved_per_block"]) and limits.shared_unit == int(r["smem_alloc_unit"])
        assert limits.shared_configs == tuple(int(k) * 1024 for k in r["smem_configs_KB"].split(","))


def test_unknown_target_lists_the_names():
    with pytest.raises(TargetError) as e:
        load("h100")
    assert "unknown target 'h100'. Did you mean 'h100-sxm'?" in str(e.value) and "rtx-pro-6000" in str(e.value)
    with pytest.raises(TargetError, match=r"unknown compute capability '5\.2'"):
        load("5.2")
    with pytest.raises(TargetError, match="no target file"):
        load("/nowhere/x.toml")


def test_bare_capability_has_limits_and_no_rates():
    target = load("7.5")
    assert target.kind == "limits" and target.limits.warps_per_sm == 32
    with pytest.raises(TargetError, match=r"'7\.5' has no figure 'bandwidth'"):
        _ = target.bandwidth
    with pytest.raises(TargetError, match="no matrix rate for 'bf16'"):
        target.ridge("bf16")


def test_a_file_of_ones_own(tmp_path):
    path = tmp_path / "toy.toml"
    path.write_text(GOOD)
    toy = load(path)
    assert (toy.cores, toy.bandwidth, toy.shared_capacity, toy.peak("vector", "bf16")) == (2, 1.5e9, 65536, (3e9, "f32"))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            'bandwidth = { value = 1.5, unit = "GB/s", source = "paper" }\n',
            "",
            "figure 'bandwidth' is missing; kind accelerator needs",
        ),
        ("value = 1.5", "value = -1.5", "figures.bandwidth: -1.5 is not a positive number"),
        ("value = 1.5", "value = nan", "figures.bandwidth: nan is not a positive number"),
        ("value = 1.5", 'value = "fast"', "figures.bandwidth: 'fast' is not a positive number"),
        ('unit = "GB/s"', 'unit = "GiB/s"', "figures.bandwidth: unit 'GiB/s' is not a unit of it"),
        ('unit = "KiB"', 'unit = "GB/s"', "figures.shared_per_core: unit 'GB/s' is not a unit of it"),
        ("value = 2,", "value = 2.5,", "figures.cores: 2.5 is not a whole number"),
        ('[vector]\nf32 = { value = 3, unit = "GFLOP/s", source = "paper" }', "", "no peak rate"),
        ("cores =", "corse =", "unknown figure 'corse'"),
        ('kind = "accelerator"', 'kind = "gpu"', "figure 'sms' is missing"),
        ('kind = "accelerator"', 'kind = "fpga"', "kind 'fpga' is not known"),
        ('unit = "GB/s", source = "paper"', 'unit = "GB/s", source = "hearsay"', "source 'hearsay' is not in [sources]"),
        ('title = "a toy"', "", "'title' is missing"),
        ("[figures]", "[figures", "is not valid TOML"),
    ],
)
def test_wrong_figures(old, new, says):
    assert old in GOOD
    with pytest.raises(TargetError) as e:
        parse(GOOD.replace(old, new), "toy.toml")
    assert "toy.toml" in str(e.value) and says in str(e.value)
