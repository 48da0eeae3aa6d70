"""What can go wrong on a live link, by name."""

from __future__ import annotations

from ...errors import CCToolkitError

__all__ = ["CollectorError", "CollectorUnavailableError"]


class CollectorError(CCToolkitError):
    """The collector failed while it ran, or could not be attached."""


class CollectorUnavailableError(CollectorError):
    """This machine cannot run the collector; the text names what is missing."""
