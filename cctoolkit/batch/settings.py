"""Settings of a batch; the same for all of a dataset."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from .._support.arguments import positive_ns
from ..errors import ParameterError

__all__ = ["BatchSettings"]

#: Increase it when the same capture and settings would give other results, so that they are computed again.
RESULTS = 1


@dataclass(frozen=True)
class BatchSettings:
    """What :func:`cctoolkit.run_batch` computes; results are identified by the capture's bytes and these values.

    Parameters
    ----------
    slot_ms : float
        Length of the slots of long flows in ms; of the order of an RTT, so that the slots of an archive stay small.
    long_flow_bytes : int
        A flow is long if a direction carries more than this many bytes on the wire.
    tunnel : {"outer", "inner"}
        As for :func:`cctoolkit.read_capture`.
    flow_timeout_s : float or None
        As for :func:`cctoolkit.read_capture`.
    block_flows : int
        Number of flows per file, and so the smallest piece into which a capture can be split.

    Raises
    ------
    ParameterError
        A value is invalid.

    See Also
    --------
    run_batch : run a batch

    Examples
    --------
    >>> settings = cct.BatchSettings(long_flow_bytes=1_000_000)
    >>> result = cct.run_batch([cct.example("mixed").ingress.meta.path], "archive", settings)
    >>> int(pd.read_parquet("archive/flows")["is_long"].sum())
    3
    """

    slot_ms: float = 100.0
    long_flow_bytes: int = 10_000_000
    tunnel: Literal["outer", "inner"] = "outer"
    flow_timeout_s: float | None = 600.0
    block_flows: int = 1 << 20

    def __post_init__(self) -> None:
        positive_ns(self.slot_ms, 1e6, "slot_ms")
        if self.tunnel not in ("outer", "inner"):
            raise ParameterError(f"tunnel: {self.tunnel!r} must be 'outer' or 'inner'")
        if self.flow_timeout_s is not None and not self.flow_timeout_s > 0:
            raise ParameterError(
                f"flow_timeout_s: {self.flow_timeout_s} must be positive, or None if flows never time out"
            )
        for name in ("long_flow_bytes", "block_flows"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ParameterError(f"{name}: {value!r} must be a whole number, at least 1")

    def as_dict(self) -> dict[str, Any]:
        """For JSON, including everything else that affects the results."""
        return {**asdict(self), "results": RESULTS}

    def capture_id(self, stem: str, sha256: str) -> str:
        """Name of a capture's results: its name, and a hash of its bytes and these settings."""
        address = json.dumps({"capture": sha256, "settings": self.as_dict()}, sort_keys=True)
        return f"{stem}-{hashlib.sha256(address.encode()).hexdigest()[:12]}"
