"""The memory limit of a worker, the amount of work that fits, and a check of the limit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import CCToolkitError

__all__ = ["Memory", "peak_bytes"]

#: Measured and rounded up (docs/scale.md): the process with its kernels, a part of packets and the writing of a
#: part of a table; a flow of the capture, which must be numbered in any case; a flow of the current piece; a row of
#: slots.
BASE_BYTES = 550_000_000
NUMBER_BYTES = 300
FLOW_BYTES = 400
SLOT_ROW_BYTES = 200
PART_PACKETS = 500_000


@dataclass(frozen=True)
class Memory:
    """The memory limit of a worker.

    Parameters
    ----------
    limit_bytes : int
        Limit of the resident memory of the process.
    """

    limit_bytes: int

    @property
    def most_flows(self) -> int:
        """Most flows of a capture alive at a time, whatever the number of pieces: numbering gets half of the memory."""
        return max(0, (self.limit_bytes - BASE_BYTES) // 2 // NUMBER_BYTES)

    def blocks(self, block_flows: int) -> int:
        """Number of blocks of flows in a piece, at least one: they get the other half."""
        return max(1, (self.limit_bytes - BASE_BYTES) // 2 // (FLOW_BYTES * block_flows))

    def slot_rows(self) -> int:
        """Rows of slots that fit at a time; the flows of a piece are finished before its slots start."""
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
                f"but the limit is {self.limit_bytes / 1e9:.2f} GB (--memory)"
            )


def peak_bytes() -> int | None:
    """Peak resident memory of this process in bytes; None if the system does not report it."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):  # that of getrusage includes the parent's before exec
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
