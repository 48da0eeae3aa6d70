"""Errors on a live link."""

from __future__ import annotations

from ...errors import CCToolkitError

__all__ = ["CollectorError", "CollectorUnavailableError"]


class CollectorError(CCToolkitError):
    """The collector failed or could not be attached."""


class CollectorUnavailableError(CollectorError):
    """This machine cannot run the collector; the message names what is missing."""
