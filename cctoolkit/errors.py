"""The errors and warnings of the package: every error it raises on purpose is one of these."""

from __future__ import annotations

from os import PathLike

__all__ = [
    "AlgorithmError",
    "CCToolkitError",
    "CaptureFormatError",
    "DatasetUnavailableError",
    "ParameterError",
    "SchemaError",
    "SeedWarning",
    "TapClockWarning",
    "TestbedUnavailableError",
    "TruncatedCaptureWarning",
]


class CCToolkitError(Exception):
    """Base of all errors that the package raises on purpose; the text is one line, fit for a terminal.

    Jupyter and IPython show that line instead of the traceback; ``%tb`` shows the traceback, ``%debug`` goes there.
    """

    _shown = False

    def __str__(self) -> str:
        """The text, with unprintable characters (from a file, a name or a table) escaped."""
        text = super().__str__()
        if text.isprintable():
            return text
        return "".join(
            c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii")
            for c in text
        )

    def within(self, where: str) -> CCToolkitError:
        """The same error, with where it happened in front of its text."""
        return type(self)(f"{where}: {self}")

    def _render_traceback_(self) -> list[str]:
        """What IPython prints: the line at first, the traceback when asked again (``%tb``)."""
        from IPython.core.getipython import get_ipython

        shell = get_ipython()
        if self._shown and shell is not None:
            return shell.InteractiveTB.structured_traceback(type(self), self, self.__traceback__)
        self._shown = True
        return [f"\x1b[31m{type(self).__name__}: {self}\x1b[0m"]


class CaptureFormatError(CCToolkitError):
    """The input is not a capture that this package can read.

    Parameters
    ----------
    path : str or path-like
        The file, or ``"<stdin>"``.
    offset : int or None
        Byte offset, after decompression, of the first byte that could not be read; None if none could, as without a
        file.
    expected : str
        What was expected there, and what was found.
    """

    def __init__(self, path: str | PathLike[str], offset: int | None, expected: str) -> None:
        self.path = str(path)
        self.offset = offset
        self.expected = expected
        where = "" if offset is None else f"byte {offset}: "
        super().__init__(f"{self.path}: {where}{expected}")

    def within(self, where: str) -> CCToolkitError:
        """As of every error; the path is part of the text."""
        return type(self)(f"{where}: {self.path}", self.offset, self.expected)

    def __reduce__(
        self,
    ) -> tuple[type, tuple[str, int | None, str]]:  # three arguments, one message: pickle needs help
        return type(self), (self.path, self.offset, self.expected)


class ParameterError(CCToolkitError, ValueError):
    """An argument has an invalid value; the text names the argument."""


class SchemaError(CCToolkitError):
    """A table lacks a column of :mod:`cctoolkit.schema`, or a column has the wrong type."""


class AlgorithmError(CCToolkitError):
    """The code of an AQM or congestion control does not compile, or fails at run time; the text names the line."""


class DatasetUnavailableError(CCToolkitError):
    """A download failed: no network, no such day, or a wrong checksum."""


class TestbedUnavailableError(CCToolkitError):
    """This machine cannot run a testbed backend; the text says what is missing."""

    __test__ = False  # the name starts with "Test", and pytest would collect it


class TruncatedCaptureWarning(UserWarning):
    """A capture ends, or is damaged, in the middle of a packet; all complete packets before it are kept."""


class TapClockWarning(UserWarning):
    """The clocks of two taps differ, by less than what is measured between them."""


class SeedWarning(UserWarning):
    """Runs of a sweep that differ only in their seed have the same results."""
