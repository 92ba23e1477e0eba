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


@dataclass(frozen=True)
class Figure:
    """One figure in base units (count, bytes, bytes/s, Hz, s, operations/s); `text` is as the source prints it."""

    value: float
    text: str
    source: str
    estimate: bool = False

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

    @property
    def warp(self) -> int:
        """Threads per warp."""
        return self.threads_per_sm // self.warps_per_sm


@dataclass(frozen=True)
class Target:
    """A machine. `kind`: "gpu", "cpu", "accelerator", or "limits" (a bare compute capability: occupancy only)."""

    name: str
    title: str
    kind: str
    figures: tuple[tuple[str, Figure], ...] = ()
    matrix_peaks: tuple[tuple[str, Figure], ...] = ()
    vector_peaks: tuple[tuple[str, Figure], ...] = ()
    limits: Limits | None = None
    note: str | None = None

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
    def shared_capacity(self) -> int | None:
        """Bytes of shared memory one block may allocate: a limit of the block on a GPU, of the core elsewhere."""
        if self.limits is not None:
            return self.limits.shared_per_block
        found = self.figure.get("shared_per_core")
        return found.integer if found else None

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
