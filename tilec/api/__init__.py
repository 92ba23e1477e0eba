"""The face: Kernel, Schedule, tune and the calculators. Thin wrappers over the pure packages; no idea lives only here."""

from __future__ import annotations

from tilec.api.kernel import Kernel, Schedule, kernel, workload
from tilec.api.tuning import compile, pick, tune, tune_mix
from tilec.cost.banks import SharedTile, bank_rounds, global_sectors
from tilec.cost.calls import (
    CallProgram,
    amortise_calls,
    break_even_share,
    choose_program,
    generation_calls,
    pad_to_buckets,
    shape_mix,
    work_ms,
)
from tilec.cost.cost import Cost
from tilec.cost.graph import (
    amdahl,
    call_timing,
    critical_path,
    graph_replay,
    host_bound,
    launch_counts,
    limit_by_doubling,
    paired_change,
    persistent_kernel,
)
from tilec.cost.latency import blocks_needed, bytes_in_flight, effective_bandwidth, loads_needed, tiles, warps_needed, waves
from tilec.cost.occupancy import Occupancy, occupancy
from tilec.cost.pipeline import pipeline_time
from tilec.cost.raster import operand_sharing
from tilec.cost.roofline import roofline
from tilec.ir.program import Program
from tilec.runtime.c_callable import Compiled
from tilec.runtime.c_load import load
from tilec.schedule.core import Primitive, primitives
from tilec.search.measure import Measure
from tilec.search.result import Tuned
from tilec.targets import load as target

__all__ = [
    "CallProgram",
    "Compiled",
    "Cost",
    "Kernel",
    "Measure",
    "Occupancy",
    "Primitive",
    "Program",
    "Schedule",
    "SharedTile",
    "Tuned",
    "amdahl",
    "amortise_calls",
    "bank_rounds",
    "blocks_needed",
    "break_even_share",
    "bytes_in_flight",
    "call_timing",
    "choose_program",
    "compile",
    "critical_path",
    "effective_bandwidth",
    "generation_calls",
    "global_sectors",
    "graph_replay",
    "host_bound",
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
    "primitives",
    "roofline",
    "shape_mix",
    "target",
    "tiles",
    "tune",
    "tune_mix",
    "warps_needed",
    "waves",
    "work_ms",
    "workload",
]
