"""Resident blocks of whole arrays of launches, and the L1 beside their shared memory: the rules of cost/occupancy.py on arrays.

Tests hold the two equal.
"""

from __future__ import annotations

import numpy as np

from tilec.targets import Limits


def residents(
    limits: Limits, threads: np.ndarray, registers: np.ndarray, shared: np.ndarray, kept: np.ndarray | int = 0
) -> np.ndarray:
    """Blocks per SM, 0 where none fits. threads per block, registers per thread, shared bytes per block; one named barrier.
    kept: bytes in registers of blocks whose threads are unknown."""
    warps = -(-threads // limits.warp)
    by_threads = np.where(threads > limits.threads_per_block, 0, limits.warps_per_sm // np.maximum(warps, 1))
    per_warp = _up(registers * limits.warp, limits.register_unit)
    assumed = per_warp * _up(warps, limits.sub_partitions)
    per_partition = limits.registers_per_sm // limits.sub_partitions // np.maximum(per_warp, 1)
    by_registers = np.where(per_warp == 0, limits.blocks_per_sm, per_partition * limits.sub_partitions // np.maximum(warps, 1))
    too_many = (registers > limits.registers_per_thread) | (assumed > limits.registers_per_block)
    by_registers = np.where(too_many, 0, by_registers)
    allocated = _up(shared + limits.shared_reserved, limits.shared_unit)
    by_shared = np.where(allocated > 0, limits.shared_per_sm // np.maximum(allocated, 1), limits.blocks_per_sm)
    by_shared = np.where(allocated > limits.shared_per_block + limits.shared_reserved, 0, by_shared)
    by_kept = np.where(np.asarray(kept) > 0, 4 * limits.registers_per_sm // np.maximum(kept, 1), limits.blocks_per_sm)
    by_kept = np.where(np.asarray(kept) > 4 * limits.registers_per_block, 0, by_kept)
    by_registers = np.where(threads > 0, by_registers, by_kept)
    caps = [by_threads, by_registers, by_shared, np.full_like(by_threads, limits.blocks_per_sm)]
    if limits.barrier_slots:
        caps.append(np.full_like(by_threads, limits.barrier_slots))
    return np.minimum.reduce(caps)


def most_registers(limits: Limits, threads: np.ndarray) -> np.ndarray:
    """Registers that a compiler can give each of a block's threads, so that one block resides: a multiple of 8."""
    whole = -(-threads // limits.warp) * limits.warp
    return np.minimum(limits.registers_per_thread, limits.registers_per_block // whole // 8 * 8)


def l1_beside(limits: Limits, shared: np.ndarray) -> np.ndarray:
    """Bytes of L1 left beside `shared` bytes of shared memory: an SM takes the smallest configuration that holds them."""
    configs = np.array(limits.shared_configs)
    taken = configs[np.minimum(np.searchsorted(configs, shared), len(configs) - 1)]
    return np.maximum(0, limits.l1_per_sm - taken)


def _up(value: np.ndarray, unit: int) -> np.ndarray:
    return -(-value // unit) * unit
