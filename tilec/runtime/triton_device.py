"""Emitted kernels on a CUDA device: timed there. Imported by triton_adapter.py only."""

# pyright: reportMissingImports=false
from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import torch

from tilec.runtime.triton_interpreter import TORCH
from tilec.runtime.triton_load import load

WARM_UP, REPEATS, COPIES = 3, 20, 8
AHEAD = 20_000_000  # cycles, about 10 ms


def timed(request: dict[str, Any], folder: Path) -> dict[str, Any]:
    """{text, entry, device, arrays: [[parameter, dtype, shape]], others: {parameter: number}} -> {seconds}.

    The median of launches between two events, after a warm-up, each on the next of rotating copies that together exceed the L2.
    """
    device = request["device"]
    if device == "cuda" and not torch.cuda.is_available():
        return {"error": "no CUDA device here"}
    entry = getattr(load(request["text"], folder), request["entry"])

    def arrays() -> dict[str, Any]:
        made = {}
        for name, dtype, shape in request["arrays"]:
            kind = TORCH[dtype]
            values = (
                torch.randint(-8, 9, tuple(shape), device=device)
                if dtype in ("i8", "i32")
                else torch.randn(tuple(shape), device=device)
            )
            made[name] = values.to(kind)
        return made | request["others"]

    first = arrays()
    size = sum(t.numel() * t.element_size() for t in first.values() if isinstance(t, torch.Tensor))
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 64 << 20) if device == "cuda" else 0
    sets = [first, *(arrays() for _ in range(min(COPIES, max(1, -(-4 * cache // max(size, 1)))) - 1))]
    for n in range(WARM_UP):
        entry(**sets[n % len(sets)])
    if device != "cuda":
        began = time.perf_counter()
        entry(**first)
        return {"seconds": time.perf_counter() - began}
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(REPEATS)]
    torch.cuda.synchronize()
    torch.cuda._sleep(AHEAD)  # the launches are queued meanwhile: the time between two events is none of Python's
    for n, (start, end) in enumerate(events):
        start.record()
        entry(**sets[n % len(sets)])
        end.record()
    torch.cuda.synchronize()
    return {"seconds": statistics.median(start.elapsed_time(end) for start, end in events) / 1e3}
