"""How much memory a worker may use, what that allows it to take on, and the check that it keeps to it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import CCToolkitError

__all__ = ["Memory", "peak_bytes"]

#: Measured, rounded up (docs/scale.md): the process with its kernels, a part of packets and what a part of a table
#: takes to write; a flow of the capture, which is numbered whoever computes it; a flow of the piece in work; a row of
#: slots.
BASE_BYTES = 550_000_000
NUMBER_BYTES = 300
FLOW_BYTES = 400
SLOT_ROW_BYTES = 200
PART_PACKETS = 500_000


@dataclass(frozen=True)
class Memory:
    """The limit of one worker.

    Parameters
    ----------
    limit_bytes : int
        Of the process, resident.
    """

    limit_bytes: int

    @property
    def most_flows(self) -> int:
        """How many flows a capture may have at a time, whatever the number of pieces: numbering gets half."""
        return max(0, (self.limit_bytes - BASE_BYTES) // 2 // NUMBER_BYTES)

    def blocks(self, block_flows: int) -> int:
        """How many blocks of flows a piece has: the other half; one at least."""
        return max(1, (self.limit_bytes - BASE_BYTES) // 2 // (FLOW_BYTES * block_flows))

    def slot_rows(self) -> int:
        """How many rows of slots fit at a time; a piece's flows are done when its slots begin."""
        return max(100_000, (self.limit_bytes - BASE_BYTES) // 2 // SLOT_ROW_BYTES)

    def check(self, flows: int) -> None:
        """Stop before the operating system does.

        Raises
        ------
        CCToolkitError
            The process has grown beyond the limit.
        """
        import psutil

        now = psutil.Process().memory_info().rss
        if now > self.limit_bytes:
            raise CCToolkitError(
                f"needs more memory than a worker may use: {now / 1e9:.2f} GB with {flows:,} flows so far, "
                f"the limit is {self.limit_bytes / 1e9:.2f} GB (--memory)"
            )


def peak_bytes() -> int | None:
    """The most memory this process has had, resident; None where the system does not say."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):  # getrusage's counts what was there before exec, the parent's
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
