"""The fake Barefoot Runtime with the chip's model behind it: entries and registers are the model's.

So a control plane's calls go their whole way, through `hardware.common.bfrt` and what the compiler says about the
program, into the memories of the chip. What stays fake is the traffic manager, which the model does not have.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fake_bfrt import Device

from hardware.common.switch import Exact, Key, Lpm, Range, Ternary
from hardware.common.tofino_model import TofinoModel

_PRIORITY, _INDEX = "$MATCH_PRIORITY", "$REGISTER_INDEX"


class ModelDevice(Device):
    """A device whose program runs in a model.

    Parameters
    ----------
    program : str
    folder : path
        Output of ``hardware.build``.
    model : TofinoModel
    """

    def __init__(self, program: str, folder: Path, model: TofinoModel) -> None:
        self.model = model
        schema = json.loads((folder / "bfrt.json").read_text(encoding="utf-8"))
        # cells written since the model got the last ones; a control plane writes whole registers cell by cell
        self._fresh: dict[str, dict[int, dict[str, int]]] = {}
        family = {"tofino": "tf1", "tofino2": "tf2"}[model.target]
        super().__init__(program, schema["tables"], schema.get("learn_filters", []), family=family, pipes=1)

    def insert(self, name: str, key: Any, action: str | None, data: dict[str, Any], pipe: int) -> None:
        super().insert(name, key, action, data, pipe)
        if name in self.hw:
            cell = {_last(field): values[0] for field, values in self.hw[name][key[_INDEX]["value"]].items()}
            self._fresh.setdefault(name, {})[key[_INDEX]["value"]] = cell
        else:
            self._put(name, key, action, data)

    def modify(self, name: str, key: Any, action: str | None, data: dict[str, Any], pipe: int) -> None:
        super().modify(name, key, action, data, pipe)
        if name not in self.hw:
            self._put(name, key, action, data)

    def delete(self, name: str, key: Any, pipe: int) -> None:
        super().delete(name, key, pipe)
        if self._fixed(name):
            return
        if key is None:
            self.model.clear_table(_control(name))
        else:
            self.model.delete_entry(_control(name), _keys(key)[0])

    def set_default(self, name: str, action: str | None, data: dict[str, Any]) -> None:
        super().set_default(name, action, data)
        if not self._fixed(name):
            assert action is not None
            self.model.set_default(_control(name), action, data)

    def operate(self, name: str, operation: str) -> None:
        self._look(name, 0, len(self.hw[name]))
        super().operate(name, operation)

    def find(self, name: str, keys: Sequence[Any] | None, pipe: int, from_hw: bool) -> Iterator[Any]:
        if name in self.hw and from_hw:
            indices = range(len(self.hw[name])) if keys is None else [k[_INDEX]["value"] for k in keys]
            self._look(name, min(indices), max(indices) + 1)
        yield from super().find(name, keys, pipe, from_hw)

    def send_digests(self) -> None:
        """Send what the packets so far have given to the learning filter."""
        for filter_ in self.p4["learn_filters"]:
            if samples := list(self.model.digests(_control(filter_["name"]))):
                self.send_digest(filter_["name"], samples)

    def flush(self) -> None:
        """Write cells into the model's registers."""
        for name, cells in self._fresh.items():
            values = list(cells.values())
            if len(cells) == len(self.hw[name]) and all(value == values[0] for value in values):
                self.model.write_register(_control(name), _value(values[0]))
            else:
                for index, cell in cells.items():
                    self.model.write_register(_control(name), _value(cell), index)
        self._fresh.clear()

    def _look(self, name: str, first: int, until: int) -> None:
        self.flush()
        cells = self.model.read_register(_control(name), first, until - first)
        for index, cell in enumerate(cells, first):
            for field in self.hw[name][index]:
                word = cell if cells.dtype.names is None else cell[_last(field)]
                self.hw[name][index][field] = [int(word)]

    def _put(self, name: str, key: Any, action: str | None, data: dict[str, Any]) -> None:
        if name == "$mirror.cfg":
            assert (
                data["$session_enable"]
                and data["$ucast_egress_port_valid"]
                and data["$direction"] == "EGRESS"
            )
            size = data["$max_pkt_len"] or None
            self.model.mirror_session(key["$sid"]["value"], data["$ucast_egress_port"], size)
        elif not self._fixed(name):
            assert action is not None
            keys, priority = _keys(key)
            self.model.add_entry(_control(name), keys, action, data, priority=priority)


def _control(name: str) -> str:
    """A table's name in the program."""
    return name.removeprefix("pipe.")


def _last(field: str) -> str:
    return field.rpartition(".")[2]


def _value(cell: dict[str, int]) -> int | dict[str, int]:
    return cell if len(cell) > 1 else next(iter(cell.values()))


def _keys(key: Mapping[str, Mapping[str, int]]) -> tuple[dict[str, Key], int]:
    """The keys, and the priority."""
    kinds = {"value": Exact, "mask": Ternary, "prefix_len": Lpm, "high": Range}
    made = {name: kinds[list(given)[-1]](*given.values()) for name, given in key.items() if name != _PRIORITY}
    return made, key.get(_PRIORITY, {}).get("value", 0)
