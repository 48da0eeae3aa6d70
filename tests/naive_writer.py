"""The obvious twin of cctoolkit.capture.writer's kernel: one packet's frame, field by field."""

from __future__ import annotations

import struct


def checksum(data: bytes) -> int:
    """The internet checksum, RFC 1071."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _tcp_options(row: dict, key: dict, sacks: list[tuple[int, int]]) -> bytes:
    options = b""
    syn = row["tcp_flags"] & 2
    d = row["direction"]
    sack_permitted = syn and key["sack_permitted"][d]
    if syn and key["mss"][d]:
        options += struct.pack(">BBH", 2, 4, key["mss"][d])
    if row["has_ts"]:
        options += (b"\x04\x02" if sack_permitted else b"\x01\x01") + struct.pack(
            ">BBII", 8, 10, row["tsval"], row["tsecr"]
        )
    elif sack_permitted:
        options += b"\x01\x01\x04\x02"
    if syn and key["window_scale"][d] != 255:
        options += struct.pack(">BBBB", 1, 3, 3, key["window_scale"][d])
    blocks = sacks[: (40 - len(options) - 4) // 8]
    if blocks:
        options += struct.pack(">BBBB", 1, 1, 5, 2 + 8 * len(blocks))
        options += b"".join(struct.pack(">II", *block) for block in blocks)
    return options


def frame(row: dict, key: dict, sacks: list[tuple[int, int]], ethernet: bool = True) -> bytes:
    """The whole frame of a packet."""
    src, dst, sport, dport = key["src"], key["dst"], key["sport"], key["dport"]
    if row["direction"]:
        src, dst, sport, dport = dst, src, dport, sport
    v4 = key["ip_version"] == 4
    protocol = key["protocol"]
    size = 4 if v4 else 16
    src, dst = src[:size], dst[:size]
    payload = bytes(row["payload_bytes"])
    fragment = protocol in (6, 17) and not (sport or dport or row["tcp_flags"])
    link_bytes = 14 if ethernet else 0

    def with_checksum(segment: bytes, at: int) -> bytes:
        pseudo = src + dst + struct.pack(">IHBB", len(segment), 0, 0, protocol)
        value = checksum(pseudo + segment)
        if protocol == 17:
            value = value or 0xFFFF
        return segment[:at] + struct.pack(">H", value) + segment[at + 2 :]

    if fragment:
        segment = payload
    elif protocol == 6:
        options = _tcp_options(row, key, sacks)
        head = struct.pack(
            ">HHIIHHHH",
            sport,
            dport,
            row["seq"],
            row["ack"],
            (20 + len(options)) // 4 << 12 | row["tcp_flags"],
            row["window"],
            0,
            0,
        )
        segment = head + options + payload
        too_long = link_bytes + (20 if v4 else 40) + len(segment) > row["wire_bytes"]
        if row["tcp_flags"] == 0 and not payload and too_long:
            segment = head[:4]
        else:
            segment = with_checksum(segment, 16)
    elif protocol == 17:
        length = 8 + len(payload)
        segment = with_checksum(
            struct.pack(">HHHH", sport, dport, length if length < 65536 else 0, 0) + payload, 6
        )
    elif protocol == 1 and len(payload) >= 8:
        segment = bytes([0 if row["direction"] else 8]) + payload[1:]
        segment = segment[:2] + struct.pack(">H", checksum(segment)) + segment[4:]
    elif protocol == 58 and len(payload) >= 8:
        segment = with_checksum(bytes([129 if row["direction"] else 128]) + payload[1:], 2)
    elif protocol in (33, 132, 136) and len(payload) >= 4:
        segment = struct.pack(">HH", sport, dport) + payload[4:]
    else:
        segment = payload

    tos = row["dscp"] << 2 | row["ecn"]
    if v4:
        length = 20 + len(segment)
        offset = 185 if fragment else 0x4000
        field = length if length < 65536 else 0
        head = struct.pack(">BBHHHBBH", 0x45, tos, field, 0, offset, row["ttl"], protocol, 0) + src + dst
        packet = head[:10] + struct.pack(">H", checksum(head)) + head[12:] + segment
    else:
        if fragment:
            segment = struct.pack(">BBHI", protocol, 0, 185 << 3, 0) + segment
        length = len(segment)
        field = length if length < 65536 else 0
        head = struct.pack(">IHBB", 6 << 28 | tos << 20, field, 44 if fragment else protocol, row["ttl"])
        packet = head + src + dst + segment
    if ethernet:
        macs = [bytes.fromhex("020000000001"), bytes.fromhex("020000000002")]
        packet = (
            macs[1 - row["direction"]]
            + macs[row["direction"]]
            + (b"\x08\x00" if v4 else b"\x86\xdd")
            + packet
        )
    if field or (not v4 and protocol == 59 and not segment):  # else length 0 means "to the end of the frame"
        packet += bytes(max(row["wire_bytes"] - len(packet), 0))
    return packet


def pcap(
    rows: list[dict], keys: dict[int, dict], sacks: dict[int, list], snaplen: int, ethernet: bool = True
) -> bytes:
    """The whole file."""
    out = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, snaplen, 1 if ethernet else 101)
    for i, row in enumerate(rows):
        data = frame(row, keys[row["flow_id"]], sacks.get(i, []), ethernet)
        captured = data[:snaplen]
        out += (
            struct.pack("<IIII", row["ts_ns"] // 10**9, row["ts_ns"] % 10**9, len(captured), len(data))
            + captured
        )
    return out
