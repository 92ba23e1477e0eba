"""tilec emit --backend triton on the command line, compiling included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.test_search_gpu import search
from tilec.cli import main
from tilec.runtime.triton_run import available, device_seconds
from tilec.runtime.triton_worker import installed
from tilec.search.gpu import compiled_best

needs_triton = pytest.mark.skipif(not installed(), reason="Triton is not installed: pip install 'tilec[triton]'")

SCHEDULE = """
def tiled(s):
    s = s.compute_inline("C").split("Y.i", 64, into=("io", "ii")).split("Y.j", 64, into=("jo", "ji"))
    s = s.reorder("io", "jo", "ii", "ji").compute_at("acc", "jo").split("acc.k", 32, into=("ko", "ki"))
    s = s.reorder("ko", "acc.i", "acc.j", "ki").place("acc", "register")
    s = s.cache_read("A", at="ko", memory="shared").cache_read("W", at="ko", memory="shared")
    return s.bind("io", "block.y").bind("jo", "block.x").pipeline("ko", stages=2)
"""


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    (tmp_path / "s.py").write_text(SCHEDULE)
    return ["emit", "gemm_silu", "--reassociate", "acc", "--schedule", f"{tmp_path}/s.py:tiled", "--backend", "triton"]


def test_the_text(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "-o", str(tmp_path / "k.py"), "--warps", "2", "--group", "4"]) == 0
    text = (tmp_path / "k.py").read_text()
    assert "def gemm_silu_0(" in text and "num_warps=2," in text and "4 * jo_count" in text
    assert main([*words, "--json", "--target", "a100-sxm"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out.splitlines()[-1])["target"] == "a100-sxm"


@pytest.mark.parametrize(
    ("more", "error"),
    [
        (["--compile"], "emit --compile: name the machine to compile for: --target h100-sxm"),
        (["--compile", "--target", "h100-sxm"], "emit --compile: the sizes M, N, K are open: add M=1024"),
        (["--target", "no-such"], "no-such"),
        (["--vector-bytes", "32"], "emit: backend triton has no --vector-bytes"),
        (["--warps", "3"], "a power of two from 1 to 32"),
        (["--target", "host"], "host is no GPU with a compute capability"),
        (["--compile", "--target", "host", "M=64", "N=64", "K=64"], "host is no GPU with a compute capability"),
        (["--compile", "--target", "v100", "M=64", "N=64", "K=64"], "v100 has compute capability 7.0; compiled are 8.0"),
        (["--target", ""], "unknown target ''"),
        (["--workers", "2"], "emit: --workers belongs to --backend triton --compile"),
    ],
)
def test_mistakes(words: list[str], more: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, *more]) == 2
    assert error in capsys.readouterr().err


@needs_triton
def test_compiled(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "cache"))
    argv = [*words, "M=1024", "N=12288", "K=4096", "--compile", "--target", "h100-sxm"]
    assert main([*argv, "--json"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["compiled"]["shared"] == kernel["predicted"]["shared"] == 16384
    assert kernel["compiled"]["matrix"]["HGMMA"] > 0 and kernel["warnings"] == [] and kernel["problem"] is None
    assert kernel["compiled"]["occupancy"]["blocks"] >= 1
    assert main(argv) == 0
    text = capsys.readouterr().out
    assert "compiled for h100-sxm (sm_90)" in text and "HGMMA" in text


@needs_triton
def test_the_search_uses_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path))
    result = compiled_best(search(space={"BM": [64], "BN": [64, 128], "stages": [2]}), 3, workers=1)
    assert result.best and all(b.compiled[0].spills == 0 for b in result.best)
    times = [b.cost.time for b in result.best if b.cost is not None]
    assert times == sorted(times) and len(times) == len(result.best)
    assert all(b.cost is not None and b.cost.occupancy is not None and b.cost.occupancy.assumed == "" for b in result.best)


@pytest.mark.skipif(available() is not None, reason=str(available()))
def test_timing_works_as_far_as_it_can_without_a_device() -> None:
    s = search(space={"BM": [64], "BN": [64], "stages": [2]}).top(1)[0].schedule
    assert device_seconds(s, device="cpu") > 0
