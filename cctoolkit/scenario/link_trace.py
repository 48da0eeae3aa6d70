"""Recorded links, such as cellular ones, as rates of a bottleneck over time."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

import numpy as np

from .._support.arguments import number, shown
from .._support.ethernet import FULL_FRAME_BYTES
from ..errors import ParameterError

__all__ = ["read_link_trace"]

#: The shortest step: times of Mahimahi's traces are whole milliseconds.
_SHORTEST_S = 1e-3
#: A link that stands still longer sends a packet in each such time, since its rate must be positive.
_LONGEST_GAP_NS = 10**9
#: The most steps: each interrupts a run.
_MOST_STEPS = 1_000_000


def read_link_trace(
    path: str | os.PathLike[str], *, duration_s: float | None = None, step_s: float = 0.1
) -> tuple[tuple[float, float], ...]:
    """Read how the rate of a recorded link changes, as ``rate_schedule`` of a bottleneck.

    Parameters
    ----------
    path : path
        A text file in one of two formats. Mahimahi's (``mm-link``): on each line a time in whole ms at which a packet
        of 1500 bytes may leave. Or on each line a time in s and, behind a space, tab or comma, the rate in Mbit/s from
        then on, as in Pensieve's traces. Empty lines and lines that begin with ``#`` are skipped.
    duration_s : float, optional
        Repeat the trace up to this time, or cut it there. By default, it is taken once.
    step_s : float
        Mahimahi's opportunities are counted in steps of this length.

    Returns
    -------
    tuple of (time_s, rate_mbps)
        From time 0. Rates count whole frames, like ``Bottleneck.rate_mbps``: an opportunity is one of 1514 bytes.

    Raises
    ------
    ParameterError
        The file cannot be read, or a line is not as expected; the text names file and line.

    See Also
    --------
    Bottleneck : its ``rate_schedule``; in a scenario file, ``link_trace = "PATH"`` in ``[bottleneck]``
    Flow : ``jitter_ms``, for delays that vary

    Notes
    -----
    Within a step the rate is constant, where ``mm-link`` sends in bursts, each up to 1504 bytes long. A packet that
    leaves after steps without any is being sent all that time. Rates must be positive, so a link that stands still
    sends a packet each second. Mahimahi's traces end, and begin again, at their last time; traces of the other format
    one median gap behind it.

    Examples
    --------
    >>> from pathlib import Path
    >>> _ = Path("lte.down").write_text("10\\n10\\n60\\n120\\n200\\n")
    >>> cct.read_link_trace("lte.down")
    ((0.0, 0.36336), (0.1, 0.24224))
    >>> rates = cct.read_link_trace("lte.down", duration_s=10)
    >>> bottleneck = cct.Bottleneck(rate_mbps=rates[0][1], rate_schedule=rates, buffer_packets=100)
    """
    where = os.fspath(path)
    step_s = number("step_s", step_s, low=_SHORTEST_S)
    if duration_s is not None:
        duration_s = number("duration_s", duration_s, above=0)
    rows = list(_rows(path, where))
    if not rows:
        raise ParameterError(f"{where}: no line has a time")
    once, period_s = _opportunities(rows, where, step_s) if len(rows[0][1]) == 1 else _rates(rows, where)
    end_s = period_s if duration_s is None else duration_s
    if len(once) * end_s / period_s > _MOST_STEPS:
        raise ParameterError(
            f"{where}: more than {_MOST_STEPS:,} steps: increase step_s or shorten duration_s"
        )
    schedule: list[tuple[float, float]] = []
    for turn in range(math.ceil(end_s / period_s)):
        for at_s, mbps in once:
            at_s = round(at_s + turn * period_s, 9)
            if at_s < end_s and (not schedule or mbps != schedule[-1][1]):
                schedule.append((at_s, mbps))
    return tuple(schedule)


def _rows(path: str | os.PathLike[str], where: str) -> Iterator[tuple[int, list[float]]]:
    """The numbers on each line, and that of the line: as many on each as on the first, times not before the last."""
    fields = 0
    last = -math.inf
    try:
        with open(path, encoding="utf-8") as file:
            for n, line in enumerate(file, 1):
                text = line.strip()
                if not text or text.startswith("#"):
                    continue
                words = text.replace(",", " ").split()
                fields = fields or len(words)
                expected = "a time in ms" if fields == 1 else "a time in s and a rate in Mbit/s"
                try:
                    values = [float(word) for word in words]
                except ValueError:
                    values = []
                if len(values) != fields or fields > 2 or not all(0 <= value < 1e9 for value in values):
                    raise ParameterError(f"{where}: line {n}: {shown(text)} is not {expected}")
                if values[0] < last:
                    raise ParameterError(f"{where}: line {n}: {values[0]:g} is before the previous time")
                last = values[0]
                yield n, values
    except OSError as err:
        raise ParameterError(f"{where}: {err.strerror}") from None
    except UnicodeDecodeError:
        raise ParameterError(f"{where}: expected lines of numbers, found bytes that are no text") from None


def _opportunities(
    rows: list[tuple[int, list[float]]], where: str, step_s: float
) -> tuple[list[tuple[float, float]], float]:
    """Rates from times in ms, and how long the trace is in s."""
    for n, (at_ms,) in rows:
        if at_ms != int(at_ms):
            raise ParameterError(f"{where}: line {n}: {at_ms:g} is not a whole number of ms")
    at_ns = np.array([int(at_ms) * 10**6 for _, (at_ms,) in rows])
    period_ns, step_ns = int(at_ns[-1]), round(step_s * 1e9)
    if period_ns == 0:
        raise ParameterError(f"{where}: all times are 0")
    # the last time is the next turn's time 0: its opportunities belong to the last step
    steps, packets = np.unique(np.minimum(at_ns, period_ns - 1) // step_ns, return_counts=True)
    found: list[tuple[float, float]] = []

    def add(start_ns: int, end_ns: int, packets: float) -> None:
        mbps = packets / (end_ns - start_ns) * FULL_FRAME_BYTES * 8e3
        found.append((start_ns / 1e9, round(mbps, 9)))

    sent_ns = 0  # up to here, everything has left
    for step, in_step in zip(steps.tolist(), packets.tolist(), strict=True):
        start_ns, end_ns = step * step_ns, min((step + 1) * step_ns, period_ns)
        if start_ns > sent_ns:  # the step's first packet is on its way since then
            in_step -= 1
            if in_step == 0 and end_ns == period_ns:
                start_ns = end_ns
            waits_ns = start_ns - sent_ns
            add(sent_ns, start_ns, max(1, waits_ns / _LONGEST_GAP_NS))
            sent_ns = start_ns
        if in_step:
            add(start_ns, end_ns, in_step)
            sent_ns = end_ns
    return found, period_ns / 1e9


def _rates(rows: list[tuple[int, list[float]]], where: str) -> tuple[list[tuple[float, float]], float]:
    """Rates from times in s, counted from the first, and how long the trace is in s."""
    at_s = np.array([values[0] for _, values in rows])
    at_s -= at_s[0]
    gaps = np.diff(at_s)
    if not gaps.any():
        raise ParameterError(f"{where}: expected at least two times")
    mbps = np.maximum([values[1] for _, values in rows], FULL_FRAME_BYTES * 8e3 / _LONGEST_GAP_NS)
    period_s = float(at_s[-1] + np.median(gaps[gaps > 0]))
    return list(zip(at_s.tolist(), mbps.tolist(), strict=True)), period_s
