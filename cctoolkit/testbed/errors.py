"""Errors of the testbed besides those of the package."""

from __future__ import annotations

from ..errors import CCToolkitError

__all__ = ["TestbedError"]


class TestbedError(CCToolkitError):
    """A testbed run failed; the text is its error message on one line."""

    __test__ = False
