"""The target "host": what the system says, the file of measured figures, and what is wrong with a bad one."""

from __future__ import annotations

import os
import shutil
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tilec.errors import MeasureError, TargetError
from tilec.runtime import compiler, host
from tilec.runtime.process import kill_group, run_killable, start
from tilec.targets import load
from tilec.targets.detect import detect
from tilec.targets.host import cache_file, detected, to_toml
from tilec.targets.load import defaults, parse, unmeasured
from tilec.targets.target import RATES, Figure

DATA = Path(__file__).parent.parent / "data"

CPUINFO = """processor\t: 0
model name\t: Some Zen 4
cpu MHz\t\t: 3700.000
flags\t\t: fpu sse2 avx avx2 fma f16c avx512f avx512bw avx512vl avx512_vnni avx512_bf16
processor\t: 1
"""


def machine(root: Path, cpuinfo: str = CPUINFO, quota: str = "max 100000") -> Path:
    """A `proc` and `sys` of two cores with three levels of cache."""
    files = {"proc/cpuinfo": cpuinfo, "sys/fs/cgroup/cpu.max": quota}
    for n in sorted(os.sched_getaffinity(0)):
        cpu = f"sys/devices/system/cpu/cpu{n}"
        files[f"{cpu}/topology/thread_siblings_list"] = str(n)
        levels = ((1, "Data", "32K", 8), (1, "Instruction", "32K", 8), (2, "Unified", "1024K", 8), (3, "Unified", "32M", 16))
        for k, (level, kind, size, ways) in enumerate(levels):
            facts = {"level": level, "type": kind, "size": size, "ways_of_associativity": ways, "coherency_line_size": 64}
            for name, value in {**facts, "shared_cpu_list": "0-1" if level == 3 else n}.items():
                files[f"{cpu}/cache/index{k}/{name}"] = str(value)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_what_the_system_says(tmp_path: Path):
    found = detect(machine(tmp_path))
    assert found.model == "Some Zen 4" and found.clock == 3.7e9
    assert (found.vector_bytes, found.vector_registers) == (64, 32)
    assert [(c.level, c.size, c.ways) for c in found.caches] == [(1, 32 << 10, 8), (2, 1 << 20, 8), (3, 32 << 20, 16)]
    t = detected(defaults(), found)
    assert t.figure["l2"].integer == 1 << 20 and t.figure["vector_bytes"].integer == 64 and not t.measured
    # two units of sixteen lanes, a multiply-add each a cycle
    assert t.rate("fma_f32") == pytest.approx(2 * 16 * 2 * 3.7e9, rel=1e-3)
    assert "avx512_bf16" in t.features and t.note is not None and "estimates" in t.note


def test_a_machine_that_says_nothing_has_the_defaults(tmp_path: Path):
    found = detect(tmp_path)
    t = detected(defaults(), found)
    assert found.caches == () and t.cores >= 1 and t.rate("read") > 0 and t.figure["l1"].estimate


def test_a_quota_and_siblings_count(tmp_path: Path):
    assert detect(machine(tmp_path, quota="100000 100000")).cores == 1
    for n in os.sched_getaffinity(0):
        (tmp_path / f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list").write_text("0-99")
    assert detect(machine(tmp_path / "other")).cores == len(os.sched_getaffinity(0))
    (tmp_path / "sys/fs/cgroup/cpu.max").write_text("max 100000")
    assert detect(tmp_path).cores == 1  # one core, several threads of it


def test_the_key_tells_cpus_apart_and_not_moments(tmp_path: Path):
    a = detect(machine(tmp_path / "a"))
    assert a.key == detect(machine(tmp_path / "b", CPUINFO.replace("3700", "1200"))).key
    assert a.key != detect(machine(tmp_path / "c", CPUINFO.replace(" avx512_bf16", ""))).key


def test_a_file_gives_the_target_back(cache: Path):
    t = unmeasured()
    assert parse(to_toml(t), "x.toml") == t
    odd = replace(t, title='a "quoted" \\ title', note="a\tb")
    assert parse(to_toml(odd), "x.toml") == replace(odd, note="a b")
    fast = Figure.of(123.4321e9, "GFLOP/s", "a test")
    assert fast.text == "123.4 GFLOP/s" and fast.value == 123.4e9


def test_measured_figures_are_kept_and_read(cache: Path):
    t = unmeasured()
    assert load("host") == t and not load("host").measured
    rates = tuple((n, Figure.of(3e9, host._SHOWN[RATES[n]], "a test")) for n in ("fma_f32", "read"))
    path = host.keep(_with_rates(t, rates))
    assert path == cache_file(detect()) and path.parent == cache
    assert load("host").measured and load("host").rate("fma_f32") == 3e9
    assert [p.name for p in cache.iterdir()] == [path.name]  # nothing half-written is left


def _with_rates(t, rates):
    text = to_toml(t)
    head = text[: text.index("[threads.1]")]
    lines = [f'{n} = {{ value = {f.text.split()[0]}, unit = "{f.text.split()[1]}", source = "s0" }}' for n, f in rates]
    return parse(head + "[threads.1]\n" + "\n".join(lines) + "\n", "x.toml")


def test_a_file_of_another_machine_is_not_used(cache: Path):
    t = _with_rates(unmeasured(), (("read", Figure.of(9e9, "GB/s", "a test")), ("fma_f32", Figure.of(9e9, "GFLOP/s", "a test"))))
    path = host.keep(t)
    path.write_text(path.read_text().replace(f'machine = "{t.machine}"', 'machine = "elsewhere"'))
    assert not load("host").measured


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("name = ", "is not valid TOML"),
        ('name = "host"', "'title' is missing"),
        ("\x00\xff", "is not valid TOML"),
    ],
)
def test_a_corrupt_file_is_named(cache: Path, text: str, says: str):
    path = cache_file(detect())
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(TargetError) as e:
        load("host")
    assert (
        says in str(e.value) and str(path) in str(e.value) and "Measure again with `tilec target host --measure`" in str(e.value)
    )
    path.unlink()
    path.mkdir()
    with pytest.raises(TargetError, match="can't be read"):
        load("host")


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("TILEC_CACHE", str(tmp_path / "file" / "below"))
    assert load("host").cores >= 1
    with pytest.raises(MeasureError, match=r"can't be kept in .*: Not a directory\. TILEC_CACHE names another folder"):
        host.keep(unmeasured())


def test_rates_at_other_numbers_of_threads():
    zen4 = load(DATA / "host_zen4.toml")
    assert zen4.has_rate("dot_bf16") and not load(DATA / "host_zen3.toml").has_rate("dot_bf16")
    assert zen4.cores == 4
    assert zen4.rate("fma_f32", 2) == 2 * zen4.rate("fma_f32", 1)  # measured
    assert zen4.rate("fma_f32", 4) == 2 * zen4.rate("fma_f32", 2)  # grows with the threads from the last that was measured
    assert zen4.rate("fma_f32", 9) == zen4.rate("fma_f32", 4)  # no more than the cores
    assert zen4.rate("read", 4) == zen4.rate("read", 2)  # what is shared does not grow
    with pytest.raises(TargetError, match="no such rate"):
        zen4.rate("fma")
    with pytest.raises(TargetError, match="has no rate 'dot_i8'"):
        load(DATA / "host_zen3.toml").rate("dot_i8")
    with pytest.raises(TargetError, match="integer >= 1"):
        zen4.rate("read", 0)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[threads.2]", "[threads.two]", "named by a number of threads"),
        ("copy_stream =", "copy_past =", "unknown rate 'copy_past'"),
        ('features = ["avx"', 'features = [1, "avx"', "'features' must be a list of texts"),
    ],
)
def test_wrong_rates(old: str, new: str, says: str):
    text = (DATA / "host_zen3.toml").read_text()
    assert old in text
    with pytest.raises(TargetError, match=says):
        parse(text.replace(old, new, 1), "x.toml")


# -- processes and compilers -----------------------------------------------------------------------------------------------


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False


def test_a_hung_program_is_killed_with_what_it_started(tmp_path: Path):
    note = tmp_path / "pid"
    began = time.monotonic()
    done = run_killable(["sh", "-c", f"sleep 600 & echo $! > {note}; wait"], timeout=0.5)
    assert done.reason == "timed out after 0.5 s" and time.monotonic() - began < 60
    sleeper, until = int(note.read_text()), time.monotonic() + 30
    while alive(sleeper) and time.monotonic() < until:  # a killed process needs a moment of the processor to end
        time.sleep(0.02)
    assert not alive(sleeper)


def test_how_a_program_ended():
    assert run_killable(["sh", "-c", "echo a; echo b >&2"], timeout=20).out == "a\n"
    assert run_killable(["sh", "-c", "exit 3"], timeout=20).reason == "exit status 3"
    assert run_killable(["sh", "-c", "kill -SEGV $$"], timeout=20).reason == "killed by SIGSEGV"
    assert run_killable(["cat"], timeout=20, input="text").out == "text"
    with pytest.raises(MeasureError, match="can't be started: No such file"):
        run_killable(["/nowhere/program"], timeout=1)


def test_what_a_finished_program_left_running_is_killed(tmp_path: Path):
    note = tmp_path / "pid"
    done = run_killable(["sh", "-c", f"sleep 600 >/dev/null 2>&1 & echo $! > {note}"], timeout=20)
    assert done.reason is None
    deadline = time.monotonic() + 20
    while alive(int(note.read_text())) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(int(note.read_text()))


def test_killing_twice_is_fine():
    p = start(["sleep", "600"])
    kill_group(p)
    kill_group(p)
    assert p.returncode == -9


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MeasureError, match=r"no C compiler: none of gcc, clang, cc is there.*The NumPy backend needs none"):
        compiler.find()
    with pytest.raises(MeasureError, match="compiler=3: give the name or the path of a C compiler"):
        compiler.find(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(MeasureError, match="no C compiler 'icc'"):
        compiler.find("icc")
    fake = tmp_path / "fakecc"
    fake.write_text("#!/bin/sh\necho I am no compiler\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("CC", "fakecc")
    with pytest.raises(MeasureError, match="fakecc is not gcc or clang"):
        compiler.find()
    with pytest.raises(MeasureError, match="is not gcc or clang"):
        host.measure_host()


@pytest.mark.skipif(not any(map(shutil.which, compiler.NAMES)), reason="no C compiler")
def test_the_probes_give_every_rate(cache: Path):
    """A very short measurement: the figures are rough, their relations hold by orders of magnitude."""
    t = host.measure_host(seconds=0.002)
    assert t.measured and t.machine == detect().key and parse(to_toml(t), "x") == t
    for n, _ in t.threads:
        for name in ("fma_f32", "fma_f64", "mul_add_f32", "read_l1", "read_l2", "read", "copy", "triad", "region"):
            assert t.rate(name, n) > 0
    assert 0.2 < t.rate("fma_f32") / t.rate("fma_f64") < 20
    assert 1e8 < t.figure["clock"].value < 1e10 and 1e8 < t.rate("fma_f32") < 1e13
    assert 1e-9 < t.rate("call") < 1e-3 and 1e-9 < t.figure["dram_latency"].value < 1e-4
    assert t.has_rate("dot_bf16") == ("avx512_bf16" in t.features)


@pytest.mark.skipif(not any(map(shutil.which, compiler.NAMES)), reason="no C compiler")
def test_probes_that_do_not_compile_are_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(host, "FLAGS", ("-O3", "-fno-such-flag"))
    with pytest.raises(MeasureError, match="does not compile the probes"):
        host.measure_host()
