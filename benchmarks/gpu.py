"""What emitted kernels do on a GPU: one script for a bare machine with PyTorch and Triton; ends within five minutes.

    python benchmarks/gpu.py [--only correctness,times,order,bytes] [--device cuda] [--out FILE.json] [--seconds 280]

It needs neither tilec nor anything else: the kernels lie beside it in gpu_kernels/ (`python -m benchmarks.gpu_report.emit`),
with the model's figures, and with the reference's outputs, bit for bit, for inputs whose sums are exact in any order.

    correctness   every kernel at odd sizes with partial tiles: outputs equal the reference's bits
    times         gemm_silu, the best candidates by the model, against torch.matmul followed by SiLU and against its compiled form
    order         20 candidates of each size: predicted and measured order (Spearman)
    bytes         DRAM bytes by the profiler's counters (ncu, where it is there) against the model's, for 3 kernels

Times: CUDA events, warm-up, the median of repeats, over rotating copies of the arrays that together exceed the L2 cache. The
device is kept busy while the launches are queued, so that the time between two events is none of Python's. What fails says why in
its place; the rest goes on.
"""

from __future__ import annotations

import argparse
import csv
import glob
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch
import triton

FOLDER = Path(__file__).resolve().parent / "gpu_kernels"
PARTS = ("correctness", "times", "order", "bytes")
WARM_UP = 0.05  # s
AHEAD = 20_000_000  # cycles that the device waits while launches are queued: about 10 ms
COMPILING = 60  # s that the framework's compiler may take
TORCH = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f8e4m3": torch.float8_e4m3fn,
    "i8": torch.int8,
    "i32": torch.int32,
}


def load(name: str):
    """The emitted file `name`.py as a module."""
    spec = importlib.util.spec_from_file_location(f"gpu_kernel_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def exact_values(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Multiples of 1/4 up to 2: sums of products of them are exact in f32."""
    return (np.random.default_rng(seed).integers(-8, 9, shape) / 4).astype(np.float32)


def arguments(entry: dict, sizes: str, device: str, exact: bool) -> dict:
    """The inputs of a kernel by parameter; outputs are made by the launcher."""
    out = {}
    for n, (name, dtype, shape) in enumerate(entry[sizes]):
        if exact:
            values = torch.from_numpy(exact_values(n, tuple(shape))).to(device)
        else:
            values = torch.randn(tuple(shape), device=device, dtype=torch.float32)
        out[name] = values.to(TORCH[dtype])
    return out | entry["scalars"]


def bits(tensor: torch.Tensor) -> np.ndarray:
    """The elements' bits as unsigned integers."""
    size = tensor.element_size()
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}  # older PyTorch has no unsigned ones of more bytes
    return tensor.contiguous().view(kinds[size]).cpu().numpy().view(f"u{size}")


def failure(e: Exception) -> str:
    """An exception in words."""
    return f"{type(e).__name__}: {str(e).strip()[:300]}"


def correctness(manifest: dict, device: str, ends: float) -> dict:
    """Differing elements per kernel and output; a kernel that fails says why."""
    expected = np.load(FOLDER / "expected.npz")
    native = device != "cuda" or torch.cuda.get_device_capability() >= (8, 9)
    found = {}
    for name, entry in manifest["cases"].items():
        if not native and entry["f8"]:
            found[name] = "left out: 8-bit floats need compute capability 8.9"
            continue
        if time.monotonic() > ends:
            found[name] = "left out: no time left"
            continue
        try:
            results = getattr(load(name), entry["entry"])(**arguments(entry, "odd", device, True))
            results = results if isinstance(results, tuple) else (results,)
            wrong = {}
            for output, tensor in zip(entry["outputs"], results, strict=True):
                want = expected[f"{name}.{output}"]
                got = bits(tensor)
                nan = np.isnan(tensor.float().cpu().numpy()) & np.isnan(decoded(want, tensor))
                wrong[output] = int(((got != want) & ~nan).sum())
            found[name] = wrong
        except Exception as e:
            found[name] = failure(e)
    return found


def decoded(raw: np.ndarray, like: torch.Tensor) -> np.ndarray:
    """Expected bits as numbers."""
    return torch.from_numpy(raw.copy()).view(like.dtype).float().numpy()


def seconds(call, sets: list, device: str, repeats: int = 20) -> float:
    """Median over launches, each on the next set of arrays."""
    if device != "cuda":
        call(**sets[0])
        times = []
        for n in range(3):
            began = time.perf_counter()
            call(**sets[n % len(sets)])
            times.append(time.perf_counter() - began)
        return statistics.median(times)
    call(**sets[0])  # compiles
    torch.cuda.synchronize()
    began = time.perf_counter()
    for n in range(200):  # until the clocks are up
        call(**sets[n % len(sets)])
        if n % 8 == 2:
            torch.cuda.synchronize()
            if time.perf_counter() - began > WARM_UP:
                break
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
    torch.cuda.synchronize()
    torch.cuda._sleep(AHEAD)
    for n, (start, end) in enumerate(events):
        start.record()
        call(**sets[n % len(sets)])
        end.record()
    torch.cuda.synchronize()
    return statistics.median(start.elapsed_time(end) for start, end in events) / 1e3


def rotating(entry: dict, sizes: str, device: str) -> list:
    """Copies of the arguments that together are at least four times the L2 cache, at most eight."""
    first = arguments(entry, sizes, device, False)
    size = sum(t.numel() * t.element_size() for t in first.values() if isinstance(t, torch.Tensor))
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20) if device == "cuda" else 0
    count = min(8, max(1, -(-4 * cache // max(size, 1))))
    return [first, *(arguments(entry, sizes, device, False) for _ in range(count - 1))]


def times(manifest: dict, device: str, ends: float) -> dict:
    """Seconds and TFLOP/s per size: the framework's two kernels, its compiled form, the model's first five candidates."""

    def eager(A, W):
        return torch.nn.functional.silu(A @ W)

    out = {}
    for size, group in manifest["candidates"].items():
        entry = group[0]
        sets = rotating(entry, "real", device)
        flops = 2 * entry["sizes"]["M"] * entry["sizes"]["N"] * entry["sizes"]["K"]
        calls = {"matmul, then silu": lambda: eager}
        if device == "cuda" and time.monotonic() < ends - COMPILING:
            calls["compiled by the framework"] = lambda: torch.compile(eager)
        for c in group[:5]:
            calls[c["label"]] = lambda c=c: getattr(load(c["file"]), c["entry"])
        row = {}
        for label, made in calls.items():
            if time.monotonic() > ends:
                break
            try:
                row[label] = seconds(made(), sets, device)
            except Exception as e:
                row[label] = failure(e)
        out[size] = {k: v if isinstance(v, str) else {"seconds": v, "tflops": flops / v / 1e12} for k, v in row.items()}
    return out


def order(manifest: dict, device: str, ends: float) -> dict:
    """Predicted and measured seconds of each candidate, and how far the two orders agree."""
    out = {}
    for size, group in manifest["candidates"].items():
        sets = rotating(group[0], "real", device)
        rows = []
        for candidate in group:
            if time.monotonic() > ends:
                break
            try:
                took = seconds(getattr(load(candidate["file"]), candidate["entry"]), sets, device, repeats=10)
                rows.append({"label": candidate["label"], "predicted": candidate["predicted"], "measured": took})
            except Exception as e:
                rows.append({"label": candidate["label"], "error": failure(e)})
        timed = [r for r in rows if "measured" in r and r["predicted"] is not None]
        agree = spearman([r["predicted"] for r in timed], [r["measured"] for r in timed]) if len(timed) > 2 else None
        out[size] = {"spearman": agree, "candidates": rows}
    return out


def spearman(a: list, b: list) -> float:
    """Rank correlation; ties share their mean rank."""

    def ranks(values):
        return [sum(v < x for v in values) + (sum(v == x for v in values) - 1) / 2 for x in values]

    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def profiler() -> str | None:
    """ncu on the path, or where its packages put it."""
    places = ["/usr/local/cuda/bin/ncu", *sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu"), reverse=True)]
    return shutil.which("ncu") or next((p for p in places if os.access(p, os.X_OK)), None)


def dram_bytes(manifest: dict, device: str, ends: float) -> dict:
    """Bytes read and written at DRAM per kernel, by ncu on this script's --one, beside the model's bytes."""
    ncu = profiler()
    out = {}
    for name in manifest["profiled"]:
        row = {"model": manifest["cases"][name]["traffic"], "least": manifest["cases"][name]["least"]}
        if ncu is None or device != "cuda":
            row["measured"] = "no profiler: ncu is not on the path" if device == "cuda" else "no device"
        elif time.monotonic() > ends:
            row["measured"] = "no time left"
        else:
            argv = [ncu, "--csv", "--clock-control", "none", "--metrics", "dram__bytes_read.sum,dram__bytes_write.sum"]
            argv += ["--kernel-name", f"regex:^{manifest['cases'][name]['entry']}_", sys.executable, __file__, "--one", name]
            try:
                done = subprocess.run(argv, capture_output=True, text=True, timeout=max(10, ends - time.monotonic()))
                row["measured"] = counted(done.stdout) or f"ncu gave no counters: {(done.stderr + done.stdout).strip()[-200:]}"
            except (OSError, subprocess.TimeoutExpired) as e:
                row["measured"] = failure(e)
        out[name] = row
    return out


def counted(text: str) -> dict | None:
    """The counters of the last launch of each kernel in ncu's CSV, summed, in bytes."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    scale = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
    last = {}
    for row in csv.DictReader(lines):
        if row.get("Metric Name", "").startswith("dram__bytes"):
            value = float(row["Metric Value"].replace(",", "")) * scale.get(row["Metric Unit"], 1)
            last[row["Kernel Name"], row["Metric Name"]] = value
    if not last:
        return None
    return {kind: sum(v for (_, n), v in last.items() if n == f"dram__bytes_{kind}.sum") for kind in ("read", "write")}


def one(manifest: dict, name: str, device: str) -> None:
    """Two launches of a kernel at its size of use, for the profiler."""
    entry = manifest["cases"][name]
    given = arguments(entry, "real", device, False)
    for _ in range(2):
        getattr(load(name), entry["entry"])(**given)
    torch.cuda.synchronize()


def main(argv: list | None = None) -> int:
    """Run the parts; the exit status is 1 where an output is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default=",".join(PARTS), help=f"parts, of {', '.join(PARTS)}")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", help="write the results to this file")
    parser.add_argument("--seconds", type=float, default=280, help="no new measurement is begun after this long (default 280)")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    o = parser.parse_args(argv)
    parts = o.only.split(",")
    if wrong := [p for p in parts if p not in PARTS]:
        parser.error(f"no part {wrong[0]!r}: there are {', '.join(PARTS)}")
    manifest = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))
    if o.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here")
        return 2
    if o.one:
        one(manifest, o.one, o.device)
        return 0
    ends = time.monotonic() + o.seconds
    name = torch.cuda.get_device_name() if o.device == "cuda" else o.device
    results = {"device": name, "torch": torch.__version__, "triton": triton.__version__}
    run = {"correctness": correctness, "times": times, "order": order, "bytes": dram_bytes}
    for part in parts:
        began = time.monotonic()
        try:
            results[part] = run[part](manifest, o.device, ends)
        except Exception as e:
            results[part] = {"failed": failure(e)}
        print(f"# {part}: {time.monotonic() - began:.0f} s", flush=True)
        print(json.dumps(results[part], indent=1), flush=True)
        if o.out:
            Path(o.out).write_text(json.dumps(results, indent=1) + os.linesep)
    wrong = [n for n, r in results.get("correctness", {}).items() if not isinstance(r, dict) and "left out" not in r]
    wrong += [n for n, r in results.get("correctness", {}).items() if isinstance(r, dict) and any(r.values())]
    if wrong:
        print(f"wrong: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
