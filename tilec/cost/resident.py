"""Resident blocks per SM for whole arrays of launches: the rules of occupancy.py over NumPy arrays; tests hold the two equal."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.targets import Limits


def resident(limits: Limits, threads: Any, registers: Any, shared: Any) -> np.ndarray:
    """Blocks per SM, 0 where none fits. threads per block and registers per thread (0: unknown), shared bytes per block."""
    threads, registers, shared = (np.asarray(x, dtype=np.int64) for x in (threads, registers, shared))
    out = np.full(np.broadcast_shapes(threads.shape, registers.shape, shared.shape), limits.blocks_per_sm, dtype=np.int64)
    warps = _up(threads, limits.warp) // limits.warp
    some = np.maximum(warps, 1)
    out = np.where(threads > 0, np.minimum(out, limits.warps_per_sm // some), out)
    out = np.where(threads > limits.threads_per_block, 0, out)
    per_warp = _up(registers * limits.warp, limits.register_unit)
    by_registers = limits.registers_per_sm // limits.sub_partitions // np.maximum(per_warp, 1) * limits.sub_partitions // some
    most = _up(limits.registers_per_thread * limits.warp, limits.register_unit)
    block = per_warp * _up(some, limits.sub_partitions)
    by_registers = np.where((per_warp > most) | (block > limits.registers_per_block), 0, by_registers)
    out = np.where((threads > 0) & (per_warp > 0), np.minimum(out, by_registers), out)
    bytes_ = _up(shared + limits.shared_reserved, limits.shared_unit)
    fits = bytes_ <= limits.shared_per_block + limits.shared_reserved
    by_shared = np.where(bytes_ > 0, limits.shared_per_sm // np.maximum(bytes_, 1), limits.blocks_per_sm)
    out = np.minimum(out, np.where(fits, by_shared, 0))
    if limits.barrier_slots:
        out = np.minimum(out, limits.barrier_slots)
    return out


def _up(value: Any, unit: int) -> Any:
    return -(-value // unit) * unit
