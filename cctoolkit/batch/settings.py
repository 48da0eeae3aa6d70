"""What is computed of every capture; one dataset has one of these."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .._support.arguments import positive_ns
from ..errors import ParameterError

__all__ = ["BatchSettings"]

#: Raise it when the same capture and settings would give other results: what is there is then computed again.
RESULTS = 2


@dataclass(frozen=True)
class BatchSettings:
    """What :func:`cctoolkit.run_batch` computes. Results are addressed by a capture's bytes and these values.

    Parameters
    ----------
    slot_ms : float
        Length of the slots of long flows; of the order of an RTT, so that an archive's slots are smaller than it.
    long_flow_bytes : int
        A flow is long if one direction carries more than this many bytes on the wire.
    tunnel : {"outer", "inner"}
        As for :func:`cctoolkit.read_capture`.
    flow_timeout_s : float or None
        As for :func:`cctoolkit.read_capture`.
    block_flows : int
        A file holds the rows of so many flow numbers. It is also the smallest piece into which a capture can be split.

    Raises
    ------
    ParameterError
        A value that cannot be.
    """

    slot_ms: float = 100.0
    long_flow_bytes: int = 10_000_000
    tunnel: Literal["outer", "inner"] = "outer"
    flow_timeout_s: float | None = 600.0
    block_flows: int = 1 << 20

    def __post_init__(self) -> None:
        positive_ns(self.slot_ms, 1e6, "slot_ms")
        if self.tunnel not in ("outer", "inner"):
            raise ParameterError(f"tunnel: {self.tunnel!r} is neither 'outer' nor 'inner'")
        if self.flow_timeout_s is not None and not self.flow_timeout_s > 0:
            raise ParameterError(f"flow_timeout_s: {self.flow_timeout_s} is not positive (None: never)")
        for name in ("long_flow_bytes", "block_flows"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ParameterError(f"{name}: {value!r} is not a whole number of at least 1")

    def as_dict(self) -> dict[str, Any]:
        """For JSON; with what else decides about the results."""
        return {**asdict(self), "results": RESULTS}

    def capture_id(self, stem: str, sha256: str) -> str:
        """What a capture's results are called: its name, and an address of its bytes and these settings."""
        address = json.dumps({"capture": sha256, "settings": self.as_dict()}, sort_keys=True)
        return f"{stem}-{hashlib.sha256(address.encode()).hexdigest()[:12]}"
