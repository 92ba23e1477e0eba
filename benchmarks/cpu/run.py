"""Running the rows: a worker process for each contender and number of threads, their calls interleaved, results checked."""

from __future__ import annotations

import ctypes
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.cpu.rows import Row, roof_ms

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PEERS = {  # who -> (environment, script, arguments); *_packed: weights packed ahead of the call, judged among themselves
    "tilec": (None, "tilec_peer.py", ()),
    "tilec_packed": (None, "tilec_peer.py", ("packed",)),
    "numpy": (None, "numpy_peer.py", ()),
    "torch": ("torch", "torch_peer.py", ()),
    "torch_packed": ("torch", "torch_peer.py", ("packed",)),
    "torch_compiled": ("torch", "torch_peer.py", ("compiled",)),
    "halide": ("halide", "halide_peer.py", ()),
    "exo": ("exo", "exo_peer.py", ()),
    "gcc": (None, "gcc_peer.py", ()),
}
ENVIRONMENT = {  # of every contender
    # glibc keeps large blocks, in huge pages, instead of asking for new pages in each call: results that a peer allocates cost it
    # (PyTorch's RMSNorm on two threads) six times the work otherwise
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=8589934592",
    "OPENBLAS_THREAD_TIMEOUT": "22",  # 2^22 cycles: its idle threads would spin into the next contender's turn (100 ms)
}
STARTING = 240.0  # seconds for the first call: a peer may compile
CALLING = 60.0
SLICE = 0.1  # seconds of calls in one turn
FAR = 4.0  # a peer so many times slower than the fastest one has its first turn only
ROW = 30.0  # seconds of turns after which no further round begins


class Worker:
    """One peer at one number of threads."""

    def __init__(self, who: str, python: str, script: str, arguments: Sequence[str], threads: int):
        self.who, self.threads = who, threads
        env = {n: v for n, v in os.environ.items() if not n.startswith(("OPENBLAS_", "OMP_", "MKL_"))}
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "HL_NUM_THREADS"):
            env[name] = str(threads)
        env.update(ENVIRONMENT)
        env["PYTHONPATH"] = str(ROOT) if who.startswith("tilec") else ""
        argv = [python, str(HERE / "peers" / script), *arguments]
        pipe, null = subprocess.PIPE, subprocess.DEVNULL
        self.process = subprocess.Popen(
            argv, stdin=pipe, stdout=pipe, stderr=null, text=True, env=env, cwd=ROOT, start_new_session=True
        )
        self.answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.answers.put(line)
        self.answers.put("")

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """The answer; {"error": …} when the worker died or does not answer in time (it is killed then)."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            line = self.answers.get(timeout=timeout)
        except queue.Empty:
            self.close()
            return {"error": f"no answer in {timeout:.0f} s"}
        except (BrokenPipeError, ValueError):
            line = ""
        return json.loads(line) if line else {"error": "the process ended"}

    def close(self) -> None:
        """Ends the worker and what it started (a compiler)."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Probe:
    """The roofs of this machine, from a library compiled for the run."""

    def __init__(self) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
        if compiler is None:
            raise SystemExit("the roofs need a C compiler: gcc, cc or clang")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "probe.so"
            flags = ["-O3", "-march=native", "-ffp-contract=fast", "-fopenmp", "-shared", "-fPIC"]
            subprocess.run([compiler, *flags, str(HERE / "peers" / "probe.c"), "-o", str(path)], check=True)
            self.library = ctypes.CDLL(str(path))
        self.best: dict[tuple[str, int, str], float] = {}

    def measure(self, row: Row, threads: int) -> None:
        """One more reading of each roof of the row; the best of all is the roof."""
        for name in dict.fromkeys(("fma", row.unit, "silu")):
            f = getattr(self.library, f"probe_{name}")
            f.restype, f.argtypes = ctypes.c_double, [ctypes.c_int]
            self._keep((name, threads, ""), f(threads))
        f = self.library.probe_bytes
        f.restype, f.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_int, ctypes.c_double]
        self._keep(("bytes", threads, row.name), f(threads, row.mix, row.read + row.written))

    def _keep(self, key: tuple[str, int, str], rate: float) -> None:
        self.best[key] = max(self.best.get(key, 0.0), rate)

    def rates(self, row: Row, threads: int) -> dict[str, float]:
        core = {n: self.best[n, threads, ""] for n in ("fma", row.unit, "silu")}
        return {**core, "bytes": self.best["bytes", threads, row.name]}


@dataclass
class Result:
    """One contender on one row: the median of its turns in ms, or why there is none."""

    row: str
    threads: int
    who: str
    median_ms: float | None = None
    error: str | None = None
    ratio_to_best_peer: float | None = None  # of the best other contender's time to this one's: above 1 is faster
    roof_share: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)


def interpreters(wanted: Sequence[str], folder: Path | None) -> tuple[dict[str, str], list[str]]:
    """(python of each contender, what is missing). A peer with an environment of its own needs folder/NAME/bin/python."""
    found, missing = {}, []
    for who in wanted:
        environment = PEERS[who][0]
        python = Path(sys.executable) if environment is None else (folder or Path()) / environment / "bin" / "python"
        if environment is not None and (folder is None or not python.exists()):
            missing.append(f"{who} (no {python})" if folder else f"{who} (--venvs names no folder)")
        else:
            found[who] = str(python)
    return found, missing


def run(
    rows: Sequence[Row],
    pythons: Mapping[str, str],
    threads: Sequence[int],
    repeats: int,
    say: Callable[[str], None] = lambda text: None,
    keep: Callable[[list[Result]], None] = lambda results: None,
) -> list[Result]:
    """Every row with every contender; one row at a time, contenders taking turns. keep: is given what there is after
    each row, so that an interruption loses one row."""
    probe = Probe()
    results: list[Result] = []
    for row in rows:
        with tempfile.TemporaryDirectory(prefix="tilec-bench-") as name:
            folder = Path(name)
            inputs = row.make()
            for key, value in inputs.items():
                np.save(folder / f"{key}.npy", value)
            checked, want = row.reference(inputs)
            for count in threads:
                began = time.perf_counter()
                new = _row(row, folder, checked, want, pythons, count, repeats, probe)
                results += new
                _judge(results, rows, probe)
                keep(results)
                times = ", ".join(f"{r.who} {r.median_ms:.3g}" for r in new if r.median_ms)
                say(f"{row.name}, {count} threads, {time.perf_counter() - began:.0f} s: {times or 'nobody'} (ms)")
    return results


def _judge(results: list[Result], rows: Sequence[Row], probe: Probe) -> None:
    """Shares of the roofs, which later rows may have raised, and ratios to peers. What packs its weights ahead is no peer of
    what packs them in the call; the other way round it is."""
    for r in results:
        if not r.median_ms:
            continue
        row = next(x for x in rows if x.name == r.row)
        r.roof_share = round(roof_ms(row, probe.rates(row, r.threads)) / r.median_ms, 3)
        packed, mine = r.who.endswith("_packed"), r.who.split("_packed")[0]
        rivals = [x for x in results if x.row == r.row and x.threads == r.threads and x.who not in (r.who, mine)]
        peers = [x.median_ms for x in rivals if x.median_ms and (packed or not x.who.endswith("_packed"))]
        r.ratio_to_best_peer = round(min(peers) / r.median_ms, 3) if peers else None


def _row(
    row: Row,
    folder: Path,
    checked: np.ndarray,
    want: np.ndarray,
    pythons: Mapping[str, str],
    threads: int,
    repeats: int,
    probe: Probe,
) -> list[Result]:
    results = {who: Result(row.name, threads, who) for who in pythons}
    workers: dict[str, Worker] = {}
    try:
        for who, python in pythons.items():
            _, script, arguments = PEERS[who]
            worker = workers[who] = Worker(who, python, script, arguments, threads)
            spec = {**row.spec, "lanes": _lanes()}
            answer = worker.ask({"cmd": "prepare", "row": spec, "threads": threads, "folder": str(folder)}, STARTING)
            results[who].error = answer.get("error") or _wrong(worker, folder, checked, want, row)
            if results[who].error:
                workers.pop(who).close()
        times: dict[str, list[float]] = {who: [] for who in workers}
        began = time.perf_counter()
        for turn in range(repeats):
            if turn and time.perf_counter() - began > ROW:
                break
            probe.measure(row, threads)
            best = min((median(ms) for ms in times.values() if ms), default=inf)
            for who, worker in list(workers.items()):
                if times[who] and median(times[who]) > FAR * best:
                    continue
                answer = worker.ask({"cmd": "run", "seconds": SLICE}, CALLING)
                if "ms" in answer:
                    times[who] += answer["ms"]
                else:
                    results[who].error = answer.get("error", "no answer")
                    workers.pop(who).close()
        for who, ms in times.items():
            if ms and not results[who].error:
                results[who].median_ms = round(median(ms), 4)
    finally:
        for worker in workers.values():
            worker.close()
    return list(results.values())


def _wrong(worker: Worker, folder: Path, checked: np.ndarray, want: np.ndarray, row: Row) -> str | None:
    """What is wrong with the worker's result, or None. A wrong answer has no time."""
    path = folder / "output" / f"{worker.who}.npy"
    path.parent.mkdir(exist_ok=True)
    answer = worker.ask({"cmd": "output", "to": str(path)}, CALLING)
    if "error" in answer:
        return answer["error"]
    got = np.load(path)[checked].astype("f8")
    path.unlink()
    if got.shape != want.shape:
        return f"the result has the shape {got.shape}, not {want.shape}"
    worst = float((np.abs(got - want).max(axis=1) / np.maximum(np.abs(want).max(axis=1), 1e-30)).max())
    return None if worst <= row.tolerance else f"wrong: off by {worst:.2g} of the largest value, allowed {row.tolerance:.2g}"


def _lanes() -> int:
    return 16 if "avx512f" in Path("/proc/cpuinfo").read_text() else 8
