"""Fuzzing of the kernels that read bytes, a million cases in seconds.

A compiled loop takes one of the inputs that it has, damages it, puts it in front of a page that must not be touched and
gives it to the kernel. What the kernel says about it (which counters moved, which columns are set) is its signature; an
input with a new signature joins the others. So the loop finds its way into headers within headers, as a fuzzer guided
by coverage does, without instrumenting machine code.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, no_type_check

import made_captures as made
import numba
import numpy as np
from as_naive import assert_as_naive
from guarded import Guarded

from cctoolkit.capture import encapsulation, headers, pcap, pcapng, reader
from cctoolkit.schema import PACKETS

from .watched import Slot

LARGEST = 512  # bytes of a case
_POOL = 1 << 14
_SIGNATURES = 1 << 16
_BATCH = 20_000
WRONG = 0xFFFFFFFFFFFFFFFF  # a signature: the result is outside what is documented

_INTERESTING = np.array(
    [0, 1, 2, 4, 5, 6, 8, 0x0F, 0x10, 0x11, 0x14, 0x1F, 0x20, 0x29, 0x2F, 0x33, 0x3C, 0x40, 0x45, 0x46, 0x4F, 0x60,
     0x7F, 0x80, 0x81, 0x86, 0x88, 0xAA, 0xFE, 0xFF],
    np.uint8,
)  # fmt: skip


@numba.njit
@no_type_check
def _below(state, n):
    """A number below `n` (xorshift*)."""
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return np.int64((x * np.uint64(2685821657736338717) >> np.uint64(33)) % np.uint64(n))


@numba.njit
@no_type_check
def _damage(case, size, other, other_size, state):
    """Damage a case of `size` bytes in place, with pieces of another; return its new size."""
    for _ in range(1 + _below(state, 6)):
        kind = _below(state, 10)
        if size == 0:
            kind = 9
        at = _below(state, max(size, 1))
        if kind == 0:
            case[at] ^= np.uint8(1 << _below(state, 8))
        elif kind == 1:
            case[at] = _below(state, 256)
        elif kind <= 3:
            case[at] = _INTERESTING[_below(state, _INTERESTING.size)]
        elif kind == 4 and size > 1:  # a length: a little more or less
            case[at] += np.uint8(_below(state, 9) - 4)
        elif kind == 5 and size > 1:
            value = _below(state, 65536)
            case[at] = value >> 8
            if at + 1 < size:
                case[at + 1] = value & 255
        elif kind == 6:
            size = at
        elif kind == 7:  # leave out a piece
            piece = 1 + _below(state, min(16, size - at))
            for i in range(at, size - piece):
                case[i] = case[i + piece]
            size -= piece
        elif kind == 8 and size < case.size:  # say a piece twice
            piece = 1 + _below(state, min(24, size - at, case.size - size))
            for i in range(size - 1, at - 1, -1):
                case[i + piece] = case[i]
            size += piece
        elif kind == 9 and other_size > 0:  # go on as another does
            start = _below(state, other_size)
            length = min(other_size - start, case.size - at)
            for i in range(length):
                case[at + i] = other[start + i]
            size = max(size, at + length)
    return size


def _loop(one: Any) -> Any:
    """The loop around a kernel `one(memory, start, size, context, state)`, which returns a signature."""

    @numba.njit
    @no_type_check
    def loop(pool, sizes, n, cases, memory, seen, words, place, context, state):
        """Returns how many cases the pool has now, and the signature ``WRONG`` if one was."""
        case = np.empty(LARGEST, np.uint8)
        for _ in range(cases):
            i, j = _below(state, n), _below(state, n)
            if _below(state, 2) == 0:  # one of the latest
                i = n - 1 - _below(state, min(n, 32))
            size = sizes[i]
            case[:size] = pool[i, :size]
            size = _damage(case, size, pool[j], sizes[j], state)
            start = memory.size - size
            memory[start:] = case[:size]
            place[:size] = case[:size]
            words[1] = size
            words[0] += 1
            signature = one(memory, start, size, context, state)
            if signature == WRONG:
                return n, signature
            mixed = (signature ^ signature >> np.uint64(29)) * np.uint64(0x9E3779B97F4A7C15)
            bit = mixed >> np.uint64(48)
            if not seen[bit]:
                seen[bit] = True
                if n < pool.shape[0]:
                    pool[n, :size] = case[:size]
                    sizes[n] = size
                    n += 1
        return n, np.uint64(0)

    return loop


# ---- headers ---------------------------------------------------------------------------------------------------------

_Decoding = Any  # a tuple: a frame's arrays, its row, and what the kernel writes besides


def _decoding(link_type: int) -> _Decoding:
    frames = reader._Block()
    frames.link_type[:] = link_type
    arrays = (frames.offset, frames.caplen, frames.wirelen, frames.ts_ns, frames.link_type)
    to_ip = encapsulation.compile_to_ip()
    columns = headers.PacketColumns(**reader._allocate(PACKETS, 1))
    return arrays, columns, frames.keys, np.empty(0, np.uint32), frames._sacks, frames.counts, to_ip


@numba.njit
@no_type_check
def _decode(memory, start, size, context, state):
    arrays, out, keys, no_numbers, sacks, counts, to_ip = context
    offset, caplen, wirelen, ts_ns, link_type = arrays
    offset[0], caplen[0], wirelen[0] = start, size, size
    lie = _below(state, 8)
    if lie == 0:
        wirelen[0] = _below(state, 2 * size + 2)
    elif lie == 1:
        wirelen[0] = 0xFFFFFFFF
    elif lie == 2:
        wirelen[0] = size + 1400
    inner = _below(state, 2) == 0
    counts[:] = 0
    rows, n_sacks, wire_bytes, captured_bytes, _, _ = headers.decode_headers(
        memory, offset, caplen, wirelen, ts_ns, link_type, 1, inner, 1, out, 0, keys, np.uint64(1), no_numbers,
        sacks, counts, to_ip,
    )  # fmt: skip
    if rows < 0 or rows > 1 or n_sacks < 0 or n_sacks > 4 or (rows == 0 and n_sacks > 0):
        return np.uint64(WRONG)
    if wire_bytes != wirelen[0] or captured_bytes != size:
        return np.uint64(WRONG)
    signature = np.uint64(inner)
    for i in range(counts.size):
        if counts[i] < 0 or counts[i] > size + 1:
            return np.uint64(WRONG)
        signature = signature << np.uint64(2) | np.uint64(min(counts[i], 3))
    if rows == 0:
        return signature | np.uint64(1) << np.uint64(60)
    longest = max(
        wirelen[0], 65_535
    )  # a packet inside the first fragment of a tunnel's packet is longer than that
    if out.payload_bytes[0] > longest or out.ecn[0] > 3 or out.dscp[0] > 63 or out.tcp_flags[0] > 0xFFF:
        return np.uint64(WRONG)
    version = keys[4] & 255
    if (version != 4 and version != 6) or (out.has_ts[0] and out.tcp_flags[0] == 0 and counts[2] == 0):
        return np.uint64(WRONG)
    for i in range(n_sacks):
        if sacks[i, 0] != 0 or sacks[i, 1] >> 32 != 0 or sacks[i, 2] >> 32 != 0:
            return np.uint64(WRONG)
    protocol = keys[4] >> 8 & 255
    options = keys[5]
    bits = (
        np.uint64(out.has_ts[0])
        | np.uint64(n_sacks) << np.uint64(1)
        | np.uint64(options & 1) << np.uint64(4)
        | np.uint64(options >> 16 != 0) << np.uint64(5)
        | np.uint64((options >> 8 & 255) != 255) << np.uint64(6)
        | np.uint64(out.payload_bytes[0] == 0) << np.uint64(7)
        | np.uint64(protocol) << np.uint64(8)
    )
    return signature * np.uint64(0xFF51AFD7ED558CCD) ^ bits


# ---- TCP options -----------------------------------------------------------------------------------------------------


@numba.njit
@no_type_check
def _read_options(memory, start, size, context, state):
    sacks = context
    p = np.int64(memory.ctypes.data) + start
    size = min(size, 40)
    p = np.int64(memory.ctypes.data) + memory.size - size
    tsval, tsecr, has_ts, syn_options, blocks = headers._tcp_options(
        p, p + size, np.int64(0), np.int64(0), False, np.uint64(7), np.int64(sacks.ctypes.data)
    )
    if blocks < 0 or blocks > 4 or tsval >> 32 != 0 or tsecr >> 32 != 0 or syn_options >> 32 != 0:
        return np.uint64(WRONG)
    for i in range(blocks):
        if sacks[i, 0] != 7:
            return np.uint64(WRONG)
    return (
        np.uint64(blocks)
        | np.uint64(has_ts) << np.uint64(3)
        | np.uint64(syn_options & 1) << np.uint64(4)
        | np.uint64(min(syn_options >> 8 & 255, 15)) << np.uint64(5)
        | np.uint64((syn_options >> 16) & 0xF000) << np.uint64(8)
        | np.uint64(min(tsval, 3)) << np.uint64(32)
    )


# ---- framing ---------------------------------------------------------------------------------------------------------


def _framing() -> Any:
    frames = reader.Frames()
    interfaces = [
        pcapng.Interface(1, 0),
        pcapng.Interface(101, 96, 2**62),
        pcapng.Interface(1, 0, 10**127, -5),
    ]
    rows = np.array([interface.row() for interface in interfaces], np.int64)
    return rows, (frames.offset, frames.caplen, frames.wirelen, frames.ts_ns, frames.link_type)


@numba.njit
@no_type_check
def _inside(n, start, size, offset, caplen):
    """Whether frames are in the bytes given, one behind the other."""
    before = start
    for i in range(n):
        if offset[i] < before or caplen[i] < 0 or caplen[i] > pcap.MAX_FRAME_BYTES:
            return False
        before = offset[i] + caplen[i]
        if before > start + size:
            return False
    return True


@numba.njit
@no_type_check
def _frame_pcap(memory, start, size, context, state):
    offset, caplen, wirelen, ts_ns, _ = context[1]
    big_endian = _below(state, 2) == 0
    header_bytes = 24 if _below(state, 4) == 0 else 16
    swap = _below(state, 3)
    n, position, damaged = pcap.frame_pcap(
        memory, start, big_endian, header_bytes, 1000, swap, 64, offset, caplen, wirelen, ts_ns
    )
    if (
        n < 0
        or n > 64
        or position < start
        or position > memory.size
        or not _inside(n, start, size, offset, caplen)
    ):
        return np.uint64(WRONG)
    return np.uint64(min(n, 15)) << np.uint64(4) | np.uint64(damaged) << np.uint64(3) | np.uint64(swap)


@numba.njit
@no_type_check
def _frame_pcapng(memory, start, size, context, state):
    interfaces, (offset, caplen, wirelen, ts_ns, link_type) = context
    known = _below(state, interfaces.shape[0] + 1)
    n, position, status, simple = pcapng.frame_pcapng(
        memory,
        start,
        _below(state, 2) == 0,
        interfaces[:known],
        5,
        64,
        offset,
        caplen,
        wirelen,
        ts_ns,
        link_type,
    )
    if (
        n < 0
        or n > 64
        or position < start
        or position > memory.size
        or not _inside(n, start, size, offset, caplen)
    ):
        return np.uint64(WRONG)
    if simple < 0 or simple > n or status < 0 or status > 2:
        return np.uint64(WRONG)
    shape = np.uint64(0)
    for i in range(min(n, 4)):
        shape = shape << np.uint64(3) | np.uint64(link_type[i] == 1) | np.uint64(ts_ns[i] < 0) << np.uint64(1)
    return (
        shape << np.uint64(16)
        | np.uint64(n) << np.uint64(6)
        | np.uint64(status) << np.uint64(3)
        | np.uint64(known)
    )


# ---- targets ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Target:
    """A kernel, what it works in, and inputs to begin with."""

    one: Any
    context: Callable[[], Any]
    seeds: Callable[[], list[bytes]]
    link_type: int | None = None  # of the frames that are its cases


def _frames(link_type: int) -> list[bytes]:
    from random import Random

    return [data[:LARGEST] for _, data, _, _ in made.random_frames(Random(link_type), 200, link_type)]


def _option_seeds() -> list[bytes]:
    return [
        bytes.fromhex("0101080a0000000100000002"),
        bytes.fromhex("020405b40402080a000000010000000001030307"),
        bytes.fromhex("0101050a0000000100000002"),
        bytes.fromhex("01010522000000010000000200000003000000040000000500000006000000070000000800"),
    ]


def _records() -> list[bytes]:
    return [
        made.pcap_record(bytes(n), 7, n, order, h) * 3 for n in (0, 1, 60) for order in "<>" for h in (16, 24)
    ]


def _blocks() -> list[bytes]:
    found = []
    for order in "<>":
        found += [made.enhanced(order, i, 2**40 + i, bytes(20), 60, (1, b"so")) * 2 for i in range(3)]
        found += [
            made.obsolete(order, 1, 9, bytes(9), 9),
            made.simple(order, bytes(30), 30),
            made.section(order),
        ]
        found += [made.block(order, 0xBAD, bytes(8)), made.interface(order), made.statistics(order, 0, 1)]
    return found


_LINK_NAMES = {n: headers.link_name(n).lower().replace("_", "-") for n in made.LINK_TYPES}
TARGETS: dict[str, Target] = {
    **{
        f"headers/{name}": Target(_decode, lambda n=n: _decoding(n), lambda n=n: _frames(n), n)
        for n, name in _LINK_NAMES.items()
    },
    "tcp-options": Target(_read_options, lambda: np.zeros((8, 3), np.int64), _option_seeds),
    "pcap-records": Target(_frame_pcap, _framing, _records),
    "pcapng-blocks": Target(_frame_pcapng, _framing, _blocks),
}


def fuzz(
    name: str, cases: int, seed: int, slot: Slot, seconds: float | None = None
) -> tuple[list[bytes], int]:
    """Run a target; return the inputs with signatures of their own, and the number of signatures."""
    target = TARGETS[name]
    pool, sizes, n = np.zeros((_POOL, LARGEST), np.uint8), np.zeros(_POOL, np.int64), 0
    for data in target.seeds()[:_POOL]:
        pool[n, : len(data)] = np.frombuffer(data, np.uint8)
        sizes[n] = len(data)
        n += 1
    made_by_hand = n
    guarded = Guarded(LARGEST)
    page = len(guarded._all) - guarded.size >> 1
    memory = guarded._all[page : page + guarded.size]
    seen = np.zeros(_SIGNATURES, np.bool_)
    state = np.array([seed * 0x9E3779B97F4A7C15 + 1 & (1 << 64) - 1], np.uint64)
    loop, context = _loop(target.one), target.context()
    began = time.monotonic()
    while slot.begun < cases and (seconds is None or time.monotonic() - began < seconds):
        batch = min(_BATCH, cases - slot.begun)
        n, found = loop(pool, sizes, n, batch, memory, seen, slot.words, slot.place, context, state)
        if found == WRONG:
            raise AssertionError(f"{name}: a result outside what is documented, for {slot.case.hex()}")
    return [pool[i, : sizes[i]].tobytes() for i in range(made_by_hand, n)], int(seen.sum())


def compare(name: str, cases: list[bytes], slot: Slot) -> None:
    """Hold frames against the naive decoder: the same columns, keys and counts."""
    link_type = TARGETS[name].link_type
    if link_type is None:
        return
    for start in range(0, len(cases), 200):
        frames = [(10**9 * i, case, len(case)) for i, case in enumerate(cases[start : start + 200])]
        slot.alive()
        data = made.pcap(frames, link_type=link_type)
        for tunnel in ("outer", "inner"):
            assert_as_naive(data, tunnel)
