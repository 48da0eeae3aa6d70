"""BMv2's ``simple_switch``, through its Thrift port.

The stubs that come with BMv2 are not needed: ``bmv2.thrift`` declares the calls made here, and tables,
actions and registers are looked up in the program that the switch reports.
"""

from __future__ import annotations

import contextlib
import json
import struct
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .switch import Exact, Key, Lpm, Range, Switch, SwitchError, SwitchGoneError, Ternary, check_shape

__all__ = ["Bmv2Switch"]

_REFUSALS = {
    1: "the table is full", 2: "no such entry", 3: "no such entry", 7: "no such table", 8: "no such action",
    17: "the entry already exists", 18: "the keys do not fit", 20: "the default action is constant",
    21: "the default entry is constant", 25: "the entries are constant", 26: "the action's data do not fit",
}  # fmt: skip
_DIGEST_HEADER = struct.Struct("<4xQIiQI")
#: Where a ``simple_switch`` with device number 0 publishes digests, unless ``--notifications-addr`` says otherwise.
NOTIFICATIONS = "ipc:///tmp/bmv2-0-notifications.ipc"
#: ``standard_metadata.priority`` has 3 bits.
_PRIORITIES = 8
#: Messages of up to 16 digests that may wait for the next :meth:`Bmv2Switch.digests`; further ones are lost.
_WAITING_MESSAGES = 8192


class Bmv2Switch(Switch):
    """A running ``simple_switch``.

    Parameters
    ----------
    host, port : str, int
        Address of its Thrift server (``--thrift-port``).
    timeout_s : float
        Timeout of each call.
    notifications : str, optional
        Address where it publishes digests (``--notifications-addr``); those sent before this object was made
        are lost. Default: :data:`NOTIFICATIONS`, from the first call of :meth:`digests` on. Only that method
        needs it, and a ``simple_switch`` that was built with nanomsg.
    namespace : path, optional
        Network namespace of the server (``/run/netns/NAME``, ``/proc/PID/ns/net``). Needs root.

    Raises
    ------
    SwitchGoneError
        No switch answers.
    SwitchError
        A package is missing.
    """

    target = "bmv2"

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9090,
        *,
        timeout_s: float = 10.0,
        notifications: str | None = None,
        namespace: str | Path | None = None,
    ) -> None:
        try:
            import thriftpy2
            import thriftpy2.protocol
            import thriftpy2.thrift
            import thriftpy2.transport
        except ImportError:
            raise SwitchError(
                "BMv2's control port needs the package thriftpy2: pip install cctoolkit[hardware]"
            ) from None
        self._thrift = thriftpy2
        self._calls = thriftpy2.load(str(Path(__file__).with_name("bmv2.thrift")), module_name="bmv2_thrift")
        self.host, self.port, self.timeout_s, self.namespace = host, port, timeout_s, namespace
        self._transport: Any = None
        self._connect()
        self._program = _Program(json.loads(self._call("bm_get_config")))
        self._subscription: Any = _subscription(notifications) if notifications else None
        self._digests: dict[int, deque[bytes]] = {}

    # -- the connection ------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        thrift = self._thrift
        with _in_namespace(self.namespace):
            sock = thrift.transport.TSocket(self.host, self.port, socket_timeout=round(self.timeout_s * 1000),
                                            connect_timeout=round(self.timeout_s * 1000))  # fmt: skip
            transport = thrift.transport.TBufferedTransport(sock)
            try:
                transport.open()
            except (OSError, thrift.transport.TTransportException) as err:
                raise SwitchGoneError(
                    f"{self.host}:{self.port}: BMv2 does not answer ({_reason(err)})"
                ) from None
        protocol = thrift.protocol.TBinaryProtocol(transport)
        self._transport = transport
        self._clients = {
            name: thrift.thrift.TClient(service, thrift.protocol.TMultiplexedProtocol(protocol, name))
            for name, service in (
                ("standard", self._calls.Standard),
                ("simple_switch", self._calls.SimpleSwitch),
            )
        }

    def _call(self, name: str, *args: Any, service: str = "standard", what: str = "") -> Any:
        """Make one call, and translate its errors to those of the interface."""
        if self._transport is None:
            raise SwitchGoneError(f"{self.host}:{self.port}: not connected")
        try:
            return getattr(self._clients[service], name)(*args)
        except (OSError, EOFError, self._thrift.transport.TTransportException) as err:
            self.close()
            raise SwitchGoneError(
                f"{self.host}:{self.port}: BMv2 no longer answers ({_reason(err)})"
            ) from None
        except self._thrift.thrift.TException as err:
            code = int(getattr(err, "code", -1))
            why = _REFUSALS.get(code, f"code {code}") if "Table" in type(err).__name__ else f"code {code}"
            raise SwitchError(f"{what or name}: {why}") from None

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def reconnect(self, timeout_s: float = 10.0) -> None:
        self.close()
        until = time.monotonic() + timeout_s
        while True:
            try:
                self._connect()
                break
            except SwitchGoneError:
                if time.monotonic() >= until:
                    raise
                time.sleep(0.1)
        self._program = _Program(json.loads(self._call("bm_get_config")))

    # -- tables --------------------------------------------------------------------------------------------------------

    def add_entry(
        self,
        table: str,
        keys: Mapping[str, Key],
        action: str,
        data: Mapping[str, int] | None = None,
        *,
        priority: int = 0,
    ) -> None:
        at = self._program.table(table)
        match = self._match(at, keys)
        name, values = self._action(at, action, data)
        options = self._calls.BmAddEntryOptions(priority=priority)
        try:
            self._call(
                "bm_mt_add_entry", 0, at["name"], match, name, values, options, what=f"{table}: {dict(keys)}"
            )
        except SwitchError as err:
            if isinstance(err, SwitchGoneError):
                raise
            handle = self._handle(at, match, priority)
            if handle is None:  # not refused as a duplicate
                raise
            self._call(
                "bm_mt_modify_entry", 0, at["name"], handle, name, values, what=f"{table}: {dict(keys)}"
            )

    def delete_entry(self, table: str, keys: Mapping[str, Key]) -> None:
        at = self._program.table(table)
        handle = self._handle(at, self._match(at, keys), 0)
        if handle is None:
            raise SwitchError(f"{table}: {dict(keys)}: no such entry")
        self._call("bm_mt_delete_entry", 0, at["name"], handle, what=table)

    def clear_table(self, table: str) -> None:
        self._call("bm_mt_clear_entries", 0, self._program.table(table)["name"], False, what=table)

    def set_default(self, table: str, action: str, data: Mapping[str, int] | None = None) -> None:
        at = self._program.table(table)
        name, values = self._action(at, action, data)
        self._call("bm_mt_set_default_action", 0, at["name"], name, values, what=table)

    def _handle(self, table: dict[str, Any], match: list[Any], priority: int) -> int | None:
        options = self._calls.BmAddEntryOptions(priority=priority)
        try:
            return int(self._call("bm_mt_get_entry_from_key", 0, table["name"], match, options).entry_handle)
        except SwitchGoneError:
            raise
        except SwitchError:
            return None

    def _match(self, table: dict[str, Any], keys: Mapping[str, Key]) -> list[Any]:
        calls, kinds = self._calls, self._calls.BmMatchParamType
        expected = {key["name"]: key for key in table["key"]}
        if set(keys) != set(expected):
            raise SwitchError(
                f"{table['name']}: expects the keys {', '.join(expected)}, got {', '.join(keys) or 'none'}"
            )
        out = []
        for name, key in expected.items():
            where, given = f"{table['name']}: {name}", keys[name]
            bits = self._program.bits(key["target"])
            kind = key["match_type"]
            if kind == "exact" and isinstance(given, int | Exact):
                value = given if isinstance(given, int) else given.value
                exact = calls.BmMatchParamExact(_bytes(value, bits, where))
                out.append(calls.BmMatchParam(kinds.EXACT, exact=exact))
            elif kind == "lpm" and isinstance(given, int | Exact | Lpm):
                lpm = (
                    given
                    if isinstance(given, Lpm)
                    else Lpm(given if isinstance(given, int) else given.value, bits)
                )
                if not 0 <= lpm.prefix_bits <= bits:
                    raise SwitchError(f"{where}: a prefix must have 0 to {bits} bits, not {lpm.prefix_bits}")
                param = calls.BmMatchParamLPM(_bytes(lpm.value, bits, where), lpm.prefix_bits)
                out.append(calls.BmMatchParam(kinds.LPM, lpm=param))
            elif kind == "ternary" and not isinstance(given, Range):
                ternary = _as_ternary(given, bits)
                param = calls.BmMatchParamTernary(
                    _bytes(ternary.value, bits, where), _bytes(ternary.mask, bits, where)
                )
                out.append(calls.BmMatchParam(kinds.TERNARY, ternary=param))
            elif kind == "range" and isinstance(given, int | Exact | Range):
                value = given if isinstance(given, int) else getattr(given, "value", 0)
                span = given if isinstance(given, Range) else Range(value, value)
                param = calls.BmMatchParamRange(_bytes(span.low, bits, where), _bytes(span.high, bits, where))
                out.append(calls.BmMatchParam(kinds.RANGE, range=param))
            else:
                raise SwitchError(f"{where}: {given!r} cannot be the key of a match of kind {kind}")
        return out

    def _action(
        self, table: dict[str, Any], action: str, data: Mapping[str, int] | None
    ) -> tuple[str, list[bytes]]:
        of_table = [self._program.actions[i] for i in table["action_ids"]]
        found = _named(of_table, action, f"{table['name']}: action")
        wanted, given = found["runtime_data"], data or {}
        if {x["name"] for x in wanted} != set(given):
            names = ", ".join(x["name"] for x in wanted) or "no data"
            raise SwitchError(
                f"{table['name']}: {action} expects {names}, got {', '.join(given) or 'nothing'}"
            )
        where = f"{table['name']}: {action}"
        return found["name"], [
            _bytes(given[x["name"]], x["bitwidth"], f"{where}: {x['name']}") for x in wanted
        ]

    # -- registers -----------------------------------------------------------------------------------------------------

    def read_register(self, name: str, first: int = 0, count: int | None = None) -> np.ndarray:
        fields = self._program.register(name)
        columns = {field: self._read(register, first, count) for field, register in fields.items()}
        if list(columns) == [""]:
            return columns[""]
        table = np.empty(len(next(iter(columns.values()))), [(field, np.uint64) for field in columns])
        for field, values in columns.items():
            table[field] = values
        return table

    def _read(self, register: dict[str, Any], first: int, count: int | None) -> np.ndarray:
        size = register["size"]
        count = size - first if count is None else count
        if first < 0 or count < 0 or first + count > size:
            raise SwitchError(
                f"{register['name']}: has {size} cells; {first} to {first + count} is out of range"
            )
        if count <= 4:
            values = [
                self._call("bm_register_read", 0, register["name"], i, what=register["name"])
                for i in range(first, first + count)
            ]
        else:
            values = self._call("bm_register_read_all", 0, register["name"], what=register["name"])[
                first : first + count
            ]
        return np.array(values, np.int64).astype(np.uint64)

    def write_register(self, name: str, value: int | Mapping[str, int], index: int | None = None) -> None:
        fields = self._program.register(name)
        values = {"": value} if isinstance(value, int | np.integer) else dict(value)
        if set(values) != set(fields):
            raise SwitchError(f"{name}: has the fields {', '.join(fields)}")
        for field, register in fields.items():
            word = int.from_bytes(
                _bytes(int(values[field]), register["bitwidth"], name).rjust(8, b"\0"), "big", signed=True
            )
            if index is None:
                self._call(
                    "bm_register_write_range", 0, register["name"], 0, register["size"], word, what=name
                )
            elif not 0 <= index < register["size"]:
                raise SwitchError(f"{name}: has {register['size']} cells; {index} is out of range")
            else:
                self._call("bm_register_write", 0, register["name"], index, word, what=name)

    # -- the rest ------------------------------------------------------------------------------------------------------

    def digests(
        self, name: str, fields: Sequence[str] = (), timeout_s: float = 0.0
    ) -> Iterator[Mapping[str, Any]]:
        number, widths = self._program.digest(name)
        if len(fields) != len(widths):
            raise SwitchError(f"{name}: has {len(widths)} fields, but {len(fields)} were named")
        if self._subscription is None:
            try:
                self._subscription = _subscription(NOTIFICATIONS)
            except SwitchGoneError as err:  # the switch itself is there, so it would not help to wait
                raise SwitchError(
                    f"{err}: name its --notifications-addr (--notifications); it must be built with nanomsg"
                ) from None
        mine = self._digests.setdefault(number, deque())
        until = time.monotonic() + timeout_s
        self._collect(0.0 if mine else timeout_s)
        while not mine and time.monotonic() < until:  # only other digests have come
            self._collect(until - time.monotonic())
        size = sum((bits + 7) // 8 for bits in widths)
        while mine:
            sample, at = mine.popleft(), 0
            if len(sample) != size:
                raise SwitchError(f"{name}: got {len(sample)} bytes, expected {size}")
            values = {}
            for field, bits in zip(fields, widths, strict=True):
                values[field] = int.from_bytes(sample[at : at + (bits + 7) // 8], "big")
                at += (bits + 7) // 8
            yield values

    def _collect(self, timeout_s: float) -> None:
        """Sort what has come into one queue per digest; wait at most `timeout_s` for the first."""
        import pynng

        self._subscription.recv_timeout = max(round(timeout_s * 1000), 1)
        while True:
            try:
                message = self._subscription.recv()
            except pynng.Timeout:
                return
            self._subscription.recv_timeout = 1
            _, _, number, buffer_id, count = _DIGEST_HEADER.unpack_from(message)
            self._call("bm_learning_ack_buffer", 0, number, buffer_id)
            size = (len(message) - 32) // max(count, 1)
            queue = self._digests.setdefault(number, deque())
            queue.extend(message[at : at + size] for at in range(32, 32 + count * size, size))

    def use_crc32(self, polynomial: int) -> None:
        """Set the polynomial of all ``crc32_custom`` hashes, with CRC-32C's reflection, initial and final value."""
        ones = -1  # Thrift's integers are signed
        word = polynomial - (polynomial >> 31 << 32)
        config = self._calls.BmCrc32Config(word, ones, ones, True, True)
        for name in self._program.custom_crcs:
            self._call("bm_set_crc32_custom_parameters", 0, name, config, what=name)

    def shape(
        self, port: int, rate_mbps: float, *, frame_bytes: int = 1514, buffer_packets: int | None = None
    ) -> None:
        """As :meth:`Switch.shape`. Each priority queue of the port gets the whole rate."""
        check_shape(port, rate_mbps, frame_bytes, buffer_packets)
        rate_pps = rate_mbps * 1e6 / 8 / frame_bytes
        if rate_pps >= 1 << 63:  # Thrift's integers are signed
            raise SwitchError(f"port {port}: the rate is too large for BMv2: {rate_mbps:g} Mbit/s")
        if buffer_packets is not None and buffer_packets >= 1 << 31:
            raise SwitchError(f"port {port}: the buffer is too large for BMv2: {buffer_packets} packets")
        self._call("set_egress_queue_rate", port, max(round(rate_pps), 1), service="simple_switch")
        if buffer_packets is not None:
            self._call("set_egress_queue_depth", port, buffer_packets, service="simple_switch")

    def queue_count(self, port: int) -> int:
        """The most priorities that a port can have; BMv2 does not say its ``--priority-queues``."""
        return _PRIORITIES

    def mirror_session(self, session_id: int, port: int, max_bytes: int | None = None) -> None:
        """Set where a session's clones go. BMv2 truncates in the program, so `max_bytes` must be None."""
        if max_bytes is not None:
            raise SwitchError("max_bytes: must be None, because BMv2 truncates clones in the program")
        config = self._calls.MirroringSessionConfig(port=port)
        self._call("mirroring_session_add", session_id, config, service="simple_switch")


class _Program:
    """The loaded program, from its JSON."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.tables = [t for pipeline in config["pipelines"] for t in pipeline["tables"]]
        self.actions = {a["id"]: a for a in config["actions"]}
        self.registers = config.get("register_arrays", [])
        self._digests = config.get("learn_lists", [])
        self.custom_crcs = [c["name"] for c in config.get("calculations", []) if c["algo"] == "crc32_custom"]
        types = {t["name"]: {f[0]: f[1] for f in t["fields"]} for t in config["header_types"]}
        self._fields = {h["name"]: types[h["header_type"]] for h in config["headers"]}

    def table(self, name: str) -> dict[str, Any]:
        return _named(self.tables, name, "table")

    def bits(self, target: list[str]) -> int:
        header, field = target
        return 1 if field == "$valid$" else int(self._fields[header][field])

    def register(self, name: str) -> dict[str, dict[str, Any]]:
        """Registers by field; a register that is not a pair has one field with an empty name."""
        with contextlib.suppress(SwitchError):
            return {"": _named(self.registers, name, "register")}
        fields: dict[str, dict[str, Any]] = {}
        for register in self.registers:
            _, found, field = f".{register['name']}".rpartition(f".{name}_")
            if found and "." not in field:
                if field in fields:
                    raise SwitchError(f"register {name}: the program has several; give the path too")
                fields[field] = register
        return fields or {"": _named(self.registers, name, "register")}

    def digest(self, name: str) -> tuple[int, list[int]]:
        """A digest's number, and the widths of its fields."""
        found = _named(self._digests, name, "digest")
        return found["id"], [self.bits(e["value"]) for e in found["elements"]]


def _named(things: list[dict[str, Any]], name: str, kind: str) -> dict[str, Any]:
    """The item whose name is `name`, or ends in it."""
    found = [t for t in things if t["name"] == name] or [t for t in things if t["name"].endswith("." + name)]
    if len(found) > 1 and kind.endswith("action"):  # tables share actions
        found = found[:1]
    if len(found) != 1:
        what = "is ambiguous" if found else "does not exist"
        raise SwitchError(f"{kind} {name}: {what}: the program has {', '.join(t['name'] for t in things)}")
    return found[0]


def _bytes(value: int, bits: int, where: str) -> bytes:
    if isinstance(value, bool) or not 0 <= value < 1 << bits:
        raise SwitchError(f"{where}: {value!r} does not fit into {bits} bits")
    return int(value).to_bytes((bits + 7) // 8, "big")


def _as_ternary(key: Key, bits: int) -> Ternary:
    if isinstance(key, Ternary):
        return key
    whole = (1 << bits) - 1
    if isinstance(key, Lpm):
        return Ternary(key.value, whole >> (bits - key.prefix_bits) << (bits - key.prefix_bits))
    return Ternary(key if isinstance(key, int) else key.value, whole)  # type: ignore[union-attr]  # Range was refused


def _reason(err: BaseException) -> str:
    return getattr(err, "strerror", None) or getattr(err, "message", None) or str(err) or type(err).__name__


def _subscription(address: str) -> Any:
    try:
        import pynng
    except ImportError:
        raise SwitchError("BMv2's digests need the package pynng: pip install cctoolkit[hardware]") from None
    try:
        return pynng.Sub0(
            dial=address, block_on_dial=True, topics=b"LEA|", recv_buffer_size=_WAITING_MESSAGES
        )
    except pynng.NNGException as err:
        raise SwitchGoneError(f"{address}: no BMv2 publishes digests there ({_reason(err)})") from None


@contextlib.contextmanager
def _in_namespace(path: str | Path | None) -> Iterator[None]:
    """Move this thread into another network namespace. Sockets stay in the one where they were made."""
    if path is None:
        yield
        return
    import ctypes
    import os

    libc = ctypes.CDLL(None, use_errno=True)

    def enter(file: int) -> None:
        if libc.setns(file, 0x40000000):  # CLONE_NEWNET
            raise SwitchError(f"{path}: {os.strerror(ctypes.get_errno())}")

    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(path, os.O_RDONLY)
        try:
            enter(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            enter(home)
    except OSError as err:
        raise SwitchError(f"{path}: {err.strerror}") from None
    finally:
        os.close(home)
