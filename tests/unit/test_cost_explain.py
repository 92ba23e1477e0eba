"""What a cost says of itself: every level with formula, number and share; what makes one beat another; what was not checked."""

from __future__ import annotations

import re

import pytest

import tilec
from tilec.api import Cost
from tilec.cost.checked import unchecked
from tilec.cost.explain_time import formulas, us
from tilec.cost.kernel_time import l2_bandwidth
from tilec.cost.levels import levels, shared_bandwidth
from tilec.errors import ResourceError, TargetError
from tilec.targets.load import unmeasured

GIVEN = {"M": 1024, "K": 4096, "N": 12288}


def gemm(bm: int = 128, bn: int = 128, stages: int = 3, target: str = "h100-sxm", **given: int) -> Cost:
    s = tilec.workload("gemm").schedule().split("i", bm, into=("io", "ii")).split("j", bn, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ii", "ji").split("acc.k", 32, into=("ko", "ki")).reorder("io", "jo", "ko", "ii", "ji", "ki")
    s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared").place("acc", "register")
    s = s.bind("io", "block.y").bind("jo", "block.x").pipeline("ko", stages=stages)
    return s.cost(target, threads=256, registers=128, **(given or GIVEN))


def line(text: str, start: str) -> str:
    (found,) = [x.strip() for x in text.splitlines() if re.match(rf"{start.strip()} *[\d.,]+ us", x.strip())]
    return found


def number(text: str) -> float:
    return float(text.replace(",", ""))


def test_every_level_has_its_line() -> None:
    """Each term of the time: its seconds, its share of the whole, and a formula whose numbers give it."""
    cost = gemm()
    assert cost.estimate is not None
    text, machine = cost.explain(), tilec.target("h100-sxm")
    for name, seconds in cost.estimate.terms:
        found = re.match(rf"{name} *([\d.]+) us +(\d+)%", line(text, f"{name} "))
        assert found, name
        assert float(found[1]) == pytest.approx(seconds * 1e6, rel=1e-3)
        assert int(found[2]) == round(100 * seconds / cost.time)
    detail = cost.estimate.detail
    assert detail is not None
    words = formulas(cost.launch[0], machine)
    mib, rate = re.findall(r"= ([\d.]+) MiB past L2 ÷ ([\d,.]+) GB/s", words["global"])[0]
    assert number(mib) * 2**20 / number(rate) / 1e9 == pytest.approx(dict(cost.estimate.terms)["global"], rel=1e-3)
    mib, rate = re.findall(r"= ([\d.]+) MiB ÷ ([\d,.]+) GB/s", words["l2"])[0]
    assert number(mib) * 2**20 / number(rate) / 1e9 <= dict(cost.estimate.terms)["l2"] * (1 + 1e-3)
    blocks, mib = re.findall(r"= (\d+) blocks · ([\d.]+) MiB ÷ 128 B", words["shared"])[0]
    assert int(blocks) * number(mib) * 2**20 / (128 * machine.clock) == pytest.approx(
        dict(cost.estimate.terms)["shared"], rel=2e-3
    )
    blocks, each = re.findall(r"= (\d+) blocks on the busiest of 132 SMs · wgmma ([\d.]+) us", words["compute"])[0]
    assert int(blocks) * float(each) / 1e6 == pytest.approx(dict(cost.estimate.terms)["compute"], rel=1e-3)
    assert "768 blocks in 3 waves of 264" in text


def test_formulas_of_bound_threads_give_their_seconds() -> None:
    """There a block's compute is issue and arithmetic of its warps, not the operations of the vector unit."""
    s = tilec.workload("gemm").schedule().split("i", 16, into=("io", "ii")).split("j", 32, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ii", "ji").bind("io", "block.y").bind("jo", "block.x")
    cost = s.bind("ii", "thread.y").bind("ji", "thread.x").cost("h100-sxm", M=512, N=512, K=512)
    assert cost.estimate is not None
    machine = tilec.target("h100-sxm")
    words, seconds = formulas(cost.launch[0], machine), dict(cost.estimate.terms)
    blocks, cycles = re.findall(r"= (\d+) blocks on .* · ([\d,]+) cycles of arithmetic and issue a block", words["compute"])[0]
    assert int(blocks) * number(cycles) / machine.clock == pytest.approx(seconds["compute"], rel=1e-3)
    blocks, turns = re.findall(r"= (\d+) blocks · ([\d,]+) turns", words["shared"])[0]
    assert int(blocks) * number(turns) / machine.clock == pytest.approx(seconds["shared"], rel=1e-3)


def test_names_of_levels_stand_apart_from_their_seconds() -> None:
    text = tilec.workload("gemm").schedule().cost("host", M=64, N=64, K=64).explain()
    assert re.search(r"^    overhead +[\d.]+ us ", text, re.MULTILINE)


def test_the_range_holds_the_time() -> None:
    for cost in (gemm(), gemm(16, 16, 1), gemm(256, 128, 2, "b200"), gemm(64, 64, 1, "rtx-3090", M=100, N=100, K=100)):
        low, high = cost.range
        assert 0 < low <= cost.time <= high


def test_what_makes_one_beat_the_other() -> None:
    a, b = gemm(), gemm(64, 64, 1)
    text = a.explain(b)
    assert text.splitlines()[0].split("  ")[-2:] == ["first gemm on h100-sxm", "second gemm on h100-sxm"]
    assert len(text.splitlines()) <= 45 and max(map(len, text.splitlines())) <= 160  # one screen
    for name, seconds in a.estimate.terms if a.estimate is not None else ():
        assert f"{seconds * 1e6:.4g} us" in line(text, f"{name} ")
    assert b.bound == "latency"
    last = text.splitlines()[-1]
    assert last.startswith(f"the first is {b.time / a.time:.3g} times as fast: the second is bound by latency, ")
    assert b.explain(a).splitlines()[-1].startswith(f"the second is {b.time / a.time:.3g} times as fast: the first is bound by")
    assert a.explain(a).splitlines()[-1].split()[0] == "bound"  # nothing beats itself


def test_the_bound_stands_beside_the_traffic() -> None:
    text = gemm().explain()
    assert "lower bound 128 MiB (inputs read once, outputs written once), the traffic is 12.2 times that" in text
    assert "with 484 KiB near the arithmetic (an SM's shared memory and registers): 8*K*M*N/sqrt(S) and lower terms" in text
    assert "near the arithmetic" not in tilec.workload("act_chain").schedule().cost("h100-sxm", M=64, N=64).explain()


def test_what_was_not_checked_is_said() -> None:
    seen = gemm(target="rtx-pro-6000")
    assert unchecked(seen) == () and "not checked" not in seen.explain()
    assert "only on 8.0 (A100)" in unchecked(gemm())[0]  # no ladder's kernels on an H100 say enough to be expressed
    assert unchecked(gemm(target="v100"))[0].startswith(
        "no measurement on compute capability 7.0 was compared, only on 8.0 (A100)"
    )
    chain = tilec.workload("act_chain").schedule().cost("rtx-pro-6000", M=64, N=64)
    reasons = unchecked(chain)
    assert reasons == ("no measurement of a kernel without a sum of products was compared", "loops that are not bound to blocks")
    assert "not checked: loops that are not bound to blocks" in chain.explain()
    tpu = tilec.workload("gemm").schedule().cost("tpu-v5e", M=64, N=64, K=64)
    assert unchecked(tpu) == ("no measurement of a program on tpu-v5e was compared (accelerator, roofline only)",)
    assert unchecked(tilec.workload("gemm").schedule().cost(M=64, N=64, K=64)) == ()


def test_levels_of_the_roofline() -> None:
    cost, machine = gemm(), tilec.target("h100-sxm")
    found = {x.name: x for x in levels(cost)}
    assert list(found) == ["global", "l2", "shared"]
    assert found["l2"].bandwidth == l2_bandwidth(machine) <= 132 * 64 * machine.clock
    assert found["shared"].bandwidth == shared_bandwidth(machine) == 132 * 128 * machine.clock
    assert found["l2"].bytes == cost.traffic.total("global") > found["global"].bytes >= cost.lower_bound("global")
    for x in found.values():  # no point lies above its roof
        assert cost.flops / cost.time <= x.intensity(cost.flops) * x.bandwidth * (1 + 1e-9)
    (only,) = levels(tilec.workload("gemm").schedule().cost("tpu-v5e", M=64, N=64, K=64))
    assert only.name == "global"


def test_a_cpu_by_its_levels() -> None:
    """Core, caches, memory and overhead, each on its line; without measured rates that is said."""
    cost = tilec.workload("gemm").schedule().cost(unmeasured(), M=64, N=64, K=64)
    text = cost.explain()
    assert "(estimate level by level; from " in text
    for name, seconds in cost.estimate.terms if cost.estimate is not None else ():
        if seconds:
            assert us(seconds) in line(text, name)
    assert "whole: the highest of core and bytes, 15% of the others, and the overhead" in text
    assert unchecked(cost) == ("this CPU's rates were not measured: `tilec target host --measure`",)


def test_a_cost_without_a_time_says_why() -> None:
    s = tilec.workload("gemm").schedule()
    assert "time unknown: it depends on M, N, K: give cost(M=…, N=…, K=…)" in s.cost("h100-sxm").explain()
    assert s.cost("h100-sxm", M=8).data()["time_unknown"] == "it depends on N, K: give cost(N=…, K=…)"
    with pytest.raises(ResourceError, match=r"^time: it depends on N, K: give cost\(N=…, K=…\)$"):
        _ = s.cost("h100-sxm", M=8).time
    with pytest.raises(TargetError, match=r"^time: 9\.0 has limits only, no rates: name a machine"):
        _ = s.cost("9.0", M=8, N=8, K=8).time
    assert "time unknown: 9.0 has limits only" in s.cost("9.0", M=8, N=8, K=8).explain()
    assert "time unknown" not in s.cost("h100-sxm", M=8, N=8, K=8).explain()
    assert "time unknown" not in s.cost().explain() and s.cost().data()["time_unknown"] is None


def test_registers_of_a_block_are_called_so() -> None:
    s = tilec.workload("gemm").schedule(M=64, N=64, K=64)
    assert "register footprint 4 B (per block): acc 4 B\n    acc: registers of the whole block" in s.cost("h100-sxm").explain()
    assert "register footprint 4 B (per thread): acc 4 B" in s.cost("h100-sxm", threads=1).explain()
