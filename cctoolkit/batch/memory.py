"""How much memory a worker may use, what that allows it to take on, and the check that it keeps to it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import CCToolkitError

__all__ = ["Memory"]

#: Measured (docs/scale.md): the process with its kernels and two parts of packets, then by flow of the piece in work,
#: and by row of a table of slots with what it is made of.
BASE_BYTES = 700_000_000
FLOW_BYTES = 700
SLOT_ROW_BYTES = 400
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

    def blocks(self, block_flows: int) -> int:
        """How many blocks of flows fit at a time; one has to."""
        return max(1, int((self.limit_bytes - BASE_BYTES) // (FLOW_BYTES * block_flows)))

    def slot_rows(self) -> int:
        """How many rows of slots fit at a time."""
        return max(100_000, int((self.limit_bytes - BASE_BYTES) // SLOT_ROW_BYTES))

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
