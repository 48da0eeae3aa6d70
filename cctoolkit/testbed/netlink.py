"""Netlink requests for queue disciplines that ``tc`` may be too old for.

``guest/netlink.c`` sends them. Constants are those of Linux's ``include/uapi/linux/pkt_sched.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ..errors import ParameterError

__all__ = ["needs_netlink", "qdisc_messages"]

_RTM_NEWQDISC, _CREATE_NEW = 36, 0x600
_KIND, _OPTIONS, _NESTED = 1, 2, 0x8000
#: Words of a line: attribute and format. ``alpha`` and ``beta`` are in units of 1/256 Hz, times in microseconds.
_DUALPI2 = {
    "limit": (1, "I"),
    "memlimit": (2, "I"),
    "target": (3, "I"),
    "tupdate": (4, "I"),
    "alpha": (5, "I"),
    "beta": (6, "I"),
    "step_thresh": (8, "I"),
    "min_qlen_step": (9, "I"),
    "coupling_factor": (10, "B"),
    "drop_overload": (11, "B"),
    "ecn_mask": (14, "B"),
}
#: Words that abbreviate a word and its value.
_FLAGS = {"overflow": ("drop_overload", "0"), "any_ect": ("ecn_mask", "3")}


def needs_netlink(line: str) -> bool:
    """Whether a line for ``tc -b`` must bypass ``tc``."""
    return line.startswith("qdisc ") and " dualpi2 " in line


def qdisc_messages(lines: Iterable[str]) -> bytes:
    """Lines ``qdisc add dev … parent … handle … dualpi2 …`` as consecutive netlink messages."""
    return b"".join(_message(line.split()) for line in lines)


def _message(words: list[str]) -> bytes:
    at = words.index("dualpi2")
    place = dict(zip(words[2:at:2], words[3:at:2], strict=True))
    options = b""
    given = [part for word in words[at + 1 :] for part in _FLAGS.get(word, (word,))]
    for name, value in zip(given[::2], given[1::2], strict=True):
        number, kind = _DUALPI2[name]
        options += _attribute(number, struct.pack(f"<{kind}", _whole(name, value)))
    body = struct.pack("<B3xiIII", 0, 0, _handle(place["handle"]), _handle(place["parent"]), 0)
    body += _attribute(_KIND, b"dualpi2\0") + _attribute(_OPTIONS | _NESTED, options)
    return struct.pack("<IHHII", 16 + len(body), _RTM_NEWQDISC, _CREATE_NEW, 0, 0) + body


def _whole(name: str, value: str) -> int:
    if name in ("alpha", "beta"):
        number = round(float(value) * 256)
        if number < 1:
            raise ParameterError(f"bottleneck.aqm.{name}: {value}, but dualpi2 in Linux needs at least 1/256")
        return number
    return int(value.removesuffix("us"))


def _attribute(number: int, data: bytes) -> bytes:
    length = 4 + len(data)
    return struct.pack("<HH", length, number) + data + bytes(-length % 4)


def _handle(text: str) -> int:
    major, _, minor = text.partition(":")
    return int(major, 16) << 16 | int(minor or "0", 16)
