"""Reading captures: `read_capture` for a whole file, `iter_capture` for one of any size.

Bytes are processed in blocks small enough for the cache: a framing kernel (:mod:`pcap`, :mod:`pcapng`) finds a few
thousand frames, :mod:`headers` decodes them into rows, and :mod:`flow_ids` numbers their flows. With a second core,
another thread does the same: blocks are found, and their flows numbered, one after the other, but decoded by both.
"""

from __future__ import annotations

import contextlib
import copy
import os
import threading
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import IO, Literal

import numpy as np
import numpy.typing as npt

from .._support import waiting
from .._support.arguments import whole
from .._support.state import aligned_zeros
from .._support.threads import Ahead, cores, wait_until
from .._support.words import few, plural
from ..errors import CaptureFormatError, ParameterError, TruncatedCaptureWarning
from ..schema import PACKETS
from . import pcapng
from .encapsulation import compile_to_ip, compiled_to_ip
from .flow_ids import FlowIds
from .headers import COUNTS, KEY_WORDS, PacketColumns, decode_headers, link_name
from .keys import CaptureMeta
from .model import Capture
from .pcap import HEADER_BYTES, MAX_FRAME_BYTES, PcapHeader, frame_pcap, parse_pcap_header
from .source import ByteSource, open_source, reads_twice

__all__ = ["iter_capture", "read_capture"]

#: How the note about a truncated or damaged file starts.
DAMAGE_NOTE = "the file is truncated or damaged"
_BLOCK_FRAMES = 1 << 14  # enough for a window of short frames, so that a block is about one window
_LEAST_SHARED = 1 << 14  # frames still to come that make a thread worth starting
_FIRST_ROWS = 1 << 16
_NO_DATA = np.empty(0, np.uint8)


class Frames:
    """A block of frames: offsets in `data`, lengths, times and link types. Reused for the next block."""

    def __init__(self) -> None:
        self.offset, self.caplen, self.wirelen, self.ts_ns, self.link_type = np.zeros(
            (5, _BLOCK_FRAMES), np.int64
        )
        self.n = 0
        self.data = _NO_DATA


class _Block(Frames):
    """Frames, and what their rows come with.

    Attributes
    ----------
    number : int
        How many blocks of the part are before this one.
    row0, rows : int
        The first of their rows, and how many there are.
    keys : int64 array
        Keys of their flows, see :mod:`headers`.
    sacks : int64 array, shape (n_sacks, 3)
        Their SACK blocks, see :func:`decode_headers`.
    counts : int64 array
        See :data:`headers.COUNTS`.
    wire_bytes, captured_bytes, first_ts_ns, last_ts_ns : int
        As :func:`decode_headers` returns them.
    seen : int
        Frames of the file so far, with these.
    fraction : float
        Share of the file that has been read; 0: unknown.
    """

    number: int
    row0: int
    rows: int

    def __init__(self) -> None:
        super().__init__()
        self.keys = aligned_zeros((_BLOCK_FRAMES * KEY_WORDS,), np.int64)
        self._sacks = np.empty((4 * _BLOCK_FRAMES, 3), np.int64)
        self.counts = np.zeros(len(COUNTS), np.int64)
        self.seen = 0
        self.fraction = 0.0

    def decode(self, inner: bool, seed: np.uint64, columns: PacketColumns, frame: np.ndarray) -> None:
        """Decode the frames into rows from `row0` on; parameters as of :func:`decode_headers`."""
        arguments = (
            self.data,
            self.offset,
            self.caplen,
            self.wirelen,
            self.ts_ns,
            self.link_type,
            self.n,
            inner,
            self.seen - self.n + 1,
            columns,
            self.row0,
            self.keys,
            seed,
            frame,
            self._sacks,
            self.counts,
        )
        self.counts[:] = 0
        found = decode_headers(*arguments, compiled_to_ip())
        if found[0] < 0:
            self.counts[:] = 0
            found = decode_headers(*arguments, compile_to_ip())
        self.rows, n_sacks, self.wire_bytes, self.captured_bytes, self.first_ts_ns, self.last_ts_ns = found
        self.sacks = self._sacks[:n_sacks]


class _PcapFramer:
    """Finds the frames of a pcap file, block by block."""

    format = "pcap"

    def __init__(self, source: ByteSource, header: PcapHeader, meta: CaptureMeta) -> None:
        self._source = source
        self._header = header
        self._swap_lengths = 0
        if header.version < (2, 3):
            self._swap_lengths = 1
        elif header.version == (2, 3):
            self._swap_lengths = 2
        source.start += HEADER_BYTES
        meta.link_types.append(link_name(header.link_type))
        meta.snaplen = header.snaplen

    def next_block(self, frames: Frames, limit: int) -> str | None:
        """Fill `frames` with up to `limit` frames (none at the end); return what is wrong with the file, or None."""
        source, header = self._source, self._header
        frames.link_type[:] = self._header.link_type
        while True:
            frames.n, position, damaged = frame_pcap(
                source.data,
                source.start,
                header.big_endian,
                header.record_header_bytes,
                header.ns_per_tick,
                self._swap_lengths,
                limit,
                frames.offset,
                frames.caplen,
                frames.wirelen,
                frames.ts_ns,
            )
            source.start = position
            if frames.n:
                return None
            if damaged:
                return f"a record claims more than {MAX_FRAME_BYTES} captured bytes"
            if not source.more():
                if source.available:
                    return f"the last record is incomplete: it has only {source.available} bytes"
                return None


class _PcapngFramer:
    """Finds the frames of a pcapng file, block by block."""

    format = "pcapng"

    def __init__(self, source: ByteSource, meta: CaptureMeta) -> None:
        self._source = source
        self._section = pcapng.Section(big_endian=False)  # until the first section header
        self._meta = meta
        self._link_names: set[str] = set()
        self._last_ts_ns = 0
        self._without_time = 0

    def next_block(self, frames: Frames, limit: int) -> str | None:
        """See :meth:`_PcapFramer.next_block`."""
        source = self._source
        while True:
            frames.n, position, status, simple = pcapng.frame_pcapng(
                source.data,
                source.start,
                self._section.big_endian,
                self._section.interfaces,
                self._last_ts_ns,
                limit,
                frames.offset,
                frames.caplen,
                frames.wirelen,
                frames.ts_ns,
                frames.link_type,
            )
            source.start = position
            self._without_time += simple
            if frames.n:
                self._last_ts_ns = int(frames.ts_ns[frames.n - 1])
                return None
            if status == 2:
                return "the two lengths of a block differ"
            if status == 1:
                problem = self.take_block()
                if problem:
                    return problem
            elif not source.more():
                self._finish()
                if source.available:
                    return f"the last block is incomplete: it has only {source.available} bytes"
                return None

    def take_block(self) -> str | None:
        """Read one section header, interface description or statistics block; return what is wrong with it, or None."""
        source = self._source
        head = source.peek(12)
        big_endian = pcapng.Section.byte_order(head)
        if head[:4] == b"\x0a\x0d\x0d\x0a" and big_endian is None:
            return "a section header has no byte-order magic"
        order = self._section.big_endian if big_endian is None else big_endian
        size = int.from_bytes(head[4:8], "big" if order else "little")
        if size < 12 or size % 4 or size > pcapng.MAX_BLOCK_BYTES:
            return f"a block claims to be {size} bytes long"
        if not source.need(size):
            return f"the last block is incomplete: it has only {source.available} bytes"
        block = source.peek(size)
        if block[4:8] != block[-4:]:
            return "the two lengths of a block differ"
        if big_endian is not None and pcapng.Section.major_version(block, big_endian) != 1:
            return f"a section has the unsupported pcapng version {pcapng.Section.major_version(block, big_endian)}"
        body = block[8:-4]
        source.start += size
        if big_endian is not None:
            self._section = pcapng.Section(big_endian)
        elif int.from_bytes(head[:4], "big" if order else "little") == pcapng.INTERFACE_DESCRIPTION:
            interface = self._section.add_interface(body)
            if interface is None:
                return "an interface description is incomplete"
            self._note_interface(interface)
        else:
            dropped = self._section.add_statistics(body)
            if dropped is not None:
                self._meta.dropped = (self._meta.dropped or 0) + dropped
        return None

    def _note_interface(self, interface: pcapng.Interface) -> None:
        meta = self._meta
        unlimited = interface.snaplen == 0 or (meta.snaplen == 0 and self._link_names)
        meta.snaplen = 0 if unlimited else max(meta.snaplen, interface.snaplen)
        name = link_name(interface.link_type)
        if name not in self._link_names:
            self._link_names.add(name)
            meta.link_types.append(name)

    def _finish(self) -> None:
        if self._without_time:
            self._meta.notes.append(
                f"{self._without_time} packets without a time (simple packet blocks) have that of the packet before"
            )


def _open_framer(source: ByteSource, meta: CaptureMeta) -> _PcapFramer | _PcapngFramer:
    """Recognise the format by the first bytes."""
    head = source.peek(HEADER_BYTES)
    header = parse_pcap_header(head)
    if header is not None:
        return _PcapFramer(source, header, meta)
    big_endian = pcapng.Section.byte_order(head)
    if big_endian is not None:
        framer = _PcapngFramer(source, meta)
        problem = framer.take_block()
        if problem:
            raise CaptureFormatError(source.path, 0, f"expected a complete pcapng section header: {problem}")
        return framer
    if source.damage and not head:
        raise CaptureFormatError(source.path, 0, source.damage)
    found = f"found {head[:4].hex(' ')}" if head else "the file is empty"
    if 0 < len(head) < HEADER_BYTES:
        found += f", {len(head)} bytes in total"
    raise CaptureFormatError(source.path, 0, f"expected a pcap or pcapng header, {found}")


def _allocate(dtypes: Mapping[str, npt.DTypeLike], rows: int) -> dict[str, np.ndarray]:
    """Empty columns, back to back in one block of memory.

    The operating system backs one large block with large pages, but not many small ones, and touching a fresh page
    costs more than decoding the packets it holds.
    """
    sizes = {name: -(-rows * np.dtype(dtype).itemsize // 64) * 64 for name, dtype in dtypes.items()}
    memory = np.empty(sum(sizes.values()), np.uint8)
    ends = np.cumsum(list(sizes.values()))
    return {
        name: memory[end - sizes[name] : end].view(dtype)[:rows]
        for (name, dtype), end in zip(dtypes.items(), ends, strict=True)
    }


class _Rows:
    """The rows of a part, in columns that grow.

    Before its frames are decoded, nobody knows how many rows a block has. So there is room for one of each frame, and
    the rows move down to those before them once these are known.

    Parameters
    ----------
    frame_numbers : bool
        Whether there is a column ``frame``.
    limit : int or None
        Number of rows, if it is known.
    """

    def __init__(self, frame_numbers: bool, limit: int | None) -> None:
        self._limit = limit
        self._dtypes: dict[str, npt.DTypeLike] = {**PACKETS}
        if frame_numbers:
            self._dtypes["frame"] = "uint32"
        self._elsewhere: list[tuple[int, int, dict[str, np.ndarray]]] = []  # begin, end, and their columns
        self._begin_columns(_FIRST_ROWS)
        self._n = self._frames = self._wire_bytes = self._captured_bytes = 0
        self._first_ts_ns, self._last_ts_ns = np.iinfo(np.int64).max, np.iinfo(np.int64).min
        self._counts = np.zeros(len(COUNTS), np.int64)
        self._sacks: list[np.ndarray] = []

    def __len__(self) -> int:
        return self._n

    def _begin_columns(self, rows: int) -> None:
        self._columns = _allocate(self._dtypes, rows)
        self._packets = PacketColumns(**{name: self._columns[name] for name in PACKETS})
        self._frame = self._columns.get("frame", np.empty(0, np.uint32))

    @property
    def capacity(self) -> int:
        """Number of rows that there is room for."""
        return len(self._columns["ts_ns"])

    def grow(self, more: int, fraction: float) -> None:
        """Make room for `more` rows; the `fraction` of the file read so far, with these, says how many will follow.

        All blocks have been added. Memory that is never written costs nothing.
        """
        capacity = max(self._n + more, self.capacity * 3 // 2)
        if fraction > 0:
            capacity = max(capacity, int(1.25 * (self._n + more) / fraction))
        if self._limit is not None:
            capacity = max(self._n + more, min(capacity, self._limit))
        begin = self._elsewhere[-1][1] if self._elsewhere else 0
        self._elsewhere.append((begin, self._n, self._columns))
        self._begin_columns(capacity)

    def decode(self, block: _Block, inner: bool, seed: np.uint64) -> None:
        """Decode a block into its room."""
        block.decode(inner, seed, self._packets, self._frame)

    def add(self, block: _Block, flows: FlowIds) -> None:
        """Add the rows of the next block, and number their flows."""
        unused = block.row0 - self._n
        if unused:
            begin, end = block.row0, block.row0 + block.rows
            for column in self._columns.values():
                column[begin - unused : end - unused] = column[begin:end]
            block.row0 -= unused
            block.sacks[:, 0] -= unused
        flows.assign(block.keys, block.rows, self._packets, block.row0)
        self._n += block.rows
        if len(block.sacks):
            self._sacks.append(block.sacks.copy())
        self._counts += block.counts
        self._frames += block.n
        self._wire_bytes += block.wire_bytes
        self._captured_bytes += block.captured_bytes
        self._first_ts_ns = min(self._first_ts_ns, block.first_ts_ns)
        self._last_ts_ns = max(self._last_ts_ns, block.last_ts_ns)

    def capture(self, meta: CaptureMeta, flows: FlowIds) -> Capture:
        """The rows as a capture with the metadata `meta`."""
        while self._elsewhere:
            begin, end, left = self._elsewhere.pop()
            for name, column in self._columns.items():
                column[begin:end] = left[name][begin:end]
        columns = {name: column[: self._n] for name, column in self._columns.items()}
        meta.frames, meta.packets = self._frames, self._n
        meta.wire_bytes, meta.captured_bytes = self._wire_bytes, self._captured_bytes
        if self._n:
            meta.first_ts_ns, meta.last_ts_ns = self._first_ts_ns, self._last_ts_ns
        meta.counts = dict(zip(COUNTS, self._counts.tolist(), strict=True))
        if meta.counts["other_link_type"]:
            meta.notes.append(
                f"frames of unsupported link types are left out (link types: {few(meta.link_types)})"
            )
        sacks = np.concatenate(self._sacks) if self._sacks else None
        return Capture(columns, flows.keys(), meta, sacks)


def _parts(
    path: str | os.PathLike[str] | IO[bytes],
    packets: int | None,
    tunnel: str,
    flow_timeout_s: float | None,
    frame_numbers: bool,
) -> Generator[tuple[Capture, str | None], None, None]:
    """Yield parts of `packets` rows (the last has fewer), or a single part if that is None; at least one part.

    With each comes what to warn of: a warning names the line of the caller, which another thread does not know.
    """
    if tunnel not in ("outer", "inner"):
        raise ParameterError(f"tunnel: {tunnel!r} must be 'outer' or 'inner'")
    if flow_timeout_s is not None and not flow_timeout_s > 0:
        raise ParameterError(
            f"flow_timeout_s: {flow_timeout_s} must be positive, or None if flows never time out"
        )
    if packets is not None:
        packets = whole("packets", packets, low=1)

    with open_source(path) as source, waiting.reading(source.path) as progress:
        meta = CaptureMeta(path=source.path, compression=source.compression)
        framer = _open_framer(source, meta)
        meta.format = framer.format
        flows = FlowIds(flow_timeout_s, retire=packets is not None)
        reading = _Reading(source, framer, flows, packets, tunnel == "inner")
        while True:
            rows = _Rows(frame_numbers, packets)
            reading.fill(rows, progress)
            of_part = copy.deepcopy(meta)
            warning = None
            if reading.damage is not None:
                warning = _note_damage(of_part, reading.frames, source.position, reading.damage)
            yield rows.capture(of_part, flows), warning
            if reading.ended:
                return
            flows.next_part()


class _Reading:
    """Fills parts with the rows of a capture.

    A thread takes each of its blocks from the file to the table. Of two threads, one finds frames at a time, and blocks
    are added in their order; decoding is the larger part of the work, and both do it.

    Parameters
    ----------
    source : ByteSource
    framer : _PcapFramer or _PcapngFramer
        Of the source.
    flows : FlowIds
    packets : int or None
        Rows of a part; None: all.
    inner : bool
        As for :func:`decode_headers`.

    Attributes
    ----------
    frames : int
        Of the file so far.
    ended : bool
        There are no more.
    damage : str or None
        What is wrong with the file there.
    """

    def __init__(
        self,
        source: ByteSource,
        framer: _PcapFramer | _PcapngFramer,
        flows: FlowIds,
        packets: int | None,
        inner: bool,
    ) -> None:
        self.frames = 0
        self.ended = False
        self.damage: str | None = None
        self._source = source
        self._framer = framer
        self._flows = flows
        self._packets = packets
        self._inner = inner
        self._unused: list[_Block] = []
        self._finding = threading.Lock()
        self._found = self._added = 0  # blocks of the part
        self._end_row = 0  # of those found
        self._stopped = False
        self._failure: BaseException | None = None
        # always one block ahead, so that the last part knows what follows its last packet
        self._next = self._find(packets)

    def fill(self, rows: _Rows, progress: Callable[[float, int], None]) -> None:
        """Read a part, with another thread if there is a core for it, enough to read, and bytes do not come slowly."""
        self._found = self._added = self._end_row = 0
        helper = None
        alone = cores() == 1 or self._source.may_wait
        try:
            for block in self._blocks(rows):
                progress(block.fraction, block.seen)
                if not alone and self._to_come(rows, block) >= _LEAST_SHARED:
                    alone = True
                    with contextlib.suppress(RuntimeError):  # no thread can be started
                        helper = threading.Thread(target=self._help, args=(rows,), name="decode", daemon=True)
                        helper.start()
        except BaseException:
            self._stopped = True
            raise
        finally:
            if helper is not None and helper.ident is not None:
                helper.join()
        if self._failure is not None:
            raise self._failure
        if not self.ended:
            self._next = self._find(self._packets)

    def _help(self, rows: _Rows) -> None:
        """Read blocks in another thread."""
        try:
            for _ in self._blocks(rows):
                pass
        except BaseException as err:
            self._failure = err
            self._stopped = True

    def _to_come(self, rows: _Rows, block: _Block) -> float:
        """About how many frames of the part follow this block."""
        in_file = block.seen * (1 / block.fraction - 1) if block.fraction else float("inf")
        return in_file if self._packets is None else min(in_file, self._packets - len(rows))

    def _blocks(self, rows: _Rows) -> Iterator[_Block]:
        """Find, decode and add blocks, which may be used until the next one."""
        while (block := self._begin_block(rows)) is not None:
            rows.decode(block, self._inner, self._flows.seed)
            block.data = _NO_DATA
            self._wait_for(block.number)
            if self._stopped:
                return
            rows.add(block, self._flows)
            self._added += 1
            yield block
            self._unused.append(block)

    def _begin_block(self, rows: _Rows) -> _Block | None:
        """The next frames of the part, and room for their rows; None if it has no more."""
        with self._finding:
            if self._packets is not None and self._end_row >= self._packets:
                self._wait_for_rows(rows)  # there may be fewer than frames
            room = None if self._packets is None else self._packets - self._end_row
            if self.ended or self._stopped or room == 0:
                return None
            if self._next is None:
                self._next = self._find(room)
            block, self._next = self._next, None
            if block is None:
                return None
            if self._added == self._found or self._end_row + block.n > rows.capacity:
                self._wait_for_rows(rows)
            if self._end_row + block.n > rows.capacity:
                rows.grow(block.n, block.fraction)
            block.number, block.row0 = self._found, self._end_row
            self._found += 1
            self._end_row += block.n
            return block

    def _wait_for_rows(self, rows: _Rows) -> None:
        """Wait until all blocks that were begun are added, and leave no room behind their rows."""
        self._wait_for(self._found)
        self._end_row = len(rows)

    def _wait_for(self, blocks: int) -> None:
        """Wait until this many blocks of the part are added."""
        wait_until(lambda: self._added == blocks or self._stopped)

    def _find(self, room: int | None) -> _Block | None:
        """The next frames of the file; None at its end."""
        if self._unused:
            block = self._unused.pop()
        else:
            block = _Block()
            self._source.users.append(block)
        problem = self._framer.next_block(block, _BLOCK_FRAMES if room is None else min(_BLOCK_FRAMES, room))
        if not block.n:
            self.ended = True
            self.damage = self._source.damage or problem
            return None
        self.frames += block.n
        block.data, block.seen, block.fraction = self._source.data, self.frames, self._source.fraction
        return block


def _note_damage(meta: CaptureMeta, frames: int, position: int, damage: str) -> str:
    """Note that the file is truncated or damaged; the complete frames before are kept. Returns what to warn of."""
    meta.truncated = True
    kept = f"{plural(frames, 'complete frame')} before that {'is' if frames == 1 else 'are'} kept"
    meta.notes.append(f"{DAMAGE_NOTE} at byte {position} ({damage}); {kept}")
    return f"{meta.path}: byte {position}: {damage}; {kept}"


def _warn(warning: str | None) -> None:
    """Warn in the line that called the caller of this."""
    if warning is not None:
        warnings.warn(warning, TruncatedCaptureWarning, stacklevel=3)


def iter_frames(path: str | os.PathLike[str] | IO[bytes]) -> Iterator[Frames]:
    """Yield the raw frames of a capture in blocks, each overwritten by the next; stop silently at damage."""
    seen = 0
    with open_source(path) as source, waiting.reading(source.path) as progress:
        framer = _open_framer(source, CaptureMeta(path=source.path))
        frames = Frames()
        while framer.next_block(frames, _BLOCK_FRAMES) is None and frames.n:
            frames.data = source.data
            yield frames
            seen += frames.n
            progress(source.fraction, seen)


def read_capture(
    path: str | os.PathLike[str] | IO[bytes],
    *,
    tunnel: Literal["outer", "inner"] = "outer",
    flow_timeout_s: float | None = 600.0,
    frame_numbers: bool = False,
) -> Capture:
    """Read a whole capture: pcap or pcapng, plain or compressed with gzip, xz or zstd.

    Parameters
    ----------
    path : path, ``"-"`` or binary file object
        What to read; ``"-"`` is standard input. Format and compression are recognised by content.
    tunnel : {"outer", "inner"}
        Which headers to read if UDP carries another packet (VXLAN, Geneve, GTP-U, Teredo, GRE-in-UDP, MPLS-in-UDP):
        those of the UDP datagram (default) or of the packet inside. GRE, IP-in-IP, MPLS and VLANs are always unpacked.
    flow_timeout_s : float or None
        A 5-tuple that is silent for longer starts a new flow. None: flows never time out.
    frame_numbers : bool
        Add a column ``frame`` with the number of the frame in the file, from 1, as in Wireshark (which, however,
        numbers the custom blocks of a pcapng file too).

    Returns
    -------
    Capture
        Takes about 45 bytes of memory per packet.

    Notes
    -----
    Not decoded: MACsec, TRILL, NSH, L2TPv3, VXLAN-GPE, PPP with header compression, LLC other than SNAP, 802.11 inside
    CAPWAP, and 802.11 frames that are encrypted, later fragments or A-MSDUs. Such frames are counted in
    ``meta.counts["not_ip"]``, those of unknown link types in ``meta.counts["other_link_type"]``, and inside an IP
    packet the row describes that packet; ``cct info`` reports the counts.

    Raises
    ------
    CaptureFormatError
        Not a capture; the text names the file, the byte offset and what was expected.

    Warns
    -----
    TruncatedCaptureWarning
        The file is truncated or damaged in the middle; all complete packets before are returned.

    See Also
    --------
    iter_capture : the same in parts, for captures larger than memory
    Capture : what is returned
    flow_table : statistics of each flow
    summarise : the report's numbers, in one pass

    Examples
    --------
    >>> cct.write_pcap("trace.pcap.gz", cct.example("mixed").ingress).name
    'trace.pcap.gz'
    >>> cap = cct.read_capture("trace.pcap.gz")
    >>> cap.flows.nlargest(3, "bytes_fwd")[["src", "dport", "packets_fwd", "packets_rev"]]
              src  dport  packets_fwd  packets_rev
    15  fd00:1::b   5001        11366         6370
    0   10.1.0.10   5001         3726         2214
    7   10.1.0.12   5001          840          563
    """
    ((capture, warning),) = _parts(path, None, tunnel, flow_timeout_s, frame_numbers)
    _warn(warning)
    return capture


def iter_capture(
    path: str | os.PathLike[str] | IO[bytes],
    packets: int = 2_000_000,
    *,
    tunnel: Literal["outer", "inner"] = "outer",
    flow_timeout_s: float | None = 600.0,
    frame_numbers: bool = False,
    ahead: bool = False,
) -> Iterator[Capture]:
    """Read a capture of any size in parts of `packets` packets.

    Flow numbers continue from part to part and do not depend on the size of the parts (unless, in a capture of more
    than a million flows, time goes back by more than `flow_timeout_s`). Memory holds one part and the flows that have
    not timed out. ``part.flows`` and ``part.keys`` cover the flows seen in the part, and ``part.meta`` counts only the
    part. A capture without packets yields one empty part.

    Parameters
    ----------
    path, tunnel, flow_timeout_s, frame_numbers
        As for :func:`read_capture`, which lists errors and warnings too.
    packets : int
        Packets per part.
    ahead : bool
        Read the next part while this one is used, if there is a second core and `path` is a file. This pays where each
        part is analysed for as long as it takes to read it. Memory then holds two parts more.

    Yields
    ------
    Capture
        The next part.

    See Also
    --------
    read_capture : a whole capture at once
    summarise : the report's numbers of a capture of any size

    Examples
    --------
    >>> trace = cct.synth_mawi("trace.pcap", 10_000, seed=1)
    >>> [len(part) for part in cct.iter_capture(trace, packets=4_000)]
    [4000, 4000, 2000]
    """
    with contextlib.ExitStack() as stack:
        parts = stack.enter_context(
            contextlib.closing(_parts(path, packets, tunnel, flow_timeout_s, frame_numbers))
        )
        coming: Iterable[tuple[Capture, str | None]] = parts
        # from a pipe, a loop that is interrupted would wait for the program at its other end
        if ahead and cores() > 1 and not hasattr(path, "read") and reads_twice(path):
            with contextlib.suppress(RuntimeError):  # no thread can be started
                coming = thread = Ahead(parts, 1, "read")
                stack.callback(thread.stop)
        for part, warning in coming:
            _warn(warning)
            yield part
