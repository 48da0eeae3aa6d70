"""Arrays as kernels read them: numba compiles a kernel anew for each layout in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["for_kernels", "same_layout"]


def for_kernels(array: np.ndarray, dtype: Any = None) -> np.ndarray:
    """`array`, contiguous, aligned and read-only; copied only where it is not, or where its type differs."""
    alike = np.require(array, dtype, ["C_CONTIGUOUS", "ALIGNED"]).view()
    alike.flags.writeable = False
    return alike


def same_layout(columns: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All `columns` as :func:`for_kernels` returns them."""
    return {name: for_kernels(column) for name, column in columns.items()}
