"""What a machine is: figures with unit and source, per-SM limits, peak rates per dtype. Frozen, picklable."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tilec.errors import TargetError

# dtypes a matrix or vector unit can stand in for: a storage type without an entry uses the next wider one it converts to exactly
_WIDER = {
    "f8e4m3": ("f16", "bf16", "f32"),
    "f8e5m2": ("f16", "f32"),
    "bf16": ("f32",),
    "f16": ("f32",),
    "i8": ("i32", "f16", "bf16", "f32"),
    "i32": ("f32",),
}

UNITS = {
    "count": (1.0, "count"),
    "B": (1.0, "bytes"),
    "KiB": (1024.0, "bytes"),
    "MiB": (1024.0**2, "bytes"),
    "GiB": (1024.0**3, "bytes"),
    "GB": (1e9, "bytes"),
    "GB/s": (1e9, "bytes/s"),
    "TB/s": (1e12, "bytes/s"),
    "MHz": (1e6, "Hz"),
    "GHz": (1e9, "Hz"),
    "ns": (1e-9, "s"),
    "us": (1e-6, "s"),
    "GFLOP/s": (1e9, "ops/s"),
    "TFLOP/s": (1e12, "ops/s"),
    "share": (1.0, "share"),
}
"""Factor to base units, and what is measured in it."""

RATES = {
    "fma_f32": "ops/s",
    "fma_f64": "ops/s",
    "mul_add_f32": "ops/s",
    "mul_add_f64": "ops/s",
    "dot_bf16": "ops/s",
    "dot_i8": "ops/s",
    "read_l1": "bytes/s",
    "read_l2": "bytes/s",
    "read_l3": "bytes/s",
    "read": "bytes/s",
    "copy": "bytes/s",
    "copy_stream": "bytes/s",
    "triad": "bytes/s",
    "triad_stream": "bytes/s",
    "call": "s",
    "region": "s",
    "barrier": "s",
}
"""What is measured of a CPU for a number of threads, and in what. A multiply-add counts as two operations, fused ("fma") or not;
"dot" rates are those of instructions that sum several products. Bytes are those that the program reads and writes: what a cache
fetches in order to overwrite it is not counted. "_stream": stores that go past the caches. "call": one call of compiled code from
Python; "region": an empty parallel region; "barrier": one barrier inside it."""


@dataclass(frozen=True)
class Figure:
    """One figure in base units (count, bytes, bytes/s, Hz, s, operations/s); `text` is as the source prints it."""

    value: float
    text: str
    source: str
    estimate: bool = False

    @staticmethod
    def of(value: float, unit: str, source: str, estimate: bool = False) -> Figure:
        """`value` in base units, kept to four digits as its text in `unit` shows it."""
        scale, measures = UNITS[unit]
        shown = f"{value / scale:.0f}" if measures in ("count", "bytes") else f"{value / scale:.4g}"
        return Figure(float(shown) * scale, f"{shown} {unit}", source, estimate)

    @property
    def integer(self) -> int:
        """The value of a count or of bytes."""
        return round(self.value)


@dataclass(frozen=True)
class Limits:
    """Per-SM limits of a compute capability. All in counts, registers or bytes."""

    compute_capability: str
    source: str
    threads_per_sm: int
    warps_per_sm: int
    blocks_per_sm: int
    threads_per_block: int
    registers_per_sm: int
    registers_per_block: int
    registers_per_thread: int
    register_unit: int  # registers are allocated to warps in multiples of this
    sub_partitions: int
    shared_per_sm: int
    shared_per_block: int  # what one block may ask for (opt-in), without the reserve
    shared_reserved: int  # per block, by the system
    shared_unit: int
    shared_configs: tuple[int, ...]  # bytes of shared memory an SM can be set to
    barrier_slots: int  # named barriers per SM; 0: no limit
    load_store_lanes: int  # lanes of a warp that the SM's load/store units take per cycle
    l1_per_sm: int  # bytes, what shared memory takes included

    @property
    def warp(self) -> int:
        """Threads per warp."""
        return self.threads_per_sm // self.warps_per_sm


@dataclass(frozen=True)
class Target:
    """A machine. `kind`: "gpu", "cpu", "accelerator", or "limits" (a bare compute capability: occupancy only).

    Of a CPU also: features (the instruction sets that matter, such as "avx2", "fma", "avx512_bf16"), threads (what `RATES` names,
    for each number of threads that was measured, ascending), machine (the key of the computer that the figures are of).
    """

    name: str
    title: str
    kind: str
    figures: tuple[tuple[str, Figure], ...] = ()
    matrix_peaks: tuple[tuple[str, Figure], ...] = ()
    vector_peaks: tuple[tuple[str, Figure], ...] = ()
    limits: Limits | None = None
    note: str | None = None
    features: tuple[str, ...] = ()
    threads: tuple[tuple[int, tuple[tuple[str, Figure], ...]], ...] = ()
    machine: str | None = None
    matrix_paths: tuple[tuple[str, Figure], ...] = ()  # share of the matrix peak that each instruction path reaches

    @cached_property
    def figure(self) -> dict[str, Figure]:
        """The figures by name."""
        return dict(self.figures)

    def need(self, name: str) -> Figure:
        """The figure `name`; TargetError if the machine file doesn't hold it."""
        if name not in self.figure:
            have = ", ".join(self.figure) or "none"
            raise TargetError(f"target {self.name!r} has no figure {name!r}.\n  Figures it has: {have}")
        return self.figure[name]

    @property
    def bandwidth(self) -> float:
        """Bytes per second of global memory (decimal GB/s in the file)."""
        return self.need("bandwidth").value

    @property
    def sm_limits(self) -> Limits:
        """The limits of an SM; TargetError where the target has none."""
        if self.limits is None:
            raise TargetError(f"target {self.name!r} ({self.kind}) has no SMs: it has capacities per core")
        return self.limits

    def lanes(self, dtype: str) -> float:
        """Multiply-adds that an SM's vector units start per cycle; TargetError without a vector rate for `dtype`."""
        found = self.peak("vector", dtype)
        if found is None:
            have = ", ".join(k for k, _ in self.vector_peaks) or "none"
            raise TargetError(f"target {self.name!r} has no vector rate for {dtype!r}.\n  It has: {have}")
        return found[0] / (2 * self.cores * self.clock)

    @property
    def cores(self) -> int:
        """SMs of a GPU, cores of anything else."""
        return self.need("sms" if self.kind == "gpu" else "cores").integer

    @property
    def clock(self) -> float:
        """Hz."""
        return self.need("clock").value

    @property
    def dram_latency(self) -> float:
        """Seconds."""
        return self.need("dram_latency").value

    @property
    def launch_overhead(self) -> float:
        """Seconds that one launch adds to the kernel before it in a stream; 0 where the file doesn't say."""
        found = self.figure.get("launch_overhead")
        return found.value if found else 0.0

    def path_share(self, path: str) -> float:
        """Share of the matrix peak that a path ("mma.sync", "wgmma", "tcgen05") reaches; 1 where the file doesn't say."""
        found = dict(self.matrix_paths).get(path)
        return found.value if found else 1.0

    @property
    def shared_capacity(self) -> int | None:
        """Bytes of shared memory one block may allocate: a limit of the block on a GPU, of the core elsewhere."""
        if self.limits is not None:
            return self.limits.shared_per_block
        found = self.figure.get("shared_per_core")
        return found.integer if found else None

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register."""
        return self.need("vector_bytes").integer

    @property
    def vector_registers(self) -> int:
        """How many vector registers code can name."""
        return self.need("vector_registers").integer

    @property
    def measured(self) -> bool:
        """Were its rates measured on this computer (else they are estimates from what the system says)?"""
        return any(not f.estimate for _, rates in self.threads for _, f in rates)

    def has_rate(self, name: str) -> bool:
        """Is there a figure for that name of `RATES` at any number of threads?"""
        return any(name in dict(rates) for _, rates in self.threads)

    def rate(self, name: str, threads: int = 1) -> float:
        """What `RATES` calls `name`, at that many threads; TargetError where the machine has none.

        A number of threads that was not measured takes the figure of the next lower one that was (of the lowest, below it);
        arithmetic and the caches of one core then grow with the threads, up to the cores; what is shared does not.
        """
        if name not in RATES:
            raise TargetError(f"rate({name!r}): no such rate.\n  Rates: {', '.join(RATES)}")
        have = {n: dict(rates)[name].value for n, rates in self.threads if name in dict(rates)}
        if not have:
            known = ", ".join(n for n in RATES if self.has_rate(n)) or "none"
            raise TargetError(f"target {self.name!r} has no rate {name!r}.\n  Rates it has: {known}")
        if isinstance(threads, bool) or not isinstance(threads, int) or threads < 1:
            raise TargetError(f"rate({name!r}, threads={threads!r}): a number of threads is an integer >= 1")
        used = min(threads, self.cores)
        base = max((n for n in have if n <= used), default=min(have))
        own = RATES[name] == "ops/s" or name in ("read_l1", "read_l2")
        return have[base] * (used / base if own else 1)

    def peak(self, unit: str, dtype: str) -> tuple[float, str] | None:
        """(operations/s, dtype of the entry used) of the "matrix" or "vector" unit, or None where it has no rate for `dtype`.

        A dtype without an entry runs at the rate of the next wider one that holds its values exactly. A matrix unit has no
        f32 rate unless its file says so: rounding to tf32 would change values.
        """
        table = dict(self.matrix_peaks if unit == "matrix" else self.vector_peaks)
        for candidate in (dtype, *_WIDER.get(dtype, ())):
            if candidate in table:
                return table[candidate].value, candidate
        return None

    def ridge(self, dtype: str, unit: str = "matrix") -> float:
        """Operations per byte at which the unit's peak and the memory bandwidth meet; TargetError without such a peak."""
        found = self.peak(unit, dtype)
        if found is None:
            table = self.matrix_peaks if unit == "matrix" else self.vector_peaks
            have = ", ".join(k for k, _ in table) or "none"
            raise TargetError(f"target {self.name!r} has no {unit} rate for {dtype!r}.\n  It has: {have}")
        return found[0] / self.bandwidth
