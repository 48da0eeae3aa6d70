"""A Tofino in software: the vendor's model of the chip, with a compiled program loaded.

The model is part of `open-p4studio <https://github.com/p4lang/open-p4studio>`_ (``pkgsrc/tofino-model``); its
``simple_test_harness`` builds one program per chip, ``tofino_test_harness`` and ``jbay_test_harness``, that
needs no drivers: it loads what the assembler wrote, and takes commands, one per line. A packet's way through
parsers, tables, stateful ALUs and deparsers is the chip's, bit for bit. Its traffic manager is not: packets
leave in order and at once, nothing is shaped or dropped, and the clock advances by 8 ns per packet. So
programs are tested on it with times, queues and random bits from a header (``common/test_input.p4``).

The harness lacks commands for some things that the chip has; the class does them from the memory layout in
``context.json``, reads digests in the harness's log, or refuses.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import queue
import re
import shutil
import struct
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .switch import Exact, Key, Lpm, Range, Switch, SwitchError, SwitchGoneError, Ternary
from .wires import RECIRCULATION_PORTS

__all__ = ["HARNESSES", "TofinoModel", "find_harness"]

#: The harness of each chip; the model's names for the chips are older than the products'.
HARNESSES = {"tofino": "tofino_test_harness", "tofino2": "jbay_test_harness"}
#: A folder that has them, if they are not on PATH.
FOLDER_VARIABLE = "CCTOOLKIT_TOFINO_MODEL"

_PATIENCE_S = 120.0
_COMPLAINT = re.compile(r"<stdin>:\d+: (.*)")
_UNKNOWN = "Unknown command "
_PLACE, _VARIABLE = "place_", "CCT_PLACE"
_KEY = "key_of_"
_CELLS = re.compile(r"register \S+\(physical \d+\):((?: \S+=\d+)+)")
_DUMP = re.compile(r"(?:unexpected )?packet output on port (\d+):$")
_DUMPED_ROW = re.compile(r"([0-9a-f]{4,})  (.{49})")
_QUANTUM = re.compile(r"\s*:\S+:LearningFilter::LQ\[ *(\d+)\.\. *(\d+)\] = +0x([0-9a-f]+) ")
_QUANTUM_BYTES = 48
_ROW_BITS, _SRAM_ROWS, _SRAM_COLUMNS, _TCAM_ROWS = 128, 1024, 12, 512


def find_harness(target: str) -> Path | None:
    """The path of a chip's harness, if this machine has one."""
    name = HARNESSES[target]
    folder = os.environ.get(FOLDER_VARIABLE)
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    return Path(found) if found else None


class TofinoModel(Switch):
    """A model of a Tofino, started with a compiled program.

    Parameters
    ----------
    folder : path
        Output of ``hardware.build``: ``bfrt.json`` and ``pipe/``.
    target : {"tofino", "tofino2"}
    harness : path, optional
        Default: on PATH, or in the folder that the environment variable ``CCTOOLKIT_TOFINO_MODEL`` names.
    digests : bool
        Whether :meth:`digests` works. The harness then logs a thousand lines per packet, and takes ten times as long.

    Raises
    ------
    SwitchError
        There is no harness, or it refuses the program.

    Notes
    -----
    Registers are those of pipe 0, so packets must come in by its ports, 0 to 71.
    """

    def __init__(
        self,
        folder: str | Path,
        target: str,
        *,
        harness: str | Path | None = None,
        digests: bool = False,
    ) -> None:
        found = harness or find_harness(target)
        if found is None:
            raise SwitchError(
                f"{HARNESSES[target]} is not on PATH, nor in the folder that {FOLDER_VARIABLE} names"
            )
        self.target = target
        self._folder, self._harness = Path(folder).resolve(), Path(found)
        try:
            context, interface = (
                json.loads((self._folder / name).read_text(encoding="utf-8"))
                for name in ("pipe/context.json", "bfrt.json")
            )
        except OSError as err:
            raise SwitchError(f"{err.filename}: {err.strerror}") from None
        self._context = json.dumps(_for_harness(context))
        self._layout = _Layout(context, interface)
        self._sessions: dict[int, bytes] = {}
        self._digests: dict[str, deque[dict[str, int]]] | None = None
        if digests:
            self._digests = {name: deque() for name in self._layout.digests}
        self._start()

    # -- the process ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start the model; registers are empty, tables have their constant entries."""
        self._process = _Process(self._harness, self._folder / "pipe", logs=self._digests is not None)
        self._tables: dict[str, _Entries] = {}
        self._defaults: dict[str, str] = {}
        again = RECIRCULATION_PORTS[self.target]
        commands = [f"wire {again} -> {again}"]
        with tempfile.TemporaryDirectory() as folder:
            drivers, context = Path(folder) / "drivers.bin", Path(folder) / "context.json"
            drivers.write_bytes(b"".join([*self._layout.home_banks(self.target), *self._sessions.values()]))
            context.write_text(self._context, encoding="utf-8")
            commands += [f"load {drivers}", f"load {self.target}.bin", f"load {context}"]
            self._process.ask([*commands, *self._layout.constant_entries()])

    def close(self) -> None:
        self._process.close()

    def reconnect(self, timeout_s: float = 10.0) -> None:
        """Start the model again; unlike a switch that kept running, it has lost its state."""
        self._process.close()
        self._start()

    def packets(self, packets: Sequence[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        """Send packets in order.

        Parameters
        ----------
        packets : list of (int, bytes)
            The port where each comes in, and the frame without its checksum.

        Returns
        -------
        list of (int, bytes)
            Port and frame of the packets that left: port by port, in the order in which they left it.
        """
        lines: list[str] = []
        last = None
        for port, frame in packets:
            if last not in (None, port):  # ports have parsers of their own, so packets could overtake
                lines.append("wait")
            last = port
            lines.append(f"packet {port} {frame.hex()}")
        self._flush()
        output = self._process.ask([*lines, "wait"])
        if self._digests is not None:
            for quantum in _quanta(output):
                name, digest = self._layout.digest(quantum)
                self._digests[name].append(digest)
        left = _dumps(output)
        return [(port, frame) for port, frame in left if port != RECIRCULATION_PORTS[self.target]]

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
        at = self._entries(table)
        at.put(at.about.match(keys), at.about.action(action, data), priority)

    def delete_entry(self, table: str, keys: Mapping[str, Key]) -> None:
        at = self._entries(table)
        if not at.remove(at.about.match(keys)):
            raise SwitchError(f"{table}: {dict(keys)}: no such entry")

    def clear_table(self, table: str) -> None:
        self._entries(table).clear()

    def set_default(self, table: str, action: str, data: Mapping[str, int] | None = None) -> None:
        at = self._layout.table(table)
        self._defaults[at.name] = f"setdefault {at.name} {at.action(action, data)}"
        self._process.ask([self._defaults[at.name]])

    def _entries(self, table: str) -> _Entries:
        about = self._layout.table(table)
        return self._tables.setdefault(about.name, _Entries(about))

    def _flush(self) -> None:
        """Write what has changed in the tables."""
        for entries in self._tables.values():
            if commands := entries.commands():
                entries.placed(self._process.ask(commands))

    # -- registers -----------------------------------------------------------------------------------------------------

    def read_register(self, name: str, first: int = 0, count: int | None = None) -> np.ndarray:
        at = self._layout.register(name)
        last = at.size if count is None else first + count
        if not 0 <= first <= last <= at.size:
            raise SwitchError(f"{name}: has {at.size} cells; {first} to {last} is out of range")
        self._flush()
        output = self._process.ask([f"check_register 0:{at.name}({i})" for i in range(first, last)])
        cells = [dict(p.split("=") for p in m[1].split()) for m in map(_CELLS.match, output) if m]
        if len(cells) != last - first:
            raise SwitchError(f"{name}: the model answers for {len(cells)} cells of {last - first}")
        out = np.zeros(len(cells), at.dtype)
        for i, cell in enumerate(cells):
            out[i] = (cell["lo"], cell["hi"]) if at.dtype.names else cell["lo"]
        return out

    def write_register(self, name: str, value: int | Mapping[str, int], index: int | None = None) -> None:
        at = self._layout.register(name)
        if index is not None and not 0 <= index < at.size:
            raise SwitchError(f"{name}: has {at.size} cells; {index} is out of range")
        word, per_row = at.cell(value), _ROW_BITS // at.bits
        if index is None:
            rows = dict.fromkeys(range(-(-at.size // per_row)), [word] * per_row)
        else:
            row, place = divmod(index, per_row)
            before = self.read_register(name, row * per_row, min(per_row, at.size - row * per_row))
            cells = [at.cell(int(c) if before.dtype.names is None else _fields(c)) for c in before]
            cells[place] = word
            rows = {row: cells}
        self._process.ask(line for row, cells in rows.items() for line in at.write_row(row, cells))

    # -- digests -------------------------------------------------------------------------------------------------------

    def digests(
        self, name: str, fields: Sequence[str] = (), timeout_s: float = 0.0
    ) -> Iterator[Mapping[str, Any]]:
        """As :meth:`Switch.digests`: what the packets so far gave to the learning filter.

        Notes
        -----
        The filter itself is left out. A chip's forgets a digest that repeats an earlier one bit by bit, and those
        for which its buffer has no room.
        """
        if self._digests is None:
            raise SwitchError(f"{self.target}: the model was started without digests")
        full = _full_name(self._digests, name)
        if full is None:
            raise SwitchError(f"digest {name}: the program has {', '.join(self._digests) or 'none'}")
        mine = self._digests[full]
        while mine:
            yield mine.popleft()

    # -- what the model does not have ----------------------------------------------------------------------------------

    def shape(
        self, port: int, rate_mbps: float, *, frame_bytes: int = 1514, buffer_packets: int | None = None
    ) -> None:
        """Refuses: the model's traffic manager has neither rates nor buffers."""
        raise SwitchError(f"{self.target}: the chip's model has no rates and no buffers")

    def weight(self, port: int, queue: int, weight: int) -> None:
        """Nothing: packets leave in order, whatever the weights."""

    def mirror_session(self, session_id: int, port: int, max_bytes: int | None = None) -> None:
        """As :meth:`Switch.mirror_session`.

        Notes
        -----
        The harness sets sessions only before a program is loaded. So a new session starts the model again:
        tables are filled as before, but registers are empty.
        """
        session = _session(self.target, session_id, port, max_bytes)
        if self._sessions.get(session_id) == session:
            return
        self._sessions[session_id] = session
        tables, defaults = self._tables, self._defaults
        self._process.close()
        self._start()
        for entries in tables.values():
            entries.forget()
        self._tables, self._defaults = tables, defaults
        self._process.ask(defaults.values())


# ---- what the compiler placed where ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Table:
    """A match table: its keys, actions and memory."""

    name: str
    about: dict[str, Any]

    @property
    def stages(self) -> list[dict[str, Any]]:
        return list(self.about["match_attributes"]["stage_tables"])

    @property
    def kind(self) -> str:
        return str(self.stages[-1]["stage_table_type"])

    @property
    def rows(self) -> int:
        """TCAM rows of a ternary table, in all its stages."""
        return sum(
            len(stage["memory_resource_allocation"]["memory_units_and_vpns"]) * _TCAM_ROWS
            for stage in self.stages
        )

    def match(self, keys: Mapping[str, Key]) -> str:
        """The keys in the harness's words."""
        fields = {f["name"]: f for f in self.about["match_key_fields"]}
        if set(keys) != set(fields):
            raise SwitchError(f"{self.name}: has the keys {', '.join(fields) or 'none'}")
        clash = _names_of_both(self.about)
        values = {name: self._value(name, keys[name], field) for name, field in fields.items()}
        return " ".join(f"{_KEY * (name in clash)}{name}:{value}" for name, value in values.items())

    def _value(self, name: str, key: Key, field: Mapping[str, Any]) -> str:
        where = f"{self.name}: {name}"
        bits, lowest = int(field["bit_width"]), int(field["start_bit"])  # a key may be a slice of a field
        if not isinstance(key, Exact | Lpm | Ternary | Range):
            key = Exact(key)
        if isinstance(key, Range):
            raise SwitchError(f"{where}: the chip's model takes no ranges")
        value, mask = int(key.value), (1 << bits) - 1
        if not 0 <= value <= mask:
            raise SwitchError(f"{where}: {key.value} does not fit into {bits} bits")
        if isinstance(key, Ternary):
            mask = key.mask
        elif isinstance(key, Lpm):
            mask -= mask >> key.prefix_bits
        if self.kind != "ternary_match":
            if mask != (1 << bits) - 1:
                raise SwitchError(f"{where}: must be exact")
            return f"0x{value << lowest:0{-(-(lowest + bits) // 4)}x}"
        digits = (("1" if value >> i & 1 else "0") if mask >> i & 1 else "*" for i in reversed(range(bits)))
        return "0b" + "".join(digits) + "*" * lowest

    def action(self, action: str, data: Mapping[str, int] | None) -> str:
        """The action and its data in the harness's words."""
        about = {a["name"]: a for a in self.about["actions"]}
        full = _full_name(about, action)
        if full is None:
            raise SwitchError(f"{self.name}: has the actions {', '.join(about)}, not {action}")
        parameters = [p["name"] for p in about[full].get("p4_parameters", [])]
        if set(data or {}) != set(parameters):
            raise SwitchError(f"{self.name}: {action}: has the parameters {', '.join(parameters) or 'none'}")
        return full + "(" + ", ".join(f"{name}:{int(value)}" for name, value in (data or {}).items()) + ")"

    @property
    def default(self) -> str:
        """The action for packets without a match, in the harness's words."""
        for action in self.about["actions"]:
            if action["handle"] == self.about["default_action_handle"]:
                data = {p["name"]: int(p.get("default_value", "0"), 0) for p in action["p4_parameters"]}
                return self.action(action["name"], data)
        raise SwitchError(f"{self.name}: has no default action")

    def constant_entries(self) -> Iterator[str]:
        """Commands that add the entries that are in the program."""
        actions = {a["handle"]: a["name"] for a in self.about["actions"]}
        for entry in self.about.get("static_entries", []):
            keys: dict[str, Key] = {}
            for field in entry["match_key_fields_values"]:
                value, mask = int(field["value"], 0), field.get("mask")
                keys[field["field_name"]] = Exact(value) if mask is None else Ternary(value, int(mask, 0))
            data = {p["parameter_name"]: int(p["value"], 0) for p in entry["action_parameters_values"]}
            row = f"{self.rows - 1 - entry['priority']} " if self.kind == "ternary_match" else ""
            action = self.action(actions[entry["action_handle"]], data)
            yield f"add {self.name} {row}{self.match(keys)} {action}"

    def row(self, place: str) -> list[str]:
        """Commands that empty the row of a hash table where the harness put an entry."""
        index, dot, address = place.rpartition(".")
        stage = self.stages[int(index) if dot else 0]
        page, row = divmod(int(address), _SRAM_ROWS)
        for way in stage["ways"]:
            for memory in way["memory_resource_allocation"]["memory_units_and_vpns"]:
                if page in memory["vpns"]:
                    return [
                        f"write_raw_sram {stage['stage_number']}:{unit}:{row} 0"
                        for unit in memory["memory_units"]
                    ]
        raise SwitchError(f"{self.name}: no memory at {place}")


@dataclass(frozen=True)
class _Register:
    """A register: its cells, and where they are."""

    name: str
    about: dict[str, Any]
    fields: tuple[tuple[str, int], ...]

    @property
    def size(self) -> int:
        return int(self.about["size"])

    @property
    def bits(self) -> int:
        """Of a cell, in memory."""
        return _ROW_BITS // int(self.about["stage_tables"][0]["pack_format"][0]["entries_per_table_word"])

    @property
    def dtype(self) -> np.dtype:
        if len(self.fields) == 1:
            return np.dtype(np.uint64)
        return np.dtype([(name, np.uint64) for name, _ in self.fields])

    def cell(self, value: int | Mapping[str, int]) -> int:
        """The content of a cell; the first field is in its lower half."""
        given = value if isinstance(value, Mapping) else dict.fromkeys([n for n, _ in self.fields], value)
        if set(given) != {n for n, _ in self.fields} or (
            len(self.fields) > 1 and not isinstance(value, Mapping)
        ):
            raise SwitchError(f"{self.name}: has the fields {', '.join(n for n, _ in self.fields)}")
        word = 0
        for i, (name, bits) in enumerate(self.fields):
            if not 0 <= given[name] < 1 << bits:
                raise SwitchError(f"{self.name}: {name}: {given[name]} does not fit into {bits} bits")
            word |= int(given[name]) << i * (self.bits // len(self.fields))
        return word

    def write_row(self, row: int, cells: Sequence[int]) -> Iterator[str]:
        """Commands that write a row of memory; its first cell is in the lowest bits."""
        content = sum(cell << i * self.bits for i, cell in enumerate(cells))
        stage = self.about["stage_tables"][0]
        page, row = divmod(row, _SRAM_ROWS)
        for memory in stage["memory_resource_allocation"]["memory_units_and_vpns"]:
            if page in memory["vpns"]:
                for unit in memory["memory_units"]:
                    yield f"write_raw_sram {stage['stage_number']}:{unit}:{row} {content:032x}"


@dataclass(frozen=True)
class _Quantum:
    """A digest: the names of its fields, and where the compiler put their pieces."""

    name: str
    fields: Sequence[str]
    pieces: Sequence[Mapping[str, Any]]

    def read(self, content: bytes) -> dict[str, int]:
        in_program = list(dict.fromkeys(piece["field_name"] for piece in self.pieces))
        values = dict.fromkeys(self.fields, 0)
        for piece in self.pieces:
            name = self.fields[in_program.index(piece["field_name"])]
            end = 8 * piece["start_byte"] + 7 - piece["start_bit"] + piece["field_width"]
            bits = int.from_bytes(content, "big") >> 8 * len(content) - end
            values[name] |= (bits & (1 << piece["field_width"]) - 1) << piece["phv_offset"]
        return values


def _names_of_both(table: Mapping[str, Any]) -> set[str]:
    """Names that a table uses for a key and for an action's parameter. To the harness they are one."""
    parameters = {p["name"] for a in table["actions"] for p in a.get("p4_parameters", [])}
    return parameters & {f["name"] for f in table["match_key_fields"]}


def _for_harness(context: dict[str, Any]) -> dict[str, Any]:
    """A copy of the compiler's description that the harness understands.

    - No key has the name of a parameter of its table.
    - Two keys that are slices of one field are told apart; the compiler names bits of both after the first.
    - There are no constant entries: if a key is a slice of a field, the harness would look for its value in the
      lowest bits of the field.
    """
    context = copy.deepcopy(context)
    for table in context["tables"]:
        if table["table_type"] != "match":
            continue
        table["static_entries"] = []
        for place in _dicts(table["match_attributes"]):
            if "field_bit" in place:
                place["field_name"] = _key_of_bit(table["match_key_fields"], place)
        clash = _names_of_both(table)
        for key in table["match_key_fields"]:
            if key["name"] in clash:
                key["name"] = _KEY + key["name"]
        for place in _dicts(table["match_attributes"]):
            if place.get("field_name") in clash and place.get("source", "spec") == "spec":
                place["field_name"] = _KEY + place["field_name"]
    return context


def _key_of_bit(keys: Sequence[Mapping[str, Any]], place: Mapping[str, Any]) -> str:
    """The key that has this bit of a field: the one that is named, or else another slice of the same field."""
    name, bit = place["field_name"], place["field_bit"]
    fields = {key.get("global_name") for key in keys if key["name"] == name} - {None, ""}
    for key in sorted(keys, key=lambda key: key["name"] != name):
        same = key["name"] == name or key.get("global_name") in fields
        if same and 0 <= bit - key["start_bit"] < key["bit_width"]:
            return str(key["name"])
    return str(name)


def _dicts(part: Any) -> Iterator[dict[str, Any]]:
    """All dicts in a part of a JSON document."""
    if isinstance(part, dict):
        yield part
        part = part.values()
    if not isinstance(part, str | int | float | None):
        for item in part:
            yield from _dicts(item)


class _Layout:
    """The compiler's description of a program."""

    def __init__(self, context: dict[str, Any], interface: dict[str, Any]) -> None:
        self._tables = {
            t["name"]: _Table(t["name"], t) for t in context["tables"] if t["table_type"] == "match"
        }
        stateful = {t["name"]: t for t in context["tables"] if t["table_type"] == "stateful"}
        self._registers = {}
        for table in interface["tables"]:
            if table["table_type"] == "Register":
                name = _full_name(stateful, table["name"].removeprefix("pipe."))
                if name is not None:  # a register that nothing uses is not placed
                    singles = [d["singleton"] for d in table["data"]]
                    fields = tuple((d["name"].rpartition(".")[2], int(d["type"]["width"])) for d in singles)
                    self._registers[name] = _Register(name, stateful[name], fields)
        called = {
            learn["name"].removeprefix("pipe."): [field["name"] for field in learn["fields"]]
            for learn in interface.get("learn_filters", [])
        }
        self._quanta = {
            q["lq_cfg_type"]: _Quantum(q["name"], called[q["name"]], q["fields"])
            for q in context.get("learn_quanta", [])
        }

    @property
    def digests(self) -> list[str]:
        return [quantum.name for quantum in self._quanta.values()]

    def digest(self, content: bytes) -> tuple[str, dict[str, int]]:
        """Name and fields of a digest; its type is in the lowest bits of the first byte."""
        quantum = self._quanta[content[0] & 7]
        return quantum.name, quantum.read(content)

    def constant_entries(self) -> Iterator[str]:
        """Commands that add the entries that are in the program."""
        for table in self._tables.values():
            yield from table.constant_entries()

    def home_banks(self, target: str) -> Iterator[bytes]:
        """What a switch's drivers write first, in the format of the files that the assembler writes.

        A register has one memory more than it fills: each row says in a map RAM whose row it is. Before it
        does, the chip would take any free row.
        """
        stage_shift = {"tofino": 33, "tofino2": 34}[target]
        for register in self._registers.values():
            stage = register.about["stage_tables"][0]
            for memory in stage["memory_resource_allocation"]["memory_units_and_vpns"]:
                for unit, page in zip(memory["memory_units"], memory["vpns"], strict=True):
                    row, column = divmod(unit, _SRAM_COLUMNS)
                    address = stage["stage_number"] << stage_shift | 2 << 30  # physical memory
                    address |= 1 << 18 | row << 14 | column << 10  # a map RAM
                    yield struct.pack("<IQII", ord("D") << 24, address, _ROW_BITS, _SRAM_ROWS)
                    yield struct.pack("<QQ", page ^ 0x3F, 0) * _SRAM_ROWS

    def table(self, name: str) -> _Table:
        return self._one(self._tables, name, "table")

    def register(self, name: str) -> _Register:
        return self._one(self._registers, name, "register")

    @staticmethod
    def _one(known: Mapping[str, Any], name: str, what: str) -> Any:
        full = _full_name(known, name)
        if full is None:
            raise SwitchError(f"{name}: no such {what}; the program has {', '.join(known) or 'none'}")
        return known[full]


def _full_name(names: Iterable[str], name: str) -> str | None:
    """The only one of `names` that is `name`, or ends in it."""
    names = list(names)
    if name in names:
        return name
    found = [n for n in names if n.endswith(f".{name}")]
    return found[0] if len(found) == 1 else None


def _fields(cell: np.void) -> dict[str, int]:
    assert cell.dtype.names is not None
    return {name: int(cell[name]) for name in cell.dtype.names}


# ---- mirror sessions -------------------------------------------------------------------------------------------------


def _session(target: str, session_id: int, port: int, max_bytes: int | None) -> bytes:
    """Registers of a mirror session in all pipes, in the format of the files that the assembler writes."""
    sessions = {"tofino": 1024, "tofino2": 256}[target]
    if not 0 <= session_id < sessions:
        raise SwitchError(f"mirror session {session_id}: must be 0 to {sessions - 1}")
    words = _tofino_session if target == "tofino" else _tofino2_session
    return b"".join(
        struct.pack("<III", ord("r") << 24, address, value)
        for pipe in range(4)
        for address, value in words(pipe, session_id, port, max_bytes)
    )


def _tofino_session(
    pipe: int, session_id: int, port: int, max_bytes: int | None
) -> Iterator[tuple[int, int]]:
    mirror = 0x200_0000 + pipe * 0x80_0000 + 0x7A_0000  # in the deparser
    session = mirror + session_id * 0x20
    size = 0x3FFF if max_bytes is None else max_bytes
    yield session, port << 4 | 1 << 3  # the egress port, and that it is valid
    yield session + 0x14, size << 16 | 0b10  # from egress
    yield mirror + 0x8000, 0b11  # mirroring as a whole
    yield 0x200_0000 + pipe * 0x80_0000 + 0x73_D01C, 0xF << 16 | 1  # ports 68 to 71 recirculate


def _tofino2_session(
    pipe: int, session_id: int, port: int, max_bytes: int | None
) -> Iterator[tuple[int, int]]:
    mirror = 0x400_0000 + pipe * 0x100_0000 + 0xC8_0000
    size = 0x3FFF if max_bytes is None else max_bytes + 4  # with the frame's checksum
    for word in range(5):
        yield (
            mirror + 0xC + 4 * word,
            port | 1 << 14 if word == 2 else 0,
        )  # the egress port, and that it is valid
    yield mirror + 0x2000 + 4 * session_id, 0  # these words to this session
    for slice_number in range(4):
        yield mirror + 0x1_0000 + slice_number * 0x800 + 4 * session_id, size << 4 | 0b011  # from egress


# ---- entries ---------------------------------------------------------------------------------------------------------


class _Entries:
    """A table's entries, and which of them the model has.

    The harness adds entries, but neither replaces nor deletes them. So a table from which something went is
    emptied and filled again.
    """

    def __init__(self, about: _Table) -> None:
        self.about = about
        self._wanted: dict[str, tuple[int, str]] = {}
        self._written: dict[str, tuple[int, str]] = {}
        self._places: list[str] = []

    def put(self, match: str, action: str, priority: int) -> None:
        self._wanted[match] = (priority, action)

    def remove(self, match: str) -> bool:
        return self._wanted.pop(match, None) is not None

    def clear(self) -> None:
        self._wanted.clear()

    def commands(self) -> list[str]:
        """What brings the model up to date."""
        if self._wanted == self._written:
            return []
        name, kind = self.about.name, self.about.kind
        gone = any(self._wanted.get(match) != entry for match, entry in self._written.items())
        if kind == "ternary_match":
            if self._written.keys() - self._wanted.keys():
                raise SwitchError(f"{name}: the chip's model cannot delete entries of a ternary table")
            if len(self._wanted) > self.about.rows:
                raise SwitchError(f"{name}: is full")
            # the highest row wins
            best_first = sorted(self._wanted.items(), key=lambda entry: (entry[1][0], entry[0].count("*")))
            top = self.about.rows - 1
            commands = [
                f"add {name} {top - i} {match} {action}" for i, (match, (_, action)) in enumerate(best_first)
            ]
        elif kind == "hash_match":
            commands = []
            if gone:
                commands += [line for place in self._places for line in self.about.row(place)]
                self._places.clear()
            for match, (_, action) in self._wanted.items():
                if gone or match not in self._written:
                    commands += [f"add {name} {match} {action} = {_VARIABLE}", f"{_PLACE}${_VARIABLE}"]
        else:  # a memory with a place for each key, of which the others have the default action
            lost = self._written.keys() - self._wanted.keys()
            commands = [f"add {name} {match} {self.about.default}" for match in lost]
            commands += [
                f"add {name} {match} {entry[1]}"
                for match, entry in self._wanted.items()
                if self._written.get(match) != entry
            ]
        self._written = dict(self._wanted)
        return commands

    def forget(self) -> None:
        """The model is a new one."""
        self._written.clear()
        self._places.clear()

    def placed(self, places: Iterable[str]) -> None:
        """Where the harness put the entries of a hash table."""
        self._places += places


# ---- the process -----------------------------------------------------------------------------------------------------


class _Process:
    """The harness: commands go in, and out comes what it prints."""

    def __init__(self, harness: Path, folder: Path, *, logs: bool = False) -> None:
        self._name = harness.name
        try:
            self._child = subprocess.Popen(
                [str(harness), *(["-p"] if logs else []), "-"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=folder,
            )
        except OSError as err:
            raise SwitchError(f"{harness}: {err.strerror}") from None
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._questions = 0

    def _listen(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if line.lstrip().startswith(b":") and b"::LQ[" not in line:
                continue  # the rest of a log; there is much of it
            self._lines.put(line.decode(errors="replace").rstrip("\n"))
        self._lines.put(None)

    def ask(self, lines: Iterable[str]) -> list[str]:
        """Give commands, and return what the harness prints until it has done them.

        Raises
        ------
        SwitchError
            It refuses one.
        SwitchGoneError
            It has ended, or does not answer.
        """
        self._questions += 1
        end = f"end_of_question_{self._questions}"  # no command, so the harness complains when it gets there
        threading.Thread(target=self._send, args=("\n".join([*lines, end, ""]),), daemon=True).start()
        output: list[str] = []
        refusals: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=_PATIENCE_S)
            except queue.Empty:
                self.close()
                raise SwitchGoneError(f"{self._name}: no answer in {_PATIENCE_S:g} s") from None
            if line is None:
                raise SwitchGoneError(f"{self._name}: ended; {' '.join(output[-3:])}".rstrip("; "))
            complaint = _COMPLAINT.match(line)
            if complaint is None:
                output.append(line)
            elif complaint[1] == _UNKNOWN + end:
                break
            elif complaint[1].startswith(_UNKNOWN + _PLACE):
                output.append(complaint[1].removeprefix(_UNKNOWN + _PLACE))
            else:
                refusals.append(complaint[1])
        if refusals:
            raise SwitchError(f"{self._name}: {refusals[0]}")
        return output

    def _send(self, text: str) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(OSError):  # it has ended; its output ends too
            self._child.stdin.write(text.encode())
            self._child.stdin.flush()

    def close(self) -> None:
        self._child.kill()
        self._child.wait()


def _quanta(lines: Iterable[str]) -> Iterator[bytes]:
    """Digests in the harness's log, piece by piece; places in it count from the end."""
    content = bytearray()
    for line in [*lines, ""]:
        piece = _QUANTUM.match(line)
        if content and (piece is None or int(piece[2]) == _QUANTUM_BYTES - 1):
            yield bytes(content)
            content.clear()
        if piece is not None:
            content += bytes.fromhex(piece[3])


def _dumps(lines: Iterable[str]) -> Iterator[tuple[int, bytes]]:
    """Port and content of the packets in the harness's hex dumps."""
    port, digits = None, ""
    for line in [*lines, ""]:
        if port is not None and (row := _DUMPED_ROW.match(line)):
            digits += row[2].replace(" ", "")
            continue
        if port is not None:
            yield port, bytes.fromhex(digits)
            port = None
        if begin := _DUMP.match(line):
            port, digits = int(begin[1]), ""
