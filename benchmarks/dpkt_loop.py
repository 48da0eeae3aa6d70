"""A capture decoded with dpkt, as a program that imports nothing else: ``python benchmarks/dpkt_loop.py CAPTURE``."""

from __future__ import annotations

import sys
from pathlib import Path


def dpkt_loop(path: Path) -> int:
    """A full decode with dpkt into the same fields."""
    import dpkt

    rows = []
    with path.open("rb") as file:
        for ts, data in dpkt.pcap.Reader(file):
            ip = dpkt.ethernet.Ethernet(data).data
            if not isinstance(ip, dpkt.ip.IP | dpkt.ip6.IP6):
                continue
            tcp = ip.data
            if isinstance(tcp, dpkt.tcp.TCP):
                times = (0, 0)
                for kind, value in dpkt.tcp.parse_opts(tcp.opts):
                    if kind == dpkt.tcp.TCP_OPT_TIMESTAMP and len(value) == 8:
                        times = (int.from_bytes(value[:4], "big"), int.from_bytes(value[4:], "big"))
                rows.append(
                    (ts, ip.src, ip.dst, tcp.sport, tcp.dport, tcp.seq, tcp.ack, tcp.flags, tcp.win, *times)
                )
            elif isinstance(tcp, dpkt.udp.UDP):
                rows.append((ts, ip.src, ip.dst, tcp.sport, tcp.dport, tcp.ulen))
            else:
                rows.append((ts, ip.src, ip.dst))
    return len(rows)


if __name__ == "__main__":
    dpkt_loop(Path(sys.argv[1]))
