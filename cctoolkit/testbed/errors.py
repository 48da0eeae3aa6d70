"""What a testbed raises besides the package's own errors."""

from __future__ import annotations

from ..errors import CCToolkitError

__all__ = ["TestbedError"]


class TestbedError(CCToolkitError):
    """A testbed that could run the scenario failed to; the text is what it said, on one line."""

    __test__ = False
