"""Round-trip times from what passes a tap: four methods, one table of samples.

A sample is the time from a segment passing the tap to its acknowledgement passing in the other direction: the round
trip between the tap and the *receiver* of the segment, including the receiver's own delay (such as a delayed ACK). For
the round trip of the whole path seen from its middle, add both directions.

============== ================================================== ==============================================
method         what is paired                                     memory
============== ================================================== ==============================================
``seq_ack``    a segment and the ACK that ends where it ends      every segment until it is acknowledged
``data_plane`` the same, as a switch can do it                    tables of fixed size: :class:`DataPlaneTables`
``handshake``  a SYN and the ACK that ends its handshake          one handshake a flow
``timestamps`` a TSval and its first echo (pping)                 every TSval until it or a later one is echoed
============== ================================================== ==============================================

The rules of ``seq_ack``
------------------------
- The expected ACK of a segment is its sequence number plus its payload, plus one for SYN and one for FIN. A
  segment without any of these expects none.
- An ACK covers every outstanding segment of the other direction that ends at or before it; these are dropped. If
  the last of them ends exactly there, it gives one sample. An ACK inside a segment gives none, and the
  segment stays: its end may be acknowledged later (always so where the sender's segmentation offload was
  captured), which is a sample. Duplicate ACKs cover nothing new. SACK blocks never match: they say that
  something arrived, but not which transmission.
- The ACK must pass the tap after the segment. A sample that would be negative (clocks of two interfaces,
  merged captures) is left out and counted.
- Numbers are modulo 2**32, and no window is larger than 2**30 bytes. A segment further than that from the highest byte
  its direction has sent restarts the direction; so does a SYN, unless it starts up to 64 KiB below that byte and so
  repeats the last one. A direction that has sent that much without an ACK is given up. An ACK further than that below
  the highest byte, or more than 1 MiB above it, is ignored.

Karn's rule (``karn=True``, the default; Karn and Partridge 1987, RFC 6298 section 3) admits only samples for which it
is certain *which* transmission was acknowledged:

- A segment that begins below the highest byte sent so far is a retransmission. It does not matter whether the tap saw
  the first copy, did not see it (lost before the tap), or the segment was only overtaken on its way to the tap.
- A retransmission that carries nothing new, such as a one-byte keep-alive, is not sampled. One that also carries new
  bytes is: its end was sent once.
- A segment is not sampled if a retransmission that begins below its end passed the tap while it was
  outstanding. This covers both copies, retransmissions cut differently, and everything that waited at the receiver
  behind a hole until it was filled. Bytes that had been acknowledged before they were retransmitted cast no doubt.
  (With retransmissions outstanding at two places, segments sent between them are not sampled either.)
- A segment that ends where an outstanding one ends, seen less than 0.2 ms before, was recorded twice, as mirror ports
  do, and sent once: it is ignored, unless it begins with bytes of another.
- A segment whose ACK passed the tap first is not awaited.
- RST segments are ignored: a RST does not answer data.

With ``karn=False`` the samples are those of tshark 4.0, ``tcp.analysis.ack_rtt``: a retransmission is a segment
like any other, of two copies with the same end the first counts, and RSTs take part. Differences that remain:
tshark shows no sample of 0 ns, waits for the *oldest* 10,000 segments of a direction, reads the
acknowledgement number also where the ACK flag is not set, counts SYN and FIN on one segment as one, and
forgets only on a SYN.

Where only one direction is seen
--------------------------------
Many flows at a backbone tap are one-way, because routes are asymmetric, and their data is never acknowledged there.
Until the other direction appears, the newest `one_way_segments` of a direction are kept; the number given up is
counted as ``one_way_dropped``. A flow whose SYN was captured loses nothing, nor does one already running, as long as
ACKs come between its segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from .._support.layout import for_kernels
from .._support.state import grown
from ..capture.keys import check_keys
from ..capture.model import Capture, columns_of
from ..errors import ParameterError, SchemaError
from ..schema import RTT_SAMPLES, check, empty
from . import rtt_kernels as kernels

if TYPE_CHECKING:
    from ..capture.keys import FlowKeys

__all__ = ["METHODS", "DataPlaneTables", "RttPairing", "rtt_samples", "rtt_summary", "samples_table"]

#: The methods, in the order of the codes in the samples table's `method` column.
METHODS = ("seq_ack", "data_plane", "handshake", "timestamps")

#: Columns that a method reads.
_COLUMNS: dict[str, Any] = {
    "seq_ack": kernels.Segments,
    "data_plane": kernels.Segments,
    "handshake": kernels.StampedSegments,
    "timestamps": kernels.Stamps,
}

_FIRST_NODES = 1 << 14
_POOL = ("free", "used")  # of the counts: where the pool of nodes stands


@dataclass(frozen=True)
class DataPlaneTables:
    """The bounded memory of method ``data_plane``: `stages` tables of `table_size` entries {signature, timestamp}.

    Parameters
    ----------
    table_size : int
        Entries per stage; a power of two, at most 2**24.
    stages : int
        Tables, tried one after the other; 1 to 8.
    timeout_ms : int
        An entry older than this is expired: its place may be taken, and an ACK that still finds it gives no sample.
    signature_bits : int
        Width of the signature, 1 to 32.
    per_direction : bool
        Separate tables for the data of each direction, as a switch needs.
    tick_bits : int
        The age of an entry is counted in ticks of ``2**tick_bits`` ns, 0 to 32. RTTs are in nanoseconds regardless.

    Raises
    ------
    ParameterError
        A value out of range.

    See Also
    --------
    rtt_samples : samples made with such tables
    RttPairing : the same for batches of packets

    Notes
    -----
    Follows section 3.1 of Gomez et al., "Improving Flow Fairness in Non-programmable Networks using P4-programmable
    Data Planes", and what it builds on: Chen et al., "Measuring TCP Round-Trip Time in the Data Plane" (2020).
    Integers only, so that a P4 program can be compared with it entry by entry:

    - ``FID`` = CRC-32 of the five-tuple of the *data*: source address, destination address (4 bytes each, or 16),
      protocol (1 byte), source port, destination port (2 bytes each), in network byte order; 13 or 37 bytes. For an
      ACK, this is its own five-tuple with the ends swapped. Where only a packets table is at hand, without addresses,
      ``FID`` is the CRC-32 of ``flow_id`` (4 bytes) and the direction of the data (1 byte).
    - key = ``FID``, then the expected ACK (of an ACK: its acknowledgement number); 8 bytes in network byte order.
    - ``c1`` = CRC-32 of the key (IEEE 802.3, as zlib), ``c2`` = its CRC-32C (Castagnoli).
    - The entry in stage k (from 0) is ``(c1 + k * c2) mod table_size``. Salting one CRC for each stage would not work:
      a CRC is linear, so two keys that collide in one stage would collide in all.
    - The signature is the upper `signature_bits` bits of ``c2``, or 1 if these are 0, because 0 marks an empty entry.

    A packet first looks up the ACK it carries, then inserts the segment it is; packets with RST do neither.

    - Insertion, stage by stage: a live entry with this signature is *voided* (its segment was retransmitted, and by
      Karn's rule neither copy may be sampled); otherwise the segment takes the first entry that is empty or expired.
      If no stage has room, it is not inserted.
    - Lookup, stage by stage: the first entry with this signature is emptied; if it is neither expired nor void, it
      gives a sample.

    What the data plane cannot know: that a segment was retransmitted cut differently, or after its entry was consumed,
    had expired or was never inserted; that a lower segment was retransmitted, for which the ACK had to wait (such
    samples are too long); and what a cumulative ACK covers below its own number, which stays until it expires. Two
    segments can also share a signature; `table_size` and `signature_bits` determine how likely that is.

    A switch may access a table once per packet. One that measures both directions therefore has a set of tables for
    each (or recirculates packets); without `per_direction`, both share one set. With it there are twice as many
    entries, and data of a flow goes into set 1 if its ``FID`` less that of the other direction is negative as a signed
    32-bit number, else into set 0; an ACK looks into the set that the data of its own direction does not use. (One
    flow in 2**31 has two equal ``FID``, or two that are half the range apart. Such a flow has no samples.)

    A switch's registers hold 32 bits: nanoseconds in them wrap every 4.29 s, and an old entry would seem young again.
    So it counts ages in coarser ticks. The P4 program ``rtt_monitor`` uses the upper 32 of the 48 bits of its clock
    for this, ``DataPlaneTables(1 << 15, per_direction=True, tick_bits=16)``, and agrees with it sample for sample.

    Examples
    --------
    >>> cap = cct.example("cubic").ingress
    >>> small = cct.DataPlaneTables(table_size=16, stages=1)
    >>> samples = cct.rtt_samples(cap, "data_plane", tables=small)
    >>> counters = samples.attrs["data_plane"]
    >>> counters["inserted"] + counters["not_inserted"] <= counters["segments"]
    True
    """

    table_size: int = 1 << 16
    stages: int = 2
    timeout_ms: int = 1000
    signature_bits: int = 32
    per_direction: bool = False
    tick_bits: int = 0

    def __post_init__(self) -> None:
        size = self.table_size
        if not 1 <= size <= 1 << 24 or size & (size - 1):
            raise ParameterError(f"table_size: {size} is not a power of two between 1 and 2**24")
        if not 1 <= self.stages <= 8:
            raise ParameterError(f"stages: {self.stages} is not between 1 and 8")
        if not 1 <= self.timeout_ms <= 86_400_000:
            raise ParameterError(f"timeout_ms: {self.timeout_ms} is not between 1 and 86400000 (a day)")
        if not 1 <= self.signature_bits <= 32:
            raise ParameterError(f"signature_bits: {self.signature_bits} is not between 1 and 32")
        if not 0 <= self.tick_bits <= 32:
            raise ParameterError(f"tick_bits: {self.tick_bits} is not between 0 and 32")


class RttPairing:
    """RTT samples from packets in batches; outstanding segments carry over from one to the next.

    The samples do not depend on where the packets were cut into batches.

    Parameters
    ----------
    method : {"seq_ack", "data_plane", "handshake", "timestamps"}
    karn : bool
        Method ``seq_ack`` only: leave out samples that may measure a retransmission.
    one_way_segments : int
        Methods ``seq_ack`` and ``timestamps``: how many segments (TSvals) of a direction to keep until the other
        direction is seen.
    tables : DataPlaneTables, optional
        Method ``data_plane`` only.

    Attributes
    ----------
    counters : dict of str to int
        What happened so far.

        ``data_plane``: ``segments`` offered, ``inserted``, of these in place of an ``expired`` entry,
        ``not_inserted`` because all entries were taken, ``voided`` by a retransmission; ``acks`` looked up,
        ``matched`` (these are the samples), ``matched_void``, ``matched_late`` (found, but expired), ``backwards``
        (would be negative).

        The others: ``segments`` (TSvals, SYNs) waited for, ``samples``, ``retransmitted`` (segments that began
        below the highest byte, TSvals that were not new, retransmitted SYNs), ``karn_suppressed`` (ACKs that would
        have been samples), ``one_way_dropped``, ``backwards``.

    Raises
    ------
    ParameterError
        An unknown method, or a value out of range.

    See Also
    --------
    rtt_samples : the same in one call
    iter_capture : a capture in batches

    Examples
    --------
    >>> cap = cct.example("cubic").ingress
    >>> pairing = cct.RttPairing()
    >>> batches = [pairing.update(packets) for packets in (cap.packets[:5000], cap.packets[5000:])]
    >>> sum(len(batch["rtt_ns"]) for batch in batches) == len(cct.rtt_samples(cap))
    True
    """

    def __init__(
        self,
        method: str = "seq_ack",
        *,
        karn: bool = True,
        one_way_segments: int = 64,
        tables: DataPlaneTables | None = None,
    ) -> None:
        if method not in METHODS:
            raise ParameterError(f"method: {method!r} is not one of {', '.join(METHODS)}")
        if not 1 <= one_way_segments <= 1 << 24:
            raise ParameterError(f"one_way_segments: {one_way_segments} is not between 1 and 2**24")
        if tables is not None and method != "data_plane":
            raise ParameterError(f"tables: only method data_plane has tables, not {method}")
        self.method = method
        self.karn = bool(karn)
        self.one_way_segments = int(one_way_segments)
        self.tables = tables or DataPlaneTables()
        self._packets = 0  # rows seen before this batch
        counts = kernels.DATA_PLANE_COUNTS if method == "data_plane" else kernels.LIST_COUNTS
        self._counts = np.zeros(1, counts)
        if method in ("seq_ack", "timestamps"):
            self._initiators = np.zeros(0, kernels.SENDER)
            self._responders = np.zeros(0, kernels.SENDER)
            self._pool = np.empty(_FIRST_NODES, kernels.NODE)
            self._counts["used"] = 1  # node 0 means "none"
        elif method == "handshake":
            self._stage = np.zeros(0, np.uint8)
            self._openings = np.zeros(0, kernels.OPENING)
        else:
            self._fids = np.zeros(0, np.uint32)
            sets = 2 if self.tables.per_direction else 1
            self._entries = np.zeros(2 * sets * self.tables.stages * self.tables.table_size, np.uint64)

    @property
    def counters(self) -> dict[str, int]:
        """What happened so far, by name."""
        (counts,) = self._counts
        return {name: int(counts[name]) for name in self._counts.dtype.names or () if name not in _POOL}

    def update(
        self, columns: Capture | pd.DataFrame | dict[str, np.ndarray], keys: FlowKeys | None = None
    ) -> dict[str, np.ndarray]:
        """Take the next packets; return the samples they complete, in order of the packets that complete them.

        Parameters
        ----------
        columns : Capture, DataFrame or dict of arrays
            A part of the packets table.
        keys : FlowKeys, optional
            Method ``data_plane``: five-tuples of the batch's flows, for the hash; a Capture has its own. Give them for
            all batches or for none.

        Returns
        -------
        dict of str to array
            The columns of the samples table but ``method``, and ``packet`` (int64): the row of the ACK, counted from
            the first packet of the first batch.

        Raises
        ------
        SchemaError
            The packets table is not valid (:func:`cctoolkit.schema.check`).
        """
        source = columns_of(columns)
        if keys is None and isinstance(columns, Capture):
            keys = columns.keys
        elif keys is not None:
            check_keys(keys)
        kind = _COLUMNS[self.method]
        packets = kind(*(source[name] for name in kind._fields))
        n = len(packets.ts_ns)
        if n:
            self._make_room(int(packets.flow_id.max()) + 1)
        # Untouched pages of these cost nothing, and a batch has at most one sample a packet.
        samples = kernels.Samples(
            packet=np.empty(n, np.int64),
            ts_ns=np.empty(n, np.int64),
            flow_id=np.empty(n, np.uint32),
            direction=np.empty(n, np.int8),
            rtt_ns=np.empty(n, np.int64),
        )
        if self.method == "handshake":
            handshakes = kernels.Handshakes(self._stage, self._openings, self._counts)
            found = kernels.handshake(packets, handshakes, samples)
        elif self.method == "data_plane":
            found = self._run_data_plane(packets, keys, samples)
        else:
            found = self._run_exact(packets, samples)
        if self.method != "data_plane":
            self._counts["samples"] += found
        packet, ts_ns, flow, direction, rtt_ns = (column[:found] for column in samples)
        packet += self._packets
        self._packets += n
        return {"ts_ns": ts_ns, "flow_id": flow, "direction": direction, "rtt_ns": rtt_ns, "packet": packet}

    def _make_room(self, flows: int) -> None:
        """Make room for flow ids below `flows`."""
        if self.method == "handshake":
            self._stage = grown(self._stage, flows, moved=True)
            self._openings = grown(self._openings, flows, moved=True)
        elif self.method != "data_plane":
            self._initiators = grown(self._initiators, flows, moved=True)
            self._responders = grown(self._responders, flows, moved=True)

    def _run_exact(self, packets: kernels.Segments | kernels.Stamps, samples: kernels.Samples) -> int:
        row, found = 0, 0
        while True:
            lists = kernels.Lists(self._initiators, self._responders, self._pool, self._counts)
            if self.method == "seq_ack":
                row, found = kernels.seq_ack(
                    row, packets, self.karn, self.one_way_segments, lists, samples, found
                )
            else:
                row, found = kernels.timestamps(row, packets, self.one_way_segments, lists, samples, found)
            if row == len(packets.ts_ns):
                return found
            self._pool = grown(self._pool, 2 * len(self._pool), moved=True)

    def _run_data_plane(
        self, packets: kernels.Segments, keys: FlowKeys | None, samples: kernels.Samples
    ) -> int:
        self._fids = five_tuple_hashes(self._fids, packets.flow_id, keys)
        t = self.tables
        geometry = kernels.Geometry(
            stages=t.stages,
            table_size=t.table_size,
            timeout_ns=t.timeout_ms * 1_000_000,
            signature_bits=t.signature_bits,
            per_direction=t.per_direction,
            tick_bits=t.tick_bits,
        )
        tables = kernels.Tables(self._entries, self._counts)
        return kernels.data_plane(packets, self._fids, geometry, tables, samples)


def five_tuple_hashes(known: np.ndarray, flow_id: np.ndarray, keys: FlowKeys | None) -> np.ndarray:
    """The CRC-32 of flows, by which a switch identifies them; see :class:`DataPlaneTables`.

    Parameters
    ----------
    known : uint32 array
        The result for the previous batches; empty at first.
    flow_id : array
        Of the batch's packets.
    keys : FlowKeys, optional
        Their five-tuples; by default, flow numbers stand in for them.

    Returns
    -------
    uint32 array
        By ``2 * flow_id + direction``.
    """
    flow_id = for_kernels(flow_id, "uint32")
    if len(flow_id):
        known = grown(known, 2 * int(flow_id.max()) + 2)
    if keys is None:
        kernels.number_fingerprints(flow_id, known)
    elif len(keys):
        known = grown(known, 2 * int(keys.flow_id.max()) + 2)
        fields = ("flow_id", "ip_version", "protocol", "sport", "dport", "src", "dst")
        types = ("uint32", "uint8", "uint8", "uint16", "uint16", "uint8", "uint8")
        who = (for_kernels(getattr(keys, name), dtype) for name, dtype in zip(fields, types, strict=True))
        kernels.fingerprints(*who, known)
    return known


def rtt_samples(
    cap: Capture | pd.DataFrame | dict[str, np.ndarray],
    method: str = "seq_ack",
    *,
    karn: bool = True,
    one_way_segments: int = 64,
    tables: DataPlaneTables | None = None,
) -> pd.DataFrame:
    """RTT samples of a capture.

    Parameters
    ----------
    cap : Capture, DataFrame or dict of arrays
        A capture, or its packets table, in capture order.
    method : {"seq_ack", "data_plane", "handshake", "timestamps"}
        ``seq_ack``: segments and ACKs of both directions, exactly, by the rules in the module's description.

        ``data_plane``: the same in the bounded tables of a switch, see :class:`DataPlaneTables`.

        ``handshake``: one sample per connection, from its SYN to the ACK of the SYN/ACK, where it is certain that
        neither is a retransmission; the rules are those of :mod:`cctoolkit.analysis.handshake`. That is a whole round
        trip wherever the tap is, and the initiator's direction is enough. ``direction`` is the one of the SYN.
        tshark's ``tcp.analysis.initial_rtt`` is the time from the last SYN to the first ACK of either side, whatever
        was lost in between. The two halves, SYN to SYN/ACK and SYN/ACK to ACK, are samples of ``seq_ack``. A half of
        more than 0.9 s gives no sample (a path with two hops over geostationary satellites, for instance): a SYN/ACK
        that late may be the copy that the retransmission timer sends after 1 s (RFC 6298), with the first copy lost
        before the tap. For such paths, use ``seq_ack`` or ``timestamps``.

        ``timestamps``: as pping (Nichols 2017). A TSval counts when first seen, on any TCP packet, pure ACKs included;
        the first packet with ACK that echoes it in the other direction matches it, once. 0 is not a value. Unlike
        pping: nothing ages (there: after 10 s), TSvals count before the other direction has been seen, only a TSval
        above all earlier ones is new, and an echo drops the older ones, so packets that were overtaken are not
        measured. If the echoing host has nothing to send, the echo comes late: use minima.
    karn : bool
        Method ``seq_ack`` only: leave out samples that may measure a retransmission (the default). False gives
        tshark's ``tcp.analysis.ack_rtt``.
    one_way_segments : int
        Maximum number of segments of a direction to keep until the other is seen.
    tables : DataPlaneTables, optional
        The memory of method ``data_plane``.

    Returns
    -------
    DataFrame
        :data:`cctoolkit.schema.RTT_SAMPLES`, in order of the ACKs. ``attrs["rtt"]`` has the counters of
        :class:`RttPairing`; for method ``data_plane`` they are in ``attrs["data_plane"]``, with the parameters of the
        tables.

    Raises
    ------
    ParameterError
        An unknown method, or a value out of range.
    SchemaError
        `cap` is not a packets table.

    See Also
    --------
    rtt_summary : quantiles by flow
    RttPairing : the same for batches of packets
    DataPlaneTables : the memory of a switch
    plot.rtt : a figure

    Examples
    --------
    >>> cap = cct.example("cubic-bbr").ingress
    >>> samples = cct.rtt_samples(cap)
    >>> (samples.query("direction == 0").groupby("flow_id").rtt_ns.min() / 1e6).round(1).to_dict()
    {0: 30.1, 1: 56.0}
    >>> small = cct.DataPlaneTables(table_size=4096, stages=1)
    >>> counters = cct.rtt_samples(cap, "data_plane", tables=small).attrs["data_plane"]
    >>> counters["matched"] <= counters["inserted"]
    True
    """
    pairing = RttPairing(method, karn=karn, one_way_segments=one_way_segments, tables=tables)
    table = samples_table(pairing.update(cap), method)
    if method == "data_plane":
        table.attrs["data_plane"] = {**vars(pairing.tables), **pairing.counters}
    else:
        table.attrs["rtt"] = pairing.counters
    return table


def samples_table(samples: dict[str, np.ndarray], method: str) -> pd.DataFrame:
    """The samples table (:data:`cctoolkit.schema.RTT_SAMPLES`) of what :meth:`RttPairing.update` returned.

    Parameters
    ----------
    samples : dict of str to array
        Of one batch, or of several with their arrays concatenated.
    method : str
        One of :data:`METHODS`.
    """
    code = np.full(len(samples["ts_ns"]), METHODS.index(method), np.int8)
    columns = {name: samples[name] for name in RTT_SAMPLES if name != "method"}
    return pd.DataFrame({**columns, "method": pd.Categorical.from_codes(code, pd.Index(METHODS))}, copy=False)


def rtt_summary(samples: pd.DataFrame) -> pd.DataFrame:
    """Count, minimum, median, 95th percentile and maximum of the samples of each flow, direction and method.

    Parameters
    ----------
    samples : DataFrame
        :data:`cctoolkit.schema.RTT_SAMPLES`; those of several calls may be concatenated.

    Returns
    -------
    DataFrame
        One row per flow, direction and method with samples, in that order: ``flow_id``, ``direction``, ``method``,
        ``samples``, ``rtt_min_ns``, ``rtt_median_ns``, ``rtt_p95_ns``, ``rtt_max_ns`` (int64; quantiles are
        interpolated between ranks and rounded down to whole nanoseconds).

    Raises
    ------
    SchemaError
        `samples` is not a samples table.

    See Also
    --------
    rtt_samples : the samples
    rtt_unfairness : throughput against RTT

    Examples
    --------
    >>> samples = cct.rtt_samples(cct.example("cubic-bbr").ingress)
    >>> cct.rtt_summary(samples).query("direction == 0")[["flow_id", "samples", "rtt_min_ns"]]
       flow_id  samples  rtt_min_ns
    0        0     1285    30105252
    2        1     2371    56035186
    """
    check(samples, "rtt_samples")
    method = samples["method"].astype("category").cat  # text, after concatenating
    if (method.codes < 0).any():
        raise SchemaError("rtt_samples table: column 'method' has missing values")
    kinds = len(method.categories)
    group = samples["flow_id"].to_numpy().astype(np.int64)
    group *= 2
    group += samples["direction"].to_numpy()
    group *= max(kinds, 1)
    group += method.codes.to_numpy()
    order = np.argsort(group, kind="stable")
    group = group[order]
    values = samples["rtt_ns"].to_numpy()[order]
    ends = np.append(np.flatnonzero(group[1:] != group[:-1]) + 1, len(group))[: len(group)]
    median = np.empty(len(ends), np.int64)
    high = np.empty(len(ends), np.int64)
    kernels.group_quantiles(values, ends, median, high, 0.95)
    starts = ends - np.diff(ends, prepend=0)
    group = group[starts]
    template = empty("rtt_samples")
    return pd.DataFrame(
        {
            "flow_id": (group // (2 * max(kinds, 1))).astype(template["flow_id"].dtype),
            "direction": (group // max(kinds, 1) % 2).astype(template["direction"].dtype),
            "method": pd.Categorical.from_codes((group % max(kinds, 1)).astype(np.int8), method.categories),
            "samples": ends - starts,
            "rtt_min_ns": values[starts],  # each group is sorted by now
            "rtt_median_ns": median,
            "rtt_p95_ns": high,
            "rtt_max_ns": values[ends - 1],
        }
    )
