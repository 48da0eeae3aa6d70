"""A MAWI-like capture of any size from a seed: for benchmarks, and for notebooks without a MAWI day.

**Everything here is synthetic.** It imitates what is known of the real traces (samplepoint F of the WIDE backbone, 15
minutes a day, about 10**8 packets, snap length about 96, both directions of a flow only where routing is symmetric,
much ICMP probing); the numbers below are our own choice and not fitted to data. Use it to test code and measure its
speed, never to learn about the Internet. Addresses come from ranges without real hosts (198.18.0.0/15 clients,
10.0.0.0/8 servers and probed hosts, 192.0.2.0/24 scanners, 198.51.100.0/24 probers, 2001:db8::/32), and the date is
2001-01-01, five years before samplepoint F began.

The model
---------
Flows arrive in a Poisson process. Their kinds are

=======  =====  ====================================================================================
kind     share  packets
=======  =====  ====================================================================================
scan     25 %   one TCP SYN; 10 % are answered by a RST, a fifth of the others repeat after 1 s and 3 s
probe    40 %   one ICMP echo request; 30 % are answered
DNS      15 %   query and response
UDP       5 %   1 to 64 datagrams back and forth, geometric (mean 5)
QUIC      3 %   UDP port 443; Pareto (1.3) from 20 to 100,000 datagrams of 1250 bytes, every fourth answered
web      11 %   TCP; 1.6 objects on average, each lognormal (median 8 kB, sigma 1.5), 0.3 s think time between them
long      1 %   TCP; Pareto (1.2) from 150 to 1,000,000 segments (at most 2 % of the capture); 15 % are uploads
=======  =====  ====================================================================================

* *Round trips*: the tap lies between initiator and responder. The near side is lognormal (median 4 ms, sigma
  0.9); the far side is a mixture of 45 % with median 6 ms (sigma 0.6), 40 % 130 ms (0.25) and 15 % 60 ms (0.4).
  35 % of the flows are initiated on the far side. An answer takes the round trip plus an exponential delay with a
  mean of 20 µs + 1 % of the round trip, and never overtakes the previous one. So a ``seq_ack`` sample for data
  *towards* a side is that side's ``rtt_ns`` plus that delay; :meth:`MawiLike.flows` gives both.
* *TCP*: handshake with MSS, window scale, SACK permitted and (85 %) timestamps in ms; slow start from 10 segments,
  then one segment per round, up to the product of round trip and rate (lognormal, median 20 Mbit/s, sigma 1.3, at
  most a tenth of the link) or 1000; every second segment and the last of a window are acknowledged. 88 % end with
  FIN, 8 % with RST, 4 % fall silent. 4 % are ECT(0), 1 % ECT(1), nothing is CE-marked.
* *Loss*: half of the TCP flows lose segments with a probability log-uniform over two decades (mean over all flows:
  `loss`), at most one per window, half of them before the tap (seen only when repaired) and half after it (seen
  twice). The receiver answers with SACKs; the third triggers the retransmission, else a timer does.
* *Reordering*: in a share `reordering` of the TCP flows, 1 % of the pairs of segments arrive swapped at the tap.
* *Asymmetric routing*: for a share `one_way` of the flows, only one direction passes the tap, either with equal
  probability. Unanswered scans and probes are not counted in it.
* *In progress*: the capture starts with the average number of long flows under way (Little's law).

Not modelled: fragments, tunnels, other protocols, congestion shared between flows, MAC addresses of the routers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..._support.state import grown
from ..._support.waiting import progress_bar
from ...errors import ParameterError
from ...schema import PACKETS
from ..headers import PacketColumns
from ..keys import FlowKeys
from ..writer import PcapWriter
from . import kernels

__all__ = ["MawiLike", "mawi_like", "synth_mawi"]

#: Changes whenever the same seed makes different packets.
SYNTH_VERSION = 1

SNAPLEN = 96
START_NS = 978_325_200 * 10**9  # 2001-01-01 14:00 Japan time
MAWI_PACKETS_PER_S = 1e8 / 900
_MIN_DURATION_S, _MAX_DURATION_S = 30.0, 900.0
_MEAN_FRAME_BITS = 6000.0
_PACKETS_PER_BUCKET = 16
_MAX_BUCKET_NS = 10 * 10**6
_CALENDAR_NS = 16 * 10**9  # what waits longer is parked and looked at again
_KINDS = ["scan", "probe", "dns", "udp", "quic", "web", "long"]


class _Part(NamedTuple):
    columns: dict[str, np.ndarray]
    keys: FlowKeys
    sacks: dict[str, np.ndarray]


@dataclass(frozen=True)
class MawiLike:
    """Parameters of a synthetic capture; :mod:`cctoolkit.capture.synth.mawi` describes the model.

    Parameters
    ----------
    packets : int
        Number of packets, exactly.
    seed : int
        Random seed. The same seed, options and :data:`SYNTH_VERSION` give the same packets (on one kind of machine:
        the last bit of a logarithm may differ between mathematical libraries).
    duration_s : float, optional
        Approximate duration in s: it sets the rate, but `packets` decides when to stop. Default: the rate of a MAWI
        day (10**8 packets in 900 s), but no less than 30 s and no more than 900 s.
    loss : float
        Mean loss probability of a TCP segment; 0: no retransmissions at all.
    reordering : float
        Share of the TCP flows that see reordering.
    one_way : float
        Share of the flows with only one direction captured.
    ipv6 : float
        Share of IPv6 among the flows other than scans and probes.

    Raises
    ------
    ParameterError
        A value outside its range.

    See Also
    --------
    cctoolkit.synth_mawi : writes a capture

    Examples
    --------
    >>> model = MawiLike(packets=2000, seed=1)
    >>> columns, keys = next(model.parts(2000))
    >>> len(columns["ts_ns"])
    2000
    """

    packets: int
    seed: int = 0
    duration_s: float | None = None
    loss: float = 0.002
    reordering: float = 0.01
    one_way: float = 0.4
    ipv6: float = 0.12

    def __post_init__(self) -> None:
        if self.packets < 1:
            raise ParameterError(f"packets: {self.packets} must be at least 1")
        if not 0 <= self.seed < 2**63:
            raise ParameterError(f"seed: {self.seed} must be between 0 and 2**63 - 1")
        for name in ("loss", "reordering", "one_way", "ipv6"):
            value = getattr(self, name)
            if not 0 <= value <= (0.02 if name == "loss" else 1):
                raise ParameterError(f"{name}: {value} must be between 0 and {0.02 if name == 'loss' else 1}")
        if not self.packets / 5e7 <= self.expected_duration_s < 3600 * 24:
            raise ParameterError(
                f"duration_s: {self.duration_s} must be at most a day, and give at most 50 million packets per second"
            )

    @property
    def expected_duration_s(self) -> float:
        """`duration_s`, or its default."""
        if self.duration_s is not None:
            return float(self.duration_s)
        return min(max(self.packets / MAWI_PACKETS_PER_S, _MIN_DURATION_S), _MAX_DURATION_S)

    @property
    def name(self) -> str:
        """A descriptive file name."""
        return f"synthetic-mawi-like-{self.packets}-packets-seed-{self.seed}-v{SYNTH_VERSION}.pcap.gz"

    @property
    def comment(self) -> str:
        """A description for the file's header."""
        return (
            f"SYNTHETIC MAWI-like traffic, no real packets: cctoolkit.capture.synth.mawi version {SYNTH_VERSION}, "
            f"packets={self.packets} seed={self.seed} duration_s={self.expected_duration_s:g} loss={self.loss:g} "
            f"reordering={self.reordering:g} one_way={self.one_way:g} ipv6={self.ipv6:g}"
        )

    def parts(
        self, part_packets: int = 1_000_000, events: bool = False
    ) -> Iterator[tuple[dict[str, np.ndarray], FlowKeys]]:
        """Yield the packets in order of time, part by part; memory does not grow with the capture.

        Parameters
        ----------
        part_packets : int
            Packets per part, or a few less. The packets do not depend on it.
        events : bool
            Add a column ``event`` (uint8) with the ground truth: 0 ordinary, 1 a retransmission of a segment (or SYN)
            that passed the tap, 2 a retransmission of one lost before the tap, 3 a segment that arrives after its
            successor.

        Yields
        ------
        columns : dict of arrays
            The packets table. ``direction`` is the true one, even where a reader of the file cannot know it (flows in
            progress, or flows with only the responder's packets).
        keys : FlowKeys
            The flows in this part.
        """
        for part in self._parts(part_packets):
            if not events:
                del part.columns["event"]
            yield part.columns, part.keys

    def flows(self, flow_ids: np.ndarray) -> pd.DataFrame:
        """Ground truth of flows.

        Parameters
        ----------
        flow_ids : integer array
            Flow numbers as in the packets table, in order of arrival.

        Returns
        -------
        DataFrame
            ``flow_id``, ``kind``, the round trips from the tap to initiator and responder and back
            (``rtt_initiator_ns``, ``rtt_responder_ns``), the mean delay on top of each (``jitter_initiator_ns``,
            ``jitter_responder_ns``), ``sees_initiator`` and ``sees_responder`` (whether that side's packets pass the
            tap), ``answered``, ``in_progress``, ``loss`` (probability) and ``reorders``.
        """
        flows = self._describe(self._control(), np.asarray(flow_ids, np.int64))
        return pd.DataFrame(
            {
                "flow_id": flows["flow_id"],
                "kind": pd.Categorical.from_codes(flows["kind"], dtype=pd.CategoricalDtype(_KINDS)),
                "rtt_initiator_ns": flows["rtt_ns"][:, 0],
                "rtt_responder_ns": flows["rtt_ns"][:, 1],
                "jitter_initiator_ns": flows["jitter_ns"][:, 0],
                "jitter_responder_ns": flows["jitter_ns"][:, 1],
                "sees_initiator": flows["visible"] & 1 == 1,
                "sees_responder": flows["visible"] & 2 == 2,
                "answered": flows["answered"],
                "in_progress": flows["in_progress"],
                "loss": flows["loss"],
                "reorders": flows["reorders"],
            }
        )

    # ---- implementation

    def _control(self) -> np.ndarray:
        """The record of the kernels before the first packet."""
        duration_ns = self.expected_duration_s * 1e9
        per_ns = self.packets / duration_ns
        max_segments = min(max(0.02 * self.packets, 1000.0), 1e6)
        max_rate_bps = min(1e9, 0.1 * per_ns * 1e9 * _MEAN_FRAME_BITS)
        births_per_ns = per_ns / _packets_per_flow(self.one_way, max_segments)
        control = np.zeros(1, kernels.CONTROL)
        c: Any = control[0]
        c["seed"] = self.seed
        c["packets"] = self.packets
        c["birth_gap_ns"] = 1 / births_per_ns
        c["max_segments"] = max_segments
        c["max_rate_bps"] = max_rate_bps
        # Little's law: arrival rate of long flows times their mean duration
        lasts_ns = _pareto_mean(kernels.LONG_ALPHA, kernels.LONG_MIN, max_segments) * _mean_gap_ns(
            max_rate_bps
        )
        c["in_progress"] = round(births_per_ns * kernels.SHARES[kernels.LONG] * lasts_ns)
        for name in ("loss", "reordering", "one_way", "ipv6"):
            c[name] = getattr(self, name)
        c["bucket_ns"] = min(max(round(_PACKETS_PER_BUCKET / per_ns), 1), _MAX_BUCKET_NS)
        c["rng"] = self.seed ^ 0x5EED
        c["free_packet"] = c["free_flow"] = -1
        return control

    @staticmethod
    def _describe(control: np.ndarray, flow_ids: np.ndarray) -> np.ndarray:
        flows = np.zeros(len(flow_ids), kernels.FLOW)
        kernels.describe(control, flow_ids, flows)
        return flows

    def _parts(self, part_packets: int) -> Iterator[_Part]:
        control = self._control()
        per_bucket = self.packets / self.expected_duration_s * 1e-9 * float(control["bucket_ns"][0])
        # a part must hold a whole bucket, even an unusually full one
        capacity = max(int(part_packets), 50_000, int(200 * per_bucket))
        n_buckets = 1 << math.ceil(math.log2(_CALENDAR_NS / int(control["bucket_ns"][0])))
        packet_heads = np.full(n_buckets, -1, np.int32)
        flow_heads = np.full(n_buckets, -1, np.int32)
        flows = _with_rows(np.zeros(0, kernels.FLOW), 1 << 12, control, "free_flow", "flows_free")
        pool = _with_rows(np.zeros(0, kernels.PACKET), 1 << 14, control, "free_packet", "packets_free")
        status = kernels.PART_FULL
        while status != kernels.DONE:
            out: Any = PacketColumns(*(np.empty(capacity, dtype) for dtype in PACKETS.values()))
            event = np.empty(capacity, np.uint8)
            sacks = np.empty((capacity, 3), np.int64)
            rows = n_sacks = 0
            while True:
                status, rows, n_sacks = kernels.advance(
                    control, flows, pool, flow_heads, packet_heads, out, event, sacks, rows, n_sacks
                )
                if status == kernels.GROW_FLOWS:
                    flows = _with_rows(flows, 2 * len(flows), control, "free_flow", "flows_free")
                elif status == kernels.GROW_PACKETS:
                    pool = _with_rows(pool, 2 * len(pool), control, "free_packet", "packets_free")
                else:
                    break
            columns: dict[str, Any] = {name: c[:rows] for name, c in zip(PACKETS, out, strict=True)}
            columns["ts_ns"] += START_NS
            columns["event"] = event[:rows]
            blocks = sacks[:n_sacks]
            yield _Part(
                columns,
                self._keys(control, columns["flow_id"]),
                {
                    "packet": blocks[:, 0].copy(),
                    "left": blocks[:, 1].astype(np.uint32),
                    "right": blocks[:, 2].astype(np.uint32),
                },
            )

    def _keys(self, control: np.ndarray, flow_id: np.ndarray) -> FlowKeys:
        """Keys of these flows."""
        first = int(flow_id.min())
        there = np.zeros(int(flow_id.max()) - first + 1, bool)
        there[flow_id - np.uint32(first)] = True
        flows = self._describe(control, np.flatnonzero(there) + first)
        opens = (flows["protocol"] == 6) & ~flows["in_progress"]
        # SYN options, if the SYN passes the tap: the initiator's in direction 0
        seen = np.stack([opens & (flows["visible"] & 1 == 1), opens & (flows["visible"] & 2 == 2)], axis=1)
        answered = np.stack([seen[:, 0], seen[:, 1] & (flows["kind"] != kernels.SCAN)], axis=1)
        address = {
            end: np.stack([flows[f"{end}_hi"], flows[f"{end}_lo"]], axis=1).astype(">u8").view(np.uint8)
            for end in ("src", "dst")
        }
        return FlowKeys(
            flow_id=flows["flow_id"].copy(),
            ip_version=flows["ip_version"].copy(),
            protocol=flows["protocol"].copy(),
            sport=flows["sport"].copy(),
            dport=flows["dport"].copy(),
            saw_syn=seen[:, 0].copy(),
            mss=np.where(answered, flows["mss"], 0).astype(np.uint16),
            window_scale=np.where(answered, flows["window_scale"], 255).astype(np.uint8),
            sack_permitted=answered & flows["sack"][:, None],
            **address,
        )


def _with_rows(table: np.ndarray, size: int, control: np.ndarray, free: str, count: str) -> np.ndarray:
    """`table` with more rows, which join its list of free rows."""
    out = grown(table, size)
    out["next"][len(table) :] = np.arange(len(table) + 1, size + 1)
    out["next"][-1] = control[free][0]
    control[free] = len(table)
    control[count] += size - len(table)
    return out


def _pareto_mean(alpha: float, minimum: float, most: float) -> float:
    """Mean of a Pareto distribution truncated at `most`."""
    scale = alpha / (alpha - 1) * (minimum - most * (minimum / most) ** alpha)
    return scale / (1 - (minimum / most) ** alpha)


def _mean_gap_ns(max_rate_bps: float) -> float:
    """Mean time of a long flow's segment on its bottleneck in ns, by quantiles of the rate distribution."""
    z = np.linspace(-6, 6, 2001)
    weight = np.exp(-(z**2) / 2)
    rate = kernels.RATE_BPS * np.exp(kernels.RATE_SIGMA * z)
    rate = np.clip(rate, min(kernels.RATE_MIN_BPS, max_rate_bps / 2), max_rate_bps)
    return float((weight / rate).sum() / weight.sum() * 1514 * 8e9)


def _packets_per_flow(one_way: float, max_segments: float) -> float:
    """Mean number of packets of a flow that pass the tap; sets the arrival rate."""
    web_segments = kernels.WEB_BYTES * math.exp(kernels.WEB_SIGMA**2 / 2) / 1448 + 0.5
    objects = 1 / (1 - kernels.WEB_MORE)
    long_segments = _pareto_mean(kernels.LONG_ALPHA, kernels.LONG_MIN, max_segments)
    both_ways = {
        kernels.DNS: 2.0,
        kernels.UDP: 5.0,
        kernels.QUIC: 4 + 1.25 * _pareto_mean(kernels.QUIC_ALPHA, kernels.QUIC_MIN, kernels.QUIC_MAX),
        kernels.WEB: 6 + objects * (2.5 + 1.5 * web_segments),
        kernels.LONG: 8 + 1.5 * long_segments,
    }
    seen = 1 - one_way / 2
    packets = seen * sum(kernels.SHARES[kind] * n for kind, n in both_ways.items())
    packets += kernels.SHARES[kernels.SCAN] * (
        1 + kernels.SCAN_ANSWERED * seen + 2 * kernels.SCAN_RETRIED * (1 - kernels.SCAN_ANSWERED)
    )
    return float(packets + kernels.SHARES[kernels.PROBE] * (1 + kernels.PROBE_ANSWERED * seen))


def mawi_like(
    packets: int, seed: int = 0, *, part_packets: int = 1_000_000, events: bool = False, **options: Any
) -> Iterator[tuple[dict[str, np.ndarray], FlowKeys]]:
    """Yield the packets of a MAWI-like capture part by part: ``MawiLike(packets, seed, **options).parts(...)``.

    Examples
    --------
    >>> from cctoolkit.capture.synth.mawi import mawi_like
    >>> sum(len(columns["ts_ns"]) for columns, keys in mawi_like(10_000, seed=1))
    10000
    """
    return MawiLike(packets, seed, **options).parts(part_packets, events)


def synth_mawi(
    path: str | os.PathLike[str],
    packets: int = 1_000_000,
    seed: int = 0,
    *,
    snaplen: int = SNAPLEN,
    progress: bool | None = None,
    **options: Any,
) -> Path:
    """Write a synthetic, MAWI-like capture; :mod:`cctoolkit.capture.synth.mawi` describes the model.

    Memory does not grow with the size of the capture.

    Parameters
    ----------
    path : path
        File to write (its name sets format and compression, as for :class:`PcapWriter`), or a folder, in which the
        file will be ``synthetic-mawi-like-….pcap.gz``. The headers of gzip and pcapng files say that they are
        synthetic; a plain pcap has no place for that.
    packets : int
        Number of packets.
    seed : int
        Random seed: the same seed and options give the same packets.
    snaplen : int
        Snap length in bytes.
    progress : bool, optional
        Show a progress bar; by default only on a terminal or in a notebook.
    **options
        ``duration_s``, ``loss``, ``reordering``, ``one_way``, ``ipv6``, as for
        :class:`cctoolkit.capture.synth.mawi.MawiLike`.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ParameterError
        A value outside its range.

    See Also
    --------
    fetch_mawi : download a real trace
    find_trace : whatever trace is available

    Examples
    --------
    >>> cap = cct.read_capture(cct.synth_mawi("trace.pcap.gz", 10_000, seed=1, ipv6=0.0))
    >>> len(cap), set(cap.keys.ip_version.tolist())
    (10000, {4})
    """
    model = MawiLike(packets, seed, **options)
    path = Path(path)
    if path.is_dir():
        path /= model.name
    bar = progress_bar(
        total=packets,
        unit="packets",
        unit_scale=True,
        desc=path.name,
        disable=None if progress is None else not progress,
    )
    with bar, PcapWriter(path, snaplen=snaplen, comment=model.comment) as writer:
        for part in model._parts(500_000):
            writer.write(part.columns, part.keys, part.sacks)
            bar.update(len(part.columns["ts_ns"]))
    return path
