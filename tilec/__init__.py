"""tilec: write a loop nest, schedule it, have it proved, print it, price it, pick a schedule, run it.

The face is lazy (PEP 562): a name is imported from its module when it is first used, so that `import tilec` is instant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilec import errors
    from tilec.api import (
        CallProgram,
        Compiled,
        Kernel,
        Measure,
        Schedule,
        SharedTile,
        amdahl,
        amortise_calls,
        bank_rounds,
        blocks_needed,
        break_even_share,
        bytes_in_flight,
        call_timing,
        choose_program,
        compile,
        critical_path,
        effective_bandwidth,
        generation_calls,
        global_sectors,
        graph_replay,
        host_bound,
        kernel,
        launch_counts,
        limit_by_doubling,
        load,
        loads_needed,
        occupancy,
        operand_sharing,
        pad_to_buckets,
        paired_change,
        persistent_kernel,
        pick,
        pipeline_time,
        roofline,
        shape_mix,
        target,
        tiles,
        tune,
        tune_mix,
        warps_needed,
        waves,
        work_ms,
        workload,
    )
    from tilec.lang.types import bf16, f8e4m3, f8e5m2, f16, f32, f64, i8, i32, sizes

__version__ = "0.1.0"

# Where each name lives. The elementary functions are looked up in ir/functions.py, their only list.
_HOME = {
    **dict.fromkeys(
        (
            *("compile", "pick"),
            *("Compiled", "Kernel", "Measure", "Schedule", "kernel", "load", "target", "tune", "tune_mix", "workload"),
            *("occupancy", "pipeline_time", "roofline"),
            *("SharedTile", "bank_rounds", "global_sectors", "operand_sharing", "tiles", "waves"),
            *("blocks_needed", "bytes_in_flight", "effective_bandwidth", "loads_needed", "warps_needed"),
            *("CallProgram", "amortise_calls", "break_even_share", "choose_program", "generation_calls", "pad_to_buckets"),
            *("shape_mix", "work_ms"),
            *("amdahl", "call_timing", "critical_path", "graph_replay", "host_bound", "launch_counts", "limit_by_doubling"),
            *("paired_change", "persistent_kernel"),
        ),
        "tilec.api",
    ),
    **dict.fromkeys(("sizes", "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i32", "i8"), "tilec.lang.types"),
}
_MODULES = (
    *("errors", "targets", "ir", "lang", "workloads", "poly", "schedule", "lower", "cost", "codegen", "runtime", "search"),
    *("report", "api", "cli"),
)

__all__ = [
    "CallProgram",
    "Compiled",
    "Kernel",
    "Measure",
    "Schedule",
    "SharedTile",
    "amdahl",
    "amortise_calls",
    "bank_rounds",
    "bf16",
    "blocks_needed",
    "break_even_share",
    "bytes_in_flight",
    "call_timing",
    "choose_program",
    "compile",
    "critical_path",
    "effective_bandwidth",
    "errors",
    "f8e4m3",
    "f8e5m2",
    "f16",
    "f32",
    "f64",
    "generation_calls",
    "global_sectors",
    "graph_replay",
    "host_bound",
    "i8",
    "i32",
    "kernel",
    "launch_counts",
    "limit_by_doubling",
    "load",
    "loads_needed",
    "occupancy",
    "operand_sharing",
    "pad_to_buckets",
    "paired_change",
    "persistent_kernel",
    "pick",
    "pipeline_time",
    "roofline",
    "shape_mix",
    "sizes",
    "target",
    "tiles",
    "tune",
    "tune_mix",
    "warps_needed",
    "waves",
    "work_ms",
    "workload",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = importlib.import_module(f"tilec.{name}")
    elif not name.startswith("__") and name in _functions():
        value = getattr(importlib.import_module("tilec.lang"), name)
    else:
        raise AttributeError(f"tilec has no '{name}'. It has: {', '.join(__all__)}, and the functions {', '.join(_functions())}")
    globals()[name] = value
    return value


def _functions() -> list[str]:
    from tilec.ir.functions import FUNCTIONS

    return [*FUNCTIONS, "sqrt"]


def __dir__() -> list[str]:
    return sorted({*__all__, *_MODULES, *_functions(), "__version__"})
