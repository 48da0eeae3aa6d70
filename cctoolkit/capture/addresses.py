"""IP addresses as text, millions at a time.

A backbone capture has millions of addresses, and making a Python string of each takes longer than reading the
packets. Here a kernel writes them all into one Arrow buffer, which a text column uses without a copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .._support.kernels import kernel

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["addresses_text"]

_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_DOT, _COLON, _ZERO = ord("."), ord(":"), ord("0")


@kernel
def _write(address, version, offsets, text, hexadecimal):
    at = np.int64(0)
    for row in range(len(version)):
        offsets[row] = at
        if version[row] == 4:
            for i in range(4):
                byte = np.int64(address[row, i])
                if i > 0:
                    text[at] = _DOT
                    at += 1
                if byte >= 100:
                    text[at] = _ZERO + byte // 100
                    at += 1
                if byte >= 10:
                    text[at] = _ZERO + byte // 10 % 10
                    at += 1
                text[at] = _ZERO + byte % 10
                at += 1
            continue
        # RFC 5952: the first of the longest runs of two or more zero groups becomes "::".
        best, best_length, run = -1, 1, 0
        for group in range(8):
            zero = address[row, 2 * group] == 0 and address[row, 2 * group + 1] == 0
            run = run + 1 if zero else 0
            if run > best_length:
                best, best_length = group - run + 1, run
        group = 0
        while group < 8:
            if group == best:
                text[at] = _COLON
                text[at + 1] = _COLON
                at += 2
                group += best_length
                continue
            if group > 0 and text[at - 1] != _COLON:
                text[at] = _COLON
                at += 1
            value = np.int64(address[row, 2 * group]) << 8 | np.int64(address[row, 2 * group + 1])
            shift = 12
            while shift > 0 and value >> shift == 0:
                shift -= 4
            while shift >= 0:
                text[at] = hexadecimal[value >> shift & 15]
                at += 1
                shift -= 4
            group += 1
    offsets[len(version)] = at


def addresses_text(address: np.ndarray, version: np.ndarray) -> pd.Series:
    """Addresses as a text column, IPv6 as in RFC 5952 (but without the dotted form for mapped IPv4).

    Parameters
    ----------
    address : uint8, shape (n, 16)
        Addresses in network byte order; IPv4 uses the first 4 bytes.
    version : uint8, shape (n,)
        IP version: 4 or 6.
    """
    import pyarrow as pa

    n = len(version)
    longest = np.where(version == 4, 15, 39)
    text = np.empty(int(longest.sum()), np.uint8)
    offsets = np.empty(n + 1, np.int64)
    _write(np.ascontiguousarray(address), np.ascontiguousarray(version), offsets, text, _HEX)
    text = text[: offsets[n]].copy()
    return pa.LargeStringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(text)).to_pandas()
