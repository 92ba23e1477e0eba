"""Rooflines: the least time that arithmetic and bytes allow on a machine, each roof named. Estimates, not measurements."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real

from tilec.errors import ResourceError, TargetError
from tilec.targets import Target, load

LARGEST = 1e300


@dataclass(frozen=True)
class Roofline:
    """Seconds: `compute` at the unit's peak, `memory` at full bandwidth; `time` is the larger, `bound` names it."""

    target: str
    unit: str  # "matrix" or "vector"
    rate_dtype: str  # the dtype whose peak was used
    compute: float
    memory: float
    intensity: float  # operations per byte; inf without bytes
    ridge: float
    bandwidth: float  # bytes per second, as reached

    def __str__(self) -> str:
        return (
            f"{self.target}, {self.unit} unit in {self.rate_dtype}: compute {self.compute * 1e6:.4g} us, "
            f"global {self.memory * 1e6:.4g} us, "
            f"bound by {self.bound}; {self.intensity:.4g} flop/B, ridge {self.ridge:.4g}"
        )

    @property
    def time(self) -> float:
        """Seconds, the larger of the two."""
        return max(self.compute, self.memory)

    @property
    def bound(self) -> str:
        """ "compute" or "global"."""
        return "compute" if self.compute >= self.memory else "global"

    @property
    def attainable(self) -> float:
        """Operations per second at this intensity."""
        return min(self.ridge, self.intensity) * self.bandwidth


def roofline(
    target: str | Target, flops: float, bytes: float, dtype: str = "f32", unit: str | None = None, efficiency: float = 1.0
) -> Roofline:
    """Roofline of `flops` operations in `dtype` and `bytes` bytes of global memory.

    unit: "matrix" or "vector"; None: matrix where the target has that rate, else vector. efficiency: share of the bandwidth that
    is reached (0 to 1]. TargetError where the target has no such rate.
    """
    machine = load(target)
    for what, value in (("flops", flops), ("bytes", bytes)):
        if isinstance(value, bool) or not isinstance(value, Real) or value != value or abs(value) > LARGEST:
            raise ResourceError(f"roofline: {what} must be a number up to {LARGEST:g}, got {value!r}")
    if flops < 0 or bytes < 0:
        raise ResourceError(f"roofline: flops and bytes must not be negative, got {flops} and {bytes}")
    if not 0 < efficiency <= 1:
        raise ResourceError(f"roofline: efficiency is a share above 0 and up to 1, got {efficiency}")
    if unit not in (None, "matrix", "vector"):
        raise ResourceError(f"roofline: unit {unit!r} is not known; units: matrix, vector")
    for candidate in (unit,) if unit else ("matrix", "vector"):
        found = machine.peak(candidate, dtype)
        if found is not None:
            peak, rate_dtype = found
            bandwidth = machine.bandwidth * efficiency
            return Roofline(
                machine.name,
                candidate,
                rate_dtype,
                flops / peak,
                bytes / bandwidth,
                flops / bytes if bytes else float("inf"),
                peak / bandwidth,
                bandwidth,
            )
    have = [f"{u} {k}" for u, t in (("matrix", machine.matrix_peaks), ("vector", machine.vector_peaks)) for k, _ in t]
    raise TargetError(
        f"target {machine.name!r} has no {unit or 'peak'} rate for {dtype!r}.\n  It has: {', '.join(have) or 'none'}"
    )


def ridge(target: str | Target, dtype: str = "bf16", unit: str = "matrix") -> float:
    """Operations per byte above which the unit, not the memory, is the limit."""
    return load(target).ridge(dtype, unit)
