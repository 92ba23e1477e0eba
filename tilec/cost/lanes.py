"""What the warps of a launch ask of the memories, for whole arrays of accesses at once: one row per access, 32 lanes each.

Shared memory answers a request in phases of at most 128 bytes: 32 lanes of 4, 16 of 8, 8 of 16 bytes. In a phase the distinct
words of the fullest bank are taken in turn (CUDA C++ Programming Guide, shared memory); a word that several lanes want is read
once. Phases of 8- and 16-byte loads join in pairs where each lane has the address of its neighbour (lane xor 1, or lane xor 2).
Global memory goes through L1 in the same phases, a tag (128-byte line) each cycle. `cost/banks.py` is the same for one access of
Python numbers; tests hold the two equal.
"""

from __future__ import annotations

import numpy as np

from tilec.cost.banks import BANKS, LINE, WORD

LANES = np.arange(BANKS)


def wavefronts(addresses: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Turns of shared memory per request. addresses: int [n, 32], bytes; width: int [n], bytes per lane, at most 16."""
    joined = ((addresses == addresses[:, LANES ^ 1]).all(1)) | ((addresses == addresses[:, LANES ^ 2]).all(1))
    return _phased(addresses, width, joined, _turns)


def lines(addresses: np.ndarray, width: np.ndarray) -> np.ndarray:
    """Lines of L1 looked up per request, summed over its phases. Arguments as for `wavefronts`."""
    return _phased(addresses, width, np.zeros(len(addresses), dtype=bool), _lines)


def distinct(values: np.ndarray) -> np.ndarray:
    """Different values in each row."""
    values = np.sort(values, axis=1)
    return 1 + (values[:, 1:] != values[:, :-1]).sum(axis=1)


def _phased(addresses: np.ndarray, width: np.ndarray, joined: np.ndarray, price) -> np.ndarray:
    out = np.zeros(len(addresses), dtype=np.int64)
    for bytes_per_lane in np.unique(width):
        for pair in (False, True):
            rows = np.flatnonzero((width == bytes_per_lane) & (joined == pair))
            if not len(rows):
                continue
            lanes = min(BANKS, max(1, BANKS * WORD // int(bytes_per_lane)) * (2 if pair else 1))
            for first in range(0, BANKS, lanes):
                out[rows] += price(addresses[rows, first : first + lanes], int(bytes_per_lane))
    return out


def _turns(addresses: np.ndarray, width: int) -> np.ndarray:
    """Distinct words of the fullest bank. Lanes are aligned to their width."""
    words = (addresses[:, :, None] // WORD + np.arange(max(1, width // WORD))).reshape(len(addresses), -1)
    words = np.sort(words, axis=1)
    first = np.ones(words.shape, dtype=bool)
    first[:, 1:] = words[:, 1:] != words[:, :-1]
    rows = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    counts = np.bincount((rows * BANKS + words % BANKS)[first], minlength=len(words) * BANKS)
    return counts.reshape(len(words), BANKS).max(axis=1)


def _lines(addresses: np.ndarray, width: int) -> np.ndarray:
    return distinct(np.concatenate([addresses // LINE, (addresses + (width - 1)) // LINE], axis=1))
