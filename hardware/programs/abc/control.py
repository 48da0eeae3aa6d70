"""ABC's control plane: sets meters, wires and the tables of powers and logarithms, and reports on the
aggregates.

::

    python -m hardware.programs.abc.control --bmv2 127.0.0.1:9090 --wire 0:1 --wire 1:0 --link 1:50:24 \\
        --aggregate 10.0.0.0/24=10 --aggregate 10.0.1.0/24=20

Port 0 has customers. ABC manages packets that leave by port 1, at 50 Mbit/s with a buffer of 24 packets.
Several switches form a domain: declare the ports between them with ``--domain``.
"""

from __future__ import annotations

import ipaddress
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import pandas as pd
import typer

from cctoolkit._support.arguments import number
from cctoolkit._support.csv import write_csv
from cctoolkit.aqm import IntegerAbc, TofinoAbc, abc_tofino as tofino
from cctoolkit.aqm.abc import ONE
from cctoolkit.errors import ParameterError

from ...common.command import Work, main_loop, run
from ...common.options import Duration, FrameBytes, Period, PollLog, Wire
from ...common.switch import Lpm, Switch, SwitchError
from ...common.wires import PORTS, mirror_to_recirculation, parse_wires, set_wires
from .constants import AGGREGATES, MODEL, NUMBER, PROFILES, TOFINO_MODEL

__all__ = [
    "Aggregate",
    "Domain",
    "Link",
    "aggregate_table",
    "clear",
    "port_table",
    "set_up",
    "uses_tofino_arithmetic",
]

log = logging.getLogger(__name__)

_WORD = 1 << 32
NOTIFICATION_BYTES = 64
#: In addition to the length in the IP header: Ethernet, and IPv6's own header, which IPv6's length excludes.
HEADER_BYTES, IPV6_HEADER_BYTES = 14, 54


@dataclass(frozen=True)
class Aggregate:
    """Senders that are metered together: an IPv4 or IPv6 prefix.

    Attributes
    ----------
    prefix : str
        Such as ``"10.0.0.0/24"``. The longest match wins.
    reference_kbps : float
        R_r of equation (1).
    """

    prefix: str
    reference_kbps: float = 10.0

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_network(self.prefix)
        except ValueError as err:
            raise ParameterError(f"aggregate: {err}") from None
        number(f"aggregate {self.prefix}: reference_kbps", self.reference_kbps, above=0)


@dataclass(frozen=True)
class Link:
    """An egress port with an activity AQM.

    Attributes
    ----------
    port : int
    rate_mbps : float, optional
        Shape the port to this rate. ABC only sees queues in this switch.
    buffer_packets : int
    min_packets, base_packets, gamma_packets : float
        Equation (2).
    """

    port: int
    rate_mbps: float | None = None
    buffer_packets: int = 24
    min_packets: float = 6.0
    base_packets: float = 20.0
    gamma_packets: float = 16.0

    def __post_init__(self) -> None:
        if self.buffer_packets < 1 or self.buffer_packets > tofino.RING:
            raise ParameterError(
                f"link {self.port}: buffer_packets: {self.buffer_packets} must be 1 to {tofino.RING}"
            )
        if self.rate_mbps is not None:
            number(f"link {self.port}: rate_mbps", self.rate_mbps, above=0)
        self.tofino_model()  # checks the parameters

    def integer_model(self) -> IntegerAbc:
        return IntegerAbc(
            min_packets=self.min_packets, base_packets=self.base_packets, gamma_packets=self.gamma_packets
        )

    def tofino_model(self) -> TofinoAbc:
        return TofinoAbc(
            min_packets=self.min_packets, base_packets=self.base_packets, gamma_packets=self.gamma_packets
        )


@dataclass(frozen=True)
class Domain:
    """A switch's role in a domain.

    Attributes
    ----------
    wires : dict of int to int
        Where packets from each port leave. Packets from other ports are dropped.
    domain_ports : frozenset of int
        Ports to other nodes of the domain: incoming activities are trusted, and outgoing packets keep theirs.
        All other ports lead to customers: incoming packets are metered, and outgoing ones lose their
        activity.
    links : sequence of Link
    aggregates : sequence of Aggregate
    others_kbps : float
        Reference rate of all traffic without an aggregate.
    largest_mbps : float
        With the Tofino's arithmetic: the highest rate at which an aggregate is metered correctly.
    """

    wires: dict[int, int]
    domain_ports: frozenset[int] = frozenset()
    links: Sequence[Link] = ()
    aggregates: Sequence[Aggregate] = ()
    others_kbps: float = 10.0
    largest_mbps: float = TOFINO_MODEL.largest_mbps
    # number of each set of parameters; links with equal parameters share tables
    profiles: dict[tuple[float, ...], int] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        number("others_kbps", self.others_kbps, above=0)
        number("largest_mbps", self.largest_mbps, above=0)
        if len(self.aggregates) >= AGGREGATES:
            raise ParameterError(
                f"aggregates: at most {AGGREGATES - 1} are possible, not {len(self.aggregates)}"
            )
        prefixes = [ipaddress.ip_network(a.prefix) for a in self.aggregates]
        if len(set(prefixes)) < len(prefixes):
            raise ParameterError("aggregates: a prefix is given twice")
        ports = [link.port for link in self.links]
        if len(set(ports)) < len(ports):
            raise ParameterError("links: a port is given twice")
        for link in self.links:
            self.profiles.setdefault(_parameters(link), len(self.profiles))
        if len(self.profiles) > PROFILES:
            raise ParameterError(f"links: at most {PROFILES} different sets of parameters are possible")

    def reference_kbps(self) -> list[float]:
        """By aggregate number; the last one is for all other traffic."""
        rates = [a.reference_kbps for a in self.aggregates]
        return rates + [self.others_kbps] * (AGGREGATES - len(rates))

    def tofino_model(self) -> TofinoAbc:
        """The model with this domain's reference rates."""
        return TofinoAbc(
            reference_kbps=tuple(self.reference_kbps()), aggregates=AGGREGATES, largest_mbps=self.largest_mbps
        )


def _parameters(link: Link) -> tuple[float, ...]:
    return (link.buffer_packets, link.min_packets, link.base_packets, link.gamma_packets)


def uses_tofino_arithmetic(switch: Switch) -> bool:
    """Whether the switch has the Tofino's meter and AQM: a Tofino, or a BMv2 program compiled with them."""
    if switch.target != "bmv2":
        return True
    try:
        switch.read_register("powers", 0, 1)
    except SwitchError as err:
        if type(err) is not SwitchError:  # the switch is gone
            raise
        return True
    return False


# ---- entries ---------------------------------------------------------------------------------------------------------


def octave_entries(bits: int, width: int, key_bits: int) -> Iterator[tuple[int, Lpm]]:
    """Index and prefix of each entry of a table indexed by the leading one and the `bits` bits after it."""
    first, count = tofino.octaves(bits, width)
    for index, (value, values) in enumerate(zip(first.tolist(), count.tolist(), strict=True)):
        if tofino.octave(value, bits) == index:  # otherwise some of the bits are fractional
            yield index, Lpm(value, key_bits - values.bit_length() + 1)


def length_entries() -> Iterator[tuple[int, Lpm]]:
    """Entries for lengths in IP headers. A length of 0 (an IPv6 packet without payload) counts as 1."""
    yield 0, Lpm(0, 16)
    yield from octave_entries(tofino.LENGTH_BITS, 16, 16)


def range_prefixes(low: int, high: int, bits: int = 32) -> Iterator[Lpm]:
    """The fewest prefixes that cover exactly the numbers from `low` to `high`, inclusive."""
    while low <= high:
        free = (low & -low).bit_length() - 1 if low else bits
        size = min(free, (high - low + 1).bit_length() - 1)
        yield Lpm(low, bits - size)
        low += 1 << size


def threshold_entries(model: TofinoAbc, buffer_packets: int) -> Iterator[tuple[Lpm, int]]:
    """Prefixes of an activity excess (two's complement, 16 fractional bits), each with its queue limit in
    packets."""
    constants = model.derived()
    base, gamma = constants["base_fixed"], constants["gamma_fixed"]
    most = buffer_packets - 1
    minimum = min(constants["min_fixed"], most)
    low = -(_WORD // 2)
    for packets in range(most, minimum - 1, -1):
        # the largest excess at which the threshold is still this many packets
        high = _WORD // 2 - 1
        if packets > minimum:
            reached = base - (packets << 24)
            high = reached // gamma if gamma else (high if reached >= 0 else low - 1)
            high = min(high, _WORD // 2 - 1)
        if high < low:
            continue
        for begin, end in ((low, min(high, -1)), (max(low, 0), high)):  # the sign bit is part of the prefix
            if begin <= end:
                for prefix in range_prefixes(begin % _WORD, end % _WORD):
                    yield prefix, packets
        low = high + 1


# ---- set-up ----------------------------------------------------------------------------------------------------------


def set_up(
    switch: Switch, domain: Domain, *, frame_bytes: int = 1514, recirculation_port: int | None = None
) -> None:
    """Fill tables and registers, and shape the links. May be repeated: meters and averages are kept.

    Parameters
    ----------
    switch : Switch
    domain : Domain
    frame_bytes : int
        As in :meth:`Switch.shape`.
    recirculation_port : int, optional
        Of a Tofino's pipe 0, for notifications of departures. Default: 68, or 6 on a Tofino 2. Each further
        pipe's is 128 higher.
    """
    tofino_arithmetic = uses_tofino_arithmetic(switch)
    if switch.target != "bmv2":
        for port in mirror_to_recirculation(switch, domain.wires, NOTIFICATION_BYTES, recirculation_port):
            switch.add_entry("ingress_role", {"port": port}, "from_egress")
    if tofino_arithmetic:
        _fill_tables(switch, domain)
    else:
        _write_registers(switch)
    _set_aggregates(switch, domain, tofino_arithmetic)
    set_wires(switch, domain.wires)
    for source in domain.wires:
        role = "from_domain" if source in domain.domain_ports else "from_customer"
        switch.add_entry("ingress_role", {"port": source}, role)
    for port in sorted(set(domain.wires.values())):
        switch.add_entry("egress_role", {"port": port}, "keep" if port in domain.domain_ports else "strip")
    for link in domain.links:
        data = {"profile": domain.profiles[_parameters(link)]} if tofino_arithmetic else _equation_2(link)
        switch.add_entry("managed_ports", {"port": link.port}, "manage", data)
        if link.rate_mbps is not None:
            switch.shape(
                link.port, link.rate_mbps, frame_bytes=frame_bytes, buffer_packets=link.buffer_packets
            )


def _equation_2(link: Link) -> dict[str, int]:
    constants = link.integer_model().derived()
    return {
        "min_q16": constants["min_fixed"],
        "base_q16": constants["base_fixed"],
        "gamma": constants["gamma_fixed"],
    }


def _set_aggregates(switch: Switch, domain: Domain, tofino_arithmetic: bool) -> None:
    offsets = (
        domain.tofino_model().offsets()
        if tofino_arithmetic
        else IntegerAbc(reference_kbps=tuple(domain.reference_kbps()), aggregates=AGGREGATES).derived()[
            "offset"
        ]
    )
    for index, aggregate in enumerate(domain.aggregates):
        network = ipaddress.ip_network(aggregate.prefix)
        switch.add_entry(
            "aggregates" if network.version == 4 else "aggregates_ipv6",
            {"source": Lpm(int(network.network_address), network.prefixlen)},
            "meter_as",
            {"aggregate": index, "offset_q16": int(offsets[index]) % _WORD},
        )
    others = {"aggregate": AGGREGATES - 1, "offset_q16": int(offsets[-1]) % _WORD}
    for table in ("aggregates", "aggregates_ipv6"):
        switch.set_default(table, "meter_as", others)


def _write_registers(switch: Switch) -> None:
    """Write the tables of the 64-bit arithmetic, which are registers."""
    constants = MODEL.derived()
    for name, values in (
        ("powers", constants["power_table"]),
        ("logarithms", constants["log_table"]),
        ("young_logarithms", -constants["start_table"]),
    ):
        for index, value in enumerate(values.tolist()):
            switch.write_register(name, value, index)


def _fill_tables(switch: Switch, domain: Domain) -> None:
    """Fill the Tofino arithmetic's match tables: logarithms, weighted lengths, thresholds, gains."""
    for table, header_bytes in (
        ("length_logarithms", HEADER_BYTES),
        ("length_logarithms_ipv6", IPV6_HEADER_BYTES),
    ):
        values = tofino.length_logarithms(header_bytes)
        for index, prefix in length_entries():
            switch.add_entry(table, {"length_bytes": prefix}, "length", {"log_q15": int(values[index])})
    model = domain.tofino_model()
    for exponent, units in enumerate(tofino.weighted_lengths(model.unit_bytes()).tolist()):
        switch.add_entry("weighted_lengths", {"exponent": exponent}, "weigh", {"units": units})
    values = tofino.logarithms()
    for index, prefix in octave_entries(tofino.LOG_BITS, 32, 32):
        value = int(values[index])
        switch.add_entry("logarithms", {"sum": prefix}, "logarithm", {"log_q16": value})
        eighths = value >> 16 - tofino.GAIN_BITS
        switch.add_entry("count_logarithms", {"sum": prefix}, "logarithm", {"log_q3": eighths})
    values = tofino.young_logarithms()
    width = tofino.MATURE_STEPS.bit_length() - 1
    for index, prefix in octave_entries(tofino.YOUNG_BITS, width, 32):
        missing = {"missing_q16": -int(values[index])}
        switch.add_entry("young_logarithms", {"age": prefix}, "rejuvenate", missing)
    links = {domain.profiles[_parameters(link)]: link for link in domain.links}
    entries = {
        profile: list(threshold_entries(link.tofino_model(), link.buffer_packets))
        for profile, link in links.items()
    }
    needed = sum(map(len, entries.values()))
    if needed > NUMBER["THRESHOLD_ENTRIES"]:
        raise ParameterError(
            f"links: their thresholds need {needed} entries, but there are {NUMBER['THRESHOLD_ENTRIES']}; "
            "a gamma that is a power of two, or smaller buffers, need fewer"
        )
    for profile, link in links.items():
        for prefix, packets in entries[profile]:
            switch.add_entry(
                "thresholds", {"profile": profile, "excess": prefix}, "limit", {"packets": packets}
            )
        shifts, furthers = link.tofino_model().gains(1 << (link.buffer_packets - 1).bit_length())
        for index, (shift, further) in enumerate(zip(shifts.tolist(), furthers.tolist(), strict=True)):
            key = {"profile": profile, "log_count": (index - (1 << tofino.GAIN_BITS)) % 512}
            switch.add_entry("gains", key, f"gain_{shift}", {"further": further})


def clear(switch: Switch) -> None:
    """Reset meters, averages and counters. Only while queues are empty: this resets their lengths too."""
    names = ["activities"]
    pairs = {"aggregate_packets": ("accepted", "dropped"), "port_packets": ("accepted", "dropped")}
    if uses_tofino_arithmetic(switch):
        names += ["mature", "departed", "average", "accepted_number", "average_q24"]
        pairs |= {f"{kind}_{slot}": ("sum", "cycle") for kind in ("volume", "count") for slot in range(2)}
        pairs["first"] = ("time", "known")
    else:
        names += ["started", "first_ns", "last_ns", "volume", "activity_sum", "activity_count", "averaged_ns"]
        names += ["queue_depth"]
    for name in names:
        switch.write_register(name, 0)
    for name, fields in pairs.items():
        switch.write_register(name, dict.fromkeys(fields, 0))


# ---- read-out --------------------------------------------------------------------------------------------------------


def aggregate_table(switch: Switch, domain: Domain) -> pd.DataFrame:
    """What the meters measured and the AQMs of this switch decided, per aggregate.

    Returns
    -------
    DataFrame
        One row per aggregate, the last one for all other traffic: ``aggregate``, ``prefix``,
        ``reference_kbps``; ``activity`` of its last packet and the corresponding ``rate_mbps`` (NaN before
        the first packet); ``accepted`` and ``dropped``, packets so far.
    """
    numbers = [*range(len(domain.aggregates)), AGGREGATES - 1]
    activities, packets = (switch.read_register(name) for name in ("activities", "aggregate_packets"))
    rates = np.array(domain.reference_kbps())[numbers]
    accepted, dropped = (packets[name][numbers].astype(np.int64) for name in ("accepted", "dropped"))
    activity = activities[numbers].astype(np.uint32).astype(np.int32) / ONE
    activity[(activities[numbers] == 0) & (accepted + dropped == 0)] = np.nan
    return pd.DataFrame(
        {
            "aggregate": numbers,
            "prefix": [*(a.prefix for a in domain.aggregates), "others"],
            "reference_kbps": rates,
            "activity": activity,
            "rate_mbps": rates * 1e-3 * 2.0**activity,
            "accepted": accepted,
            "dropped": dropped,
        }
    )


def port_table(switch: Switch, domain: Domain) -> pd.DataFrame:
    """What the AQMs decided, per link, on packets with and without an activity.

    Returns
    -------
    DataFrame
        One row per link: ``port``, ``accepted``, ``dropped``; ``average_activity`` of its packets, NaN before
        the first.
    """
    ports = [link.port for link in domain.links]
    packets = switch.read_register("port_packets")
    if uses_tofino_arithmetic(switch):
        average = switch.read_register("average")[ports].astype(np.uint32).astype(np.int32) / ONE
        average[average == 0] = np.nan
    else:
        total, count = (
            switch.read_register(name)[ports].astype(np.int64).astype(float)
            for name in ("activity_sum", "activity_count")
        )
        average = np.divide(total, count, out=np.full(len(ports), np.nan), where=count > 0)
    accepted, dropped = (packets[name][ports].astype(np.int64) for name in ("accepted", "dropped"))
    return pd.DataFrame(
        {"port": ports, "accepted": accepted, "dropped": dropped, "average_activity": average}
    )


# ---- command line ----------------------------------------------------------------------------------------------------


def parse_links(texts: Iterable[str], **parameters: float) -> list[Link]:
    """Parse links written as ``PORT:MBPS:PACKETS``."""
    links = []
    for text in texts:
        try:
            port, rate_mbps, buffer = text.split(":")
            link = int(port), float(rate_mbps), int(buffer)
        except ValueError:
            raise ParameterError(f"--link: {text!r} must be PORT:MBPS:PACKETS") from None
        if not 0 <= link[0] < PORTS:
            raise ParameterError(f"--link: port {port} must be 0 to {PORTS - 1}")
        try:
            links.append(Link(link[0], link[1], link[2], **parameters))
        except ParameterError as err:
            raise ParameterError(f"--link: {text!r}: {err}") from None
    return links


def parse_aggregates(texts: Iterable[str]) -> list[Aggregate]:
    """Parse aggregates written as ``PREFIX=KBPS``."""
    aggregates = []
    for text in texts:
        prefix, equals, rate = text.partition("=")
        try:
            numbers = [float(rate)] if equals else []
        except ValueError:
            raise ParameterError(f"--aggregate: {text!r} must be PREFIX=KBPS") from None
        try:
            aggregates.append(Aggregate(prefix, *numbers))
        except ParameterError as err:
            raise ParameterError(f"--aggregate: {text!r}: {err}") from None
    return aggregates


def control(
    wire: Wire,
    link: Annotated[
        list[str] | None,
        typer.Option(metavar="PORT:MBPS:PACKETS", help="Egress port with ABC: its rate and buffer."),
    ] = None,
    aggregate: Annotated[
        list[str] | None,
        typer.Option(metavar="PREFIX=KBPS", help="Senders metered together, and their reference rate."),
    ] = None,
    others_kbps: Annotated[float, typer.Option(help="Reference rate of all other traffic.")] = 10.0,
    domain_port: Annotated[
        list[int] | None, typer.Option("--domain", metavar="PORT", help="Port to a node of the domain.")
    ] = None,
    min_packets: Annotated[float, typer.Option(help="Q_min.")] = MODEL.min_packets,
    base_packets: Annotated[float, typer.Option(help="Q_base.")] = MODEL.base_packets,
    gamma_packets: Annotated[float, typer.Option(help="Gamma.")] = MODEL.gamma_packets,
    largest_mbps: Annotated[
        float, typer.Option(help="Tofino: highest rate of an aggregate that is metered correctly.")
    ] = TOFINO_MODEL.largest_mbps,
    frame_bytes: FrameBytes = 1514,
    period_s: Period = 1.0,
    duration_s: Duration = None,
    output: PollLog = None,
) -> Work:
    """Set up a switch with ABC, and report on the aggregates."""
    domain = Domain(
        wires=parse_wires(wire),
        domain_ports=frozenset(domain_port or ()),
        links=parse_links(
            link or (), min_packets=min_packets, base_packets=base_packets, gamma_packets=gamma_packets
        ),
        aggregates=parse_aggregates(aggregate or ()),
        others_kbps=others_kbps,
        largest_mbps=largest_mbps,
    )

    def start(switch: Switch) -> None:
        set_up(switch, domain, frame_bytes=frame_bytes)

    def poll(switch: Switch) -> None:
        table = aggregate_table(switch, domain)
        for row in table[table.activity.notna()].itertuples():
            log.info(
                "%s: activity %.2f (%.3g Mbit/s), %d packets accepted, %d dropped",
                row.prefix, row.activity, row.rate_mbps, row.accepted, row.dropped,
            )  # fmt: skip
        if output is not None:
            table.insert(0, "time_s", round(time.time(), 3))
            write_csv(table, output, mode="a", header=not output.exists())

    return lambda switch: main_loop(switch, poll, period_s, set_up=start, duration_s=duration_s)


if __name__ == "__main__":
    run("abc", control)
