"""Ask tshark: columns of a capture's frames, under settings that do not depend on who runs the tests.

:func:`run_tshark` uses a configuration folder made for the occasion: all protocols are switched off but those of
:data:`LINK_LAYERS`, :data:`NETWORK_LAYERS` and :data:`TRANSPORTS` (so nothing looks into a payload, and a packet
quoted in an ICMP error is no second packet), addresses are not resolved, fragments and streams not put together,
checksums not verified, and sequence numbers as on the wire. :func:`ask` leaves tshark's own settings as they are.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gzip
import hashlib
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cctoolkit._support.atomic import replacing

__all__ = [
    "INNER_LAYERS",
    "TsharkRun",
    "ask",
    "have_tshark",
    "run_tshark",
    "run_tshark_on_many",
    "tshark_version",
]

#: Most of the time tshark takes for a small capture is for its start, so what it said is kept; `make clean` removes it.
ANSWERS = Path(__file__).parents[1] / ".pytest_cache" / "tshark"

#: What may stand below IP, whether cctoolkit decodes it or not.
LINK_LAYERS = [
    "frame",
    "raw",
    "eth",
    "ethertype",
    "llc",
    "vlan",
    "ieee8021ad",
    "ieee8021ah",
    "cfp",
    "etag",
    "vntag",
    "macsec",
    "trill",
    "mpls",
    "pwethheuristic",
    "pwethcw",
    "pwethnocw",
    "pppoes",
    "ppp",
    "null",
    "sll",
    "chdlc",
    "fr",
    "fddi",
    "tr",
    "arcnet",
    "ipoib",
    "ipnet",
    "clip",
    "atm",
    "nflog",
    "juniper",
    "erf",
    "pktap",
    "pcap_pktdata",
    "user_dlt",
    "radiotap",
    "wlan",
    "wlan_radio",
]
#: IP, and what stands between IP headers, or between IP and the transport.
NETWORK_LAYERS = ["ip", "ipv6", "mipv6", "hip", "shim6", "ah", "gre", "erspan", "wccp"]
TRANSPORTS = ["tcp", "udp", "udplite", "sctp", "dccp"]
#: Tunnels inside UDP, which `tunnel="inner"` walks through.
INNER_LAYERS = ["vxlan", "geneve", "gtp", "teredo"]

_PREFERENCES = {
    "tcp.relative_sequence_numbers": "FALSE",
    "tcp.desegment_tcp_streams": "FALSE",
    "tcp.reassemble_out_of_order": "FALSE",
    "tcp.check_checksum": "FALSE",
    "udp.check_checksum": "FALSE",
    "ip.check_checksum": "FALSE",
    "ip.defragment": "FALSE",
    "ipv6.defragment": "FALSE",
    "ip.use_geoip": "FALSE",
    "ipv6.use_geoip": "FALSE",
}


def have_tshark() -> bool:
    return shutil.which("tshark") is not None


def _report(name: str) -> list[list[str]]:
    done = subprocess.run(["tshark", "-G", name], capture_output=True, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


@functools.cache
def tshark_version() -> str:
    done = subprocess.run(["tshark", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


@functools.cache
def _configuration(extra_layers: tuple[str, ...]) -> str:
    """A configuration folder in which only our layers are switched on."""
    on = {*LINK_LAYERS, *NETWORK_LAYERS, *TRANSPORTS, *extra_layers}
    folder = Path(tempfile.mkdtemp(prefix="tshark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    parts = ("ip.", "ipv6.", "tcp.")  # options and extension headers count as protocols
    names = [row[2] for row in _report("protocols")]
    off = [name for name in names if name not in on and not name.startswith(parts)]
    (folder / "disabled_protos").write_text("\n".join(off) + "\n")
    return str(folder)


@functools.cache
def _no_configuration() -> str:
    folder = tempfile.mkdtemp(prefix="tshark-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@dataclass(frozen=True)
class TsharkRun:
    """What tshark said of a file.

    Attributes
    ----------
    columns : dict of str to list of str
        One text a frame and field, exactly as printed; several values in one frame are joined by commas.
    status : int
        Exit status; not 0 where tshark stopped reading early, or would not read at all.
    complaint : str
        The last line of its standard error, if the status is not 0.
    """

    columns: dict[str, list[str]]
    status: int
    complaint: str

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))


def run_tshark(
    path: str | os.PathLike[str],
    fields: Iterable[str],
    *,
    extra_layers: Sequence[str] = (),
    preferences: dict[str, str] | None = None,
    display_filter: str | None = None,
) -> TsharkRun:
    """Print `fields` of every frame of a capture.

    Parameters
    ----------
    path : path
    fields : iterable of str
        Display filter names, e.g. ``"tcp.seq"``.
    extra_layers : sequence of str
        Protocols to switch on besides the usual ones, e.g. :data:`INNER_LAYERS`.
    preferences : dict, optional
        More of them, or other values for those set here.
    display_filter : str, optional
        Only frames that match it.
    """
    fields = list(fields)
    arguments = ["-T", "fields", "-E", "occurrence=a", "-E", "aggregator=,"]
    for name, value in {**_PREFERENCES, **(preferences or {})}.items():
        arguments += ["-o", f"{name}:{value}"]
    if display_filter:
        arguments += ["-Y", display_filter]
    for field in fields:
        arguments += ["-e", field]
    output, errors, status = _answer(Path(path), arguments, _configuration(tuple(extra_layers)))
    rows = [line.split("\t") for line in output.split("\n")[:-1]]
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in fields]
    complaint = errors.splitlines()[-1] if status and errors else ""
    if status == 1 or (status and not complaint):  # a usage error is ours, not the capture's
        raise RuntimeError(f"tshark failed: {errors}")
    return TsharkRun(dict(zip(fields, columns, strict=True)), status, complaint)


def run_tshark_on_many(
    packets: Mapping[str | os.PathLike[str], int], fields: Iterable[str]
) -> list[TsharkRun]:
    """The same as :func:`run_tshark` of each capture, whose number of packets is given, in one run of tshark.

    mergecap puts the captures one behind the other, each with its link type. So they must be whole, of plain packets
    with possible times, and few: what tshark says of layers above the transport may depend on earlier captures.
    """
    with tempfile.TemporaryDirectory() as folder:
        joined = Path(folder, "joined.pcapng")
        command = ["mergecap", "-a", "-F", "pcapng", "-w", joined, *packets]
        subprocess.run(command, check=True, capture_output=True)
        run = run_tshark(joined, fields)
    if len(run) != sum(packets.values()):
        raise RuntimeError(f"tshark has {len(run)} frames of {sum(packets.values())}")
    ends = itertools.accumulate(packets.values())
    return [
        TsharkRun({name: column[end - n : end] for name, column in run.columns.items()}, 0, "")
        for n, end in zip(packets.values(), ends, strict=True)
    ]


def ask(path: str | os.PathLike[str], *arguments: str, check: bool = True) -> str:
    """What ``tshark -n -r path`` prints with these arguments, under the settings of a new installation.

    Without `check` also what it prints of a file that is cut short.
    """
    output, errors, status = _answer(Path(path), arguments, _no_configuration())
    if status and (check or status == 1):
        raise RuntimeError(f"tshark failed: {errors}")
    return output


def _answer(path: Path, arguments: Sequence[str], configuration: str) -> tuple[str, str, int]:
    """Output, standard error and status of tshark; it is asked once for each version, setting and content."""
    disabled = Path(configuration, "disabled_protos")
    protocols = disabled.read_bytes() if disabled.exists() else b""
    with path.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    question = repr((tshark_version(), list(arguments), protocols, content))
    kept = ANSWERS / f"{hashlib.sha256(question.encode()).hexdigest()}.json.gz"
    with contextlib.suppress(OSError, EOFError, ValueError):
        return tuple(json.loads(gzip.decompress(kept.read_bytes())))
    environment = os.environ | {"WIRESHARK_CONFIG_DIR": configuration, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
    command = ["tshark", "-n", "-r", os.fspath(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    # The same content under another name has the same answer.
    answer = (done.stdout, done.stderr.strip().replace(os.fspath(path), path.name), done.returncode)
    with replacing(kept) as tmp:
        tmp.write_bytes(gzip.compress(json.dumps(answer).encode(), 1))
    return answer
