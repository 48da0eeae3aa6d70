"""A Tofino, through the Barefoot Runtime's gRPC server (``bf_switchd``, port 50052).

This uses the SDE's own client, ``bfrt_grpc.client``, from Python's path or else from ``$SDE_INSTALL``. The
switch reports its tables, keys and fields, so no file of the program is needed. The traffic manager's tables
and fields have the names of SDE 9.13 (``tf1.tm.*``, ``tf2.tm.*``).
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import math
import os
import random
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .switch import Exact, Key, Lpm, Range, Switch, SwitchError, SwitchGoneError, Ternary, check_shape
from .wires import pipe_of

__all__ = ["BfrtSwitch"]

_ALL_PIPES = 0xFFFF
_PRIORITY, _INDEX = "$MATCH_PRIORITY", "$REGISTER_INDEX"
#: gRPC codes of a server that is gone, as opposed to one that refuses.
_GONE = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
_ALREADY_EXISTS = 6
#: Cells per request; each is answered with some tens of bytes.
_CHUNK = 4096
#: From this many cells on, syncing the whole register is faster than asking the chip for each cell.
_SYNC_FROM = 64


class BfrtSwitch(Switch):
    """A running ``bf_switchd``.

    Parameters
    ----------
    host, port : str, int
        Address of its gRPC server.
    program : str
        The loaded program. Only one client at a time can own it.
    pipe : int, optional
        The pipe whose registers :meth:`read_register` reads. Tables and writes apply to all pipes. Default:
        that of the ports of :meth:`use_ports`; pipe 0 until it is called.
    timeout_s : float
        Timeout of each call.

    Raises
    ------
    SwitchGoneError
        No switch answers.
    SwitchError
        The SDE's client is not installed, another program is loaded, or another client owns the program.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 50052,
        *,
        program: str,
        pipe: int | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self._gc = _import_client()
        self.host, self.port, self.program, self.timeout_s = host, port, program, timeout_s
        self.pipe, self._pipe_is_given = pipe or 0, pipe is not None
        self._where = f"{host}:{port}"
        self._client: Any = None
        self._digests: dict[str, deque[dict[str, Any]]] = {}
        #: The entries' priorities, by table and match.
        self._entries: dict[str, dict[tuple[Any, ...], int]] = {}
        self._connect()

    # -- the connection ------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        wait_s = min(self.timeout_s, 5.0)
        try:  # the client itself would wait long for a closed port
            socket.create_connection((self.host, self.port), wait_s).close()
        except OSError as err:
            raise SwitchGoneError(
                f"{self._where}: the Barefoot Runtime does not answer ({err.strerror or err})"
            ) from None
        number = random.randrange(1, 1 << 24)  # identifies the client; the server keeps 24 bits
        try:
            self._client = self._gc.ClientInterface(
                f"{self.host}:{self.port}", client_id=number, device_id=0, timeout=wait_s, num_tries=1
            )
        except RuntimeError:
            raise SwitchGoneError(f"{self._where}: the Barefoot Runtime does not answer (no reply)") from None
        rpc = self._client.reader_writer_interface
        self._client.stub = rpc.stub = _Deadline(self._client.stub, self.timeout_s)
        try:
            with self._calls(f"program {self.program}"):
                self._client.bind_pipeline_config(self.program)
                self._info = self._client.bfrt_info_get(self.program)
        except SwitchError:
            self.close()
            raise
        self._names = list(self._info.table_name_list_get())
        family = next((n.split(".")[0] for n in self._names if ".tm." in n or ".dev." in n), "tf1")
        self._family = family
        self.target = "tofino" if family == "tf1" else f"tofino{family.removeprefix('tf')}"
        self._all = self._gc.Target(device_id=0, pipe_id=_ALL_PIPES)
        self._entries.clear()

    def close(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        # this waits for the server to close the stream, which a dead server never does
        ending = threading.Thread(target=_quietly(client.tear_down_stream), daemon=True)
        ending.start()
        ending.join(1.0)
        if ending.is_alive():
            _quietly(client.channel.close)()

    def reconnect(self, timeout_s: float = 10.0) -> None:
        self.close()
        until = time.monotonic() + timeout_s
        while True:
            try:
                return self._connect()
            except SwitchError as err:
                if time.monotonic() >= until:
                    # also while the server has not yet noticed that the old connection is gone
                    raise SwitchGoneError(str(err)) from None
            time.sleep(min(0.2, max(until - time.monotonic(), 0.0)))

    @contextlib.contextmanager
    def _calls(self, what: str) -> Iterator[None]:
        """Translate the client's errors to those of the interface."""
        if self._client is None:
            raise SwitchGoneError(f"{self._where}: not connected")
        gc = self._gc
        try:
            yield
        except gc.BfruntimeRpcException as err:
            for _, one in err.sub_errors_get():
                raise _refusal(f"{what}: {_one_line(one.message)}", one.canonical_code) from None
            raise self._status(err.grpc_error_get(), what) from None
        except gc.grpc.RpcError as err:
            raise self._status(err, what) from None
        except (RuntimeError, AssertionError) as err:  # a status that the client does not expect
            cause = err.__context__ if isinstance(err.__context__, gc.grpc.RpcError) else None
            if cause is None:
                raise _refusal(
                    f"{what}: {_one_line(str(err)) or 'an answer that the client does not understand'}"
                ) from None
            raise self._status(cause, what) from None

    def _status(self, err: Any, what: str) -> SwitchError:
        code = err.code().name if err is not None else "UNKNOWN"
        details = _one_line(err.details() or "") if err is not None else ""
        if code in _GONE or self._stream_ended():
            self.close()
            return SwitchGoneError(
                f"{self._where}: the Barefoot Runtime no longer answers ({details or code})"
            )
        return _refusal(f"{what}: {details or code}", _ALREADY_EXISTS if code == "ALREADY_EXISTS" else None)

    def _stream_ended(self) -> bool:
        """Whether the client's stream has ended; the server then forgets the client."""
        if self._client is None:
            return True
        self._client.stream_recv_thread.join(0.1)  # it may end shortly after the call that failed
        return not self._client.stream_recv_thread.is_alive()

    def use_ports(self, ports: Iterable[int]) -> None:
        """As :meth:`Switch.use_ports`. Changes nothing if the connection was made for one pipe.

        Raises
        ------
        SwitchError
            The ports are in different pipes.
        """
        by_pipe = {pipe_of(port): port for port in sorted(ports, reverse=True)}
        if self._pipe_is_given or not by_pipe:
            return
        if len(by_pipe) > 1:
            first, second = sorted(by_pipe.values())[:2]
            raise SwitchError(
                f"ports {first} and {second} are in different pipes, each with registers of its own: "
                "use ports of one pipe, or choose one with --pipe"
            )
        (self.pipe,) = by_pipe

    # -- names ---------------------------------------------------------------------------------------------------------

    def _table(self, name: str) -> Any:
        with contextlib.suppress(KeyError):
            return self._info.table_get(name)
        found = [n for n in self._names if n == name or n.endswith(f".{name}")]
        if found:
            raise SwitchError(
                f"table {name}: is ambiguous, give the path: the program has {', '.join(sorted(found))}"
            )
        raise SwitchError(f"table {name}: does not exist in the program {self.program}")

    def _tm(self, name: str) -> Any:
        return self._table(f"{self._family}.tm.{name}")

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
        at, what = self._table(table), f"{table}: {dict(keys)}"
        match = self._match(at, table, keys)
        action_data = self._action(at, table, action, data)
        if _PRIORITY not in at.info.key_field_name_list_get():
            self._put(at, self._all, self._key(at, match), action_data, what)
            return
        known = self._known(at, table)
        same = _identity(match)
        if known.get(same, priority) != priority:  # to the switch that would be a different entry
            self._delete(at, self._key(at, match, known.pop(same)), what, missing_ok=True)
        self._put(at, self._all, self._key(at, match, priority), action_data, what)
        known[same] = priority

    def delete_entry(self, table: str, keys: Mapping[str, Key]) -> None:
        at, what = self._table(table), f"{table}: {dict(keys)}"
        match = self._match(at, table, keys)
        if _PRIORITY not in at.info.key_field_name_list_get():
            self._delete(at, self._key(at, match), what)
            return
        priority = self._known(at, table).pop(_identity(match), None)
        if priority is None:
            raise SwitchError(f"{what}: no such entry")
        self._delete(at, self._key(at, match, priority), what)

    def clear_table(self, table: str) -> None:
        # a request without keys would clear the default action too
        at = self._table(table)
        with self._calls(table):
            keys = [entry[1] for entry in at.entry_get(self._all, None, {"from_hw": False})]
            for chunk in _chunks(keys):
                at.entry_del(self._all, chunk)
        self._entries.pop(table, None)

    def set_default(self, table: str, action: str, data: Mapping[str, int] | None = None) -> None:
        at = self._table(table)
        made = self._action(at, table, action, data)
        with self._calls(table):
            at.default_entry_set(self._all, made)

    def _put(self, table: Any, target: Any, key: Any, data: Any, what: str) -> None:
        """Add an entry, or change an existing one. (Newer SDEs have ``entry_add_or_mod``.)"""
        try:
            with self._calls(what):
                table.entry_add(target, [key], [data])
        except SwitchGoneError:
            raise
        except SwitchError as refused:
            try:
                with self._calls(what):
                    table.entry_mod(target, [key], [data])
            except SwitchGoneError:
                raise
            except SwitchError:  # not refused as a duplicate
                raise refused from None

    def _delete(self, table: Any, key: Any, what: str, *, missing_ok: bool = False) -> None:
        try:
            with self._calls(what):
                table.entry_del(self._all, [key])
        except SwitchGoneError:
            raise
        except SwitchError:
            if not missing_ok:
                raise

    def _known(self, at: Any, table: str) -> dict[tuple[Any, ...], int]:
        """Priorities of a table's entries. Read once per connection, because no other client can write."""
        known = self._entries.get(table)
        if known is None:
            known = {}
            with self._calls(table):
                for _, key, *_ in at.entry_get(self._all, None, {"from_hw": False}):
                    fields = key.to_dict()
                    priority = fields.pop(_PRIORITY)["value"]
                    known[_identity(fields)] = priority
            self._entries[table] = known
        return known

    def _match(self, at: Any, table: str, keys: Mapping[str, Key]) -> dict[str, dict[str, int]]:
        """Arguments of ``KeyTuple`` for each key field of the table."""
        fields = [name for name in at.info.key_field_name_list_get() if name != _PRIORITY]
        found = {_full_name(fields, name) or name: (name, key) for name, key in keys.items()}
        if set(found) != set(fields) or len(found) != len(keys):
            raise SwitchError(
                f"{table}: expects the keys {', '.join(fields)}, got {', '.join(keys) or 'none'}"
            )
        match = {}
        for field in fields:
            name, key = found[field]
            _, bits = at.info.key_field_size_get(field)
            kind = at.info.key_field_match_type_get(field)
            match[field] = _key_arguments(key, kind, bits, f"{table}: {name}")
        return match

    def _key(self, at: Any, match: Mapping[str, Mapping[str, int]], priority: int | None = None) -> Any:
        fields = [self._gc.KeyTuple(name, **arguments) for name, arguments in match.items()]
        if priority is not None:
            fields.append(self._gc.KeyTuple(_PRIORITY, _fitting(priority, 24, "priority")))
        return at.make_key(fields)

    def _action(self, at: Any, table: str, action: str, data: Mapping[str, int] | None) -> Any:
        names = at.info.action_name_list_get()
        full = _full_name(names, action)
        if full is None:
            raise SwitchError(f"{table}: has the actions {', '.join(sorted(names))}, not {action}")
        common = set(at.info.data_field_name_list_get())
        wanted = [name for name in at.info.data_field_name_list_get(full) if name not in common]
        given = data or {}
        if set(wanted) != set(given):
            raise SwitchError(
                f"{table}: {action} expects {', '.join(wanted) or 'no data'}, got {', '.join(given) or 'nothing'}"
            )
        fields = []
        for name in wanted:
            where = f"{table}: {action}: {name}"
            if at.info.data_field_type_get(name, full) == "bool":
                fields.append(self._gc.DataTuple(name, bool_val=bool(_fitting(given[name], 1, where))))
            else:
                _, bits = at.info.data_field_size_get(name, full)
                fields.append(self._gc.DataTuple(name, val=_fitting(given[name], bits, where)))
        return at.make_data(fields, full)

    # -- registers -----------------------------------------------------------------------------------------------------

    def _register(self, name: str) -> tuple[Any, dict[str, str]]:
        """A register's table, and the table's field names by the register's."""
        at = self._table(name)
        if _INDEX not in at.info.key_field_name_list_get():
            raise SwitchError(f"register {name}: is a table")
        fields = [f for f in at.info.data_field_name_list_get() if not f.startswith("$")]
        return at, {f.rsplit(".", 1)[-1]: f for f in fields}

    def read_register(self, name: str, first: int = 0, count: int | None = None) -> np.ndarray:
        at, fields = self._register(name)
        size = at.info.size_get()
        count = size - first if count is None else count
        if first < 0 or count < 0 or first + count > size:
            raise SwitchError(f"{name}: has {size} cells; {first} to {first + count} is out of range")
        out = np.zeros(count, [(field, np.uint64) for field in fields])
        by_id = {at.info.data_field_id_get(full): out[field] for field, full in fields.items()}
        from_hw = True
        with self._calls(name):
            sync = [x for x in at.info.operations_supported_get() if x.startswith("Sync")]
            if sync and count > _SYNC_FROM:
                at.operations_execute(self._all, sync[0])
                from_hw = False
            for chunk in _chunks(range(first, first + count)):
                for index, cell in self._cells(at, chunk, from_hw):
                    for number, values in cell.items():
                        by_id[number][index - first] = int.from_bytes(self._of_pipe(values, name), "big")
        return out[next(iter(fields))].copy() if len(fields) == 1 else out

    def _cells(
        self, at: Any, indices: list[int], from_hw: bool
    ) -> Iterator[tuple[int, dict[int, list[bytes]]]]:
        """The index of each cell, and its values, one per pipe, by field number.

        This parses the protocol's messages itself: the client takes 0.2 ms per cell, and there are tens of
        thousands.
        """
        request = self._gc.bfruntime_pb2.ReadRequest()
        request.client_id = self._client.client_id
        request.target.device_id, request.target.pipe_id = 0, _ALL_PIPES
        request.target.direction = request.target.prsr_id = 0xFF
        table, key = at.info.id_get(), at.info.key_field_id_get(_INDEX)
        for index in indices:
            entry = request.entities.add().table_entry
            entry.table_id = table
            # older SDEs use the second name
            flags = entry.table_flags if hasattr(entry, "table_flags") else entry.table_read_flag
            flags.from_hw = from_hw
            field = entry.key.fields.add()
            field.field_id = key
            field.exact.value = index.to_bytes(4, "big")
        try:
            for answer in self._client.stub.Read(request):
                for entity in answer.entities:
                    entry = entity.table_entry
                    cell: dict[int, list[bytes]] = {}
                    for field in entry.data.fields:
                        cell.setdefault(field.field_id, []).append(field.stream)
                    yield int.from_bytes(entry.key.fields[0].exact.value, "big"), cell
        except self._gc.grpc.RpcError as err:
            raise self._gc.BfruntimeReadWriteRpcException(err) from None

    def _of_pipe(self, values: list[bytes], name: str) -> bytes:
        if not 0 <= self.pipe < len(values):
            raise SwitchError(
                f"{name}: pipe {self.pipe} does not exist; the register is in {len(values)} pipes"
            )
        return values[self.pipe]

    def write_register(self, name: str, value: int | Mapping[str, int], index: int | None = None) -> None:
        """As :meth:`Switch.write_register`; applies to all pipes."""
        at, fields = self._register(name)
        size = at.info.size_get()
        if index is not None and not 0 <= index < size:
            raise SwitchError(f"{name}: has {size} cells; {index} is out of range")
        if isinstance(value, Mapping):
            given = dict(value)
        elif len(fields) == 1:
            given = dict.fromkeys(fields, value)
        else:
            given = {}
        if set(given) != set(fields):
            raise SwitchError(f"{name}: has the fields {', '.join(fields)}")
        tuples = []
        for field, full in fields.items():
            _, bits = at.info.data_field_size_get(full)
            tuples.append((full, _fitting(given[field], bits, f"{name}: {field}")))
        with self._calls(name):
            data = at.make_data([self._gc.DataTuple(n, val=v) for n, v in tuples])
            for chunk in _chunks(range(size) if index is None else [index]):
                keys = [at.make_key([self._gc.KeyTuple(_INDEX, i)]) for i in chunk]
                at.entry_add(self._all, keys, [data] * len(chunk))

    # -- digests -------------------------------------------------------------------------------------------------------

    def digests(
        self, name: str, fields: Sequence[str] = (), timeout_s: float = 0.0
    ) -> Iterator[Mapping[str, Any]]:
        """As :meth:`Switch.digests`. The compiler names a digest after its instance, so `name` may be that too."""
        wanted = self._learn_name(name, fields)
        self._collect(wanted, timeout_s)
        mine = self._digests.setdefault(wanted, deque())
        while mine:
            yield mine.popleft()

    def _learn_name(self, name: str, fields: Sequence[str]) -> str:
        with contextlib.suppress(KeyError):
            return str(self._info.learn_get(name).info.name_get())
        names = list(self._info.learn_name_list_get())
        alike = [
            n for n in names if set(self._info.learn_get(n).info.data_field_name_list_get()) == set(fields)
        ]
        if len(alike) != 1:
            raise SwitchError(f"digest {name}: the program has {', '.join(names) or 'none'}")
        return alike[0]

    def _collect(self, wanted: str, timeout_s: float) -> None:
        """Sort what has come into one queue per name; wait for the first `wanted`, then read on for at most 1 s."""
        first_by = time.monotonic() + timeout_s
        until = first_by + 1.0
        while (now := time.monotonic()) < until:
            patience_s = first_by - now
            if self._digests.get(wanted):
                patience_s, until = 0.0, min(until, now + 1.0)
            try:
                with self._calls("digests"):
                    message = self._client.digest_get(timeout=max(patience_s, 0.005))
                    learn = self._info.learn_from_id_get(message.digest_id)
                    samples = [data.to_dict() for data in learn.make_data_list(message)]
            except SwitchGoneError:
                raise
            except SwitchError:  # the client's way to say that there is none
                if self._stream_ended():
                    self.close()
                    raise SwitchGoneError(f"{self._where}: the Barefoot Runtime no longer answers") from None
                return
            queue = self._digests.setdefault(learn.info.name_get(), deque())
            for sample in samples:
                sample.pop("action_name", None)
                sample.pop("is_default_entry", None)
                queue.append(sample)

    # -- the traffic manager -------------------------------------------------------------------------------------------

    def shape(
        self, port: int, rate_mbps: float, *, frame_bytes: int = 1514, buffer_packets: int | None = None
    ) -> None:
        """As :meth:`Switch.shape`: the port's shaper, and the buffer of each of its queues.

        Notes
        -----
        The shaper's burst is 10 microseconds at the rate, but at least two frames. A queue with a limit
        leaves the shared pool: it has exactly its guaranteed cells. Packets do not share cells, so small
        packets fill the buffer by number, not by bytes.
        """
        check_shape(port, rate_mbps, frame_bytes, buffer_packets)
        burst_bytes = max(2 * frame_bytes, round(rate_mbps * 10 / 8))
        self._set_tm(
            "port.sched_shaping",
            {"dev_port": port},
            {
                "unit": "BPS",
                "provisioning": "MIN_ERROR",
                "max_rate": max(round(rate_mbps * 1000), 1),
                "max_burst_size": burst_bytes,
            },
            port,
        )
        self._set_tm("port.sched_cfg", {"dev_port": port}, {"max_rate_enable": True}, port)
        if buffer_packets is None:
            return
        cells = buffer_packets * math.ceil(frame_bytes / self._cell_bytes())
        group, queues = self._queues(port)
        for queue in sorted(set(queues)):
            self._set_tm(
                "queue.buffer",
                {"pg_id": group, "pg_queue": queue},
                {"guaranteed_cells": cells, "tail_drop_enable": True},
                port,
                "buffer_only",
            )

    def queue_count(self, port: int) -> int:
        """As :meth:`Switch.queue_count`. The ports of a group share its queues: 8 or 16 each by default."""
        return len(self._queues(port)[1])

    def weight(self, port: int, queue: int, weight: int) -> None:
        if not 0 <= weight <= 1023:
            raise SwitchError(f"port {port}: the weight must be 0 to 1023, not {weight}")
        group, queues = self._queues(port)
        if not 0 <= queue < len(queues):
            raise SwitchError(f"port {port}: has {len(queues)} queues; {queue} is out of range")
        key = {"pg_id": group, "pg_queue": queues[queue]}
        self._set_tm("queue.sched_cfg", key, {"dwrr_weight": weight}, port)

    def mirror_session(self, session_id: int, port: int, max_bytes: int | None = None) -> None:
        at = self._table("$mirror.cfg")
        gc = self._gc
        fields = [
            gc.DataTuple("$direction", str_val="EGRESS"),
            gc.DataTuple("$ucast_egress_port", val=port),
            gc.DataTuple("$ucast_egress_port_valid", bool_val=True),
            gc.DataTuple("$session_enable", bool_val=True),
            gc.DataTuple("$max_pkt_len", val=_fitting(max_bytes or 0, 16, "max_bytes")),  # 0: all of it
        ]
        key = at.make_key([gc.KeyTuple("$sid", _fitting(session_id, 16, "session_id"))])
        self._put(at, self._all, key, at.make_data(fields, "$normal"), f"mirror session {session_id}")

    def _cell_bytes(self) -> int:
        return int(self._default(self._tm("cfg"), "traffic manager")["cell_size_bytes"])

    def _default(self, table: Any, what: str) -> dict[str, Any]:
        with self._calls(what):
            for data, *_ in table.default_entry_get(self._all, {"from_hw": False}):
                return dict(data.to_dict())
        raise SwitchError(f"{what}: the switch reports nothing")

    def _queues(self, port: int) -> tuple[int, list[int]]:
        """A port's group, and the number of each of its queues in the group."""
        at = self._tm("port.cfg")
        key = at.make_key([self._gc.KeyTuple("dev_port", _fitting(port, 32, "port"))])
        with self._calls(f"port {port}"):
            for data, *_ in at.entry_get(self._all, [key], {"from_hw": False}):
                found = data.to_dict()
                # it lists all queue numbers that a program can write, which repeat the port's queues
                queues = found["egress_qid_queues"][: int(found["port_queues_count"])]
                return int(found["pg_id"]), [int(q) for q in queues]
        raise SwitchError(f"port {port}: does not exist")

    def _set_tm(
        self,
        name: str,
        key: Mapping[str, int],
        values: Mapping[str, int | bool | str],
        port: int,
        action: str | None = None,
    ) -> None:
        at, gc = self._tm(name), self._gc
        fields = []
        for field, value in values.items():
            kind = "bool_val" if isinstance(value, bool) else "str_val" if isinstance(value, str) else "val"
            if kind == "val":
                _, bits = at.info.data_field_size_get(field, action)
                value = _fitting(int(value), bits, f"port {port}: {field}")
            fields.append(gc.DataTuple(field, **{kind: value}))
        keys = at.make_key([gc.KeyTuple(f, _fitting(v, 32, f"port {port}")) for f, v in key.items()])
        # queues are numbered per pipe; these tables do not accept "all pipes"
        pipe = self._all if "dev_port" in key else gc.Target(device_id=0, pipe_id=pipe_of(port))
        with self._calls(f"port {port}: {name}"):
            at.entry_mod(pipe, [keys], [at.make_data(fields, action)])


class _Deadline:
    """A gRPC stub with deadlines. The client sets none, and would wait forever for a switch without power."""

    def __init__(self, stub: Any, timeout_s: float) -> None:
        self._stub, self._timeout_s = stub, timeout_s

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._stub, name)

        def with_deadline(*args: Any, **options: Any) -> Any:
            return call(*args, timeout=self._timeout_s, **options)

        return call if name == "StreamChannel" else with_deadline


def _import_client() -> Any:
    """The SDE's ``bfrt_grpc.client``."""
    try:
        found = importlib.import_module("bfrt_grpc.client")
    except ImportError as first:
        missing = first
        install = os.environ.get("SDE_INSTALL")
        folders = sorted(Path(install).glob("lib/python3*/site-packages")) if install else []
        paths = [p for f in folders for p in (f, f / "tofino", f / "tofino" / "bfrt_grpc") if p.is_dir()]
        sys.path.extend(str(p) for p in paths if str(p) not in sys.path)
        importlib.invalidate_caches()
        try:
            found = importlib.import_module("bfrt_grpc.client")
        except ImportError as second:
            missing = second
            found = None
    if found is None:
        if (missing.name or "").split(".")[0] == "bfrt_grpc":
            raise SwitchError(
                "the SDE's client for the Barefoot Runtime (bfrt_grpc) was not found: set SDE_INSTALL or PYTHONPATH"
            )
        raise SwitchError(f"the SDE's client for the Barefoot Runtime cannot be imported: {missing}")
    for name in ("bfruntime_grpc_client", "bfruntime_parse"):  # they log each request
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return found


def _full_name(names: Iterable[str], name: str) -> str | None:
    """The only one of `names` that is `name`, or ends in it."""
    names = list(names)
    if name in names:
        return name
    found = [n for n in names if n.endswith(f".{name}")]
    return found[0] if len(found) == 1 else None


def _key_arguments(key: Key, kind: str, bits: int, where: str) -> dict[str, int]:
    whole = (1 << bits) - 1
    if not isinstance(key, Exact | Lpm | Ternary | Range):
        key = Exact(_fitting(key, bits, where))
    if kind == "Exact" and isinstance(key, Exact):
        return {"value": _fitting(key.value, bits, where)}
    if kind == "Optional" and isinstance(key, Exact):
        return {"value": _fitting(key.value, bits, where), "is_valid": True}
    if isinstance(key, Lpm) and not 0 <= key.prefix_bits <= bits:
        raise SwitchError(f"{where}: a prefix must have 0 to {bits} bits, not {key.prefix_bits}")
    if kind == "LPM" and isinstance(key, Exact | Lpm):
        prefix = key.prefix_bits if isinstance(key, Lpm) else bits
        return {"value": _fitting(key.value, bits, where) & _prefix(prefix, bits), "prefix_len": prefix}
    if kind == "Ternary" and not isinstance(key, Range):
        mask = whole
        if isinstance(key, Ternary):
            mask = _fitting(key.mask, bits, where)
        elif isinstance(key, Lpm):
            mask = _prefix(key.prefix_bits, bits)
        return {"value": _fitting(key.value, bits, where) & mask, "mask": mask}
    if kind == "Range" and isinstance(key, Exact | Range):
        low, high = (key.low, key.high) if isinstance(key, Range) else (key.value, key.value)
        low, high = _fitting(low, bits, where), _fitting(high, bits, where)
        if low > high:
            raise SwitchError(f"{where}: a range cannot go from {low} to {high}")
        return {"low": low, "high": high}
    raise SwitchError(f"{where}: {key!r} cannot be the key of a match of kind {kind.lower()}")


def _prefix(prefix_bits: int, bits: int) -> int:
    return ((1 << prefix_bits) - 1) << (bits - prefix_bits)


def _identity(match: Mapping[str, Mapping[str, Any]]) -> tuple[Any, ...]:
    return tuple(sorted((name, tuple(sorted(given.items()))) for name, given in match.items()))


def _fitting(value: Any, bits: int, where: str) -> int:
    """The value as an int, if it fits into `bits` bits."""
    try:
        number = value.__index__()
    except (AttributeError, TypeError):
        raise SwitchError(f"{where}: {value!r} is not an integer") from None
    if isinstance(value, bool | np.bool_) or not 0 <= number < 1 << bits:
        raise SwitchError(f"{where}: {value!r} does not fit into {bits} bits")
    return int(number)


def _refusal(text: str, code: int | None = None) -> SwitchError:
    return SwitchError(f"{text} (it already exists)" if code == _ALREADY_EXISTS else text)


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    items = list(items)
    for begin in range(0, len(items), _CHUNK):
        yield items[begin : begin + _CHUNK]


def _quietly(call: Any) -> Any:
    def calling() -> None:
        with contextlib.suppress(Exception):
            call()

    return calling
