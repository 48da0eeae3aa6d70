"""Random numbers for compiled functions: the stream belongs to a record, so a run depends only on its seed."""

from __future__ import annotations

import numba
import numpy as np

__all__ = ["random"]


@numba.njit(error_model="numpy")
def random(record):
    """The next number in [0, 1) of the stream in ``record.rng`` (splitmix64, 53 bits; Steele et al. 2014)."""
    record.rng += np.uint64(0x9E3779B97F4A7C15)
    z = record.rng
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.float64(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)
