"""A Tofino's control port without a Tofino: a device with tables and registers, and a client for it.

The client has the names of ``bfrt_grpc.client`` of the SDE and refuses what that refuses, as far as
``hardware.common.bfrt`` uses it; behind it is a :class:`Device`, described by the JSON that a P4 compiler writes
(``bf-rt.json``) and by that of the traffic manager, both cut down to what is used.
"""

from __future__ import annotations

import queue
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

INVALID, NOT_FOUND, EXISTS, FULL, UNIMPLEMENTED = 3, 5, 6, 8, 12
CODES = {
    3: "INVALID_ARGUMENT",
    5: "NOT_FOUND",
    6: "ALREADY_EXISTS",
    8: "RESOURCE_EXHAUSTED",
    12: "UNIMPLEMENTED",
}

# ---- what compilers and drivers write about tables


def _type(kind: int | str) -> dict[str, Any]:
    return {"type": "bytes", "width": kind} if isinstance(kind, int) else {"type": kind}


def _data(number: int, name: str, kind: int | str, notes: Sequence[dict[str, str]] = ()) -> dict[str, Any]:
    repeated = isinstance(kind, str) and kind.endswith("[]")
    return {
        "id": number,
        "name": name,
        "repeated": repeated,
        "mandatory": False,
        "read_only": False,
        "annotations": list(notes),
        "type": _type(kind.removesuffix("[]") if isinstance(kind, str) else kind),
    }


def table(
    name: str,
    number: int,
    *,
    keys: Sequence[tuple[str, str, int | str]] = (),
    actions: Mapping[str, Mapping[str, int | str]] | None = None,
    data: Mapping[str, int | str] | None = None,
    kind: str = "MatchAction_Direct",
    size: int = 1024,
) -> dict[str, Any]:
    notes = [{"name": "$bfrt_field_class", "value": "register_data"}] if kind == "Register" else []
    made: dict[str, Any] = {
        "name": name,
        "id": number,
        "table_type": kind,
        "size": size,
        "attributes": [],
        "supported_operations": ["SyncRegisters"] if kind == "Register" else [],
        "key": [
            {"id": i, "name": n, "match_type": match, "mandatory": n.startswith("$"), "repeated": False,
             "annotations": [], "type": _type(t)}
            for i, (n, match, t) in enumerate(keys, 1)
        ],
        "data": [
            {"mandatory": False, "read_only": False, "singleton": _data(100 + i, n, t, notes)}
            for i, (n, t) in enumerate((data or {}).items())
        ],
    }  # fmt: skip
    if actions is not None:
        made["action_specs"] = [
            {"id": number * 100 + i, "name": n, "annotations": [], "action_scope": "TableAndDefault",
             "data": [_data(j, p, t) for j, (p, t) in enumerate(parameters.items(), 1)]}
            for i, (n, parameters) in enumerate(actions.items(), 1)
        ]  # fmt: skip
    return made


def register(name: str, number: int, fields: Mapping[str, int], size: int) -> dict[str, Any]:
    control = name.removeprefix("pipe.")
    return table(
        name,
        number,
        keys=[("$REGISTER_INDEX", "Exact", "uint32")],
        data={f"{control}.{f}": bits for f, bits in fields.items()},
        kind="Register",
        size=size,
    )


def learn(name: str, number: int, fields: Mapping[str, int]) -> dict[str, Any]:
    made = [_data(i, n, bits) for i, (n, bits) in enumerate(fields.items(), 1)]
    return {"name": name, "id": number, "annotations": [], "fields": made}


def fixed_tables(family: str) -> list[dict[str, Any]]:
    """Of the traffic manager, the mirrors and the device (SDE 9.13), the fields that are used."""
    port, queue_ = (
        [("dev_port", "Exact", "uint32")],
        [("pg_id", "Exact", "uint8"), ("pg_queue", "Exact", "uint8")],
    )
    tm = f"{family}.tm"
    return [
        table(f"{tm}.port.cfg", 9001, keys=port, kind="TmPortCfg",
              data={"pg_id": "uint8", "port_queues_count": "uint8", "egress_qid_queues": "uint8[]"}),
        table(f"{tm}.port.sched_cfg", 9002, keys=port, kind="TmPortSchedCfg",
              data={"max_rate_enable": "bool", "scheduling_speed": "string"}),
        table(f"{tm}.port.sched_shaping", 9003, keys=port, kind="TmPortSchedShaping",
              data={"unit": "string", "provisioning": "string", "max_rate": "uint32", "max_burst_size": "uint32"}),
        table(f"{tm}.queue.sched_cfg", 9004, keys=queue_, kind="TmQueueSchedCfg",
              data={"dwrr_weight": "uint16", "max_priority": "string"}),
        table(f"{tm}.queue.buffer", 9005, keys=queue_, kind="TmQueueBuffer",
              data={"guaranteed_cells": "uint32", "hysteresis_cells": "uint32", "tail_drop_enable": "bool"},
              actions={"shared_pool": {"pool_max_cells": "uint32"}, "buffer_only": {}}),
        table(f"{tm}.cfg", 9006, kind="TmCfg", size=1,
              data={"cell_size_bytes": "uint32", "total_cells": "uint32"}),
        table("$mirror.cfg", 9008, keys=[("$sid", "Exact", "uint16")], kind="MirrorCfg",
              data={"$session_enable": "bool", "$direction": "string", "$ucast_egress_port": "uint32",
                    "$ucast_egress_port_valid": "bool", "$max_pkt_len": "uint16"},
              actions={"$coalescing": {}, "$normal": {}}),
    ]  # fmt: skip


# ---- the device


class Refused(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


Frozen = tuple[tuple[str, tuple[tuple[str, int], ...]], ...]


def frozen(key: Mapping[str, Mapping[str, Any]]) -> Frozen:
    return tuple(sorted((name, tuple(sorted(given.items()))) for name, given in key.items()))


class Device:
    """What ``bf_switchd`` has. Keys are {field: {"value": …, "mask": …}}, data {field: value} with full names."""

    def __init__(
        self,
        program: str,
        tables: Sequence[dict[str, Any]],
        learns: Sequence[dict[str, Any]] = (),
        *,
        family: str = "tf1",
        fixed: Sequence[dict[str, Any]] | None = None,
        pipes: int = 2,
    ) -> None:
        self.program, self.family, self.pipes = program, family, pipes
        self.p4 = {"tables": list(tables), "learn_filters": list(learns)}
        self.fixed = {"tables": list(fixed_tables(family) if fixed is None else fixed)}
        self.about = {t["name"]: t for t in (*self.p4["tables"], *self.fixed["tables"])}
        self.owner: int | None = None
        self.clients: set[int] = set()
        self.streams: list[queue.Queue[Any]] = []
        self.log: list[tuple[str, str]] = []
        self.hanging = False
        self.power_on()

    def power_on(self) -> None:
        self.entries: dict[str, dict[Any, tuple[str | None, dict[str, Any]]]] = {n: {} for n in self.about}
        self.defaults: dict[str, tuple[str | None, dict[str, Any]]] = {}
        self.hw: dict[str, list[dict[str, list[int]]]] = {}
        for name, about in self.about.items():
            if about["table_type"] == "Register":
                fields = [d["singleton"]["name"] for d in about["data"]]
                self.hw[name] = [{f: [0] * self.pipes for f in fields} for _ in range(about["size"])]
        self.copy = {name: [dict(cell) for cell in cells] for name, cells in self.hw.items()}
        tm = f"{self.family}.tm"
        cell = 80 if self.family == "tf1" else 176
        self.defaults[f"{tm}.cfg"] = (None, {"cell_size_bytes": cell, "total_cells": 277_000})
        # the drivers' default: a port's share of its group's queues, which the numbers in a program repeat
        count, numbers = (8, 32) if self.family == "tf1" else (16, 128)
        for port in (0, 1, 132):  # two ports of one group, the second with its queues behind the first's
            key = frozen({"dev_port": {"value": port}})
            queues = list(range(count))
            if port == 1:
                queues = [count, *[count + 1] * 3, *range(count + 4, 2 * count)]
            self.entries[f"{tm}.port.cfg"][key] = (
                None,
                {"pg_id": 3, "port_queues_count": count, "egress_qid_queues": queues * (numbers // count)},
            )

    def _fixed(self, name: str) -> bool:
        return self.about[name]["table_type"].startswith(("Tm", "Dev"))

    def _place(self, name: str, key: Mapping[str, Any], pipe: int) -> Any:
        if "pg_id" in key:
            if pipe == 0xFFFF:
                raise Refused(INVALID, "one pipe, not all")
            return pipe, frozen(key)
        return frozen(key)

    def cell(self, name: str, index: int) -> dict[str, list[int]]:
        if index >= len(self.hw[name]):
            raise Refused(INVALID, f"register index {index}")
        return self.hw[name][index]

    def insert(self, name: str, key: Any, action: str | None, data: dict[str, Any], pipe: int) -> None:
        if name in self.hw:
            cell = self.cell(name, key["$REGISTER_INDEX"]["value"])
            for field, value in data.items():
                cell[field] = [value] * self.pipes
            self.copy[name][key["$REGISTER_INDEX"]["value"]] = dict(cell)
            return
        self.log.append(("insert", name))
        if self._fixed(name):
            raise Refused(UNIMPLEMENTED, f"Table Add failed table:{name}")
        place = self._place(name, key, pipe)
        if place in self.entries[name]:
            raise Refused(EXISTS, f"Table Add failed\n table:{name}")
        if len(self.entries[name]) >= self.about[name]["size"]:
            raise Refused(FULL, f"Not enough space table:{name}")
        self.entries[name][place] = (action, data)

    def modify(self, name: str, key: Any, action: str | None, data: dict[str, Any], pipe: int) -> None:
        self.log.append(("modify", name))
        if name in self.hw:
            self.insert(name, key, action, data, pipe)
            return
        place = self._place(name, key, pipe)
        if self._fixed(name):
            _, before = self.entries[name].get(place, (None, {}))
            self.entries[name][place] = (action, {**before, **data})
            return
        if place not in self.entries[name]:
            raise Refused(NOT_FOUND, f"Table Modify failed table:{name}")
        self.entries[name][place] = (action, data)

    def delete(self, name: str, key: Any, pipe: int) -> None:
        self.log.append(("delete", name))
        if key is None:
            self.entries[name].clear()
            self.defaults.pop(name, None)
        elif self.entries[name].pop(self._place(name, key, pipe), None) is None:
            raise Refused(NOT_FOUND, f"Table Delete failed table:{name}")

    def set_default(self, name: str, action: str | None, data: dict[str, Any]) -> None:
        self.log.append(("default", name))
        self.defaults[name] = (action, data)

    def operate(self, name: str, operation: str) -> None:
        self.log.append((operation, name))
        if operation not in self.about[name]["supported_operations"]:
            raise Refused(INVALID, "Operation not supported")
        self.copy[name] = [dict(cell) for cell in self.hw[name]]

    def find(self, name: str, keys: Sequence[Any] | None, pipe: int, from_hw: bool) -> Iterator[Any]:
        self.log.append(("read", name))
        if name in self.hw:
            cells = self.hw[name] if from_hw else self.copy[name]
            for i in range(len(cells)) if keys is None else [k["$REGISTER_INDEX"]["value"] for k in keys]:
                self.cell(name, i)
                yield {"$REGISTER_INDEX": {"value": i}}, None, cells[i]
            return
        for place in list(self.entries[name]) if keys is None else [self._place(name, k, pipe) for k in keys]:
            if place not in self.entries[name]:
                raise Refused(NOT_FOUND, f"Table Get failed table:{name}")
            action, data = self.entries[name][place]
            yield {field: dict(given) for field, given in place}, action, data

    def default(self, name: str) -> tuple[str | None, dict[str, Any]]:
        return self.defaults[name]

    def subscribe(self, number: int) -> queue.Queue[Any]:
        self.clients.add(number)
        stream: queue.Queue[Any] = queue.Queue()
        self.streams.append(stream)
        return stream

    def leave(self, number: int, stream: queue.Queue[Any]) -> None:
        self.clients.discard(number)
        if stream in self.streams:
            self.streams.remove(stream)
        stream.put(None)
        if self.owner == number:
            self.owner = None

    def bind(self, number: int, program: str) -> None:
        if self.owner is not None:
            raise Refused(
                EXISTS, f"Client ID {number} trying to bind but Client ID {self.owner} already owns this P4"
            )
        if program != self.program:
            raise Refused(NOT_FOUND, f"Failed to find BfRtInfo for program {program}")
        self.owner = number

    def send_digest(self, name: str, samples: Sequence[dict[str, int]]) -> None:
        number = next(x["id"] for x in self.p4["learn_filters"] if x["name"] == name)
        for stream in self.streams:
            stream.put((number, list(samples)))


# ---- the client


class _RpcError(Exception):
    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self._code, self._details = code, details
        self.sub_errors: list[tuple[int, Any]] = []  # in the trailing metadata, really

    def code(self) -> Any:
        return SimpleNamespace(name=self._code)

    def details(self) -> str:
        return self._details


class _BfruntimeRpcException(Exception):
    def __init__(self, error: _RpcError) -> None:
        super().__init__()
        self._error, self._errors = error, error.sub_errors

    def grpc_error_get(self) -> _RpcError:
        return self._error

    def sub_errors_get(self) -> list[tuple[int, Any]]:
        return self._errors


class _Message:
    """A protobuf message of any form: fields come with their first mention."""

    def __init__(self) -> None:
        self._items: list[_Message] = []

    def __getattr__(self, name: str) -> _Message:
        if name.startswith("__"):
            raise AttributeError(name)
        made = self.__dict__[name] = _Message()
        return made

    def add(self) -> _Message:
        self._items.append(_Message())
        return self._items[-1]

    def __iter__(self) -> Iterator[_Message]:
        return iter(self._items)

    def __getitem__(self, i: int) -> _Message:
        return self._items[i]


def _read_cells(device: Device, request: Any) -> Iterator[Any]:
    """The answer to a request, made without the client, for cells of one register."""
    requested = [entity.table_entry for entity in request.entities]
    (number,), (from_hw,) = {e.table_id for e in requested}, {e.table_flags.from_hw for e in requested}
    (name,) = [n for n, about in device.about.items() if about["id"] == number]
    ids = {d["singleton"]["name"]: d["singleton"]["id"] for d in device.about[name]["data"]}
    keys = [int.from_bytes(e.key.fields[0].exact.value, "big") for e in requested]
    wanted = [{"$REGISTER_INDEX": {"value": key}} for key in keys]
    made = []
    for key, (_, _, cell) in zip(keys, device.find(name, wanted, 0xFFFF, from_hw), strict=True):
        exact = SimpleNamespace(value=key.to_bytes(4, "big"))
        fields = [
            SimpleNamespace(field_id=ids[f], stream=v.to_bytes(4, "big"))
            for f, vs in cell.items()
            for v in vs
        ]
        entry = SimpleNamespace(
            key=SimpleNamespace(fields=[SimpleNamespace(exact=exact)]), data=SimpleNamespace(fields=fields)
        )
        made.append(SimpleNamespace(table_entry=entry))
    yield SimpleNamespace(entities=made)


class _Stub:
    """Calls as closures on the device; a client that sets no deadline would wait for ever for one that hangs."""

    def __init__(self, server: Server, number: int) -> None:
        self._server, self._number = server, number

    def _call(self, work: Any, timeout: float | None) -> Any:
        device = self._server.device
        if device.hanging:
            assert timeout is not None, "this call has no deadline"
            raise _RpcError("DEADLINE_EXCEEDED", "Deadline Exceeded")
        if not self._server.running:
            raise _RpcError("UNAVAILABLE", "failed to connect to all addresses")
        if self._number not in device.clients:  # it started anew and does not know this client
            raise _RpcError("INTERNAL", "Unable to get bound_program")
        return work(device)

    def Write(self, work: Any, metadata: Any = None, timeout: float | None = None) -> Any:
        try:
            return self._call(work, timeout)
        except Refused as no:
            err = _RpcError("UNKNOWN", "")
            err.sub_errors = [(0, SimpleNamespace(canonical_code=no.code, message=str(no)))]
            raise _BfruntimeRpcException(err) from None
        except _RpcError as err:
            raise _BfruntimeRpcException(err) from None

    def Read(self, work: Any, metadata: Any = None, timeout: float | None = None) -> Iterator[Any]:
        raw = isinstance(work, _Message)
        try:
            yield from self._call((lambda device: _read_cells(device, work)) if raw else work, timeout)
        except Refused as no:
            error = SimpleNamespace(canonical_code=no.code, message=str(no))
            err = _RpcError("UNKNOWN", "")
            err.sub_errors = [(0, error)]
            raise err if raw else _BfruntimeRpcException(err) from None
        except _RpcError as err:
            raise err if raw else _BfruntimeRpcException(err) from None

    def SetForwardingPipelineConfig(self, work: Any, timeout: float | None = None) -> Any:
        try:
            return self._call(work, timeout)
        except Refused as no:
            raise _BfruntimeRpcException(_RpcError(CODES[no.code], str(no))) from None
        except _RpcError as err:
            raise _BfruntimeRpcException(err) from None


class _ClientInterface:
    def __init__(
        self,
        grpc_addr: str,
        client_id: int,
        device_id: int,
        notifications: Any = None,
        timeout: float = 1,
        num_tries: int = 5,
        perform_subscribe: bool = True,
    ) -> None:
        server = _SERVERS[int(grpc_addr.rsplit(":", 1)[1])]
        self.client_id = client_id
        self.channel = SimpleNamespace(close=lambda: server.device.leave(client_id, self._stream))
        self.stub = _Stub(server, client_id)
        self.reader_writer_interface = SimpleNamespace(stub=self.stub)
        self.digest_q: queue.Queue[Any] = queue.Queue()
        if not server.running or server.device.hanging or client_id in server.device.clients:
            time.sleep(min(timeout * num_tries, 0.05))
            raise RuntimeError("Failed to subscribe to server at %s", grpc_addr)
        self._server, self._stream = server, server.device.subscribe(client_id)
        self.stream_recv_thread = threading.Thread(target=self._receive, daemon=True)
        self.stream_recv_thread.start()

    def _receive(self) -> None:
        while (message := self._stream.get()) is not None:
            self.digest_q.put(SimpleNamespace(digest_id=message[0], data=message[1]))

    def tear_down_stream(self) -> None:
        if not self._server.device.hanging:
            self._server.device.leave(self.client_id, self._stream)
        self.stream_recv_thread.join()

    def bind_pipeline_config(self, p4_name: str) -> None:
        self.stub.SetForwardingPipelineConfig(lambda device: device.bind(self.client_id, p4_name))

    def bfrt_info_get(self, p4_name: str) -> _Info:
        return _Info(self._server.device, self.reader_writer_interface)

    def digest_get(self, timeout: float = 1) -> Any:
        try:
            return self.digest_q.get(timeout=timeout)
        except queue.Empty:
            raise RuntimeError("Digest list not received.") from None


class _Info:
    def __init__(self, device: Device, rpc: Any) -> None:
        self._tables = {t["name"]: _Table(t, rpc) for t in device.about.values()}
        self._learns = {x["name"]: _Learn(x) for x in device.p4["learn_filters"]}

    def _one(self, things: dict[str, Any], name: str) -> Any:
        found = [x for full, x in things.items() if full == name or full.endswith("." + name)]
        if len(found) != 1:
            raise KeyError(name)
        return found[0]

    def table_name_list_get(self) -> list[str]:
        return list(self._tables)

    def table_get(self, name: str) -> Any:
        return self._one(self._tables, name)

    def learn_name_list_get(self) -> list[str]:
        return list(self._learns)

    def learn_get(self, name: str) -> Any:
        return self._one(self._learns, name)

    def learn_from_id_get(self, number: int) -> Any:
        return next(x for x in self._learns.values() if x.number == number)


_WIDTHS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}


def _kind(about: dict[str, Any]) -> tuple[str, tuple[int | None, int | None]]:
    kind = about["type"]["type"]
    bits = about["type"].get("width", _WIDTHS.get(kind))
    return kind, (None if bits is None else (bits + 7) // 8, bits)


class _Learn:
    def __init__(self, about: dict[str, Any]) -> None:
        self.number = about["id"]
        self.info = SimpleNamespace(
            name_get=lambda: about["name"],
            data_field_name_list_get=lambda *_: [f["name"] for f in about["fields"]],
        )

    def make_data_list(self, digest: Any) -> list[Any]:
        return [_Answer(sample, None) for sample in digest.data]


class _Answer:
    """What is read: data or a key."""

    def __init__(self, values: dict[str, Any], action: str | None = None, key: bool = False) -> None:
        self.values, self.action, self._key = values, action, key

    def to_dict(self) -> dict[str, Any]:
        more = {} if self._key else {"action_name": self.action, "is_default_entry": False}
        return {**self.values, **more}


class _Table:
    def __init__(self, about: dict[str, Any], rpc: Any) -> None:
        self._about, self._rpc, self._name = about, rpc, about["name"]
        self._keys = {k["name"]: k for k in about["key"]}
        self._common = {d["singleton"]["name"]: d["singleton"] for d in about["data"] if "singleton" in d}
        self._actions = {a["name"]: {d["name"]: d for d in a["data"]} for a in about.get("action_specs", [])}
        self.info = self

    # metadata

    def name_get(self) -> str:
        return str(self._name)

    def size_get(self) -> int:
        return int(self._about["size"])

    def operations_supported_get(self) -> list[str]:
        return list(self._about["supported_operations"])

    def key_field_name_list_get(self) -> list[str]:
        return list(self._keys)

    def id_get(self) -> int:
        return int(self._about["id"])

    def key_field_id_get(self, name: str) -> int:
        return int(self._keys[name]["id"])

    def key_field_size_get(self, name: str) -> Any:
        return _kind(self._keys[name])[1]

    def key_field_match_type_get(self, name: str) -> str:
        return str(self._keys[name]["match_type"])

    def action_name_list_get(self) -> list[str]:
        return list(self._actions)

    def data_field_name_list_get(self, action: str | None = None) -> list[str]:
        return [*(self._actions[action] if action else ()), *self._common]

    def _field(self, name: str, action: str | None) -> dict[str, Any]:
        return {**self._common, **(self._actions[action] if action else {})}[name]

    def data_field_type_get(self, name: str, action: str | None = None) -> str:
        return _kind(self._field(name, action))[0]

    def data_field_id_get(self, name: str, action: str | None = None) -> int:
        return int(self._field(name, action)["id"])

    def data_field_size_get(self, name: str, action: str | None = None) -> Any:
        return _kind(self._field(name, action))[1]

    # entries

    def make_key(self, fields: list[Any]) -> Any:
        made = {}
        for field in fields:
            if field.name not in self._keys:
                raise KeyError(f"The Key field name {field.name} doesn't exist in the Table {self._name}")
            if field.match_type != self.key_field_match_type_get(field.name):
                raise ValueError(f"field:{field.name} Passed in type:{field.match_type}")
            made[field.name] = field.given
        for name, about in self._keys.items():
            assert not about["mandatory"] or name in made, f"{name} is mandatory"
        return _Answer(made, key=True)

    def make_data(self, fields: Sequence[Any] = (), action: str | None = None, get: bool = False) -> Any:
        made = {}
        for field in fields:
            kind, (size, _) = _kind(self._field(field.name, action))
            value = {"bool": field.bool_val, "string": field.str_val}.get(kind, field.val)
            if value is None:
                raise ValueError(f"field {field.name}: nothing of type {kind}")
            if size is not None and value >= 1 << (8 * size):
                raise ValueError(f"expected {size} len for field {field.name}")
            made[field.name] = value
        return _Answer(made, action)

    def _write(self, work: Any) -> None:
        self._rpc.stub.Write(work, metadata=None)

    def entry_add(self, target: Any, key_list: Any = None, data_list: Any = None) -> None:
        assert len(key_list) == len(data_list)

        def work(device: Device) -> None:
            for key, data in zip(key_list, data_list, strict=True):
                device.insert(self._name, key.values, data.action, data.values, target.pipe_id)

        self._write(work)

    def entry_mod(self, target: Any, key_list: Any = None, data_list: Any = None) -> None:
        def work(device: Device) -> None:
            for key, data in zip(key_list, data_list, strict=True):
                device.modify(self._name, key.values, data.action, data.values, target.pipe_id)

        self._write(work)

    def entry_del(self, target: Any, key_list: Any = None) -> None:
        def work(device: Device) -> None:
            for key in key_list or [None]:
                device.delete(self._name, key and key.values, target.pipe_id)

        self._write(work)

    def entry_get(self, target: Any, key_list: Any = None, flags: Any = None) -> Iterator[Any]:
        keys = [k.values for k in key_list] if key_list else None
        from_hw = (flags or {"from_hw": True})["from_hw"]
        # the client of the SDE sends the request at once; here nothing happens before the first answer is taken
        for key, action, data in self._rpc.stub.Read(
            lambda device: device.find(self._name, keys, target.pipe_id, from_hw)
        ):
            yield _Answer(data, action), _Answer(key, key=True)

    def default_entry_set(self, target: Any, data: Any) -> None:
        self._write(lambda device: device.set_default(self._name, data.action, data.values))

    def default_entry_get(self, target: Any, flags: Any = None) -> Iterator[Any]:
        for action, data in self._rpc.stub.Read(lambda device: [device.default(self._name)]):
            yield _Answer(data, action), None

    def operations_execute(self, target: Any, operation: str) -> None:
        self._write(lambda device: device.operate(self._name, operation))


def _key_tuple(
    name: str,
    value: Any = None,
    mask: Any = None,
    prefix_len: Any = None,
    low: Any = None,
    high: Any = None,
    is_valid: Any = None,
) -> Any:
    given = {
        "value": value,
        "mask": mask,
        "prefix_len": prefix_len,
        "low": low,
        "high": high,
        "is_valid": is_valid,
    }
    given = {n: v for n, v in given.items() if v is not None}
    kinds = {
        ("value",): "Exact", ("value", "mask"): "Ternary", ("value", "prefix_len"): "LPM", ("low", "high"): "Range",
        ("value", "is_valid"): "Optional",
    }  # fmt: skip
    assert all(type(v) in (int, bool) for v in given.values()), f"Expected type int: {given}"
    return SimpleNamespace(name=name, given=given, match_type=kinds[tuple(given)])


def _data_tuple(name: str, val: Any = None, str_val: Any = None, bool_val: Any = None) -> Any:
    if val is not None and type(val) is not int:
        raise TypeError(f"Please pass an int/long or bytearray. you passed {type(val)}")
    return SimpleNamespace(name=name, val=val, str_val=str_val, bool_val=bool_val)


def _target(device_id: int = 0, pipe_id: int = 0xFFFF) -> Any:
    return SimpleNamespace(device_id=device_id, pipe_id=pipe_id)


def client_module() -> ModuleType:
    """What ``import bfrt_grpc.client`` gives."""
    module = ModuleType("bfrt_grpc.client")
    module.__dict__.update(
        ClientInterface=_ClientInterface,
        BfruntimeRpcException=_BfruntimeRpcException,
        BfruntimeReadWriteRpcException=_BfruntimeRpcException,
        bfruntime_pb2=SimpleNamespace(ReadRequest=_Message),
        KeyTuple=_key_tuple,
        DataTuple=_data_tuple,
        Target=_target,
        grpc=SimpleNamespace(RpcError=_RpcError),
    )
    return module


# ---- the server

_SERVERS: dict[int, Server] = {}


class Server:
    """Where a client finds a device."""

    def __init__(self, device: Device) -> None:
        self.device, self.running, self.port = device, False, 0

    def start(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", self.port))
        self.port = self._socket.getsockname()[1]
        _SERVERS[self.port] = self
        self.running = True

    def stop(self) -> None:
        """As if the process had been killed."""
        if self.running:
            self.running = False
            self._socket.close()
            self.device.owner = None
            self.device.clients.clear()
            streams, self.device.streams = self.device.streams, []
            for stream in streams:
                stream.put(None)


@contextmanager
def serving(device: Device) -> Iterator[Server]:
    """A server for a device, and the client as if the SDE were installed."""
    before = {name: sys.modules.get(name) for name in ("bfrt_grpc", "bfrt_grpc.client")}
    package = ModuleType("bfrt_grpc")
    package.__path__ = []  # type: ignore[attr-defined]
    sys.modules.update({"bfrt_grpc": package, "bfrt_grpc.client": client_module()})
    server = Server(device)
    server.start()
    try:
        yield server
    finally:
        device.hanging = False
        server.stop()
        _SERVERS.pop(server.port, None)
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module
