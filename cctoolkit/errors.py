"""What can go wrong, by name: every error the package raises on purpose is one of these."""

from __future__ import annotations

from os import PathLike

__all__ = [
    "AlgorithmError",
    "CCToolkitError",
    "CaptureFormatError",
    "DatasetUnavailableError",
    "ParameterError",
    "SchemaError",
    "TestbedUnavailableError",
    "TruncatedCaptureWarning",
]


class CCToolkitError(Exception):
    """Base of all errors raised on purpose; its text is one line fit for a terminal."""


class CaptureFormatError(CCToolkitError):
    """The bytes are not a capture this package reads.

    Parameters
    ----------
    path : str or path-like
        The file, or ``"<stdin>"``.
    offset : int
        Byte offset (after decompression) at which the reader stopped understanding.
    expected : str
        What should have stood there, and what did.
    """

    def __init__(self, path: str | PathLike[str], offset: int, expected: str) -> None:
        self.path = str(path)
        self.offset = offset
        self.expected = expected
        super().__init__(f"{self.path}: byte {offset}: {expected}")

    def __reduce__(
        self,
    ) -> tuple[type, tuple[str, int, str]]:  # three arguments, one message: pickle needs help
        return type(self), (self.path, self.offset, self.expected)


class ParameterError(CCToolkitError, ValueError):
    """An argument has a value the function cannot work with; the text names the argument."""


class SchemaError(CCToolkitError):
    """A table lacks a column, or a column has another type than :mod:`cctoolkit.schema` says."""


class AlgorithmError(CCToolkitError):
    """The code of an AQM or a congestion control does not compile, or fails at run time; the text names the line."""


class DatasetUnavailableError(CCToolkitError):
    """Data that should be downloaded cannot be: no network, no such day, or a wrong checksum."""


class TestbedUnavailableError(CCToolkitError):
    """This machine cannot run a testbed backend; the text names what is missing."""

    __test__ = False  # the name starts with "Test", and pytest would collect it


class TruncatedCaptureWarning(UserWarning):
    """A capture ends, or is damaged, in the middle of a packet; all whole packets before it are kept."""
